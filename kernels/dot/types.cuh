/* The types, as open.cuh asks for them. Layouts: the type's own C file beside this one. */
#pragma once
#include "kernels/dot/open.cuh"

/* six-bit scale and minimum of the sub-blocks 2k and 2k + 1 (k_scales.h), s: the twelve bytes. The
 * first four have their six bits together, the others four of them in s[2]. */
static __device__ __forceinline__ void cu_k_scales(const uint32_t s[3], int k, opened *o)
{
    int shift = 16 * (k & 1), top = k < 2 ? 0 : 0x3030;
    uint32_t low = k < 2 ? 0x3F3F : 0x0F0F;
    uint32_t sc = ((k < 2 ? s[0] : s[2]) >> shift & low) | (s[0] >> shift >> 2 & top);

    o->mins = ((k < 2 ? s[1] >> shift : s[2] >> shift >> 4) & low) | (s[1] >> shift >> 2 & top);
    o->scale[0] = sc & 255, o->scale[1] = sc >> 8;
}

struct q4_k : pairs_of_32, d_and_m_first {
    static constexpr int BYTES = 144, M = -1, SUB = 32;
    static __device__ __forceinline__ void open(const uint8_t *b, int p, const uint8_t *, opened *o)
    {
        uint32_t head[4], x[4];

        words_16(b, head);
        words_16(b + 16 + 16 * p, x);
        open_words(head, x, p, o);
    }
    static __device__ __forceinline__ void open_words(const uint32_t head[4], const uint32_t x[4],
                                                      int p, opened *o)
    {
        cu_k_scales(head + 1, p / 2, o);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            o->w[i] = x[i] & 0x0F0F0F0Fu;
            o->w[4 + i] = x[i] >> 4 & 0x0F0F0F0Fu;
        }
    }
};

struct q5_k : pairs_of_32, d_and_m_first {
    static constexpr int BYTES = 176, M = -1, SUB = 32;
    static __device__ __forceinline__ void open(const uint8_t *b, int p, const uint8_t *, opened *o)
    {
        uint32_t head[4], high[4], x[4];

        words_16(b, head);
        words_16(b + 16 + 16 * (p % 2), high);
        words_16(b + 48 + 16 * p, x);
        cu_k_scales(head + 1, p / 2, o);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t h = high[i] >> (p & ~1); /* bits j = 2 (p / 2) and j + 1 of every byte */
            o->w[i] = (x[i] & 0x0F0F0F0Fu) | (h << 4 & 0x10101010u);
            o->w[4 + i] = (x[i] >> 4 & 0x0F0F0F0Fu) | (h << 3 & 0x10101010u);
        }
    }
};

/* Q2_K and Q3_K: part p is h = p / 4, a = p / 2 % 2, and two of the four shifts of sixteen bytes */
struct shifted_pairs : no_table {
    static constexpr int UNIT = 256, BLOCK = 256, SUB = 16;
    static constexpr bool MIXED = false;
    static __device__ __forceinline__ int at(int p, int i)
    {
        return 128 * (p / 4) + 32 * (2 * (p % 2) + i / 4) + 16 * (p / 2 % 2) + 4 * (i % 4);
    }
};

struct q2_k : shifted_pairs {
    static constexpr int BYTES = 84, M = -1;
    static __device__ __forceinline__ void open(const uint8_t *b, int p, const uint8_t *, opened *o)
    {
        int s = 8 * (p / 4) + 4 * (p % 2) + p / 2 % 2, shift = 4 * (p % 2);
        uint32_t x[4];

        words_4<4>(b + 16 + 32 * (p / 4) + 16 * (p / 2 % 2), x);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            o->w[i] = x[i] >> shift & 0x03030303u;
            o->w[4 + i] = x[i] >> (shift + 2) & 0x03030303u;
        }
        o->scale[0] = b[s] & 15, o->scale[1] = b[s + 2] & 15;
        o->mins = b[s] >> 4 | (b[s + 2] & 0xF0) << 4;
    }
    static __device__ __forceinline__ float factor(const uint8_t *b, int second, int)
    {
        return f16_at(b + 80 + 2 * second);
    }
};

