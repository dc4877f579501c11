/* NVFP4: 36 bytes for 64 values, four units of 16 with a scale byte each.
 * @0 d[4] (UE4M3; D is half its value), @4 qs[32]: unit s has 8 bytes, low nibbles are its values
 * 0..7, high ones 8..15; w is twice the four-bit float. */
#include "kernels/dot/dot.h"
#include "kernels/dot/tables.h"
#include "kernels/num.h"

void unit_nvfp4(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 36 * (u / 4), *qs = b + 4 + 8 * (u % 4);

    x->d = f32_from_bits(ue4m3_half_bits[b[u % 4]]);
    for (int j = 0; j < 8; j++) {
        x->w[j] = e2m1_values[qs[j] & 15];
        x->w[j + 8] = e2m1_values[qs[j] >> 4];
    }
}
