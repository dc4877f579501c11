/* A layer's items made on the card against a plain walk. */
#include "tests/cuda.h"
extern "C" {
#include "kernels/func/nasty.h"
}
#include "kernels/moe/items_cuda.h"

/* Items: every pair once, in its expert's item, in order; the same as a plain walk makes them. */
static void items(struct nasty *r, unsigned n_tokens, unsigned k, unsigned n_experts)
{
    unsigned pairs = n_tokens * k, want = 0, wrong = 0;
    uint32_t *ids = (uint32_t *)malloc(pairs * sizeof *ids), *dids, *dn = (uint32_t *)cuda_room(4),
             n;
    struct expert_item *got = (struct expert_item *)malloc(pairs * sizeof *got);
    struct expert_item *ditems = (struct expert_item *)cuda_room(pairs * sizeof *ditems);

    for (unsigned t = 0; t < n_tokens; t++)
        for (unsigned p = 0; p < k; p++) /* k different ones */
            ids[t * k + p] =
                p ? (ids[t * k + p - 1] + 1 + nasty_u32(r) % (n_experts / k)) % n_experts
                  : nasty_u32(r) % n_experts;
    dids = (uint32_t *)cuda_copy(ids, pairs * sizeof *ids);
    moe_items_cuda(dids, k, n_tokens, n_experts, ditems, dn, NULL);
    CUDA_OK(cudaGetLastError());
    cuda_back(got, ditems, pairs * sizeof *got);
    cuda_back(&n, dn, 4);
    for (unsigned e = 0; n_tokens > 1 && e < n_experts; e++)
        for (unsigned i = 0, count = 0; i < pairs; i++)
            if (ids[i] == e) {
                const struct expert_item *it = &got[want += count && count % EXPERT_TOKENS == 0];
                unsigned j = count++ % EXPERT_TOKENS, last = 1;
                for (unsigned v = i + 1; v < pairs; v++)
                    last &= ids[v] != e;
                wrong += it->slot != e || it->tok[j] != i / k || it->row[j] != i ||
                         (last && it->n_tok != j + 1) || it->n_tok > EXPERT_TOKENS;
                want += last;
            }
    for (unsigned p = 0; n_tokens == 1 && p < k; p++, want++)
        wrong += got[p].slot != ids[p] || got[p].n_tok != 1 || got[p].tok[0] || got[p].row[0] != p;
    CHECK(!wrong && n == want, "%u tokens, %u of %u experts: %u wrong, %u items, wanted %u",
          n_tokens, k, n_experts, wrong, n, want);
    CUDA_OK(cudaFree(dids));
    CUDA_OK(cudaFree(ditems));
    CUDA_OK(cudaFree(dn));
    free(ids);
    free(got);
}

int main(void)
{
    struct nasty r = {53};

    if (!cuda_card())
        return test_end();
    for (unsigned t = 1; t <= 8; t++) {
        items(&r, t, 8, 128);
        items(&r, t, 3, 12);
        items(&r, t, 10, 1030);
    }
    items(&r, 100, 8, 64);
    items(&r, 37, 4, 1500);
    return test_end();
}
