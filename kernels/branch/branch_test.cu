/* The branches' gates on a card against the definition, by bits. */
#include "tests/cuda.h"
extern "C" {
#include "kernels/func/nasty.h"
}
#include "kernels/branch/branch_cuda.h"

enum { TOKENS = 3, MOST = 5, D = 333 };
static float g[TOKENS * MOST * D], x[TOKENS * MOST * D], v[TOKENS * D], want[TOKENS * MOST * D], got[TOKENS * MOST * D];

static void check(struct nasty *r, int kind, unsigned n, size_t d)
{
    float *dg, *dx, *dv, *out = (float *)cuda_room(sizeof got);

    nasty_fill(r, kind, g, TOKENS * n * d);
    nasty_fill(r, kind, x, TOKENS * n * d);
    nasty_fill(r, kind, v, TOKENS * d);
    dg = (float *)cuda_copy(g, sizeof g);
    dx = (float *)cuda_copy(x, sizeof x);
    dv = (float *)cuda_copy(v, sizeof v);
    branch_mean_cuda(dg, dx, n, d, out, TOKENS, NULL);
    CUDA_OK(cudaGetLastError());
    for (size_t t = 0; t < TOKENS; t++)
        branch_mean_ref(g + t * n * d, x + t * n * d, n, d, want + t * d);
    cuda_back(got, out, TOKENS * d * 4);
    CHECK(!memcmp(got, want, TOKENS * d * 4), "mean, %u x %zu, kind %d", n, d, kind);
    branch_gate_cuda(dg, dx, dv, 0.3f, n, d, out, TOKENS, NULL);
    CUDA_OK(cudaGetLastError());
    for (size_t t = 0; t < TOKENS; t++)
        branch_gate_ref(g + t * n * d, x + t * n * d, v + t * d, 0.3f, n, d, want + t * n * d);
    cuda_back(got, out, TOKENS * n * d * 4);
    CHECK(!memcmp(got, want, TOKENS * n * d * 4), "gate, %u x %zu, kind %d", n, d, kind);
    CUDA_OK(cudaFree(dg));
    CUDA_OK(cudaFree(dx));
    CUDA_OK(cudaFree(dv));
    CUDA_OK(cudaFree(out));
}

int main(void)
{
    struct nasty r = {141};

    if (!cuda_card())
        return test_end();
    for (int kind = 0; kind < 4; kind++)
        for (unsigned n = 1; n <= MOST; n++)
            for (size_t d = 1; d <= D; d = d * 3 + 2)
                check(&r, kind, n, d);
    return test_end();
}
