/* How the blocks of every quantised type open on a card. Part p (0..7) of 256 values is what one
 * thread takes: 32 values, as eight words of four signed bytes, in two halves of sixteen
 * neighbouring values. A struct per type says
 *
 *   UNIT, BYTES, BLOCK  values of a unit (rule 9), bytes and values of a block
 *   M                   -1, 0, +1: the sign of the second factor (rules 11 and 12)
 *   SUB                 values under one integer scale: 32, 16, or 0 where there is none
 *   MIXED               words 2k and 2k + 1 hold values 4k.. of both halves in turn (one table
 *                       look-up gives them so, and the vector can be laid out to match, once)
 *   at(p, i)            first value of word i
 *   TABLE, fill         bytes in shared memory, and how a block of threads writes them
 *   open                bytes in shared memory to words, scales and minima
 *   STEPS               true: there are these as well, a faster way for steps.cuh: step i of eight takes
 *                       32 values, thread t of four eight of them.
 *                       raw, load: what thread t needs of a block's bytes. step: eight values as two
 *                       words. right: the vector's, alike. column: a number for the sub-block that they
 *                       are of, 2t and 2t + 1 the two whose sums thread t gets of the first four steps
 *                       (sub-blocks of 16) or of all, and again of the others. scaled: those sums times
 *                       their scales, added up.
 *                       TURNED: which blocks of two, 0 or 1, have their fields between words, where rows
 *                       are whole words and blocks are not; 2: none, or they are not taken by words.
 *                       Words then hold the second half of one field and the first of the next.
 *                       START: what a value's bytes lack, added to the sums.
 *                       MASKS: step gives masks of negative values too, whose bytes are one too small.
 *                       WIDE_GRID, WIDE_SIGNS: bytes of its own tables in place of TABLE, GRID_COPIES
 *                       and SIGN_BYTES of their entries, and wide_fill
 *   factor              D, or M without its sign, of unit k of the block
 *
 * b points into shared memory and has the alignment that the block's size leaves of 16 bytes; 16
 * bytes beyond a row may be read there. Every bit pattern is legal (rule 15). */
#pragma once
#include "kernels/num.cuh"
#include <stddef.h>
extern "C" {
#include "kernels/dot/tables.h"
}

/* the tables once more, where kernels can read them */
namespace card
{
#pragma nv_diag_suppress 177
#define const static __device__ const
#include "kernels/dot/tables.c"
#undef const
#pragma nv_diag_default 177
} // namespace card

struct opened {
    uint32_t w[8];
    int scale[2];  /* of the two halves */
    uint32_t mins; /* likewise, a byte each */
};

/* ---- reading shared memory ---- */

