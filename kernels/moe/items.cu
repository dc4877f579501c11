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

/* One block; a warp has an expert (and every 32nd after it) and looks at 32 pairs together. It counts its
 * pairs; a thread an expert learns how many items stand before it; a warp writes its items in the order of
 * the pairs. */
static __global__ void __launch_bounds__(ITEM_THREADS)
    items_of_many(const uint32_t *ids, unsigned k, unsigned pairs, unsigned n_experts, expert_item *items,
                  uint32_t *n_items)
{
    __shared__ unsigned before[ITEM_THREADS], counts[ITEM_THREADS];
    const unsigned thread = threadIdx.x, lane = thread % 32, warp = thread / 32, warps = ITEM_THREADS / 32;
    unsigned base = 0;

    for (unsigned e0 = 0; e0 < n_experts; e0 += ITEM_THREADS) {
        const unsigned n_here = min(n_experts - e0, (unsigned)ITEM_THREADS);

        for (unsigned x = warp; x < n_here; x += warps) {
            unsigned count = 0;
#pragma unroll 8
            for (unsigned i = lane; i < pairs; i += 32)
                count += ids[i] == e0 + x;
            for (int d = 16; d; d /= 2)
                count += __shfl_xor_sync(~0u, count, d);
            if (lane == 0)
                counts[x] = count;
        }
        __syncthreads();
        before[thread] = thread < n_here ? (counts[thread] + EXPERT_TOKENS - 1) / EXPERT_TOKENS : 0;
        __syncthreads();
        for (unsigned d = 1; d < ITEM_THREADS; d *= 2) { /* inclusive sums */
            unsigned v = thread >= d ? before[thread - d] : 0;
            __syncthreads();
            before[thread] += v;
            __syncthreads();
        }
        for (unsigned x = warp; x < n_here; x += warps) {
            expert_item *it = items + base + (x ? before[x - 1] : 0);
            unsigned done = 0;

            for (unsigned i = lane; done < counts[x]; i += 32) {
                const bool mine = i < pairs && ids[i] == e0 + x;
                const unsigned all = __ballot_sync(~0u, mine), at = done + __popc(all & ((1u << lane) - 1));
                const unsigned j = at % EXPERT_TOKENS;

                if (mine) {
                    expert_item *to = it + at / EXPERT_TOKENS;
                    to->tok[j] = i / k;
                    to->row[j] = i;
                    if (j == 0) {
                        to->slot = e0 + x;
                        to->n_tok = min(counts[x] - at, (unsigned)EXPERT_TOKENS);
                    }
                }
                done += __popc(all);
            }
        }
        base += before[ITEM_THREADS - 1];
        __syncthreads();
    }
    if (thread == 0)
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
