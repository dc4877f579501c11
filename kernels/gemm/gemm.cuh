/* The product of a tile of rows with a tile of vectors, 256 values at a time (ARITHMETIC.md rules 10
 * to 12 and 16). Included by gemm.cu.
 *
 * A block of eight warps computes ROWS = 128 rows times VECS vectors. For each 256 values, ascending:
 *   1. the rows' bytes, copied to shared memory while the values before were multiplied, open into
 *      signed bytes there (open.cuh), with integer scales, minima and factors beside them;
 *   2. each warp multiplies 32 rows with its vectors: tensor cores sum 32 (or 16) values from 0, an
 *      integer multiply-add per result applies the scale; T is one more product, of minima with the
 *      vectors' sums, which are cut into two signed bytes (s = 128 h + l);
 *   3. the float step: one conversion and one fma per result. Units of 32 and 16 do it after every
 *      unit, with four sums per result in registers (rule 12); their integers begin at 0x4B400000,
 *      so that the conversion is a subtraction.
 * Missing rows, vectors and units at the edges are copies or zeros, their results dropped (rule 16:
 * padding is S = T = 0 with a finite factor). */
#pragma once
#include "kernels/dot/dot.cuh"
#include "kernels/gemm/mma.cuh"
extern "C" {
#include "kernels/dot/dot_cuda.h"
}

template <class T> struct gemm_shape {
    static constexpr bool WIDE = T::UNIT == 256;
    static constexpr int ROWS = 128, VECS = WIDE ? 64 : 32; /* of a block */
    static constexpr int TILES = VECS / 16;                 /* of 8 vectors, of a warp */
    static constexpr int LINE = 256 + 16;                   /* bytes of 256 values: no bank twice */
    static constexpr int PIECE = T::BYTES * 256 / T::BLOCK; /* of a file's row */
    static constexpr bool ALIGNED = T::BYTES % 16 == 0;
    static constexpr int CHUNKS = ALIGNED ? PIECE / 16 : (PIECE + 30) / 16;
    static constexpr int UNITS = 256 / T::UNIT;           /* of a piece */
    static constexpr int SUBS = WIDE ? 256 / T::SUB : 0; /* scales of a piece */

    static constexpr int TABLE_AT = 0;
    static constexpr int OPEN_AT = (T::TABLE + 127) / 128 * 128;
    static constexpr int VEC_AT = OPEN_AT + ROWS * LINE;
    static constexpr int RAW_AT = VEC_AT + 2 * VECS * LINE;
    static constexpr int SCALE_AT = RAW_AT + ROWS * CHUNKS * 16 + 16;
    static constexpr int MIN_AT = SCALE_AT + SUBS * ROWS * 4;
    static constexpr int D_AT = MIN_AT + (T::M < 0 ? ROWS * 16 : 0);
    static constexpr int M_AT = D_AT + UNITS * ROWS * 4;
    static constexpr int DV_AT = M_AT + (T::M ? UNITS * ROWS * 4 : 0); /* vectors' factors, twice */
    static constexpr int D_EACH = WIDE ? 1 : 8;
    static constexpr int SUM_AT = DV_AT + 2 * VECS * D_EACH * 4; /* h, l; or float sums, twice */
    static constexpr int POINT_AT =
        SUM_AT + (T::M < 0 ? VECS * 32 : T::M > 0 ? 2 * VECS * 8 * 4 : 0);
    static constexpr int BYTES = POINT_AT + VECS * 8;
};

static __device__ __forceinline__ void copy4(void *to, const void *from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from)
                 : "memory");
#else
    *(uint32_t *)to = *(const uint32_t *)from;
#endif
}

