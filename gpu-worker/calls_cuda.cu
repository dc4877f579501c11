/* Who makes which expert is decided by one block of calls_cuda_publish; the others carry activations. What
 * the kernels of a layer tell each other lies in `struct state`, device memory, so that a recorded list
 * serves every step: the calls' numbers go on there, by one for each call that is published. */
#include "gpu-worker/calls_cuda.cuh"

#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

#include "gpu-worker/calls_watch.h"
#include "gpu-worker/handoff.cuh"
#include "kernels/moe/sum.cuh"

enum {
    FEW_THREADS = 256,   /* of a block that publishes so many pairs: a thread a pair */
    MANY_THREADS = 1024, /* ... more: a warp an expert */
    WAIT_THREADS = 256,
    SUM_THREADS = 256,
    MOST_BLOCKS = 64,    /* that carry activations */
    FAST_POLLS = 64,     /* looks at owner stamps before redirects and item stamps are looked at */
    AHEAD = 8,           /* rows of a thread on their way */
    CARD_BIT = MAX_NODES, /* direct: nodes, then cards */
    MOST_USED = 64 /* experts a token */
};
#define OWN UINT32_MAX
static_assert(MAX_NODES + MAX_CARDS <= 32, "a lane looks at one worker's stamp");

/* Mapped host memory. The host writes the first part (between steps, or single words at any time), the
 * kernels the second. */
struct control {
    uint64_t stop, limit_ns, n_changes;

    uint64_t why, call, item, share, layer; /* a wait gave up */
    struct calls_told told; /* of the last publishing that the host waits for */
    struct calls_cuda_counters count;

    struct calls_cuda_change change[]; /* n_layers * n_experts */
};
/* Device memory. */
struct state {
    uint64_t next;   /* number of the next call */
    uint64_t open;   /* of this layer's call; 0: none */
    uint32_t n_items, disk;
    uint32_t direct; /* a bit for each node, then each card, that the call names */
    uint32_t failed;
    unsigned published, summed; /* blocks that arrived */
    uint32_t card[MAX_CARDS]; /* outbox of each card's worker that the call names; 0: not named */
    struct calls_cuda_counters count;
};
/* By value to every kernel; first what a layer without a call needs. */
struct view {
    struct state *state;
    uint32_t *own; /* by layer * n_experts + expert: 0, or 1 + its slot's offset / SLOT_ALIGN */
    const uint8_t *pool;
    uint32_t *item_of; /* by pair; OWN; NULL: of no call */
    uint32_t *chosen;  /* as choice */
    uint64_t choice_layer; /* words a layer */
    uint32_t n_nodes, n_experts;
    const float *scale;   /* by the same as own: N_MATS */
    uint16_t *item_owner; /* 0: the nodes' workers; OWNER_DISK; a card's */
    const uint8_t **made; /* for gather, by item * n_nodes + share: the rows of who made it */
    const uint64_t *box;  /* by outbox number; 0: not mapped */
    uint32_t max_items, n_slabs, n_cards;
    uint32_t col[MAX_NODES + 1]; /* a row's columns by node */
    uint32_t card_slot0[MAX_CARDS];
    uint16_t owner[MAX_NODES];
    /* mapped */
    uint64_t *head;
    uint8_t *slot;
    uint64_t slot_bytes, pairs_off, acts_half;
    uint8_t *acts;
    const uint64_t *redirect, *entry;
    const uint32_t *card; /* by card: its worker's outbox now */
    uint64_t box_owner, box_items, box_rows, rows_half; /* offsets in an outbox */
    struct control *control;
    uint32_t *choice;
};
struct layer_view {
    uint32_t layer, used, n_tokens, n_embd;
    const uint32_t *ids;
    const float *x;
    float *rows;
    uint32_t pair0, has_scale;
    uint32_t late; /* the host has waited as long as it may */
    uint64_t ticket; /* 0: the host does not wait */
    uint64_t mat_off[N_MATS];
};

struct calls_cuda {
    struct geometry g;
    int device;
    struct view v;
    struct control *control; /* host's address */
    uint32_t *choice;
    uint8_t *arena;
    struct outbox *box[MAX_PROCS]; /* the host's addresses */
    struct calls_watch watch;
    uint64_t ticket;
    struct layer_shape {
        uint64_t mat_off[N_MATS];
        uint32_t has_scale;
    } *layer;
    uint32_t slot0, *slot; /* by slot here: as in v.own */
};

/* ---- publishing ---- */

static __device__ __forceinline__ void store_sys(uint64_t *p, uint64_t v)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
static __device__ __forceinline__ void store_sys(uint32_t *p, uint32_t v)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
static __device__ __forceinline__ void store_sys(float4 *p, float4 v)
{
    asm volatile("st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(v.x), "f"(v.y), "f"(v.z),
                 "f"(v.w)
                 : "memory");
}

static __device__ __forceinline__ uint8_t *slot_of(const view &v, uint64_t n)
{
    return v.slot + (n % CALL_SLOTS) * v.slot_bytes;
}

/* What the items of a call have in common; a block's shared memory. */
struct named {
    uint32_t direct, disk; /* as in struct state */
    uint32_t on_cards;     /* items */
    uint32_t card[MAX_CARDS];
};

/* An expert of ours. slot: as in v.own. */
static __device__ void put_slot(const view &v, const layer_view &l, uint32_t expert, uint32_t slot,
                                expert_slot *to)
{
    const uint8_t *at = v.pool + (uint64_t)(slot - 1) * SLOT_ALIGN;
    const float *scale = v.scale + ((size_t)l.layer * v.n_experts + expert) * N_MATS;

    for (int m = 0; m < N_MATS; m++) {
        to->w[m] = at + l.mat_off[m];
        to->scale[m] = l.has_scale ? scale[m] : 1.0f;
    }
}
/* The present worker of the card that has the slot, or the one that this call has named already; 0: none. */
static __device__ uint32_t card_owner(const view &v, uint32_t slot, struct named *found)
{
    uint32_t c = v.n_cards, owner, first;

    while (c-- > 1 && slot < v.card_slot0[c])
        ;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(owner) : "l"(v.card + c) : "memory");
    if (!owner)
        return 0;
    first = atomicCAS(&found->card[c], 0u, owner);
    atomicOr(&found->direct, 1u << (CARD_BIT + c));
    return first ? first : owner;
}