struct q3_k : shifted_pairs {
    static constexpr int BYTES = 110, M = 0;
    static __device__ __forceinline__ int scale(const uint8_t *s, int k)
    {
        int low = k < 8 ? s[k] & 15 : s[k - 8] >> 4, high = s[8 + k % 4] >> 2 * (k / 4) & 3;

        return low + 16 * high - 32;
    }
    static __device__ __forceinline__ void open(const uint8_t *b, int p, const uint8_t *, opened *o)
    {
        int a = p / 2 % 2, s = 8 * (p / 4) + 4 * (p % 2) + a, shift = 4 * (p % 2);
        int bit = 4 * (p / 4) + 2 * (p % 2);
        uint32_t x[4], mask[4];

        words_at<4>(b + 32 + 32 * (p / 4) + 16 * a, x);
        words_at<4>(b + 16 * a, mask);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t m = mask[i] >> bit;
            /* 0..7, of which 4 is taken */
            o->w[i] = minus4((x[i] >> shift & 0x03030303u) | (m << 2 & 0x04040404u), 4);
            o->w[4 + i] = minus4((x[i] >> (shift + 2) & 0x03030303u) | (m << 1 & 0x04040404u), 4);
        }
        o->scale[0] = scale(b + 96, s), o->scale[1] = scale(b + 96, s + 2);
    }
    static __device__ __forceinline__ float factor(const uint8_t *b, int, int)
    {
        return f16_at(b + 108);
    }
    /* Steps 4h + j, 32 values each: thread t has eight bytes of quarters, and of the highest bits. The 4 that
     * is taken from each value is taken from the sums, before they begin (START). */
    static constexpr bool STEPS = true;
    static constexpr int TURNED = 1, START = -4;
    static constexpr int WIDE_GRID = 0, WIDE_SIGNS = 0, GRID_COPIES = 32, SIGN_BYTES = 4;
    template <int THREADS_IN> static __device__ __forceinline__ void wide_fill(uint8_t *, uint8_t *)
    {
    }
    struct raw {
        uint32_t x[2][2], high[2], s[2];
    };
    static __device__ __forceinline__ void load(const uint8_t *b, int t, const turned &u, raw *r)
    {
        const uint8_t *p = b - 2 + u.pair;

        words_turned<2>(p, u, r->high);
        words_turned<2>(p + 32, u, r->x[0]);
        words_turned<2>(p + 64, u, r->x[1]);
        r->s[0] = half_at(b + 96 + 2 * t), r->s[1] = half_at(b + 104 + t % 2 * 2);
    }
    static __device__ __forceinline__ void step(const raw &r, int i, int, uint32_t, uint32_t, uint32_t w[2])
    {
#pragma unroll
        for (int k = 0; k < 2; k++)
            w[k] = (r.x[i / 4][k] >> 2 * (i % 4) & 0x03030303u) |
                   ((i < 2 ? r.high[k] << (2 - i) : r.high[k] >> (i - 2)) & 0x04040404u);
    }
    static __device__ __forceinline__ int column(int i, int t, int)
    {
        return 2 * (i % 4) + t / 2;
    }
    static __device__ __forceinline__ void right(const uint8_t *q, int i, int t, int, uint32_t w[2])
    {
        uint2 v = *(const uint2 *)(q + 32 * i + 8 * t);

        w[0] = v.x, w[1] = v.y;
    }
    static __device__ __forceinline__ int scaled(const raw &r, int t, const int *c, const int *c2)
    {
        uint32_t high = r.s[1] >> t / 2 * 2;
        uint32_t a = (r.s[0] & 0x0F0F) | (high << 4 & 0x3030), b = (r.s[0] >> 4 & 0x0F0F) | (high & 0x3030);

        return (int)(a & 255) * c[0] + (int)(a >> 8) * c[1] + (int)(b & 255) * c2[0] + (int)(b >> 8) * c2[1] -
               32 * (c[0] + c[1] + c2[0] + c2[1]);
    }
};

struct q6_k : no_table {
    static constexpr int UNIT = 256, BLOCK = 256, BYTES = 210, M = 0, SUB = 16;
    static constexpr bool MIXED = false;
    /* p = 4h + 2b + a: values 128h + 32b + 16a.. and 64 further on */
    static __device__ __forceinline__ int at(int p, int i)
    {
        return 128 * (p / 4) + 16 * (p % 4) + 64 * (i / 4) + 4 * (i % 4);
    }
    static __device__ __forceinline__ void open(const uint8_t *b, int p, const uint8_t *, opened *o)
    {
        uint32_t x[4], high[4];
        const int8_t *s = (const int8_t *)b + 192 + 8 * (p / 4) + p % 4;
        int shift = 2 * (p / 2 % 2);

        words_at<4>(b + 16 * p, x);
        words_at<4>(b + 128 + 32 * (p / 4) + 16 * (p % 2), high);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t h = high[i] >> shift;
            o->w[i] = minus4((x[i] & 0x0F0F0F0Fu) | (h << 4 & 0x30303030u), 32);
            o->w[4 + i] = minus4((x[i] >> 4 & 0x0F0F0F0Fu) | (h & 0x30303030u), 32);
        }
        o->scale[0] = s[0], o->scale[1] = s[4];
    }
    static __device__ __forceinline__ float factor(const uint8_t *b, int, int)
    {
        return f16_at(b + 208);
    }
};

