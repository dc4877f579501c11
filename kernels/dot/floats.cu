/* F32, F16 and BF16 rows on a card (ARITHMETIC.md rule 13, SUM32).
 *   many rows  eight threads have a row, thread l the lanes 4l .. 4l + 3, so that a load is 16 or 8
 *              bytes wide; a batch of loads is on its way before its first use
 *   few rows   a router: a block has a row or a few. All its threads copy the row and the vectors to
 *              shared memory, all at once if they fit; then a warp is SUM32. A whole card's blocks
 *              load at the same time, where eight threads a row would wait for memory n / 256 times
 *   prompts    tiles of rows and vectors through shared memory; a warp is SUM32 for eight rows times eight
 *              vectors at once
 *   any rows   rows that do not begin at multiples of 16 bytes, or are not whole lines of 32 values: a
 *              warp is SUM32, its thread j the lane of the values j, j + 32, ... */
#include "kernels/dot/dot.cuh"
extern "C" {
#include "kernels/dot/dot_cuda.h"
}

enum { ROWS = 4, FLOAT_WARPS = 8, FLOAT_THREADS = 32 * FLOAT_WARPS };

/* what eight threads read of a row at once is half a line of a two-byte type: the card's second cache is
 * asked for what follows as well */
static __device__ __forceinline__ uint2 load_ahead(const uint2 *p)
{
    uint2 v;

#if __CUDA_ARCH__ >= 800
    asm("ld.global.nc.L1::no_allocate.L2::256B.v2.u32 {%0, %1}, [%2];"
        : "=r"(v.x), "=r"(v.y)
        : "l"(p));
#else
    v = *p;
#endif
    return v;
}
static __device__ __forceinline__ uint4 load_ahead(const uint4 *p)
{
    return *p;
}

struct f32 {
    typedef uint32_t bits;
    typedef uint4 four;
    static __device__ __forceinline__ float4 widen4(uint4 v)
    {
        return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z),
                           __uint_as_float(v.w));
    }
    static __device__ __forceinline__ float widen(uint32_t v)
    {
        return __uint_as_float(v);
    }
};
struct f16 {
    typedef uint16_t bits;
    typedef uint2 four;
    static __device__ __forceinline__ float4 widen4(uint2 v)
    {
        return make_float4(cu_f16((uint16_t)v.x), cu_f16((uint16_t)(v.x >> 16)),
                           cu_f16((uint16_t)v.y), cu_f16((uint16_t)(v.y >> 16)));
    }
    static __device__ __forceinline__ float widen(uint16_t v)
    {
        return cu_f16(v);
    }
};
struct bf16 {
    typedef uint16_t bits;
    typedef uint2 four;
    static __device__ __forceinline__ float4 widen4(uint2 v)
    {
        return make_float4(__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xFFFF0000u),
                           __uint_as_float(v.y << 16), __uint_as_float(v.y & 0xFFFF0000u));
    }
    static __device__ __forceinline__ float widen(uint16_t v)
    {
        return cu_bf16(v);
    }
};

/* ---- any rows ---- */

/* rows r0 .. r0 + ROWS - 1 (those from n_rows on are not put) times NT vectors, by one warp */
template <class T, int NT, class PUT>
static __device__ __forceinline__ void four_rows(const uint8_t *w, size_t row_bytes, uint32_t n,
                                                 const float *const vec[NT], uint32_t r0,
                                                 uint32_t n_rows, PUT put)
{
    const typename T::bits *row[ROWS];
    float acc[ROWS][NT];
    uint32_t lane = threadIdx.x & 31;

#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        row[k] = (const typename T::bits *)(w + (size_t)min(r0 + k, n_rows - 1) * row_bytes);
#pragma unroll
        for (int t = 0; t < NT; t++)
            acc[k][t] = 0;
    }
#pragma unroll 4
    for (uint32_t i = lane; i < n; i += 32) {
        float x[NT];
#pragma unroll
        for (int t = 0; t < NT; t++)
            x[t] = vec[t][i];
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            float v = T::widen(row[k][i]);
#pragma unroll
            for (int t = 0; t < NT; t++)
                acc[k][t] = __fmaf_rn(v, x[t], acc[k][t]);
        }
    }
#pragma unroll
    for (int k = 0; k < ROWS; k++)
#pragma unroll
        for (int t = 0; t < NT; t++) {
            float v = acc[k][t];
#pragma unroll
            for (int h = 16; h; h /= 2)
                v = __fadd_rn(v, __shfl_down_sync(~0u, v, h));
            if (lane == 0 && r0 + k < n_rows)
                put(r0 + k, t, cu_canon(__fadd_rn(v, 0.0f)));
        }
}

