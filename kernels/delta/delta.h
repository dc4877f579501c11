/* The delta rule, ARITHMETIC.md rule 31: one token of one head. There is no chunked form: it would
 * round differently. */
#pragma once
#include <stddef.h>

/* The state is (n_k, n_v) f32, first index the key channel. Reads it from `from`, writes the next
 * version to `to` (may be the same array, or must not overlap it):
 *   S = fl(S * a_k); u_v = LANE4 over k of fma(S, key_k); t_v = fl(fl(value_v - u_v) * beta);
 *   S = fma(key_k, t_v, S); o_v = LANE4 over k of fma(S, q_k).
 * a: exp(g) (vec_exp), n_k values, or one for the whole head where a_one is not 0. q, key: n_k;
 * value, o: n_v. A NaN in o and S is 0x7fc00000. Columns v are independent: a head may be cut over
 * threads by passing columns, with `pitch` floats from one row of the state to the next. */
void delta_rule(const float *from, float *to, size_t pitch, const float *a, int a_one,
                const float *q, const float *key, const float *value, float beta, size_t n_k,
                size_t n_v, float *o);

void delta_rule_ref(const float *from, float *to, size_t pitch, const float *a, int a_one,
                    const float *q, const float *key, const float *value, float beta, size_t n_k,
                    size_t n_v, float *o);
void delta_rule_avx2(const float *from, float *to, size_t pitch, const float *a, int a_one,
                     const float *q, const float *key, const float *value, float beta, size_t n_k,
                     size_t n_v, float *o);
