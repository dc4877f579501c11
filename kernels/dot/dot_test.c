/* Every form of every type against the definition, bit for bit (ARITHMETIC.md rule 36): random and
 * nasty rows and vectors, unit counts that fill no register, all numbers of vectors, row ranges,
 * gathered vectors, unaligned rows. */
#include "kernels/cpu.h"
#include "kernels/dot/dot.h"
#include "kernels/dot/rows.h"
#include "kernels/matmul/matmul.h"
#include "kernels/num.h"
#include "kernels/quantise/quantise.h"
#include "tests/test.h"
#include <stdlib.h>

enum { ROWS = 37, TOKENS = 17 }; /* two panels of 16, a group of four, one row */
struct fixture {
    uint32_t type;
    size_t n, row_bytes, stride;
    uint8_t *w;          /* ROWS rows at an odd address */
    unsigned char *acts; /* TOKENS prepared vectors */
    float ref[TOKENS][ROWS];
};

static int same(float a, float b)
{
    return f32_bits(a) == f32_bits(b);
}

/* one call of one form: rows r0..r1, n_tok vectors from t0, maybe gathered */
static void check_call(const struct fixture *f, dot_form *form, const char *name, size_t r0,
                       size_t r1, size_t t0, size_t n_tok, int gathered)
{
    uint32_t idx[64];
    float y[64 * (ROWS + 3)];
    size_t ldy = ROWS + 3, bad = 0;
    struct dot_job job = {f->w + r0 * f->row_bytes,
                          f->row_bytes,
                          f->n,
                          r1 - r0,
                          f->acts + (gathered ? 0 : t0 * f->stride),
                          f->stride,
                          gathered ? idx : NULL,
                          n_tok,
                          y,
                          ldy,
                          NULL};

    for (size_t i = 0; i < n_tok; i++)
        idx[i] = (uint32_t)((t0 + 5 * i) % TOKENS);
    memset(y, 0x55, sizeof y);
    form(&job);
    for (size_t i = 0; i < n_tok; i++)
        for (size_t r = 0; r < ldy; r++) {
            size_t tok = gathered ? idx[i] : t0 + i;
            if (r < r1 - r0)
                bad += !same(y[i * ldy + r], f->ref[tok][r0 + r]);
            else
                bad += f32_bits(y[i * ldy + r]) != 0x55555555; /* writes its rows only */
        }
    CHECK(!bad, "%s %s: n %zu, rows %zu..%zu, %zu vectors: %zu results differ",
          type_info(f->type)->name, name, f->n, r0, r1, n_tok, bad);
}

static void check_form(const struct fixture *f, dot_form *form, const char *name)
{
    static const size_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 17};

    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        check_call(f, form, name, 0, ROWS, TOKENS - counts[c], counts[c], 0);
    check_call(f, form, name, 0, ROWS, 3, 64, 1);
    check_call(f, form, name, 1, 18, 0, 64, 1);
    for (size_t r = 1; r <= 5; r++) { /* ranges that fill no group of rows */
        check_call(f, form, name, r, r + r < ROWS ? r + r : ROWS, 0, 1, 0);
        check_call(f, form, name, ROWS - r, ROWS, 2, 5, 1);
    }
}

