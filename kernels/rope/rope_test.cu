/* Rule 24 on a card against the definition, by bits: whole and partial rotations, odd head counts,
 * positions in any order. */
#include "tests/cuda.h"
extern "C" {
#include "kernels/func/nasty.h"
#include "kernels/rope/rope.h"
}
#include "kernels/rope/rope_cuda.h"

enum { CTX = 300, TOKENS = 9 };
static float x[TOKENS * 5000], got[TOKENS * 5000], c[CTX * 64], s[CTX * 64];

static void check(struct nasty *r, int kind, unsigned heads, unsigned hd, unsigned n_rot,
                  unsigned extra)
{
    size_t ld = heads * hd + extra, all = TOKENS * ld;
    uint32_t pos[TOKENS], *dpos;
    float *dx, *dc, *ds;

    for (int p = 0; p < CTX; p++)
        rope_row_ref(1e6, n_rot, p, c + p * (n_rot / 2), s + p * (n_rot / 2));
    for (int t = 0; t < TOKENS; t++)
        pos[t] = nasty_u32(r) % CTX;
    nasty_fill(r, kind, x, all);
    dx = (float *)cuda_copy(x, all * sizeof *x);
    dc = (float *)cuda_copy(c, sizeof c);
    ds = (float *)cuda_copy(s, sizeof s);
    dpos = (uint32_t *)cuda_copy(pos, sizeof pos);
    rope_neox_cuda(dx, ld, heads, hd, n_rot, dc, ds, dpos, TOKENS, NULL);
    CUDA_OK(cudaGetLastError());
    cuda_back(got, dx, all * sizeof *got);
    for (int t = 0; t < TOKENS; t++)
        for (unsigned h = 0; h < heads; h++)
            rope_neox_ref(x + t * ld + h * hd, n_rot, c + pos[t] * (n_rot / 2),
                          s + pos[t] * (n_rot / 2));
    CHECK(!memcmp(x, got, all * sizeof *x), "%u heads of %u, %u rotated, kind %d", heads, hd, n_rot,
          kind);
    CUDA_OK(cudaFree(dx));
    CUDA_OK(cudaFree(dc));
    CUDA_OK(cudaFree(ds));
    CUDA_OK(cudaFree(dpos));
}

int main(void)
{
    struct nasty r = {41};

    if (!cuda_card())
        return test_end();
    for (int kind = 0; kind < 4; kind++) {
        check(&r, kind, 1, 2, 2, 0);
        check(&r, kind, 32, 128, 128, 0);
        check(&r, kind, 3, 80, 34, 5);
        check(&r, kind, 7, 64, 64, 1);
        check(&r, kind, 4, 96, 32, 0);
    }
    return test_end();
}
