/* Small pieces that the AVX2 forms share. */
#pragma once
#include "kernels/dot/dot.h"
#include "kernels/num.h"
#include "kernels/quantise/quantise.h"
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* tokens whose vectors stay in the second cache level while all rows of a job pass by */
enum { TOKENS_CACHED = 64 };
/* bytes between what is computed and what is fetched, for forms that read one row at a time. All
 * forms fetch to the second cache level: the first has too few places for lines on their way. */
enum { PREFETCH_AHEAD = 2048 };
/* From a group of rows to the one that is fetched while it is multiplied: so many bytes at least, or
 * short rows would be there before memory has answered. Beyond a job's last row too: what follows is
 * the same thread's next piece, or what its neighbour is reading. */
enum { FETCH_LEAST = 8192 };
INLINE size_t fetch_distance(size_t group_bytes)
{
    return (FETCH_LEAST + group_bytes - 1) / group_bytes * group_bytes;
}

/* value, NaN canonical, -0 to +0 */
INLINE __m128 finish4(__m128 y)
{
    y = _mm_add_ps(y, _mm_setzero_ps());
    return _mm_blendv_ps(y, _mm_castsi128_ps(_mm_set1_epi32((int)F32_NAN_BITS)),
                         _mm_cmpunord_ps(y, y));
}

/* the sums of four vectors of eight int32, in order */
INLINE __m128i sum4(__m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));

    return _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
}

/* (l0 + l2) + (l1 + l3) */
INLINE float fold_lanes(__m128 v)
{
    __m128 s = _mm_add_ps(v, _mm_movehl_ps(v, v));

    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

/* binary16 at four places, widened */
INLINE __m128 f16x4(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d)
{
    __m128i h = _mm_cvtsi32_si128(load_u16(a));

    h = _mm_insert_epi16(h, load_u16(b), 1);
    h = _mm_insert_epi16(h, load_u16(c), 2);
    h = _mm_insert_epi16(h, load_u16(d), 3);
    return _mm_cvtph_ps(h);
}

/* Sums stay in the order and registers they are written in: without this gcc makes a tree of a
 * chain of integer additions, and keeps all its leaves on the stack. */
INLINE __m256i as_written(__m256i v)
{
    __asm__("" : "+x"(v));
    return v;
}
/* A pointer that the compiler knows nothing about: it would load a vector's bytes ahead of the loop
 * over rows, and copy them to the stack for lack of registers. */
INLINE const void *unknown(const void *p)
{
    __asm__("" : "+r"(p));
    return p;
}

INLINE __m256i load256(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}
INLINE __m128i load128(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

/* sixteen bytes of nibbles as 32: the low ones, then the high ones */
INLINE __m256i nibbles(const uint8_t *p)
{
    __m256i v = _mm256_broadcastsi128_si256(load128(p));

    v = _mm256_srlv_epi64(v, _mm256_setr_epi64x(0, 0, 4, 4));
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}
/* 0xFF in byte i where bit i of word j is set */
INLINE __m256i word_to_bytes(__m256i words, int j)
{
    const __m256i spread =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i v = _mm256_permutevar8x32_epi32(words, _mm256_set1_epi32(j));

    return _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(v, spread), bit), bit);
}
/* 0xFF in byte i where bit i is set */
INLINE __m256i bits_to_bytes(uint32_t bits)
{
    return word_to_bytes(_mm256_set1_epi32((int)bits), 0);
}
/* -1 in byte i where bit i of word j is set, else 1 */
INLINE __m256i word_to_signs(__m256i words, int j)
{
    return _mm256_or_si256(word_to_bytes(words, j), _mm256_set1_epi8(1));
}
INLINE __m256i table16(const int8_t *table)
{
    return _mm256_broadcastsi128_si256(load128(table));
}

/* n floats of y4 to y, n 1..4 */
INLINE void store_rows(float *y, __m128 y4, size_t n)
{
    float v[4];

    if (n == 4) {
        _mm_storeu_ps(y, y4);
        return;
    }
    _mm_storeu_ps(v, y4);
    for (size_t i = 0; i < n; i++)
        y[i] = v[i];
}

/* How many of the next tokens go together: a form exists for 1, 2, 4 and 8; three and seven are
 * padded with a token whose results are dropped (rule 16). */
INLINE size_t tokens_together(size_t left)
{
    return left >= 7 ? 8 : left >= 3 ? 4 : left;
}