/* Item i of call n: reads the expert's entry, once. */
static __device__ __noinline__ void put_item(const view &v, const layer_view &l, uint64_t n, uint32_t i, uint32_t expert,
                                uint32_t pair0, uint32_t n_pairs, struct named *found)
{
    uint64_t entry = handoff_word(v.entry + (size_t)l.layer * v.n_experts + expert);
    uint64_t *to = (uint64_t *)(slot_of(v, n) + 64 + sizeof(struct call_head)) + i * 5;
    uint32_t all = 0; /* who has every share; 0: the nodes theirs */

    if (entry && ENTRY_PLACE(entry) >= v.n_slabs) {
        all = card_owner(v, ENTRY_PLACE(entry) - v.n_slabs, found);
        if (!all)
            entry = 0; /* its worker has just died: the steward finds the expert another place */
        else
            atomicAdd(&found->on_cards, 1u);
    } else if (entry) {
        atomicOr(&found->direct, (1u << v.n_nodes) - 1);
    }
    if (!entry) {
        all = OWNER_DISK;
        atomicAdd(&found->disk, 1u);
    }
    store_sys(to, expert | (uint64_t)(entry ? ENTRY_PLACE(entry) : PLACE_NONE) << 32);
    store_sys(to + 1, ENTRY_EPOCH(entry));
    store_sys(to + 2, pair0 | (uint64_t)n_pairs << 32);
    for (uint32_t h = 0; h < 2; h++) {
        uint64_t w = 0;
        for (uint32_t k = 4 * h; k < 4 * h + 4 && k < v.n_nodes; k++)
            w |= (uint64_t)(all ? all : v.owner[k]) << 16 * (k % 4);
        store_sys(to + 3 + h, w);
    }
    v.item_owner[i] = (uint16_t)all;
}
static __device__ __forceinline__ void put_pair(const view &v, const layer_view &l, uint64_t n, uint32_t at,
                                                uint32_t item, uint32_t pair)
{
    store_sys((uint32_t *)(slot_of(v, n) + v.pairs_off) + at,
              pair / l.used | pair % l.used << 16); /* struct call_pair */
    v.item_of[pair] = item;
}

struct split { /* what a block found */
    uint32_t n_own, n_items, n_pairs;
};

/* One token: an item a place, no sorting; the first warp. */
static __device__ split split_one(const view &v, const layer_view &l, bool away, uint64_t n, expert_item *items,
                                  expert_slot *slots, struct named *found)
{
    uint32_t lane = threadIdx.x, below = (1u << lane) - 1;
    split r = {};

    for (uint32_t p0 = 0; p0 < l.used; p0 += 32) {
        uint32_t p = p0 + lane, in = p < l.used, e = in ? l.ids[p] : 0;
        uint32_t slot = in ? v.own[(size_t)l.layer * v.n_experts + e] : 0;
        uint32_t mine = __ballot_sync(~0u, in && slot), others = __ballot_sync(~0u, in && !slot);

        if (slot) {
            uint32_t i = r.n_own + __popc(mine & below);
            expert_item it = {};
            it.slot = i;
            it.n_tok = 1;
            it.row[0] = p;
            items[i] = it;
            put_slot(v, l, e, slot, &slots[i]);
            v.item_of[p] = OWN;
        } else if (in && away) {
            uint32_t i = r.n_items + __popc(others & below);
            put_pair(v, l, n, i, i, p);
            put_item(v, l, n, i, e, i, 1, found);
        }
        r.n_own += __popc(mine);
        r.n_items += __popc(others);
    }
    r.n_pairs = r.n_items;
    return r;
}

/* A few tokens: a thread a pair. Experts ascending, the pairs of each in the order of tokens. */
static __device__ split split_few(const view &v, const layer_view &l, bool away, uint64_t n, expert_item *items,
                                  expert_slot *slots, struct named *found)
{
    __shared__ uint32_t id[FEW_THREADS];
    __shared__ uint64_t opens[FEW_THREADS]; /* of an expert's first pair: own items 20 bits, items 20, pairs 24 */
    uint32_t pairs = l.n_tokens * l.used, i = threadIdx.x, e = i < pairs ? l.ids[i] : 0;
    uint32_t slot = i < pairs ? v.own[(size_t)l.layer * v.n_experts + e] : 0, before = 0, count = 0;
    uint64_t at = 0, all = 0;

    id[i] = e;
    __syncthreads();
    for (uint32_t j = 0; j < pairs; j++)
        if (id[j] == e) {
            before += j < i;
            count++;
        }
    opens[i] = i >= pairs || before ? 0
               : slot               ? (count + EXPERT_TOKENS - 1) / EXPERT_TOKENS
                                    : 1ull << 20 | (uint64_t)count << 40;
    __syncthreads();
    for (uint32_t j = 0; j < pairs; j++) {
        all += opens[j];
        at += id[j] < e ? opens[j] : 0;
    }
    if (i < pairs && slot) {
        uint32_t k = before % EXPERT_TOKENS, own = (uint32_t)(at & 0xFFFFF) + before / EXPERT_TOKENS;
        items[own].tok[k] = i / l.used;
        items[own].row[k] = i;
        if (!k) {
            items[own].slot = own;
            items[own].n_tok = count - before < EXPERT_TOKENS ? count - before : EXPERT_TOKENS;
            put_slot(v, l, e, slot, &slots[own]);
        }
        v.item_of[i] = OWN;
    } else if (i < pairs && away) {
        uint32_t item = (uint32_t)(at >> 20 & 0xFFFFF), pair0 = (uint32_t)(at >> 40);
        put_pair(v, l, n, pair0 + before, item, i);
        if (!before)
            put_item(v, l, n, item, e, pair0, count, found);
    }
    return {(uint32_t)(all & 0xFFFFF), (uint32_t)(all >> 20 & 0xFFFFF), (uint32_t)(all >> 40)};
}

/* An expert of one warp and its tokens: 32 pairs are looked at together. at: own items, items, pairs before
 * it. */
