/* The blocked product of a 32-value type (ARITHMETIC.md rules 10 and 12), included by X_open.h
 * after
 *
 *   enum { BLOCK_BYTES, WITH_MINS, VALUES_SHIFT, MOST };
 *
 * VALUES_SHIFT makes the type's values unsigned, 0..MOST then. gemm.h says how the work is cut. */
#include "kernels/gemm/cut.h"

/* units that are opened together, a multiple of the four lanes */
enum { UNITS = 16, PANELS = 2 };

struct panel;
/* n blocks of each row from b on to a panel */
static void open_units(const struct rows *b, size_t n, struct panel *x);

/* what the units of a vector add besides their bytes, made once for all panels */
struct extra {
    int32_t start[UNITS]; /* 1.5 * 2^23 as a float's bits, minus PANEL_SHIFT * sum of q (rule 16) */
    float sum[WITH_MINS ? UNITS : 0];
};

/* the float sums of a panel and a tile, in the order of use */
struct sums {
    _Alignas(64) float p[4][TILE][ROWS], m[WITH_MINS ? 4 : 0][TILE][ROWS];
};

#ifdef VEC_AVX512
#include "kernels/gemm/a32_avx512.h"
#else
#include "kernels/gemm/a32_avx2.h"
#endif

/* UNITS units of a panel's rows */
struct panel {
    _Alignas(64) uint8_t w[UNITS][8][4 * ROWS]; /* values 4k.. of each row, PANEL_SHIFT added */
    float d[UNITS][ROWS], m[WITH_MINS ? UNITS : 0][ROWS];
};

/* sum: of UNITS units; those that the vector lacks are its padding and are not used */
INLINE void open_extra(const uint8_t *sum, struct extra *e)
{
    int32_t s[UNITS];

    memcpy(s, sum, sizeof s);
    for (int u = 0; u < UNITS; u++)
        e->start[u] = (int32_t)(0x4B400000u - (uint32_t)PANEL_SHIFT * (uint32_t)s[u]);
    for (int u = 0; WITH_MINS && u < UNITS; u++)
        e->sum[u] = (float)s[u];
}

/* n_units units times n_tok vectors. at: the first unit's offset in a vector, d_at: that of its
 * factor. next: the panel's next blocks, to be fetched, or NULL. */
INLINE void units_tile(const struct panel *x, const struct tile *t, const struct extra *e,
                       size_t at, size_t d_at, size_t n_units, const struct rows *next,
                       const int n_tok, struct sums *sums)
{
#pragma GCC unroll 1
    for (size_t lane = 0; lane < 4 && lane < n_units; lane++) {
        vecf p[TILE], m[TILE];

#pragma GCC unroll 8
        for (int k = 0; k < n_tok; k++) {
            p[k] = f_load(sums->p[lane][k]);
            if (WITH_MINS)
                m[k] = f_load(sums->m[lane][k]);
        }
#pragma GCC unroll 1
        for (size_t u = lane; u < n_units; u += 4) {
            vec s[TILE];

            if (next && u < ROWS)
                row_fetch(next, u, UNITS * BLOCK_BYTES);
#pragma GCC unroll 8
            for (int k = 0; k < n_tok; k++)
                s[k] = v_set32((uint32_t)e[k].start[u]);
            unit_sums(x->w[u], t, at + 32 * u, n_tok, s);
#pragma GCC unroll 8
            for (int k = 0; k < n_tok; k++) {
                vecf d = f_set(load_f32(t->at[k] + d_at + 4 * u));
                vecf v = f_sub(f_bits(s[k]), f_set(0x1.8p23f));

                p[k] = f_fma(f_mul(f_load(x->d[u]), d), v, p[k]);
                if (WITH_MINS)
                    m[k] = f_fma(f_mul(f_load(x->m[u]), d), f_set(e[k].sum[u]), m[k]);
            }
        }
#pragma GCC unroll 8
        for (int k = 0; k < n_tok; k++) {
            f_store(sums->p[lane][k], p[k]);
            if (WITH_MINS)
                f_store(sums->m[lane][k], m[k]);
        }
    }
}

