/* Pieces of the AVX forms of the types with grids: entries, signs, scales. */
#pragma once
#include "kernels/dot/a256_avx2.h"
#include "kernels/dot/tables.h"

/* Keeps what was stored as vectors in memory: the compiler would take it apart in registers, which
 * costs two instructions a number instead of one load. */
INLINE void keep_in_memory(struct head *h)
{
    __asm__("" : "+m"(h->index), "+m"(h->negative));
}

/* 32 values from four grid entries of eight; broadcasts from memory and blends: no shuffles */
INLINE __m256i grid_8x4(const uint64_t *grid, const uint16_t *index)
{
    __m256i a = _mm256_set1_epi64x((long long)grid[index[0]]);
    __m256i b = _mm256_set1_epi64x((long long)grid[index[1]]);
    __m256i c = _mm256_set1_epi64x((long long)grid[index[2]]);
    __m256i d = _mm256_set1_epi64x((long long)grid[index[3]]);

    return _mm256_blend_epi32(_mm256_blend_epi32(a, b, 0x0C), _mm256_blend_epi32(c, d, 0xC0), 0xF0);
}
INLINE __m256i entry_4(const uint32_t *grid, uint16_t index)
{
    return _mm256_set1_epi32((int)grid[index]);
}
/* 32 values from eight grid entries of four */
INLINE __m256i grid_4x8(const uint32_t *grid, const uint16_t *index)
{
    __m256i a = _mm256_blend_epi32(entry_4(grid, index[0]), entry_4(grid, index[1]), 0x02);
    __m256i b = _mm256_blend_epi32(entry_4(grid, index[2]), entry_4(grid, index[3]), 0x08);
    __m256i c = _mm256_blend_epi32(entry_4(grid, index[4]), entry_4(grid, index[5]), 0x20);
    __m256i d = _mm256_blend_epi32(entry_4(grid, index[6]), entry_4(grid, index[7]), 0x80);

    return _mm256_blend_epi32(_mm256_blend_epi32(a, b, 0x0C), _mm256_blend_epi32(c, d, 0xC0), 0xF0);
}

INLINE void store256(void *p, __m256i v)
{
    _mm256_storeu_si256((__m256i *)p, v);
}
/* n bytes (a multiple of 16) as 16-bit numbers */
INLINE void widen_bytes(uint16_t *out, const uint8_t *p, const int n)
{
    for (int i = 0; i < n; i += 16)
        store256(out + i, _mm256_cvtepu8_epi16(load128(p + i)));
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

    v = _mm256_or_si256(v, _mm256_and_si256(_mm256_slli_epi32(words, 1), _mm256_set1_epi32(0x7F00)));
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
