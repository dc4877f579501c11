/* Tiles of up to 128 vectors from a layer's items, by one block; then products over all of them in one launch each:
 * nobody asks the host how many there are. Gate's results wait in h. Where all matrices can go through split.cuh, it
 * makes gate and up of a tile by the same threads one after the other; the others by gemm.cuh, a launch a matrix. */
extern "C" {
#include "kernels/type/type.h"
}
#include "kernels/gemm/gemm.cuh"
extern "C" {
#include "kernels/expert/many_cuda.h"
#include "kernels/quantise/quantise.h"
#include "kernels/quantise/quantise_cuda.h"
}

enum { TILE_THREADS = 1024, TILE_ITEMS = GEMM_CUDA_TILE / EXPERT_TOKENS };
static_assert((int)GEMM_CUDA_TILE == (int)HOPPER_VECS, "");

static __device__ __forceinline__ bool same_expert(const expert_slot &a, const expert_slot &b)
{
    return a.w[EXPERT_GATE] == b.w[EXPERT_GATE] && a.w[EXPERT_UP] == b.w[EXPERT_UP] &&
           a.w[EXPERT_DOWN] == b.w[EXPERT_DOWN];
}
/* Does a run of one expert's items, all but the last full, begin at item i? */
static __device__ bool begins_run(const expert_slot *slots, const expert_item *items, uint32_t i)
{
    return i == 0 || items[i - 1].n_tok < EXPERT_TOKENS ||
           !same_expert(slots[items[i].slot], slots[items[i - 1].slot]);
}
/* One block, a thread an item at a time: where its run begins is the largest begin before it, its tile's
 * number the number of tiles that begin before it. */
static __global__ void __launch_bounds__(TILE_THREADS)
    make_tiles(const expert_slot *slots, const expert_item *items, const uint32_t *n_items,
               gemm_cuda_tile *tiles, uint32_t *n_tiles)
{
    __shared__ uint32_t run[TILE_THREADS], count[TILE_THREADS];
    const uint32_t t = threadIdx.x, n = *n_items;
    uint32_t run_before = 0, count_before = 0;

    for (uint32_t i0 = 0; i0 < n; i0 += TILE_THREADS) {
        const uint32_t i = i0 + t;
        const bool in = i < n;

        run[t] = in && begins_run(slots, items, i) ? i : run_before;
        __syncthreads();
        for (uint32_t d = 1; d < TILE_THREADS; d *= 2) {
            uint32_t x = t >= d ? run[t - d] : 0;
            __syncthreads();
            run[t] = max(run[t], x);
            __syncthreads();
        }
        const uint32_t rank = in ? i - run[t] : 1;

        count[t] = rank % TILE_ITEMS == 0;
        __syncthreads();
        for (uint32_t d = 1; d < TILE_THREADS; d *= 2) {
            uint32_t x = t >= d ? count[t - d] : 0;
            __syncthreads();
            count[t] += x;
            __syncthreads();
        }
        if (in) {
            const uint32_t in_tile_at = rank % TILE_ITEMS, tile = count_before + count[t] - 1;

            if (in_tile_at == 0)
                tiles[tile].item = i;
            if (i + 1 == n || in_tile_at + 1 == TILE_ITEMS || begins_run(slots, items, i + 1))
                tiles[tile].n = in_tile_at * EXPERT_TOKENS + items[i].n_tok;
        }
        run_before = run[TILE_THREADS - 1];
        count_before += count[TILE_THREADS - 1];
        __syncthreads();
    }
    if (t == 0)
        *n_tiles = count_before;
}

/* M 2: gate and up of the layer's vectors. 1: down, of the rows of h as operands. Tiles of the same vectors
 * follow each other. */
