/* Products on a card against the definition, bit for bit (ARITHMETIC.md rule 36): every type, the
 * rows and vectors of kernels/dot/rows.h (all-ones, nasty scales, NaN, cancelling ...), unit counts
 * that fill no warp, all numbers of vectors up to a prompt's, gathered vectors, scale and bias, and
 * results that must not be written. */
#include "tests/cuda.h"
extern "C" {
#include "kernels/cpu.h"
#include "kernels/dot/dot.h"
#include "kernels/dot/dot_cuda.h"
#include "kernels/dot/rows.h"
#include "kernels/gemm/gemm_cuda.h"
#include "kernels/matmul/finish.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_cuda.h"
#include "kernels/num.h"
#include "kernels/quantise/quantise.h"
}

enum { ROWS = 37, TOKENS = 17, MOST = 72 };

struct fixture {
    uint32_t type;
    size_t n, n_rows, n_vec, row_bytes, stride;
    uint8_t *w, *dw;
    unsigned char *acts, *dacts;
    float *bias, *dbias, scale, *dscale;
    float *ref; /* (n_vec, n_rows), without scale and bias */
};

/* one call: n_tok vectors from t0, maybe gathered, maybe with scale and bias */
static void call(const struct fixture *f, size_t n_rows, size_t t0, size_t n_tok, int gathered,
                 int finish)
{
    size_t ldy = n_rows + 3, bad = 0, first = 0;
    uint32_t *idx = (uint32_t *)malloc(n_tok * sizeof *idx), *didx;
    float *y = (float *)malloc(n_tok * ldy * sizeof *y), *dy, *want;

    for (size_t i = 0; i < n_tok; i++)
        idx[i] = (uint32_t)((t0 + (gathered ? 5 : 1) * i) % f->n_vec);
    didx = (uint32_t *)cuda_copy(idx, n_tok * sizeof *idx);
    dy = (float *)cuda_room(n_tok * ldy * sizeof *y);
    want = (float *)malloc(n_rows * sizeof *want);
    CUDA_OK(matmul_cuda(f->type, f->dw, f->row_bytes, (uint32_t)f->n, (uint32_t)n_rows,
                        f->dacts + (gathered ? 0 : t0 * f->stride), f->stride,
                        gathered ? didx : NULL, (uint32_t)n_tok, finish ? f->dscale : NULL,
                        finish ? f->dbias : NULL, dy, ldy, NULL));
    CUDA_OK(cudaDeviceSynchronize());
    cuda_back(y, dy, n_tok * ldy * sizeof *y);
    for (size_t i = 0; i < n_tok; i++) {
        memcpy(want, f->ref + idx[i] * f->n_rows, n_rows * sizeof *want);
        if (finish)
            product_finish(want, n_rows, &f->scale, f->bias);
        for (size_t r = 0; r < ldy; r++) {
            uint32_t w = r < n_rows ? f32_bits(want[r]) : 0x55555555;
            if (f32_bits(y[i * ldy + r]) != w && !bad++)
                first = i * ldy + r;
        }
    }
    CHECK(!bad,
          "%s: n %zu, %zu rows, %zu vectors%s%s: %zu results differ, the first: vector %zu row %zu "
          "is %08x, not %08x",
          type_info(f->type)->name, f->n, n_rows, n_tok, gathered ? ", gathered" : "",
          finish ? ", scale and bias" : "", bad, first / ldy, first % ldy, f32_bits(y[first]),
          first % ldy < n_rows
              ? f32_bits(f->ref[idx[first / ldy] * f->n_rows + first % ldy])
              : 0x55555555);
    CUDA_OK(cudaFree(didx));
    CUDA_OK(cudaFree(dy));
    free(idx);
    free(y);
    free(want);
}

