/* A panel of a 256-value type with AVX-512 VNNI, and one unit of it times a tile; see a256_form.h.
 */

/* one unit of sixteen rows */
struct panel {
    _Alignas(64) uint8_t w[64][64]; /* values 4k.. of each row, VALUES_SHIFT added */
    int32_t scale[SUBS][ROWS];
    int16_t mins[WITH_MINS ? SUBS / 2 : 0][2 * ROWS]; /* of two sub-blocks side by side */
    float d[ROWS], dmin[ROWS];
};
enum { PANEL_SHIFT = VALUES_SHIFT };

INLINE void panel_scale(struct panel *x, int b, vec scale)
{
    v_store(x->scale[b], scale);
}

/* sum16: sums of q of one unit */
INLINE void open_extra(const uint8_t *sum16, struct extra *e)
{
    __m256i s = _mm256_loadu_si256((const __m256i *)sum16);

    if (SUB_BLOCK == 32)
        s = _mm256_madd_epi16(s, _mm256_set1_epi16(1)); /* int32 */
    if (VALUES_SHIFT && SUB_BLOCK == 32)
        _mm256_storeu_si256((__m256i *)e->start,
                            _mm256_mullo_epi32(s, _mm256_set1_epi32(-VALUES_SHIFT)));
    if (VALUES_SHIFT && SUB_BLOCK == 16)
        _mm512_storeu_si512(e->start, _mm512_mullo_epi32(_mm512_cvtepi16_epi32(s),
                                                         _mm512_set1_epi32(-VALUES_SHIFT)));
    if (WITH_MINS && SUB_BLOCK == 32)
        _mm_storeu_si128((__m128i *)e->pair, _mm256_cvtepi32_epi16(s));
    if (WITH_MINS && SUB_BLOCK == 16)
        _mm256_storeu_si256((__m256i *)e->pair, s);
}

/* One unit times n_tok vectors. at: the unit's offset in a vector, d_at: its factor's. next: the
 * panel's next blocks, to be fetched, or NULL. */
INLINE void unit_tile(const struct panel *x, const struct tile *t, const struct extra *e, size_t at,
                      size_t d_at, const struct rows *next, const int n_tok, struct sums *sums)
{
    vec s[TILE];

    if (WITH_MINS) {
        for (int k = 0; k < n_tok; k++)
            s[k] = v_zero();
#pragma GCC unroll 8
        for (int j = 0; j < SUBS / 2; j++) {
            vec w = v_load(x->mins[j]);

#pragma GCC unroll 8
            for (int k = 0; k < n_tok; k++)
                s[k] = _mm512_dpwssd_epi32(s[k], w, _mm512_set1_epi32(e[k].pair[j]));
        }
#pragma GCC unroll 8
        for (int k = 0; k < n_tok; k++) {
            vecf g = f_mul(f_load(x->dmin), f_set(load_f32(t->at[k] + d_at)));
            f_store(sums->m[k], f_fma(g, f_from_int(s[k]), f_load(sums->m[k])));
        }
    }
    for (int k = 0; k < n_tok; k++)
        s[k] = v_zero();
#pragma GCC unroll 1
    for (int b = 0; b < SUBS; b++) {
        vec part[TILE];

        for (int k = 0; next && k < ROWS / SUBS; k++)
            row_fetch(next, (size_t)(b * (ROWS / SUBS) + k), BLOCK_BYTES);
        for (int k = 0; k < n_tok; k++)
            part[k] = VALUES_SHIFT ? _mm512_set1_epi32(e[k].start[b]) : v_zero();
#pragma GCC unroll 8
        for (int i = 0; i < SUB_BLOCK / 4; i++) {
            vec w = v_load(x->w[b * (SUB_BLOCK / 4) + i]);

#pragma GCC unroll 8
            for (int k = 0; k < n_tok; k++)
                part[k] = _mm512_dpbusd_epi32(
                    part[k], w, v_set32(load_u32(t->at[k] + at + (size_t)(SUB_BLOCK * b + 4 * i))));
        }
#pragma GCC unroll 8
        for (int k = 0; k < n_tok; k++)
            s[k] = v_add32(s[k], _mm512_mullo_epi32(part[k], v_load(x->scale[b])));
    }
#pragma GCC unroll 8
    for (int k = 0; k < n_tok; k++) {
        vecf f = f_mul(f_load(x->d), f_set(load_f32(t->at[k] + d_at)));
        f_store(sums->p[k], f_fma(f, f_from_int(s[k]), f_load(sums->p[k])));
    }
}
