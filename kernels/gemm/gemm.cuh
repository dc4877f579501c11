/* The product of a tile of rows with a tile of vectors, 256 values at a time (ARITHMETIC.md rules 10
 * to 12 and 16). Included by gemm.cu.
 *
 * A block of eight warps computes ROWS = 64 rows times VECS vectors. For each 256 values, ascending:
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
#include "kernels/func/func.cuh"
#include "kernels/gemm/mma.cuh"
extern "C" {
#include "kernels/gemm/gemm_cuda.h"
}

enum { GEMM_WARPS = 8, GEMM_THREADS = 32 * GEMM_WARPS };

/* MOST: vectors of a block where units are of 256; 64 is for cards with little shared memory */
template <class T, int MOST> struct gemm_shape {
    static constexpr bool WIDE = T::UNIT == 256;
    static constexpr int ROWS = 64, VECS = WIDE ? MOST : 64; /* of a block; warps: 2 x 4 */
    static constexpr int TILES = VECS / 32;                 /* of 8 vectors, of a warp */
    static constexpr int PER_VEC = GEMM_THREADS / VECS;     /* threads that copy one vector */
    static constexpr int PIECE = T::BYTES * 256 / T::BLOCK; /* of a file's row */
    static constexpr bool ALIGNED = T::BYTES % 16 == 0;
    static constexpr int CHUNKS = ALIGNED ? PIECE / 16 : (PIECE + 30) / 16;
    static constexpr int UNITS = 256 / T::UNIT;                   /* of a piece */
    static constexpr int SUBS = WIDE ? 256 / (T::SUB + !WIDE) : 0; /* scales of a piece */

    static constexpr int TABLE_AT = 0;
    static constexpr int OPEN_AT = (T::TABLE + 127) / 128 * 128;
    static constexpr int VEC_AT = OPEN_AT + ROWS * 256;
    static constexpr int RAW_AT = VEC_AT + 2 * VECS * 256;
    static constexpr int SCALE_AT = RAW_AT + ROWS * CHUNKS * 16 + 16;
    static constexpr int MIN_AT = SCALE_AT + SUBS * ROWS * 4;
    static constexpr int D_AT = MIN_AT + (T::M < 0 ? ROWS * 16 : 0);
    static constexpr int M_AT = D_AT + UNITS * ROWS * 4;
    static constexpr int DV_AT = M_AT + (T::M ? UNITS * ROWS * 4 : 0); /* vectors' factors, twice */
    static constexpr int D_EACH = WIDE ? 1 : 8;
    static constexpr int SUM_AT = DV_AT + 2 * VECS * D_EACH * 4; /* h, l; or float sums */
    static constexpr int POINT_AT = SUM_AT + (T::M < 0 ? VECS * 32 : T::M > 0 ? VECS * 8 * 4 : 0);
    static constexpr int BYTES = POINT_AT + VECS * 8; /* where the vectors are */
};

/* A line is the 256 bytes of one row or vector, its sixteen-byte chunks in an order that keeps eight
 * neighbouring lines' same chunks in different banks. */
static __device__ __forceinline__ uint32_t in_line(int line, int chunk)
{
    return 256 * line + 16 * (chunk ^ (line & 7));
}
/* x, but what is computed from it is not kept in registers from one piece to the next: dozens of
 * addresses would be, and the sums would spill */