/* the vectors of this block's tokens, blockIdx.y * NT and on; those missing are copies of the last */
template <int NT>
static __device__ __forceinline__ uint32_t vectors_of(const dot_cuda_rows &j, const float *vec[NT])
{
    uint32_t first = blockIdx.y * NT, n_tok = j.n_tok - first;

#pragma unroll
    for (int t = 0; t < NT; t++) {
        uint32_t i = first + (t < n_tok ? t : n_tok - 1);
        vec[t] = (const float *)(j.acts + j.a_stride * (j.idx ? j.idx[i] : i));
    }
    return n_tok;
}
static __device__ __forceinline__ void finish(const dot_cuda_rows &j, uint32_t r, uint32_t token,
                                              float y)
{
    y = cu_canon(__fadd_rn(y, 0.0f));
    if (j.scale)
        y = __fmul_rn(y, *j.scale);
    if (j.bias)
        y = __fadd_rn(y, j.bias[r]);
    j.y[token * j.ldy + r] = cu_canon(y);
}

template <class T, int NT> __global__ void __launch_bounds__(FLOAT_THREADS)
    float_rows(const __grid_constant__ dot_cuda_rows j)
{
    uint32_t first = blockIdx.y * NT, n_tok;
    const float *vec[NT];

    next_may_start();
    before_is_done();
    n_tok = vectors_of<NT>(j, vec);
    for (uint32_t g = blockIdx.x * FLOAT_WARPS + threadIdx.x / 32; g * ROWS < j.n_rows;
         g += gridDim.x * FLOAT_WARPS)
        four_rows<T, NT>(j.w, j.row_bytes, j.n_cols, vec, g * ROWS, j.n_rows,
                         [&](uint32_t r, uint32_t t, float y) {
                             if (t < n_tok)
                                 finish(j, r, first + t, y);
                         });
}

/* ---- many rows ---- */

template <class T, int NT> __global__ void __launch_bounds__(FLOAT_THREADS)
    float_many(const __grid_constant__ dot_cuda_rows j)
{
    constexpr int AT_ONCE = 128 / sizeof(typename T::four); /* loads of a thread on their way */
    const uint32_t l = threadIdx.x % 8, r = blockIdx.x * (FLOAT_THREADS / 8) + threadIdx.x / 8;
    const typename T::four *w =
        (const typename T::four *)(j.w + min(r, j.n_rows - 1) * j.row_bytes) + l;
    const uint32_t n = j.n_cols / 32, first = blockIdx.y * NT;
    typename T::four v[AT_ONCE];
    const float *vec[NT];
    uint32_t n_tok, i = 0;
    float4 acc[NT];

    auto load = [&](uint32_t at) {
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            v[k] = load_ahead(&w[8 * min(at + k, n - 1)]);
    };
    next_may_start();
    load(0);
    before_is_done();
    n_tok = vectors_of<NT>(j, vec);
#pragma unroll
    for (int t = 0; t < NT; t++)
        acc[t] = make_float4(0, 0, 0, 0);
    while (i < n) {
        typename T::four u[AT_ONCE];
        uint32_t upto = min(n - i, AT_ONCE);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            u[k] = v[k];
        const uint32_t at = i;
        i += upto;
        if (i < n)
            load(i);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (k < upto) {
                const float4 f = T::widen4(u[k]);
#pragma unroll
                for (int t = 0; t < NT; t++) {
                    float4 x = ((const float4 *)vec[t])[8 * (at + k) + l];
                    acc[t].x = __fmaf_rn(f.x, x.x, acc[t].x);
                    acc[t].y = __fmaf_rn(f.y, x.y, acc[t].y);
                    acc[t].z = __fmaf_rn(f.z, x.z, acc[t].z);
                    acc[t].w = __fmaf_rn(f.w, x.w, acc[t].w);
                }
            }
    }
#pragma unroll
    for (int t = 0; t < NT; t++) {
        float4 a = acc[t];
#pragma unroll
        for (int h = 4; h; h /= 2) { /* lanes 16, 8 and 4 further on */
            a.x = __fadd_rn(a.x, __shfl_down_sync(~0u, a.x, h, 8));
            a.y = __fadd_rn(a.y, __shfl_down_sync(~0u, a.y, h, 8));
            a.z = __fadd_rn(a.z, __shfl_down_sync(~0u, a.z, h, 8));
            a.w = __fadd_rn(a.w, __shfl_down_sync(~0u, a.w, h, 8));
        }
        if (l == 0 && r < j.n_rows && t < n_tok)
            finish(j, r, first + t, __fadd_rn(__fadd_rn(a.x, a.z), __fadd_rn(a.y, a.w)));
    }
}

