/* Many vectors times sixteen rows of a 32-value type (ARITHMETIC.md rules 10 and 12), included
 * after <type>_avx2.h; the panel is that of a256_panel_avx512.h, four units at a time, one for each
 * lane. Values are unsigned, VALUES_SHIFT added. */
#include "kernels/dot/avx512.h"

enum { PANEL_TOKENS = 8 };

struct panel {
    _Alignas(64) uint8_t w[32][64]; /* values 4k.. of sixteen rows */
    float d[4][16], m[4][16];       /* factors of four units */
};

/* units (1..4) units of sixteen rows */
INLINE void open_panel(const uint8_t *w, size_t row_bytes, size_t units, struct panel *x)
{
    __m512i v[2][16];
    const uint8_t *b[4][16];

    for (size_t r = 0; r < 16; r++) {
        __m256i unit[4];

        for (size_t k = 0; k < 4; k++) { /* missing units: the last one again, not used */
            __m256i sign;

            b[k][r] = w + r * row_bytes + (k < units ? k : units - 1) * BLOCK_BYTES;
            unit[k] = bytes(b[k][r], &sign);
            if (WITH_SIGN)
                unit[k] = _mm256_xor_si256(_mm256_sign_epi8(unit[k], sign), _mm256_set1_epi8(-128));
        }
        v[0][r] = join256(unit[0], unit[1]);
        v[1][r] = join256(unit[2], unit[3]);
    }
    transpose16(v[0], x->w[0]);
    transpose16(v[1], x->w[16]);
    for (size_t k = 0; k < units; k++) {
        __m128 d[4], m[4];

        for (size_t g = 0; g < 4; g++) {
            d[g] = factors(b[k] + 4 * g);
            m[g] = WITH_MINS ? min_factors(b[k] + 4 * g) : d[g];
        }
        _mm512_store_ps(x->d[k], join_parts(d));
        _mm512_store_ps(x->m[k], join_parts(m));
    }
}

/* Unit u, the panel's kth: sixteen rows times n_tok vectors. p, m: lane k of sixteen rows, 64
 * floats a vector. */
INLINE void panel_unit(const struct panel *x, const struct act *act, size_t u, size_t k,
                       const int n_tok, float *p, float *m)
{
    __m512i s[PANEL_TOKENS];

    for (int i = 0; i < n_tok; i++) {
        int32_t sum = ((const int32_t *)act[i].sum)[u];
        s[i] = _mm512_set1_epi32(-VALUES_SHIFT * sum);
    }
#pragma GCC unroll 8
    for (size_t j = 0; j < 8; j++) {
        __m512i w = load512(x->w[8 * k + j]);

#pragma GCC unroll 8
        for (int i = 0; i < n_tok; i++)
            s[i] = _mm512_dpbusd_epi32(s[i], w,
                                       _mm512_set1_epi32((int)load_u32(act[i].q + 32 * u + 4 * j)));
    }
    for (int i = 0; i < n_tok; i++) {
        __m512 da = _mm512_set1_ps(act[i].d[u]);

        _mm512_store_ps(p + 64 * i,
                        _mm512_fmadd_ps(_mm512_mul_ps(_mm512_load_ps(x->d[k]), da),
                                        _mm512_cvtepi32_ps(s[i]), _mm512_load_ps(p + 64 * i)));
        if (WITH_MINS) {
            __m512 t = _mm512_set1_ps((float)((const int32_t *)act[i].sum)[u]);
            _mm512_store_ps(m + 64 * i, _mm512_fmadd_ps(_mm512_mul_ps(_mm512_load_ps(x->m[k]), da),
                                                        t, _mm512_load_ps(m + 64 * i)));
        }
    }
}

/* (l0 + l2) + (l1 + l3) of sixteen rows */
INLINE __m512 fold_rows(const float l[4][16])
{
    return _mm512_add_ps(_mm512_add_ps(_mm512_load_ps(l[0]), _mm512_load_ps(l[2])),
                         _mm512_add_ps(_mm512_load_ps(l[1]), _mm512_load_ps(l[3])));
}

/* rows r.. r + 15 times vectors i0.. i1, at most TOKENS_CACHED */
static void panel_rows(const struct dot_job *job, size_t r, size_t i0, size_t i1)
{
    _Alignas(64) float p[TOKENS_CACHED][4][16], m[TOKENS_CACHED][4][16];
    struct act act[TOKENS_CACHED];
    struct panel x;
    size_t n = i1 - i0, padded = (n + 3) & ~(size_t)3, n_units = job->n_cols / 32;

    for (size_t k = 0; k < padded; k++) /* missing vectors: the last one again */
        act[k] = act_parts(ACT_A32, job_act(job, i0 + (k < n ? k : n - 1)), job->n_cols);
    memset(p, 0, padded * sizeof *p);
    memset(m, 0, padded * sizeof *m);
    for (size_t u = 0; u < n_units; u += 4) {
        size_t units = n_units - u < 4 ? n_units - u : 4, i = 0;

        open_panel(job->w + r * job->row_bytes + u * BLOCK_BYTES, job->row_bytes, units, &x);
        for (; i + 8 <= padded; i += 8)
            for (size_t k = 0; k < units; k++)
                panel_unit(&x, act + i, u + k, k, 8, p[i][k], m[i][k]);
        if (i < padded)
            for (size_t k = 0; k < units; k++)
                panel_unit(&x, act + i, u + k, k, 4, p[i][k], m[i][k]);
    }
    for (size_t k = 0; k < n; k++) {
        __m512 y = fold_rows(p[k]);

        if (WITH_MINS)
            y = _mm512_add_ps(y, fold_rows(m[k]));
        _mm512_storeu_ps(job->y + (i0 + k) * job->ldy + r, finish16(y));
    }
}
