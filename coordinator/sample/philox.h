/* Philox4x32-10, the counter-based generator of ARITHMETIC.md rule 37: a function of counter and
 * key, without state. */
#pragma once
#include <stdint.h>

void philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* rule 37's u in [0, 1) of token i, from the first two words */
double philox_uniform(uint64_t seed, uint64_t i, uint32_t choice);
