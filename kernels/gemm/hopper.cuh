/* gemm.cuh's products for sm_90a: Hopper's matrix instruction (wgmma), which reads both sides from
 * shared memory and runs beside the warps that asked for it. Included by gemm.cuh.
 *
 * A block computes 64 rows times 128 vectors, 256 values at a time. Warps 0 to 7 only make pieces: they
 * copy vectors, open the rows' blocks into signed bytes, and are up to STAGES pieces ahead. Two
 * warpgroups take 64 vectors each. Two ways, by what a type's units are:
 *   - units of 32 (here): while the tensor cores sum 32 values from 0 into one set of integers, another
 *     one goes to floats. What makers open was asked for two pieces before.
 *   - units of 256 with sub-blocks of 32: split.cuh.
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
};

/* It can do every type of units of 32 without minima; this one was measured. */
template <class T> constexpr bool hopper_small = false;
template <> constexpr bool hopper_small<q8_0> = true;

/* A unit's factors of all vectors: those that a thread of a multiplying warp reads lie together, and
 * four neighbours read different banks. */
enum { DV_EACH = 20, DV_UNIT = HOPPER_VECS / 64 * 4 * DV_EACH };
static __device__ __forceinline__ int dv_at(int v)
{
    return (v / 64 * 4 + v % 8 / 2) * DV_EACH + v % 64 / 8 * 2 + v % 2;
}

template <class T> struct hopper_shape {
    static constexpr int PIECE = T::BYTES * 256 / T::BLOCK;
    static constexpr int CHUNKS = (PIECE + 30) / 16 | 1; /* of a row's piece that begins anywhere */
    static constexpr int UNITS = 8;

    /* of a stage; tiles for the matrix unit begin at multiples of 1024 */
    static constexpr int A_AT = 0;
    static constexpr int B_AT = A_AT + HOPPER_ROWS * 256;
    static constexpr int D_AT = B_AT + HOPPER_VECS * 256;       /* (rows, units) */
    static constexpr int DV_AT = D_AT + UNITS * HOPPER_ROWS * 4; /* (units, vectors) */
    static constexpr int STAGE = (DV_AT + UNITS * DV_UNIT * 4 + 1023) / 1024 * 1024;

    static constexpr int TABLE_AT = HOPPER_STAGES * STAGE;
    static constexpr int RAW_AT = (TABLE_AT + T::TABLE + 127) / 128 * 128; /* pieces of rows as in the file */
    static constexpr int RAW = HOPPER_ROWS * CHUNKS * 16 + 16;
    static constexpr int RAWS = 3;
    static constexpr int BYTES = RAW_AT + RAWS * RAW + 1024; /* to a multiple of 1024 */
    static_assert(T::UNIT == 32 && !T::M, "");
};

/* where a vector begins, in sixteen bytes */
static __device__ __forceinline__ uint32_t begin_of(const dot_cuda_rows &j, uint32_t v)
{
    v = min(v, j.n_tok - 1);
    return (uint32_t)(j.a_stride / 16) * (j.idx ? j.idx[v] : v);
}
/* a thread's 32 results: y(4 t + c) of the rows r and r + 8 (c / 2), and the vectors vec + 8 t + c % 2 */
template <class Y>
static __device__ __forceinline__ void put_results(const dot_cuda_rows &j, uint32_t row, uint32_t vec,
                                                   Y result)
{
    const float scale = j.scale ? *j.scale : 0;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t r = row + 8 * half;
        float bias = j.bias && r < j.n_rows ? j.bias[r] : 0;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            uint32_t to = vec + 8 * (i / 2) + i % 2;
            float y = __fadd_rn(result(i / 2 * 4 + 2 * half + i % 2), 0.0f);
            if (j.scale)
                y = __fmul_rn(y, scale);
            if (j.bias)
                y = __fadd_rn(y, bias);
            if (r < j.n_rows && to < j.n_tok)
                j.y[to * j.ldy + r] = cu_canon(y);
        }
    }
}

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

/* ---- makers ---- */

