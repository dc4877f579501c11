/* Q4_K: 144 bytes for 256 values, 8 sub-blocks of 32.
 * @0 f16 d, @2 f16 dmin, @4 scales[12], @16 qs[128].
 * Sub-block j: nibbles (low if j is even) of qs[32 * (j / 2) ...]; w = scale * q, value d*w -
 * dmin*mn. */
#include "kernels/dot/dot.h"
#include "kernels/dot/k_scales.h"
#include "kernels/num.h"

void unit_q4_k(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 144 * u;

    x->d = f16_to_f32(load_u16(b));
    x->m = f16_to_f32(load_u16(b + 2));
    for (int i = 0; i < 256; i++) {
        int j = i / 32, sc, mn, q = b[16 + 32 * (j / 2) + i % 32] >> 4 * (j % 2) & 15;

        k_scale_min(b + 4, j, &sc, &mn);
        x->w[i] = (int16_t)(sc * q);
        x->mn[i] = (uint8_t)mn;
    }
}
