/* IQ4_NL: 18 bytes for 32 values. @0 f16 d, @2 qs[16], nibbles as Q4_0; w from a table of 16. */
#include "kernels/dot/dot.h"
#include "kernels/dot/tables.h"
#include "kernels/num.h"

void unit_iq4_nl(const uint8_t *row, size_t u, struct unit *x)
{
    const uint8_t *b = row + 18 * u;

    x->d = f16_to_f32(load_u16(b));
    for (int j = 0; j < 16; j++) {
        x->w[j] = iq4_values[b[2 + j] & 15];
        x->w[j + 16] = iq4_values[b[2 + j] >> 4];
    }
}
