/* The blocked products beside the forms of kernels/dot, one thread, GMAC/s by the thread's own
 * time: gemm_bench [type name ...]. Two shapes: 512 vectors times 4096 x 4096 (a trunk's matrix;
 * "all" counts the preparation of the vectors, too), and few vectors times 768 rows of 2048 (an
 * expert's matrix, as many of them as do not fit into a cache). Best of a few rounds, contenders in
 * turn. */
#include "kernels/cpu.h"
#include "kernels/dot/rows.h"
#include "kernels/gemm/gemm.h"
#include "kernels/quantise/quantise.h"
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

enum { ROUNDS = 5, MOST_VECTORS = 512, WEIGHTS = 4096 * 4096, EXPERT_ROWS = 768 };

/* other work on the machine disturbs this time less */
static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct shape {
    uint32_t type;
    size_t cols, rows_together, n_tok;
    const uint8_t *w;
    const float *x;
    uint8_t *acts;
    float *y;
};

/* seconds; prepare: with the vectors' quantisation. Rows go in portions, as a worker's items do. */
static double once(const struct shape *s, dot_form *form, int prepare)
{
    const struct type_info *t = type_info(s->type);
    size_t row_bytes = s->cols / t->block_values * t->block_bytes, rows = WEIGHTS / s->cols;
    struct dot_job job = {.row_bytes = row_bytes,
                          .n_cols = s->cols,
                          .acts = s->acts,
                          .a_stride = act_stride(t->act, s->cols),
                          .n_tok = s->n_tok,
                          .ldy = s->rows_together};
    double start = now();

    for (size_t i = 0; prepare && i < s->n_tok; i++)
        act_prepare(t->act, s->x + i * s->cols, s->cols, s->acts + i * job.a_stride);
    for (size_t r = 0; r + s->rows_together <= rows; r += s->rows_together) {
        job.w = s->w + r * row_bytes;
        job.n_rows = s->rows_together;
        job.y = s->y;
        form(&job);
    }
    return now() - start;
}

/* GMAC/s of up to three contenders */
static void measure(const struct shape *s, dot_form *const form[], const int prepare[], size_t n,
                    double speed[])
{
    size_t rows = WEIGHTS / s->cols / s->rows_together * s->rows_together;

    once(s, form[0], 1);
    for (size_t k = 0; k < n; k++)
        speed[k] = 0;
    for (int round = 0; round < ROUNDS; round++)
        for (size_t k = 0; k < n; k++) {
            double v =
                (double)(rows * s->cols) * (double)s->n_tok * 1e-9 / once(s, form[k], prepare[k]);
            speed[k] = v > speed[k] ? v : speed[k];
        }
}

static void bench(uint32_t type, enum cpu_level level, const uint8_t *w, const float *x,
                  uint8_t *acts, float *y)
{
    static const size_t few[] = {2, 3, 4, 5, 6, 8, 12, 16, 32, 64};
    const struct dot_type *t = dot_type(type);
    dot_form *dot = level == CPU_AVX512 ? t->avx512 : t->avx2;
    dot_form *blocked = gemm_form(type, level, EXPERT_ROWS, MOST_VECTORS);
    dot_form *form[] = {dot, blocked, blocked};
    const int prepare[] = {0, 0, 1};
    struct shape s = {type, 4096, 4096, MOST_VECTORS, w, x, acts, y};
    double speed[3];

    if (!dot || !blocked)
        return;
    measure(&s, form, prepare, 3, speed);
    printf("%-7s %-7s %6.1f %6.1f %6.1f |", type_info(type)->name, cpu_level_name(level), speed[0],
           speed[1], speed[2]);
    s.cols = 2048;
    s.rows_together = EXPERT_ROWS;
    for (size_t k = 0; k < sizeof few / sizeof *few; k++) {
        s.n_tok = few[k];
        measure(&s, form, prepare, 2, speed);
        printf(" %5.0f/%-4.0f", speed[0], speed[1]);
    }
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    size_t most = act_stride(ACT_F32, 4096);
    uint8_t *w = malloc((size_t)WEIGHTS * 2), *acts = aligned_alloc(64, MOST_VECTORS * most);
    float *x = malloc((size_t)MOST_VECTORS * 4096 * sizeof *x);
    float *y = malloc((size_t)MOST_VECTORS * 4096 * sizeof *y);
    struct rng g = {2};

    cpu_float_state();
    for (size_t i = 0; i < (size_t)WEIGHTS * 2; i += 4) {
        uint32_t v = rng_u32(&g) & 0x3BFF3BFF; /* no NaN, as f16 or as a scale */
        memcpy(w + i, &v, 4);
    }
    for (size_t i = 0; i < (size_t)MOST_VECTORS * 4096; i++)
        x[i] = rng_gauss(&g);
    printf("GMAC/s, one thread. 4096 x 4096 by 512: dot, blocked, blocked with preparation;\n"
           "768 x 2048: dot/blocked for 2, 3, 4, 5, 6, 8, 12, 16, 32, 64 vectors\n");
    for (uint32_t type = 0; type < 64; type++) {
        int wanted = argc < 2;

        for (int i = 1; i < argc; i++)
            wanted |= type_info(type) && !strcasecmp(argv[i], type_info(type)->name);
        for (int level = CPU_AVX512; wanted && level >= CPU_AVX2; level--)
            if ((int)cpu_has() >= level &&
                gemm_form(type, (enum cpu_level)level, EXPERT_ROWS, MOST_VECTORS))
                bench(type, (enum cpu_level)level, w, x, acts, y);
    }
    free(y);
    free(x);
    free(acts);
    free(w);
    return 0;
}
