/* The blocked product of a 32-value type with AVX-512 VNNI (ARITHMETIC.md rules 10 and 12), included
 * by a type's file after
 *
 *   enum { BLOCK_BYTES, WITH_MINS, VALUES_SHIFT };   VALUES_SHIFT: makes values unsigned
 *
 * and before its open_units. gemm.h says how the work is cut. */
#include "kernels/gemm/panel_avx512.h"

/* units that are opened together, a multiple of the four lanes and of two */
enum { UNITS = 16, PANELS = 2 };

/* UNITS units of sixteen rows; row r is element r of every register */
struct panel {
    _Alignas(64) uint8_t w[UNITS][8][64]; /* values 4k.. of each row, VALUES_SHIFT added */
    float d[UNITS][16], m[WITH_MINS ? UNITS : 0][16];
};

/* n blocks of each row from b on to a panel */
static void open_units(const struct rows *b, size_t n, struct panel *x);

/* what the units of a vector add besides their bytes, made once for all panels */
struct extra {
    int32_t start[UNITS]; /* 1.5 * 2^23 as a float's bits, minus VALUES_SHIFT * sum of q (rule 16) */
    float sum[WITH_MINS ? UNITS : 0];
};

/* the float sums of a panel and a tile, in the order of use */
struct sums {
    _Alignas(64) float p[4][TILE][16], m[WITH_MINS ? 4 : 0][TILE][16];
};

/* sum: of UNITS units; those that the vector lacks are its padding and are not used */
INLINE void open_extra(const uint8_t *sum, struct extra *e)
{
    __m512i s = load512(sum);

    _mm512_storeu_si512(e->start,
                        _mm512_sub_epi32(_mm512_set1_epi32(0x4B400000),
                                         _mm512_mullo_epi32(s, _mm512_set1_epi32(VALUES_SHIFT))));
    if (WITH_MINS)
        _mm512_storeu_ps(e->sum, _mm512_cvtepi32_ps(s));
}

/* n_units units of sixteen rows times n_tok vectors. at: the first unit's offset in a vector, d_at:
 * that of its factor. */
INLINE void units_tile(const struct panel *x, const struct tile *t, const struct extra *e, size_t at,
                       size_t d_at, size_t n_units, const int n_tok, struct sums *sums)
{
#pragma GCC unroll 1
    for (size_t lane = 0; lane < 4 && lane < n_units; lane++) {
        __m512 p[TILE], m[TILE];

#pragma GCC unroll 8
        for (int k = 0; k < n_tok; k++) {
            p[k] = _mm512_load_ps(sums->p[lane][k]);
            if (WITH_MINS)
                m[k] = _mm512_load_ps(sums->m[lane][k]);
        }
#pragma GCC unroll 1
        for (size_t u = lane; u < n_units; u += 4) {
            __m512i s[TILE];

#pragma GCC unroll 8
            for (int k = 0; k < n_tok; k++)
                s[k] = _mm512_set1_epi32(e[k].start[u]);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                __m512i w = _mm512_load_si512(x->w[u][i]);

#pragma GCC unroll 8
                for (int k = 0; k < n_tok; k++)
                    s[k] = _mm512_dpbusd_epi32(
                        s[k], w, bytes4(t->at[k] + at + 32 * u + (size_t)(4 * i)));
            }
#pragma GCC unroll 8
            for (int k = 0; k < n_tok; k++) {
                __m512 d = float1(t->at[k] + d_at + 4 * u);
                __m512 v = _mm512_sub_ps(_mm512_castsi512_ps(s[k]), _mm512_set1_ps(0x1.8p23f));

                p[k] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_load_ps(x->d[u]), d), v, p[k]);
                if (WITH_MINS)
                    m[k] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_load_ps(x->m[u]), d),
                                           _mm512_set1_ps(e[k].sum[u]), m[k]);
            }
        }
#pragma GCC unroll 8
        for (int k = 0; k < n_tok; k++) {
            _mm512_store_ps(sums->p[lane][k], p[k]);
            if (WITH_MINS)
                _mm512_store_ps(sums->m[lane][k], m[k]);
        }
    }
}

/* functions of their own: the registers of a tile are all that the compiler has to think of */
static __attribute__((noinline)) void units_tile8(const struct panel *x, const struct tile *t,
                                                  const struct extra *e, size_t at, size_t d_at,
                                                  size_t n_units, struct sums *sums)
{
    units_tile(x, t, e, at, d_at, n_units, 8, sums);
}
static __attribute__((noinline)) void units_tile4(const struct panel *x, const struct tile *t,
                                                  const struct extra *e, size_t at, size_t d_at,
                                                  size_t n_units, struct sums *sums)
{
    units_tile(x, t, e, at, d_at, n_units, 4, sums);
}

