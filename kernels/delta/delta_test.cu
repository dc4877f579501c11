/* Rule 31 on a card against the definition, by bits: several sequences in one batch, several
 * tokens, odd sizes, more keys than stay in registers, state in place and apart. */
#include "tests/cuda.h"
extern "C" {
#include "kernels/delta/delta.h"
#include "kernels/func/nasty.h"
}
#include "kernels/delta/delta_cuda.h"

enum { TOKENS = 6, SLOTS = 3 };

static float *filled(struct nasty *r, int kind, size_t n, float scale)
{
    float *x = (float *)malloc(n * sizeof *x);

    nasty_fill(r, kind, x, n);
    for (size_t i = 0; i < n && kind == 0; i++)
        x[i] *= scale;
    return x;
}

static void check(struct nasty *r, int kind, unsigned heads, unsigned n_k, unsigned n_v, int a_one,
                  int in_place)
{
    size_t state = (size_t)SLOTS * heads * n_k * n_v,
           n_a = (size_t)TOKENS * heads * (a_one ? 1 : n_k);
    size_t keys = (size_t)TOKENS * heads * n_k, vals = (size_t)TOKENS * heads * n_v;
    float *s0 = filled(r, kind, state, 0.1f), *a = filled(r, kind, n_a, 0.1f),
          *q = filled(r, kind, keys, 0.1f);
    float *key = filled(r, kind, keys, 0.1f), *value = filled(r, kind, vals, 1);
    float *beta = filled(r, kind, TOKENS * heads, 0.1f), *want = (float *)malloc(state * 4);
    float *o = (float *)malloc(vals * 4), *got = (float *)malloc((state > vals ? state : vals) * 4);
    uint32_t seq[TOKENS] = {0, 2, 2, 0, 2, 2}; /* slot 1 has none */
    struct delta_cuda d = {};

    d.from = (float *)cuda_copy(s0, state * 4);
    d.to = in_place ? (float *)d.from : (float *)cuda_room(state * 4);
    d.heads = heads, d.n_k = n_k, d.n_v = n_v, d.n_slots = SLOTS, d.n_tokens = TOKENS;
    d.seq = (uint32_t *)cuda_copy(seq, sizeof seq);
    d.a = (float *)cuda_copy(a, n_a * 4);
    d.q = (float *)cuda_copy(q, keys * 4);
    d.key = (float *)cuda_copy(key, keys * 4);
    d.value = (float *)cuda_copy(value, vals * 4);
    d.beta = (float *)cuda_copy(beta, TOKENS * heads * 4);
    d.a_one = a_one;
    d.o = (float *)cuda_room(vals * 4);
    memset(want, 0x55, state * 4);
    for (unsigned t = 0, seen[SLOTS] = {}; t < TOKENS; t++)
        for (unsigned h = 0; h < heads; h++) {
            size_t at = ((size_t)seq[t] * heads + h) * n_k * n_v, head = (size_t)t * heads + h;
            if (h == 0)
                seen[seq[t]]++;
            delta_rule_ref(seen[seq[t]] == 1 ? s0 + at : want + at, want + at, n_v,
                           a + head * (a_one ? 1 : n_k), a_one, q + head * n_k, key + head * n_k,
                           value + head * n_v, beta[head], n_k, n_v, o + head * n_v);
        }
    if (in_place)
        memcpy(want + state / SLOTS, s0 + state / SLOTS, state / SLOTS * 4);
    delta_rule_cuda(&d, NULL);
    CUDA_OK(cudaGetLastError());
    cuda_back(got, d.o, vals * 4);
    CHECK(!memcmp(got, o, vals * 4), "o: %u heads, %u x %u, kind %d", heads, n_k, n_v, kind);
    cuda_back(got, d.to, state * 4);
    CHECK(!memcmp(got, want, state * 4), "state: %u heads, %u x %u, kind %d", heads, n_k, n_v,
          kind);
    if (!in_place)
        CUDA_OK(cudaFree(d.to));
    CUDA_OK(cudaFree((void *)d.from));
    CUDA_OK(cudaFree((void *)d.seq));
    CUDA_OK(cudaFree((void *)d.a));
    CUDA_OK(cudaFree((void *)d.q));
    CUDA_OK(cudaFree((void *)d.key));
    CUDA_OK(cudaFree((void *)d.value));
    CUDA_OK(cudaFree((void *)d.beta));
    CUDA_OK(cudaFree(d.o));
    free(s0), free(a), free(q), free(key), free(value), free(beta), free(want), free(o), free(got);
}