static __device__ void put_expert(const view &v, const layer_view &l, uint64_t n, uint32_t e, uint32_t slot,
                                  uint32_t count, const split &at, expert_item *items, expert_slot *slots,
                                  struct named *found)
{
    const uint32_t lane = threadIdx.x % 32, pairs = l.n_tokens * l.used;
    uint32_t done = 0;

    if (!slot && lane == 0)
        put_item(v, l, n, at.n_items, e, at.n_pairs, count, found);
    for (uint32_t i = lane; done < count; i += 32) {
        const bool mine = i < pairs && l.ids[i] == e;
        const uint32_t all = __ballot_sync(~0u, mine), before = done + __popc(all & ((1u << lane) - 1));
        const uint32_t j = before % EXPERT_TOKENS, own = at.n_own + before / EXPERT_TOKENS;

        if (mine && slot) {
            if (!j) {
                items[own].slot = own;
                items[own].n_tok = min(count - before, (uint32_t)EXPERT_TOKENS);
                put_slot(v, l, e, slot, &slots[own]);
            }
            items[own].tok[j] = i / l.used;
            items[own].row[j] = i;
            if (v.item_of)
                v.item_of[i] = OWN;
        } else if (mine) {
            put_pair(v, l, n, at.n_pairs + before, at.n_items, i);
        }
        done += __popc(all);
    }
}

/* How many pairs are an expert's; a warp. */
static __device__ uint32_t count_pairs(const layer_view &l, uint32_t e)
{
    const uint32_t pairs = l.n_tokens * l.used;
    uint32_t count = 0;

#pragma unroll 8
    for (uint32_t i = threadIdx.x % 32; i < pairs; i += 32)
        count += l.ids[i] == e;
    for (int d = 16; d; d /= 2)
        count += __shfl_xor_sync(~0u, count, d);
    return count;
}

/* Several tokens: experts ascending, the pairs of each in the order of tokens; the whole block. A warp looks
 * through the pairs for an expert, a thread has an expert's place among the others. */
static __device__ split split_many(const view &v, const layer_view &l, bool away, uint64_t n, expert_item *items,
                                   expert_slot *slots, struct named *found)
{
    __shared__ uint64_t before[MANY_THREADS]; /* own items 20 bits, items 20, pairs 24 */
    __shared__ uint32_t counts[MANY_THREADS], slot_of_expert[MANY_THREADS];
    const uint32_t thread = threadIdx.x, warp = thread / 32, warps = MANY_THREADS / 32;
    uint64_t base = 0;

    for (uint32_t e0 = 0; e0 < v.n_experts; e0 += MANY_THREADS) {
        const uint32_t n_here = min(v.n_experts - e0, (uint32_t)MANY_THREADS);
        uint32_t count, slot = 0; /* read once: what lies here may not change between two looks */
        uint64_t mine = 0;

        for (uint32_t k = warp; k < n_here; k += warps) {
            count = count_pairs(l, e0 + k);
            if (thread % 32 == 0)
                counts[k] = count;
        }
        __syncthreads();
        count = thread < n_here ? counts[thread] : 0;
        if (count)
            slot = v.own[(size_t)l.layer * v.n_experts + e0 + thread];
        if (slot)
            mine = (count + EXPERT_TOKENS - 1) / EXPERT_TOKENS;
        else if (count)
            mine = 1ull << 20 | (uint64_t)count << 40;
        before[thread] = mine;
        slot_of_expert[thread] = slot;
        __syncthreads();
        for (uint32_t d = 1; d < MANY_THREADS; d *= 2) { /* inclusive sums */
            uint64_t add = thread >= d ? before[thread - d] : 0;
            __syncthreads();
            before[thread] += add;
            __syncthreads();
        }
        for (uint32_t k = warp; k < n_here; k += warps) {
            const uint64_t at = base + (k ? before[k - 1] : 0);

            if (counts[k] && (slot_of_expert[k] || away)) {
                split here = {(uint32_t)(at & 0xFFFFF), (uint32_t)(at >> 20 & 0xFFFFF), (uint32_t)(at >> 40)};
                put_expert(v, l, n, e0 + k, slot_of_expert[k], counts[k], here, items, slots, found);
            }
        }
        base += before[MANY_THREADS - 1];
        __syncthreads();
    }
    return {(uint32_t)(base & 0xFFFFF), (uint32_t)(base >> 20 & 0xFFFFF), (uint32_t)(base >> 40)};
}

/* The host may look for call n; 0: there is none. One thread. */
static __device__ __forceinline__ void tell(const view &v, const layer_view &l, uint64_t n)
{
    if (!l.ticket)
        return;
    store_sys(&v.control->told.call, n);
    handoff_store(&v.control->told.ticket, l.ticket);
}

/* The whole block: what is here, and of the call block 0 its fields, the others activations; the last one
 * publishes. */
template <class SPLIT>
static __device__ void publish_call(const view &v, const layer_view &l, uint32_t *n_items, bool away, SPLIT split_by)
{
    __shared__ struct named found;
    struct state *st = v.state;
    uint32_t pairs = l.n_tokens * l.used;
    uint64_t n = st->next;

    if (threadIdx.x < sizeof found / 4)
        ((uint32_t *)&found)[threadIdx.x] = 0;
    if (away && threadIdx.x == 0)
        __threadfence_system(); /* the slot's RETIRED and the last reads of this half: before the stores below */
    __syncthreads();
    if (blockIdx.x == 0) {
        split r = split_by(n, &found);

        for (uint32_t i = threadIdx.x; i < pairs; i += blockDim.x)
            v.chosen[l.layer * v.choice_layer + l.pair0 + i] = l.ids[i];
        __syncthreads();
        if (threadIdx.x < MAX_CARDS)
            st->card[threadIdx.x] = found.card[threadIdx.x];
        if (threadIdx.x == 0) {
            uint64_t *head = (uint64_t *)(slot_of(v, n) + 64);

            *n_items = r.n_own;
            atomicAdd((unsigned long long *)&st->count.own_items, (unsigned long long)r.n_own);
            if (!away) {
                st->open = 0;
                tell(v, l, 0);
            } else {
                store_sys(head, n);
                store_sys(head + 1, l.layer | (uint64_t)l.n_tokens << 32);
                store_sys(head + 2, r.n_items | (uint64_t)r.n_pairs << 32);
                store_sys(head + 3, l.used);
                store_sys(head + 4, (n % CALLS_IN_FLIGHT) * v.acts_half);
                st->n_items = r.n_items;
                st->disk = found.disk;
                st->direct = found.direct;
                st->count.calls++;
                st->count.items += r.n_items;
                st->count.disk_items += found.disk;
                st->count.card_items += found.on_cards;
            }
        }
    } else if (away) {
        const float4 *from = (const float4 *)l.x;
        float4 *to = (float4 *)(v.acts + (n % CALLS_IN_FLIGHT) * v.acts_half);
        size_t all = (size_t)l.n_tokens * l.n_embd / 4, step = (gridDim.x - 1) * (size_t)blockDim.x;

        for (size_t i = (blockIdx.x - 1) * (size_t)blockDim.x + threadIdx.x; i < all; i += step)
            store_sys(to + i, from[i]);
    }
    if (away && handoff_publish((uint64_t *)slot_of(v, n), PUBLISHED(n), &st->published, gridDim.x)) {
        handoff_store(v.head, n);
        st->open = n;
        st->next = n + 1;
        tell(v, l, n);
    }
}

