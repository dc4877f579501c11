/* Products of quantised rows with one to eight vectors on a card (ARITHMETIC.md rules 8 to 14), bound
 * by reading the weights. Included by the types' .cu files; the kernels below are the same for all.
 *
 * A block of WARPS warps and one more takes a range of rows and goes through it in tiles of a few rows,
 * with one meeting a tile.
 *   - The last warp copies the tile's bytes to shared memory as they lie in the file, STAGES - 1 tiles
 *     ahead.
 *   - Integers (rule 10): a warp takes 1024 values of a row, a thread 32 of them (open.cuh). Its part
 *     of the vectors stays in registers from row to row. Sums of a unit of 256 are joined over its
 *     eight threads; several rows, vectors and both kinds of sums (S, T) at once, so that each
 *     exchange halves what a thread still holds. A thread then writes (f, float(S)) of a unit.
 *   - Floats (rules 11 and 12): one tile later a thread of the last warp reads the pairs of one chain in ascending
 *     order and runs it. Four lanes (eight with minima) of one result sit side by side in a warp and
 *     fold by two exchanges.
 * No sum's grouping depends on rows, vectors or blocks: integers are exact, and a chain is one
 * thread's loop.
 *
 * Two matrices (gate and up) go through as rows in turn: row 2i is gate's i, row 2i + 1 is up's. */
#pragma once
#include "kernels/dot/types.cuh"
#include "kernels/early.cuh"
#include "kernels/func/func.cuh"
#include "kernels/quantise/quantise.cuh"

enum { WARPS = 8, THREADS = 32 * (WARPS + 1), STAGES = 3, MAX_TOKENS = 8 };

/* what a thread does at once for NT vectors */
template <class T, int NT> struct shape {
    static constexpr int KINDS = T::M ? 2 : 1; /* S, T */
    static constexpr bool WIDE = T::UNIT == 256;
    static constexpr int WANT = WIDE ? 8 / (NT * KINDS) : 2 / NT;
    static constexpr int ROWS = WANT > 4 ? 4 : WANT < 1 ? 1 : WANT;
    static constexpr int VALUES = ROWS * NT * KINDS;
    static constexpr int GROUPS = (VALUES + 7) / 8; /* of sums joined by one round of exchanges */
    static constexpr int LANES = WIDE ? KINDS : 4 * KINDS; /* chains of one result */
};

/* sizes of one launch, the same for every block */
struct tiling {
    uint32_t n_cols, n_units, n_super; /* a row's values, units, pieces of 256 values */
    uint32_t row_shift;                /* log2 of a tile's rows */
    uint32_t part_row;                 /* (f, S) pairs of a row and vector */
    /* in shared memory; a stage holds one piece a matrix */
    uint32_t table_at, stage_at, stage_bytes, piece_bytes, part_at, vec_at, vec_stride;
    /* sixteen.cuh: bytes from row to row in a stage; pieces of 256 values of a row that a stage
     * holds, and how many times that a row is; 2 or 3 stages, and where; barriers */
    uint32_t pitch, chunk, n_chunks, n_stages, stage[STAGES], bars_at;
    /* steps.cuh: its tables; log2 of the rows that lie as in the file, and their bytes (pitch: from one
     * such run to the next) */
    uint32_t grid_at, signs_at, run_shift, row_step;
    uint32_t batch; /* own.cuh: chunks that a warp makes between two meetings */
};

/* where the rows of a range come from and the vectors they meet */
struct source {
    const uint8_t *w[2];
    size_t row_bytes;
    const uint8_t *vec[MAX_TOKENS];
};

/* ---- copying ---- */

static __device__ __forceinline__ void copy16(uint8_t *to, const uint8_t *from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from)
                 : "memory");
#else
    *(uint4 *)to = *(const uint4 *)from;
