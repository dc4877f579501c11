/* How the types' blocks are taken for several vectors (several.cuh). Their layouts: the type's own C file beside
 * this one. */
#pragma once
#include "kernels/dot/types.cuh"

/*
 *   HALVES     sub-blocks of the 32 values of a step
 *   OFFSET     what has to be added to each value
 *   raw, load  what thread t needs of a block
 *   step       its values of step i as two words; right: the vector's, alike
 *   scale      of sub-block i
 *   MASKS      step gives masks of negative values too, whose bytes are one too small
 *   side       what is multiplied with the vectors' sums of 256 / SIDE values, 4t.. of 16 (as many as there
 *              are, then zeros), a byte each: minima, or scales where there is an offset */
template <class T> struct several {
    static constexpr bool THERE = false;
};
/* 2k + 1 of nibble i of a word */
static __device__ __forceinline__ int odd_nibble(uint32_t x, int i)
{
    return (int)(((i ? x >> (4 * i - 1) : x << 1) & 30) | 1);
}
/* sub-blocks of 32 in the order of the block's nibbles: low ones, then high ones, of 32 bytes */
struct several_k4 {
    static constexpr bool THERE = true;
    static constexpr int HALVES = 1, OFFSET = 0, SIDE = 8;
    struct raw {
        uint32_t x[8], scales[2], mins[2];
    };
    static __device__ __forceinline__ void load(const uint8_t *head, const uint8_t *x, int t, raw *r)
    {
        uint32_t s[4];

        words_16(head, s);
        r->scales[0] = s[1] & 0x3F3F3F3Fu, r->mins[0] = s[2] & 0x3F3F3F3Fu;
        r->scales[1] = (s[3] & 0x0F0F0F0Fu) | (s[1] >> 2 & 0x30303030u);
        r->mins[1] = (s[3] >> 4 & 0x0F0F0F0Fu) | (s[2] >> 2 & 0x30303030u);
#pragma unroll
        for (int k = 0; k < 8; k++)
            r->x[k] = *(const uint32_t *)(x + 16 * k + 4 * t);
    }
    static __device__ __forceinline__ void step(const raw &r, int i, int, uint32_t, uint32_t, uint32_t w[2])
    {
#pragma unroll
        for (int k = 0; k < 2; k++)
            w[k] = r.x[i / 2 * 2 + k] >> 4 * (i % 2) & 0x0F0F0F0Fu;
    }
    static __device__ __forceinline__ void right(const uint8_t *q, int i, int t, int, uint32_t w[2])
    {
        w[0] = *(const uint32_t *)(q + 32 * i + 4 * t);
        w[1] = *(const uint32_t *)(q + 32 * i + 16 + 4 * t);
    }
    static __device__ __forceinline__ int scale(const raw &r, int i)
    {
        return (int)(r.scales[i / 4] >> 8 * (i % 4) & 255);
    }
    static __device__ __forceinline__ uint32_t side(const raw &r, int t)
    {
        return t == 0 ? r.mins[0] : t == 1 ? r.mins[1] : 0;
    }
};
template <> struct several<q4_k> : several_k4 {
    static constexpr int TURNED = 2;
    static __device__ __forceinline__ void load(const uint8_t *b, int t, const turned &, raw *r)
    {
        several_k4::load(b, b + 16, t, r);
    }
};
template <> struct several<q5_k> : several_k4 {
    static constexpr int TURNED = 2;
    struct raw : several_k4::raw {
        uint32_t high[2];
    };
    static __device__ __forceinline__ void load(const uint8_t *b, int t, const turned &, raw *r)
    {
        several_k4::load(b, b + 48, t, r);
        r->high[0] = *(const uint32_t *)(b + 16 + 4 * t);
        r->high[1] = *(const uint32_t *)(b + 32 + 4 * t);
    }
    static __device__ __forceinline__ void step(const raw &r, int i, int, uint32_t, uint32_t, uint32_t w[2])
    {
        several_k4::step(r, i, 0, 0, 0, w);
#pragma unroll
        for (int k = 0; k < 2; k++)
            w[k] |= (i < 4 ? r.high[k] << (4 - i) : r.high[k] >> (i - 4)) & 0x10101010u;
    }
};
template <> struct several<q6_k> {
    static constexpr bool THERE = true;
    static constexpr int HALVES = 2, OFFSET = -32, SIDE = 16, TURNED = 1;
    struct raw {
        uint32_t x[2][2][2], high[2][2], scales[4];
    };
    static __device__ __forceinline__ void load(const uint8_t *b, int, const turned &u, raw *r)
    {
        const uint8_t *p = b - 2 + u.pair;

#pragma unroll
        for (int h = 0; h < 2; h++) {
            words_turned<2>(p + 64 * h, u, r->x[h][0]);
            words_turned<2>(p + 64 * h + 32, u, r->x[h][1]);
            words_turned<2>(p + 128 + 32 * h, u, r->high[h]);
        }
        words_turned<4>(b + 192 - 2 * u.turn, u, r->scales);
    }
    static __device__ __forceinline__ void step(const raw &r, int i, int, uint32_t, uint32_t, uint32_t w[2])
    {
        const int h = i / 4, j = i % 4;

#pragma unroll
        for (int k = 0; k < 2; k++)
            w[k] = (r.x[h][j % 2][k] >> j / 2 * 4 & 0x0F0F0F0Fu) |
                   ((j < 2 ? r.high[h][k] << (4 - 2 * j) : r.high[h][k] >> (2 * j - 4)) & 0x30303030u);
    }
    static __device__ __forceinline__ void right(const uint8_t *q, int i, int t, int half, uint32_t w[2])
    {
        uint2 v = *(const uint2 *)(q + 32 * i + 8 * t);

        w[0] = t / 2 == half ? v.x : 0, w[1] = t / 2 == half ? v.y : 0;
    }
    static __device__ __forceinline__ int scale(const raw &r, int i)
    {
        return (int8_t)(r.scales[i / 4] >> 8 * (i % 4));
    }
    static __device__ __forceinline__ uint32_t side(const raw &r, int t)
    {
        return t == 0 ? r.scales[0] : t == 1 ? r.scales[1] : t == 2 ? r.scales[2] : r.scales[3];
    }
};
template <> struct several<iq4_xs> {
    static constexpr bool THERE = true;
    static constexpr int HALVES = 1, OFFSET = 0, SIDE = 0, TURNED = 2;
    typedef iq4_xs::raw raw;
    static __device__ __forceinline__ void load(const uint8_t *b, int t, const turned &u, raw *r)
    {
        iq4_xs::load(b, t, u, r);
    }
    static __device__ __forceinline__ void step(const raw &r, int i, int, uint32_t, uint32_t, uint32_t w[2])
    {
        iq4_xs::step(r, i, 0, 0, 0, w);
    }
    static __device__ __forceinline__ void right(const uint8_t *q, int i, int t, int, uint32_t w[2])
    {
        iq4_xs::right(q, i, t, 0, w);
    }
    static __device__ __forceinline__ int scale(const raw &r, int i)
    {
        return (int)((r.head.y >> 4 * i & 15) + (r.head.x >> 16 >> 2 * i & 3) * 16) - 32;
    }
};