template <int M> struct split_experts {
    enum { MATS = M };
    const expert_slot *slots;
    const expert_item *items;
    const gemm_cuda_tile *tile;
    const uint32_t *n_tiles;
    const uint8_t *acts;
    size_t a_stride, row_bytes;
    uint32_t n_cols, n_rows;
    float limit;
    float *y;
    size_t ldy;

    __device__ __forceinline__ uint32_t wide(void) const
    {
        return (n_rows + HOPPER_ROWS - 1) / HOPPER_ROWS;
    }
    __device__ __forceinline__ uint32_t tiles(void) const
    {
        return wide() * *n_tiles;
    }
    __device__ __forceinline__ const expert_slot &slot_of(uint32_t t) const
    {
        return slots[items[tile[t / wide()].item].slot];
    }
    __device__ __forceinline__ const uint8_t *row(uint32_t t, uint32_t mat, uint32_t r) const
    {
        return (const uint8_t *)slot_of(t).w[M == 2 ? mat : EXPERT_DOWN] +
               min(t % wide() * HOPPER_ROWS + r, n_rows - 1) * row_bytes;
    }
    __device__ __forceinline__ bool few(uint32_t t) const
    {
        return tile[t / wide()].n <= HOPPER_VECS / 2;
    }
    __device__ __forceinline__ uint32_t begin(uint32_t t, uint32_t v) const
    {
        const gemm_cuda_tile at = tile[t / wide()];
        const uint32_t i = min(v, at.n - 1);
        const expert_item &it = items[at.item + i / EXPERT_TOKENS];

        return (uint32_t)(a_stride / 16) *
               (M == 2 ? it.tok[i % EXPERT_TOKENS] : it.row[i % EXPERT_TOKENS]);
    }
    template <class Y>
    __device__ __forceinline__ void put(uint32_t t, int mat, uint32_t row, uint32_t vec, Y result) const
    {
        const gemm_cuda_tile at = tile[t / wide()];
        const float scale = slot_of(t).scale[M == 2 ? mat : (int)EXPERT_DOWN];
        const uint32_t r0 = t % wide() * HOPPER_ROWS + row;

#pragma unroll
        for (int i = 0; i < 16; i++) {
            const uint32_t v = vec + 8 * (i / 2) + i % 2;

            if (v >= at.n)
                continue;
            float *to = y + items[at.item + v / EXPERT_TOKENS].row[v % EXPERT_TOKENS] * ldy;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint32_t r = r0 + 8 * half;
                float x = cu_canon(__fadd_rn(result(i / 2 * 4 + 2 * half + i % 2), 0.0f));

                if (scale != 1.0f)
                    x = cu_canon(__fmul_rn(x, scale));
                if (r < n_rows)
                    to[r] = M == 2 && mat ? cu_swiglu(to[r], x, limit) : x;
            }
        }
    }
};

/* all three in one type that split.cuh has, on a card that can */
static bool on_split(const struct expert_shape *s)
{
    int most;

    return s->type[0] == W_Q4_K && s->type[1] == W_Q4_K && s->type[2] == W_Q4_K &&
           s->row_bytes[EXPERT_GATE] == s->row_bytes[EXPERT_UP] && s->n_embd % 256 == 0 && s->n_ff % 256 == 0 &&
           !most_shared(&most) && hopper_there<q4_k>(most);
}
static bool fits(const struct expert_shape *s)
{
    for (int m = 0; m < EXPERT_MATS; m++)
        if (!gemm_many_there_cuda(s->type[m]))
            return false;
    return true;
}
static enum act_form down_form(const struct expert_shape *s)
{
    return type_info(s->type[EXPERT_DOWN])->act;
}
static size_t tiles_bytes(uint32_t max_rows)
{
    return ((size_t)max_rows * sizeof(gemm_cuda_tile) + 16 + 255) & ~(size_t)255;
}

extern "C" size_t expert_many_cuda_tmp(const struct expert_shape *shape, uint32_t max_rows)
{
    return fits(shape) ? tiles_bytes(max_rows) + max_rows * act_stride_cuda(down_form(shape), shape->n_ff) : 0;
}

template <int M> static int allow_experts(void)
{
    return cudaFuncSetAttribute(split_kernel<q4_k, split_experts<M>>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, split_shape<q4_k>::BYTES);
}
extern "C" int expert_many_load_cuda(void)
{
    cudaFuncAttributes a;
    int most, e = most_shared(&most);

    if (!e)
        e = cudaFuncGetAttributes(&a, make_tiles);
    if (e || !hopper_there<q4_k>(most))
        return e;
    e = allow_experts<1>();
    return e ? e : allow_experts<2>();
}

