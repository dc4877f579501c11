/* The twelve bytes that hold eight six-bit scales and eight six-bit minima (Q4_K and Q5_K). */
#pragma once
#include <stdint.h>

/* scale and minimum of sub-block j: 0..63 */
static inline void k_scale_min(const uint8_t *s, int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) + 16 * (s[j - 4] >> 6);
        *min = (s[j + 4] >> 4) + 16 * (s[j] >> 6);
    }
}