static __device__ __forceinline__ int anew(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}
/* what a thread takes over all pieces: chunks of one row, factors and sums of one vector */
struct mine {
    const uint8_t *row, *vec;
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

/* Asks for piece `u`: the rows' bytes, the vectors' values and factors. WHOLE: all 256 values are
 * there. */
template <class T, int MOST, bool WHOLE>
static __device__ __forceinline__ void ask_piece(const dot_cuda_rows &j, const mine &from,
                                                 uint8_t *smem, uint32_t u)
{
    using S = gemm_shape<T, MOST>;
    const int tid = anew(threadIdx.x), v = tid / S::PER_VEC;
    const uint8_t *row = from.row + (size_t)u * S::PIECE;
    const uint8_t *const *point = (const uint8_t *const *)(smem + S::POINT_AT);
    uint8_t *raw = smem + S::RAW_AT + tid / 4 * S::CHUNKS * 16;
    uint8_t *line = smem + S::VEC_AT + u % 2 * S::VECS * 256;
    float *d = (float *)(smem + S::DV_AT) + (u % 2 * S::VECS + v) * S::D_EACH;
    const float *d_from = (const float *)(from.vec + cu_act_d_at(j.n_cols)) + S::D_EACH * u;
    uint32_t shift = S::ALIGNED ? 0 : (uint32_t)(size_t)row & 15;
    uint32_t bytes = WHOLE ? S::PIECE : j.n_cols / T::BLOCK * T::BYTES - u * S::PIECE;

    row -= shift;
#pragma unroll
    for (int k = 0; k < (S::CHUNKS + 3) / 4; k++) {
        int c = tid % 4 + 4 * k;
        if ((WHOLE && 4 * k + 3 < S::PIECE / 16) || (c < S::CHUNKS && 16 * c < shift + bytes))
            copy16(raw + 16 * c, row + 16 * c);
    }
#pragma unroll
    for (int k = 0; k < S::VECS / 16; k++) { /* sixteen threads a vector: whole lines of memory */
        int c = tid % 16, to_vec = tid / 16 + 16 * k;
        uint8_t *to = line + in_line(to_vec, c);

        if (WHOLE || 256 * u + 16 * c < j.n_cols)
            copy16(to, point[to_vec] + 256 * u + 16 * c);
        else
            *(uint4 *)to = make_uint4(0, 0, 0, 0);
    }
    if (S::WIDE) {
        if (tid % S::PER_VEC == 0)
            copy4(d, d_from);
    } else {
#pragma unroll
        for (int k = 0; k < 8 / S::PER_VEC; k++) {
            int c = tid % S::PER_VEC + S::PER_VEC * k;
            if (WHOLE || 8 * u + c < j.n_cols / 32)
                copy4(d + c, d_from + c);
            else
                d[c] = 0;
        }
    }
    copies_close();
}
template <class T, int MOST>
static __device__ __forceinline__ void ask(const dot_cuda_rows &j, const mine &from, uint8_t *smem,
                                           uint32_t u)
{
    if (gemm_shape<T, MOST>::WIDE || 256 * (u + 1) <= j.n_cols)
        ask_piece<T, MOST, true>(j, from, smem, u);
    else
        ask_piece<T, MOST, false>(j, from, smem, u);
}

/* the sixteen bytes of each half of an opened part, in the values' order */
template <class T>
static __device__ __forceinline__ void in_order_words(const opened &o, uint4 *first, uint4 *second)
{
    if constexpr (T::MIXED) { /* words hold both halves in turn */
        uint32_t a[4], b[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            a[k] = __byte_perm(o.w[2 * k], o.w[2 * k + 1], 0x6420);
            b[k] = __byte_perm(o.w[2 * k], o.w[2 * k + 1], 0x7531);
        }
        *first = make_uint4(a[0], a[1], a[2], a[3]);
        *second = make_uint4(b[0], b[1], b[2], b[3]);
    } else {
        *first = make_uint4(o.w[0], o.w[1], o.w[2], o.w[3]);
        *second = make_uint4(o.w[4], o.w[5], o.w[6], o.w[7]);
    }
}

/* A row's part of 32 values as bytes in their places, with what belongs to it. */
template <class T, int MOST>
static __device__ __forceinline__ void open_part(const dot_cuda_rows &j, uint8_t *smem,
                                                 uint32_t shift, uint32_t u, int r, int p)
{
    using S = gemm_shape<T, MOST>;
    const uint8_t *raw = smem + S::RAW_AT + r * S::CHUNKS * 16 + shift;
    uint8_t *line = smem + S::OPEN_AT;
    int *scale = (int *)(smem + S::SCALE_AT);
    float *d = (float *)(smem + S::D_AT), *m = (float *)(smem + S::M_AT);
    bool in = S::WIDE || 256 * u + 32 * p < j.n_cols;
    opened o;

    const uint8_t *b = block_at<T>(raw, 0, in ? p : 0);

    T::open(b, in ? p : 0, smem + S::TABLE_AT, &o);
    uint4 first, second;
    in_order_words<T>(o, &first, &second);
    if (!in)
        first = second = make_uint4(0, 0, 0, 0);
    *(uint4 *)(line + in_line(r, T::at(p, 0) / 16)) = first;
    *(uint4 *)(line + in_line(r, T::at(p, 4) / 16)) = second;
    if constexpr (S::WIDE) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int at = T::at(p, 4 * h);
            if (at % T::SUB == 0)
                scale[at / T::SUB * S::ROWS + r] = o.scale[h];
            if (T::M < 0)
                (smem + S::MIN_AT)[16 * r + at / 16] = (uint8_t)(o.mins >> 8 * h);
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

/* A vector's sums of this piece: over 16 as two signed bytes, or over 32 as floats (exact). */
template <class T, int MOST>
static __device__ __forceinline__ void open_sums(const dot_cuda_rows &j, const mine &from,
                                                 uint8_t *smem, uint32_t u)
{
    using S = gemm_shape<T, MOST>;
    const int tid = anew(threadIdx.x), v = tid / S::PER_VEC, k = tid % S::PER_VEC;

    if constexpr (T::M < 0) { /* eight of a vector's sixteen */
        uint4 x = *(const uint4 *)(from.vec + cu_act_sum_at(j.n_cols, 256) + 32 * u + 16 * k);
        const uint32_t two[4] = {x.x, x.y, x.z, x.w};
        uint32_t h[2] = {0, 0}, l[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int s = (int16_t)(two[i / 2] >> 16 * (i % 2)), high = (s + 64) >> 7;
            h[i / 4] |= (high & 255) << 8 * (i % 4);
            l[i / 4] |= ((s - 128 * high) & 255) << 8 * (i % 4);
        }
        *(uint2 *)(smem + S::SUM_AT + 32 * v + 8 * k) = make_uint2(h[0], h[1]);
        *(uint2 *)(smem + S::SUM_AT + 32 * v + 16 + 8 * k) = make_uint2(l[0], l[1]);
    }
    if constexpr (T::M > 0) {
        const int32_t *sum = (const int32_t *)(from.vec + cu_act_sum_at(j.n_cols, 32));
        for (int i = k; i < 8; i += S::PER_VEC)
            ((float *)(smem + S::SUM_AT))[8 * v + i] =
                8 * u + i < j.n_cols / 32 ? (float)sum[8 * u + i] : 0;
    }
}

/* ---- units of 256 ---- */

template <class T, int MOST> struct wide_sums {
    float p[2][gemm_shape<T, MOST>::TILES][4], q[T::M ? 2 : 1][gemm_shape<T, MOST>::TILES][4];
};

template <class T, int MOST>
static __device__ __forceinline__ void wide_piece(const uint8_t *smem, uint32_t u, int rows,
                                                  int vecs, int lane, wide_sums<T, MOST> &out)
{
    using S = gemm_shape<T, MOST>;
    const uint8_t *a_at = smem + S::OPEN_AT + (rows + lane % 16) * 256;
    const uint8_t *b_at = smem + S::VEC_AT + u % 2 * S::VECS * 256 +
                          (vecs + lane % 8 + lane / 16 * 8) * 256;
    const int *scale = (const int *)(smem + S::SCALE_AT) + rows + lane / 4;
    const float *d = (const float *)(smem + S::D_AT) + rows + lane / 4;
    const float *m = (const float *)(smem + S::M_AT) + rows + lane / 4;
    const float *dv = (const float *)(smem + S::DV_AT) + u % 2 * S::VECS + vecs + lane % 4 * 2;

    /* sixteen rows at a time: fewer integers are alive */
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float d0 = d[16 * i], d1 = d[16 * i + 8];
        int s[S::TILES][4];

#pragma unroll
        for (int t = 0; t < S::TILES; t++)
            s[t][0] = s[t][1] = s[t][2] = s[t][3] = 0;
#pragma unroll 2 /* all eight at once would ask for more registers than there are */
        for (int k = 0; k < 8; k++) {
            uint32_t a[4], b[S::TILES / 2][4];

            load_matrices(a_at + 16 * 256 * i + 16 * ((2 * k + lane / 16) ^ lane % 8), a);
#pragma unroll
            for (int t = 0; t < S::TILES / 2; t++)
                load_matrices(b_at + 16 * t * 256 + 16 * ((2 * k + lane / 8 % 2) ^ lane % 8), b[t]);
#pragma unroll
            for (int half = 0; half < (T::SUB == 16 ? 2 : 1); half++) {
                const int *sc = scale + (k * 32 / T::SUB + half) * S::ROWS + 16 * i;
                int sc0 = sc[0], sc1 = sc[8];
#pragma unroll
                for (int t = 0; t < S::TILES; t++) {
                    const uint32_t *bt = b[t / 2] + t % 2 * 2;
                    int c[4];
                    if (T::SUB == 16)
                        mma16(c, a[2 * half], a[2 * half + 1], bt[half], 0);
                    else
                        mma32(c, a, bt[0], bt[1], 0);
                    s[t][0] += sc0 * c[0], s[t][1] += sc0 * c[1];
                    s[t][2] += sc1 * c[2], s[t][3] += sc1 * c[3];
                }
            }
        }
#pragma unroll
        for (int t = 0; t < S::TILES; t++) {
            float v0 = dv[8 * t], v1 = dv[8 * t + 1];
            float *p = out.p[i][t];
            p[0] = __fmaf_rn(__fmul_rn(d0, v0), __int2float_rn(s[t][0]), p[0]);
            p[1] = __fmaf_rn(__fmul_rn(d0, v1), __int2float_rn(s[t][1]), p[1]);
            p[2] = __fmaf_rn(__fmul_rn(d1, v0), __int2float_rn(s[t][2]), p[2]);
            p[3] = __fmaf_rn(__fmul_rn(d1, v1), __int2float_rn(s[t][3]), p[3]);
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
template <class T, int MOST>
static __device__ __forceinline__ float wide_result(const wide_sums<T, MOST> &x, int i, int t, int c)
{
    if constexpr (T::M < 0)
        return __fsub_rn(x.p[i][t][c], x.q[i][t][c]);
    else
        return x.p[i][t][c];
}

/* ---- units of 32 and 16 ---- */

template <class T, int MOST> struct lane_sums { /* [lane] first: one unit works on one of them */
    float p[4][2][gemm_shape<T, MOST>::TILES][4], q[T::M ? 4 : 1][2][gemm_shape<T, MOST>::TILES][4];
};

template <class T, int MOST>
static __device__ __forceinline__ void narrow_piece(const uint8_t *smem, uint32_t u, int rows,
                                                    int vecs, int lane, lane_sums<T, MOST> &out)
{
    using S = gemm_shape<T, MOST>;
    constexpr int PER = 32 / T::UNIT; /* units of 32 values */
    const uint8_t *a_at = smem + S::OPEN_AT + (rows + lane % 16) * 256;
    const uint8_t *b_at = smem + S::VEC_AT + u % 2 * S::VECS * 256 +
                          (vecs + lane % 8 + lane / 16 * 8) * 256;
    const float *d = (const float *)(smem + S::D_AT) + rows + lane / 4;
    const float *m = (const float *)(smem + S::M_AT) + rows + lane / 4;
    const float *dv = (const float *)(smem + S::DV_AT) + (u % 2 * S::VECS + vecs + lane % 4 * 2) * 8;
    const float *sum = (const float *)(smem + S::SUM_AT) + (vecs + lane % 4 * 2) * 8;
    const int start = 0x4B400000; /* the float 1.5 * 2^23; a unit's |S| is below 2^22 */
    const float zero = 0x1.8p23f;
    float dv0[S::TILES][4], dv1[S::TILES][4];

#pragma unroll 1
    for (int k0 = 0; k0 < 8; k0 += 4)
#pragma unroll
    for (int j = 0; j < 4; j++) { /* k = k0 + j: four units at a time have each its own sum */
        const int k = k0 + j;
        uint32_t a[2][4], b[S::TILES / 2][4];

        int a_chunk = 16 * ((2 * k + lane / 16) ^ lane % 8);
        int b_chunk = 16 * ((2 * k + lane / 8 % 2) ^ lane % 8);

        load_matrices(a_at + a_chunk, a[0]);
        load_matrices(a_at + 16 * 256 + a_chunk, a[1]);
#pragma unroll
        for (int t = 0; t < S::TILES / 2; t++)
            load_matrices(b_at + 16 * t * 256 + b_chunk, b[t]);
        if (j == 0)
#pragma unroll
            for (int t = 0; t < S::TILES; t++) { /* the factors of four units */
                float4 x = *(const float4 *)(dv + 64 * t + k);
                float4 y = *(const float4 *)(dv + 64 * t + 8 + k);
                dv0[t][0] = x.x, dv0[t][1] = x.y, dv0[t][2] = x.z, dv0[t][3] = x.w;
                dv1[t][0] = y.x, dv1[t][1] = y.y, dv1[t][2] = y.z, dv1[t][3] = y.w;
            }
#pragma unroll
        for (int half = 0; half < PER; half++) {
            const int unit = k * PER + half, chain = (j * PER + half) % 4;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float d0 = d[unit * S::ROWS + 16 * i], d1 = d[unit * S::ROWS + 16 * i + 8];
                float m0 = 0, m1 = 0;

                if (T::M)
                    m0 = m[unit * S::ROWS + 16 * i], m1 = m[unit * S::ROWS + 16 * i + 8];
#pragma unroll
                for (int t = 0; t < S::TILES; t++) {
                    const uint32_t *bt = b[t / 2] + t % 2 * 2;
                    float v0 = dv0[t][j], v1 = dv1[t][j];
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
template <class T, int MOST>
static __device__ __forceinline__ float lane_result(const lane_sums<T, MOST> &x, int i, int t, int c)
{
    float p = __fadd_rn(__fadd_rn(x.p[0][i][t][c], x.p[2][i][t][c]),
                        __fadd_rn(x.p[1][i][t][c], x.p[3][i][t][c]));

    if constexpr (T::M > 0)
        p = __fadd_rn(p, __fadd_rn(__fadd_rn(x.q[0][i][t][c], x.q[2][i][t][c]),
                                   __fadd_rn(x.q[1][i][t][c], x.q[3][i][t][c])));
    return p;
}

/* ---- the kernel ---- */

template <class T, int MOST, bool WIDE> struct sums_of {
    typedef wide_sums<T, MOST> type;
};
template <class T, int MOST> struct sums_of<T, MOST, false> {
    typedef lane_sums<T, MOST> type;
};

/* One tile by the whole block, whose table is filled. JOB: vector(v): which of j.acts is vector v of j.n_tok;
 * put(r, v, y): row r's result, rule 14 still to come. */
template <class T, int MOST, class JOB>
static __device__ __forceinline__ void gemm_tile(const dot_cuda_rows &j, const JOB &job, uint8_t *smem,
                                                 uint32_t row0, uint32_t vec0)
{
    using S = gemm_shape<T, MOST>;
    const int tid = threadIdx.x, lane = tid & 31, warp = tid / 32;
    const int rows = warp / 4 * 32, vecs = warp % 4 * (S::VECS / 4);
    const uint32_t n_pieces = (j.n_cols + 255) / 256, last = j.n_rows - 1;
    typename sums_of<T, MOST, S::WIDE>::type sum = {};
    uint32_t begins[2], v = min(vec0 + tid / S::PER_VEC, j.n_tok - 1); /* of the rows it opens */
    mine from;

    from.row = j.w + (size_t)min(row0 + tid / 4, last) * j.row_bytes;
    from.vec = j.acts + j.a_stride * job.vector(v);
    for (int k = 0; k < 2; k++)
        begins[k] = min(row0 + tid / 8 + 32 * k, last) * (uint32_t)j.row_bytes;
    if (tid % S::PER_VEC == 0)
        ((const uint8_t **)(smem + S::POINT_AT))[tid / S::PER_VEC] = from.vec;
    __syncthreads();
    ask<T, MOST>(j, from, smem, 0);
    for (uint32_t u = 0; u < n_pieces; u++) {
        copies_wait<0>();
        __syncthreads(); /* the piece is there; the one before is multiplied */
        const int me = anew(tid);
#pragma unroll
        for (int k = 0; k < 2; k++)
            open_part<T, MOST>(j, smem, S::ALIGNED ? 0 : (begins[k] + u * S::PIECE) & 15, u,
                         me / 8 + 32 * k, me % 8);
        open_sums<T, MOST>(j, from, smem, u);
        __syncthreads();
        if (u + 1 < n_pieces)
            ask<T, MOST>(j, from, smem, u + 1);
        if constexpr (S::WIDE)
            wide_piece<T, MOST>(smem, u, anew(rows), anew(vecs), anew(lane), sum);
        else
            narrow_piece<T, MOST>(smem, u, anew(rows), anew(vecs), anew(lane), sum);
    }
#pragma unroll
    for (int half = 0; half < 4; half++) { /* rows g, g + 8, g + 16, g + 24 */
        const int i = half / 2;
        uint32_t r = row0 + rows + 8 * half + lane / 4;

#pragma unroll
        for (int t = 0; t < S::TILES; t++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                uint32_t to = vec0 + vecs + 8 * t + lane % 4 * 2 + c;
                float y;

                if constexpr (S::WIDE)
                    y = wide_result<T, MOST>(sum, i, t, 2 * (half % 2) + c);
                else
                    y = lane_result<T, MOST>(sum, i, t, 2 * (half % 2) + c);
                if (r < j.n_rows && to < j.n_tok)
                    job.put(r, to, __fadd_rn(y, 0.0f));
            }
    }
}

/* one matrix and many vectors */
struct gemm_one {
    const dot_cuda_rows &j;
    float scale;

    __device__ __forceinline__ size_t vector(uint32_t v) const
    {
        return j.idx ? j.idx[v] : v;
    }
    __device__ __forceinline__ void put(uint32_t r, uint32_t to, float y) const
    {
        if (j.scale)
            y = __fmul_rn(y, scale);
        if (j.bias)
            y = __fadd_rn(y, j.bias[r]);
        j.y[to * j.ldy + r] = cu_canon(y);
    }
};
template <class T, int MOST>
__global__ void __launch_bounds__(GEMM_THREADS, T::M > 0 ? 1 : 2)
    gemm_kernel(const __grid_constant__ dot_cuda_rows j)
{
    using S = gemm_shape<T, MOST>;
    extern __shared__ __align__(128) uint8_t smem[];

    before_is_done();
    T::fill(smem + S::TABLE_AT);
    gemm_tile<T, MOST>(j, gemm_one{j, j.scale ? *j.scale : 0}, smem, blockIdx.x * S::ROWS, blockIdx.y * S::VECS);
}

/* one matrix of many experts: a tile of some expert's vectors */
struct gemm_part {
    const gemm_cuda_many &m;
    const expert_item *items;
    float scale;

    __device__ __forceinline__ size_t vector(uint32_t v) const
    {
        const expert_item &it = items[v / EXPERT_TOKENS];

        return m.by_row ? it.row[v % EXPERT_TOKENS] : it.tok[v % EXPERT_TOKENS];
    }
    __device__ __forceinline__ void put(uint32_t r, uint32_t to, float y) const
    {
        float *at = m.y + items[to / EXPERT_TOKENS].row[to % EXPERT_TOKENS] * m.ldy + r;

        y = cu_canon(y);
        if (scale != 1.0f)
            y = cu_canon(__fmul_rn(y, scale));
        *at = m.activates ? cu_swiglu(*at, y, m.limit) : y;
    }
};
/* Blocks take tiles in turn; those of the same vectors follow each other. */
template <class T, int MOST>
__global__ void __launch_bounds__(GEMM_THREADS, T::M > 0 ? 1 : 2)
    gemm_many_kernel(const __grid_constant__ gemm_cuda_many m)
{
    using S = gemm_shape<T, MOST>;
    extern __shared__ __align__(128) uint8_t smem[];
    const uint32_t wide = (m.n_rows + S::ROWS - 1) / S::ROWS, parts = GEMM_CUDA_TILE / S::VECS;

    before_is_done();
    T::fill(smem + S::TABLE_AT);
    const uint32_t n = *m.n_tiles * parts * wide;
    for (uint32_t t = blockIdx.x; t < n; t += gridDim.x) {
        const gemm_cuda_tile at = m.tiles[t / wide / parts];
        const uint32_t vec0 = t / wide % parts * S::VECS;
        const expert_item *items = m.items + at.item;
        const expert_slot &slot = m.slots[items->slot];
        dot_cuda_rows j = {};

        if (vec0 >= at.n)
            continue;
        j.w = (const uint8_t *)slot.w[m.which];
        j.row_bytes = m.row_bytes;
        j.n_cols = m.n_cols;
        j.n_rows = m.n_rows;
        j.acts = m.acts;
        j.a_stride = m.a_stride;
        j.n_tok = at.n;
        gemm_tile<T, MOST>(j, gemm_part{m, items, slot.scale[m.which]}, smem, t % wide * S::ROWS, vec0);
        __syncthreads(); /* the last piece is multiplied */
    }
}

#include "kernels/gemm/hopper.cuh"
#include "kernels/gemm/split.cuh"

static inline int most_shared(int *bytes)
{
    int dev;
    cudaError_t e = cudaGetDevice(&dev);

    return e ? e : cudaDeviceGetAttribute(bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, dev);
}
template <class T, int MOST> static int launch_gemm_of(const dot_cuda_rows *j)
{
    using S = gemm_shape<T, MOST>;

    gemm_kernel<T, MOST>
        <<<dim3((j->n_rows + S::ROWS - 1) / S::ROWS, (j->n_tok + S::VECS - 1) / S::VECS),
           GEMM_THREADS, S::BYTES, j->stream>>>(*j);
    return cudaGetLastError();
}
/* the tile with fewer vectors, for units of 256: there is one tile for the others */
template <class T> constexpr int fewer = T::UNIT == 256 ? 64 : 128;

template <class T> static int launch_gemm(const dot_cuda_rows *j)
{
    int most, e = most_shared(&most);

    if (e)
        return e;
    if (!j->n_rows || !j->n_tok)
        return 0;
    if ((size_t)j->w % 16 || (j->row_bytes % T::BYTES && j->row_bytes % 16))
        return cudaErrorInvalidValue;
    if constexpr (on_hopper<T>)
        if (hopper_there<T>(most) && j->a_stride % 16 == 0)
            return launch_hopper<T>(j);
    if (gemm_shape<T, 128>::BYTES <= most)
        return launch_gemm_of<T, 128>(j);
    if (gemm_shape<T, fewer<T>>::BYTES <= most)
        return launch_gemm_of<T, fewer<T>>(j);
    return cudaErrorNotSupported; /* too small a card for any tile */
}
template <class T, int MOST> static int launch_many_of(const gemm_cuda_many *m)
{
    int dev, n_sms;
    cudaError_t e = cudaGetDevice(&dev);

    if (!e)
        e = cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, dev);
    if (e)
        return e;
    gemm_many_kernel<T, MOST><<<2 * n_sms, GEMM_THREADS, gemm_shape<T, MOST>::BYTES, m->stream>>>(*m);
    return cudaGetLastError();
}
template <class T> static int launch_many(const gemm_cuda_many *m)
{
    int most, e = most_shared(&most);

    if (e)
        return e;
    if (m->row_bytes % T::BYTES && m->row_bytes % 16)
        return cudaErrorInvalidValue;
    if (gemm_shape<T, 128>::BYTES <= most)
        return launch_many_of<T, 128>(m);
    if (gemm_shape<T, fewer<T>>::BYTES <= most)
        return launch_many_of<T, fewer<T>>(m);
    return cudaErrorNotSupported;
}
template <class T, int MOST> static int allow_gemm(int most)
{
    constexpr int BYTES = gemm_shape<T, MOST>::BYTES;
    int e;

    if (BYTES > most)
        return 0;
    e = cudaFuncSetAttribute(gemm_kernel<T, MOST>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    return e ? e : cudaFuncSetAttribute(gemm_many_kernel<T, MOST>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
}
template <class T> static int load_gemm(void)
{
    int most, e = most_shared(&most);

    if constexpr (on_hopper<T>)
        if (!e && hopper_there<T>(most))
            e = cudaFuncSetAttribute(hopper_form<T>(), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     hopper_bytes<T>());
    if (!e)
        e = allow_gemm<T, 128>(most);
    if (!e)
        e = allow_gemm<T, fewer<T>>(most);
    return e;
}

#define GEMM_CUDA_TYPE(name)                                                                       \
    extern "C" const struct gemm_cuda_type gemm_cuda_##name = {launch_gemm<name>, launch_many<name>,            \
                                                            gemm_shape<name, fewer<name>>::BYTES, load_gemm<name>}