/* four threads a row; a warp copies the rows that it opens, r0 and r0 + 32 of its threads */
template <class T, bool WHOLE>
static __device__ __forceinline__ void ask_rows(const dot_cuda_rows &j, uint8_t *raw, uint32_t row0,
                                                uint32_t u)
{
    using S = hopper_shape<T>;
    const int first = threadIdx.x % 4;
    const int r = threadIdx.x / 32 * 4 + threadIdx.x / 4 % 4 + threadIdx.x / 16 % 2 * 32;
    const uint8_t *row = j.w + (size_t)min(row0 + r, j.n_rows - 1) * j.row_bytes;
    const uint8_t *at = row + (size_t)u * S::PIECE + 16 * first;
    uint32_t shift = (uint32_t)(size_t)at & 15;
    uint32_t bytes = WHOLE ? S::PIECE : j.n_cols / T::BLOCK * T::BYTES - u * S::PIECE;

    at -= shift;
    raw += (r * S::CHUNKS + first) * 16;
#pragma unroll
    for (int k = 0; k < (S::CHUNKS + 3) / 4; k++)
        if ((WHOLE && 4 * k + 3 < S::PIECE / 16) || 16 * (4 * k + first) < shift + bytes)
            copy16(raw + 64 * k, at + 64 * k);
}
/* of: where the vectors threadIdx.x / 16 + 16 k begin, in sixteen bytes, k < n; mine: vector threadIdx.x / 2 */
template <class S, bool WHOLE, class JOB>
static __device__ __forceinline__ void ask_vectors(const JOB &j, const uint32_t *of, const uint8_t *mine,
                                                   uint8_t *stage, uint32_t u, int n = HOPPER_VECS / 16)
{
    const int c = threadIdx.x % 16, v0 = threadIdx.x / 16, v = threadIdx.x / 2, k0 = threadIdx.x % 2;
    uint8_t *to = stage + S::B_AT + in_tile(HOPPER_VECS, v0, c); /* 16 lines on: as many atoms */
    const uint32_t at = 256 * u + 16 * c;

#pragma unroll
    for (int k = 0; k < HOPPER_VECS / 16; k++, to += 16 * 128)
        if (k >= HOPPER_VECS / 32 && k >= n)
            continue;
        else if (WHOLE || at < j.n_cols)
            copy16(to, j.acts + (size_t)of[k] * 16 + at);
        else
            *(uint4 *)to = make_uint4(0, 0, 0, 0);
    const float *d = (const float *)(mine + cu_act_d_at(j.n_cols)) + S::UNITS * u + k0;
    float *dv = (float *)(stage + S::DV_AT) + k0 * DV_UNIT + dv_at(v);
    if constexpr (S::UNITS > 1)
#pragma unroll
        for (int k = 0; k < S::UNITS; k += 2)
            if (WHOLE || 8 * u + k + k0 < j.n_cols / 32)
                copy4(dv + k * DV_UNIT, d + k);
            else
                dv[k * DV_UNIT] = 0;
}
/* A row's part of 32 values, as open_part: opened, with the block's factor; then stored. In two steps, so
 * that the loads of several parts are on their way together. */
