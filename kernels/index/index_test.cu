/* Rule 30 on a card against the definition, by bits: pools of every small size and of more than 32
 * members, scores with and without weights of heads. */
#include "tests/cuda.h"
extern "C" {
#include "kernels/func/nasty.h"
#include "kernels/index/index.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/rope.h"
#include "kernels/topk/topk.h"
}
#include "kernels/index/index_cuda.h"

enum { ROWS = 400, MOST_D = 140, POOLS = 9, TOKENS = 3, HEADS = 7, MOST_POOLS = 5000 };
static float key[ROWS * MOST_D], gate[ROWS * MOST_D], bias[POOL_MEMBERS * MOST_D],
    want[POOLS * MOST_D];
static float got[TOKENS * MOST_POOLS], q[(TOKENS + 7) * HEADS * MOST_D], w[(TOKENS + 7) * HEADS];
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

/* Pools that end in runs, members from the tail and from the batch. */
static void pooled_in_runs(struct nasty *r, int kind, unsigned count, unsigned d)
{
    enum { T = 9, KEEP = 7, RUNS = 2, SEQS = 2, MANY = 30 };
    const struct run run[RUNS] = {{1, 0, 2, 3 * count - 1, 0, 1, 0}, {0, 2, T - 2, 2, 0, 0, 0}};
    size_t seq = 2 * KEEP * 2 * d, of_seq = (size_t)MANY * d;
    uint32_t n_runs = RUNS;
    struct pools_runs_cuda p = {};
    float *tail = key, *k = q, *g = w, *out = pk; /* rooms large enough */
    static float wide[T * MOST_D];

    g = wide;
    nasty_fill(r, kind, tail, SEQS * seq);
    nasty_fill(r, kind, k, T * d);
    nasty_fill(r, kind, g, T * d);
    nasty_fill(r, kind, bias, count * d);
    memset(out, 0x55, SEQS * of_seq * 4);
    p.tails.base = (float *)cuda_copy(tail, SEQS * seq * 4);
    p.tails.seq_floats = seq, p.tails.keep = KEEP, p.tails.n = 2 * d, p.tails.most_runs = RUNS;
    p.tails.run = (struct run *)cuda_copy(run, sizeof run);
    p.tails.n_runs = (uint32_t *)cuda_copy(&n_runs, 4);
    p.key = (float *)cuda_copy(k, T * d * 4);
    p.gate = (float *)cuda_copy(g, T * d * 4);
    p.bias = (float *)cuda_copy(bias, count * d * 4);
    p.pools = (float *)cuda_room(SEQS * of_seq * 4);
    p.seq_floats = of_seq, p.count = count, p.d = d, p.n_tokens = T;
    for (const struct run *x = run; x < run + RUNS; x++)
        for (uint32_t pool = x->pos / count; pool < (x->pos + x->n) / count; pool++) {
            const float *ks[POOL_MEMBERS], *gs[POOL_MEMBERS];
            for (uint32_t i = 0; i < count; i++) {
                uint32_t pos = pool * count + i;
                const float *old = tail + x->seq * seq + (x->from * KEEP + pos % KEEP) * 2 * d;
                ks[i] = pos < x->pos ? old : k + (x->first + pos - x->pos) * d;
                gs[i] = pos < x->pos ? old + d : g + (x->first + pos - x->pos) * d;
            }
            pool_gated(ks, gs, bias, count, d, out + x->seq * of_seq + (size_t)pool * d);
        }
    pools_runs_cuda(&p, NULL);
    CUDA_OK(cudaGetLastError());
    cuda_back(got, p.pools, SEQS * of_seq * 4);
    CHECK(!memcmp(got, out, SEQS * of_seq * 4), "pools of %u in runs, d %u, kind %d", count, d, kind);
    CUDA_OK(cudaFree(p.tails.base));
    CUDA_OK(cudaFree((void *)p.tails.run));
    CUDA_OK(cudaFree((void *)p.tails.n_runs));
    CUDA_OK(cudaFree((void *)p.key));
    CUDA_OK(cudaFree((void *)p.gate));
    CUDA_OK(cudaFree((void *)p.bias));
    CUDA_OK(cudaFree(p.pools));
}