struct iq4_xs : no_table, in_order, d_first<0> {
    static constexpr int BYTES = 136, M = 0, SUB = 32;
    static constexpr bool MIXED = true;
    static __device__ __forceinline__ void open(const uint8_t *b, int p, const uint8_t *, opened *o)
    {
        uint2 head = *(const uint2 *)b, x0 = *(const uint2 *)(b + 8 + 16 * p);
        uint2 x1 = *(const uint2 *)(b + 16 + 16 * p);
        const uint32_t x[4] = {x0.x, x0.y, x1.x, x1.y};

        mixed16(x, IQ4_TABLE, o->w);
        o->scale[0] = (int)((head.y >> 4 * p & 15) + (head.x >> 16 >> 2 * p & 3) * 16) - 32;
        o->scale[1] = o->scale[0];
    }
    static constexpr bool STEPS = true;
    static constexpr int TURNED = 2, START = 0;
    static constexpr int WIDE_GRID = 0, WIDE_SIGNS = 0, GRID_COPIES = 32, SIGN_BYTES = 4;
    template <int THREADS_IN> static __device__ __forceinline__ void wide_fill(uint8_t *, uint8_t *)
    {
    }
    struct raw {
        uint32_t x[8];
        uint2 head;
    };
    static __device__ __forceinline__ void load(const uint8_t *b, int t, const turned &, raw *r)
    {
        r->head = *(const uint2 *)b;
#pragma unroll
        for (int i = 0; i < 8; i++)
            r->x[i] = *(const uint32_t *)(b + 8 + 16 * i + 4 * t);
    }
    static __device__ __forceinline__ void step(const raw &r, int i, int, uint32_t, uint32_t, uint32_t w[2])
    {
        look_up16<true>(r.x[i], IQ4_TABLE, w, w + 1);
    }
    static __device__ __forceinline__ int column(int i, int, int)
    {
        return i;
    }
    static __device__ __forceinline__ void right(const uint8_t *q, int i, int t, int, uint32_t w[2])
    {
        uint32_t lo = *(const uint32_t *)(q + 32 * i + 4 * t);
        uint32_t hi = *(const uint32_t *)(q + 32 * i + 16 + 4 * t);

        w[0] = __byte_perm(lo, hi, 0x5140);
        w[1] = __byte_perm(lo, hi, 0x7362);
    }
    static __device__ __forceinline__ int scaled(const raw &r, int t, const int *c, const int *)
    {
        uint32_t low = r.head.y >> 8 * t, high = r.head.x >> 16 >> 4 * t;

        return ((int)((low & 15) + (high & 3) * 16) - 32) * c[0] +
               ((int)((low >> 4 & 15) + (high >> 2 & 3) * 16) - 32) * c[1];
    }
};

struct iq2_xxs : in_order, parts_of_threads, d_first<3> {
    static constexpr int BYTES = 66, M = 0, SUB = 32;
    enum { SIGNS = 256 * ENTRY };
    static constexpr int TABLE = SIGNS + 128 * ENTRY;
    static __device__ __forceinline__ void fill(uint8_t *t)
    {
        fill_codes<256>(t, card::iq2xxs_grid, 0, 4);
        fill_signs(t + SIGNS);
    }
    template <int L>
    static __device__ __forceinline__ void eight(const uint32_t x[2], const uint8_t *t, uint32_t *w)
    {
        levels8(word_of(t, entry_at<8 * L - 6>(x[0], 256)) ^
                    word_of(t + SIGNS, entry_at<7 * L - 6>(x[1], 128)),
                w, w + 1);
    }
    static __device__ __forceinline__ void open(const uint8_t *b, int p, const uint8_t *t, opened *o)
    {
        uint32_t x[2];

        words_at<2>(b + 2 + 8 * p, x);
        eight<0>(x, t, o->w);
        eight<1>(x, t, o->w + 2);
        eight<2>(x, t, o->w + 4);
        eight<3>(x, t, o->w + 6);
        o->scale[0] = o->scale[1] = 2 * (int)(x[1] >> 28) + 1;
    }
    static constexpr int WIDE_GRID = 256 * WIDE_ENTRY, WIDE_SIGNS = 128 * WIDE_ENTRY;
    static constexpr int GRID_COPIES = 32, SIGN_BYTES = 4;
    template <int THREADS_IN>
    static __device__ __forceinline__ void wide_fill(uint8_t *grid, uint8_t *signs)
    {
        wide_table<256, THREADS_IN>(
            grid, [](int i) { return codes8(card::iq2xxs_grid[i], 0, 4); });
        wide_table<128, THREADS_IN>(
            signs, [](int i) { return bits_to_nibbles(card::sign_masks[i]) << 2; });
    }
    struct raw {
        uint32_t x[2][2];
    };
    static __device__ __forceinline__ void load(const uint8_t *b, int, const turned &u, raw *r)
    {
#pragma unroll
        for (int k = 0; k < 2; k++)
            words_turned<2>(b + u.pair + 32 * k, u, r->x[k]);
    }
    static __device__ __forceinline__ void step(const raw &r, int i, int, uint32_t grid,
                                                uint32_t signs, uint32_t w[2])
    {
        const uint32_t *x = r.x[i / 4];

        levels8<true>(shared_word(byte_of<WIDE_ENTRY>(i % 4, x[0], grid)) ^
                          shared_word(signs + seven_of(i % 4, x[1])),
                      w, w + 1);
    }
    static __device__ __forceinline__ int column(int i, int t, int)
    {
        return 2 * t + i / 4;
    }
    static __device__ __forceinline__ int scaled(const raw &r, int, const int *c, const int *)
    {
        return (int)(r.x[0][1] >> 27 | 1) * c[0] + (int)(r.x[1][1] >> 27 | 1) * c[1];
    }
};