#endif
}
static __device__ __forceinline__ void copies_close(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int LEFT> static __device__ __forceinline__ void copies_wait(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}
/* n_rows rows of one matrix from `row` on, which lie side by side, by one warp: from the sixteen bytes
 * that they begin in to those that they end in */
static __device__ __forceinline__ void copy_piece(const uint8_t *w, size_t row_bytes, uint32_t row,
                                                  uint32_t n_rows, uint8_t *to)
{
    const uint8_t *from = w + row * row_bytes;
    uint32_t shift = (uint32_t)(size_t)from & 15, lane = threadIdx.x & 31;
    uint32_t n = (shift + n_rows * (uint32_t)row_bytes + 15) / 16;

    from = from - shift + 16 * lane;
    to += 16 * lane;
#pragma unroll 4
    for (uint32_t c = lane; c < n; c += 32, from += 512, to += 512)
        copy16(to, from);
}
template <int MATS>
static __device__ __forceinline__ void copy_rows(const tiling &g, const source &s, uint8_t *stage,
                                                 uint32_t row0, uint32_t n)
{
    copy_piece(s.w[0], s.row_bytes, row0 / MATS, n / MATS, stage);
    if (MATS == 2)
        copy_piece(s.w[1], s.row_bytes, row0 / 2, n / 2, stage + g.piece_bytes);
}

/* where the rows of a tile lie in its stage */
struct view {
    const uint8_t *first[2];
    uint32_t row_bytes;
};
template <class T, int MATS>
static __device__ __forceinline__ view look(const tiling &g, const source &s, const uint8_t *stage,
                                            uint32_t row0)
{
    view v;

    v.row_bytes = (uint32_t)s.row_bytes;
    v.first[0] = stage;
    v.first[1] = stage + g.piece_bytes;
    if (T::BYTES % 16) {
        v.first[0] += ((uint32_t)(size_t)s.w[0] + row0 / MATS * v.row_bytes) & 15;
        v.first[1] += ((uint32_t)(size_t)s.w[1] + row0 / MATS * v.row_bytes) & 15;
    }
    return v;
}
template <int MATS> static __device__ __forceinline__ const uint8_t *row_in(const view &v, int r)
{
    return MATS == 2 ? (r & 1 ? v.first[1] : v.first[0]) + r / 2 * v.row_bytes
                     : v.first[0] + r * v.row_bytes;
}

/* ---- integers ---- */

/* the vectors' 32 values of this thread, and what its results are multiplied with */
template <class T, int NT> struct held {
    uint32_t q[NT][8];
    int sum[T::M ? NT : 1]; /* of q: over the halves, 16 bits each; T::M > 0: over all 32 */
    float d[shape<T, NT>::WIDE ? shape<T, NT>::GROUPS : NT];
};

/* which of VALUES sums thread `lane` ends up with: bits 2, 1, 0 of the lane in turn */
template <int VALUES> static __device__ __forceinline__ int my_value(int lane)
{
    return VALUES >= 8 ? lane & 7 : VALUES == 4 ? lane >> 1 & 3 : VALUES == 2 ? lane >> 2 & 1 : 0;
}
template <int VALUES> static __device__ __forceinline__ bool my_turn(int lane)
{
    return VALUES >= 8 || (lane & (8 / VALUES - 1)) == 0;
}
template <int N, int STEP> static __device__ __forceinline__ void halve(int *x, int lane)
{
    if constexpr (N > 1) {
        bool upper = lane & STEP;
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            int keep = upper ? x[i + N / 2] : x[i], give = upper ? x[i] : x[i + N / 2];
            x[i] = keep + __shfl_xor_sync(~0u, give, STEP);
        }
    } else {
        x[0] += __shfl_xor_sync(~0u, x[0], STEP);
    }
}
/* x[0] = the sum of my_value over eight threads */
template <int VALUES> static __device__ __forceinline__ void join8(int *x, int lane)
{
    constexpr int N = VALUES > 8 ? 8 : VALUES;

    halve<N, 4>(x, lane);
    halve<(N > 1 ? N / 2 : 1), 2>(x, lane);
    halve<(N > 3 ? N / 4 : 1), 1>(x, lane);
}

template <class T>
static __device__ __forceinline__ const uint8_t *block_at(const uint8_t *row, int super, int part)
{
    if (T::UNIT == 256)
        return row + super * T::BYTES;
    if (T::UNIT == 32)
        return row + (8 * super + part) * T::BYTES;
    return row + (4 * super + part / 2) * T::BYTES; /* NVFP4 */
}

