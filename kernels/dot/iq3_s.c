/* IQ3_S: 110 bytes for 256 values, 8 sub-blocks of 32.
 * @0 f16 d, @2 qs[64], @66 qh[8], @74 signs[32], @106 scales[4].
 * Per four values t: grid index qs[t] and bit t of qh above it; one sign bit a value; scale 2x + 1
 * from the sub-block's nibble. D = d. */
#include "kernels/dot/dot.h"
#include "kernels/dot/tables.h"
#include "kernels/num.h"

void unit_iq3_s(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 110 * u;

    x->d = f16_to_f32(load_u16(b));
    for (int i = 0; i < 256; i++) {
        int t = i / 4, index = b[2 + t] + 256 * (b[66 + t / 8] >> t % 8 & 1);
        int scale = 2 * (b[106 + i / 64] >> 4 * (i / 32 % 2) & 15) + 1;
        int v = scale * grid_byte(iq3s_grid[index], i % 4);

        x->w[i] = (int16_t)(b[74 + i / 8] >> i % 8 & 1 ? -v : v);
    }
}
