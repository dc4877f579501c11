/* Scales and minima of Q4_K and Q5_K (k_scales.h), all eight of each at once. */
#pragma once
#include "kernels/dot/a256_avx512.h"

INLINE void k_head(const uint8_t *s, struct head *h)
{
    uint32_t a = load_u32(s), b = load_u32(s + 4), c = load_u32(s + 8);
    uint32_t sc_low = a & 0x3F3F3F3F, mn_low = b & 0x3F3F3F3F;
    uint32_t sc_high = (c & 0x0F0F0F0F) | (a >> 2 & 0x30303030);
    uint32_t mn_high = (c >> 4 & 0x0F0F0F0F) | (b >> 2 & 0x30303030);

    h->scales = scales_32(_mm_cvtsi64_si128((long long)((uint64_t)sc_high << 32 | sc_low)));
    h->mins =
        _mm_cvtepu8_epi16(_mm_cvtsi64_si128((long long)((uint64_t)mn_high << 32 | mn_low)));
}

/* 32 bytes twice: the lower copy shifted right by low, the upper one by high */
INLINE __m512i right(__m256i v, int low, int high)
{
    const __m512i n = _mm512_inserti64x4(_mm512_set1_epi16((short)low),
                                         _mm256_set1_epi16((short)high), 1);

    return _mm512_srlv_epi16(_mm512_broadcast_i64x4(v), n);
}
/* the same to the left */
INLINE __m512i left(__m256i v, int low, int high)
{
    const __m512i n = _mm512_inserti64x4(_mm512_set1_epi16((short)low),
                                         _mm256_set1_epi16((short)high), 1);

    return _mm512_sllv_epi16(_mm512_broadcast_i64x4(v), n);
}
/* low | (high & mask) */
INLINE __m512i or_masked(__m512i low, __m512i high, int mask)
{
    return _mm512_ternarylogic_epi64(low, high, _mm512_set1_epi8((char)mask), 0xF8);
}
