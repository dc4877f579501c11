/* Scales and minima of Q4_K and Q5_K (k_scales.h), all eight of each at once. */
#pragma once
#include "kernels/dot/a256_avx2.h"

INLINE void k_head(const uint8_t *s, struct head *h)
{
    uint32_t a = load_u32(s), b = load_u32(s + 4), c = load_u32(s + 8);
    uint32_t sc_low = a & 0x3F3F3F3F, mn_low = b & 0x3F3F3F3F;
    uint32_t sc_high = (c & 0x0F0F0F0F) | (a >> 2 & 0x30303030);
    uint32_t mn_high = (c >> 4 & 0x0F0F0F0F) | (b >> 2 & 0x30303030);

    h->scales = scales_32(_mm_cvtsi64_si128((long long)((uint64_t)sc_high << 32 | sc_low)));
    h->mins = twice_each(_mm_cvtsi64_si128((long long)((uint64_t)mn_high << 32 | mn_low)));
}
