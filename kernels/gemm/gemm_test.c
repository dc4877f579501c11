/* Every blocked form against the definition in kernels/dot, bit for bit (ARITHMETIC.md rule 36):
 * random and nasty rows and vectors, all small numbers of rows and vectors, ranges that begin
 * anywhere, gathered vectors, unit counts that fill no panel, more vectors than a block has. */
#include "kernels/cpu.h"
#include "kernels/dot/rows.h"
#include "kernels/gemm/gemm.h"
#include "kernels/matmul/matmul.h"
#include "kernels/num.h"
#include "kernels/quantise/quantise.h"
#include "tests/test.h"
#include <math.h>
#include <stdlib.h>

/* POOL different vectors; calls take MOST of them, repeated */
enum { ROWS = 67, POOL = 11, MOST = 600 };

struct fixture {
    uint32_t type;
    size_t n, row_bytes, stride;
    uint8_t *w;          /* ROWS rows at an odd address */
    unsigned char *acts; /* MOST prepared vectors, the i-th is i % POOL */
    float ref[POOL][ROWS];
};

/* vectors first..: in their order, or gathered in another */
static void check_call(const struct fixture *f, dot_form *form, const char *name, size_t r0,
                       size_t r1, size_t first, size_t n_tok, int gathered)
{
    static uint32_t idx[MOST];
    size_t ldy = r1 - r0 + 3, bad = 0;
    float *y = malloc(n_tok * ldy * sizeof *y);
    struct dot_job job = {f->w + r0 * f->row_bytes,
                          f->row_bytes,
                          f->n,
                          r1 - r0,
                          f->acts + (gathered ? 0 : first * f->stride),
                          f->stride,
                          gathered ? idx : NULL,
                          n_tok,
                          y,
                          ldy,
                          NULL};

    for (size_t i = 0; i < n_tok; i++)
        idx[i] = (uint32_t)((first + 7 * i) % MOST);
    memset(y, 0x55, n_tok * ldy * sizeof *y);
    form(&job);
    for (size_t i = 0; i < n_tok; i++)
        for (size_t r = 0; r < ldy; r++) {
            size_t vector = (gathered ? idx[i] : first + i) % POOL;
            uint32_t want = r < r1 - r0 ? f32_bits(f->ref[vector][r0 + r]) : 0x55555555;

            bad += f32_bits(y[i * ldy + r]) != want; /* and it writes its rows only */
        }
    CHECK(!bad, "%s %s: n %zu, rows %zu..%zu, %zu vectors: %zu results differ",
          type_info(f->type)->name, name, f->n, r0, r1, n_tok, bad);
    free(y);
}

static void check_form(const struct fixture *f, dot_form *form, const char *name, int thorough)
{
    static const size_t counts[] = {41, 64, 100, 256, 257, 267, 520};

    check_call(f, form, name, 0, ROWS, 0, 33, 0);
    check_call(f, form, name, 3, ROWS - 1, 5, 61, 1);
    check_call(f, form, name, 1, 18, 2, 9, 0);
    check_call(f, form, name, ROWS - 1, ROWS, 1, 12, 1);
    if (!thorough)
        return;
    for (size_t k = 1; k <= 40; k++) {
        check_call(f, form, name, k % 5, k % 5 + k, k, 1 + k * 7 % 40, k & 1);
        check_call(f, form, name, 0, 1 + k * 13 % 40, 0, k, k % 3 == 0);
    }
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        check_call(f, form, name, c, c % 2 ? ROWS : c + 20, c, counts[c], c & 1);
}

