/* Who is needed by whom: integers only. A step's few pairs, or a prompt's thousands, by one block.
 */
#include "kernels/moe/items_cuda.h"

enum { ITEM_THREADS = 1024 };

/* One token: an item a place. */
static __global__ void items_of_one(const uint32_t *ids, unsigned k, expert_item *items,
                                    uint32_t *n_items)
{
    for (unsigned p = threadIdx.x; p < k; p += blockDim.x) {
        items[p].slot = ids[p];
        items[p].n_tok = 1;
        items[p].tok[0] = 0;
        items[p].row[0] = p;
    }
    if (threadIdx.x == 0)
        *n_items = k;
}

/* One block; a thread has an expert (and every 1024th after it). It counts its pairs, learns how
 * many items stand before its own, and writes its items in the order of the pairs. */
static __global__ void items_of_many(const uint32_t *ids, unsigned k, unsigned pairs,
                                     unsigned n_experts, expert_item *items, uint32_t *n_items)
{
    __shared__ unsigned before[ITEM_THREADS];
    unsigned base = 0;

    for (unsigned e0 = 0; e0 < n_experts; e0 += ITEM_THREADS) {
        unsigned e = e0 + threadIdx.x, count = 0, mine, at;

        for (unsigned i = 0; e < n_experts && i < pairs; i++)
            count += ids[i] == e;
        mine = (count + EXPERT_TOKENS - 1) / EXPERT_TOKENS;
        before[threadIdx.x] = mine;
        __syncthreads();
        for (unsigned d = 1; d < ITEM_THREADS; d *= 2) { /* inclusive sums */
            unsigned v = threadIdx.x >= d ? before[threadIdx.x - d] : 0;
            __syncthreads();
            before[threadIdx.x] += v;
            __syncthreads();
        }
        at = base + before[threadIdx.x] - mine;
        count = 0;
        for (unsigned i = 0; mine && i < pairs; i++) {
            if (ids[i] != e)
                continue;
            expert_item *it = items + at + count / EXPERT_TOKENS;
            unsigned j = count % EXPERT_TOKENS;
            it->tok[j] = i / k;
            it->row[j] = i;
            if (j == 0)
                it->slot = e;
            it->n_tok = j + 1;
            count++;
        }
        base += before[ITEM_THREADS - 1];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *n_items = base;
}

void moe_items_cuda(const uint32_t *ids, unsigned k, unsigned n_tokens, unsigned n_experts,
                    struct expert_item *items, uint32_t *n_items, cudaStream_t s)
{
    if (n_tokens == 1)
        items_of_one<<<1, 32, 0, s>>>(ids, k, items, n_items);
    else if (n_tokens)
        items_of_many<<<1, ITEM_THREADS, 0, s>>>(ids, k, n_tokens * k, n_experts, items, n_items);
}
