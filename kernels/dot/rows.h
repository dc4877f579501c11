/* Weight rows and vectors for tests and benches (C and CUDA): bytes with known places of the block's scales. Every bit
 * pattern is a legal row (ARITHMETIC.md rule 15), so rows are made, not quantised. */
#pragma once
#include "kernels/type/type.h"
#include <math.h>
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

/* ---- rows and vectors of rule 36 ---- */

enum row_kind { RANDOM, CLEAN, ONES, HIGH_BITS, NIBBLES, ZEROS, SCALES, CANCEL, ROW_KINDS };
enum vec_kind { GAUSS, FLAT, EQUAL, SCALED, HOLES, BROKEN, OPPOSED, VEC_KINDS };

static inline uint16_t nasty_f16(struct rng *g)
{
    static const uint16_t v[] = {0,      0x8000, 1,      0x8001, 0x03FF, 0x7BFF,
                                 0xFBFF, 0x7C00, 0xFC00, 0x7E01, 0x7D55};
    return v[rng_u32(g) % 11];
}
static inline uint32_t nasty_f32(struct rng *g)
{
    static const uint32_t v[] = {0,          0x80000000, 1,          0x80000001, 0x7F7FFFFF,
                                 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC12345, 0xFFFFFFFF};
    return v[rng_u32(g) % 10];
}

static inline void make_block(struct rng *g, uint32_t type, uint8_t *b, size_t bytes, int kind)
{
    int random = kind == RANDOM || kind == CLEAN || kind == SCALES || kind == CANCEL;
    uint8_t fill = kind == ONES ? 0xFF : kind == HIGH_BITS ? 0x80 : kind == NIBBLES ? 0x88 : 0;
    uint16_t d, m;

    for (size_t i = 0; i < bytes; i++)
        b[i] = random ? (uint8_t)rng_u32(g) : fill;
    if (kind == RANDOM)
        return;
    if (kind == SCALES) {
        d = nasty_f16(g);
        m = nasty_f16(g);
    } else { /* 2^-12 .. 2^-5, the second of either sign; MXFP4 e and NVFP4 any */
        d = (uint16_t)(0x0C00 + rng_u32(g) % 0x1C00);
        m = (uint16_t)((rng_u32(g) & 0x8000) | (0x0C00 + rng_u32(g) % 0x1C00));
    }
    block_set_scale(type, b, d, m);
}

static inline void make_row(struct rng *g, uint32_t type, uint8_t *row, size_t n, int kind)
{
    const struct type_info *t = type_info(type);
    size_t blocks = n / t->block_values;

    for (size_t b = 0; b < blocks; b++) {
        uint8_t *at = row + b * t->block_bytes;

        make_block(g, type, at, t->block_bytes, kind);
        if (kind == CANCEL && b >= blocks - blocks / 2) /* as the first half; see OPPOSED */
            memcpy(at, row + (b - (blocks - blocks / 2)) * t->block_bytes, t->block_bytes);
        if (t->block_values > 1)
            continue;
        if (kind == SCALES) {
            uint32_t v = nasty_f32(g);
            if (rng_u32(g) % 16)
                v = 0x3F800000 + (v & 0x80000000);
            if (type == W_F16)
                v = rng_u32(g) % 16 ? 0x2E66u : nasty_f16(g);
            else if (type == W_BF16)
                v >>= 16;
            memcpy(at, &v, t->block_bytes);
        } else if (kind == CLEAN) { /* exponents near 1 */
            at[t->block_bytes - 1] = (uint8_t)((at[t->block_bytes - 1] & 0x80) | 0x3C);
        }
    }
}

static inline void make_vector(struct rng *g, float *x, size_t n, int kind)
{
    float scale = kind == SCALED ? ldexpf(1, (int)(rng_u32(g) % 250) - 125) : 1;
    float same = rng_u32(g) & 1 ? 1.0f : -1.0f; /* every q 127, or every -127: the largest sums */

    for (size_t i = 0; i < n; i++) {
        x[i] = kind == EQUAL ? same : kind == FLAT ? (rng_u32(g) & 1 ? 1.0f : -1.0f) : rng_gauss(g) * scale;
        if (kind == HOLES && i / 32 % 3 == 1)
            x[i] = 0;
        if (kind == OPPOSED && i >= n - n / 2)
            x[i] = -x[i - (n - n / 2)];
    }
    if (kind == BROKEN) {
        uint32_t bits = nasty_f32(g);
        memcpy(x + rng_u32(g) % n, &bits, sizeof bits);
    }
}