/* Asks for piece `u`: the rows' bytes, the vectors' values and factors. */
template <class T>
static __device__ __forceinline__ void ask(const dot_cuda_rows &j, uint8_t *smem, uint32_t row0,
                                           uint32_t u)
{
    using S = gemm_shape<T>;
    const uint8_t *const *vec = (const uint8_t *const *)(smem + S::POINT_AT);
    uint8_t *values = smem + S::VEC_AT + u % 2 * S::VECS * S::LINE;
    float *d = (float *)(smem + S::DV_AT) + u % 2 * S::VECS * S::D_EACH;

    for (int i = threadIdx.x; i < S::ROWS * S::CHUNKS; i += THREADS) {
        int r = i / S::CHUNKS, c = i % S::CHUNKS;
        const uint8_t *row = j.w + (size_t)min(row0 + r, j.n_rows - 1) * j.row_bytes;
        const uint8_t *from = row + (size_t)u * S::PIECE;
        uint32_t shift = S::ALIGNED ? 0 : (uint32_t)(size_t)from & 15;
        size_t left = (size_t)j.n_cols / T::BLOCK * T::BYTES - (size_t)u * S::PIECE;

        if (16 * c < shift + min(left, (size_t)S::PIECE))
            copy16(smem + S::RAW_AT + (r * S::CHUNKS + c) * 16, from - shift + 16 * c);
    }
    for (int i = threadIdx.x; i < S::VECS * 16; i += THREADS) {
        int v = i / 16, c = i % 16;
        uint32_t at = 256 * u + 16 * c;
        uint8_t *to = values + v * S::LINE + 16 * c;

        if (S::WIDE || at < j.n_cols)
            copy16(to, vec[v] + at);
        else
            *(uint4 *)to = make_uint4(0, 0, 0, 0);
    }
    for (int i = threadIdx.x; i < S::VECS * S::D_EACH; i += THREADS) {
        int v = i / S::D_EACH;
        uint32_t at = S::D_EACH * u + i % S::D_EACH;

        if (S::WIDE || at < j.n_cols / 32)
            copy4(d + i, vec[v] + cu_act_d_at(j.n_cols) + 4 * (size_t)at);
        else
            d[i] = 0;
    }
    copies_close();
}

/* A row's part of 32 values as bytes in their places, with what belongs to it. */
template <class T>
static __device__ __forceinline__ void open_part(const dot_cuda_rows &j, uint8_t *smem,
                                                 uint32_t row0, uint32_t u, int r, int p)
{
    using S = gemm_shape<T>;
    const uint8_t *raw = smem + S::RAW_AT + r * S::CHUNKS * 16;
    uint8_t *line = smem + S::OPEN_AT + r * S::LINE;
    int *scale = (int *)(smem + S::SCALE_AT);
    float *d = (float *)(smem + S::D_AT), *m = (float *)(smem + S::M_AT);
    bool in = S::WIDE || 256 * u + 32 * p < j.n_cols;
    opened o;

    if (!S::ALIGNED)
        raw += (size_t)(j.w + (size_t)min(row0 + r, j.n_rows - 1) * j.row_bytes +
                        (size_t)u * S::PIECE) &
               15;
    const uint8_t *b = block_at<T>(raw, 0, in ? p : 0);

    T::open(b, in ? p : 0, smem + S::TABLE_AT, &o);
    if constexpr (T::MIXED)
#pragma unroll
        for (int k = 0; k < 4; k++) { /* both halves in turn: back in order */
            uint32_t a = o.w[2 * k], c = o.w[2 * k + 1];
            o.w[2 * k] = __byte_perm(a, c, 0x6420);
            o.w[2 * k + 1] = __byte_perm(a, c, 0x7531);
        }
    uint4 first = T::MIXED ? make_uint4(o.w[0], o.w[2], o.w[4], o.w[6])
                           : make_uint4(o.w[0], o.w[1], o.w[2], o.w[3]);
    uint4 second = T::MIXED ? make_uint4(o.w[1], o.w[3], o.w[5], o.w[7])
                            : make_uint4(o.w[4], o.w[5], o.w[6], o.w[7]);
    if (!in)
        first = second = make_uint4(0, 0, 0, 0);
    *(uint4 *)(line + T::at(p, 0)) = first;
    *(uint4 *)(line + T::at(p, 4)) = second;
    if constexpr (S::WIDE) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int at = T::at(p, 4 * h);
            if (at % T::SUB == 0)
                scale[at / T::SUB * S::ROWS + r] = o.scale[h];
            if (T::M < 0)
                (smem + S::MIN_AT)[16 * r + at / 16] = (uint8_t)o.min[h];
        }
        if (p == 0)
            d[r] = T::factor(b, 0, 0);
        if (p == 1 && T::M)
            m[r] = T::factor(b, 1, 0);
    } else if constexpr (T::UNIT == 32) {
        d[p * S::ROWS + r] = in ? T::factor(b, 0, 0) : 0;
        if (T::M)
            m[p * S::ROWS + r] = in ? T::factor(b, 1, 0) : 0;
    } else {
        d[2 * p * S::ROWS + r] = in ? T::factor(b, 0, 2 * (p % 2)) : 0;
        d[(2 * p + 1) * S::ROWS + r] = in ? T::factor(b, 0, 2 * (p % 2) + 1) : 0;
    }
}