/* ---- two versions ---- */

enum { KEPT = 4, STEPS = 4 };

struct versions {
    unsigned heads, k_heads, n_k, n_v;
    int a_one;
    size_t matrix, rec, seq_floats;
};
static float *version(const struct versions *v, float *state, uint32_t seq, unsigned which)
{
    return state + seq * v->seq_floats + which * v->matrix;
}
static float *kept(const struct versions *v, float *state, uint32_t seq, unsigned which, unsigned token, unsigned h)
{
    return state + seq * v->seq_floats + 2 * v->matrix + which * KEPT * v->heads * v->rec +
           (token * v->heads + h) * v->rec;
}

/* What the launch must do, one head of one run, by the definition. */
static void one_head(const struct versions *v, float *state, const struct run *r, unsigned h, const float *a,
                     const float *q, const float *key, const float *value, const float *beta, float *o, float *nobody)
{
    size_t at = (size_t)h * v->n_k * v->n_v, n_a = v->a_one ? 1 : v->n_k;
    float *from = version(v, state, r->seq, r->from) + at, *to = version(v, state, r->seq, r->from ^ 1) + at;

    if (r->zero)
        memset(from, 0, v->n_k * v->n_v * sizeof *from);
    for (unsigned t = 0; t < r->redo; t++) {
        float *k = kept(v, state, r->seq, r->from, t, h);
        delta_rule_ref(t ? from : to, from, v->n_v, k + v->n_k + v->n_v, v->a_one, k, k, k + v->n_k,
                       k[v->n_k + v->n_v + n_a], v->n_k, v->n_v, nobody);
    }
    for (unsigned i = 0; i < r->n; i++) {
        size_t t = r->first + i, head = t * v->heads + h, k_head = t * v->k_heads + h % v->k_heads;
        float *k = kept(v, state, r->seq, r->from ^ 1, i, h);
        delta_rule_ref(i ? to : from, to, v->n_v, a + head * n_a, v->a_one, q + k_head * v->n_k,
                       key + k_head * v->n_k, value + head * v->n_v, beta[head], v->n_k, v->n_v, o + head * v->n_v);
        if (r->n > KEPT)
            continue;
        memcpy(k, key + k_head * v->n_k, v->n_k * sizeof *k);
        memcpy(k + v->n_k, value + head * v->n_v, v->n_v * sizeof *k);
        memcpy(k + v->n_k + v->n_v, a + head * n_a, n_a * sizeof *k);
        k[v->n_k + v->n_v + n_a] = beta[head];
    }
}

