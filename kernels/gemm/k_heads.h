/* The first sixteen bytes of a Q4_K or Q5_K block: d, dmin, and twelve bytes that hold eight
 * six-bit scales and minima (kernels/dot/k_scales.h). Included after a256_form.h. */
#include "kernels/gemm/a256_scales.h"

INLINE void k_heads(const struct rows *b, struct panel *x)
{
    vec h[4];

    turn16(b, 0, h);
    f_store(x->d, f_from_f16(h[0]));
    f_store(x->dmin, f_from_f16(v_right(h[0], 16)));
    panel_scales(x, 0, bits_right(h[1], 0, 63));
    panel_scales(x, 4, v_or(bits_right(h[3], 0, 15), bits_right(h[1], 2, 0x30)));
    panel_mins(x, 0, bits_right(h[2], 0, 63));
    panel_mins(x, 4, v_or(bits_right(h[3], 4, 15), bits_right(h[2], 2, 0x30)));
}