/* The vectors' sums of this piece: over 16 as two signed bytes, or over 32 as floats (exact). */
template <class T>
static __device__ __forceinline__ void open_sums(const dot_cuda_rows &j, uint8_t *smem, uint32_t u)
{
    using S = gemm_shape<T>;
    const uint8_t *const *vec = (const uint8_t *const *)(smem + S::POINT_AT);

    if constexpr (T::M < 0)
        for (int i = threadIdx.x; i < S::VECS * 16; i += THREADS) {
            int s = ((const int16_t *)(vec[i / 16] + cu_act_sum_at(j.n_cols, 256)))[16 * u +
                                                                                    i % 16];
            int h = (s + 64) >> 7;
            smem[S::SUM_AT + 32 * (i / 16) + i % 16] = (uint8_t)h;
            smem[S::SUM_AT + 32 * (i / 16) + 16 + i % 16] = (uint8_t)(s - 128 * h);
        }
    if constexpr (T::M > 0)
        for (int i = threadIdx.x; i < S::VECS * 8; i += THREADS) {
            uint32_t at = 8 * u + i % 8;
            ((float *)(smem + S::SUM_AT))[i] =
                at < j.n_cols / 32
                    ? (float)((const int32_t *)(vec[i / 8] + cu_act_sum_at(j.n_cols, 32)))[at]
                    : 0;
        }
}

/* ---- units of 256 ---- */

template <class T> struct wide_sums {
    float p[2][gemm_shape<T>::TILES][4], q[T::M ? 2 : 1][gemm_shape<T>::TILES][4];
};

