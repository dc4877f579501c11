/* The blocked product of a 256-value type (ARITHMETIC.md rules 10 and 11), included by X_open.h
 * after
 *
 *   enum { BLOCK_BYTES, SUB_BLOCK, WITH_MINS, VALUES_SHIFT, MOST };
 *
 * VALUES_SHIFT makes the type's values unsigned, 0..MOST then. gemm.h says how the work is cut. */
#include "kernels/gemm/cut.h"

enum { SUBS = 256 / SUB_BLOCK, PANELS = 4 };

struct panel;
/* the blocks at b to a panel */
static void open_unit(const struct rows *b, struct panel *x);

/* what a unit of a vector adds besides its bytes, made once for all panels */
struct extra {
    int32_t start[SUBS];    /* -VALUES_SHIFT * sum of q over the sub-block */
    int32_t pair[SUBS / 2]; /* two int16: the sums of q over two sub-blocks */
};

/* the float sums of a panel and a tile, in the order of use */
struct sums {
    _Alignas(64) float p[TILE][ROWS], m[WITH_MINS ? TILE : 0][ROWS];
};

#ifdef VEC_AVX512
#include "kernels/gemm/a256_avx512.h"
#else
#include "kernels/gemm/a256_avx2.h"
#endif

/* functions of their own: the registers of a tile are all that the compiler has to think of */
static __attribute__((noinline)) void unit_whole_tile(const struct panel *x, const struct tile *t,
                                                      const struct extra *e, size_t at, size_t d_at,
                                                      const struct rows *next, struct sums *sums)
{
    unit_tile(x, t, e, at, d_at, next, TILE, sums);
}
static __attribute__((noinline)) void unit_half_tile(const struct panel *x, const struct tile *t,
                                                     const struct extra *e, size_t at, size_t d_at,
                                                     const struct rows *next, struct sums *sums)
{
    unit_tile(x, t, e, at, d_at, next, TILE / 2, sums);
}

/* n_panels panels of rows from r on, vectors i0.. i1 */
static void block(const struct dot_job *job, size_t r, size_t n_panels, size_t i0, size_t i1,
                  struct sums (*sums)[PANELS])
{
    const size_t n_units = job->n_cols / 256;
    const size_t d_at = act_d_at(job->n_cols), sum_at = act_sum_at(ACT_A256, job->n_cols);
    struct panel x[PANELS];
    struct rows rows[PANELS];

    for (size_t g = 0; g < n_panels; g++)
        rows[g] = rows_open(job, r + ROWS * g);
    memset(sums, 0, (i1 - i0 + TILE - 1) / TILE * sizeof *sums);
    for (size_t u = 0; u < n_units; u++) {
        struct tile t, next = tile_open(job, i0, i1 - i0);

        for (size_t g = 0; g < n_panels; g++) {
            open_unit(&rows[g], &x[g]);
            if (u + 1 < n_units)
                rows[g] = rows_plus(&rows[g], BLOCK_BYTES);
            else /* the panels that follow, or the last row: only to be fetched */
                rows[g] = rows_open(job, r + ROWS * (n_panels + g));
        }
        for (size_t i = i0; i < i1; i += TILE) {
            struct extra e[TILE];

            t = next;
            if (VALUES_SHIFT || WITH_MINS)
                for (int k = 0; k < TILE; k++)
                    open_extra(t.at[k] + sum_at + 32 * u, &e[k]);
            if (i + TILE < i1)
                next = tile_open(job, i + TILE, i1 - i - TILE);
            for (size_t g = 0; g < n_panels; g++) {
                tile_fetch(&next, 256 * u, 256 * (u + 1), g, n_panels);
                if (g == 0)
                    tile_fetch(&next, sum_at + 32 * u, sum_at + 32 * (u + 1), 0, 1);
                (i1 - i > TILE / 2 ? unit_whole_tile : unit_half_tile)(
                    &x[g], &t, e, 256 * u, d_at + 4 * u, i == i0 ? &rows[g] : NULL,
                    &sums[(i - i0) / TILE][g]);
            }
        }
    }
    for (size_t i = 0; i < i1 - i0; i++)
        for (size_t g = 0; g < n_panels; g++) {
            const struct sums *sum = &sums[i / TILE][g];
            size_t first = r + ROWS * g;
            vecf y = f_load(sum->p[i % TILE]);

            if (WITH_MINS)
                y = f_sub(y, f_load(sum->m[i % TILE]));
            f_finish(job->y + (i0 + i) * job->ldy + first, y, job->n_rows - first);
        }
}

static void gemm_a256(const struct dot_job *job)
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
