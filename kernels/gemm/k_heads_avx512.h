/* The first sixteen bytes of a Q4_K or Q5_K block: d, dmin, and twelve bytes that hold eight six-bit
 * scales and minima (kernels/dot/k_scales.h). */

INLINE void k_heads(const struct rows *b, struct panel *x)
{
    __m512i h[4];

    turn16(b, 0, h);
    _mm512_store_ps(x->d, low_f16(h[0]));
    _mm512_store_ps(x->dmin, high_f16(h[0]));
    panel_scales(x, 0, bits_right(h[1], 0, 63));
    panel_scales(x, 4, or512(bits_right(h[3], 0, 15), bits_right(h[1], 2, 0x30)));
    panel_mins(x, 0, bits_right(h[2], 0, 63));
    panel_mins(x, 4, or512(bits_right(h[3], 4, 15), bits_right(h[2], 2, 0x30)));
}
