/* A thread reads one value of one row: the unit of the type's file (q4_k.c and so on), value by
 * value. A table lookup is a few rows a step: plain to read before fast. */
extern "C" {
#include "kernels/dot/tables.h"
#include "kernels/type/type.h"
}
#include "kernels/dot/widen_cuda.h"
#include "kernels/num.cuh"

/* The tables again, in the card's memory: the definitions of tables.c with another storage class.
 */
namespace card
{
#define const static __device__ const
#include "kernels/dot/tables.c"
#undef const
} // namespace card

enum { THREADS = 256 };

struct value {
    float d, m; /* the number is d * w, and m * mn beside it by the sign of its type */
    int w, mn, m_sign;
};

static __device__ __forceinline__ unsigned u16_at(const uint8_t *p)
{
    return p[0] | p[1] << 8;
}
static __device__ __forceinline__ uint32_t u32_at(const uint8_t *p)
{
    return u16_at(p) | (uint32_t)u16_at(p + 2) << 16;
}
static __device__ __forceinline__ float f16_at(const uint8_t *p)
{
    return cu_f16((uint16_t)u16_at(p));
}
static __device__ __forceinline__ int grid_at(uint64_t entry, int j)
{
    return (int)(entry >> 8 * j & 255);
}

/* ---- types of 32 values; i is the place in the unit ---- */

/* low nibbles are values 0 ... 15, high ones 16 ... 31 */
static __device__ __forceinline__ int nibble(const uint8_t *qs, int i)
{
    return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;
}

static __device__ value q4(const uint8_t *b, int i, int one)
{
    value v = {f16_at(b), one ? f16_at(b + 2) : 0.0f, nibble(b + (one ? 4 : 2), i), 1, one};

    if (!one)
        v.w -= 8;
    return v;
}

static __device__ value q5(const uint8_t *b, int i, int one)
{
    const uint8_t *high = b + (one ? 4 : 2);
    value v = {f16_at(b), one ? f16_at(b + 2) : 0.0f, nibble(high + 4, i), 1, one};

    v.w += 16 * (int)(u32_at(high) >> i & 1) - (one ? 0 : 16);
    return v;
}

static __device__ value nvfp4(const uint8_t *row, size_t u, int i)
{
    const uint8_t *b = row + 36 * (u / 4), *qs = b + 4 + 8 * (u % 4);
    int q = i < 8 ? qs[i] & 15 : qs[i - 8] >> 4;

    return {__uint_as_float(card::ue4m3_half_bits[b[u % 4]]), 0.0f, card::e2m1_values[q], 0, 0};
}

/* ---- types of 256 values ---- */

static __device__ value q2_k(const uint8_t *b, int i)
{
    int h = i / 128, j = i / 32 % 4, l = i % 32, q = b[16 + 32 * h + l] >> 2 * j & 3;

    return {f16_at(b + 80), f16_at(b + 82), (b[i / 16] & 15) * q, b[i / 16] >> 4, -1};
}

static __device__ value q3_k(const uint8_t *b, int i)
{
    int h = i / 128, j = i / 32 % 4, l = i % 32, k = i / 16;
    int q = (b[32 + 32 * h + l] >> 2 * j & 3) - 4 * !(b[l] >> (4 * h + j) & 1);
    const uint8_t *s = b + 96;
    int low = k < 8 ? s[k] & 15 : s[k - 8] >> 4, high = s[8 + k % 4] >> 2 * (k / 4) & 3;

    return {f16_at(b + 108), 0.0f, (low + 16 * high - 32) * q, 0, 0};
}

/* Q4_K and Q5_K: q of value i, the twelve bytes of scales at s */
static __device__ value k_mins(const uint8_t *b, int i, int q)
{
    const uint8_t *s = b + 4;
    int j = i / 32, sc, mn;

    if (j < 4) {
        sc = s[j] & 63;
        mn = s[j + 4] & 63;
    } else {
        sc = (s[j + 4] & 15) + 16 * (s[j - 4] >> 6);
        mn = (s[j + 4] >> 4) + 16 * (s[j] >> 6);
    }
    return {f16_at(b), f16_at(b + 2), sc * q, mn, -1};
}