static void make(struct fixture *f, uint32_t type, size_t n, size_t n_rows, size_t n_vec, int row_kind,
                 int vec_kind, struct rng *g)
{
    enum act_form form = type_info(type)->act;
    float *x = (float *)malloc(n * sizeof *x);
    uint64_t bytes;
    void *base;

    memset(f, 0, sizeof *f);
    CHECK_EQ(type_row_bytes(type, n, &bytes), 0);
    if (n % 3 == 0) /* rows need not touch */
        bytes = (bytes + 31) & ~(uint64_t)15;
    f->type = type, f->n = n, f->n_rows = n_rows, f->n_vec = n_vec;
    f->row_bytes = bytes;
    f->stride = act_stride(form, n);
    f->w = (uint8_t *)calloc(n_rows, bytes);
    f->acts = (unsigned char *)aligned_alloc(64, n_vec * f->stride);
    f->ref = (float *)malloc(n_vec * n_rows * sizeof *f->ref);
    f->bias = (float *)malloc(n_rows * sizeof *f->bias);
    f->scale = row_kind == SCALES ? 0x1p120f : 0.37f;
    for (size_t r = 0; r < n_rows; r++) {
        make_row(g, type, f->w + r * bytes, n, row_kind);
        f->bias[r] = rng_gauss(g);
    }
    for (size_t i = 0; i < n_vec; i++) {
        make_vector(g, x, n, i == 0 ? vec_kind : (int)(rng_u32(g) % VEC_KINDS));
        act_prepare(form, x, n, f->acts + i * f->stride);
    }
    f->dw = (uint8_t *)cuda_copy_at(f->w, n_rows * bytes, 0, &base);
    f->dacts = (unsigned char *)cuda_copy(f->acts, n_vec * f->stride);
    f->dbias = (float *)cuda_copy(f->bias, n_rows * sizeof *f->bias);
    f->dscale = (float *)cuda_copy(&f->scale, sizeof f->scale);
    free(x);
}
static void drop(struct fixture *f)
{
    CUDA_OK(cudaFree(f->dw));
    CUDA_OK(cudaFree(f->dacts));
    CUDA_OK(cudaFree(f->dbias));
    CUDA_OK(cudaFree(f->dscale));
    free(f->w);
    free(f->acts);
    free(f->ref);
    free(f->bias);
}

static void small(uint32_t type, size_t n, int row_kind, int vec_kind, struct rng *g)
{
    static const size_t counts[] = {1, 2, 3, 4, 7, 8};
    struct fixture f;

    make(&f, type, n, ROWS, TOKENS, row_kind, vec_kind, g);
    for (size_t i = 0; i < TOKENS; i++)
        for (size_t r = 0; r < ROWS; r++)
            f.ref[i * ROWS + r] =
                dot_row(dot_type(type), f.w + r * f.row_bytes, n, f.acts + i * f.stride);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        call(&f, ROWS, 0, counts[c], 0, 0);
    call(&f, ROWS, TOKENS - 1, 1, 0, 1);
    call(&f, 5, 3, 3, 1, 1);
    call(&f, 1, 2, 1, 0, 0);
    call(&f, ROWS, 3, MOST, 1, 1); /* more than one vector tile of a prompt's kernel */
    call(&f, ROWS, 0, TOKENS, 0, 0);
    drop(&f);
}

/* many rows and blocks; the CPU's fast form, which its own test holds to the definition */
static void large(uint32_t type, size_t n, size_t n_rows, size_t n_vec, struct rng *g)
{
    struct fixture f;

    make(&f, type, n, n_rows, n_vec, CLEAN, GAUSS, g);
    matmul(type, f.w, f.row_bytes, n, 0, n_rows, f.acts, f.stride, NULL, n_vec, f.ref, n_rows);
    call(&f, n_rows, 0, 1, 0, 0);
    call(&f, n_rows, 1, 4, 0, 0);
    call(&f, n_rows, 0, n_vec, 0, 1);
    drop(&f);
}