struct made {
    opened o;
    float d;
};
template <class T>
static __device__ __forceinline__ void make_part(const uint8_t *raw, const uint8_t *table, bool in,
                                                 int p, made *x)
{
    const uint8_t *b = block_at<T>(raw, 0, in ? p : 0);

    T::open(b, in ? p : 0, table, &x->o);
    x->d = T::factor(b, 0, 0);
}
template <class T>
static __device__ __forceinline__ void store_part(uint8_t *stage, bool in, int r, int p,
                                                  const made &x)
{
    using S = hopper_shape<T>;
    uint4 first, second;

    in_order_words<T>(x.o, &first, &second);
    if (!in)
        first = second = make_uint4(0, 0, 0, 0);
    *(uint4 *)(stage + S::A_AT + in_tile(HOPPER_ROWS, r, T::at(p, 0) / 16)) = first;
    *(uint4 *)(stage + S::A_AT + in_tile(HOPPER_ROWS, r, T::at(p, 4) / 16)) = second;
    *((float *)(stage + S::D_AT) + S::UNITS * r + p) = in ? x.d : 0;
}
/* rows or vectors of a piece: the last one may be short */
template <class T>
static __device__ __forceinline__ void ask_rows(const dot_cuda_rows &j, uint8_t *raw, uint32_t row0,
                                                uint32_t u)
{
    if (256 * (u + 1) <= j.n_cols)
        ask_rows<T, true>(j, raw, row0, u);
    else
        ask_rows<T, false>(j, raw, row0, u);
}
template <class S>
static __device__ __forceinline__ void ask_vectors(const dot_cuda_rows &j, const uint32_t *begins,
                                                   const uint8_t *mine, uint8_t *stage, uint32_t u)
{
    uint32_t of[8];

#pragma unroll
    for (int k = 0; k < 8; k++)
        of[k] = begins[threadIdx.x / 16 + 16 * k];
    if (256 * (u + 1) <= j.n_cols)
        ask_vectors<S, true>(j, of, mine, stage, u);
    else
        ask_vectors<S, false>(j, of, mine, stage, u);
}
template <class T>
static __device__ __forceinline__ void make_pieces(const dot_cuda_rows &j, uint8_t *smem,
                                                   const uint32_t *begins, uint32_t full,
                                                   uint32_t empty, uint32_t row0,
                                                   uint32_t n_pieces)
{
    using S = hopper_shape<T>;
    /* two parts a thread; eight neighbouring threads have a row's eight, so that they meet in few banks */
    const int r0 = threadIdx.x / 8, p = threadIdx.x % 8;
    const uint8_t *mine = j.acts + (size_t)begins[threadIdx.x / 2] * 16;
    uint32_t s = 0, raw_now = 0, raw_next = 2, parity = 1; /* of the next stage's last use */

    ask_rows<T>(j, smem + S::RAW_AT, row0, 0);
    copies_close();
    if (n_pieces > 1)
        ask_rows<T>(j, smem + S::RAW_AT + S::RAW, row0, 1);
    ask_vectors<S>(j, begins, mine, smem, 0);
    copies_close();
    /* What is asked for comes after the fence: it waits for all that the thread has asked for before. */
#pragma unroll 1
    for (uint32_t u = 0; u < n_pieces; u++) {
        uint8_t *stage = smem + s * S::STAGE;
        const uint32_t next = s + 1 == HOPPER_STAGES ? 0 : s + 1;
        const uint8_t *raw = smem + S::RAW_AT + raw_now * S::RAW;
        const bool in = 256 * u + 32 * p < j.n_cols;
        made part[2];

        copies_wait<1>(); /* this piece's rows; its vectors came one later */
        __syncwarp();
#pragma unroll
        for (int k = 0; k < 2; k++) {
            uint32_t shift = (min(row0 + r0 + 32 * k, j.n_rows - 1) * (uint32_t)j.row_bytes +
                              u * S::PIECE) & 15;
            make_part<T>(raw + (r0 + 32 * k) * S::CHUNKS * 16 + shift, smem + S::TABLE_AT, in, p,
                         &part[k]);
        }
#pragma unroll
        for (int k = 0; k < 2; k++)
            store_part<T>(stage, in, r0 + 32 * k, p, part[k]);
        copies_wait<0>();
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* wgmma reads it */
        bar_arrive(full + 8 * s);
        if (u + 2 < n_pieces)
            ask_rows<T>(j, smem + S::RAW_AT + raw_next * S::RAW, row0, u + 2);
        if (u + 1 < n_pieces) {
            if (next == 0)
                parity ^= 1;
            if (u + 1 >= HOPPER_STAGES)
                bar_wait(empty + 8 * next, parity);
            ask_vectors<S>(j, begins, mine, smem + next * S::STAGE, u + 1);
        }
        copies_close();
        s = next;
        raw_now = raw_now + 1 == S::RAWS ? 0 : raw_now + 1;
        raw_next = raw_next + 1 == S::RAWS ? 0 : raw_next + 1;
    }
}

/* ---- multipliers: what a thread has of 64 rows times 64 vectors ---- */

/* the four lanes of rule 12; [4 t + c]: vectors 8 t + 2 (lane % 4) + c % 2, rows lane / 4 + 8 (c / 2) of
 * the warp's sixteen */
struct hopper_sums {
    float p[4][32];
};

/* p += f * sums of a tile of 8 vectors, f = row's factor times vector's */
static __device__ __forceinline__ void add_tile(float *p, float d0, float d1, float v0, float v1,
                                                const int *x)
{
    p[0] = __fmaf_rn(__fmul_rn(d0, v0), __int2float_rn(x[0]), p[0]);
    p[1] = __fmaf_rn(__fmul_rn(d0, v1), __int2float_rn(x[1]), p[1]);
    p[2] = __fmaf_rn(__fmul_rn(d1, v0), __int2float_rn(x[2]), p[2]);
    p[3] = __fmaf_rn(__fmul_rn(d1, v1), __int2float_rn(x[3]), p[3]);
}
template <class T>
static __device__ __forceinline__ void multiply_piece(const uint8_t *stage, int group, int warp,
                                                      int lane, hopper_sums &out)
{
    using S = hopper_shape<T>;
    const uint64_t a = tile_at((uint32_t)__cvta_generic_to_shared(stage + S::A_AT));
    const uint64_t b =
        tile_at((uint32_t)__cvta_generic_to_shared(stage + S::B_AT + group * 64 * 128));
    const float *d = (const float *)(stage + S::D_AT) + S::UNITS * (16 * warp + lane / 4);
    const float *dv = (const float *)(stage + S::DV_AT) + dv_at(64 * group + lane % 4 * 2);
    int c[2][16];     /* one set is being made while the other one is used */
    float rows[2][8]; /* the factors of both rows */
    float4 next[2];   /* the vectors' of four tiles */

#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int k = 0; k < 8; k += 4) {
            float4 x = *(const float4 *)(d + 8 * S::UNITS * i + k);
            rows[i][k] = x.x, rows[i][k + 1] = x.y, rows[i][k + 2] = x.z, rows[i][k + 3] = x.w;
        }