struct iq2_xs : in_order, d_first<3> {
    static constexpr int BYTES = 74, M = 0, SUB = 16;
    enum { SIGNS = 512 * ENTRY };
    static constexpr int TABLE = SIGNS + 128 * ENTRY;
    static __device__ __forceinline__ void fill(uint8_t *t)
    {
        fill_codes<512>(t, card::iq2xs_grid, 0, 4);
        fill_signs(t + SIGNS);
    }
    template <int HIGH> /* half of x: nine bits of grid, seven of signs */
    static __device__ __forceinline__ void eight(uint32_t x, const uint8_t *t, uint32_t *w)
    {
        uint32_t at = copy_of(t), grid = x & 511u << 16 * HIGH, signs = x & 0xFE00u << 16 * HIGH;

        levels8<true>(shared_word(HIGH ? high_half_to<ENTRY>(grid, at) : half_to<ENTRY>(grid, at)) ^
                    shared_word(byte_to<1 + 2 * HIGH, ENTRY / 2>(signs, at + SIGNS)),
                w, w + 1);
    }
    static __device__ __forceinline__ void open(const uint8_t *b, int p, const uint8_t *t, opened *o)
    {
        uint32_t x[2], s = b[66 + p];

        words_at<2>(b + 2 + 8 * p, x);
        eight<0>(x[0], t, o->w);
        eight<1>(x[0], t, o->w + 2);
        eight<0>(x[1], t, o->w + 4);
        eight<1>(x[1], t, o->w + 6);
        o->scale[0] = 2 * (s & 15) + 1, o->scale[1] = 2 * (s >> 4) + 1;
    }
    static constexpr bool STEPS = true;
    static constexpr int TURNED = 0, START = 0;
    /* signs by the whole high byte, whose lowest bit is the grid's */
    static constexpr int WIDE_GRID = 512 * WIDE_ENTRY, WIDE_SIGNS = 256 * WIDE_ENTRY;
    static constexpr int GRID_COPIES = 32, SIGN_BYTES = 4;
    template <int THREADS_IN>
    static __device__ __forceinline__ void wide_fill(uint8_t *grid, uint8_t *signs)
    {
        wide_table<512, THREADS_IN>(
            grid, [](int i) { return codes8(card::iq2xs_grid[i], 0, 4); });
        wide_table<256, THREADS_IN>(
            signs, [](int i) { return bits_to_nibbles(card::sign_masks[i / 2]) << 2; });
    }
    /* An eight is half a word, and steps 2k and 2k + 1 are word 4k + t. With turn 1 all move up by one,
     * and what came before the first of each 128 values is the last of them, for thread 0. */
    struct raw {
        uint32_t x[4], s[2];
    };
    static __device__ __forceinline__ void load(const uint8_t *b, int t, const turned &u, raw *r)
    {
        const uint8_t *p = b + u.word;
        uint32_t m[5];

#pragma unroll
        for (int k = 0; k < 5; k++)
            m[k] = *(const uint32_t *)(p + 16 * k);
        r->x[0] = pick4(m[0], m[2], u.first), r->x[1] = m[1];
        r->x[2] = pick4(m[2], m[4], u.first), r->x[3] = m[3];
        r->s[0] = b[66 + t], r->s[1] = b[70 + t];
    }
    static __device__ __forceinline__ void step(const raw &r, int i, int, uint32_t grid,
                                                uint32_t signs, uint32_t w[2])
    {
        uint32_t x = r.x[i / 2], place = x & 0x01FF01FFu;

        levels8<true>(shared_word(i % 2 ? high_half_to<WIDE_ENTRY>(place, grid)
                                        : half_to<WIDE_ENTRY>(place, grid)) ^
                          shared_word(byte_of<WIDE_ENTRY>(1 + i % 2 * 2, x, signs)),
                      w, w + 1);
    }
    static __device__ __forceinline__ int eight_of(int i, int t, int turn)
    {
        return i / 4 * 16 + ((i / 2 % 2 * 8 + 2 * t + i % 2 - turn) & 15);
    }
    static __device__ __forceinline__ int column(int i, int t, int turn)
    {
        return eight_of(i, t, turn) / 2 % 8;
    }
    static __device__ __forceinline__ void right(const uint8_t *q, int i, int t, int turn,
                                                 uint32_t w[2])
    {
        uint2 v = *(const uint2 *)(q + 8 * eight_of(i, t, turn));

        w[0] = v.x, w[1] = v.y;
    }
    /* c: of the sub-blocks 2t and 2t + 1, c2: of those eight further on */
    static __device__ __forceinline__ int scaled(const raw &r, int, const int *c, const int *c2)
    {
        return odd_scales(r.s[0], c) + odd_scales(r.s[1], c2);
    }
};

