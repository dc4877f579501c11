/* Rules 25, 26 and 37's arg-max on a card against the definition, by bits: ties, NaN, infinities,
 * every small n, many experts. */
#include "tests/cuda.h"
extern "C" {
#include "kernels/func/nasty.h"
#include "kernels/topk/topk.h"
}
#include "kernels/topk/topk_cuda.h"

#include <math.h>

enum { TOKENS = 7, MOST = ROUTER_CUDA_EXPERTS, WIDE = 160001 };
static float logits[TOKENS * MOST], bias[MOST], scores[TOKENS * MOST], select_by[MOST],
    w[TOKENS * MOST];
static float got_scores[TOKENS * MOST], got_w[TOKENS * MOST];
static uint32_t idx[TOKENS * MOST], got_idx[TOKENS * MOST];

static void fill(struct nasty *r, int kind, float *x, size_t n)
{
    nasty_fill(r, kind < 4 ? kind : 0, x, n);
    for (size_t i = 0; i < n && kind == 4; i++)
        x[i] = (float)(nasty_u32(r) % 5) - 2; /* ties everywhere */
}

static void router(struct nasty *r, int kind, unsigned n, unsigned k, int normalise, float scale)
{
    struct router_cuda c = {};
    float *dl, *db;

    fill(r, kind, logits, TOKENS * n);
    fill(r, kind == 2 ? 0 : kind, bias, n);
    dl = (float *)cuda_copy(logits, TOKENS * n * sizeof *logits);
    db = (float *)cuda_copy(bias, n * sizeof *bias);
    c.logits = dl;
    c.scores = (float *)cuda_room(TOKENS * n * sizeof *scores);
    c.idx = (uint32_t *)cuda_room(TOKENS * k * sizeof *idx);
    c.w = (float *)cuda_room(TOKENS * k * sizeof *w);
    c.n = n;
    c.k = k;
    c.n_tokens = TOKENS;
    c.normalise = normalise;
    c.floor = 0x1p-14f;
    c.scale = scale;
    for (int by = 0; by < 3; by++) { /* softmax, sigmoid, sigmoid with a bias */
        c.bias = by == 2 ? db : NULL;
        if (by)
            router_sigmoid_cuda(&c, NULL);
        else
            router_softmax_cuda(&c, NULL);
        CUDA_OK(cudaGetLastError());
        cuda_back(got_scores, c.scores, TOKENS * n * sizeof *scores);
        cuda_back(got_idx, c.idx, TOKENS * k * sizeof *idx);
        cuda_back(got_w, c.w, TOKENS * k * sizeof *w);
        for (int t = 0; t < TOKENS; t++)
            if (by)
                router_sigmoid(logits + t * n, c.bias ? bias : NULL, n, k, normalise, c.floor,
                               scale, scores + t * n, select_by, idx + t * k, w + t * k);
            else
                router_softmax(logits + t * n, n, k, normalise, c.floor, scale, scores + t * n,
                               idx + t * k, w + t * k);
        CHECK(!memcmp(scores, got_scores, TOKENS * n * sizeof *scores), "scores %d, n %u, kind %d",
              by, n, kind);
        CHECK(!memcmp(idx, got_idx, TOKENS * k * sizeof *idx), "choice %d, n %u, k %u, kind %d", by,
              n, k, kind);
        CHECK(!memcmp(w, got_w, TOKENS * k * sizeof *w), "weights %d, n %u, k %u, kind %d", by, n,
              k, kind);
    }
    CUDA_OK(cudaFree(dl));
    CUDA_OK(cudaFree(db));
    CUDA_OK(cudaFree(c.scores));
    CUDA_OK(cudaFree(c.idx));
    CUDA_OK(cudaFree(c.w));
}

static uint32_t first_of(const float *x, size_t n)
{
    uint32_t best = ARGMAX_NONE;

    for (size_t i = 0; i < n; i++)
        if (x[i] == x[i] && x[i] != -INFINITY && (best == ARGMAX_NONE || x[i] > x[best]))
            best = (uint32_t)i;
    return best;
}

static void best_of(struct nasty *r, float *x, size_t n, size_t ld)
{
    uint32_t got[TOKENS], *dbest = (uint32_t *)cuda_room(sizeof got);
    size_t bytes = TOKENS * argmax_cuda_scratch();
    void *scratch = cuda_room(bytes);
    float *dx;

    CUDA_OK(cudaMemset(scratch, 0, bytes));
    for (int kind = 0; kind < 6; kind++) {
        fill(r, kind == 5 ? 4 : kind, x, TOKENS * ld);
        for (size_t i = 0; i < n && kind == 5; i++) /* a row with nothing to take */
            x[i] = i % 2 ? -INFINITY : NAN;
        dx = (float *)cuda_copy(x, TOKENS * ld * sizeof *x);
        for (int again = 0; again < 2; again++) { /* the scratch is as it was */
            CUDA_OK(cudaMemset(dbest, 0x55, sizeof got));
            argmax_cuda(dx, ld, n, TOKENS, dbest, scratch, NULL);
            CUDA_OK(cudaGetLastError());
            cuda_back(got, dbest, sizeof got);
            for (int t = 0; t < TOKENS; t++)
                CHECK(got[t] == first_of(x + t * ld, n), "n %zu, kind %d, row %d: %u, wanted %u", n,
                      kind, t, got[t], first_of(x + t * ld, n));
        }
        CUDA_OK(cudaFree(dx));
    }
    CUDA_OK(cudaFree(scratch));
    CUDA_OK(cudaFree(dbest));
}

int main(void)
{
    struct nasty r = {61};
    float *x;

    if (!cuda_card())
        return test_end();
    for (int kind = 0; kind < 5; kind++) {
        for (unsigned n = 1; n <= 70; n += 3)
            router(&r, kind, n, 1 + n % 11 < n ? 1 + n % 11 : n, n % 2, n % 3 ? 1.0f : 2.5f);
        router(&r, kind, 128, 8, 1, 0);
        router(&r, kind, 512, 10, 1, 1);
        router(&r, kind, 1000, 64, 0, 2.5f);
        router(&r, kind, MOST, 8, 1, 1);
        router(&r, kind, 40, 40, 1, 1);
    }
    x = (float *)malloc((size_t)TOKENS * (WIDE + 3) * sizeof *x);
    best_of(&r, x, 1, 1);
    best_of(&r, x, 333, 340);
    best_of(&r, x, 5000, 5000);
    best_of(&r, x, WIDE, WIDE + 3);
    free(x);
    return test_end();
}
