/* Q3_K: 110 bytes for 256 values, 16 sub-blocks of 16.
 * @0 hmask[32], @32 qs[64], @96 scales[12], @108 f16 d.
 * Value 128h + 32j + l: bits 2j.. of qs[32h + l], minus 4 where bit 4h + j of hmask[l] is clear.
 * Scale of sub-block s: nibble s of the first eight bytes (low ones first), two more bits from
 * scales[8 + s % 4], minus 32. w = scale * q. */
#include "kernels/dot/dot.h"
#include "kernels/num.h"

static int scale(const uint8_t *s, int k)
{
    int low = k < 8 ? s[k] & 15 : s[k - 8] >> 4, high = s[8 + k % 4] >> 2 * (k / 4) & 3;

    return low + 16 * high - 32;
}

void unit_q3_k(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 110 * u;

    x->d = f16_to_f32(load_u16(b + 108));
    for (int i = 0; i < 256; i++) {
        int h = i / 128, j = i / 32 % 4, l = i % 32;
        int q = (b[32 + 32 * h + l] >> 2 * j & 3) - 4 * !(b[l] >> (4 * h + j) & 1);

        x->w[i] = (int16_t)(scale(b + 96, i / 16) * q);
    }
}
