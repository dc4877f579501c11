/* The grids of IQ3_S and IQ3_XXS in registers: an entry is four nibbles, so a table of 64 entries
 * is two registers, and a permutation looks up 32 entries at once. */
#pragma once
#include "kernels/dot/avx512.h"

/* entries i + (0..63) of the table */
INLINE __m512i lookup_64(const uint16_t *codes, __m512i index, int i)
{
    return _mm512_permutex2var_epi16(load512(codes + i), index, load512(codes + i + 32));
}
/* 32 entries of a table of 256; index bits above 7 are not looked at */
INLINE __m512i lookup_256(const uint16_t *codes, __m512i index)
{
    __mmask32 bit6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64));
    __mmask32 bit7 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
    __m512i low =
        _mm512_mask_mov_epi16(lookup_64(codes, index, 0), bit6, lookup_64(codes, index, 64));
    __m512i high =
        _mm512_mask_mov_epi16(lookup_64(codes, index, 128), bit6, lookup_64(codes, index, 192));

    return _mm512_mask_mov_epi16(low, bit7, high);
}
/* 64 nibbles of sixteen entries as bytes, in order */
INLINE __m512i widen_nibbles(__m256i codes)
{
    __m512i v = _mm512_cvtepu16_epi32(codes);

    /* (v | v << n) & mask */
    v = _mm512_ternarylogic_epi64(v, _mm512_slli_epi32(v, 8), _mm512_set1_epi32(0x00FF00FF), 0xA8);
    return _mm512_ternarylogic_epi64(v, _mm512_slli_epi32(v, 4), _mm512_set1_epi32(0x0F0F0F0F),
                                     0xA8);
}
INLINE __m256i half_of(__m512i v, int j)
{
    return j % 2 ? _mm512_extracti64x4_epi64(v, 1) : _mm512_castsi512_si256(v);
}
