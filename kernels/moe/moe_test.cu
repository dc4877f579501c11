/* Rule 28 on a card against the definition, by bits: rows near, rows in mapped host memory in any
 * order, additions. */
#include "tests/cuda.h"
extern "C" {
#include "kernels/func/nasty.h"
#include "kernels/moe/moe.h"
}
#include "kernels/moe/moe_cuda.h"

enum { TOKENS = 5, MOST_K = 20, MOST_N = 1100 };
static float w[TOKENS * MOST_K], acc[TOKENS * (MOST_N + 3)], got[TOKENS * (MOST_N + 3)];
static float a[TOKENS], x[TOKENS * MOST_N], y[TOKENS * MOST_N], z[TOKENS * MOST_N];

static void sums(struct nasty *r, int kind, unsigned k, size_t n, size_t extra, float *rows,
                 float *mapped)
{
    size_t ld = n + extra;
    const float *order[TOKENS * MOST_K], **dat;
    float *dw, *drows, *dacc = (float *)cuda_room(sizeof acc);

    nasty_fill(r, kind, w, TOKENS * k);
    nasty_fill(r, kind, rows, TOKENS * k * n);
    for (int t = 0; t < TOKENS; t++)
        for (unsigned p = 0; p < k; p++) /* the far rows lie in another order */
            order[t * k + p] = mapped + ((size_t)(TOKENS - 1 - t) * k + (k - 1 - p)) * n;
    for (unsigned i = 0; i < TOKENS * k; i++)
        memcpy((float *)order[i], rows + i * n, n * sizeof *rows);
    memset(acc, 0x55, sizeof acc);
    for (int t = 0; t < TOKENS; t++) {
        const float *of[MOST_K];
        for (unsigned p = 0; p < k; p++)
            of[p] = rows + (t * k + p) * n;
        moe_sum_ref(w + t * k, of, k, acc + t * ld, n);
    }
    dw = (float *)cuda_copy(w, sizeof w);
    drows = (float *)cuda_copy(rows, TOKENS * k * n * sizeof *rows);
    dat = (const float **)cuda_copy(order, sizeof order);
    moe_sum_cuda(dw, drows, k, dacc, ld, n, TOKENS, NULL);
    CUDA_OK(cudaGetLastError());
    cuda_back(got, dacc, sizeof got);
    CHECK(!memcmp(acc, got, sizeof got), "near, %u places, n %zu, kind %d", k, n, kind);
    CUDA_OK(cudaMemset(dacc, 0x55, sizeof acc));
    moe_sum_far_cuda(dw, dat, k, dacc, ld, n, TOKENS, NULL);
    CUDA_OK(cudaGetLastError());
    cuda_back(got, dacc, sizeof got);
    CHECK(!memcmp(acc, got, sizeof got), "far, %u places, n %zu, kind %d", k, n, kind);
    CUDA_OK(cudaFree(dw));
    CUDA_OK(cudaFree(drows));
    CUDA_OK(cudaFree(dat));
    CUDA_OK(cudaFree(dacc));
}

static void additions(struct nasty *r, int kind, size_t n)
{
    size_t all = TOKENS * n;
    float *dx, *dy, *da;

    nasty_fill(r, kind, x, all);
    nasty_fill(r, kind, y, all);
    nasty_fill(r, kind, a, TOKENS);
    dx = (float *)cuda_copy(x, sizeof x);
    dy = (float *)cuda_copy(y, sizeof y);
    da = (float *)cuda_copy(a, sizeof a);
    vec_add_cuda(dx, dy, all, NULL);
    vec_add_ref(x, y, all);
    cuda_back(z, dx, sizeof z);
    CHECK(!memcmp(x, z, sizeof z), "add, n %zu, kind %d", n, kind);
    vec_fma1_cuda(da, dy, dx, n, TOKENS, NULL);
    for (int t = 0; t < TOKENS; t++)
        vec_fma1_ref(a[t], y + t * n, x + t * n, n);
    cuda_back(z, dx, sizeof z);
    CHECK(!memcmp(x, z, sizeof z), "fma1, n %zu, kind %d", n, kind);
    vec_fma1_each_cuda(da, dy, dx, n, 2, TOKENS / 2, NULL);
    for (int t = 0; t < TOKENS / 2 * 2; t++)
        vec_fma1_ref(a[t], y + t / 2 * n, x + t * n, n);
    cuda_back(z, dx, sizeof z);
    CHECK(!memcmp(x, z, sizeof z), "fma1, two vectors a row, n %zu, kind %d", n, kind);
    vec_mul_cuda(dx, dy, all, NULL);
    vec_mul_ref(x, y, all);
    cuda_back(z, dx, sizeof z);
    CUDA_OK(cudaGetLastError());
    CHECK(!memcmp(x, z, sizeof z), "mul, n %zu, kind %d", n, kind);
    CUDA_OK(cudaFree(dx));
    CUDA_OK(cudaFree(dy));
    CUDA_OK(cudaFree(da));
}

int main(void)
{
    struct nasty r = {51};
    float *rows, *mapped;

    if (!cuda_card())
        return test_end();
    rows = (float *)malloc(TOKENS * MOST_K * MOST_N * sizeof *rows);
    CUDA_OK(cudaHostAlloc(&mapped, TOKENS * MOST_K * MOST_N * sizeof *mapped, cudaHostAllocMapped));
    for (int kind = 0; kind < 4; kind++)
        for (unsigned k = 1; k <= MOST_K; k += k < 10 ? 1 : 5) {
            sums(&r, kind, k, 256 + k, k % 4, rows, mapped);
            sums(&r, kind, k, 1 + 3 * k, 0, rows, mapped);
            sums(&r, kind, k, MOST_N, 3, rows, mapped);
            additions(&r, kind, 1 + 100 * k % MOST_N);
        }
    CUDA_OK(cudaFreeHost(mapped));
    free(rows);
    return test_end();
}