struct iq2_s : in_order, parts_of_threads, d_first<3> {
    static constexpr int BYTES = 82, M = 0, SUB = 16;
    static constexpr int TABLE = 1024 * ENTRY;
    static __device__ __forceinline__ void fill(uint8_t *t)
    {
        fill_codes<1024>(t, card::iq2s_grid, 0, 4);
    }
    template <int L>
    static __device__ __forceinline__ void eight(uint32_t x, uint32_t high, uint32_t signs,
                                                 const uint8_t *t, uint32_t *w)
    {
        uint32_t at = entry_at<8 * L - 6>(x, 256) | (high << (14 - 2 * L) & 3 * 256 * ENTRY);

        levels8(word_of(t, at) ^ bits_to_nibbles(signs >> 8 * L & 255) << 2, w, w + 1);
    }
    static __device__ __forceinline__ void open(const uint8_t *b, int p, const uint8_t *t, opened *o)
    {
        uint32_t x, signs, high = b[66 + p], s = b[74 + p];

        words_at<1>(b + 2 + 4 * p, &x);
        words_at<1>(b + 34 + 4 * p, &signs);
        eight<0>(x, high, signs, t, o->w);
        eight<1>(x, high, signs, t, o->w + 2);
        eight<2>(x, high, signs, t, o->w + 4);
        eight<3>(x, high, signs, t, o->w + 6);
        o->scale[0] = 2 * (s & 15) + 1, o->scale[1] = 2 * (s >> 4) + 1;
    }
    /* 16 copies of the grid: there is no room for 32 */
    static constexpr int WIDE_GRID = 1024 * ENTRY, WIDE_SIGNS = 256 * WIDE_ENTRY;
    static constexpr int GRID_COPIES = 16, SIGN_BYTES = 4;
    template <int THREADS_IN>
    static __device__ __forceinline__ void wide_fill(uint8_t *grid, uint8_t *signs)
    {
        fill_codes<1024>(grid, card::iq2s_grid, 0, 4);
        wide_table<256, THREADS_IN>(signs, [](int i) { return bits_to_nibbles(i) << 2; });
    }
    struct raw {
        uint32_t x[2], signs[2], high[2], s[2];
    };
    static __device__ __forceinline__ void load(const uint8_t *b, int t, const turned &u, raw *r)
    {
        const uint8_t *p = b + u.word;

#pragma unroll
        for (int k = 0; k < 2; k++) {
            words_turned<1>(p + 16 * k, u, &r->x[k]);
            words_turned<1>(p + 32 + 16 * k, u, &r->signs[k]);
            r->high[k] = b[66 + t + 4 * k], r->s[k] = b[74 + t + 4 * k];
        }
    }
    static __device__ __forceinline__ void step(const raw &r, int i, int, uint32_t grid,
                                                uint32_t signs, uint32_t w[2])
    {
        uint32_t high = r.high[i / 4] << (14 - 2 * (i % 4)) & 3 * 256 * ENTRY;

        levels8<true>(shared_word(byte_of<ENTRY>(i % 4, r.x[i / 4], grid) + high) ^
                          shared_word(byte_of<WIDE_ENTRY>(i % 4, r.signs[i / 4], signs)),
                      w, w + 1);
    }
    static __device__ __forceinline__ int column(int i, int t, int)
    {
        return 2 * t + i % 4 / 2;
    }
    static __device__ __forceinline__ int scaled(const raw &r, int, const int *c, const int *c2)
    {
        return odd_scales(r.s[0], c) + odd_scales(r.s[1], c2);
    }
};