static __device__ value q4_k(const uint8_t *b, int i)
{
    int j = i / 32;

    return k_mins(b, i, b[16 + 32 * (j / 2) + i % 32] >> 4 * (j % 2) & 15);
}

static __device__ value q5_k(const uint8_t *b, int i)
{
    int j = i / 32, l = i % 32;

    return k_mins(b, i, (b[48 + 32 * (j / 2) + l] >> 4 * (j % 2) & 15) + 16 * (b[16 + l] >> j & 1));
}

static __device__ value q6_k(const uint8_t *b, int i)
{
    int h = i / 128, j = i / 32 % 4, l = i % 32;
    int low = b[64 * h + 32 * (j & 1) + l] >> 4 * (j / 2) & 15;
    int high = b[128 + 32 * h + l] >> 2 * j & 3;

    return {f16_at(b + 208), 0.0f, (int8_t)b[192 + i / 16] * (low + 16 * high - 32), 0, 0};
}

static __device__ value iq1_s(const uint8_t *b, int i)
{
    int h = (int)u16_at(b + 34 + 2 * (i / 32)), l = i / 8 % 4;
    int index = b[2 + i / 8] + 256 * (h >> 3 * l & 7);
    int scale = 2 * (h >> 12 & 7) + 1, delta = h >> 15 ? -1 : 1;

    return {__fmul_rn(f16_at(b), 0.125f), 0.0f,
            scale * (8 * (int8_t)grid_at(card::iq1s_grid[index], i % 8) + delta), 0, 0};
}

static __device__ value iq1_m(const uint8_t *b, int i)
{
    int g = i / 8, k = i / 16, n = b[32 + g / 2] >> 4 * (g % 2) & 15;
    int scale = 2 * (int)(u16_at(b + 48 + 2 * (k / 4)) >> 3 * (k % 4) & 7) + 1;
    int v = 8 * (int8_t)grid_at(card::iq1s_grid[b[g] + 256 * (n & 7)], i % 8);
    unsigned bits = 0;

    for (int s = 0; s < 4; s++)
        bits |= u16_at(b + 48 + 2 * s) >> 12 << 4 * s;
    return {__fmul_rn(cu_f16((uint16_t)bits), 0.125f), 0.0f, scale * (v + (n & 8 ? -1 : 1)), 0, 0};
}

static __device__ __forceinline__ value signed_value(float d, int v, int negative)
{
    return {d, 0.0f, negative ? -v : v, 0, 0};
}

static __device__ value iq2_xxs(const uint8_t *b, int i)
{
    const uint8_t *group = b + 2 + 8 * (i / 32);
    uint32_t bits = u32_at(group + 4);
    int l = i / 8 % 4, j = i % 8;

    return signed_value(__fmul_rn(f16_at(b), 0.125f),
                        (int)(2 * (bits >> 28) + 1) * grid_at(card::iq2xxs_grid[group[l]], j),
                        card::sign_masks[bits >> 7 * l & 127] >> j & 1);
}

static __device__ value iq2_xs(const uint8_t *b, int i)
{
    unsigned q = u16_at(b + 2 + 2 * (i / 8));
    int j = i % 8, scale = 2 * (b[66 + i / 32] >> 4 * (i / 16 % 2) & 15) + 1;

    return signed_value(__fmul_rn(f16_at(b), 0.125f), scale * grid_at(card::iq2xs_grid[q & 511], j),
                        card::sign_masks[q >> 9] >> j & 1);
}

static __device__ value iq2_s(const uint8_t *b, int i)
{
    int g = i / 8, j = i % 8, index = b[2 + g] + 256 * (b[66 + g / 4] >> 2 * (g % 4) & 3);
    int scale = 2 * (b[74 + i / 32] >> 4 * (i / 16 % 2) & 15) + 1;

    return signed_value(__fmul_rn(f16_at(b), 0.125f), scale * grid_at(card::iq2s_grid[index], j),
                        b[34 + g] >> j & 1);
}