template <class T, int NT>
static __device__ __forceinline__ void hold(const tiling &g, const source &s, int super, int part,
                                            int lane, held<T, NT> &h)
{
    using S = shape<T, NT>;

#pragma unroll
    for (int t = 0; t < NT; t++) {
        const uint8_t *q = s.vec[t] + 256 * super;
        uint4 a = *(const uint4 *)(q + T::at(part, 0)), b = *(const uint4 *)(q + T::at(part, 4));

        if constexpr (T::MIXED) {
            const uint32_t lo[4] = {a.x, a.y, a.z, a.w}, hi[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int k = 0; k < 4; k++) {
                h.q[t][2 * k] = __byte_perm(lo[k], hi[k], 0x5140);
                h.q[t][2 * k + 1] = __byte_perm(lo[k], hi[k], 0x7362);
            }
        } else {
            h.q[t][0] = a.x, h.q[t][1] = a.y, h.q[t][2] = a.z, h.q[t][3] = a.w;
            h.q[t][4] = b.x, h.q[t][5] = b.y, h.q[t][6] = b.z, h.q[t][7] = b.w;
        }
        if constexpr (T::M < 0) {
            const int16_t *sum = (const int16_t *)(s.vec[t] + cu_act_sum_at(g.n_cols, 256));
            h.sum[t] = (uint16_t)sum[16 * super + T::at(part, 0) / 16] |
                       sum[16 * super + T::at(part, 4) / 16] << 16;
        } else if constexpr (T::M > 0) {
            h.sum[t] =
                ((const int32_t *)(s.vec[t] + cu_act_sum_at(g.n_cols, 32)))[8 * super + part];
        }
        if constexpr (!S::WIDE)
            h.d[t] = ((const float *)(s.vec[t] + cu_act_d_at(g.n_cols)))[8 * super + part];
    }
    if constexpr (S::WIDE)
#pragma unroll
        for (int k = 0; k < S::GROUPS; k++) {
            int t = (8 * k + my_value<S::VALUES>(lane)) / S::KINDS % NT;
            const uint8_t *vec = s.vec[0];
#pragma unroll
            for (int i = 1; i < NT; i++)
                vec = t == i ? s.vec[i] : vec;
            h.d[k] = ((const float *)(vec + cu_act_d_at(g.n_cols)))[super];
        }
}

/* sum of products over the first or the second sixteen values */
static __device__ __forceinline__ int dot16(const uint32_t *w, const uint32_t *q)
{
    int s = __dp4a((int)w[0], (int)q[0], 0);

    s = __dp4a((int)w[1], (int)q[1], s);
    s = __dp4a((int)w[2], (int)q[2], s);
    return __dp4a((int)w[3], (int)q[3], s);
}

/* S and T of one row: x[t * KINDS + kind] */
template <class T, int NT>
static __device__ __forceinline__ void sums(const opened &o, const held<T, NT> &h, int *x)
{
    constexpr int KINDS = T::M ? 2 : 1;

#pragma unroll
    for (int t = 0; t < NT; t++) {
        int a = dot16(o.w, h.q[t]), b;

        if constexpr (T::SUB == 0 || (T::SUB == 32 && T::MIXED)) {
            b = a; /* one scale or none: one sum */
#pragma unroll
            for (int i = 4; i < 8; i++)
                b = __dp4a((int)o.w[i], (int)h.q[t][i], b);
            x[t * KINDS] = T::SUB ? o.scale[0] * b : b;
        } else {
            b = dot16(o.w + 4, h.q[t] + 4);
            x[t * KINDS] = o.scale[0] * a + o.scale[1] * b;
        }
        if constexpr (T::M < 0)
            x[t * KINDS + 1] = __dp2a_lo(h.sum[t], (int)o.mins, 0);
        else if constexpr (T::M > 0)
            x[t * KINDS + 1] = h.sum[t];
    }
}

/* rows r .. r + ROWS - 1 of the tile, those below end count; this warp's 1024 values */
template <class T, int NT, int MATS>
static __device__ __forceinline__ void integers(const tiling &g, const view &v,
                                                const uint8_t *table, float2 *parts, int r,
                                                int end, int super, int part, int lane, bool in,
                                                const held<T, NT> &h)
{
    using S = shape<T, NT>;
    int x[S::VALUES];
    opened o;

#pragma unroll
    for (int k = 0; k < S::ROWS; k++) {
        int at = r + k < end ? r + k : end - 1;
        const uint8_t *b = block_at<T>(row_in<MATS>(v, at), super, part);

        T::open(b, part, table, &o);
        if constexpr (S::WIDE) {
            sums<T, NT>(o, h, x + k * NT * S::KINDS);
        } else if constexpr (T::UNIT == 32) {
            float d = T::factor(b, 0, 0), m = T::M ? T::factor(b, 1, 0) : 0;
            int y[NT * S::KINDS];

            sums<T, NT>(o, h, y);
#pragma unroll
            for (int t = 0; t < NT; t++)
                if (in && r + k < end) {
                    float2 *to = parts + (at * NT + t) * g.part_row + (8 * super + part) * S::KINDS;
                    to[0] = make_float2(__fmul_rn(d, h.d[t]), __int2float_rn(y[t * S::KINDS]));
                    if (T::M)
                        to[1] = make_float2(__fmul_rn(m, h.d[t]), __int2float_rn(y[t * 2 + 1]));
                }
        } else { /* NVFP4: two units a thread */
#pragma unroll
            for (int t = 0; t < NT; t++)
#pragma unroll
                for (int u = 0; u < 2; u++)
                    if (in && r + k < end)
                        parts[(at * NT + t) * g.part_row + 2 * (8 * super + part) + u] =
                            make_float2(
                                __fmul_rn(T::factor(b, 0, 2 * (part % 2) + u), h.d[t]),
                                __int2float_rn(dot16(o.w + 4 * u, h.q[t] + 4 * u)));
        }
    }
    if constexpr (S::WIDE) {
#pragma unroll
        for (int k = 0; k < S::GROUPS; k++) {
            join8<S::VALUES>(x + 8 * k, lane);
            int i = 8 * k + my_value<S::VALUES>(lane), kind = i % S::KINDS;
            int t = i / S::KINDS % NT, at = r + i / (S::KINDS * NT);

            if (in && at < end && my_turn<S::VALUES>(lane)) {
                float d = T::factor(row_in<MATS>(v, at) + super * T::BYTES, kind, 0);
                parts[(at * NT + t) * g.part_row + super * S::KINDS + kind] =
                    make_float2(__fmul_rn(d, h.d[k]), __int2float_rn(x[8 * k]));
            }
        }
    }
}