struct iq3_xxs : in_order, parts_of_threads, d_first<2> {
    static constexpr int BYTES = 98, M = 0, SUB = 32;
    static constexpr int TABLE = 256 * ENTRY;
    static __device__ __forceinline__ void fill(uint8_t *t)
    {
        for (int i = threadIdx.x; i < 256; i += blockDim.x)
            copies(t, i, card::iq3xxs_grid[i]);
    }
    template <int L>
    static __device__ __forceinline__ void eight(uint32_t x, uint32_t bits, const uint8_t *t,
                                                 uint32_t *w)
    {
        uint32_t seven = bits >> 7 * L & 127, signs = seven | (__popc(seven) & 1) << 7;

        w[0] = negate4(word_of(t, entry_at<16 * (L % 2) - 6>(x, 256)), bits_to_bytes(signs));
        w[1] = negate4(word_of(t, entry_at<16 * (L % 2) + 2>(x, 256)), bits_to_bytes(signs >> 4));
    }
    static __device__ __forceinline__ void open(const uint8_t *b, int p, const uint8_t *t, opened *o)
    {
        uint32_t x[2], bits;

        words_at<2>(b + 2 + 8 * p, x);
        words_at<1>(b + 66 + 4 * p, &bits);
        eight<0>(x[0], bits, t, o->w);
        eight<1>(x[0], bits, t, o->w + 2);
        eight<2>(x[1], bits, t, o->w + 4);
        eight<3>(x[1], bits, t, o->w + 6);
        o->scale[0] = o->scale[1] = 2 * (int)(bits >> 28) + 1;
    }
    static constexpr bool MASKS = true;
    static constexpr int WIDE_GRID = 256 * WIDE_ENTRY, WIDE_SIGNS = 128 * WIDE_ENTRY;
    static constexpr int GRID_COPIES = 32, SIGN_BYTES = 8;
    template <int THREADS_IN>
    static __device__ __forceinline__ void wide_fill(uint8_t *grid, uint8_t *signs)
    {
        wide_table<256, THREADS_IN>(grid, [](int i) { return card::iq3xxs_grid[i]; });
        for (int i = threadIdx.x; i < 128; i += THREADS_IN)
            wide_pairs(signs, i, make_uint2(sign_bytes<false>(card::sign_masks[i]),
                                            sign_bytes<true>(card::sign_masks[i])));
    }
    struct raw {
        uint32_t x[2][2], s[2];
    };
    static __device__ __forceinline__ void load(const uint8_t *b, int, const turned &u, raw *r)
    {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            words_turned<2>(b + u.pair + 32 * k, u, r->x[k]);
            words_turned<1>(b + 64 + u.word + 16 * k, u, &r->s[k]);
        }
    }
    static __device__ __forceinline__ void step(const raw &r, int i, int, uint32_t grid,
                                                uint32_t signs, uint32_t w[2], uint32_t m[2])
    {
        uint2 v = shared_pair(signs + seven_of(i % 4, r.s[i / 4]));
        uint32_t x = r.x[i / 4][i % 4 / 2];

        m[0] = v.x, m[1] = v.y;
        w[0] = shared_word(byte_of<WIDE_ENTRY>(i % 2 * 2, x, grid)) ^ v.x;
        w[1] = shared_word(byte_of<WIDE_ENTRY>(i % 2 * 2 + 1, x, grid)) ^ v.y;
    }
    static __device__ __forceinline__ int column(int i, int t, int)
    {
        return 2 * t + i / 4;
    }
    static __device__ __forceinline__ int scaled(const raw &r, int, const int *c, const int *)
    {
        return (int)(r.s[0] >> 27 | 1) * c[0] + (int)(r.s[1] >> 27 | 1) * c[1];
    }
};

struct iq3_s : in_order, d_first<0> {
    static constexpr int BYTES = 110, M = 0, SUB = 32;
    enum { SIGNS = 512 * ENTRY };
    /* signs of eight values as two words of bytes of ones, 16 copies too */
    static constexpr int TABLE = SIGNS + 256 * 2 * ENTRY;
    static __device__ __forceinline__ void fill(uint8_t *t)
    {
        for (int i = threadIdx.x; i < 512; i += blockDim.x)
            copies(t, i, card::iq3s_grid[i]);
        for (int i = threadIdx.x; i < 256; i += blockDim.x)
#pragma unroll
            for (int c = 0; c < COPIES; c++)
                ((uint2 *)(t + SIGNS))[COPIES * i + (c + i) % COPIES] =
                    make_uint2(sign_bytes<false>(i), sign_bytes<true>(i));
    }
    /* the places of the values 8L.. and 8L + 4.., nine bits each, in two halves; x: the low bytes of
     * four places, of which L % 2 says which */
    template <int L>
    static __device__ __forceinline__ uint32_t two_places(uint32_t x, uint32_t high)
    {
        return pick4(x, 0, L % 2 ? 0x4342 : 0x4140) |
               (high * (0x00800100u >> 2 * L) & 0x01000100u);
    }
    template <int L>
    static __device__ __forceinline__ void eight(uint32_t x, uint32_t high, uint32_t signs,
                                                 const uint8_t *t, uint32_t *w)
    {
        uint32_t at = copy_of(t), two = two_places<L>(x, high);
        uint2 m = shared_pair(byte_to<L, 2 * ENTRY>(signs, at + threadIdx.x % COPIES * 4 + SIGNS));

        /* the grid's bytes are odd: -x = ~x | 1 */
        w[0] = (shared_word(half_to<ENTRY>(two, at)) ^ m.x) | 0x01010101u;
        w[1] = (shared_word(high_half_to<ENTRY>(two, at)) ^ m.y) | 0x01010101u;
    }
    static __device__ __forceinline__ void open(const uint8_t *b, int p, const uint8_t *t, opened *o)
    {
        uint32_t x[2], signs, high = b[66 + p];

        words_at<2>(b + 2 + 8 * p, x);
        words_at<1>(b + 74 + 4 * p, &signs);
        eight<0>(x[0], high, signs, t, o->w);
        eight<1>(x[0], high, signs, t, o->w + 2);
        eight<2>(x[1], high, signs, t, o->w + 4);
        eight<3>(x[1], high, signs, t, o->w + 6);
        o->scale[0] = o->scale[1] = 2 * (b[106 + p / 2] >> 4 * (p % 2) & 15) + 1;
    }
    static constexpr bool STEPS = true;
    static constexpr int TURNED = 2, START = 0;
    static constexpr int WIDE_GRID = 512 * WIDE_ENTRY, WIDE_SIGNS = 256 * WIDE_ENTRY;
    static constexpr int GRID_COPIES = 32, SIGN_BYTES = 8;
    template <int THREADS_IN>
    static __device__ __forceinline__ void wide_fill(uint8_t *grid, uint8_t *signs)
    {
        wide_table<512, THREADS_IN>(grid, [](int i) { return card::iq3s_grid[i]; });
        for (int i = threadIdx.x; i < 256; i += THREADS_IN)
            wide_pairs(signs, i, make_uint2(sign_bytes<false>(i), sign_bytes<true>(i)));
    }
    /* Steps 2j and 2j + 1 are the parts 2j and 2j + 1: two threads a part, sixteen values each. */
    struct raw {
        uint32_t x[8], signs[4], high[4], s;
    };
    static __device__ __forceinline__ void load(const uint8_t *b, int t, const turned &, raw *r)
    {
#pragma unroll
        for (int i = 0; i < 8; i++)
            r->x[i] = half_at(b + 2 + 8 * (i & ~1) + 4 * t + 2 * (i % 2));
#pragma unroll
        for (int k = 0; k < 4; k++) {
            r->signs[k] = half_at(b + 74 + 8 * k + 2 * t);
            r->high[k] = b[66 + 2 * k + t / 2];
        }
        r->s = b[106 + t];
    }
    static __device__ __forceinline__ void step(const raw &r, int i, int t, uint32_t grid,
                                                uint32_t signs, uint32_t w[2])
    {
        /* two places of nine bits in two halves */
        uint32_t two = pick4(r.x[i], 0, 0x4140) |
                       (r.high[i / 2] * (0x00800100u >> 4 * (t % 2) >> 2 * (i % 2)) & 0x01000100u);
        uint2 m = shared_pair(byte_of<WIDE_ENTRY>(i % 2, r.signs[i / 2], signs));

        /* the grid's bytes are odd: -x = ~x | 1 */
        w[0] = (shared_word(half_to<WIDE_ENTRY>(two, grid)) ^ m.x) | 0x01010101u;
        w[1] = (shared_word(high_half_to<WIDE_ENTRY>(two, grid)) ^ m.y) | 0x01010101u;
    }
    static __device__ __forceinline__ int column(int i, int t, int)
    {
        return 2 * (i / 2) + t / 2;
    }
    static __device__ __forceinline__ void right(const uint8_t *q, int i, int t, int, uint32_t w[2])
    {
        uint2 v = *(const uint2 *)(q + 32 * (i & ~1) + 16 * t + 8 * (i % 2));

        w[0] = v.x, w[1] = v.y;
    }
    static __device__ __forceinline__ int scaled(const raw &r, int, const int *c, const int *)
    {
        return odd_scales(r.s, c);
    }
};