/* Is any expert of these elsewhere, in a step that goes on? The whole block. */
static __device__ __forceinline__ bool any_away(const view &v, const layer_view &l)
{
    uint32_t pairs = l.n_tokens * l.used;
    int away = 0;

    for (uint32_t i = threadIdx.x; i < pairs; i += blockDim.x)
        away |= !v.own[(size_t)l.layer * v.n_experts + l.ids[i]];
    return __syncthreads_or(away) && !v.state->failed;
}

static __device__ __noinline__ void publish_one(const view &v, const layer_view &l, expert_item *items,
                                                uint32_t *n_items, expert_slot *slots)
{
    bool away = any_away(v, l);

    publish_call(v, l, n_items, away, [&](uint64_t n, struct named *found) {
        split r = {};
        return threadIdx.x < 32 ? split_one(v, l, away, n, items, slots, found) : r;
    });
}

/* One token. All experts here is the usual case, and code that is not run should not be fetched either: what
 * else may be lies out of the way. */
static __global__ void __launch_bounds__(FEW_THREADS)
    one_token(const __grid_constant__ layer_view l, expert_item *items, uint32_t *n_items, expert_slot *slots,
              const __grid_constant__ view v)
{
    uint32_t p = threadIdx.x, in = p < l.used, e = in ? l.ids[p] : 0;
    uint32_t slot = in ? v.own[(size_t)l.layer * v.n_experts + e] : 1;

    if (__syncthreads_or(!slot || v.state->failed)) {
        publish_one(v, l, items, n_items, slots);
        return;
    }
    if (blockIdx.x || !in)
        return;
    items[p].slot = p;
    items[p].n_tok = 1;
    items[p].tok[0] = 0;
    items[p].row[0] = p;
    put_slot(v, l, e, slot, &slots[p]);
    v.chosen[l.layer * v.choice_layer + l.pair0 + p] = e;
    if (p == 0) {
        *n_items = l.used;
        v.state->open = 0;
        tell(v, l, 0);
        atomicAdd((unsigned long long *)&v.state->count.own_items, (unsigned long long)l.used);
    }
}

static __global__ void __launch_bounds__(FEW_THREADS)
    few_pairs(const __grid_constant__ layer_view l, expert_item *items, uint32_t *n_items, expert_slot *slots,
              const __grid_constant__ view v)
{
    bool away = any_away(v, l);

    publish_call(v, l, n_items, away, [&](uint64_t n, struct named *found) {
        return split_few(v, l, away, n, items, slots, found);
    });
}
static __global__ void __launch_bounds__(MANY_THREADS)
    many_pairs(const __grid_constant__ layer_view l, expert_item *items, uint32_t *n_items, expert_slot *slots,
               const __grid_constant__ view v)
{
    bool away = any_away(v, l);

    publish_call(v, l, n_items, away, [&](uint64_t n, struct named *found) {
        return split_many(v, l, away, n, items, slots, found);
    });
}

/* What is here alone, of any number of tokens; one block. */
static __global__ void __launch_bounds__(MANY_THREADS)
    own_pairs(const __grid_constant__ layer_view l, expert_item *items, uint32_t *n_items, expert_slot *slots,
              const __grid_constant__ view v)
{
    split r = split_many(v, l, false, 0, items, slots, NULL);

    if (threadIdx.x == 0)
        *n_items = r.n_own;
}

/* ---- waiting ---- */

/* The rows of who made share i % n_nodes of item i / n_nodes of call n; NULL: it is not made. As moe.c's
 * complete() and giving_answer(). */
static __device__ const uint8_t *made(const view &v, uint64_t n, uint32_t i)
{
    uint64_t at = (n % CALL_SLOTS) * v.max_items * v.n_nodes + i;
    uint64_t red = handoff_word(v.redirect + at), am = 0, own, w;
    uint32_t all = v.item_owner[i / v.n_nodes], box = all ? all : v.owner[i % v.n_nodes];
    const uint8_t *p;
    bool of_call;

    if (red && (red & 0xFFFF) == (n & 0xFFFF)) { /* REDIRECT_IS_OF */
        am = red >> 26;
        box = (uint32_t)(red >> 16) & 1023;
    }
    if (box == OWNER_DISK)
        return NULL;
    p = (const uint8_t *)v.box[box];
    if (!p)
        return NULL;
    own = am ? 0 : handoff_word((const uint64_t *)(p + v.box_owner) + n % CALL_SLOTS);
    if (own != 2 * n) {
        w = handoff_word((const uint64_t *)(p + v.box_items) + at);
        of_call = (w >> 2 & 0xFFFFFF) == (n & 0xFFFFFF) && (w & 3); /* STAMP_IS_OF */
        if (am ? !of_call || w >> 26 != am || (w & 3) != 1
               : own != 2 * n + 1 || (of_call && (w & 3) == 2)) /* 1: DONE, 2: DECLINED */
            return NULL;
    }
    return p + v.box_rows + (n % CALLS_IN_FLIGHT) * v.rows_half;
}