#pragma unroll
    for (int t = 0; t < 2; t++)
        next[t] = *(const float4 *)(dv + 4 * t);

    auto ask = [&](int i) { /* instruction i: 32 values from 32 (i / 2) on, half i % 2 of the vectors */
        const int k = i / 2;
        wgmma_fence();
        wgmma32(c[i % 2], a + k / 4 * (HOPPER_ROWS * 128 >> 4) + k % 4 * 2,
                b + k / 4 * (HOPPER_VECS * 128 >> 4) + k % 4 * 2 + i % 2 * (32 * 128 >> 4));
        wgmma_commit();
    };
    ask(0);
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const int k = i / 2;
        float *p = out.p[k % 4] + i % 2 * 16;
        float4 v[2];

        if (i < 15)
            ask(i + 1);
#pragma unroll
        for (int t = 0; t < 2; t++) {
            v[t] = next[t];
            if (i < 15)
                next[t] = *(const float4 *)(dv + (i + 1) / 2 * DV_UNIT + (i + 1) % 2 * 8 + 4 * t);
        }
        if (i < 15)
            wgmma_wait<1>(c[i % 2]);
        else
            wgmma_wait<0>(c[i % 2]);
#pragma unroll
        for (int t = 0; t < 2; t++) {
            add_tile(p + 8 * t, rows[0][k], rows[1][k], v[t].x, v[t].y, c[i % 2] + 8 * t);
            add_tile(p + 8 * t + 4, rows[0][k], rows[1][k], v[t].z, v[t].w, c[i % 2] + 8 * t + 4);
        }
    }
}
static __device__ __forceinline__ float hopper_result(const hopper_sums &x, int i)
{
    return __fadd_rn(__fadd_rn(x.p[0][i], x.p[2][i]), __fadd_rn(x.p[1][i], x.p[3][i]));
}
/* by one thread */
static __device__ __forceinline__ void stage_bars(uint32_t full, uint32_t empty)
{
    for (int i = 0; i < HOPPER_STAGES; i++) {
        bar_init(full + 8 * i, MAKERS);
        bar_init(empty + 8 * i, HOPPER_THREADS - MAKERS);
    }
}
template <class T>
static __device__ __forceinline__ void multiply(const dot_cuda_rows &j, const uint8_t *smem,
                                                uint32_t full, uint32_t empty, uint32_t row0,
                                                uint32_t vec0, uint32_t n_pieces)
{
    using S = hopper_shape<T>;
    const int group = (threadIdx.x - MAKERS) / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    hopper_sums sum = {};
    uint32_t parity = 0;

#pragma unroll 1
    for (uint32_t u = 0, s = 0; u < n_pieces; u++) {
        bar_wait(full + 8 * s, parity);
        multiply_piece<T>(smem + s * S::STAGE, group, warp, lane, sum);
        bar_arrive(empty + 8 * s);
        if (++s == HOPPER_STAGES)
            s = 0, parity ^= 1;
    }
    put_results(j, row0 + 16 * warp + lane / 4, vec0 + 64 * group + lane % 4 * 2,
                [&](int i) { return hopper_result(sum, i); });
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
    T::fill(smem + S::TABLE_AT);
    if (threadIdx.x == 0)
        stage_bars(full, empty);
    if (threadIdx.x < HOPPER_VECS)
        begins[threadIdx.x] = begin_of(j, vec0 + threadIdx.x);
    __syncthreads();
    if (threadIdx.x < MAKERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 48;");
        make_pieces<T>(j, smem, begins, full, empty, row0, n_pieces);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
        multiply<T>(j, smem, full, empty, row0, vec0, n_pieces);
    }
#else
    (void)j;
#endif
}