/* IQ1: 8 * grid + delta, delta 1 or -1: nibbles 0..2 through {-9, -1, 7} or {-7, 1, 9}. One copy of
 * the table: sixteen would not fit. */
struct iq1 : in_order {
    static constexpr int M = 0;
    static constexpr int TABLE = 2048 * 4;
    static __device__ __forceinline__ void fill(uint8_t *t)
    {
        for (int i = threadIdx.x; i < 2048; i += blockDim.x)
            ((uint32_t *)t)[i] = codes8(card::iq1s_grid[i], 1, 0);
    }
    static __device__ __forceinline__ void eight(const uint8_t *t, uint32_t index, uint32_t minus,
                                                 uint32_t *w)
    {
        uint32_t code = ((const uint32_t *)t)[index] | (minus ? 0 : 0x44444444u);

        w[0] = pick4(0x0007FFF7u, 0x000901F9u, code);
        w[1] = pick4(0x0007FFF7u, 0x000901F9u, code >> 16);
    }
};

struct iq1_s : iq1, d_first<3> {
    static constexpr int BYTES = 50, SUB = 32;
    static __device__ __forceinline__ void open(const uint8_t *b, int p, const uint8_t *t, opened *o)
    {
        uint32_t x, h = half_at(b + 34 + 2 * p);

        words_at<1>(b + 2 + 4 * p, &x);
#pragma unroll
        for (int l = 0; l < 4; l++)
            eight(t, (x >> 8 * l & 255) | (h >> 3 * l & 7) << 8, h >> 15, &o->w[2 * l]);
        o->scale[0] = o->scale[1] = 2 * (h >> 12 & 7) + 1;
    }
};

struct iq1_m : iq1 {
    static constexpr int BYTES = 56, SUB = 16;
    static __device__ __forceinline__ void open(const uint8_t *b, int p, const uint8_t *t, opened *o)
    {
        uint32_t x, high = half_at(b + 32 + 2 * p), s = half_at(b + 48 + 2 * (p / 2));

        words_4<1>(b + 4 * p, &x);
#pragma unroll
        for (int l = 0; l < 4; l++) {
            uint32_t n = high >> 4 * l & 15;
            eight(t, (x >> 8 * l & 255) | (n & 7) << 8, n & 8, &o->w[2 * l]);
        }
        s >>= 6 * (p % 2);
        o->scale[0] = 2 * (s & 7) + 1, o->scale[1] = 2 * (s >> 3 & 7) + 1;
    }
    static __device__ __forceinline__ float factor(const uint8_t *b, int, int)
    {
        uint32_t bits = 0;

#pragma unroll
        for (int k = 0; k < 4; k++)
            bits |= half_at(b + 48 + 2 * k) >> 12 << 4 * k;
        return cu_f16((uint16_t)bits) * 0.125f;
    }
};