/* n words from any address, by whole words */
template <int N> static __device__ __forceinline__ void words_at(const uint8_t *p, uint32_t *out)
{
    uint32_t off = (uint32_t)(size_t)p & 3;
    const uint32_t *from = (const uint32_t *)(p - off);
    uint32_t low = from[0];

#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t high = from[i + 1];
        out[i] = __funnelshift_r(low, high, 8 * off);
        low = high;
    }
}
template <int N> static __device__ __forceinline__ void words_4(const uint8_t *p, uint32_t *out)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        out[i] = ((const uint32_t *)p)[i];
}
static __device__ __forceinline__ void words_16(const uint8_t *p, uint32_t out[4])
{
    uint4 v = *(const uint4 *)p;

    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
}
static __device__ __forceinline__ uint32_t half_at(const uint8_t *p) /* p even */
{
    return *(const uint16_t *)p;
}
static __device__ __forceinline__ uint32_t shared_word(uint32_t at)
{
    uint32_t v;

    asm("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}
static __device__ __forceinline__ uint2 shared_pair(uint32_t at)
{
    uint2 v;

    asm("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at));
    return v;
}
static __device__ __forceinline__ float f16_at(const uint8_t *p)
{
    return cu_f16(*(const uint16_t *)p);
}

/* bytes of a (0..3) and b (4..7) by the selector's low four nibbles, which must be 0..7 */
static __device__ __forceinline__ uint32_t pick4(uint32_t a, uint32_t b, uint32_t selector)
{
    uint32_t r; /* the instruction alone: __byte_perm masks the selector first */

    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
    return r;
}

/* Halves and bytes by dot products: times SIZE, on top of `base`. On a card multiply-adds and dot products
 * have a pipe of their own, as wide as that of shifts, masks and picks, which opening keeps busy. */
template <int SIZE> static __device__ __forceinline__ uint32_t half_to(uint32_t x, uint32_t base)
{
    return __dp2a_lo(x, (uint32_t)SIZE, base);
}
template <int SIZE> static __device__ __forceinline__ uint32_t high_half_to(uint32_t x, uint32_t base)
{
    return __dp2a_lo(x, (uint32_t)SIZE << 8, base);
}
template <int I, int SIZE>
static __device__ __forceinline__ uint32_t byte_to(uint32_t x, uint32_t base)
{
    return __dp4a(x, (uint32_t)SIZE << 8 * I, base);
}
/* as byte_to, for a number that unrolling makes known */
template <int SIZE>
static __device__ __forceinline__ uint32_t byte_of(int i, uint32_t x, uint32_t base)
{
    return __dp4a(x, (uint32_t)SIZE << 8 * i, base);
}

/* ---- four bytes at a time; no byte carries into its neighbour where these are used ---- */

/* bytes 0..127 minus k, 1 <= k <= 128 */
static __device__ __forceinline__ uint32_t minus4(uint32_t x, uint32_t k)
{
    return (x + 0x01010101u * (128 - k)) ^ 0x80808080u;
}
/* bit i of the low four to the lowest bit of byte i */
static __device__ __forceinline__ uint32_t bits_to_bytes(uint32_t bits)
{
    return ((bits & 15) * 0x00204081u) & 0x01010101u;
}
/* bytes that are not zero, negated where `ones` has a one in place of a zero */
static __device__ __forceinline__ uint32_t negate4(uint32_t x, uint32_t ones)
{
    return (x ^ ones * 255) + ones;
}
/* bit i of the low eight to bit 4i */
static __device__ __forceinline__ uint32_t bits_to_nibbles(uint32_t x)
{
    x = (x | x << 12) & 0x000F000Fu;
    x = (x | x << 6) & 0x03030303u;
    return (x | x << 3) & 0x11111111u;
}
/* Eight nibbles through a table of sixteen bytes: lo values 0..3, hi values 4..7. DOTS: upper halves by the
 * multipliers' pipe, where that was measured to be faster. */
template <bool DOTS = false>
static __device__ __forceinline__ void look_up16(uint32_t x, uint32_t t0, uint32_t t1, uint32_t t2,
                                                 uint32_t t3, uint32_t *lo, uint32_t *hi)
{
    uint32_t low = x & 0x77777777u, pick = 0x32103210u | (x & 0x88888888u) >> 1;

    if constexpr (DOTS) {
        uint32_t low2 = high_half_to<1>(low, 0), pick2 = high_half_to<1>(pick, 0);

        *lo = pick4(pick4(t0, t1, low), pick4(t2, t3, low), pick);
        *hi = pick4(pick4(t0, t1, low2), pick4(t2, t3, low2), pick2);
    } else {
        *lo = pick4(pick4(t0, t1, low), pick4(t2, t3, low), pick);
        *hi = pick4(pick4(t0, t1, low >> 16), pick4(t2, t3, low >> 16), pick >> 16);
    }
}
/* sixteen bytes of nibble pairs through such a table, MIXED */
static __device__ __forceinline__ void mixed16(const uint32_t x[4], uint32_t t0, uint32_t t1,
                                               uint32_t t2, uint32_t t3, uint32_t w[8])
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        look_up16(x[k], t0, t1, t2, t3, &w[2 * k], &w[2 * k + 1]);
}
#define IQ4_TABLE 0xBFAD9881u, 0xF6EADDCFu, 0x26190D01u, 0x71594535u
#define E2M1_TABLE 0x03020100u, 0x0C080604u, 0xFDFEFF00u, 0xF4F8FAFCu

/* ---- tables in shared memory ----
 * 16 copies of each entry side by side, a thread's own by its number, so that at most two threads
 * meet in a bank. Places are byte offsets: an entry's words are 64 bytes apart. */
enum { COPIES = 16, ENTRY = 4 * COPIES };

/* neighbouring threads write neighbouring entries: each begins at another place of its own */
static __device__ __forceinline__ void copies(uint8_t *to, int i, uint32_t v)
{
#pragma unroll
    for (int c = 0; c < COPIES / 4; c++)
        ((uint4 *)to)[COPIES / 4 * i + (c + i / 2) % 4] = make_uint4(v, v, v, v);
}
/* the entry at offset `bits` shifted right (left where negative) and masked; t: the table and this
 * thread's place in an entry */
template <int RIGHT>
static __device__ __forceinline__ uint32_t entry_at(uint32_t bits, uint32_t n_entries)
{
    return (RIGHT >= 0 ? bits >> (RIGHT & 31) : bits << (-RIGHT & 31)) & (n_entries - 1) * ENTRY;
}
static __device__ __forceinline__ uint32_t word_of(const uint8_t *t, uint32_t offset)
{
    return *(const uint32_t *)(t + (offset | threadIdx.x % COPIES * 4));
}
/* the shared address of this thread's copy of a table's first entry */
static __device__ __forceinline__ uint32_t copy_of(const uint8_t *t)
{
    return (uint32_t)__cvta_generic_to_shared(t) + threadIdx.x % COPIES * 4;
}
/* the eight bytes 8, 25, 43 (or -1, 0, 1) of a grid entry as nibbles 0, 1, 2 */
static __device__ __forceinline__ uint32_t codes8(uint64_t entry, int plus, int shift)
{
    uint32_t out = 0;

#pragma unroll
    for (int i = 0; i < 8; i++)
        out |= (((uint32_t)(entry >> 8 * i) + plus) >> shift & 3) << 4 * i;
    return out;
}
template <int N>
static __device__ __forceinline__ void fill_codes(uint8_t *to, const uint64_t *grid, int plus,
                                                  int shift)
{
    for (int i = threadIdx.x; i < N; i += blockDim.x)
        copies(to, i, codes8(grid[i], plus, shift));
}
/* seven sign bits and their parity, at bit 2 of eight nibbles */
static __device__ __forceinline__ void fill_signs(uint8_t *to)
{
    for (int i = threadIdx.x; i < 128; i += blockDim.x)
        copies(to, i, bits_to_nibbles(card::sign_masks[i]) << 2);
}
/* nibbles 0..2 (8, 25, 43), negative where bit 2 is set */
template <bool DOTS = false>
static __device__ __forceinline__ void levels8(uint32_t code, uint32_t *lo, uint32_t *hi)
{
    *lo = pick4(0x002B1908u, 0x00D5E7F8u, code);
    *hi = pick4(0x002B1908u, 0x00D5E7F8u, DOTS ? high_half_to<1>(code, 0) : code >> 16);
}

/* How thread t takes words of a block of a turned type: where its own of four words, or of four pairs
 * of words, begins, counted from two bytes further on, and which bytes of two of them are one. */
struct turned {
    int turn;
    uint32_t word, pair, both, first; /* first: with turn 1, and for thread 0 alone */
};
static __device__ __forceinline__ turned turned_of(int turn, int t)
{
    const uint32_t begin = 2 - 2 * turn;

    return {turn, begin + 4 * t, begin + 8 * t, turn ? 0x5432u : 0x3210u,
            turn && t == 0 ? 0x3254u : 0x3210u};
}
template <int N>
static __device__ __forceinline__ void words_turned(const uint8_t *p, const turned &u, uint32_t *out)
{
    uint32_t low = *(const uint32_t *)p;

#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t high = ((const uint32_t *)p)[i + 1];

        out[i] = pick4(low, high, u.both);
        low = high;
    }
}

/* Tables for the types' steps: 32 copies of an entry, so that no two threads of a warp meet in a bank.
 * Steps get the shared address of the thread's copy of the first entry. */
enum { WIDE_ENTRY = 128 };
/* where in such a table entry number i of four of seven bits lies */
static __device__ __forceinline__ uint32_t seven_of(int i, uint32_t x)
{
    return (i ? x >> (7 * i - 7) : x << 7) & 127 * WIDE_ENTRY;
}
/* c[0] and c[1] times the odd numbers 2k + 1 of a byte's low and high nibble */
static __device__ __forceinline__ int odd_scales(uint32_t x, const int *c)
{
    return c[0] + c[1] + 2 * ((int)x * c[0] + (int)(x >> 4) * (c[1] - 16 * c[0]));
}
static __device__ __forceinline__ void wide_words(uint8_t *to, int i, uint32_t v)
{
#pragma unroll
    for (int c = 0; c < 8; c++) /* neighbours begin at different banks */
        ((uint4 *)to)[8 * i + (c + i) % 8] = make_uint4(v, v, v, v);
}
/* N entries, of(i) each, by all threads; entries are asked for together, before the first is stored */
template <int N, int THREADS_IN, class OF>
static __device__ __forceinline__ void wide_table(uint8_t *to, OF of)
{
    constexpr int EACH = (N + THREADS_IN - 1) / THREADS_IN;
    uint32_t v[EACH];

#pragma unroll
    for (int k = 0; k < EACH; k++)
        v[k] = of(min((int)threadIdx.x + k * THREADS_IN, N - 1));
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int i = threadIdx.x + k * THREADS_IN;
        if (i < N)
            wide_words(to, i, v[k]);
    }
}