enum look_end { ALL_STAMPED, LOOK_CLOSER };
/* A warp: the owner stamps of whom the call names. */
static __device__ look_end look_fast(const view &v, uint64_t n)
{
    const struct state *st = v.state;
    uint32_t lane = threadIdx.x, wanted = st->direct >> lane & 1;
    uint64_t box = !wanted ? 0 : v.box[lane < CARD_BIT ? v.owner[lane] : st->card[lane - CARD_BIT]];
    const uint64_t *word = (const uint64_t *)(box + v.box_owner) + n % CALL_SLOTS;

    for (int i = 0; i < FAST_POLLS && !st->disk; i++) {
        uint64_t w = wanted && box ? handoff_word(word) : 0;
        if (__all_sync(~0u, !wanted || w == 2 * n))
            return ALL_STAMPED;
        if (__any_sync(~0u, wanted && w == 2 * n + 1))
            break;
    }
    return LOOK_CLOSER;
}

static __device__ const uint8_t *as_called(const view &v, uint64_t n, uint32_t i)
{
    uint32_t all = v.item_owner[i / v.n_nodes];

    return (const uint8_t *)v.box[all ? all : v.owner[i % v.n_nodes]] + v.box_rows + (n % CALLS_IN_FLIGHT) * v.rows_half;
}

static __device__ void give_up(const view &v, const layer_view &l, uint64_t n, int why, uint32_t missing)
{
    volatile struct control *c = v.control;

    c->call = n;
    c->layer = l.layer;
    c->item = missing / v.n_nodes;
    c->share = missing % v.n_nodes;
    __threadfence_system();
    c->why = (uint64_t)why;
    v.state->failed = 1;
}

/* The whole block, until every share that of(i) names, i < n_shares, is made; OWN: none. put(i, rows): whose rows.
 * False: it gave up, or another block had. */
template <class OF, class PUT>
static __device__ bool wait_for(const view &v, const layer_view &l, uint64_t n, uint32_t n_shares, OF of, PUT put)
{
    __shared__ int how, why;
    __shared__ uint32_t missing;
    struct state *st = v.state;
    uint64_t start = 0;
    uint32_t looks = 0;

    for (;; looks++) {
        int missed = 0;

        if (threadIdx.x < 32) {
            int h = look_fast(v, n);
            if (threadIdx.x == 0) {
                how = h;
                why = CALLS_FINE;
            }
        }
        __syncthreads();
        bool all = how == ALL_STAMPED;
        for (uint32_t i = threadIdx.x; i < n_shares; i += blockDim.x) {
            uint32_t share = of(i);
            const uint8_t *rows = share == OWN ? NULL : all ? as_called(v, n, share) : made(v, n, share);
            if (rows) {
                put(i, rows);
            } else if (share != OWN) {
                missed = 1;
                missing = share;
            }
        }
        if (!__syncthreads_or(missed))
            break;
        if (threadIdx.x == 0) {
            uint64_t now = handoff_now();
            start = start ? start : now;
            if (((volatile struct state *)st)->failed)
                why = CALLS_STOPPED;
            else if (handoff_word(&v.control->stop))
                give_up(v, l, n, why = CALLS_STOPPED, missing);
            else if (l.late || now - start > handoff_word(&v.control->limit_ns))
                give_up(v, l, n, why = CALLS_LATE, missing);
        }
        __syncthreads();
        if (why)
            return false;
        __syncthreads(); /* `how` and `missing` are free for the next look */
    }
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0)
        st->count.looks += looks;
    return true;
}

/* One block, before many others that then find everything made. */
static __global__ void wait(const __grid_constant__ view v, const __grid_constant__ layer_view l)
{
    struct state *st = v.state;
    uint64_t n = st->open, start = handoff_now();

    if (!n || st->failed)
        return;
    wait_for(
        v, l, n, st->n_items * v.n_nodes, [](uint32_t i) { return i; },
        [&](uint32_t i, const uint8_t *rows) { v.made[i] = rows; });
    if (threadIdx.x == 0)
        st->count.wait_ns += handoff_now() - start;
}

/* ---- the sum ---- */

static __device__ __forceinline__ void retire(const view &v, uint64_t n, unsigned blocks)
{
    if (handoff_publish((uint64_t *)slot_of(v, n), RETIRED(n), &v.state->summed, blocks))
        v.state->open = 0;
}

static __device__ __forceinline__ uint32_t node_of(const view &v, uint32_t col)
{
    uint32_t k = 0;

    while (k + 1 < v.n_nodes && col >= v.col[k + 1])
        k++;
    return k;
}

/* acc over the places of token t, four values from column 4 * i on; row(place): its first. */
template <class ROW>
static __device__ float4 sum_of(const layer_view &l, const float *w, uint32_t t, uint32_t i, ROW row_of)
{
    float4 a = make_float4(0, 0, 0, 0);

    for (uint32_t p0 = 0; p0 < l.used; p0 += AHEAD) {
        float4 row[AHEAD];
        float f[AHEAD];

#pragma unroll
        for (uint32_t p = 0; p < AHEAD; p++) { /* a place that is none reads another's row */
            uint32_t q = p0 + p < l.used ? p0 + p : p0;
            row[p] = load_far((const float4 *)row_of(q) + i);
            f[p] = w[t * l.used + q];
        }
#pragma unroll
        for (uint32_t p = 0; p < AHEAD; p++)
            if (p0 + p < l.used)
                add_row(a, f[p], row[p]);
    }
    return a;
}

