/* Q5_K: 176 bytes for 256 values, 8 sub-blocks of 32.
 * @0 f16 d, @2 f16 dmin, @4 scales[12], @16 qh[32], @48 qs[128].
 * As Q4_K, with bit j of qh[l] as the fifth bit of value l of sub-block j. */
#include "kernels/dot/dot.h"
#include "kernels/dot/k_scales.h"
#include "kernels/num.h"

void unit_q5_k(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 176 * u;

    x->d = f16_to_f32(load_u16(b));
    x->m = f16_to_f32(load_u16(b + 2));
    for (int i = 0; i < 256; i++) {
        int j = i / 32, l = i % 32, sc, mn;
        int q = (b[48 + 32 * (j / 2) + l] >> 4 * (j % 2) & 15) + 16 * (b[16 + l] >> j & 1);

        k_scale_min(b + 4, j, &sc, &mn);
        x->w[i] = (int16_t)(sc * q);
        x->mn[i] = (uint8_t)mn;
    }
}
