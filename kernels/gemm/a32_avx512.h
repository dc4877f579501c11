/* The integer part of a 32-value type with AVX-512 VNNI; see a32_form.h. */

enum { PANEL_SHIFT = VALUES_SHIFT };

/* s += the products of one unit and n_tok vectors */
INLINE void unit_sums(const uint8_t w[8][4 * ROWS], const struct tile *t, size_t at,
                      const int n_tok, vec *s)
{
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) {
        vec v = v_load(w[i]);

#pragma GCC unroll 8
        for (int k = 0; k < n_tok; k++)
            s[k] = _mm512_dpbusd_epi32(s[k], v, v_set32(load_u32(t->at[k] + at + 4 * i)));
    }
}
