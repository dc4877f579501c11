/* Q6_K: 210 bytes for 256 values, 16 sub-blocks of 16.
 * @0 ql[128], @128 qh[64], @192 int8 scales[16], @208 f16 d.
 * Value 128h + 32j + l: four bits from ql[64h + 32(j & 1) + l] (low nibble if j < 2), two bits
 * 2j.. of qh[32h + l] above them, minus 32; w = scale * q (-4064..4096). */
#include "kernels/dot/dot.h"
#include "kernels/num.h"

void unit_q6_k(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 210 * u;

    x->d = f16_to_f32(load_u16(b + 208));
    for (int i = 0; i < 256; i++) {
        int h = i / 128, j = i / 32 % 4, l = i % 32;
        int low = b[64 * h + 32 * (j & 1) + l] >> 4 * (j / 2) & 15;
        int high = b[128 + 32 * h + l] >> 2 * j & 3;

        x->w[i] = (int16_t)((int8_t)b[192 + i / 16] * (low + 16 * high - 32));
    }
}
