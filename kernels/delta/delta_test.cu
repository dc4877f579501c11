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
    return test_end();
}