template <class T>
static __device__ __forceinline__ void wide_piece(const uint8_t *smem, uint32_t u, int rows,
                                                  int vecs, int lane, wide_sums<T> &out)
{
    using S = gemm_shape<T>;
    const uint8_t *a_at = smem + S::OPEN_AT + (rows + lane % 16) * S::LINE + lane / 16 * 16;
    const uint8_t *b_at = smem + S::VEC_AT + u % 2 * S::VECS * S::LINE +
                          (vecs + lane % 8 + lane / 16 * 8) * S::LINE + lane / 8 % 2 * 16;
    const int *scale = (const int *)(smem + S::SCALE_AT) + rows + lane / 4;
    const float *d = (const float *)(smem + S::D_AT) + rows + lane / 4;
    const float *m = (const float *)(smem + S::M_AT) + rows + lane / 4;
    const float *dv = (const float *)(smem + S::DV_AT) + u % 2 * S::VECS + vecs + lane % 4 * 2;
    int s[2][S::TILES][4];

#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int t = 0; t < S::TILES; t++)
            s[i][t][0] = s[i][t][1] = s[i][t][2] = s[i][t][3] = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        uint32_t a[2][4], b[S::TILES / 2][4];

        load_matrices(a_at + 32 * k, a[0]);
        load_matrices(a_at + 16 * S::LINE + 32 * k, a[1]);
#pragma unroll
        for (int t = 0; t < S::TILES / 2; t++)
            load_matrices(b_at + 16 * t * S::LINE + 32 * k, b[t]);
#pragma unroll
        for (int half = 0; half < (T::SUB == 16 ? 2 : 1); half++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int *sc = scale + (k * 32 / T::SUB + half) * S::ROWS + 16 * i;
                int sc0 = sc[0], sc1 = sc[8];
#pragma unroll
                for (int t = 0; t < S::TILES; t++) {
                    const uint32_t *bt = b[t / 2] + t % 2 * 2;
                    int c[4];
                    if (T::SUB == 16)
                        mma16(c, a[i][2 * half], a[i][2 * half + 1], bt[half], 0);
                    else
                        mma32(c, a[i], bt[0], bt[1], 0);
                    s[i][t][0] += sc0 * c[0], s[i][t][1] += sc0 * c[1];
                    s[i][t][2] += sc1 * c[2], s[i][t][3] += sc1 * c[3];
                }
            }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float d0 = d[16 * i], d1 = d[16 * i + 8];
#pragma unroll
        for (int t = 0; t < S::TILES; t++) {
            float v0 = dv[8 * t], v1 = dv[8 * t + 1];
            float *p = out.p[i][t];
            p[0] = __fmaf_rn(__fmul_rn(d0, v0), __int2float_rn(s[i][t][0]), p[0]);
            p[1] = __fmaf_rn(__fmul_rn(d0, v1), __int2float_rn(s[i][t][1]), p[1]);
            p[2] = __fmaf_rn(__fmul_rn(d1, v0), __int2float_rn(s[i][t][2]), p[2]);
            p[3] = __fmaf_rn(__fmul_rn(d1, v1), __int2float_rn(s[i][t][3]), p[3]);
        }
    }
    if constexpr (T::M < 0) {
        const uint8_t *min_at = smem + S::MIN_AT + (rows + lane % 16) * 16;
        const uint8_t *sum_at = smem + S::SUM_AT + (vecs + lane % 8) * 32 + lane / 8 % 2 * 16;
#pragma unroll
        for (int t = 0; t < S::TILES; t++) {
            uint32_t b[2]; /* h, l */
            float v0 = dv[8 * t], v1 = dv[8 * t + 1];

            load_matrices2(sum_at + 8 * t * 32, b);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint32_t a[2];
                int h[4], l[4];
                float m0 = m[16 * i], m1 = m[16 * i + 8], *q = out.q[i][t];

                load_matrices2(min_at + 16 * i * 16, a);
                mma16(h, a[0], a[1], b[0], 0);
                mma16(l, a[0], a[1], b[1], 0);
                q[0] = __fmaf_rn(__fmul_rn(m0, v0), __int2float_rn(128 * h[0] + l[0]), q[0]);
                q[1] = __fmaf_rn(__fmul_rn(m0, v1), __int2float_rn(128 * h[1] + l[1]), q[1]);
                q[2] = __fmaf_rn(__fmul_rn(m1, v0), __int2float_rn(128 * h[2] + l[2]), q[2]);
                q[3] = __fmaf_rn(__fmul_rn(m1, v1), __int2float_rn(128 * h[3] + l[3]), q[3]);
            }
        }
    }
}
template <class T>
static __device__ __forceinline__ float wide_result(const wide_sums<T> &x, int i, int t, int c)
{
    if constexpr (T::M < 0)
        return __fsub_rn(x.p[i][t][c], x.q[i][t][c]);
    else
        return x.p[i][t][c];
}

/* ---- units of 32 and 16 ---- */

template <class T> struct lane_sums { /* [lane] first: one unit works on one of them */
    float p[4][2][gemm_shape<T>::TILES][4], q[T::M ? 4 : 1][2][gemm_shape<T>::TILES][4];
};