static void one_type(uint32_t type, int quick)
{
    static const size_t units[] = {1, 2, 3, 4, 5, 7, 8, 19};
    static const size_t lengths[] = {1, 7, 31, 32, 33, 64, 100, 255};
    const struct type_info *t = type_info(type);
    size_t len = t->act == ACT_A256 ? 256 : t->block_values;
    struct rng g = {36 + type};

    for (int row = 0; row < ROW_KINDS; row++)
        for (int vec = 0; vec < VEC_KINDS; vec += quick ? 5 : 1) {
            size_t k = rng_u32(&g) % 8;
            small(type, t->act == ACT_F32 ? lengths[k] : len * units[k], row, vec, &g);
        }
    for (size_t k = 0; k < 8 && !quick; k++)
        small(type, t->act == ACT_F32 ? lengths[k] : len * units[k], CLEAN, GAUSS, &g);
    small(type, 4096, RANDOM, GAUSS, &g);
    if (quick)
        return;
    large(type, 4096, 1000, 130, &g);
    large(type, t->act == ACT_A256 ? 6144 : 2880, 3000, 9, &g);
    large(type, 16384, 77, 64, &g);
    if (type == W_Q4_K) /* its blocks go through several tiles of a prompt (split.cuh) */
        large(type, 512, 64 * 160, 130, &g);
}

/* The kernels of one to eight vectors and of a prompt's, each in as few launches as show its hand-overs: a row shorter
 * than a step, one that fills it, and one of more steps than there are places for them; and blocks with several tiles. */
static void few(uint32_t type)
{
    static const size_t lengths[] = {512, 4096, 16384}, counts[] = {1, 2, 4, 8};
    struct rng g = {72 + type};
    struct fixture f;

    for (size_t k = 0; k < 3; k++) {
        make(&f, type, lengths[k], ROWS, 8, RANDOM, GAUSS, &g);
        matmul(type, f.w, f.row_bytes, f.n, 0, ROWS, f.acts, f.stride, NULL, 8, f.ref, ROWS);
        for (size_t c = 0; c < 4; c++)
            call(&f, ROWS, 0, counts[c], 0, 0);
        call(&f, ROWS, 0, 5, 1, 1); /* eight sums of the longest rows may not fit into shared memory: by halves */
        for (size_t c = 0; k < 2 && c < 2; c++) /* the tiles with fewer and with more vectors */
            call(&f, ROWS, 0, c ? MOST : TOKENS, 1, 1);
        drop(&f);
    }
    if (type == W_Q4_K) {
        make(&f, type, 512, 64 * 160, 8, RANDOM, GAUSS, &g);
        matmul(type, f.w, f.row_bytes, f.n, 0, f.n_rows, f.acts, f.stride, NULL, 8, f.ref, f.n_rows);
        call(&f, f.n_rows, 0, MOST, 1, 0);
        drop(&f);
    }
}

/* matmul_test [quick | few] [TYPE ...]: these two are for runs under a checker */
int main(int argc, char **argv)
{
    int just_few = argc > 1 && !strcmp(argv[1], "few"), quick = just_few || (argc > 1 && !strcmp(argv[1], "quick"));

    if (!cuda_card())
        return test_end();
    cpu_float_state();
    CUDA_OK(just_few ? gemm_load_cuda() : products_load_cuda()); /* a checker takes its time for each kernel */
    for (uint32_t type = 0; type < 64; type++) {
        const struct type_info *t = type_info(type);
        int failed = test_failed, asked = argc <= 1 + quick;

        for (int i = 1 + quick; t && i < argc; i++)
            asked |= !strcmp(argv[i], t->name);
        if (!dot_type(type) || !asked)
            continue;
        CUDA_OK(dot_cuda_type(type)->load());
        if (just_few)
            few(type);
        else
            one_type(type, quick);
        if (test_failed > failed)
            printf("%s: %d of its checks failed\n", t->name, test_failed - failed);
    }
    CHECK(matmul_cuda(63, NULL, 0, 256, 1, NULL, 0, NULL, 1, NULL, NULL, NULL, 0, NULL) ==
          cudaErrorInvalidValue);
    return test_end();
}
