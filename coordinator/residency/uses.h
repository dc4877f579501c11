/* Uses of experts, from the thread that makes the calls to the thread that keeps the policy: a ring
 * with one writer and one reader. The writer never waits and never asks how far the reader is; a
 * reader that stays away for long (it sleeps while every expert is at hand) finds the last
 * USES_RING words and loses older ones, but never the count of tokens.
 *
 *   field    written by   order
 *   head     writer       release, after the word; the reader acquires
 *   word[]   writer       relaxed, before the head that covers it; a word read is good if head,
 * read again after an acquire fence, is not a whole ring further tokens   writer only tail, seen,
 * torn   reader only
 */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

#include "coordinator/residency/policy.h"

enum { USES_RING = 1 << 16 }; /* words: some 80 tokens of the largest models */

struct uses {
    _Alignas(64) _Atomic uint64_t head; /* words written */
    uint64_t tokens;
    _Alignas(64) uint64_t tail; /* words read */
    uint64_t seen;              /* tokens of passes that the policy knows */
    uint32_t torn;              /* words were lost: uses count again from the next pass on */
    _Alignas(64) _Atomic uint64_t word[USES_RING];
};

/* Starts as all zero. Writer: a pass of n_tokens begins; n of its tokens use this expert.
 * layer < 2^15, expert < 2^16, n_tokens < 2^20. */
void uses_step(struct uses *u, uint32_t n_tokens);
void uses_note(struct uses *u, uint32_t layer, uint32_t expert, uint32_t n);
/* Reader: tells the policy what has come since. Returns how many words were lost. */
uint64_t uses_drain(struct uses *u, struct policy *p);
/* ... two policies, either of them NULL. */
uint64_t uses_drain_both(struct uses *u, struct policy *p, struct policy *q);
/* For uses_drain and its test: words from .. from + n - 1, of which the first so many, returned,
 * are gone. */
uint64_t uses_copy(const struct uses *u, uint64_t from, uint64_t n, uint64_t *copy);