/* Steps of two sequences: a beginning, all taken, some rejected, a prompt's. */
static void check_runs(struct nasty *r, int kind, unsigned heads, unsigned k_heads, unsigned n_k, unsigned n_v,
                       int a_one)
{
    static const struct run steps[STEPS][2] = {{{2, 0, 3, 0, 0, 0, 1}, {0, 3, 2, 5, 0, 1, 0}},
                                               {{0, 0, 1, 6, 1, 0, 0}, {2, 1, 4, 2, 2, 1, 0}},
                                               {{2, 0, 6, 6, 0, 0, 0}, {0, 6, 0, 0, 0, 0, 0}},
                                               {{2, 0, 2, 12, 0, 1, 0}, {0, 2, 4, 7, 0, 1, 0}}};
    static const uint32_t n_runs[STEPS] = {2, 2, 1, 2}, n_tokens[STEPS] = {5, 5, 6, 6};
    struct versions v = {heads, k_heads, n_k, n_v, a_one, (size_t)heads * n_k * n_v,
                         delta_kept_floats(n_k, n_v, a_one ? 1 : n_k), 0};
    size_t all, n_a = a_one ? 1 : n_k;
    struct delta_runs_cuda d = {};
    float *state, *got, *nobody = (float *)malloc(n_v * 4);

    v.seq_floats = 2 * (v.matrix + KEPT * heads * v.rec);
    all = SLOTS * v.seq_floats;
    state = filled(r, kind, all, 0.1f);
    got = (float *)malloc(all * 4);
    d.state = (float *)cuda_copy(state, all * 4);
    d.seq_floats = v.seq_floats;
    d.heads = heads, d.k_heads = k_heads, d.n_k = n_k, d.n_v = n_v, d.most_kept = KEPT;
    d.most_runs = 2, d.a_one = a_one;
    for (int i = 0; i < STEPS; i++) {
        unsigned T = n_tokens[i];
        float *a = filled(r, kind, T * heads * n_a, 0.1f), *q = filled(r, kind, T * k_heads * n_k, 0.1f);
        float *key = filled(r, kind, T * k_heads * n_k, 0.1f), *value = filled(r, kind, T * heads * n_v, 1);
        float *beta = filled(r, kind, T * heads, 0.1f), *o = (float *)malloc(T * heads * n_v * 4);
        float *got_o = (float *)malloc(T * heads * n_v * 4);

        d.run = (struct run *)cuda_copy(steps[i], sizeof steps[i]);
        d.n_runs = (uint32_t *)cuda_copy(&n_runs[i], 4);
        d.a = (float *)cuda_copy(a, T * heads * n_a * 4);
        d.q = (float *)cuda_copy(q, T * k_heads * n_k * 4);
        d.key = (float *)cuda_copy(key, T * k_heads * n_k * 4);
        d.value = (float *)cuda_copy(value, T * heads * n_v * 4);
        d.beta = (float *)cuda_copy(beta, T * heads * 4);
        d.o = (float *)cuda_room(T * heads * n_v * 4);
        for (uint32_t k = 0; k < n_runs[i]; k++)
            for (unsigned h = 0; h < heads; h++)
                one_head(&v, state, &steps[i][k], h, a, q, key, value, beta, o, nobody);
        delta_runs_cuda(&d, NULL);
        CUDA_OK(cudaGetLastError());
        cuda_back(got_o, d.o, T * heads * n_v * 4);
        CHECK(!memcmp(got_o, o, T * heads * n_v * 4), "runs, step %d: o: %u x %u, kind %d", i, n_k, n_v, kind);
        cuda_back(got, d.state, all * 4);
        CHECK(!memcmp(got, state, all * 4), "runs, step %d: state: %u x %u, kind %d", i, n_k, n_v, kind);
        CUDA_OK(cudaFree((void *)d.run));
    CUDA_OK(cudaFree((void *)d.n_runs));
    CUDA_OK(cudaFree((void *)d.a));
        CUDA_OK(cudaFree((void *)d.q));
    CUDA_OK(cudaFree((void *)d.key));
    CUDA_OK(cudaFree((void *)d.value));
        CUDA_OK(cudaFree((void *)d.beta));
    CUDA_OK(cudaFree(d.o));
        free(a), free(q), free(key), free(value), free(beta), free(o), free(got_o);
    }
    CUDA_OK(cudaFree(d.state));
    free(state), free(got), free(nobody);
}

int main(void)
{
    struct nasty r = {101};

    if (!cuda_card())
        return test_end();
    for (int kind = 0; kind < 4; kind++)
        for (int in_place = 0; in_place < 2; in_place++) {
            check(&r, kind, 4, 128, 128, 0, in_place);
            check(&r, kind, 3, 64, 40, 1, in_place);
            check(&r, kind, 1, 7, 5, 0, in_place);
            check(&r, kind, 2, 201, 33, 1, in_place);
            check(&r, kind, 2, 301, 70, 0, in_place);
        }
    for (int kind = 0; kind < 3; kind++) {
        check_runs(&r, kind, 4, 4, 128, 128, 0);
        check_runs(&r, kind, 6, 2, 64, 40, 1);
        check_runs(&r, kind, 2, 1, 201, 33, 0);
    }
    return test_end();
}
