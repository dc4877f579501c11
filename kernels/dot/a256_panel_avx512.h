/* Many vectors times sixteen rows of a 256-value type (ARITHMETIC.md rules 10 and 11), included
 * after <type>_avx2.h. A unit of sixteen rows is opened once into a panel in the first cache level,
 * with four values of every row side by side, so that a row is one element of every register: no
 * sum goes across a register, and one instruction does one step of sixteen chains. The integers and
 * the float steps are those of one row and one vector. */
#include "kernels/dot/avx512.h"

/* vectors that are multiplied together */
enum { PANEL_TOKENS = 8 };
/* Rows of a panel: as many as a register has int32. From so many vectors on a panel pays. */
enum { PANEL_ROWS = 16, PANEL_MIN_TOKENS = 12 };

struct panel {
    _Alignas(64) uint8_t w[64][64]; /* values 4k.. of sixteen rows */
    int32_t scale[16][16];          /* head.scales of sixteen rows */
    int16_t shift[8][32];           /* head.shift in pairs; signed values are shifted by 128 */
    int16_t mins[8][32];            /* head.mins in pairs */
    float d[16], dmin[16];
};

INLINE void open_panel(const uint8_t *w, size_t row_bytes, struct panel *x)
{
    __m512i v[4][16], scales[16], pairs[16];
    uint8_t both[16][64];
    __m128 d[4], dmin[4];

#pragma GCC unroll 1
    for (size_t r = 0; r < 16; r++) {
        const uint8_t *b = w + r * row_bytes;
        struct head h;

        head(b, &h);
        scales[r] = _mm512_cvtepi16_epi32(h.scales);
        if (WITH_SIGN)
            h.shift = shift_signed(h.scales);
        if (WITH_SHIFT || WITH_SIGN || WITH_MINS)
            pairs[r] =
                join256(WITH_SHIFT || WITH_SIGN ? h.shift : h.mins, WITH_MINS ? h.mins : h.shift);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            __m256i sign[2], half[2];

            for (int k = 0; k < 2; k++) {
                half[k] = bytes(b, &h, 2 * j + k, &sign[k]);
                if (WITH_SIGN)
                    half[k] = _mm256_xor_si256(_mm256_sign_epi8(half[k], sign[k]),
                                               _mm256_set1_epi8(-128));
            }
            v[j][r] = join256(half[0], half[1]);
        }
    }
    for (int j = 0; j < 4; j++)
        transpose16(v[j], x->w[16 * j]);
    transpose16(scales, (uint8_t *)x->scale);
    if (WITH_SHIFT || WITH_SIGN || WITH_MINS) {
        transpose16(pairs, both[0]);
        memcpy(x->shift, both, sizeof x->shift);
        memcpy(x->mins, both[8], sizeof x->mins);
    }
    for (size_t k = 0; k < 4; k++) {
        const uint8_t *b[4];

        for (size_t r = 0; r < 4; r++)
            b[r] = w + (4 * k + r) * row_bytes;
        d[k] = factors(b);
        dmin[k] = WITH_MINS ? min_factors(b) : d[k];
    }
    _mm512_store_ps(x->d, join_parts(d));
    _mm512_store_ps(x->dmin, join_parts(dmin));
}

/* per row and vector: the products of pairs with the vector's sums of 16 */
INLINE void pair_products(const int16_t pairs[8][32], const struct act *act, size_t u,
                          const int n_tok, __m512i *s)
{
    for (int k = 0; k < n_tok; k++)
        s[k] = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        __m512i w = load512(pairs[j]);

#pragma GCC unroll 8
        for (int k = 0; k < n_tok; k++) {
            const int16_t *sum16 = (const int16_t *)act[k].sum + 16 * u + 2 * j;
            s[k] = _mm512_dpwssd_epi32(s[k], w, _mm512_set1_epi32((int)load_u32(sum16)));
        }
    }
}