/* ---- few rows ---- */

/* Values of a piece; rows of a block: 48 KB of shared memory hold what is on its way, on every card */
enum { PIECE = 1024, FEW_ROWS = 2 };
template <int NT> constexpr int DEPTH = NT == 1 ? 4 : 2; /* pieces on their way */

template <class T, int NT> static uint32_t few_bytes(uint32_t rows)
{
    return DEPTH<NT> * PIECE * (uint32_t)(rows * sizeof(typename T::bits) + NT * sizeof(float));
}

/* rows * NT <= FLOAT_WARPS: a warp has one result */
template <class T, int NT> __global__ void __launch_bounds__(FLOAT_THREADS)
    float_few(const __grid_constant__ dot_cuda_rows j, uint32_t rows)
{
    extern __shared__ __align__(128) uint8_t smem[];
    constexpr int AHEAD = DEPTH<NT>;
    constexpr uint32_t PER_W = 16 / sizeof(typename T::bits); /* values of one copy */
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.y * NT;
    const uint32_t row0 = blockIdx.x * rows, n_pieces = (j.n_cols + PIECE - 1) / PIECE;
    const uint32_t row_piece = PIECE * (uint32_t)sizeof(typename T::bits);
    const uint32_t each = rows * row_piece + NT * PIECE * 4;
    const uint32_t r = warp % rows, t = warp / rows;
    const float *vec[NT];
    uint32_t n_tok;
    float acc = 0;

    auto ask_rows = [&](uint32_t p) {
        uint32_t n = min(PIECE, j.n_cols - p * PIECE) / PER_W;
        for (uint32_t k = 0; k < rows; k++)
            for (uint32_t c = threadIdx.x; c < n; c += FLOAT_THREADS)
                copy16(smem + p % AHEAD * each + k * row_piece + 16 * c,
                       j.w + min(row0 + k, j.n_rows - 1) * j.row_bytes + p * row_piece + 16 * c);
    };
    auto ask_vectors = [&](uint32_t p) {
        uint32_t n = min(PIECE, j.n_cols - p * PIECE) / 4;
#pragma unroll
        for (int k = 0; k < NT; k++)
            for (uint32_t c = threadIdx.x; c < n; c += FLOAT_THREADS)
                copy16(smem + p % AHEAD * each + rows * row_piece + k * PIECE * 4 + 16 * c,
                       (const uint8_t *)(vec[k] + p * PIECE) + 16 * c);
    };

    next_may_start();
    for (uint32_t p = 0; p < AHEAD && p < n_pieces; p++)
        ask_rows(p);
    before_is_done();
    n_tok = vectors_of<NT>(j, vec);
    for (uint32_t p = 0; p < AHEAD; p++) {
        if (p < n_pieces)
            ask_vectors(p);
        copies_close();
    }
    for (uint32_t p = 0; p < n_pieces; p++) {
        copies_wait<AHEAD - 1>();
        __syncthreads();
        if (t < NT) {
            const uint8_t *piece = smem + p % AHEAD * each;
            const typename T::bits *w = (const typename T::bits *)(piece + r * row_piece);
            const float *x = (const float *)(piece + rows * row_piece) + t * PIECE;
            uint32_t n = min(PIECE, j.n_cols - p * PIECE) / 32;
#pragma unroll 8
            for (uint32_t i = 0; i < n; i++)
                acc = __fmaf_rn(T::widen(w[32 * i + lane]), x[32 * i + lane], acc);
        }
        __syncthreads();
        if (p + AHEAD < n_pieces) {
            ask_rows(p + AHEAD);
            ask_vectors(p + AHEAD);
        }
        copies_close();
    }
#pragma unroll
    for (int h = 16; h; h /= 2)
        acc = __fadd_rn(acc, __shfl_down_sync(~0u, acc, h));
    if (lane == 0 && t < n_tok && t < NT && row0 + r < j.n_rows)
        finish(j, row0 + r, first + t, acc);
}

/* ---- prompts ---- */

/* rows and vectors of a block: its warps have eight of each; values of a piece */
enum { TILE_ROWS = 16, TILE_VECS = 32, TILE_EACH = 8, TILE_PIECE = 128 };