static __device__ value iq3_xxs(const uint8_t *b, int i)
{
    uint32_t bits = u32_at(b + 66 + 4 * (i / 32));

    return signed_value(__fmul_rn(f16_at(b), 0.25f),
                        (int)(2 * (bits >> 28) + 1) *
                            grid_at(card::iq3xxs_grid[b[2 + i / 4]], i % 4),
                        card::sign_masks[bits >> 7 * (i / 8 % 4) & 127] >> i % 8 & 1);
}

static __device__ value iq3_s(const uint8_t *b, int i)
{
    int t = i / 4, index = b[2 + t] + 256 * (b[66 + t / 8] >> t % 8 & 1);
    int scale = 2 * (b[106 + i / 64] >> 4 * (i / 32 % 2) & 15) + 1;

    return signed_value(f16_at(b), scale * grid_at(card::iq3s_grid[index], i % 4),
                        b[74 + i / 8] >> i % 8 & 1);
}

static __device__ value iq4_xs(const uint8_t *b, int i)
{
    int s = i / 32, q = b[8 + 16 * s + i % 16] >> 4 * (i / 16 % 2) & 15;
    int low = b[4 + s / 2] >> 4 * (s % 2) & 15, high = (int)(u16_at(b + 2) >> 2 * s & 3);

    return {f16_at(b), 0.0f, (low + 16 * high - 32) * card::iq4_values[q], 0, 0};
}

static __device__ value value_at(uint32_t type, const uint8_t *row, size_t at)
{
    const uint8_t *b32 = row, *b256;
    int i = (int)(at % 32), k = (int)(at % 256);
    size_t u = at / 32, U = at / 256;

    switch (type) {
    case W_Q4_0:
        return q4(b32 + 18 * u, i, 0);
    case W_Q4_1:
        return q4(b32 + 20 * u, i, 1);
    case W_Q5_0:
        return q5(b32 + 22 * u, i, 0);
    case W_Q5_1:
        return q5(b32 + 24 * u, i, 1);
    case W_Q8_0:
        return {f16_at(b32 + 34 * u), 0.0f, (int8_t)b32[34 * u + 2 + i], 0, 0};
    case W_IQ4_NL:
        return {f16_at(b32 + 18 * u), 0.0f, card::iq4_values[nibble(b32 + 18 * u + 2, i)], 0, 0};
    case W_MXFP4:
        return {__uint_as_float(card::e8m0_half_bits[b32[17 * u]]), 0.0f,
                card::e2m1_values[nibble(b32 + 17 * u + 1, i)], 0, 0};
    case W_NVFP4:
        return nvfp4(row, at / 16, (int)(at % 16));
    case W_Q2_K:
        return q2_k(row + 84 * U, k);
    case W_Q3_K:
        return q3_k(row + 110 * U, k);
    case W_Q4_K:
        return q4_k(row + 144 * U, k);
    case W_Q5_K:
        return q5_k(row + 176 * U, k);
    case W_Q6_K:
        return q6_k(row + 210 * U, k);
    case W_IQ1_S:
        return iq1_s(row + 50 * U, k);
    case W_IQ1_M:
        return iq1_m(row + 56 * U, k);
    case W_IQ2_XXS:
        return iq2_xxs(row + 66 * U, k);
    case W_IQ2_XS:
        return iq2_xs(row + 74 * U, k);
    case W_IQ2_S:
        return iq2_s(row + 82 * U, k);
    case W_IQ3_XXS:
        return iq3_xxs(row + 98 * U, k);
    case W_IQ3_S:
        return iq3_s(row + 110 * U, k);
    default: /* W_IQ4_XS: the launcher takes no other */
        b256 = row + 136 * U;
        return iq4_xs(b256, k);
    }
}