template <class T>
static __device__ __forceinline__ void narrow_piece(const uint8_t *smem, uint32_t u, int rows,
                                                    int vecs, int lane, lane_sums<T> &out)
{
    using S = gemm_shape<T>;
    constexpr int PER = 32 / T::UNIT; /* units of 32 values */
    const uint8_t *a_at = smem + S::OPEN_AT + (rows + lane % 16) * S::LINE + lane / 16 * 16;
    const uint8_t *b_at = smem + S::VEC_AT + u % 2 * S::VECS * S::LINE +
                          (vecs + lane % 8 + lane / 16 * 8) * S::LINE + lane / 8 % 2 * 16;
    const float *d = (const float *)(smem + S::D_AT) + rows + lane / 4;
    const float *m = (const float *)(smem + S::M_AT) + rows + lane / 4;
    const float *dv = (const float *)(smem + S::DV_AT) + (u % 2 * S::VECS + vecs + lane % 4 * 2) * 8;
    const float *sum = (const float *)(smem + S::SUM_AT) + (vecs + lane % 4 * 2) * 8;
    const int start = 0x4B400000; /* the float 1.5 * 2^23; a unit's |S| is below 2^22 */
    const float zero = 0x1.8p23f;

#pragma unroll
    for (int k = 0; k < 8; k++) {
        uint32_t a[2][4], b[S::TILES / 2][4];

        load_matrices(a_at + 32 * k, a[0]);
        load_matrices(a_at + 16 * S::LINE + 32 * k, a[1]);
#pragma unroll
        for (int t = 0; t < S::TILES / 2; t++)
            load_matrices(b_at + 16 * t * S::LINE + 32 * k, b[t]);
#pragma unroll
        for (int half = 0; half < PER; half++) {
            const int unit = k * PER + half, chain = unit % 4;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float d0 = d[unit * S::ROWS + 16 * i], d1 = d[unit * S::ROWS + 16 * i + 8];
                float m0 = 0, m1 = 0;

                if (T::M)
                    m0 = m[unit * S::ROWS + 16 * i], m1 = m[unit * S::ROWS + 16 * i + 8];
#pragma unroll
                for (int t = 0; t < S::TILES; t++) {
                    const uint32_t *bt = b[t / 2] + t % 2 * 2;
                    float v0 = dv[64 * t + k], v1 = dv[64 * t + 8 + k];
                    float *p = out.p[chain][i][t];
                    int c[4];

                    if (PER == 2)
                        mma16(c, a[i][2 * half], a[i][2 * half + 1], bt[half], start);
                    else
                        mma32(c, a[i], bt[0], bt[1], start);
                    p[0] = __fmaf_rn(__fmul_rn(d0, v0), __fsub_rn(__int_as_float(c[0]), zero), p[0]);
                    p[1] = __fmaf_rn(__fmul_rn(d0, v1), __fsub_rn(__int_as_float(c[1]), zero), p[1]);
                    p[2] = __fmaf_rn(__fmul_rn(d1, v0), __fsub_rn(__int_as_float(c[2]), zero), p[2]);
                    p[3] = __fmaf_rn(__fmul_rn(d1, v1), __fsub_rn(__int_as_float(c[3]), zero), p[3]);
                    if constexpr (T::M > 0) {
                        float s0 = sum[64 * t + k], s1 = sum[64 * t + 8 + k];
                        float *q = out.q[chain][i][t];
                        q[0] = __fmaf_rn(__fmul_rn(m0, v0), s0, q[0]);
                        q[1] = __fmaf_rn(__fmul_rn(m0, v1), s1, q[1]);
                        q[2] = __fmaf_rn(__fmul_rn(m1, v0), s0, q[2]);
                        q[3] = __fmaf_rn(__fmul_rn(m1, v1), s1, q[3]);
                    }
                }
            }
        }
    }
}
template <class T>
static __device__ __forceinline__ float lane_result(const lane_sums<T> &x, int i, int t, int c)
{
    float p = __fadd_rn(__fadd_rn(x.p[0][i][t][c], x.p[2][i][t][c]),
                        __fadd_rn(x.p[1][i][t][c], x.p[3][i][t][c]));

    if constexpr (T::M > 0)
        p = __fadd_rn(p, __fadd_rn(__fadd_rn(x.q[0][i][t][c], x.q[2][i][t][c]),
                                   __fadd_rn(x.q[1][i][t][c], x.q[3][i][t][c])));
    return p;
}

/* ---- the kernel ---- */

