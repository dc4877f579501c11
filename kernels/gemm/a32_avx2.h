/* The integer part of a 32-value type with AVX2; see a32_form.h, and a256_avx2.h for pairs and
 * signs. */

enum {
    SIGNED = VALUES_SHIFT == 128,
    PANEL_SHIFT = SIGNED ? 0 : VALUES_SHIFT,
    FITTING = 32767 / (2 * 127 * MOST),
    CHAIN = SIGNED || FITTING < 2 ? 1
            : FITTING < 4         ? 2
            : FITTING < 8         ? 4
                                  : 8
};

INLINE void unit_sums(const uint8_t w[8][4 * ROWS], const struct tile *t, size_t at,
                      const int n_tok, vec *s)
{
    const vec ones = _mm256_set1_epi16(1);

#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i += CHAIN) {
        vec pairs[TILE];

#pragma GCC unroll 8
        for (size_t c = 0; c < CHAIN; c++) {
            vec v = v_load(w[i + c]), sign = v;

            if (SIGNED)
                v = _mm256_abs_epi8(v); /* -128: 128, unsigned */
#pragma GCC unroll 4
            for (int k = 0; k < n_tok; k++) {
                vec q = v_set32(load_u32(t->at[k] + at + 4 * (i + c)));

                if (SIGNED)
                    q = _mm256_sign_epi8(q, sign);
                q = _mm256_maddubs_epi16(v, q);
                pairs[k] = c ? v_now(_mm256_add_epi16(pairs[k], q)) : q;
            }
        }
#pragma GCC unroll 4
        for (int k = 0; k < n_tok; k++)
            s[k] = v_now(v_add32(s[k], _mm256_madd_epi16(pairs[k], ones)));
    }
}