template <class T> __global__ void __launch_bounds__(FLOAT_THREADS)
    float_tiles(const __grid_constant__ dot_cuda_rows j)
{
    typedef typename T::bits bits;
    __shared__ __align__(16) bits rows[2][TILE_ROWS][TILE_PIECE];
    __shared__ __align__(16) float vecs[2][TILE_VECS][TILE_PIECE];
    constexpr uint32_t PER_W = 16 / sizeof(bits); /* values of one copy */
    const uint32_t lane = threadIdx.x % 32, r0 = threadIdx.x / 32 % 2 * TILE_EACH, t0 = threadIdx.x / 64 * TILE_EACH;
    const uint32_t row0 = blockIdx.x * TILE_ROWS, first = blockIdx.y * TILE_VECS;
    const uint32_t n_pieces = (j.n_cols + TILE_PIECE - 1) / TILE_PIECE;
    float acc[TILE_EACH][TILE_EACH] = {};

    auto ask = [&](uint32_t p) {
        const uint32_t n = p < n_pieces ? min((uint32_t)TILE_PIECE, j.n_cols - p * TILE_PIECE) : 0;

        for (uint32_t c = threadIdx.x; c < TILE_ROWS * (TILE_PIECE / PER_W); c += FLOAT_THREADS) {
            const uint32_t r = c / (TILE_PIECE / PER_W), at = c % (TILE_PIECE / PER_W) * PER_W;
            if (at < n)
                copy16((uint8_t *)&rows[p % 2][r][at], j.w + (size_t)min(row0 + r, j.n_rows - 1) * j.row_bytes +
                                                           (p * TILE_PIECE + at) * sizeof(bits));
        }
        for (uint32_t c = threadIdx.x; c < TILE_VECS * (TILE_PIECE / 4); c += FLOAT_THREADS) {
            const uint32_t v = min(first + c / (TILE_PIECE / 4), j.n_tok - 1), at = c % (TILE_PIECE / 4) * 4;
            if (at < n)
                copy16((uint8_t *)&vecs[p % 2][c / (TILE_PIECE / 4)][at],
                       j.acts + j.a_stride * (j.idx ? j.idx[v] : v) + (p * TILE_PIECE + at) * sizeof(float));
        }
        copies_close();
    };

    before_is_done();
    ask(0);
    for (uint32_t p = 0; p < n_pieces; p++) {
        const uint32_t n = min((uint32_t)TILE_PIECE, j.n_cols - p * TILE_PIECE);

        copies_wait<0>();
        __syncthreads(); /* the piece is there, the one before is done with */
        ask(p + 1);
        for (uint32_t i = lane; i < n; i += 32) {
            float w[TILE_EACH], x[TILE_EACH];
#pragma unroll
            for (int k = 0; k < TILE_EACH; k++) {
                w[k] = T::widen(rows[p % 2][r0 + k][i]);
                x[k] = vecs[p % 2][t0 + k][i];
            }
#pragma unroll
            for (int k = 0; k < TILE_EACH; k++)
#pragma unroll
                for (int t = 0; t < TILE_EACH; t++)
                    acc[k][t] = __fmaf_rn(w[k], x[t], acc[k][t]);
        }
    }
    float mine[2] = {}; /* results lane and lane + 32: every lane gets every sum */
#pragma unroll
    for (int k = 0; k < TILE_EACH; k++)
#pragma unroll
        for (int t = 0; t < TILE_EACH; t++) {
            float v = acc[k][t];
#pragma unroll
            for (int h = 16; h; h /= 2)
                v = __fadd_rn(v, __shfl_xor_sync(~0u, v, h));
            if ((k * TILE_EACH + t) % 32 == lane)
                mine[(k * TILE_EACH + t) / 32] = v;
        }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t r = row0 + r0 + (lane + 32 * i) / TILE_EACH, t = first + t0 + lane % TILE_EACH;
        if (r < j.n_rows && t < j.n_tok)
            finish(j, r, t, mine[i]);
    }
}

/* ---- experts ---- */

/* blockIdx.y walks over items */
template <class T> __global__ void __launch_bounds__(FLOAT_THREADS)
    float_items(const __grid_constant__ dot_cuda_experts j)
{
    before_is_done();
    for (uint32_t i = blockIdx.y; i < *j.n_items; i += gridDim.y) {
        const expert_item &item = j.items[i];
        const expert_slot &slot = j.slots[item.slot];
        float scale = slot.scale[j.which];

        for (uint32_t k = 0; k < item.n_tok; k++) {
            const float *vec[1] = {j.acts
                                       ? (const float *)(j.acts + j.a_stride * item.tok[k])
                                       : j.hidden + item.row[k] * j.ld_hidden};
            for (uint32_t g = blockIdx.x * FLOAT_WARPS + threadIdx.x / 32; g * ROWS < j.n_rows;
                 g += gridDim.x * FLOAT_WARPS)
                four_rows<T, 1>((const uint8_t *)slot.w[j.which], j.row_bytes, j.n_cols, vec,
                                g * ROWS, j.n_rows, [&](uint32_t r, uint32_t, float y) {
                                    if (scale != 1.0f)
                                        y = cu_canon(__fmul_rn(y, scale));
                                    j.y[item.row[k] * j.ldy + r] = y;
                                });
        }
    }
}

