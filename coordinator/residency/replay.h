/* A recorded routing trace, run through caches: what each would have hit and moved.
 *
 * The rules: one access = one (layer, expert), in order of token, layer, place in the top-k. One
 * pool for all layers, empty at the start, of `places` places. Every access counts. A use is known
 * before the decision about its own expert, and nothing of what comes later (the optimum knows all
 * of it). */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "coordinator/residency/policy.h"
#include "shm/err.h"

struct trace {
    uint32_t n_tokens, n_layers, top_k;
    uint32_t n_experts; /* every id is smaller */
    uint32_t *pair;     /* (n_tokens, n_layers, top_k): layer * n_experts + expert; owned */
};

/* An array [tokens, layers, k] of ids, as the .npy file name holds it. n_experts 0: the largest id
 * + 1. Hands over t->pair; trace_free. */
int trace_read(const char *name, uint32_t n_experts, struct trace *t, struct err *e);
void trace_free(struct trace *t);
static inline size_t trace_accesses(const struct trace *t)
{
    return (size_t)t->n_tokens * t->n_layers * t->top_k;
}
static inline uint32_t trace_pairs(const struct trace *t)
{
    return t->n_layers * t->n_experts;
}

struct replay {
    uint64_t hits;
    uint64_t moves; /* admissions, the first filling included */
};

/* A policy of the engine, POLICY_MARGIN and any number of moves. */
int replay_policy(const struct trace *t, uint32_t places, enum policy_kind kind, struct replay *r,
                  struct err *e);
/* The same, policy made by the caller (one size class); from token `from` on. Residents stay as
 * they are at the end, so that a replay can go on with the next part. */
void replay_part(const struct trace *t, struct policy *p, uint32_t from, uint32_t to,
                 struct replay *r);
/* Rules to compare with. Window: heat = uses in the last 64 tokens, then lifetime uses a token,
 * then recency; admitted with two uses in the window and hotter than the coldest. */
int replay_window(const struct trace *t, uint32_t places, struct replay *r, struct err *e);
/* Decay: one count that halves every half_life tokens; admitted above the smallest by more than
 * margin. */
int replay_decay(const struct trace *t, uint32_t places, double half_life, double margin,
                 struct replay *r, struct err *e);
/* The pairs that are used most over the whole trace, known in advance; moves stay 0. */
int replay_fixed(const struct trace *t, uint32_t places, struct replay *r, struct err *e);
/* The most hits that any cache can have that may leave a missed expert out: Belady's. Moves are
 * those of this way to get them. */
int replay_optimum(const struct trace *t, uint32_t places, struct replay *r, struct err *e);