/* one unit: sixteen rows times n_tok vectors. p, m: their chains, sixteen floats a vector */
INLINE void panel_unit(const struct panel *x, const struct act *act, size_t u, const int n_tok,
                       float *p, float *m)
{
    const __m512 d = _mm512_load_ps(x->d), dmin = _mm512_load_ps(x->dmin);
    __m512i s[PANEL_TOKENS];

    if (WITH_MINS) {
        pair_products(x->mins, act, u, n_tok, s);
        for (int k = 0; k < n_tok; k++) {
            __m512 g = _mm512_mul_ps(dmin, _mm512_set1_ps(act[k].d[u]));
            _mm512_storeu_ps(m + 16 * k, _mm512_fmadd_ps(g, _mm512_cvtepi32_ps(s[k]),
                                                         _mm512_loadu_ps(m + 16 * k)));
        }
    }
    if (WITH_SHIFT || WITH_SIGN)
        pair_products(x->shift, act, u, n_tok, s);
    else
        for (int k = 0; k < n_tok; k++)
            s[k] = _mm512_setzero_si512();
#pragma GCC unroll 1
    for (int b = 0; b < 256 / SUB_BLOCK; b++) {
        /* sub-blocks of 16: the even ones are first in head.scales */
        __m512i scale = load512(x->scale[SUB_BLOCK == 32 ? b : b / 2 + b % 2 * 8]);
        __m512i part[PANEL_TOKENS];

        for (int k = 0; k < n_tok; k++)
            part[k] = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int i = 0; i < SUB_BLOCK / 4; i++) {
            __m512i w = load512(x->w[b * (SUB_BLOCK / 4) + i]);

#pragma GCC unroll 8
            for (int k = 0; k < n_tok; k++) {
                uint32_t q = load_u32(act[k].q + 256 * u + (size_t)(SUB_BLOCK * b + 4 * i));
                part[k] = _mm512_dpbusd_epi32(part[k], w, _mm512_set1_epi32((int)q));
            }
        }
        for (int k = 0; k < n_tok; k++)
            s[k] = _mm512_add_epi32(s[k], _mm512_mullo_epi32(part[k], scale));
    }
    for (int k = 0; k < n_tok; k++) {
        __m512 f = _mm512_mul_ps(d, _mm512_set1_ps(act[k].d[u]));
        _mm512_storeu_ps(p + 16 * k,
                         _mm512_fmadd_ps(f, _mm512_cvtepi32_ps(s[k]), _mm512_loadu_ps(p + 16 * k)));
    }
}

/* rows r.. r + 15 times vectors i0.. i1, at most TOKENS_CACHED */
static void panel_rows(const struct dot_job *job, size_t r, size_t i0, size_t i1)
{
    _Alignas(64) float p[TOKENS_CACHED][16], m[TOKENS_CACHED][16];
    struct act act[TOKENS_CACHED];
    struct panel x;
    size_t n = i1 - i0, padded = (n + 3) & ~(size_t)3;

    for (size_t k = 0; k < padded; k++) { /* missing vectors: the last one again */
        act[k] = act_parts(ACT_A256, job_act(job, i0 + (k < n ? k : n - 1)), job->n_cols);
        _mm512_store_ps(p[k], _mm512_setzero_ps());
        _mm512_store_ps(m[k], _mm512_setzero_ps());
    }
    for (size_t u = 0; u < job->n_cols / 256; u++) {
        size_t k = 0;

        open_panel(job->w + r * job->row_bytes + u * BLOCK_BYTES, job->row_bytes, &x);
        for (; k + 8 <= padded; k += 8)
            panel_unit(&x, act + k, u, 8, p[k], m[k]);
        if (k < padded)
            panel_unit(&x, act + k, u, 4, p[k], m[k]);
    }
    for (size_t k = 0; k < n; k++) {
        __m512 y = _mm512_load_ps(p[k]);

        if (WITH_MINS)
            y = _mm512_sub_ps(y, _mm512_load_ps(m[k]));
        _mm512_storeu_ps(job->y + (i0 + k) * job->ldy + r, finish16(y));
    }
}

static void job_panel(const struct dot_job *job)
{
    for (size_t i0 = 0; i0 < job->n_tok; i0 += TOKENS_CACHED) {
        size_t i1 = i0 + TOKENS_CACHED < job->n_tok ? i0 + TOKENS_CACHED : job->n_tok, r = 0;

        if (i1 - i0 >= PANEL_MIN_TOKENS)
            for (; r + PANEL_ROWS <= job->n_rows; r += PANEL_ROWS)
                panel_rows(job, r, i0, i1);
        some_rows(job, r, i0, i1);
    }
}
