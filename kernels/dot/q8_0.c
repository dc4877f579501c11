/* Q8_0: 34 bytes for 32 values. @0 f16 d, @2 int8 qs[32]; w = qs (-128..127). */
#include "kernels/dot/dot.h"
#include "kernels/num.h"

void unit_q8_0(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 34 * u;

    x->d = f16_to_f32(load_u16(b));
    for (int i = 0; i < 32; i++)
        x->w[i] = (int8_t)b[2 + i];
}
