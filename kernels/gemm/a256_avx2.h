/* A panel of a 256-value type with AVX2, and one unit of it times a tile; see a256_form.h. Bytes
 * are multiplied in pairs to int16, and pairs are added up there as long as they stay below 2^15.
 * Values that would not even as one pair (VALUES_SHIFT 128) are kept signed: then the magnitude is
 * multiplied, and the vector's byte takes the sign. */

enum {
    SIGNED = VALUES_SHIFT == 128,
    PANEL_SHIFT = SIGNED ? 0 : VALUES_SHIFT,
    /* columns of four values whose pair sums fit together into int16 */
    FITTING = 32767 / (2 * 127 * MOST),
    CHAIN = SIGNED || FITTING < 2            ? 1
            : FITTING < 4                    ? 2
            : FITTING < 8 || SUB_BLOCK == 16 ? 4
                                             : 8
};

/* one unit of eight rows */
struct panel {
    _Alignas(64) uint8_t w[64][32]; /* values 4k.. of each row, PANEL_SHIFT added */
    int32_t scale[SUBS][ROWS];      /* two int16, both the scale */
    int16_t shift[PANEL_SHIFT ? SUBS / 2 : 0]
                 [2 * ROWS]; /* -PANEL_SHIFT * scale, of two sub-blocks */
    int16_t mins[WITH_MINS ? SUBS / 2 : 0][2 * ROWS];
    float d[ROWS], dmin[ROWS];
};

INLINE void panel_scale(struct panel *x, int b, vec scale)
{
    const vec low = v_set32(0xFFFF);

    v_store(x->scale[b], v_or(v_and(scale, low), v_left(scale, 16)));
    if (PANEL_SHIFT) { /* sub-blocks come in order */
        vec shift = _mm256_mullo_epi32(scale, _mm256_set1_epi32(-PANEL_SHIFT));

        if (b % 2 == 0)
            v_store(x->shift[b / 2], v_and(shift, low));
        else
            v_store(x->shift[b / 2], v_or(v_load(x->shift[b / 2]), v_left(shift, 16)));
    }
}

INLINE void open_extra(const uint8_t *sum16, struct extra *e)
{
    __m256i s = _mm256_loadu_si256((const __m256i *)sum16);

    if (SUB_BLOCK == 32) {
        s = _mm256_madd_epi16(s, _mm256_set1_epi16(1));
        _mm_storeu_si128((__m128i *)e->pair, _mm_packs_epi32(_mm256_castsi256_si128(s),
                                                             _mm256_extracti128_si256(s, 1)));
    } else {
        _mm256_storeu_si256((__m256i *)e->pair, s);
    }
}

/* s += pairs times the vectors' sums of sub-blocks */
INLINE void pair_products(const int16_t pairs[][2 * ROWS], const struct extra *e, const int n_tok,
                          vec *s)
{
    for (int j = 0; j < SUBS / 2; j++) {
        vec w = v_load(pairs[j]);

        for (int k = 0; k < n_tok; k++)
            s[k] = v_add32(s[k], _mm256_madd_epi16(w, _mm256_set1_epi32(e[k].pair[j])));
    }
}

INLINE void unit_tile(const struct panel *x, const struct tile *t, const struct extra *e, size_t at,
                      size_t d_at, const struct rows *next, const int n_tok, struct sums *sums)
{
    vec s[TILE];

    for (int k = 0; k < n_tok; k++)
        s[k] = v_zero();
    if (WITH_MINS) {
        pair_products(x->mins, e, n_tok, s);
        for (int k = 0; k < n_tok; k++) {
            vecf g = f_mul(f_load(x->dmin), f_set(load_f32(t->at[k] + d_at)));
            f_store(sums->m[k], f_fma(g, f_from_int(s[k]), f_load(sums->m[k])));
            s[k] = v_zero();
        }
    }
    if (PANEL_SHIFT)
        pair_products(x->shift, e, n_tok, s);
#pragma GCC unroll 1
    for (int b = 0; b < SUBS; b++) {
        vec scale = v_load(x->scale[b]);

        if (next && b % (SUBS / ROWS) == 0)
            row_fetch(next, (size_t)(b / (SUBS / ROWS)), BLOCK_BYTES);
#pragma GCC unroll 8
        for (int i = 0; i < SUB_BLOCK / 4; i += CHAIN) {
            vec pairs[TILE];

#pragma GCC unroll 8
            for (int c = 0; c < CHAIN; c++) {
                vec w = v_load(x->w[b * (SUB_BLOCK / 4) + i + c]);
                vec sign = w;

                if (SIGNED)
                    w = _mm256_abs_epi8(w);
#pragma GCC unroll 4
                for (int k = 0; k < n_tok; k++) {
                    vec q =
                        v_set32(load_u32(t->at[k] + at + (size_t)(SUB_BLOCK * b + 4 * (i + c))));

                    if (SIGNED)
                        q = _mm256_sign_epi8(q, sign);
                    q = _mm256_maddubs_epi16(w, q);
                    pairs[k] = c ? v_now(_mm256_add_epi16(pairs[k], q)) : q;
                }
            }
#pragma GCC unroll 4
            for (int k = 0; k < n_tok; k++)
                s[k] = v_now(v_add32(s[k], _mm256_madd_epi16(pairs[k], scale)));
        }
    }
#pragma GCC unroll 4
    for (int k = 0; k < n_tok; k++) {
        vecf f = f_mul(f_load(x->d), f_set(load_f32(t->at[k] + d_at)));
        f_store(sums->p[k], f_fma(f, f_from_int(s[k]), f_load(sums->p[k])));
    }
}