template <class... ARGS>
static int launch_early(void (*kernel)(ARGS...), dim3 grid, uint32_t bytes, const dot_cuda_rows *j,
                        ARGS... args)
{
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute early = {};

    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    c.gridDim = grid;
    c.blockDim = dim3(FLOAT_THREADS);
    c.dynamicSmemBytes = bytes;
    c.stream = j->stream;
    c.attrs = &early;
    c.numAttrs = 1;
    return cudaLaunchKernelEx(&c, kernel, args...);
}

/* the fewest rows that are "many": all of a card's threads have a batch of loads to do */
enum { MANY = 4096, BLOCKS_WANTED = 256 };

template <class T, int NT> static int launch_rows_of(const dot_cuda_rows *j)
{
    uint32_t tokens = (j->n_tok + NT - 1) / NT, rows = 1;

    if (j->n_cols % 32 || j->row_bytes % 16 || (size_t)j->w % 16 || (size_t)j->acts % 16 ||
        j->a_stride % 16)
        return launch_early(float_rows<T, NT>,
                            dim3((j->n_rows + ROWS * FLOAT_WARPS - 1) / (ROWS * FLOAT_WARPS),
                                 tokens),
                            0, j, *j);
    if (j->n_tok > DOT_CUDA_TOKENS) {
        float_tiles<T><<<dim3((j->n_rows + TILE_ROWS - 1) / TILE_ROWS, (j->n_tok + TILE_VECS - 1) / TILE_VECS),
                         FLOAT_THREADS, 0, j->stream>>>(*j);
        return cudaGetLastError();
    }
    if (j->n_rows >= MANY)
        return launch_early(float_many<T, NT>,
                            dim3((j->n_rows + FLOAT_THREADS / 8 - 1) / (FLOAT_THREADS / 8), tokens),
                            0, j, *j);
    if (j->n_rows >= FEW_ROWS * BLOCKS_WANTED)
        rows = FEW_ROWS;
    return launch_early(float_few<T, NT>, dim3((j->n_rows + rows - 1) / rows, tokens),
                        few_bytes<T, NT>(rows), j, *j, rows);
}
template <class T> static int launch_rows(const dot_cuda_rows *j)
{
    if (!j->n_rows || !j->n_tok)
        return 0;
    if ((size_t)j->w % sizeof(typename T::bits) || j->row_bytes % sizeof(typename T::bits))
        return cudaErrorInvalidValue;
    return j->n_tok == 1 ? launch_rows_of<T, 1>(j)
           : j->n_tok == 2 ? launch_rows_of<T, 2>(j)
                           : launch_rows_of<T, 4>(j);
}
template <class T> static int launch_items(const dot_cuda_experts *j)
{
    enum { ITEMS_AT_ONCE = 8 };
    uint32_t groups = (j->n_rows + ROWS * FLOAT_WARPS - 1) / (ROWS * FLOAT_WARPS);

    float_items<T><<<dim3(groups, ITEMS_AT_ONCE), FLOAT_THREADS, 0, j->stream>>>(*j);
    return cudaGetLastError();
}
template <class T, int NT> static int load_rows_of(void)
{
    cudaFuncAttributes a;
    int e = cudaFuncGetAttributes(&a, float_rows<T, NT>);

    if (!e)
        e = cudaFuncGetAttributes(&a, float_many<T, NT>);
    return e ? e : cudaFuncGetAttributes(&a, float_few<T, NT>);
}
template <class T> static int load_kernels(void)
{
    cudaFuncAttributes a;
    int e = load_rows_of<T, 1>();

    if (!e)
        e = load_rows_of<T, 2>();
    if (!e)
        e = load_rows_of<T, 4>();
    if (!e)
        e = cudaFuncGetAttributes(&a, float_tiles<T>);
    return e ? e : cudaFuncGetAttributes(&a, float_items<T>);
}

#define FLOAT_TYPE(name)                                                                           \
    extern "C" const struct dot_cuda_type dot_cuda_##name = {                                      \
        launch_rows<name>, NULL, launch_items<name>, load_kernels<name>}
FLOAT_TYPE(f32);
FLOAT_TYPE(f16);
FLOAT_TYPE(bf16);
