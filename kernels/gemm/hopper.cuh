/* gemm.cuh's products for sm_90a: Hopper's matrix instruction (wgmma), which reads both sides from
 * shared memory and runs beside the warps that asked for it. Included by gemm.cuh.
 *
 * A block computes 64 rows times 128 vectors, 256 values at a time. Warps 0 to 7 only make pieces: they
 * copy rows and vectors, open the rows' blocks into signed bytes, and are up to STAGES pieces ahead;
 * what they open was asked for two pieces before, vectors one before. Two warpgroups take 64 vectors each: while the tensor cores sum 32 values from 0 into one or two
 * sets of integers, another one is scaled (units of 256: S += scale * sum) or goes to floats (units of 32).
 * T is mma.sync's product of minima and sums, as in gemm.cuh: both instructions spread a result's
 * tiles over threads alike.
 *
 * The instruction cannot stop after 16 values, so that types with such sub-blocks are left out. */
#pragma once
#include "kernels/bars.cuh"

enum {
    HOPPER_ROWS = 64,
    HOPPER_VECS = 128,
    HOPPER_STAGES = 3,
    MAKERS = 256,                     /* threads */
    HOPPER_THREADS = MAKERS + 2 * 128,
    BAR_MAKERS = 1,                   /* where makers alone meet */
};

/* It can do every type with sub-blocks of 32, or units of 32 without minima; these were measured. */
template <class T> constexpr bool on_hopper = false;
template <> constexpr bool on_hopper<q4_k> = true;
template <> constexpr bool on_hopper<q8_0> = true;

template <class T> struct hopper_shape {
    static constexpr bool WIDE = T::UNIT == 256;
    static constexpr int PIECE = T::BYTES * 256 / T::BLOCK;
    static constexpr bool ALIGNED = T::BYTES % 16 == 0;
    static constexpr int CHUNKS = (ALIGNED ? PIECE / 16 : (PIECE + 30) / 16) | 1;
    static constexpr int UNITS = 256 / T::UNIT;

    /* of a stage; tiles for the matrix unit begin at multiples of 1024 */
    static constexpr int A_AT = 0;
    static constexpr int B_AT = A_AT + HOPPER_ROWS * 256;
    static constexpr int SCALE_AT = B_AT + HOPPER_VECS * 256; /* (rows, 8) integers; units of 256 */
    static constexpr int D_AT = SCALE_AT + (WIDE ? 8 * HOPPER_ROWS * 4 : 0); /* (rows, units) */
    static constexpr int M_AT = D_AT + UNITS * HOPPER_ROWS * 4;
    static constexpr int DV_AT = M_AT + (T::M ? HOPPER_ROWS * 4 : 0); /* (units, vectors) */
    static constexpr int MIN_AT = DV_AT + UNITS * HOPPER_VECS * 4;
    static constexpr int SUM_AT = MIN_AT + (T::M ? HOPPER_ROWS * 16 : 0);
    static constexpr int STAGE = (SUM_AT + (T::M ? HOPPER_VECS * 32 : 0) + 1023) / 1024 * 1024;

    static constexpr int TABLE_AT = HOPPER_STAGES * STAGE;
    static constexpr int RAW_AT = (TABLE_AT + T::TABLE + 127) / 128 * 128; /* pieces of rows as in the file */
    static constexpr int RAW = HOPPER_ROWS * CHUNKS * 16 + 16;
    static constexpr int RAWS = 3;
    static constexpr int BYTES = RAW_AT + RAWS * RAW + 1024; /* to a multiple of 1024 */
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* c = A x B over 32 values; 64 rows, 32 vectors */
static __device__ __forceinline__ void wgmma32(int c[16], uint64_t a, uint64_t b)
{
    asm volatile("{\n.reg .pred add;\nsetp.ne.u32 add, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
                 "%16, %17, add;\n}"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]), "+r"(c[4]), "+r"(c[5]),
                   "+r"(c[6]), "+r"(c[7]), "+r"(c[8]), "+r"(c[9]), "+r"(c[10]), "+r"(c[11]),
                   "+r"(c[12]), "+r"(c[13]), "+r"(c[14]), "+r"(c[15])
                 : "l"(a), "l"(b));
}
/* No clobber of memory in these: loads of scales may go before them. The barriers around a piece keep
 * everything that reads a stage between them. */