/* functions of their own: the registers of a tile are all that the compiler has to think of */
static __attribute__((noinline)) void units_whole_tile(const struct panel *x, const struct tile *t,
                                                       const struct extra *e, size_t at,
                                                       size_t d_at, size_t n_units,
                                                       const struct rows *next, struct sums *sums)
{
    units_tile(x, t, e, at, d_at, n_units, next, TILE, sums);
}
static __attribute__((noinline)) void units_half_tile(const struct panel *x, const struct tile *t,
                                                      const struct extra *e, size_t at, size_t d_at,
                                                      size_t n_units, const struct rows *next,
                                                      struct sums *sums)
{
    units_tile(x, t, e, at, d_at, n_units, next, TILE / 2, sums);
}

/* (l0 + l2) + (l1 + l3) of vector k */
INLINE vecf fold_rows(const float l[4][TILE][ROWS], size_t k)
{
    return f_add(f_add(f_load(l[0][k]), f_load(l[2][k])), f_add(f_load(l[1][k]), f_load(l[3][k])));
}

/* n_panels panels of rows from r on, vectors i0.. i1 */
static void block(const struct dot_job *job, size_t r, size_t n_panels, size_t i0, size_t i1,
                  struct sums (*sums)[PANELS])
{
    const size_t n_units = job->n_cols / 32;
    const size_t d_at = act_d_at(job->n_cols), sum_at = act_sum_at(ACT_A32, job->n_cols);
    struct panel x[PANELS];
    struct rows rows[PANELS];

    for (size_t g = 0; g < n_panels; g++)
        rows[g] = rows_open(job, r + ROWS * g);
    memset(sums, 0, (i1 - i0 + TILE - 1) / TILE * sizeof *sums);
    for (size_t u = 0; u < n_units; u += UNITS) {
        size_t n = n_units - u < UNITS ? n_units - u : UNITS;
        struct tile t, next = tile_open(job, i0, i1 - i0);

        for (size_t g = 0; g < n_panels; g++) {
            open_units(&rows[g], n, &x[g]);
            if (u + n < n_units)
                rows[g] = rows_plus(&rows[g], n * BLOCK_BYTES);
            else /* the panels that follow, or the last row: only to be fetched */
                rows[g] = rows_open(job, r + ROWS * (n_panels + g));
        }
        for (size_t i = i0; i < i1; i += TILE) {
            struct extra e[TILE];

            t = next;
            for (int k = 0; k < TILE; k++)
                open_extra(t.at[k] + sum_at + 4 * u, &e[k]);
            if (i + TILE < i1)
                next = tile_open(job, i + TILE, i1 - i - TILE);
            for (size_t g = 0; g < n_panels; g++) {
                tile_fetch(&next, 32 * u, 32 * (u + n), g, n_panels);
                if (g == 0)
                    tile_fetch(&next, sum_at + 4 * u, sum_at + 4 * (u + n), 0, 1);
                if (g == n_panels - 1)
                    tile_fetch(&next, d_at + 4 * u, d_at + 4 * (u + n), 0, 1);
                (i1 - i > TILE / 2 ? units_whole_tile : units_half_tile)(
                    &x[g], &t, e, 32 * u, d_at + 4 * u, n, i == i0 ? &rows[g] : NULL,
                    &sums[(i - i0) / TILE][g]);
            }
        }
    }
    for (size_t i = 0; i < i1 - i0; i++)
        for (size_t g = 0; g < n_panels; g++) {
            const struct sums *sum = &sums[i / TILE][g];
            size_t first = r + ROWS * g;
            vecf y = fold_rows(sum->p, i % TILE);

            if (WITH_MINS)
                y = f_add(y, fold_rows(sum->m, i % TILE));
            f_finish(job->y + (i0 + i) * job->ldy + first, y, job->n_rows - first);
        }
}

static void gemm_a32(const struct dot_job *job)
{
    struct sums sums[BLOCK_VECTORS / TILE][PANELS];

    for (size_t i0 = 0; i0 < job->n_tok; i0 += BLOCK_VECTORS) {
        size_t i1 = i0 + BLOCK_VECTORS < job->n_tok ? i0 + BLOCK_VECTORS : job->n_tok;

        for (size_t r = 0; r < job->n_rows; r += ROWS * PANELS) {
            size_t panels = (job->n_rows - r + ROWS - 1) / ROWS;

            block(job, r, panels < PANELS ? panels : PANELS, i0, i1, sums);
        }
    }
}