static void run(uint32_t type, size_t n, int row_kind, int vec_kind, struct rng *g)
{
    const struct dot_type *t = dot_type(type);
    enum act_form form = type_info(type)->act;
    struct fixture f = {.type = type, .n = n, .stride = act_stride(form, n)};
    float *x = malloc(n * sizeof *x);
    uint64_t bytes;
    uint8_t *rows;

    CHECK_EQ(type_row_bytes(type, n, &bytes), 0);
    f.row_bytes = bytes + (n % 3 == 0 ? 5 : 0); /* rows need not touch */
    rows = malloc(ROWS * f.row_bytes + 1);
    f.w = rows + 1;
    f.acts = aligned_alloc(64, TOKENS * f.stride);
    memset(rows, 0xA5, ROWS * f.row_bytes + 1);
    for (size_t r = 0; r < ROWS; r++)
        make_row(g, type, f.w + r * f.row_bytes, n, row_kind);
    for (size_t i = 0; i < TOKENS; i++) {
        make_vector(g, x, n, i == 0 ? vec_kind : (int)(rng_u32(g) % VEC_KINDS));
        act_prepare(form, x, n, f.acts + i * f.stride);
    }
    for (size_t i = 0; i < TOKENS; i++)
        for (size_t r = 0; r < ROWS; r++)
            f.ref[i][r] = dot_row(t, f.w + r * f.row_bytes, n, f.acts + i * f.stride);
    for (enum cpu_level l = CPU_AVX2; l <= cpu_has(); l++)
        if (dot_form_at(t, l))
            check_form(&f, dot_form_at(t, l), cpu_level_name(l));
    { /* and through the front door */
        float y[ROWS * TOKENS];
        size_t bad = 0;

        matmul(type, f.w, f.row_bytes, n, 2, ROWS, f.acts, f.stride, NULL, TOKENS, y, ROWS);
        for (size_t i = 0; i < TOKENS; i++)
            for (size_t r = 2; r < ROWS; r++)
                bad += !same(y[i * ROWS + r - 2], f.ref[i][r]);
        CHECK(!bad, "%s matmul: n %zu", type_info(type)->name, n);
    }
    for (size_t n_tok = 1; n_tok <= TOKENS; n_tok += 4) { /* the second matrix: the first from row 1 on */
        float a[ROWS * TOKENS], b[ROWS * TOKENS];
        size_t bad = 0;

        matmul_two(type, (const void *[]){f.w, f.w + f.row_bytes}, f.row_bytes, n, 3, ROWS - 1, f.acts,
                   f.stride, NULL, n_tok, (float *[]){a, b}, ROWS);
        for (size_t i = 0; i < n_tok; i++)
            for (size_t r = 3; r < ROWS - 1; r++)
                bad += !same(a[i * ROWS + r - 3], f.ref[i][r]) + !same(b[i * ROWS + r - 3], f.ref[i][r + 1]);
        CHECK(!bad, "%s, two matrices: n %zu, %zu vectors", type_info(type)->name, n, n_tok);
    }
    free(f.acts);
    free(rows);
    free(x);
}

int main(void)
{
    static const size_t units[] = {1, 2, 3, 4, 5, 7, 8, 19};
    static const size_t lengths[] = {1, 7, 31, 32, 33, 64, 100, 255, 1024};
    struct rng g = {36};

    cpu_float_state();
    if (cpu_has() < CPU_AVX512)
        SKIP("no AVX-512 with VNNI on this processor: its forms are not tested");
    if (cpu_has() < CPU_VBMI)
        SKIP("no AVX-512 VBMI with GFNI on this processor: its forms are not tested");
    for (uint32_t type = 0; type < 64; type++) {
        const struct type_info *t = type_info(type);
        const struct dot_type *d = dot_type(type);

        CHECK(!d == !(t && t->built), "type %u: the tables disagree", type);
        if (!d)
            continue;
        CHECK(d->avx2 != NULL, "%s has no AVX2 form", t->name);
        for (int row = 0; row < ROW_KINDS; row++)
            for (int vec = 0; vec < VEC_KINDS; vec++) {
                size_t k = rng_u32(&g) % 8, len = t->act == ACT_A256 ? 256 : t->block_values;

                run(type, t->act == ACT_F32 ? lengths[rng_u32(&g) % 9] : len * units[k], row, vec,
                    &g);
            }
        for (size_t k = 0; k < 8; k++)
            run(type, t->act == ACT_F32 ? lengths[k] : (size_t)t->block_values * units[k], CLEAN,
                GAUSS, &g);
        run(type, 4096, CLEAN, GAUSS, &g);
        run(type, 16384, RANDOM, GAUSS, &g);
    }
    return test_end();
}