/* ---- floats ---- */

/* the sum over a row's units, complete in the first of LANES threads (rules 11 and 12) */
template <class T, int LANES>
static __device__ __forceinline__ float chain(const float2 *p, uint32_t n_units, int l)
{
    constexpr int KINDS = T::M ? 2 : 1, STEP = T::UNIT == 256 ? 1 : 4, AT_ONCE = 8;
    uint32_t first = T::UNIT == 256 ? 0 : l % 4, kind = T::UNIT == 256 ? l : l / 4;
    uint32_t n = (n_units + STEP - 1 - first) / STEP;
    float acc = 0;

    p += first * KINDS + kind;
#pragma unroll 1
    for (; n >= AT_ONCE; n -= AT_ONCE, p += AT_ONCE * STEP * KINDS) {
        float2 v[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            v[i] = p[i * STEP * KINDS];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            acc = __fmaf_rn(v[i].x, v[i].y, acc);
    }
#pragma unroll 1
    for (; n; n--, p += STEP * KINDS)
        acc = __fmaf_rn(p->x, p->y, acc);
    if (T::UNIT != 256) {
        acc = __fadd_rn(acc, __shfl_xor_sync(~0u, acc, 2));
        acc = __fadd_rn(acc, __shfl_xor_sync(~0u, acc, 1));
    }
    if (T::M) {
        float q = __shfl_xor_sync(~0u, acc, LANES / 2);
        acc = T::M < 0 ? __fsub_rn(acc, q) : __fadd_rn(acc, q);
    }
    return cu_canon(__fadd_rn(acc, 0.0f));
}

/* The n rows of the tile of which `parts` are complete: this thread's chain is number c, then c + step,
 * ...; whole warps. put(row, t, y, y of the row after it): called once for each result, or with two
 * matrices once for each pair. */
template <class T, int NT, int MATS, class PUT>
static __device__ __forceinline__ void floats(const tiling &g, const float2 *parts, uint32_t n,
                                              uint32_t c, uint32_t step, PUT put)
{
    constexpr int LANES = shape<T, NT>::LANES;
    uint32_t work = n * NT * LANES;

#pragma unroll 1
    for (; (c & ~31u) < work; c += step) {
        uint32_t l = c % LANES, i = c / LANES, mat = i % MATS, t = i / MATS % NT;
        uint32_t r = i / (MATS * NT) * MATS + mat;
        bool in = c < work;
        float y = chain<T, LANES>(parts + (in ? r * NT + t : 0) * g.part_row, g.n_units, l);
        float y2 = MATS == 2 ? __shfl_xor_sync(~0u, y, LANES) : 0;

        if (in && l == 0 && mat == 0)
            put(r, t, y, y2);
    }
}
/* the first chain of a thread of ALL warps: the last warp takes the first of them, the warp before it the
 * next, and so on */
template <int ALL> static __device__ __forceinline__ uint32_t my_chain(void)
{
    return 32 * (ALL - 1 - threadIdx.x / 32) + (threadIdx.x & 31);
}

/* ---- a range of rows ---- */

/* Pieces that an item's rows are cut into: enough for all blocks, and where there are more items
 * than that, small enough that no block is left with much more than the others. */
static __device__ __forceinline__ uint32_t pieces_of(uint32_t n_items, uint32_t n_rows)
{
    uint32_t n = 4 * n_items <= gridDim.x ? gridDim.x / n_items : 8 * gridDim.x / n_items + 1;
    uint32_t most = n_rows / 8 + 1;

    return n < most ? n : most;
}

/* Rows [begin, end) of one source (MATS == 2: row numbers count both matrices). meet() is called once
 * after the first copies were issued and before the vectors are read: it waits for whoever makes
 * them. All threads of the block. */
template <class T, int NT, int MATS, class MEET, class PUT>
static __device__ __forceinline__ void rows_range(const tiling &g, const source &s, uint8_t *smem,
                                                  uint32_t begin, uint32_t end, MEET meet, PUT put)
{
    using S = shape<T, NT>;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, part = lane & 7;
    const uint32_t rows = 1u << g.row_shift, n_tiles = (end - begin + rows - 1) >> g.row_shift;
    const uint32_t n_quads = (g.n_super + 3) / 4, items = n_quads << g.row_shift;
    const uint32_t item0 = items * warp / WARPS, item1 = items * (warp + 1) / WARPS; /* of a warp */
    const uint8_t *table = smem + g.table_at;
    float2 *parts = (float2 *)(smem + g.part_at);
    const uint32_t parts_each = rows * NT * g.part_row;
    uint32_t quad_held = ~0u;
    held<T, NT> h;
    int super = 0, at_part = 0;
    bool in = false;

    if (warp == WARPS)
        for (uint32_t i = 0; i < STAGES - 1; i++) {
            uint32_t at = begin + (i << g.row_shift);
            if (i < n_tiles)
                copy_rows<MATS>(g, s, smem + g.stage_at + i * g.stage_bytes, at,
                                min(rows, end - at));
            copies_close();
        }
    meet();
    for (uint32_t i = 0; i < n_tiles; i++) {
        uint32_t row0 = begin + (i << g.row_shift), n = min(rows, end - row0);
        const uint8_t *stage = smem + g.stage_at + i % STAGES * g.stage_bytes;

        if (warp == WARPS)
            copies_wait<STAGES - 2>();
        __syncthreads(); /* the tile is there; everybody has left the stage that is filled next */
        if (warp == WARPS) {
            uint32_t ahead = i + STAGES - 1, at = begin + (ahead << g.row_shift);

            if (ahead < n_tiles)
                copy_rows<MATS>(g, s, smem + g.stage_at + ahead % STAGES * g.stage_bytes, at,
                                min(rows, end - at));
            copies_close();
        }
        if (i)
            floats<T, NT, MATS>(g, parts + (i - 1) % 2 * parts_each, rows, my_chain<WARPS + 1>(),
                                THREADS,
                                [&](uint32_t r, uint32_t t, float y, float y2) {
                                    put(row0 - rows + r, t, y, y2);
                                });
        if (warp == WARPS)
            continue;
        view v = look<T, MATS>(g, s, stage, row0);
        for (uint32_t item = item0; item < item1;) {
            uint32_t quad = item >> g.row_shift, r = item & (rows - 1);
            uint32_t upto = min(rows, r + (item1 - item)), stop = min(upto, n);

            if (quad != quad_held) {
                super = 4 * quad + lane / 8;
                in = S::WIDE         ? (uint32_t)super < g.n_super
                     : T::UNIT == 32 ? 8u * super + part < g.n_units
                                     : 16u * super + 2 * part < g.n_units;
                if (!in) /* reads what is there, writes nothing */
                    super = 0;
                at_part = in ? part : 0;
                hold<T, NT>(g, s, super, at_part, lane, h);
                quad_held = quad;
            }
            for (uint32_t k = r; k < stop; k += S::ROWS)
                integers<T, NT, MATS>(g, v, table, parts + i % 2 * parts_each, k, stop, super,
                                      at_part, lane, in, h);
            item += upto - r;
        }
    }
    copies_wait<0>();
    __syncthreads();
    if (n_tiles) {
        uint32_t row0 = begin + ((n_tiles - 1) << g.row_shift);
        floats<T, NT, MATS>(g, parts + (n_tiles - 1) % 2 * parts_each, end - row0,
                            my_chain<WARPS + 1>(), THREADS,
                            [&](uint32_t r, uint32_t t, float y, float y2) {
                                put(row0 + r, t, y, y2);
                            });
    }
    __syncthreads(); /* shared memory may be used again */
}