static void run(uint32_t type, size_t n, int row_kind, int vec_kind, int thorough, struct rng *g)
{
    const struct dot_type *t = dot_type(type);
    enum act_form act = type_info(type)->act;
    struct fixture f = {.type = type, .n = n, .stride = act_stride(act, n)};
    dot_form *avx512 = gemm_form(type, CPU_AVX512, ROWS, MOST),
             *avx2 = gemm_form(type, CPU_AVX2, ROWS, MOST);
    float *x = malloc(n * sizeof *x);
    uint64_t bytes;
    uint8_t *rows;

    CHECK_EQ(type_row_bytes(type, n, &bytes), 0);
    f.row_bytes = bytes + (n % 3 == 0 ? 5 : 0); /* rows need not touch */
    rows = malloc(1 + ROWS * f.row_bytes);      /* and no byte after the last one */
    f.w = rows + 1;
    f.acts = aligned_alloc(64, MOST * f.stride);
    for (size_t r = 0; r < ROWS; r++)
        make_row(g, type, f.w + r * f.row_bytes, n, row_kind);
    for (size_t i = 0; i < MOST; i++) {
        if (i >= POOL) {
            memcpy(f.acts + i * f.stride, f.acts + (i - POOL) * f.stride, f.stride);
            continue;
        }
        make_vector(g, x, n, i == 0 ? vec_kind : (int)(rng_u32(g) % VEC_KINDS));
        act_prepare(act, x, n, f.acts + i * f.stride);
        for (size_t r = 0; r < ROWS; r++)
            f.ref[i][r] = dot_row(t, f.w + r * f.row_bytes, n, f.acts + i * f.stride);
    }
    if (avx2 && cpu_has() >= CPU_AVX2)
        check_form(&f, avx2, "avx2", thorough);
    if (avx512 && cpu_has() >= CPU_AVX512)
        check_form(&f, avx512, "avx512", thorough);
    if (thorough) { /* and through the front door, with rows of a matrix */
        float *y = malloc(MOST * ROWS * sizeof *y);
        size_t bad = 0;

        for (size_t n_tok = 1; n_tok <= MOST; n_tok = n_tok < 9 ? n_tok + 1 : MOST) {
            size_t first = n_tok % 3; /* of the matrix's rows */

            matmul(type, f.w, f.row_bytes, n, first, ROWS, f.acts, f.stride, NULL, n_tok, y, ROWS);
            for (size_t i = 0; i < n_tok; i++)
                for (size_t r = first; r < ROWS; r++)
                    bad += f32_bits(y[i * ROWS + r - first]) != f32_bits(f.ref[i % POOL][r]);
            CHECK(!bad, "%s matmul: n %zu, %zu vectors", type_info(type)->name, n, n_tok);
            if (n_tok == MOST)
                break;
        }
        free(y);
    }
    free(f.acts);
    free(rows);
    free(x);
}

int main(void)
{
    static const size_t units_a256[] = {1, 2, 3, 5, 8, 16},
                        units_a32[] = {1, 2, 3, 4, 7, 15, 16, 17, 40};
    struct rng g = {13};
    int types = 0;

    cpu_float_state();
    if (cpu_has() < CPU_AVX512)
        SKIP("no AVX-512 with VNNI on this processor: its forms are not tested");
    for (uint32_t type = 0; type < 64; type++) {
        const struct type_info *t = type_info(type);

        if (!gemm_form(type, CPU_AVX512, ROWS, MOST) && !gemm_form(type, CPU_AVX2, ROWS, MOST))
            continue;
        types++;
        for (int row = 0; row < ROW_KINDS; row++)
            for (int vec = 0; vec < VEC_KINDS; vec++) {
                size_t k = rng_u32(&g);
                size_t units = t->act == ACT_A256 ? units_a256[k % 4] : units_a32[k % 9];

                run(type, units * t->block_values, row, vec, 0, &g);
            }
        for (size_t k = 0; k < 6; k++)
            run(type, (t->act == ACT_A256 ? units_a256[k] : units_a32[k + 3]) * t->block_values,
                CLEAN, GAUSS, k < 2, &g);
        run(type, 2048, SCALES, BROKEN, 1, &g);
        run(type, 4096, RANDOM, GAUSS, 0, &g);
    }
    CHECK(types > 0, "no type has a blocked form");
    return test_end();
}