static __device__ float widened(uint32_t type, const uint8_t *row, size_t at)
{
    value v;
    float f;

    if (type == W_F32)
        return cu_canon(__uint_as_float(u32_at(row + 4 * at)));
    if (type == W_F16)
        return cu_canon(f16_at(row + 2 * at));
    if (type == W_BF16)
        return cu_canon(cu_bf16((uint16_t)u16_at(row + 2 * at)));
    v = value_at(type, row, at);
    f = __fmul_rn(v.d, (float)v.w); /* exact */
    if (v.m_sign < 0)
        f = __fsub_rn(f, __fmul_rn(v.m, (float)v.mn));
    else if (v.m_sign > 0)
        f = __fadd_rn(f, __fmul_rn(v.m, (float)v.mn));
    return cu_canon(__fadd_rn(f, 0.0f));
}

static __global__ void rows(uint32_t type, const uint8_t *w, size_t row_bytes, size_t n_cols,
                            const uint32_t *ids, float *out, size_t ldo)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x;

    if (i < n_cols)
        out[blockIdx.y * ldo + i] = widened(type, w + ids[blockIdx.y] * row_bytes, i);
}

static __global__ void table_rows(uint32_t type, const uint8_t *w, size_t token_bytes, size_t row_bytes, size_t n_cols,
                                  size_t values, float *out)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x;

    if (i < values)
        out[blockIdx.y * values + i] =
            widened(type, w + blockIdx.y * token_bytes + i / n_cols * row_bytes, i % n_cols);
}

static __global__ void pick(const float *x, size_t ldx, const uint32_t *idx, const uint32_t *n_live,
                            float *out, size_t ldo, size_t n)
{
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x;
    uint32_t row = !n_live || blockIdx.y < *n_live ? idx[blockIdx.y] : 0;

    if (i < n)
        out[blockIdx.y * ldo + i] = x[row * ldx + i];
}

void dequant_rows_cuda(uint32_t type, const void *w, size_t row_bytes, size_t n_cols,
                       const uint32_t *ids, float *out, size_t ldo, unsigned n_tokens,
                       cudaStream_t s)
{
    dim3 grid((unsigned)((n_cols + THREADS - 1) / THREADS), n_tokens);

    if (n_cols && n_tokens)
        rows<<<grid, THREADS, 0, s>>>(type, (const uint8_t *)w, row_bytes, n_cols, ids, out, ldo);
}

void dequant_table_cuda(uint32_t type, const void *w, size_t token_bytes, size_t row_bytes, unsigned n_rows,
                        size_t n_cols, float *out, unsigned n_tokens, cudaStream_t s)
{
    size_t values = n_rows * n_cols;
    dim3 grid((unsigned)((values + THREADS - 1) / THREADS), n_tokens);

    if (values && n_tokens)
        table_rows<<<grid, THREADS, 0, s>>>(type, (const uint8_t *)w, token_bytes, row_bytes, n_cols, values, out);
}

void pick_rows_cuda(const float *x, size_t ldx, const uint32_t *idx, const uint32_t *n_live,
                    float *out, size_t ldo, size_t n, unsigned n_rows, cudaStream_t s)
{
    dim3 grid((unsigned)((n + THREADS - 1) / THREADS), n_rows);

    if (n && n_rows)
        pick<<<grid, THREADS, 0, s>>>(x, ldx, idx, n_live, out, ldo, n);
}

static __global__ void slice(const float *x, size_t ldx, unsigned groups, unsigned n, unsigned from, unsigned pitch,
                             float *out, size_t ldo)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x;

    if (i < groups * n)
        out[blockIdx.y * ldo + i] = x[blockIdx.y * ldx + (size_t)(i / n) * pitch + from + i % n];
}

void slice_rows_cuda(const float *x, size_t ldx, unsigned groups, unsigned n, unsigned from, unsigned pitch,
                     float *out, size_t ldo, unsigned n_rows, cudaStream_t s)
{
    dim3 grid((groups * n + THREADS - 1) / THREADS, n_rows);

    if (groups && n && n_rows)
        slice<<<grid, THREADS, 0, s>>>(x, ldx, groups, n, from, pitch, out, ldo);
}