/* A block waits for its token's experts, then its threads make four values each, and the last one retires. */
static __device__ __noinline__ void sum_waiting(const view &v, const layer_view &l, const float *w, float *y,
                                                size_t ldy, uint64_t n)
{
    extern __shared__ const float *at[]; /* used * n_nodes: rows as from column 0 */
    uint32_t i = blockIdx.x * SUM_THREADS + threadIdx.x, t = blockIdx.y, pair0 = t * l.used;
    uint32_t shares = l.used * v.n_nodes;
    bool first = blockIdx.x == 0 && t == 0 && threadIdx.x == 0;
    uint64_t start = first ? handoff_now() : 0;

    for (uint32_t s = threadIdx.x; s < shares; s += SUM_THREADS)
        if (v.item_of[pair0 + s / v.n_nodes] == OWN)
            at[s] = l.rows + (size_t)(pair0 + s / v.n_nodes) * l.n_embd;
    bool fine = wait_for(
        v, l, n, shares,
        [&](uint32_t s) {
            uint32_t item = v.item_of[pair0 + s / v.n_nodes];
            return item == OWN ? OWN : item * v.n_nodes + s % v.n_nodes;
        },
        [&](uint32_t s, const uint8_t *rows) {
            at[s] = (const float *)rows + (size_t)(pair0 + s / v.n_nodes) * l.n_embd;
        });
    if (first)
        v.state->count.wait_ns += handoff_now() - start;
    if (!fine)
        return;
    __syncthreads();
    if (4 * i < l.n_embd) {
        uint32_t k = node_of(v, 4 * i);
        store_sum(y + t * ldy + 4 * i, sum_of(l, w, t, i, [&](uint32_t p) { return at[p * v.n_nodes + k]; }));
    }
    retire(v, n, gridDim.x * gridDim.y);
}

/* As if all rows were here: nothing waits for the word that says whether they are. */
static __global__ void __launch_bounds__(SUM_THREADS)
    sum(const __grid_constant__ layer_view l, const float *w, float *y, size_t ldy, const __grid_constant__ view v)
{
    uint32_t i = blockIdx.x * SUM_THREADS + threadIdx.x, t = blockIdx.y;
    uint64_t n = v.state->open;
    bool in = 4 * i < l.n_embd, failed = v.state->failed;
    float4 a = make_float4(0, 0, 0, 0);

    if (in)
        a = sum_of(l, w, t, i, [&](uint32_t p) { return l.rows + (size_t)(t * l.used + p) * l.n_embd; });
    if (n && !failed)
        sum_waiting(v, l, w, y, ldy, n);
    else if (in && !failed)
        store_sum(y + t * ldy + 4 * i, a);
}

/* After `wait`. */
static __global__ void gather(const __grid_constant__ view v, const __grid_constant__ layer_view l)
{
    uint32_t i = blockIdx.x * SUM_THREADS + threadIdx.x, pair = blockIdx.y, k = node_of(v, 4 * i);
    uint32_t item = v.item_of[pair];
    uint64_t n = v.state->open;

    if (!n || v.state->failed) /* all own: what item_of says may be an earlier call's */
        return;
    if (4 * i < l.n_embd && item != OWN)
        ((float4 *)(l.rows + (size_t)pair * l.n_embd))[i] =
            load_far((const float4 *)((const float *)v.made[item * v.n_nodes + k] + (size_t)pair * l.n_embd) + i);
    retire(v, n, gridDim.x * gridDim.y);
}

/* ---- launches ---- */

struct calls_cuda_words calls_cuda_words(const struct calls_cuda *x)
{
    struct calls_cuda_words w = {};

    w.n_changes = &x->v.control->n_changes;
    w.change = x->v.control->change;
    w.own = x->v.own;
    w.chosen = x->v.chosen;
    w.choice = x->v.choice;
    w.choice_layer = x->v.choice_layer;
    w.n_layers = x->g.n_layers;
    w.top_k = x->g.top_k;
    w.count = (const uint64_t *)&x->v.state->count;
    w.counted = (uint64_t *)&x->v.control->count;
    return w;
}

static struct layer_view view_of(const struct calls_cuda *x, const struct calls_cuda_layer *l)
{
    struct layer_view v = {};

    v.layer = l->layer;
    v.used = l->used;
    v.n_tokens = l->n_tokens;
    v.n_embd = l->n_embd;
    v.ids = l->ids;
    v.x = l->x;
    v.rows = l->rows;
    v.pair0 = l->pair0;
    v.has_scale = x->layer[l->layer].has_scale;
    memcpy(v.mat_off, x->layer[l->layer].mat_off, sizeof v.mat_off);
    return v;
}

int calls_cuda_publish(struct calls_cuda *x, const struct calls_cuda_layer *l, struct expert_item *items,
                       uint32_t *n_items, struct expert_slot *slots, cudaStream_t s)
{
    uint32_t pairs = l->n_tokens * l->used;
    unsigned threads = pairs > FEW_THREADS ? MANY_THREADS : FEW_THREADS;
    size_t blocks = ((size_t)l->n_tokens * l->n_embd / 4 + threads - 1) / threads;
    struct layer_view lv = view_of(x, l);

    if (l->by_host)
        lv.ticket = ++x->ticket;
    if (blocks > MOST_BLOCKS)
        blocks = MOST_BLOCKS;
    blocks++; /* the first makes the items */
    if (l->n_tokens == 1)
        one_token<<<(unsigned)blocks, threads, 0, s>>>(lv, items, n_items, slots, x->v);
    else if (pairs <= FEW_THREADS)
        few_pairs<<<(unsigned)blocks, threads, 0, s>>>(lv, items, n_items, slots, x->v);
    else
        many_pairs<<<(unsigned)blocks, threads, 0, s>>>(lv, items, n_items, slots, x->v);
    return cudaGetLastError();
}
int calls_cuda_own(struct calls_cuda *x, const struct calls_cuda_layer *l, struct expert_item *items, uint32_t *n_items,
                   struct expert_slot *slots, cudaStream_t s)
{
    struct view v = x->v;

    v.item_of = NULL;
    own_pairs<<<1, MANY_THREADS, 0, s>>>(view_of(x, l), items, n_items, slots, v);
    return cudaGetLastError();
}
static dim3 row_grid(const struct calls_cuda_layer *l, uint32_t rows)
{
    return dim3((l->n_embd / 4 + SUM_THREADS - 1) / SUM_THREADS, rows);
}

