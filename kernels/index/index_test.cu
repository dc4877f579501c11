/* Rule 30 on a card against the definition, by bits: pools of every small size and of more than 32
 * members, scores with and without weights of heads. */
#include "tests/cuda.h"
extern "C" {
#include "kernels/func/nasty.h"
#include "kernels/index/index.h"
}
#include "kernels/index/index_cuda.h"

enum { ROWS = 400, MOST_D = 140, POOLS = 9, TOKENS = 3, HEADS = 7, MOST_POOLS = 5000 };
static float key[ROWS * MOST_D], gate[ROWS * MOST_D], bias[POOL_MEMBERS * MOST_D],
    want[POOLS * MOST_D];
static float got[TOKENS * MOST_POOLS], q[TOKENS * HEADS * MOST_D], w[TOKENS * HEADS];
static float pk[MOST_POOLS * MOST_D], score[TOKENS * MOST_POOLS];

static void pooled(struct nasty *r, int kind, unsigned count, size_t d)
{
    uint32_t first[POOLS];
    const float *k[POOL_MEMBERS], *g[POOL_MEMBERS];
    float *dkey, *dgate, *dbias, *dpk = (float *)cuda_room(sizeof want);
    uint32_t *dfirst;

    for (int i = 0; i < POOLS; i++)
        first[i] = nasty_u32(r) % (ROWS - count + 1);
    nasty_fill(r, kind, key, ROWS * d);
    nasty_fill(r, kind, gate, ROWS * d);
    nasty_fill(r, kind, bias, count * d);
    dkey = (float *)cuda_copy(key, sizeof key);
    dgate = (float *)cuda_copy(gate, sizeof gate);
    dbias = (float *)cuda_copy(bias, sizeof bias);
    dfirst = (uint32_t *)cuda_copy(first, sizeof first);
    for (int how = 0; how < 3; how++) { /* mean, gated, gated with a bias */
        pools_cuda(dkey, how ? dgate : NULL, d, how == 2 ? dbias : NULL, dfirst, count, d, dpk,
                   POOLS, NULL);
        CUDA_OK(cudaGetLastError());
        for (int i = 0; i < POOLS; i++) {
            for (unsigned s = 0; s < count; s++) {
                k[s] = key + (first[i] + s) * d;
                g[s] = gate + (first[i] + s) * d;
            }
            if (how)
                pool_gated(k, g, how == 2 ? bias : NULL, count, d, want + i * d);
            else
                pool_mean(k, count, d, want + i * d);
        }
        cuda_back(got, dpk, POOLS * d * 4);
        CHECK(!memcmp(got, want, POOLS * d * 4), "pools of %u, way %d, d %zu, kind %d", count, how,
              d, kind);
    }
    CUDA_OK(cudaFree(dkey));
    CUDA_OK(cudaFree(dgate));
    CUDA_OK(cudaFree(dbias));
    CUDA_OK(cudaFree(dfirst));
    CUDA_OK(cudaFree(dpk));
}

static void scored(struct nasty *r, int kind, unsigned d, unsigned heads, int weighted)
{
    uint32_t n[TOKENS] = {MOST_POOLS, 1 + nasty_u32(r) % 100, 0},
             *dn = (uint32_t *)cuda_copy(n, sizeof n);
    size_t stride = d + 3;
    float *dq, *dw, *dpk, *dscore = (float *)cuda_room(sizeof score);

    if (stride > MOST_D)
        stride = d;
    nasty_fill(r, kind, q, TOKENS * heads * d);
    nasty_fill(r, kind, w, TOKENS * heads);
    nasty_fill(r, kind, pk, MOST_POOLS * stride);
    dq = (float *)cuda_copy(q, sizeof q);
    dw = (float *)cuda_copy(w, sizeof w);
    dpk = (float *)cuda_copy(pk, sizeof pk);
    memset(score, 0x55, sizeof score);
    for (int t = 0; t < TOKENS; t++)
        index_scores_ref(q + t * heads * d, weighted ? w + t * heads : NULL, pk, stride, n[t],
                         heads, d, 0.3f, score + t * MOST_POOLS);
    index_scores_cuda(dq, weighted ? dw : NULL, dpk, stride, dn, heads, d, 0.3f, dscore, MOST_POOLS,
                      TOKENS, NULL);
    CUDA_OK(cudaGetLastError());
    cuda_back(got, dscore, sizeof score);
    CHECK(!memcmp(got, score, sizeof score), "scores, d %u, %u heads, kind %d", d, heads, kind);
    CUDA_OK(cudaFree(dn));
    CUDA_OK(cudaFree(dq));
    CUDA_OK(cudaFree(dw));
    CUDA_OK(cudaFree(dpk));
    CUDA_OK(cudaFree(dscore));
}

int main(void)
{
    static const unsigned counts[] = {1, 2, 4, 7, 16, 32, 33, 64, 200, POOL_MEMBERS};
    struct nasty r = {131};

    if (!cuda_card())
        return test_end();
    for (int kind = 0; kind < 4; kind++) {
        for (unsigned count : counts)
            pooled(&r, kind, count, count % 2 ? 37 : 128);
        scored(&r, kind, 128, HEADS, 1);
        scored(&r, kind, 64, 3, 0);
        scored(&r, kind, 13, 1, 1);
    }
    return test_end();
}
