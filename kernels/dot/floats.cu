/* F32, F16 and BF16 rows on a card (ARITHMETIC.md rule 13): a warp is SUM32, its thread j the lane of
 * the values j, j + 32, ...; four rows of one warp share what they read of the vectors. */
#include "kernels/dot/dot.cuh"
extern "C" {
#include "kernels/dot/dot_cuda.h"
}

enum { ROWS = 4, FLOAT_WARPS = 8, FLOAT_THREADS = 32 * FLOAT_WARPS };

struct f32 {
    typedef uint32_t bits;
    static __device__ __forceinline__ float widen(uint32_t v)
    {
        return __uint_as_float(v);
    }
};
struct f16 {
    typedef uint16_t bits;
    static __device__ __forceinline__ float widen(uint16_t v)
    {
        return cu_f16(v);
    }
};
struct bf16 {
    typedef uint16_t bits;
    static __device__ __forceinline__ float widen(uint16_t v)
    {
        return cu_bf16(v);
    }
};

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

template <class T, int NT> __global__ void __launch_bounds__(FLOAT_THREADS)
    float_rows(const __grid_constant__ dot_cuda_rows j)
{
    uint32_t first = blockIdx.y * NT, n_tok = j.n_tok - first;
    const float *vec[NT];

    before_is_done();
#pragma unroll
    for (int t = 0; t < NT; t++) {
        uint32_t i = first + (t < n_tok ? t : n_tok - 1);
        vec[t] = (const float *)(j.acts + j.a_stride * (j.idx ? j.idx[i] : i));
    }
    for (uint32_t g = blockIdx.x * FLOAT_WARPS + threadIdx.x / 32; g * ROWS < j.n_rows;
         g += gridDim.x * FLOAT_WARPS)
        four_rows<T, NT>(j.w, j.row_bytes, j.n_cols, vec, g * ROWS, j.n_rows,
                         [&](uint32_t r, uint32_t t, float y) {
                             if (t >= n_tok)
                                 return;
                             if (j.scale)
                                 y = __fmul_rn(y, *j.scale);
                             if (j.bias)
                                 y = __fadd_rn(y, j.bias[r]);
                             j.y[(first + t) * j.ldy + r] = cu_canon(y);
                         });
}

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

template <class T> static int launch_rows(const dot_cuda_rows *j)
{
    uint32_t groups = (j->n_rows + ROWS * FLOAT_WARPS - 1) / (ROWS * FLOAT_WARPS);

    if (!j->n_rows || !j->n_tok)
        return 0;
    if ((size_t)j->w % sizeof(typename T::bits) || j->row_bytes % sizeof(typename T::bits))
        return cudaErrorInvalidValue;
    if (j->n_tok == 1)
        float_rows<T, 1><<<groups, FLOAT_THREADS, 0, j->stream>>>(*j);
    else if (j->n_tok <= 4)
        float_rows<T, 4><<<groups, FLOAT_THREADS, 0, j->stream>>>(*j);
    else
        float_rows<T, 8><<<dim3(groups, (j->n_tok + 7) / 8), FLOAT_THREADS, 0, j->stream>>>(*j);
    return cudaGetLastError();
}
template <class T> static int launch_items(const dot_cuda_experts *j)
{
    enum { ITEMS_AT_ONCE = 8 };
    uint32_t groups = (j->n_rows + ROWS * FLOAT_WARPS - 1) / (ROWS * FLOAT_WARPS);

    float_items<T><<<dim3(groups, ITEMS_AT_ONCE), FLOAT_THREADS, 0, j->stream>>>(*j);
    return cudaGetLastError();
}
template <class T> static int load_kernels(void)
{
    cudaFuncAttributes a;
    int e = cudaFuncGetAttributes(&a, float_rows<T, 1>);

    if (!e)
        e = cudaFuncGetAttributes(&a, float_rows<T, 4>);
    if (!e)
        e = cudaFuncGetAttributes(&a, float_rows<T, 8>);
    if (!e)
        e = cudaFuncGetAttributes(&a, float_items<T>);
    return e;
}

#define FLOAT_TYPE(name)                                                                           \
    extern "C" const struct dot_cuda_type dot_cuda_##name = {                                      \
        launch_rows<name>, NULL, launch_items<name>, load_kernels<name>}
FLOAT_TYPE(f32);
FLOAT_TYPE(f16);
FLOAT_TYPE(bf16);