static __device__ __forceinline__ void wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;");
}
static __device__ __forceinline__ void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;");
}
/* all but the LEFT newest are done; c may be read from here on */
template <int LEFT> static __device__ __forceinline__ void wgmma_wait(int c[16])
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT));
#pragma unroll
    for (int i = 0; i < 16; i++)
        asm volatile("" : "+r"(c[i]));
}
/* a tile of lines of 128 bytes whose 16-byte chunks are exchanged by the line's number modulo 8 */
static __device__ __forceinline__ uint64_t tile_at(uint32_t shared)
{
    return (uint64_t)(shared >> 4 & 0x3FFF) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}
/* chunk 0..15 of the 256 bytes of a line, of `lines` */
static __device__ __forceinline__ uint32_t in_tile(int lines, int line, int chunk)
{
    return chunk / 8 * lines * 128 + line * 128 + 16 * (chunk % 8 ^ line % 8);
}
static __device__ __forceinline__ void bar_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/* ---- makers ---- */

template <class T>
static __device__ __forceinline__ void ask_rows(const dot_cuda_rows &j, uint8_t *raw, uint32_t row0,
                                                uint32_t u)
{
    using S = hopper_shape<T>;
    const int r = threadIdx.x / 4;
    const uint8_t *row = j.w + (size_t)min(row0 + r, j.n_rows - 1) * j.row_bytes;
    const uint8_t *at = row + (size_t)u * S::PIECE;
    uint32_t shift = S::ALIGNED ? 0 : (uint32_t)(size_t)at & 15;
    uint32_t bytes = min((uint32_t)S::PIECE, j.n_cols / T::BLOCK * T::BYTES - u * S::PIECE);

    at -= shift;
    raw += r * S::CHUNKS * 16;
#pragma unroll 4
    for (uint32_t c = 16 * (threadIdx.x % 4); c < shift + bytes; c += 64)
        copy16(raw + c, at + c);
}
/* a vector's sums of a piece: eight of the sixteen (threadIdx.x % 2), asked for one piece ahead */
template <class T>
static __device__ __forceinline__ uint4 ask_sums(const dot_cuda_rows &j, const uint8_t *mine,
                                                 uint32_t u)
{
    if constexpr (T::M < 0)
        return *(const uint4 *)(mine + cu_act_sum_at(j.n_cols, 256) + 32 * u +
                                16 * (threadIdx.x % 2));
    else
        return make_uint4(0, 0, 0, 0);
}
/* ... as two signed bytes each */
template <class T> static __device__ __forceinline__ void make_sums(uint8_t *stage, uint4 x)
{
    using S = hopper_shape<T>;
    const uint32_t two[4] = {x.x, x.y, x.z, x.w};
    uint32_t h[2] = {}, l[2] = {};

#pragma unroll
    for (int i = 0; i < 8; i++) {
        int s = (int16_t)(two[i / 2] >> 16 * (i % 2)), high = (s + 64) >> 7;
        h[i / 4] |= (high & 255) << 8 * (i % 4);
        l[i / 4] |= ((s - 128 * high) & 255) << 8 * (i % 4);
    }
    uint8_t *to = stage + S::SUM_AT + 32 * (threadIdx.x / 2) + 8 * (threadIdx.x % 2);
    *(uint2 *)to = make_uint2(h[0], h[1]);
    *(uint2 *)(to + 16) = make_uint2(l[0], l[1]);
}
/* begins: of the vectors, in sixteen bytes; mine: vector threadIdx.x / 2 */
template <class T>
static __device__ __forceinline__ void ask_vectors(const dot_cuda_rows &j, const uint32_t *begins,
                                                   const uint8_t *mine, uint8_t *stage, uint32_t u)
{
    using S = hopper_shape<T>;
    const int c = threadIdx.x % 16, v0 = threadIdx.x / 16;
    uint8_t *to = stage + S::B_AT + in_tile(HOPPER_VECS, v0, c); /* 16 lines on: as many atoms */
    const uint32_t at = 256 * u + 16 * c;
    uint32_t of[8];

#pragma unroll
    for (int k = 0; k < 8; k++)
        of[k] = begins[v0 + 16 * k];
#pragma unroll
    for (int k = 0; k < 8; k++, to += 16 * 128)
        if (at < j.n_cols)
            copy16(to, j.acts + (size_t)of[k] * 16 + at);
        else
            *(uint4 *)to = make_uint4(0, 0, 0, 0);
    const int v = threadIdx.x / 2;
    const float *d = (const float *)(mine + cu_act_d_at(j.n_cols)) + S::UNITS * u;
    float *dv = (float *)(stage + S::DV_AT) + v;
    for (int k = threadIdx.x % 2; k < S::UNITS; k += 2)
        if (S::WIDE || 8 * u + k < j.n_cols / 32)
            copy4(dv + k * HOPPER_VECS, d + k);
        else
            dv[k * HOPPER_VECS] = 0;
}
/* A row's part of 32 values, as open_part: opened, with the block's factors where the part has to bring
 * them; then stored. In two steps, so that the loads of several parts are on their way together. */
