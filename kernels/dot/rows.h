/* Weight rows for tests and benches: bytes with known places of the block's scales. Every bit
 * pattern is a legal row (ARITHMETIC.md rule 15), so rows are made, not quantised. */
#pragma once
#include "kernels/type/type.h"
#include <stdint.h>
#include <string.h>

struct rng {
    uint64_t s;
};
static inline uint32_t rng_u32(struct rng *g)
{
    g->s = g->s * 6364136223846793005u + 1442695040888963407u;
    uint32_t x = (uint32_t)(g->s >> 33) ^ (uint32_t)(g->s >> 12);
    return x * 2654435769u ^ x >> 15;
}
/* about gaussian: the sum of four uniform numbers */
static inline float rng_gauss(struct rng *g)
{
    float v = 0;
    for (int i = 0; i < 4; i++)
        v += (float)(rng_u32(g) >> 8) * 0x1p-24f - 0.5f;
    return v * 1.7f;
}

/* Writes bits as the block's f16 scale and min_bits as its second one, where the type has them.
 * For MXFP4 and NVFP4, whose scales are bytes, the low byte of bits. */
static inline void block_set_scale(uint32_t type, uint8_t *b, uint16_t bits, uint16_t min_bits)
{
    switch (type) {
    case W_Q4_1:
    case W_Q5_1:
    case W_Q4_K:
    case W_Q5_K:
        memcpy(b + 2, &min_bits, 2);
        memcpy(b, &bits, 2);
        break;
    case W_Q2_K:
        memcpy(b + 80, &bits, 2);
        memcpy(b + 82, &min_bits, 2);
        break;
    case W_Q3_K:
        memcpy(b + 108, &bits, 2);
        break;
    case W_Q6_K:
        memcpy(b + 208, &bits, 2);
        break;
    case W_IQ1_M: /* the top nibbles of four words */
        for (int i = 0; i < 4; i++)
            b[49 + 2 * i] = (uint8_t)((b[49 + 2 * i] & 15) | (bits >> 4 * i & 15) << 4);
        break;
    case W_MXFP4:
        b[0] = (uint8_t)bits;
        break;
    case W_NVFP4:
        for (int i = 0; i < 4; i++)
            b[i] = (uint8_t)(bits + i);
        break;
    case W_F32:
    case W_F16:
    case W_BF16:
        break;
    default:
        memcpy(b, &bits, 2);
    }
}
