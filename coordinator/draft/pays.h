/* How many tokens should be drafted for the next step. Pure: numbers in, a number out; who runs the steps
 * measures them (decode.c). No clock, no I/O: tested by replay.
 *
 * A step with k drafts runs the trunk over 1 + k tokens. It yields
 *
 *     E(k) = 1 + a1 + a1 a2 + ... + a1 a2 ... ak
 *
 * tokens, where aj is the share of drafts at place j that were right among those whose predecessors were,
 * and takes C(1 + k) + D(k) seconds: C(T), of the trunk's pass over T tokens with the present mix of hits and
 * misses; D(k), of making k drafts, the NextN block's rows for the accepted tokens included (D(0) = 0: nobody
 * needs them). k drafts pay where
 *
 *     E(k) / (C(1 + k) + D(k))  >  1 / C(1)
 *
 * and the best k is the one with the largest left side. All of it is measured, as means that forget (half
 * their weight in DRAFT_HALF steps). A k is known after DRAFT_LEAST steps with it. At first 1 and 0 are
 * tried, then more, one at a time, as long as the last one was the best; another k takes over when it is
 * better by DRAFT_MARGIN. The neighbours of the present k are tried again after DRAFT_REVIEW steps, and
 * ever less often while that changes nothing. At k = 0 nothing is drafted: it is off. */
#pragma once
#include <stdint.h>

#define DRAFT_PLACES 16 /* most drafts of a step */
#define DRAFT_LEAST 5
#define DRAFT_HALF 32
#define DRAFT_MARGIN 1.02
#define DRAFT_REVIEW 64
#define DRAFT_REVIEW_MOST 1024

struct draft_mean {
    double sum, weight;
    uint32_t n; /* samples, saturating */
};
struct draft_pays {
    uint32_t most;
    struct draft_mean step[DRAFT_PLACES + 2]; /* by tokens */
    struct draft_mean draft[DRAFT_PLACES + 1]; /* by drafts */
    struct draft_mean right[DRAFT_PLACES + 1]; /* by place, from 1: 1 or 0 each */
    uint32_t now;                              /* what is done */
    uint32_t trial, trial_left;                /* what is tried, for so many steps more */
    uint32_t since, review;                    /* steps since the last review, and until the next */
    int upward;                                /* the next review looks at more drafts first */
};
void draft_pays_init(struct draft_pays *p, uint32_t most);
/* A step with k drafts: the trunk took so many seconds, `accepted` drafts were right. */
void draft_pays_note(struct draft_pays *p, uint32_t k, uint32_t accepted, double seconds);
/* k drafts were made. */
void draft_pays_made(struct draft_pays *p, uint32_t k, double seconds);
/* Drafts for the next step. */
uint32_t draft_pays_next(struct draft_pays *p);
/* 1: nothing is drafted, and nothing is being tried. */
int draft_pays_off(const struct draft_pays *p);
/* Tokens a second with k drafts; 0: not known yet. */
double draft_pays_rate(const struct draft_pays *p, uint32_t k);
/* E(k), with what is known of each place. */
double draft_pays_tokens(const struct draft_pays *p, uint32_t k);