template <int M> static int launch_experts(const split_experts<M> &j, struct CUstream_st *stream)
{
    int dev, n_sms;
    cudaError_t e = cudaGetDevice(&dev);

    if (!e)
        e = cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, dev);
    if (e)
        return e;
    split_kernel<q4_k, split_experts<M>>
        <<<n_sms, HOPPER_THREADS, split_shape<q4_k>::BYTES, stream>>>(j);
    return cudaGetLastError();
}

/* where things are of a layer's products */
struct many_places {
    gemm_cuda_tile *tiles;
    uint32_t *n_tiles;
    uint8_t *mid; /* the rows of h as operands */
    size_t mid_stride;
};

static int gate_up(const struct expert_shape *s, const struct expert_work *work, const struct expert_vectors &v,
                   const many_places &at, float *h, size_t ldh, struct CUstream_st *stream)
{
    struct gemm_cuda_many j = {};

    if (on_split(s)) {
        split_experts<2> both = {work->slots, work->items, at.tiles, at.n_tiles, (const uint8_t *)v.acts[0], v.stride[0],
                                 s->row_bytes[EXPERT_GATE], s->n_embd, s->n_ff, s->limit, h, ldh};
        return launch_experts(both, stream);
    }
    j.slots = work->slots;
    j.items = work->items;
    j.tiles = at.tiles;
    j.n_tiles = at.n_tiles;
    j.n_cols = s->n_embd;
    j.n_rows = s->n_ff;
    j.limit = s->limit;
    j.y = h;
    j.ldy = ldh;
    j.stream = stream;
    for (int m = EXPERT_GATE; m <= EXPERT_UP; m++) {
        j.which = m;
        j.activates = m == EXPERT_UP;
        j.row_bytes = s->row_bytes[m];
        j.acts = (const uint8_t *)v.acts[m];
        j.a_stride = v.stride[m];
        int e = gemm_many_cuda(s->type[m], &j);
        if (e)
            return e;
    }
    return 0;
}
static int down(const struct expert_shape *s, const struct expert_work *work, const many_places &at, float *y,
                size_t ldy, struct CUstream_st *stream)
{
    struct gemm_cuda_many j = {};

    if (on_split(s)) {
        split_experts<1> one = {work->slots, work->items, at.tiles, at.n_tiles, at.mid, at.mid_stride,
                                s->row_bytes[EXPERT_DOWN], s->n_ff, s->n_embd, 0, y, ldy};
        return launch_experts(one, stream);
    }
    j.slots = work->slots;
    j.items = work->items;
    j.tiles = at.tiles;
    j.n_tiles = at.n_tiles;
    j.which = EXPERT_DOWN;
    j.by_row = 1;
    j.row_bytes = s->row_bytes[EXPERT_DOWN];
    j.n_cols = s->n_ff;
    j.n_rows = s->n_embd;
    j.acts = at.mid;
    j.a_stride = at.mid_stride;
    j.y = y;
    j.ldy = ldy;
    j.stream = stream;
    return gemm_many_cuda(s->type[EXPERT_DOWN], &j);
}

extern "C" int expert_many_cuda(const struct expert_shape *shape, const struct expert_work *work,
                                const struct expert_vectors *vectors, void *tmp, float *h, size_t ldh, float *y,
                                size_t ldy, struct CUstream_st *stream)
{
    const many_places at = {(gemm_cuda_tile *)((uint8_t *)tmp + 16), (uint32_t *)tmp,
                            (uint8_t *)tmp + tiles_bytes(work->max_rows), act_stride_cuda(down_form(shape), shape->n_ff)};
    int e;

    if (!fits(shape))
        return cudaErrorInvalidValue;
    make_tiles<<<1, TILE_THREADS, 0, stream>>>(work->slots, work->items, work->n_items, at.tiles, at.n_tiles);
    e = cudaGetLastError();
    if (!e)
        e = gate_up(shape, work, *vectors, at, h, ldh, stream);
    if (!e)
        e = act_prepare_cuda(down_form(shape), h, shape->n_ff, ldh, work->max_rows, at.mid, at.mid_stride, stream);
    return e ? e : down(shape, work, at, y, ldy, stream);
}