struct made {
    opened o;
    float d, m;
};
template <class T>
static __device__ __forceinline__ void make_part(const uint8_t *raw, const uint8_t *table, bool in,
                                                 int p, made *x)
{
    const uint8_t *b = block_at<T>(raw, 0, in ? p : 0);

    T::open(b, in ? p : 0, table, &x->o);
    x->d = T::factor(b, 0, 0);
    x->m = T::M ? T::factor(b, 1, 0) : 0;
}
template <class T>
static __device__ __forceinline__ void store_part(uint8_t *stage, bool in, int r, int p,
                                                  const made &x)
{
    using S = hopper_shape<T>;
    float *d = (float *)(stage + S::D_AT) + S::UNITS * r;
    uint4 first, second;

    in_order_words<T>(x.o, &first, &second);
    if (!in)
        first = second = make_uint4(0, 0, 0, 0);
    *(uint4 *)(stage + S::A_AT + in_tile(HOPPER_ROWS, r, T::at(p, 0) / 16)) = first;
    *(uint4 *)(stage + S::A_AT + in_tile(HOPPER_ROWS, r, T::at(p, 4) / 16)) = second;
    if constexpr (S::WIDE) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int at = T::at(p, 4 * h);
            if (at % 32 == 0)
                ((int *)(stage + S::SCALE_AT))[8 * r + at / 32] = x.o.scale[h];
            if (T::M < 0)
                (stage + S::MIN_AT)[16 * r + at / 16] = (uint8_t)(x.o.mins >> 8 * h);
        }
        if (p == 0)
            *d = x.d;
        if (p == 1 && T::M)
            ((float *)(stage + S::M_AT))[r] = x.m;
    } else {
        d[p] = in ? x.d : 0;
    }
}
template <class T>
static __device__ __forceinline__ void make_pieces(const dot_cuda_rows &j, uint8_t *smem,
                                                   const uint32_t *begins, uint32_t full,
                                                   uint32_t empty, uint32_t row0,
                                                   uint32_t n_pieces)
{
    using S = hopper_shape<T>;
    /* Two parts a thread. Eight neighbouring threads have eight rows where blocks are read by sixteen
     * bytes, else a row's eight parts: so that they meet in few banks. */
    const int r0 = S::ALIGNED ? threadIdx.x % HOPPER_ROWS : threadIdx.x / 8;
    const int p0 = S::ALIGNED ? threadIdx.x / HOPPER_ROWS : threadIdx.x % 8;
    const uint8_t *mine = j.acts + (size_t)begins[threadIdx.x / 2] * 16;
    uint32_t s = 0, raw_now = 0, raw_next = 2, parity = 1; /* of the next stage's last use */
    uint4 sums = ask_sums<T>(j, mine, 0);

    ask_rows<T>(j, smem + S::RAW_AT, row0, 0);
    ask_vectors<T>(j, begins, mine, smem, 0);
    copies_close();
    if (n_pieces > 1)
        ask_rows<T>(j, smem + S::RAW_AT + S::RAW, row0, 1);
    copies_close();
#pragma unroll 1
    for (uint32_t u = 0; u < n_pieces; u++) {
        uint8_t *stage = smem + s * S::STAGE;
        uint32_t next = s + 1 == HOPPER_STAGES ? 0 : s + 1;
        const uint8_t *raw = smem + S::RAW_AT + raw_now * S::RAW;

        copies_wait<1>();             /* this piece's vectors; its rows came one before */
        if (u == 0)
            copies_wait<0>();
        bar_sync(BAR_MAKERS, MAKERS); /* everybody's; the piece before is opened */
        if (u + 1 < n_pieces) {
            if (next == 0)
                parity ^= 1;
            if (u + 1 >= HOPPER_STAGES)
                bar_wait(empty + 8 * next, parity);
            ask_vectors<T>(j, begins, mine, smem + next * S::STAGE, u + 1);
        }
        copies_close();
        if (u + 2 < n_pieces)
            ask_rows<T>(j, smem + S::RAW_AT + raw_next * S::RAW, row0, u + 2);
        copies_close();
        if (T::M < 0) {
            make_sums<T>(stage, sums);
            sums = ask_sums<T>(j, mine, u + 1 < n_pieces ? u + 1 : u);
        }
        made part[2];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int r = S::ALIGNED ? r0 : r0 + 32 * k, p = S::ALIGNED ? p0 + 4 * k : p0;
            uint32_t shift = S::ALIGNED ? 0
                                        : (min(row0 + r, j.n_rows - 1) * (uint32_t)j.row_bytes +
                                           u * S::PIECE) & 15;
            make_part<T>(raw + r * S::CHUNKS * 16 + shift, smem + S::TABLE_AT,
                         S::WIDE || 256 * u + 32 * p < j.n_cols, p, &part[k]);
        }
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int r = S::ALIGNED ? r0 : r0 + 32 * k, p = S::ALIGNED ? p0 + 4 * k : p0;
            store_part<T>(stage, S::WIDE || 256 * u + 32 * p < j.n_cols, r, p, part[k]);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* wgmma reads it */
        bar_arrive(full + 8 * s);
        s = next;
        raw_now = raw_now + 1 == S::RAWS ? 0 : raw_now + 1;
        raw_next = raw_next + 1 == S::RAWS ? 0 : raw_next + 1;
    }
}

