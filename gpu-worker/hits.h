/* Which experts the trunk's own card has: its copy of the table, from which the executor decides hit or miss.
 * Own hits are never published, so nothing but this copy says that a slot is in use; therefore it changes
 * between steps alone, and a clear is confirmed only when the copy has it no longer and no step is open that
 * could have used it (docs/DESIGN.md section 4; shm/model/place.pml -DCARD).
 *
 * Two threads. The orders' thread tells what its orders changed, in their order; the executor says when a
 * step begins and ends, and what was told meanwhile is applied then:
 *
 *   orders' thread                                executor
 *   hits_came    after an upload's last byte      hits_begin     applies; the step's view, constant until
 *   hits_clear   0: confirmed; else later         hits_entry       ...
 *   hits_confirmed   numbers to answer now        hits_end       applies; 1: ring the orders' thread
 *
 * An expert that came while a step is open is used from the next step on; until then its items are
 * published like those of any other card, and its worker serves them. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/err.h"

struct hits;
/* Nothing is here yet, no step is open. most_clears: orders that can be open at a time. */
int hits_open(uint32_t n_layers, uint32_t n_experts, uint32_t most_clears, struct hits **out, struct err *e);
void hits_close(struct hits *h); /* NULL is allowed */

/* ---- the orders' thread ---- */
/* The expert's bytes are whole in `place`, where the table's entry will name it with `epoch`. */
void hits_came(struct hits *h, uint32_t layer, uint32_t expert, uint32_t place, uint64_t epoch);
/* It shall leave: order `number` wants an answer when it has. 0: it has, answer now. 1: a step is open;
 * hits_confirmed will name the order. An expert that is not here, or here under another place or epoch, is
 * confirmed in the same way and nothing is changed. */
int hits_clear(struct hits *h, uint32_t layer, uint32_t expert, uint32_t place, uint64_t epoch, uint64_t number);
/* The number of a clear that has been confirmed since and was not named yet; 0: none. */
uint64_t hits_confirmed(struct hits *h);
/* Is there one? For a sleeper's look. */
int hits_look(const struct hits *h);

/* ---- the executor ---- */
/* A step begins. *changed: layer * n_experts + expert of every entry that differs from what it was at the
 * last hits_begin (or from nothing), for a copy in a device's memory; *n of them, each once, valid until
 * hits_end. Both may be NULL. */
void hits_begin(struct hits *h, const uint32_t **changed, size_t *n);
/* ENTRY(place, epoch) of an expert that lies on this card, 0: it does not. Between hits_begin and hits_end,
 * any thread of the executor. */
uint64_t hits_entry(const struct hits *h, uint32_t layer, uint32_t expert);
/* All by layer * n_experts + expert, for who copies them whole; as hits_entry. */
const uint64_t *hits_entries(const struct hits *h);
/* The step is over: nothing of it reads a slot any more. 1: a clear was confirmed, ring the orders' thread. */
int hits_end(struct hits *h);
