/* Index scores for sparse selection, ARITHMETIC.md rule 30. A pool is a few neighbouring positions
 * with one pooled key of d floats, made once, when its last member is there. A NaN result is
 * 0x7fc00000. */
#pragma once
#include <stddef.h>

/* pk_i = (CHAIN of adds over the members, ascending, of key[s]_i) / float(count) */
void pool_mean(const float *const *key, size_t count, size_t d, float *pk);
/* For each channel: a_s = gate[s]_i, + bias[s * d + i] (fl) where bias is not NULL; p = softmax of
 * a over the members (rule 25); pk_i = CHAIN, ascending, of fma(p_s, key[s]_i, acc). count <=
 * POOL_MEMBERS. */
#define POOL_MEMBERS 256
void pool_gated(const float *const *key, const float *const *gate, const float *bias, size_t count,
                size_t d, float *pk);

/* The score of every pool for one query: over its heads, ascending, s_h = relu(fl(LANE8(q_h, pk) *
 * scale)), acc = fma(w_h, s_h, acc), or fl(acc + s_h) where w is NULL. q is (n_heads, d); pool b's
 * key at pk + b * stride floats; score: n_pools. w holds any constant already. */
void index_scores(const float *q, const float *w, const float *pk, size_t stride, size_t n_pools,
                  size_t n_heads, size_t d, float scale, float *score);

void index_scores_ref(const float *q, const float *w, const float *pk, size_t stride,
                      size_t n_pools, size_t n_heads, size_t d, float scale, float *score);
void index_scores_avx2(const float *q, const float *w, const float *pk, size_t stride,
                       size_t n_pools, size_t n_heads, size_t d, float scale, float *score);
