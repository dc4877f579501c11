/* Q5_0: 22 bytes for 32 values. @0 f16 d, @2 u32 qh, @6 qs[16]: nibbles as Q4_0, bit i of qh the
 * fifth bit of value i; w = q - 16. */
#include "kernels/dot/dot.h"
#include "kernels/num.h"

void unit_q5_0(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 22 * u;
    uint32_t high = load_u32(b + 2);

    x->d = f16_to_f32(load_u16(b));
    for (int j = 0; j < 16; j++) {
        x->w[j] = (int16_t)((b[6 + j] & 15) + 16 * (high >> j & 1) - 16);
        x->w[j + 16] = (int16_t)((b[6 + j] >> 4) + 16 * (high >> (j + 16) & 1) - 16);
    }
}
