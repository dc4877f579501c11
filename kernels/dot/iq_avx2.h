/* Pieces of the AVX forms of the types with grids: entries, signs, scales. */
#pragma once
#include "kernels/dot/a256_avx2.h"
#include "kernels/dot/tables.h"

/* Entries are fetched one by one, with indices that scalar loads read from the block: gathers are
 * slower, and indices made by vector code and read back from memory cost more than they save. */

/* An entry is loaded into all places and blended with the others: loads and blends have more ports
 * than what moves bytes about. */

/* 32 values from four grid entries of eight */
INLINE __m256i grid_8x4(const uint64_t *grid, size_t a, size_t b, size_t c, size_t d)
{
    __m256i ab = _mm256_blend_epi32(_mm256_set1_epi64x((long long)grid[a]),
                                    _mm256_set1_epi64x((long long)grid[b]), 0x0C);
    __m256i cd = _mm256_blend_epi32(_mm256_set1_epi64x((long long)grid[c]),
                                    _mm256_set1_epi64x((long long)grid[d]), 0xC0);

    return _mm256_blend_epi32(ab, cd, 0xF0);
}
/* 32 values from eight grid entries of four */
INLINE __m256i grid_4x8(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e, uint32_t f,
                        uint32_t g, uint32_t h)
{
    __m256i ab = _mm256_blend_epi32(_mm256_set1_epi32((int)a), _mm256_set1_epi32((int)b), 0x02);
    __m256i cd = _mm256_blend_epi32(_mm256_set1_epi32((int)c), _mm256_set1_epi32((int)d), 0x08);
    __m256i ef = _mm256_blend_epi32(_mm256_set1_epi32((int)e), _mm256_set1_epi32((int)f), 0x20);
    __m256i gh = _mm256_blend_epi32(_mm256_set1_epi32((int)g), _mm256_set1_epi32((int)h), 0x80);

    return _mm256_blend_epi32(_mm256_blend_epi32(ab, cd, 0x0C), _mm256_blend_epi32(ef, gh, 0xC0),
                              0xF0);
}
/* the parity of bits 0..6 of every byte as its bit 7; bit 7 must be clear */
INLINE __m256i with_parity(__m256i v)
{
    const __m256i odd = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    __m256i nibble = _mm256_xor_si256(v, _mm256_srli_epi16(v, 4));

    nibble = _mm256_and_si256(nibble, _mm256_set1_epi8(15));
    return _mm256_or_si256(v, _mm256_shuffle_epi8(odd, nibble));
}
/* the sign bits of 256 values, from four times seven bits in each of eight words */
INLINE __m256i signs_4x7(__m256i words)
{
    __m256i v = _mm256_and_si256(words, _mm256_set1_epi32(0x7F));

    v = _mm256_or_si256(v,
                        _mm256_and_si256(_mm256_slli_epi32(words, 1), _mm256_set1_epi32(0x7F00)));
    v = _mm256_or_si256(v,
                        _mm256_and_si256(_mm256_slli_epi32(words, 2), _mm256_set1_epi32(0x7F0000)));
    v = _mm256_or_si256(
        v, _mm256_and_si256(_mm256_slli_epi32(words, 3), _mm256_set1_epi32(0x7F000000)));
    return with_parity(v);
}
/* 2x + 1 of the top four bits of eight words, as head.scales of sub-blocks of 32 */
INLINE __m256i scales_top4(__m256i words)
{
    __m256i s = _mm256_slli_epi32(_mm256_srli_epi32(words, 28), 1);

    s = _mm256_or_si256(s, _mm256_set1_epi32(1));
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(s, s), 0x88);
}
/* 2x + 1 of sixteen nibbles, low ones first, as bytes in order */
INLINE __m128i scales_nibbles(const uint8_t *p)
{
    __m128i v = _mm_cvtsi64_si128((long long)load_u64(p)), low = _mm_set1_epi8(15), s;

    s = _mm_unpacklo_epi8(_mm_and_si128(v, low), _mm_and_si128(_mm_srli_epi16(v, 4), low));
    return _mm_or_si128(_mm_add_epi8(s, s), _mm_set1_epi8(1));
}