/* ---- multipliers: what a thread has of 64 rows times 64 vectors ---- */

/* [4 j + c]: vectors 8 j + 2 (lane % 4) + c % 2, rows lane / 4 + 8 (c / 2) of the warp's sixteen */
template <class T, bool WIDE> struct hopper_sums {
    float p[32], q[T::M ? 32 : 1];
};
template <class T> struct hopper_sums<T, false> {
    float p[4][32];
};

template <class T>
static __device__ __forceinline__ void multiply_piece(const uint8_t *stage, int group, int warp,
                                                      int lane,
                                                      hopper_sums<T, T::UNIT == 256> &out)
{
    using S = hopper_shape<T>;
    /* sets of sums: all but one are being made while one is used */
    constexpr int AHEAD = S::WIDE ? 3 : 2;
    const uint64_t a = tile_at((uint32_t)__cvta_generic_to_shared(stage + S::A_AT));
    const uint64_t b =
        tile_at((uint32_t)__cvta_generic_to_shared(stage + S::B_AT + group * 64 * 128));
    const int row = 16 * warp + lane / 4, vec = 64 * group + lane % 4 * 2;
    const float *d = (const float *)(stage + S::D_AT) + S::UNITS * row;
    const float *dv = (const float *)(stage + S::DV_AT) + vec;
    const int *scale = (const int *)(stage + S::SCALE_AT) + 8 * row;
    int c[AHEAD][16], s[S::WIDE ? 32 : 1];
    int ahead[2][8]; /* scales or factors of both rows */
    float2 next[4];  /* units of 32: the vectors' factors */

#pragma unroll
    for (int t = 0; t < 4; t++)
        next[t] = S::WIDE ? make_float2(0, 0) : *(const float2 *)(dv + 8 * t);

#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int k = 0; k < 8; k += 4) {
            int4 x = S::WIDE ? *(const int4 *)(scale + 64 * i + k)
                             : *(const int4 *)(d + 64 * i + k);
            ahead[i][k] = x.x, ahead[i][k + 1] = x.y, ahead[i][k + 2] = x.z, ahead[i][k + 3] = x.w;
        }

    auto ask = [&](int i) { /* instruction i: 32 values from 32 (i / 2) on, half i % 2 of the vectors */
        const int k = i / 2;
        wgmma_fence();
        wgmma32(c[i % AHEAD], a + k / 4 * (HOPPER_ROWS * 128 >> 4) + k % 4 * 2,
                b + k / 4 * (HOPPER_VECS * 128 >> 4) + k % 4 * 2 + i % 2 * (32 * 128 >> 4));
        wgmma_commit();
    };
    if (S::WIDE)
#pragma unroll
        for (int i = 0; i < 32; i++)
            s[i % (S::WIDE ? 32 : 1)] = 0;