template <class T, bool WIDE> struct sums_of {
    typedef wide_sums<T> type;
};
template <class T> struct sums_of<T, false> {
    typedef lane_sums<T> type;
};

template <class T>
__global__ void __launch_bounds__(THREADS, T::M > 0 ? 1 : 2)
    gemm_kernel(const __grid_constant__ dot_cuda_rows j)
{
    using S = gemm_shape<T>;
    extern __shared__ __align__(128) uint8_t smem[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const int rows = warp / 2 * 32, vecs = warp % 2 * (S::VECS / 2);
    const uint32_t row0 = blockIdx.x * S::ROWS, vec0 = blockIdx.y * S::VECS;
    const uint32_t n_pieces = (j.n_cols + 255) / 256;
    const uint8_t **point = (const uint8_t **)(smem + S::POINT_AT);
    typename sums_of<T, S::WIDE>::type sum = {};

    before_is_done();
    T::fill(smem + S::TABLE_AT);
    if (threadIdx.x < S::VECS) {
        uint32_t i = min(vec0 + threadIdx.x, j.n_tok - 1);
        point[threadIdx.x] = j.acts + j.a_stride * (j.idx ? j.idx[i] : i);
    }
    __syncthreads();
    ask<T>(j, smem, row0, 0);
    for (uint32_t u = 0; u < n_pieces; u++) {
        copies_wait<0>();
        __syncthreads(); /* the piece is there; the one before is multiplied */
#pragma unroll 2
        for (int i = threadIdx.x; i < S::ROWS * 8; i += THREADS)
            open_part<T>(j, smem, row0, u, i / 8, i % 8);
        open_sums<T>(j, smem, u);
        __syncthreads();
        if (u + 1 < n_pieces)
            ask<T>(j, smem, row0, u + 1);
        if constexpr (S::WIDE)
            wide_piece<T>(smem, u, rows, vecs, lane, sum);
        else
            narrow_piece<T>(smem, u, rows, vecs, lane, sum);
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int t = 0; t < S::TILES; t++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                uint32_t r = row0 + rows + 16 * i + lane / 4 + c / 2 * 8;
                uint32_t v = vec0 + vecs + 8 * t + lane % 4 * 2 + c % 2;
                float y;

                if constexpr (S::WIDE)
                    y = wide_result<T>(sum, i, t, c);
                else
                    y = lane_result<T>(sum, i, t, c);
                if (r >= j.n_rows || v >= j.n_tok)
                    continue;
                y = cu_canon(__fadd_rn(y, 0.0f));
                if (j.scale)
                    y = __fmul_rn(y, *j.scale);
                if (j.bias)
                    y = __fadd_rn(y, j.bias[r]);
                j.y[v * j.ldy + r] = cu_canon(y);
            }
}

template <class T> static int launch_gemm(const dot_cuda_rows *j)
{
    using S = gemm_shape<T>;
    int dev, most;
    cudaError_t e = cudaGetDevice(&dev);

    if (!e)
        e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, dev);
    if (e)
        return e;
    if (!j->n_rows || !j->n_tok)
        return 0;
    if ((size_t)j->w % 16 || (j->row_bytes % T::BYTES && j->row_bytes % 16))
        return cudaErrorInvalidValue;
    if (S::BYTES > most) /* too small a card for the tiles */
        return cudaErrorNotSupported;
    gemm_kernel<T><<<dim3((j->n_rows + S::ROWS - 1) / S::ROWS, (j->n_tok + S::VECS - 1) / S::VECS),
                     THREADS, S::BYTES, j->stream>>>(*j);
    return cudaGetLastError();
}
template <class T> static int load_gemm(void)
{
    int dev, most;
    cudaError_t e = cudaGetDevice(&dev);

    if (!e)
        e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, dev);
    if (!e && gemm_shape<T>::BYTES <= most)
        e = cudaFuncSetAttribute(gemm_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 gemm_shape<T>::BYTES);
    return e;
}

#define GEMM_CUDA_TYPE(name)                                                                       \
    extern "C" const struct gemm_cuda_type gemm_cuda_##name = {launch_gemm<name>, load_gemm<name>}
