/* Log probabilities of a row of raw logits, ARITHMETIC.md rule 34, in doubles of rule 23. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* S = CHAIN over ids ascending of exp(l_j - m), 0 where l_j is NaN or l_j - m <= -700. *m = the
 * largest logit, NaN passed over. NaN, with *m as found, where m is not finite: no log probability
 * then. */
double logprob_sum(const float *l, size_t n, float *m);

/* (l_t - m) - ln S; NaN: none. t < n. For several t of one row: logprob_sum once, logprob_of each.
 */
double logprob(const float *l, size_t n, uint32_t t);
double logprob_of(float l_t, double sum, float m);

/* out_i = exp(l_i - m) or 0, as above, i < n: what the sum adds */
void logprob_exps_ref(const float *l, size_t n, float m, double *out);
void logprob_exps_avx2(const float *l, size_t n, float m, double *out);