/* ---- units of 32 and 16: no integer scales ---- */

struct q8_0 : small, d_first<0> {
    static constexpr int BYTES = 34, M = 0;
    static __device__ __forceinline__ void open(const uint8_t *b, int, const uint8_t *, opened *o)
    {
        words_at<8>(b + 2, o->w);
    }
};

struct q4_0 : small, d_first<0> {
    static constexpr int BYTES = 18, M = 0;
    static __device__ __forceinline__ void open(const uint8_t *b, int, const uint8_t *, opened *o)
    {
        uint32_t x[4];

        words_at<4>(b + 2, x);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            o->w[i] = minus4(x[i] & 0x0F0F0F0Fu, 8);
            o->w[4 + i] = minus4(x[i] >> 4 & 0x0F0F0F0Fu, 8);
        }
    }
};

struct q4_1 : small, d_and_m_first {
    static constexpr int BYTES = 20, M = 1;
    static __device__ __forceinline__ void open(const uint8_t *b, int, const uint8_t *, opened *o)
    {
        uint32_t x[4];

        words_4<4>(b + 4, x);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            o->w[i] = x[i] & 0x0F0F0F0Fu;
            o->w[4 + i] = x[i] >> 4 & 0x0F0F0F0Fu;
        }
    }
};

static __device__ __forceinline__ void five_bits(const uint32_t x[4], uint32_t high, uint32_t w[8])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        w[i] = (x[i] & 0x0F0F0F0Fu) | bits_to_bytes(high >> 4 * i) << 4;
        w[4 + i] = (x[i] >> 4 & 0x0F0F0F0Fu) | bits_to_bytes(high >> (16 + 4 * i)) << 4;
    }
}

struct q5_0 : small, d_first<0> {
    static constexpr int BYTES = 22, M = 0;
    static __device__ __forceinline__ void open(const uint8_t *b, int, const uint8_t *, opened *o)
    {
        uint32_t x[5];

        words_at<5>(b + 2, x);
        five_bits(x + 1, x[0], o->w);
#pragma unroll
        for (int i = 0; i < 8; i++)
            o->w[i] = minus4(o->w[i], 16);
    }
};

struct q5_1 : small, d_and_m_first {
    static constexpr int BYTES = 24, M = 1;
    static __device__ __forceinline__ void open(const uint8_t *b, int, const uint8_t *, opened *o)
    {
        uint32_t x[5];

        words_4<5>(b + 4, x);
        five_bits(x + 1, x[0], o->w);
    }
};

struct iq4_nl : small, d_first<0> {
    static constexpr int BYTES = 18, M = 0;
    static constexpr bool MIXED = true;
    static __device__ __forceinline__ void open(const uint8_t *b, int, const uint8_t *, opened *o)
    {
        uint32_t x[4];

        words_at<4>(b + 2, x);
        mixed16(x, IQ4_TABLE, o->w);
    }
};

struct mxfp4 : small {
    static constexpr int BYTES = 17, M = 0;
    static constexpr bool MIXED = true;
    static __device__ __forceinline__ void open(const uint8_t *b, int, const uint8_t *, opened *o)
    {
        uint32_t x[4];

        words_at<4>(b + 1, x);
        mixed16(x, E2M1_TABLE, o->w);
    }
    static __device__ __forceinline__ float factor(const uint8_t *b, int, int)
    {
        return __uint_as_float(card::e8m0_half_bits[b[0]]);
    }
};

/* part p is half h of a block of 64: two units of 16 */
struct nvfp4 : no_table, in_order {
    static constexpr int UNIT = 16, BLOCK = 64, BYTES = 36, M = 0, SUB = 0;
    static __device__ __forceinline__ void open(const uint8_t *b, int p, const uint8_t *, opened *o)
    {
        uint32_t x[4], lo, hi;

        words_4<4>(b + 4 + 16 * (p % 2), x);
#pragma unroll
        for (int i = 0; i < 4; i++) { /* eight bytes are a unit: low nibbles, then high ones */
            look_up16(x[i], E2M1_TABLE, &lo, &hi);
            o->w[i / 2 * 4 + i % 2] = __byte_perm(lo, hi, 0x6420);
            o->w[i / 2 * 4 + 2 + i % 2] = __byte_perm(lo, hi, 0x7531);
        }
    }
    static __device__ __forceinline__ float factor(const uint8_t *b, int, int k)
    {
        return __uint_as_float(card::ue4m3_half_bits[b[k]]);
    }
};