/* As calls_watch wants it. */
static int stream_failed(void *stream)
{
    cudaError_t rc = cudaStreamQuery((cudaStream_t)stream);

    return rc == cudaErrorNotReady ? 0 : -(int)rc;
}
/* Where the host waits, the kernel finds everything made, or says that nobody waits any more. */
static int wait_for_call(struct calls_cuda *x, const struct calls_cuda_layer *l, cudaStream_t s)
{
    struct layer_view lv = view_of(x, l);

    if (l->by_host) {
        x->watch.arg = s;
        int end = calls_watch(&x->watch, x->ticket);
        if (end < 0)
            return -end;
        lv.late = end == CALLS_OVER_LIMIT;
    }
    wait<<<1, WAIT_THREADS, 0, s>>>(x->v, lv);
    return cudaGetLastError();
}
int calls_cuda_sum(struct calls_cuda *x, const struct calls_cuda_layer *l, const float *w, float *y, size_t ldy,
                   cudaStream_t s)
{
    int rc = l->by_host ? wait_for_call(x, l, s) : 0; /* else its blocks do, of a few tokens */

    if (rc)
        return rc;
    sum<<<row_grid(l, l->n_tokens), SUM_THREADS, l->used * x->g.n_nodes * sizeof(float *), s>>>(
        view_of(x, l), w, y, ldy, x->v);
    return cudaGetLastError();
}
int calls_cuda_gather(struct calls_cuda *x, const struct calls_cuda_layer *l, cudaStream_t s)
{
    int rc = wait_for_call(x, l, s);

    if (rc)
        return rc;
    gather<<<row_grid(l, l->n_tokens * l->used), SUM_THREADS, 0, s>>>(x->v, view_of(x, l));
    return cudaGetLastError();
}

int calls_cuda_load(void)
{
    const void *const all[] = {(const void *)one_token, (const void *)few_pairs, (const void *)many_pairs,
                               (const void *)own_pairs, (const void *)wait, (const void *)sum, (const void *)gather};
    cudaFuncAttributes a;
    cudaError_t rc = cudaSuccess;

    for (size_t i = 0; !rc && i < sizeof all / sizeof *all; i++)
        rc = cudaFuncGetAttributes(&a, all[i]);
    return rc;
}

/* ---- life ---- */

static int failed(const struct calls_cuda *x, cudaError_t rc, const char *what, struct err *e)
{
    return err_set(e, -EIO, "card %d: %s: %s", x->device, what, cudaGetErrorString(rc));
}

/* What the card calls the host's address. */
static cudaError_t seen(const void *host, void *out)
{
    return cudaHostGetDevicePointer((void **)out, (void *)host, 0);
}

static cudaError_t find_segments(struct calls_cuda *x, const struct calls_cuda_config *c)
{
    const struct geometry *g = &x->g;
    uint8_t *calls, *amends, *tables;
    cudaError_t rc = seen(c->calls, &calls);

    if (!rc)
        rc = seen(c->acts, &x->v.acts);
    if (!rc)
        rc = seen(c->amends, &amends);
    if (!rc)
        rc = seen(c->tables, &tables);
    if (rc)
        return rc;
    x->v.head = (uint64_t *)(calls + offsetof(struct calls, head));
    x->v.slot = calls + offsetof(struct calls, slot);
    x->v.slot_bytes = call_slot_bytes(g);
    x->v.pairs_off = 64 + sizeof(struct call_head) + g->max_items * sizeof(struct call_item);
    x->v.acts_half = g->acts_half;
    x->v.redirect = (const uint64_t *)(amends + offsetof(struct amends, data) +
                                       g->amend_slots * sizeof(struct amend_slot));
    x->v.entry = (const uint64_t *)(tables + c->tables->off_entry);
    x->v.card = (const uint32_t *)(tables + c->tables->off_card);
    x->v.box_owner = offsetof(struct outbox, owner);
    x->v.box_items = offsetof(struct outbox, data);
    x->v.box_rows = offsetof(struct outbox, data) + 2 * outbox_stamp_bytes(g) + CALLS_IN_FLIGHT * g->inter_half;
    x->v.rows_half = g->rows_half;
    return cudaSuccess;
}

struct parts { /* of the arena */
    uint64_t used;
    uint8_t *base;
};
static void *take(struct parts *p, uint64_t bytes)
{
    uint64_t at = p->used;

    p->used += (bytes + 255) & ~(uint64_t)255;
    return p->base ? p->base + at : NULL;
}

static void lay_out(struct calls_cuda *x, struct parts *p)
{
    const struct geometry *g = &x->g;
    uint64_t experts = (uint64_t)g->n_layers * g->n_experts;

    p->used = 0;
    x->v.state = (struct state *)take(p, sizeof *x->v.state);
    x->v.own = (uint32_t *)take(p, experts * 4);
    x->v.scale = (const float *)take(p, experts * N_MATS * 4);
    x->v.box = (const uint64_t *)take(p, MAX_PROCS * 8);
    x->v.item_owner = (uint16_t *)take(p, (uint64_t)g->max_items * 2);
    x->v.item_of = (uint32_t *)take(p, (uint64_t)g->max_pairs * 4);
    x->v.made = (const uint8_t **)take(p, (uint64_t)g->max_items * g->n_nodes * 8);
    x->v.chosen = (uint32_t *)take(p, g->n_layers * x->v.choice_layer * 4);
}

static cudaError_t open_memory(struct calls_cuda *x)
{
    const struct geometry *g = &x->g;
    uint64_t experts = (uint64_t)g->n_layers * g->n_experts,
             control = sizeof *x->control + experts * sizeof(struct calls_cuda_change);
    struct parts p = {};
    cudaError_t rc;

    x->v.choice_layer = (uint64_t)g->step_tokens * g->top_k;
    lay_out(x, &p);
    rc = cudaMalloc(&x->arena, p.used);
    if (!rc)
        rc = cudaMemset(x->arena, 0, p.used);
    if (!rc)
        rc = cudaHostAlloc(&x->control, control, cudaHostAllocMapped);
    if (!rc)
        rc = cudaHostAlloc(&x->choice, g->n_layers * x->v.choice_layer * 4, cudaHostAllocMapped);
    if (!rc)
        rc = seen(x->control, &x->v.control);
    if (!rc)
        rc = seen(x->choice, &x->v.choice);
    if (rc)
        return rc;
    memset(x->control, 0, control);
    memset(x->choice, 0, g->n_layers * x->v.choice_layer * 4);
    p.base = x->arena;
    lay_out(x, &p);
    return cudaSuccess;
}