/* The same of means, normed and rotated. */
static void means_in_runs(struct nasty *r, int kind, unsigned count, unsigned d, unsigned half)
{
    enum { T = 9, KEEP = 7, RUNS = 2, SEQS = 2, MANY = 30 };
    const struct run run[RUNS] = {{1, 0, 2, 3 * count - 1, 0, 1, 0}, {0, 2, T - 2, 2, 0, 0, 0}};
    size_t seq = 2 * KEEP * d, of_seq = (size_t)MANY * d, turns = (size_t)MANY * count * half;
    uint32_t n_runs = RUNS;
    struct mean_runs_cuda p = {};
    float *tail = key, *k = q, *out = pk, *turn = gate;

    nasty_fill(r, kind, tail, SEQS * seq);
    nasty_fill(r, kind, k, T * d);
    nasty_fill(r, kind, bias, d);
    nasty_fill(r, 0, turn, 2 * turns);
    memset(out, 0x55, SEQS * of_seq * 4);
    p.tails.base = (float *)cuda_copy(tail, SEQS * seq * 4);
    p.tails.seq_floats = seq, p.tails.keep = KEEP, p.tails.n = d, p.tails.most_runs = RUNS;
    p.tails.run = (struct run *)cuda_copy(run, sizeof run);
    p.tails.n_runs = (uint32_t *)cuda_copy(&n_runs, 4);
    p.key = (float *)cuda_copy(k, T * d * 4);
    p.norm = (float *)cuda_copy(bias, d * 4);
    p.cos = (float *)cuda_copy(turn, 2 * turns * 4 + 4);
    p.sin = p.cos + turns;
    p.pools = (float *)cuda_room(SEQS * of_seq * 4);
    p.eps = 1e-6f, p.seq_floats = of_seq, p.count = count, p.d = d, p.half = half, p.n_tokens = T;
    for (const struct run *x = run; x < run + RUNS; x++)
        for (uint32_t pool = x->pos / count; pool < (x->pos + x->n) / count; pool++) {
            const float *ks[POOL_MEMBERS];
            float *to = out + x->seq * of_seq + (size_t)pool * d;
            for (uint32_t i = 0; i < count; i++) {
                uint32_t pos = pool * count + i;
                ks[i] = pos < x->pos ? tail + x->seq * seq + (x->from * KEEP + pos % KEEP) * d
                                     : k + (x->first + pos - x->pos) * d;
            }
            pool_mean(ks, count, d, to);
            rms_norm_ref(to, bias, to, d, 1e-6f);
            rope_neox_ref(to, 2 * half, turn + (size_t)pool * count * half, turn + turns + (size_t)pool * count * half);
        }
    mean_runs_cuda(&p, NULL);
    CUDA_OK(cudaGetLastError());
    cuda_back(got, p.pools, SEQS * of_seq * 4);
    CHECK(!memcmp(got, out, SEQS * of_seq * 4), "means of %u in runs, d %u, %u pairs, kind %d", count, d, half, kind);
    CUDA_OK(cudaFree(p.tails.base));
    CUDA_OK(cudaFree((void *)p.tails.run));
    CUDA_OK(cudaFree((void *)p.tails.n_runs));
    CUDA_OK(cudaFree((void *)p.key));
    CUDA_OK(cudaFree((void *)p.norm));
    CUDA_OK(cudaFree((void *)p.cos));
    CUDA_OK(cudaFree(p.pools));
}

static int ascending(const void *a, const void *b)
{
    return *(const uint32_t *)a < *(const uint32_t *)b ? -1 : 1;
}

