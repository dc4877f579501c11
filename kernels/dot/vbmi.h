/* Pieces of the forms of the types with grids where bytes can be permuted (AVX-512 VBMI, GFNI): a
 * permutation looks up 64 bytes at once in a table of 64. */
#pragma once
#include "kernels/dot/avx512.h"
#include "kernels/dot/tables.h"

/* where an index has these bits set */
struct bits {
    __mmask64 bit6, bit7, both, bit8, bit9;
};
/* the first three */
INLINE struct bits bits_of(__m512i index)
{
    struct bits m = {.bit6 = _mm512_test_epi8_mask(index, _mm512_set1_epi8(64)),
                     .bit7 = _mm512_movepi8_mask(index)};

    m.both = m.bit6 & m.bit7;
    return m;
}
/* entries of a table of 256 bytes */
INLINE __m512i lookup_256(const uint64_t *table, __m512i index, const struct bits *m)
{
    const uint8_t *t = (const uint8_t *)table;
    __m512i v = _mm512_permutexvar_epi8(index, load512(t));

    v = _mm512_mask_permutexvar_epi8(v, m->bit6, index, load512(t + 64));
    v = _mm512_mask_permutexvar_epi8(v, m->bit7, index, load512(t + 128));
    return _mm512_mask_permutexvar_epi8(v, m->both, index, load512(t + 192));
}
/* of 512 bytes */
INLINE __m512i lookup_512(const uint64_t *table, __m512i index, const struct bits *m)
{
    return _mm512_mask_blend_epi8(m->bit8, lookup_256(table, index, m),
                                  lookup_256(table + 32, index, m));
}

/* f of 0..63 */
#define FOUR(f, i) f(i), f(i + 1), f(i + 2), f(i + 3)
#define SIXTEEN(f, i) FOUR(f, i), FOUR(f, i + 4), FOUR(f, i + 8), FOUR(f, i + 12)
#define SIXTY_FOUR(f) SIXTEEN(f, 0), SIXTEEN(f, 16), SIXTEEN(f, 32), SIXTEEN(f, 48)

/* (v & and) | or */
INLINE __m512i and_or(__m512i v, __m512i and, __m512i or)
{
    return _mm512_ternarylogic_epi64(v, and, or, 0xEA);
}
/* a's bits where mask has ones, b's where not */
INLINE __m512i one_or_other(__m512i a, __m512i b, __m512i mask)
{
    return _mm512_ternarylogic_epi64(a, b, mask, 0xE4);
}
/* places of bits in every 64-bit word, for _mm512_multishift_epi64_epi8 */
INLINE __m512i pairs_64(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return _mm512_setr_epi64((long long)a, (long long)a, (long long)b, (long long)b, (long long)c,
                             (long long)c, (long long)d, (long long)d);
}
/* a word of two blocks: the first's in the low half of every part */
INLINE __m512i two_words(const uint8_t *a, const uint8_t *b)
{
    const __m512i first = _mm512_setr_epi64(-1, 0, -1, 0, -1, 0, -1, 0);

    return one_or_other(_mm512_set1_epi64((long long)load_u64(a)),
                        _mm512_set1_epi64((long long)load_u64(b)), first);
}