#pragma unroll
    for (int i = 0; i < AHEAD - 1; i++)
        ask(i);
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const int k = i / 2, first = i % 2 * 16; /* of this thread's 32 results */
        int *now = c[i % AHEAD];

        if (i + AHEAD - 1 < 16) {
            ask(i + AHEAD - 1);
            wgmma_wait<AHEAD - 1>(now);
        } else if (AHEAD == 3 && i == 14) {
            wgmma_wait<1>(now);
        } else {
            wgmma_wait<0>(now);
        }
        if constexpr (S::WIDE) {
            int s0 = ahead[0][k], s1 = ahead[1][k];
#pragma unroll
            for (int x = 0; x < 16; x++)
                s[first + x] += (x % 4 < 2 ? s0 : s1) * now[x];
        } else {
            float d0 = __int_as_float(ahead[0][k]), d1 = __int_as_float(ahead[1][k]);
            float *p = out.p[k % 4] + first;
            float2 factor[4];
#pragma unroll
            for (int t = 0; t < 4; t++) {
                factor[t] = next[t];
                if (i < 15)
                    next[t] = *(const float2 *)(dv + (i + 1) / 2 * HOPPER_VECS +
                                                8 * (t + (i + 1) % 2 * 4));
            }
#pragma unroll
            for (int t = 0; t < 4; t++) {
                float2 v = factor[t];
                float *x = p + 4 * t;
                const int *y = now + 4 * t;
                x[0] = __fmaf_rn(__fmul_rn(d0, v.x), __int2float_rn(y[0]), x[0]);
                x[1] = __fmaf_rn(__fmul_rn(d0, v.y), __int2float_rn(y[1]), x[1]);
                x[2] = __fmaf_rn(__fmul_rn(d1, v.x), __int2float_rn(y[2]), x[2]);
                x[3] = __fmaf_rn(__fmul_rn(d1, v.y), __int2float_rn(y[3]), x[3]);
            }
        }
    }
    if constexpr (S::WIDE) {
        const float *m = (const float *)(stage + S::M_AT) + row;
        float d0 = d[0], d1 = d[8 * S::UNITS], m0 = 0, m1 = 0;
        uint32_t am[2] = {};

        if constexpr (T::M < 0) {
            m0 = m[0], m1 = m[8];
            load_matrices2(stage + S::MIN_AT + (16 * warp + lane % 16) * 16, am);
        }
#pragma unroll
        for (int t = 0; t < 8; t++) {
            float2 v = *(const float2 *)(dv + 8 * t);
            float *p = out.p + 4 * t;
            p[0] = __fmaf_rn(__fmul_rn(d0, v.x), __int2float_rn(s[4 * t]), p[0]);
            p[1] = __fmaf_rn(__fmul_rn(d0, v.y), __int2float_rn(s[4 * t + 1]), p[1]);
            p[2] = __fmaf_rn(__fmul_rn(d1, v.x), __int2float_rn(s[4 * t + 2]), p[2]);
            p[3] = __fmaf_rn(__fmul_rn(d1, v.y), __int2float_rn(s[4 * t + 3]), p[3]);
            if constexpr (T::M < 0) {
                uint32_t bs[2]; /* h, l */
                int h[4], l[4];
                float *q = out.q + 4 * t;

                load_matrices2(stage + S::SUM_AT + (64 * group + 8 * t + lane % 8) * 32 +
                                   lane / 8 % 2 * 16,
                               bs);
                mma16(h, am[0], am[1], bs[0], 0);
                mma16(l, am[0], am[1], bs[1], 0);
                q[0] = __fmaf_rn(__fmul_rn(m0, v.x), __int2float_rn(128 * h[0] + l[0]), q[0]);
                q[1] = __fmaf_rn(__fmul_rn(m0, v.y), __int2float_rn(128 * h[1] + l[1]), q[1]);
                q[2] = __fmaf_rn(__fmul_rn(m1, v.x), __int2float_rn(128 * h[2] + l[2]), q[2]);
                q[3] = __fmaf_rn(__fmul_rn(m1, v.y), __int2float_rn(128 * h[3] + l[3]), q[3]);
            }
        }
    }
}
template <class T>
static __device__ __forceinline__ float hopper_result(const hopper_sums<T, true> &x, int i)
{
    if constexpr (T::M < 0)
        return __fsub_rn(x.p[i], x.q[i]);
    else
        return x.p[i];
}
template <class T>
static __device__ __forceinline__ float hopper_result(const hopper_sums<T, false> &x, int i)
{
    return __fadd_rn(__fadd_rn(x.p[0][i], x.p[2][i]), __fadd_rn(x.p[1][i], x.p[3][i]));
}
template <class T>
static __device__ __forceinline__ void multiply(const dot_cuda_rows &j, const uint8_t *smem,
                                                uint32_t full, uint32_t empty, uint32_t row0,
                                                uint32_t vec0, uint32_t n_pieces)
{
    using S = hopper_shape<T>;
    const int group = (threadIdx.x - MAKERS) / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    hopper_sums<T, S::WIDE> sum = {};
    uint32_t parity = 0;

#pragma unroll 1
    for (uint32_t u = 0, s = 0; u < n_pieces; u++) {
        bar_wait(full + 8 * s, parity);
        multiply_piece<T>(smem + s * S::STAGE, group, warp, lane, sum);
        bar_arrive(empty + 8 * s);
        if (++s == HOPPER_STAGES)
            s = 0, parity ^= 1;
    }
    const float scale = j.scale ? *j.scale : 0;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t r = row0 + 16 * warp + lane / 4 + 8 * half;
        float bias = j.bias && r < j.n_rows ? j.bias[r] : 0;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            uint32_t to = vec0 + 64 * group + 8 * (i / 2) + lane % 4 * 2 + i % 2;
            float y = __fadd_rn(hopper_result<T>(sum, i / 2 * 4 + 2 * half + i % 2), 0.0f);
            if (j.scale)
                y = __fmul_rn(y, scale);
            if (j.bias)
                y = __fadd_rn(y, bias);
            if (r < j.n_rows && to < j.n_tok)
                j.y[to * j.ldy + r] = cu_canon(y);
        }
    }
}
#endif