/* Lists of ten tokens, some of which see no more pools than are chosen; scores with many equal ones. */
static void listed(struct nasty *r, int kind, unsigned count, unsigned most, unsigned longest)
{
    enum { T = 10, D = 13, H = 2 };
    size_t of_seq = (size_t)MOST_POOLS * D, ldl = 1 + (most + 1) * count;
    uint32_t pos[T], seq[T], chosen[MOST_POOLS], *want = (uint32_t *)calloc(ldl, 4),
             *lists = (uint32_t *)malloc(T * ldl * 4);
    struct index_lists_cuda x = {};

    nasty_fill(r, kind, q, T * H * D);
    nasty_fill(r, kind, w, T * H);
    nasty_fill(r, kind, pk, 2 * of_seq);
    for (unsigned b = 0; b < 2 * MOST_POOLS; b += 3) /* the same key again: the lower index is first */
        memcpy(pk + b * D, pk + b / 2 * D, D * 4);
    for (unsigned t = 0; t < T; t++) {
        pos[t] = t < 2 ? nasty_u32(r) % (most * count) : nasty_u32(r) % (longest * count);
        seq[t] = t % 2;
    }
    x.q = (float *)cuda_copy(q, T * H * D * 4);
    x.w = (float *)cuda_copy(w, T * H * 4);
    x.pools = (float *)cuda_copy(pk, 2 * of_seq * 4);
    x.seq_floats = of_seq;
    x.pos = (uint32_t *)cuda_copy(pos, sizeof pos);
    x.seq = (uint32_t *)cuda_copy(seq, sizeof seq);
    x.n_heads = H, x.d = D, x.count = count, x.most = most, x.n_tokens = T, x.scale = 0.3f;
    x.score = (float *)cuda_room(INDEX_LIST_TOKENS * MOST_POOLS * 4);
    x.lds = MOST_POOLS;
    x.list = (uint32_t *)cuda_room(T * ldl * 4);
    x.ldl = ldl;
    index_lists_cuda(&x, NULL);
    CUDA_OK(cudaGetLastError());
    cuda_back(lists, x.list, T * ldl * 4);
    for (unsigned t = 0; t < T; t++) {
        unsigned full = (pos[t] + 1) / count, k = 1;
        if (full <= most) {
            CHECK(lists[t * ldl] == INDEX_LIST_ALL, "token %u of %u pools", t, full);
            continue;
        }
        index_scores_ref(q + t * H * D, w + t * H, pk + seq[t] * of_seq, D, full, H, D, 0.3f, score);
        order_topk_ref(score, full, most, chosen);
        qsort(chosen, most, sizeof *chosen, ascending);
        for (unsigned i = 0; i < most * count; i++)
            want[k++] = chosen[i / count] * count + i % count;
        for (uint32_t p = full * count; p <= pos[t]; p++)
            want[k++] = p;
        want[0] = k - 1;
        CHECK(!memcmp(want, lists + t * ldl, k * 4), "list of token %u: %u of %u pools, kind %d", t, most, full, kind);
    }
    CUDA_OK(cudaFree((void *)x.q));
    CUDA_OK(cudaFree((void *)x.w));
    CUDA_OK(cudaFree((void *)x.pools));
    CUDA_OK(cudaFree((void *)x.pos));
    CUDA_OK(cudaFree((void *)x.seq));
    CUDA_OK(cudaFree(x.score));
    CUDA_OK(cudaFree(x.list));
    free(want), free(lists);
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
        pooled_in_runs(&r, kind, 4, 128);
        pooled_in_runs(&r, kind, 3, 50);
        means_in_runs(&r, kind, 4, 128, 16);
        means_in_runs(&r, kind, 3, 50, 25);
        listed(&r, kind, 4, 512, MOST_POOLS - 1);
        listed(&r, kind, 3, 7, 40);
        listed(&r, kind, 1, 1, 3000);
    }
    return test_end();
}