static cudaError_t fill(struct calls_cuda *x, const struct calls_cuda_config *c)
{
    const struct geometry *g = &x->g;
    uint64_t experts = (uint64_t)g->n_layers * g->n_experts;
    uint64_t box[MAX_PROCS] = {};
    cudaError_t rc = cudaSuccess;

    for (uint32_t i = 0; i < c->n_slots; i++)
        x->slot[i] = (uint32_t)(table_slot(c->tables, c->slot0 + i)->off / SLOT_ALIGN) + 1;
    for (uint32_t i = 0; i < MAX_PROCS && !rc; i++)
        if (c->outbox[i])
            rc = seen(c->outbox[i], &box[i]);
    if (!rc)
        rc = cudaMemcpy((void *)x->v.box, box, sizeof box, cudaMemcpyHostToDevice);
    if (!rc)
        rc = cudaMemcpy((void *)x->v.scale, table_scale(c->tables, g, 0, 0), experts * N_MATS * sizeof(float),
                        cudaMemcpyHostToDevice);
    if (!rc)
        rc = cudaMemcpy(&x->v.state->next, &c->first, sizeof c->first, cudaMemcpyHostToDevice);
    if (!rc)
        rc = cudaDeviceSynchronize();
    return rc;
}

static void view_geometry(struct calls_cuda *x, const struct calls_cuda_config *c)
{
    const struct geometry *g = &x->g;

    x->v.n_nodes = g->n_nodes;
    x->v.n_experts = g->n_experts;
    x->v.max_items = g->max_items;
    x->v.n_slabs = g->n_slabs;
    x->v.n_cards = c->n_cards;
    x->slot0 = c->slot0;
    memcpy(x->box, c->outbox, sizeof x->box);
    x->v.pool = (const uint8_t *)c->pool;
    for (uint32_t k = 0; k < g->n_nodes; k++)
        x->v.owner[k] = (uint16_t)c->owner[k];
    memcpy(x->v.card_slot0, c->card_slot0, sizeof x->v.card_slot0);
    for (uint32_t k = 0; k <= g->n_nodes; k++)
        x->v.col[k] = share_row(g->n_embd, k, g->n_nodes);
    for (uint32_t i = 0; i < g->n_layers; i++) {
        const struct expert_layer *l = table_layer(c->tables, i);
        x->layer[i].has_scale = l->has_scale;
        for (int m = 0; m < N_MATS; m++)
            x->layer[i].mat_off[m] = slot_mat_off(l, m);
    }
}

int calls_cuda_open(const struct calls_cuda_config *c, struct calls_cuda **out, struct err *e)
{
    const struct geometry *g = c->geo;
    struct calls_cuda *x = (struct calls_cuda *)calloc(1, sizeof *x);
    cudaError_t rc;

    if (!x)
        return err_set(e, -ENOMEM, "no memory for the experts' calls");
    x->g = *g;
    x->device = c->device;
    x->layer = (struct calls_cuda::layer_shape *)calloc(g->n_layers, sizeof *x->layer);
    x->slot = (uint32_t *)calloc(c->n_slots + 1, sizeof *x->slot);
    if (!x->layer || !x->slot) {
        err_set(e, -ENOMEM, "no memory for the experts' calls");
        goto failed_;
    }
    if (g->top_k > MOST_USED) {
        err_set(e, -ENOTSUP, "card %d: %u experts a token are more than %d", c->device, g->top_k, MOST_USED);
        goto failed_;
    }
    if (g->n_embd % 4 || g->acts_half % 16 || g->rows_half % 16 || g->inter_half % 16) {
        err_set(e, -ENOTSUP, "card %d: vectors of %u values are no multiple of four", c->device, g->n_embd);
        goto failed_;
    }
    view_geometry(x, c);
    rc = find_segments(x, c);
    if (!rc)
        rc = open_memory(x);
    if (!rc)
        rc = fill(x, c);
    if (rc) {
        failed(x, rc, "memory for the experts' calls", e);
        goto failed_;
    }
    x->control->limit_ns = c->limit_ms * 1000000ull;
    x->watch = {&x->g, c->calls, (struct amends *)c->amends, x->box, &x->control->told, &x->control->stop,
                x->control->limit_ns, stream_failed, NULL, 0};
    *out = x;
    return 0;
failed_:
    calls_cuda_close(x);
    return e->code;
}

void calls_cuda_close(struct calls_cuda *x)
{
    if (!x)
        return;
    cudaFree(x->arena);
    cudaFreeHost(x->control);
    cudaFreeHost(x->choice);
    free(x->layer);
    free(x->slot);
    free(x);
}

/* ---- the host's words ---- */

void calls_cuda_changes(struct calls_cuda *x, const uint32_t *at, size_t n, const uint64_t *entry)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t e = entry[at[i]];
        x->control->change[i] = {at[i], e ? x->slot[ENTRY_PLACE(e) - x->g.n_slabs - x->slot0] : 0};
    }
    x->control->n_changes = n;
}
void calls_cuda_stop(struct calls_cuda *x)
{
    __atomic_store_n(&x->control->stop, 1, __ATOMIC_RELEASE);
}

int calls_cuda_failed(const struct calls_cuda *x, struct err *e)
{
    const struct control *c = x->control;
    uint64_t why = __atomic_load_n(&c->why, __ATOMIC_ACQUIRE);

    if (why == CALLS_FINE)
        return 0;
    return err_set(e, -ETIMEDOUT,
                   "card %d: layer %llu, call %llu: item %llu, share %llu is not made%s", x->device,
                   (unsigned long long)c->layer, (unsigned long long)c->call, (unsigned long long)c->item,
                   (unsigned long long)c->share,
                   why == CALLS_LATE ? " in time" : " and nobody waits any more");
}

const uint32_t *calls_cuda_choice(const struct calls_cuda *x, uint32_t layer)
{
    return x->choice + layer * x->v.choice_layer;
}
struct calls_cuda_counters calls_cuda_counters(const struct calls_cuda *x)
{
    struct calls_cuda_counters c = x->control->count;

    c.wait_ns += x->watch.waited_ns;
    return c;
}