template <class T>
__global__ void __launch_bounds__(HOPPER_THREADS, 1)
    hopper_kernel(const __grid_constant__ dot_cuda_rows j)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using S = hopper_shape<T>;
    /* static: a build without this instruction has none, by which the launcher knows it */
    __shared__ uint32_t begins[HOPPER_VECS];
    __shared__ __align__(8) uint64_t bars[2 * HOPPER_STAGES]; /* a stage is made; all have left it */
    extern __shared__ __align__(128) uint8_t dynamic[];
    uint8_t *smem = dynamic + (-(uint32_t)__cvta_generic_to_shared(dynamic) & 1023);
    const uint32_t row0 = blockIdx.x * HOPPER_ROWS, vec0 = blockIdx.y * HOPPER_VECS;
    const uint32_t n_pieces = (j.n_cols + 255) / 256;
    const uint32_t full = (uint32_t)__cvta_generic_to_shared(bars);
    const uint32_t empty = full + 8 * HOPPER_STAGES;

    before_is_done();
    if (threadIdx.x == 0)
        for (int i = 0; i < HOPPER_STAGES; i++) {
            bar_init(full + 8 * i, MAKERS);
            bar_init(empty + 8 * i, HOPPER_THREADS - MAKERS);
        }
    T::fill(smem + S::TABLE_AT);
    if (threadIdx.x < HOPPER_VECS) {
        uint32_t v = min(vec0 + threadIdx.x, j.n_tok - 1);
        begins[threadIdx.x] = (uint32_t)(j.a_stride / 16) * (j.idx ? j.idx[v] : v);
    }
    __syncthreads();
    if (threadIdx.x < MAKERS) {
        if (S::WIDE)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 64;");
        else
            asm volatile("setmaxnreg.dec.sync.aligned.u32 48;");
        make_pieces<T>(j, smem, begins, full, empty, row0, n_pieces);
    } else {
        if (S::WIDE)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 192;");
        else
            asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
        multiply<T>(j, smem, full, empty, row0, vec0, n_pieces);
    }
#else
    (void)j;
#endif
}

/* whether this build's code for this card has the instruction */
template <class T> static bool hopper_there(int most)
{
    cudaFuncAttributes a;

    return hopper_shape<T>::BYTES + 1024 <= most &&
           cudaFuncGetAttributes(&a, hopper_kernel<T>) == cudaSuccess && a.sharedSizeBytes > 0;
}
template <class T> static int launch_hopper(const dot_cuda_rows *j)
{
    hopper_kernel<T><<<dim3((j->n_rows + HOPPER_ROWS - 1) / HOPPER_ROWS,
                            (j->n_tok + HOPPER_VECS - 1) / HOPPER_VECS),
                       HOPPER_THREADS, hopper_shape<T>::BYTES, j->stream>>>(*j);
    return cudaGetLastError();
}