/* Q2_K and Q3_K: step 4h + j is shift 2j of 32 bytes, of which thread t has eight */
struct several_quarters {
    static constexpr bool THERE = true;
    static constexpr int HALVES = 2, SIDE = 16;
    static __device__ __forceinline__ void right(const uint8_t *q, int i, int t, int half, uint32_t w[2])
    {
        uint2 v = *(const uint2 *)(q + 32 * i + 8 * t);

        w[0] = t / 2 == half ? v.x : 0, w[1] = t / 2 == half ? v.y : 0;
    }
};
template <> struct several<q2_k> : several_quarters {
    static constexpr int OFFSET = 0, TURNED = 2;
    struct raw {
        uint32_t x[2][2], scales[4];
    };
    static __device__ __forceinline__ void load(const uint8_t *b, int t, const turned &, raw *r)
    {
        words_4<4>(b, r->scales);
        words_4<2>(b + 16 + 8 * t, r->x[0]);
        words_4<2>(b + 48 + 8 * t, r->x[1]);
    }
    static __device__ __forceinline__ void step(const raw &r, int i, int, uint32_t, uint32_t, uint32_t w[2])
    {
#pragma unroll
        for (int k = 0; k < 2; k++)
            w[k] = r.x[i / 4][k] >> 2 * (i % 4) & 0x03030303u;
    }
    static __device__ __forceinline__ int scale(const raw &r, int i)
    {
        return (int)(r.scales[i / 4] >> 8 * (i % 4) & 15);
    }
    static __device__ __forceinline__ uint32_t side(const raw &r, int t)
    {
        return (t == 0 ? r.scales[0] : t == 1 ? r.scales[1] : t == 2 ? r.scales[2] : r.scales[3]) >> 4 & 0x0F0F0F0Fu;
    }
};
template <> struct several<q3_k> : several_quarters {
    static constexpr int OFFSET = -4, TURNED = 1;
    struct raw {
        uint32_t x[2][2], high[2], scales[4];
    };
    static __device__ __forceinline__ void load(const uint8_t *b, int, const turned &u, raw *r)
    {
        const uint8_t *p = b - 2 + u.pair;
        uint32_t s[3];

        words_turned<2>(p, u, r->high);
        words_turned<2>(p + 32, u, r->x[0]);
        words_turned<2>(p + 64, u, r->x[1]);
        words_turned<3>(b + 96 - 2 * u.turn, u, s);
#pragma unroll
        for (int k = 0; k < 4; k++) { /* six bits, less 32 */
            uint32_t low = (k < 2 ? s[k] : s[k - 2] >> 4) & 0x0F0F0F0Fu;

            r->scales[k] = minus4(low | ((k < 2 ? s[2] << (4 - 2 * k) : s[2] >> (2 * k - 4)) & 0x30303030u), 32);
        }
    }
    static __device__ __forceinline__ void step(const raw &r, int i, int, uint32_t, uint32_t, uint32_t w[2])
    {
#pragma unroll
        for (int k = 0; k < 2; k++)
            w[k] = (r.x[i / 4][k] >> 2 * (i % 4) & 0x03030303u) |
                   ((i < 2 ? r.high[k] << (2 - i) : r.high[k] >> (i - 2)) & 0x04040404u);
    }
    static __device__ __forceinline__ int scale(const raw &r, int i)
    {
        return (int8_t)(r.scales[i / 4] >> 8 * (i % 4));
    }
    static __device__ __forceinline__ uint32_t side(const raw &r, int t)
    {
        return t == 0 ? r.scales[0] : t == 1 ? r.scales[1] : t == 2 ? r.scales[2] : r.scales[3];
    }
};
template <> struct several<iq2_xs> {
    static constexpr bool THERE = true;
    static constexpr int HALVES = 2, OFFSET = 0, SIDE = 0, TURNED = 0;
    struct raw {
        uint32_t x[8], scales[2];
    };
    static __device__ __forceinline__ void load(const uint8_t *b, int t, const turned &u, raw *r)
    {
#pragma unroll
        for (int i = 0; i < 8; i++)
            r->x[i] = half_at(b + 2 + 8 * i + 2 * t);
        words_turned<2>(b + 66 - 2 * u.turn, u, r->scales);
    }
    static __device__ __forceinline__ void step(const raw &r, int i, int, uint32_t grid, uint32_t signs, uint32_t w[2])
    {
        levels8<true>(shared_word(half_to<WIDE_ENTRY>(r.x[i] & 511, grid)) ^
                          shared_word(byte_of<WIDE_ENTRY>(1, r.x[i], signs)),
                      w, w + 1);
    }
    static __device__ __forceinline__ void right(const uint8_t *q, int i, int t, int half, uint32_t w[2])
    {
        several_quarters::right(q, i, t, half, w);
    }
    static __device__ __forceinline__ int scale(const raw &r, int i)
    {
        return odd_nibble(r.scales[i / 8], i % 8);
    }
};
/* the types with grids whose part is a step: thread t has eight t of it */
struct several_grid {
    static constexpr bool THERE = true;
    static constexpr int OFFSET = 0, SIDE = 0, TURNED = 0;
    static __device__ __forceinline__ void right(const uint8_t *q, int i, int t, int, uint32_t w[2])
    {
        uint2 v = *(const uint2 *)(q + 32 * i + 8 * t);

        w[0] = v.x, w[1] = v.y;
    }
};
template <> struct several<iq2_xxs> : several_grid {
    static constexpr int HALVES = 1;
    struct raw {
        uint32_t x[8], s[8];
    };
    static __device__ __forceinline__ void load(const uint8_t *b, int t, const turned &u, raw *r)
    {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            r->x[i] = b[2 + 8 * i + t];
            words_turned<1>(b + 6 - 2 * u.turn + 8 * i, u, &r->s[i]);
        }
    }
    static __device__ __forceinline__ void step(const raw &r, int i, int t, uint32_t grid, uint32_t signs, uint32_t w[2])
    {
        levels8<true>(shared_word(half_to<WIDE_ENTRY>(r.x[i], grid)) ^
                          shared_word(half_to<WIDE_ENTRY>(r.s[i] >> 7 * t & 127, signs)),
                      w, w + 1);
    }
    static __device__ __forceinline__ int scale(const raw &r, int i)
    {
        return (int)(r.s[i] >> 27 | 1);
    }
};
template <> struct several<iq2_s> : several_grid {
    static constexpr int HALVES = 2;
    struct raw {
        uint32_t x[8], signs[8], high[2], scales[2];
    };
    static __device__ __forceinline__ void load(const uint8_t *b, int t, const turned &u, raw *r)
    {
#pragma unroll
        for (int i = 0; i < 8; i++)
            r->x[i] = b[2 + 4 * i + t], r->signs[i] = b[34 + 4 * i + t];
        words_turned<2>(b + 66 - 2 * u.turn, u, r->high);
        words_turned<2>(b + 74 - 2 * u.turn, u, r->scales);
    }
    static __device__ __forceinline__ void step(const raw &r, int i, int t, uint32_t grid, uint32_t signs, uint32_t w[2])
    {
        uint32_t high = r.high[i / 4] >> (8 * (i % 4) + 2 * t) & 3;

        levels8<true>(shared_word(half_to<ENTRY>(r.x[i] | high << 8, grid)) ^
                          shared_word(half_to<WIDE_ENTRY>(r.signs[i], signs)),
                      w, w + 1);
    }
    static __device__ __forceinline__ void right(const uint8_t *q, int i, int t, int half, uint32_t w[2])
    {
        several_quarters::right(q, i, t, half, w);
    }
    static __device__ __forceinline__ int scale(const raw &r, int i)
    {
        return odd_nibble(r.scales[i / 8], i % 8);
    }
};
template <> struct several<iq3_xxs> : several_grid {
    static constexpr int HALVES = 1;
    static constexpr bool MASKS = true;
    struct raw {
        uint32_t x[8], s[8];
    };
    static __device__ __forceinline__ void load(const uint8_t *b, int t, const turned &u, raw *r)
    {
#pragma unroll
        for (int i = 0; i < 8; i++)
            r->x[i] = half_at(b + 2 + 8 * i + 2 * t);
        words_turned<8>(b + 66 - 2 * u.turn, u, r->s);
    }
    static __device__ __forceinline__ void step(const raw &r, int i, int t, uint32_t grid, uint32_t signs, uint32_t w[2],
                                                uint32_t m[2])
    {
        uint2 v = shared_pair(half_to<WIDE_ENTRY>(r.s[i] >> 7 * t & 127, signs));

        m[0] = v.x, m[1] = v.y;
        w[0] = shared_word(byte_of<WIDE_ENTRY>(0, r.x[i], grid)) ^ v.x;
        w[1] = shared_word(byte_of<WIDE_ENTRY>(1, r.x[i], grid)) ^ v.y;
    }
    static __device__ __forceinline__ int scale(const raw &r, int i)
    {
        return (int)(r.s[i] >> 27 | 1);
    }
};
template <> struct several<iq3_s> : several_grid {
    static constexpr int HALVES = 1;
    struct raw {
        uint32_t x[8], signs[8], high[2], scales;
    };
    static __device__ __forceinline__ void load(const uint8_t *b, int t, const turned &u, raw *r)
    {
#pragma unroll
        for (int i = 0; i < 8; i++)
            r->x[i] = half_at(b + 2 + 8 * i + 2 * t), r->signs[i] = b[74 + 4 * i + t];
        words_turned<2>(b + 66 - 2 * u.turn, u, r->high);
        words_turned<1>(b + 106 - 2 * u.turn, u, &r->scales);
    }
    static __device__ __forceinline__ void step(const raw &r, int i, int t, uint32_t grid, uint32_t signs, uint32_t w[2])
    {
        /* two places of nine bits in two halves; no more of the high bits, which would meet in the product */
        uint32_t high = r.high[i / 4] >> (8 * (i % 4) + 2 * t) & 3;
        uint32_t two = pick4(r.x[i], 0, 0x4140) | (high * 0x00800100u & 0x01000100u);
        uint2 m = shared_pair(half_to<WIDE_ENTRY>(r.signs[i], signs));

        /* the grid's bytes are odd: -x = ~x | 1 */
        w[0] = (shared_word(half_to<WIDE_ENTRY>(two, grid)) ^ m.x) | 0x01010101u;
        w[1] = (shared_word(high_half_to<WIDE_ENTRY>(two, grid)) ^ m.y) | 0x01010101u;
    }
    static __device__ __forceinline__ int scale(const raw &r, int i)
    {
        return odd_nibble(r.scales, i);
    }
};