/* The bytes and sums of the units at u, towards the first cache level, in n_groups portions; this is
 * portion g. */
INLINE void fetch_tile(const struct tile *t, size_t u, size_t n_units, size_t d_at, size_t sum_at,
                       size_t g, size_t n_groups)
{
    for (size_t o = 64 * g; o < 32 * n_units; o += 64 * n_groups)
        for (size_t k = 0; k < TILE; k++)
            _mm_prefetch((const char *)t->at[k] + 32 * u + o, _MM_HINT_T0);
    for (size_t k = 0; k < TILE; k++) {
        if (g == 0)
            _mm_prefetch((const char *)t->at[k] + sum_at + 4 * u, _MM_HINT_T0);
        if (g == n_groups - 1)
            _mm_prefetch((const char *)t->at[k] + d_at + 4 * u, _MM_HINT_T0);
    }
}

/* (l0 + l2) + (l1 + l3) of vector k */
INLINE __m512 fold_rows(const float l[4][TILE][16], size_t k)
{
    return _mm512_add_ps(_mm512_add_ps(_mm512_load_ps(l[0][k]), _mm512_load_ps(l[2][k])),
                         _mm512_add_ps(_mm512_load_ps(l[1][k]), _mm512_load_ps(l[3][k])));
}

/* n_groups panels of rows from r on, vectors i0.. i1 */
static void block(const struct dot_job *job, size_t r, size_t n_groups, size_t i0, size_t i1,
                  struct sums (*sums)[PANELS])
{
    const size_t n_units = job->n_cols / 32;
    const size_t d_at = act_d_at(job->n_cols), sum_at = act_sum_at(ACT_A32, job->n_cols);
    struct panel x[PANELS];
    struct rows rows[PANELS];

    for (size_t g = 0; g < n_groups; g++)
        rows[g] = rows_open(job, r + 16 * g);
    memset(sums, 0, (i1 - i0 + TILE - 1) / TILE * sizeof *sums);
    for (size_t u = 0; u < n_units; u += UNITS) {
        size_t n = n_units - u < UNITS ? n_units - u : UNITS;
        struct tile t, next = tile_open(job, i0, i1 - i0);

        for (size_t g = 0; g < n_groups; g++) {
            open_units(&rows[g], n, &x[g]);
            rows[g] = rows_plus(&rows[g], n * BLOCK_BYTES);
            if (u + 2 * UNITS <= n_units)
                rows_fetch(&rows[g], 0, UNITS * BLOCK_BYTES);
        }
        for (size_t i = i0; i < i1; i += TILE) {
            struct extra e[TILE];

            t = next;
            for (int k = 0; k < TILE; k++)
                open_extra(t.at[k] + sum_at + 4 * u, &e[k]);
            if (i + TILE < i1)
                next = tile_open(job, i + TILE, i1 - i - TILE);
            for (size_t g = 0; g < n_groups; g++) {
                fetch_tile(&next, u, n, d_at, sum_at, g, n_groups);
                (i1 - i > 4 ? units_tile8 : units_tile4)(&x[g], &t, e, 32 * u, d_at + 4 * u, n,
                                                         &sums[(i - i0) / TILE][g]);
            }
        }
    }
    for (size_t i = 0; i < i1 - i0; i++)
        for (size_t g = 0; g < n_groups; g++) {
            size_t first = r + 16 * g;
            const struct sums *sum = &sums[i / TILE][g];
            __m512 y = fold_rows(sum->p, i % TILE);

            if (WITH_MINS)
                y = _mm512_add_ps(y, fold_rows(sum->m, i % TILE));
            finish_rows(job->y + (i0 + i) * job->ldy + first, y, job->n_rows - first);
        }
}

static void gemm_a32(const struct dot_job *job)
{
    struct sums sums[BLOCK_TOKENS / TILE][PANELS];

    for (size_t i0 = 0; i0 < job->n_tok; i0 += BLOCK_TOKENS) {
        size_t i1 = i0 + BLOCK_TOKENS < job->n_tok ? i0 + BLOCK_TOKENS : job->n_tok;

        for (size_t r = 0; r < job->n_rows; r += 16 * PANELS) {
            size_t panels = (job->n_rows - r + 15) / 16;

            block(job, r, panels < PANELS ? panels : PANELS, i0, i1, sums);
        }
    }
}
