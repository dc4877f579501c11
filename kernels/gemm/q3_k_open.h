/* How a panel of Q3_K opens; the block is described in kernels/dot/q3_k.c. */
enum { BLOCK_BYTES = 110, SUB_BLOCK = 16, WITH_MINS = 0, VALUES_SHIFT = 4, MOST = 7 };

#include "kernels/gemm/a256_form.h"
#include "kernels/gemm/a256_scales.h"

static void open_unit(const struct rows *b, struct panel *x)
{
    vec s[4], high[16], c[16];

    turn16(b, 94, s); /* the last sixteen bytes */
    f_store(x->d, f_from_f16(v_right(s[3], 16)));
    turn16(b, 92, s); /* in s[1..3]: eight bytes of low nibbles, four of high pairs */
    for (int i = 0; i < 4; i++) {
        vec pairs = i < 2 ? bits_left(s[3], 4 - 2 * i, 0x30) : bits_right(s[3], 2 * i - 4, 0x30);
        vec scale = v_or(bits_right(s[1 + i % 2], 4 * (i / 2), 15), pairs);

        panel_scales(x, 4 * i, v_sub8(scale, v_set8(32)));
    }
    turn64(b, 0, high); /* the first eight columns are meant */
    turn64(b, 32, c);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 4; j++) {
            int bit = i / 8 * 4 + j; /* goes to bit 2 */
            vec third =
                bit < 2 ? bits_left(high[i % 8], 2 - bit, 4) : bits_right(high[i % 8], bit - 2, 4);

            v_store(x->w[i / 8 * 32 + 8 * j + i % 8], v_or(bits_right(c[i], 2 * j, 3), third));
        }
}
