/* Q4_0: 18 bytes for 32 values. @0 f16 d, @2 qs[16]: low nibbles are values 0..15, high ones
 * 16..31; w = nibble - 8. */
#include "kernels/dot/dot.h"
#include "kernels/num.h"

void unit_q4_0(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 18 * u;

    x->d = f16_to_f32(load_u16(b));
    for (int j = 0; j < 16; j++) {
        x->w[j] = (int16_t)((b[2 + j] & 15) - 8);
        x->w[j + 16] = (int16_t)((b[2 + j] >> 4) - 8);
    }
}
