/* Rule 33 on a card against the definition, by bits: every number of streams. */
#include "tests/cuda.h"
extern "C" {
#include "kernels/func/nasty.h"
}
#include "kernels/hyper/hyper_cuda.h"

enum { TOKENS = 4, MOST = HYPER_STREAMS, D = 333, M = 2 * MOST + MOST * MOST };
static float m[TOKENS * M], base[M], mix[TOKENS * M];
static float X[TOKENS * MOST * D], x[TOKENS * D], y[TOKENS * D], got[TOKENS * MOST * D];

static void check(struct nasty *r, int kind, unsigned n, size_t d, int iterations)
{
    float scale[3], *dm, *dbase, *dscale, *dmix, *dX, *dx, *dy;
    size_t w = 2 * n + n * n;

    nasty_fill(r, kind, m, TOKENS * w);
    nasty_fill(r, kind, base, w);
    nasty_fill(r, 0, scale, 3);
    nasty_fill(r, kind, X, TOKENS * n * d);
    nasty_fill(r, kind, y, TOKENS * d);
    dm = (float *)cuda_copy(m, sizeof m);
    dbase = (float *)cuda_copy(base, sizeof base);
    dscale = (float *)cuda_copy(scale, sizeof scale);
    dX = (float *)cuda_copy(X, sizeof X);
    dy = (float *)cuda_copy(y, sizeof y);
    dmix = (float *)cuda_room(sizeof mix);
    dx = (float *)cuda_room(sizeof x);
    hyper_mix_cuda(dm, dscale, dbase, n, 1e-6f, iterations, dmix, TOKENS, NULL);
    CUDA_OK(cudaGetLastError());
    for (int t = 0; t < TOKENS; t++) {
        float *pre = mix + t * w;
        hyper_mix(m + t * w, scale, base, n, 1e-6f, iterations, pre, pre + n, pre + 2 * n);
    }
    cuda_back(got, dmix, TOKENS * w * 4);
    CHECK(!memcmp(got, mix, TOKENS * w * 4), "pre, post, C: %u streams, %d iterations, kind %d", n,
          iterations, kind);
    hyper_collapse_cuda(dmix, dX, n, d, dx, TOKENS, NULL);
    for (int t = 0; t < TOKENS; t++)
        hyper_collapse_ref(mix + t * w, X + t * n * d, n, d, x + t * d);
    cuda_back(got, dx, TOKENS * d * 4);
    CHECK(!memcmp(got, x, TOKENS * d * 4), "collapse, %u streams, kind %d", n, kind);
    hyper_expand_cuda(dmix, dy, dX, n, d, TOKENS, NULL);
    for (int t = 0; t < TOKENS; t++)
        hyper_expand_ref(mix + t * w + n, mix + t * w + 2 * n, y + t * d, X + t * n * d, n, d);
    cuda_back(got, dX, TOKENS * n * d * 4);
    CHECK(!memcmp(got, X, TOKENS * n * d * 4), "expand, %u streams, kind %d", n, kind);
    hyper_mean_cuda(dX, n, d, dx, TOKENS, NULL);
    CUDA_OK(cudaGetLastError());
    for (int t = 0; t < TOKENS; t++)
        hyper_mean_ref(X + t * n * d, n, d, x + t * d);
    cuda_back(got, dx, TOKENS * d * 4);
    CHECK(!memcmp(got, x, TOKENS * d * 4), "mean, %u streams, kind %d", n, kind);
    CUDA_OK(cudaFree(dm));
    CUDA_OK(cudaFree(dbase));
    CUDA_OK(cudaFree(dscale));
    CUDA_OK(cudaFree(dX));
    CUDA_OK(cudaFree(dy));
    CUDA_OK(cudaFree(dmix));
    CUDA_OK(cudaFree(dx));
}

int main(void)
{
    struct nasty r = {121};

    if (!cuda_card())
        return test_end();
    for (int kind = 0; kind < 4; kind++)
        for (unsigned n = 1; n <= MOST; n++)
            check(&r, kind, n, n % 3 ? (size_t)D : 128, n % 4 ? 20 : 1);
    return test_end();
}
