/* IQ1_M: 56 bytes for 256 values, 16 sub-blocks of 16.
 * @0 qs[32], @32 qh[16], @48 u16 s[4]. Per eight values g: nibble g of qh is three bits above the
 * grid index and the shift's sign. Scale 2x + 1 of sub-block k: three bits at 3 * (k % 4) of
 * s[k / 4]; the top nibbles of s are the f16 d. w = scale * (8 * grid +- 1), D = d/8. */
#include "kernels/dot/dot.h"
#include "kernels/dot/tables.h"
#include "kernels/num.h"

void unit_iq1_m(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 56 * u;
    uint16_t bits = 0;

    for (int k = 0; k < 4; k++)
        bits |= (uint16_t)(load_u16(b + 48 + 2 * k) >> 12 << 4 * k);
    x->d = f16_to_f32(bits) * 0.125f;
    for (int i = 0; i < 256; i++) {
        int g = i / 8, k = i / 16, n = b[32 + g / 2] >> 4 * (g % 2) & 15;
        int scale = 2 * (load_u16(b + 48 + 2 * (k / 4)) >> 3 * (k % 4) & 7) + 1;
        int v = 8 * (int8_t)grid_byte(iq1s_grid[b[g] + 256 * (n & 7)], i % 8);

        x->w[i] = (int16_t)(scale * (v + (n & 8 ? -1 : 1)));
    }
}
