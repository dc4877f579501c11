/* Which experts stay at hand. Plain values in, decisions out: no I/O, no clock (time is the number
 * of tokens), no threads (one caller at a time). It decides and keeps the books; moving is the
 * caller's.
 *
 * The order of calls, for every pass of the trunk:
 *
 *   policy_step(p, n_tokens)                    the pass begins
 *   policy_use(p, layer, expert, n)             every item of every call: n of its tokens use the
 * expert policy_admit(p, layer, expert, ...)         an expert that is not at hand: does it get a
 * place? policy_leave(p, layer, expert)            ... the one that goes, if one does
 *     policy_enter(p, layer, expert, answer.place)
 *
 * An expert that is not admitted is computed from a place that is no part of this (a transit slab).
 * Costs: a use takes constant time, a decision the number of classes plus the residents that were
 * asked about and cannot leave (lfu: times the logarithm of the residents). */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/err.h"

enum policy_kind {
    POLICY_HEAT, /* by the value of heat class and age (reuse.h) */
    POLICY_LRU,  /* every expert is admitted, the least recently used one leaves */
    POLICY_LFU,  /* the same with uses that count half after 64 tokens */
};

enum { POLICY_SIZES = 8 };  /* most size classes */
#define POLICY_MARGIN 0.06 /* how much more an expert must be worth than the one it displaces */
#define POLICY_NOBODY UINT32_MAX

struct policy_config {
    enum policy_kind kind;
    uint32_t n_layers,
        n_experts;          /* layers that have experts or not; experts of the largest layer */
    uint32_t n_sizes;       /* size classes, the smallest first; 1 to POLICY_SIZES */
    const uint8_t *size_of; /* by layer: its experts' size class; NULL: all 0. Copied */
    uint32_t
        places[POLICY_SIZES]; /* of each size class. A place holds its class and smaller ones */
    double margin;            /* POLICY_MARGIN, or 0 where moves cost nothing. heat only */
    double moves;             /* most replacements a token in the mean, 0: any number. heat only */
};

struct policy;
int policy_open(const struct policy_config *c, struct policy **out, struct err *e);
void policy_close(struct policy *p); /* NULL is allowed */

/* A pass of n_tokens begins. */
void policy_step(struct policy *p, uint32_t n_tokens);
/* n of the pass's tokens use this expert, at hand or not. Once for each call's item. */
void policy_use(struct policy *p, uint32_t layer, uint32_t expert, uint32_t n);

enum policy_verdict {
    POLICY_FREE,    /* there is a free place */
    POLICY_REPLACE, /* somebody leaves for it */
    POLICY_STAYS,   /* no: whoever could leave is worth as much, or too much has moved lately */
    POLICY_WAITS,   /* nobody can leave now: ask again */
};
struct policy_answer {
    enum policy_verdict verdict;
    uint32_t place;         /* FREE, REPLACE: size class of the place */
    uint32_t layer, expert; /* REPLACE: who leaves */
};
/* May this resident leave now? */
typedef int policy_may_leave(void *arg, uint32_t layer, uint32_t expert);
/* Asks about an expert that is not resident. must: it needs a place in any case, so never STAYS.
 * may_leave NULL: all may. Changes nothing but the allowance of moves. */
struct policy_answer policy_admit(struct policy *p, uint32_t layer, uint32_t expert, int must,
                                  policy_may_leave *may_leave, void *arg);
/* Bookkeeping, asserted: not resident and a place of that class free; resident. */
void policy_enter(struct policy *p, uint32_t layer, uint32_t expert, uint32_t place);
void policy_leave(struct policy *p, uint32_t layer, uint32_t expert);
int policy_resident(const struct policy *p, uint32_t layer, uint32_t expert);
uint32_t policy_residents(const struct policy *p, uint32_t place);
/* The token of an expert's last use (an estimate in a pass of several), 0: not used in this run. */
uint64_t policy_last_use(const struct policy *p, uint32_t layer, uint32_t expert);

/* What this expert is worth now, in [0, 1] (heat): for prefetch, and for tiers to be compared. */
double policy_value(const struct policy *p, uint32_t layer, uint32_t expert);

/* Its uses of late, older ones counting less (half after HEAT_SLOW tokens): what of all uses is whose. */
double policy_uses(const struct policy *p, uint32_t layer, uint32_t expert);
/* Tokens so far, this pass's not counted. */
uint64_t policy_tokens(const struct policy *p);

/* Heat that outlives the process: decayed uses of each (layer, expert), and of how many tokens.
 * uses: n_layers * n_experts. */
void policy_export(const struct policy *p, float *uses, double *tokens);
/* At the start. Values that are not finite, or below 0, count as 0. */
void policy_import(struct policy *p, const float *uses, double tokens);
/* All experts that were ever used, layer * n_experts + expert, the hottest of the long run first;
 * returns how many. pairs: room for n_layers * n_experts. */
size_t policy_hottest(const struct policy *p, uint32_t *pairs);