/* an entry of 16 copies of eight bytes, whose halves of a warp read one after the other */
static __device__ __forceinline__ void wide_pairs(uint8_t *to, int i, uint2 v)
{
#pragma unroll
    for (int c = 0; c < 8; c++)
        ((uint4 *)to)[8 * i + (c + i) % 8] = make_uint4(v.x, v.y, v.x, v.y);
}

/* bits 0..3 (HIGH: 4..7) of a byte to four bytes of zeros or ones */
template <bool HIGH> static __device__ __forceinline__ uint32_t sign_bytes(uint32_t bits)
{
    uint32_t spread = HIGH ? (bits & 0xF0) * 0x01020408u : (bits & 0x7F) * 0x10204080u;

    return pick4(spread, 0, 0xBA98); /* each byte's highest bit, eight times */
}

struct no_table {
    static constexpr int TABLE = 0;
    static __device__ __forceinline__ void fill(uint8_t *)
    {
    }
};
/* sixteen values of each of two sub-blocks, 32 apart: the order of Q4_K and Q5_K */
struct pairs_of_32 : no_table {
    static constexpr int UNIT = 256, BLOCK = 256;
    static constexpr bool MIXED = false;
    static __device__ __forceinline__ int at(int p, int i)
    {
        return 64 * (p / 2) + 16 * (p % 2) + 32 * (i / 4) + 4 * (i % 4);
    }
};
/* Steps of types with 32-value parts: thread t has the parts t and t + 4, four steps each. */
struct parts_of_threads {
    static constexpr bool STEPS = true;
    static constexpr int TURNED = 0, START = 0;
    static __device__ __forceinline__ void right(const uint8_t *q, int i, int t, int, uint32_t w[2])
    {
        uint2 v = *(const uint2 *)(q + 128 * (i / 4) + 32 * t + 8 * (i % 4));

        w[0] = v.x, w[1] = v.y;
    }
};
/* 32 neighbouring values */
struct in_order {
    static constexpr int UNIT = 256, BLOCK = 256;
    static constexpr bool MIXED = false;
    static __device__ __forceinline__ int at(int p, int i)
    {
        return 32 * p + 4 * i;
    }
};
struct small : no_table, in_order {
    static constexpr int UNIT = 32, BLOCK = 32, SUB = 0;
};
template <int SHIFT> struct d_first { /* D = f16 at 0, times 2^-SHIFT */
    static __device__ __forceinline__ float factor(const uint8_t *b, int, int)
    {
        return f16_at(b) * (1.0f / (1 << SHIFT));
    }
};
struct d_and_m_first {
    static __device__ __forceinline__ float factor(const uint8_t *b, int second, int)
    {
        return f16_at(b + 2 * second);
    }
};
