/* Q5_1: 24 bytes for 32 values. @0 f16 d, @2 f16 m, @4 u32 qh, @8 qs[16]: bits as Q5_0; w = q
 * (0..31), value d * w + m. */
#include "kernels/dot/dot.h"
#include "kernels/num.h"

void unit_q5_1(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 24 * u;
    uint32_t high = load_u32(b + 4);

    x->d = f16_to_f32(load_u16(b));
    x->m = f16_to_f32(load_u16(b + 2));
    for (int j = 0; j < 16; j++) {
        x->w[j] = (int16_t)((b[8 + j] & 15) + 16 * (high >> j & 1));
        x->w[j + 16] = (int16_t)((b[8 + j] >> 4) + 16 * (high >> (j + 16) & 1));
        x->mn[j] = x->mn[j + 16] = 1;
    }
}
