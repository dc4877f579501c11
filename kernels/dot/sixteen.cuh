/* dot.cuh's other way to make the integers, for units of 256: int8 tensor cores multiply sixteen rows
 * at a time. For types whose blocks take long to open (tables), and for several vectors.
 *
 * A warp takes 256 values of sixteen rows. A thread (g = lane / 4, t = lane % 4) opens the parts t
 * and t + 4 of the rows g and g + 8 as for dot.cuh, and what it opened is its part of the tensor
 * cores' left side as it lies in its registers. The sub-blocks of four parts must not be summed
 * together, their scales differ: each has a column of the right side of its own, which holds the
 * vector's values of this sub-block and zeros elsewhere.
 *   - One vector: column 2p + h is half h of part p. The sums that a thread gets are those of the
 *     sub-blocks that it opened, so that it has their scales.
 *   - More: column 4k + p is part p with vector k of a pair; the halves follow each other. The scales
 *     come from two neighbours, once for all vectors.
 * Then four threads' products of scales and sums add up to S. All exact, as every order of rule 10.
 *
 * Rows are staged one behind another, `pitch` bytes apart; long ones in several chunks. */
#pragma once
#include "kernels/bars.cuh"
#include "kernels/dot/dot.cuh"
#include "kernels/gemm/mma.cuh"

enum {
    GROUP = 16, /* rows */
    MANY_WARPS = 16,
};

/* From which number of vectors on a type's rows are multiplied this way: where it was measured to be
 * faster. 99: never. */
template <class T> constexpr int sixteen_from = 99;
template <> constexpr int sixteen_from<q4_k> = 3;
template <> constexpr int sixteen_from<iq4_xs> = 2;
template <> constexpr int sixteen_from<iq2_xs> = 2;
template <> constexpr int sixteen_from<iq3_s> = 2;
/* one integer scale for both halves of a part */
template <class T>
constexpr bool one_scale = T::SUB == 32 && T::MIXED;

/* the vectors' values of this thread, as the right side of the product */
template <class T, int NT> struct right {
    static constexpr int PAIRS = (NT + 1) / 2;
    uint32_t q[2][PAIRS][8];    /* by parts t and t + 4 */
    int sum[T::M ? NT : 1][2];  /* of q, of this thread's own parts, as held::sum */
    float d[PAIRS];             /* of the vectors whose results this thread ends up with */
};

/* the eight words of part p of a vector's 256 values, in the order in which T opens */
template <class T>
static __device__ __forceinline__ void part_of(const uint8_t *q, int p, uint32_t w[8])
{
    uint4 a = *(const uint4 *)(q + T::at(p, 0)), b = *(const uint4 *)(q + T::at(p, 4));
    const uint32_t lo[4] = {a.x, a.y, a.z, a.w}, hi[4] = {b.x, b.y, b.z, b.w};

#pragma unroll
    for (int k = 0; k < 4; k++)
        if constexpr (T::MIXED) {
            w[2 * k] = __byte_perm(lo[k], hi[k], 0x5140);
            w[2 * k + 1] = __byte_perm(lo[k], hi[k], 0x7362);
        } else {
            w[k] = lo[k];
            w[4 + k] = hi[k];
        }
}

template <class T, int NT>
static __device__ __forceinline__ void hold16(const tiling &g, const source &s, int super,
                                              int lane, right<T, NT> &h)
{
    const int col = lane / 4, t = lane % 4;
    const bool mine = NT == 1 ? col / 2 == t : col % 4 == t;

#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int j = 0; j < h.PAIRS; j++) {
            uint32_t *w = h.q[half][j];

#pragma unroll
            for (int i = 0; i < 8; i++)
                w[i] = 0;
            if (mine)
                part_of<T>((NT > 1 && col / 4 ? s.vec[2 * j + (NT > 1)] : s.vec[2 * j]) +
                               256 * super,
                           t + 4 * half, w);
            if (NT == 1)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    w[i] = col % 2 ? 0 : w[i];
                    w[4 + i] = col % 2 ? w[4 + i] : 0;
                }
        }
        if constexpr (T::M != 0)
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const int16_t *sum = (const int16_t *)(s.vec[n] + cu_act_sum_at(g.n_cols, 256)) +
                                     16 * super;
                h.sum[n][half] = (uint16_t)sum[T::at(t + 4 * half, 0) / 16] |
                                 sum[T::at(t + 4 * half, 4) / 16] << 16;
            }
    }
#pragma unroll
    for (int j = 0; j < h.PAIRS; j++) {
        const uint8_t *vec = NT > 1 && t / 2 ? s.vec[2 * j + (NT > 1)] : s.vec[2 * j];
        h.d[j] = ((const float *)(vec + cu_act_d_at(g.n_cols)))[super];
    }
}

/* x + what the thread `step` away gives of its pair; keeps the second of the pair where bit `step`
 * of the lane is set */
template <int STEP>
static __device__ __forceinline__ int keep_one(int first, int second, int lane)
{
    bool upper = lane & STEP;

    return (upper ? second : first) + __shfl_xor_sync(~0u, upper ? first : second, STEP);
}

/* ---- one vector ---- */

/* 256 values of rows g and g + 8, whose blocks are a and b; (f, S) go to parts, row r of
 * the tile where r < end. */
template <class T>
static __device__ __forceinline__ void one_vector(const tiling &g, const uint8_t *a,
                                                  const uint8_t *b, const uint8_t *table,
                                                  float2 *parts, int r, int end, int super,
                                                  int lane, const right<T, 1> &h)
{
    const int t = lane % 4, first = r + lane / 4;
    int s[2] = {0, 0}, m[2] = {0, 0}, x;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t *q = h.q[half][0];
        opened oa, ob;
        int c[4] = {0, 0, 0, 0};

        T::open(a, t + 4 * half, table, &oa);
        T::open(b, t + 4 * half, table, &ob);
#pragma unroll
        for (int k = 0; k < 4; k++)
            mma32_add(c, oa.w[2 * k], ob.w[2 * k], oa.w[2 * k + 1], ob.w[2 * k + 1], q[2 * k],
                      q[2 * k + 1]);
        s[0] += oa.scale[0] * c[0] + oa.scale[1] * c[1];
        s[1] += ob.scale[0] * c[2] + ob.scale[1] * c[3];
        if (T::M) {
            m[0] = __dp2a_lo(h.sum[0][half], (int)oa.mins, m[0]);
            m[1] = __dp2a_lo(h.sum[0][half], (int)ob.mins, m[1]);
        }
    }
    x = keep_one<2>(s[0], s[1], lane);
    if (T::M)
        x = keep_one<1>(x, keep_one<2>(m[0], m[1], lane), lane);
    else
        x += __shfl_xor_sync(~0u, x, 1);
    const int row = first + 4 * (t & 2), kind = T::M ? t & 1 : 0;
    if (row < end && (T::M || !(t & 1)))
        parts[row * g.part_row + super * (T::M ? 2 : 1) + kind] = make_float2(
            __fmul_rn(T::factor(t & 2 ? b : a, kind, 0), h.d[0]), __int2float_rn(x));
}

/* ---- several vectors ---- */

static __device__ __forceinline__ int signed_byte(uint32_t x, int i)
{
    return (int8_t)(x >> 8 * i);
}

/* as one_vector, for NT of them */
template <class T, int NT>
static __device__ __forceinline__ void vectors(const tiling &g, const uint8_t *a, const uint8_t *b,
                                               const uint8_t *table, float2 *parts, int r, int end,
                                               int super, int lane, const right<T, NT> &h)
{
    constexpr int PAIRS = right<T, NT>::PAIRS, KINDS = T::M ? 2 : 1, RUNS = one_scale<T> ? 1 : 2;
    const int t = lane % 4, from = (lane & ~3) + 2 * (t & 1);
    int s[PAIRS][2] = {}, m[T::M ? NT : 1][2] = {};

#pragma unroll
    for (int half = 0; half < 2; half++) {
        opened oa, ob;
        uint32_t x0, x1;

        T::open(a, t + 4 * half, table, &oa);
        T::open(b, t + 4 * half, table, &ob);
        x0 = (oa.scale[0] & 255) | (oa.scale[1] & 255) << 8 | (ob.scale[0] & 255) << 16 |
             (uint32_t)ob.scale[1] << 24;
        x1 = __shfl_sync(~0u, x0, from + 1);
        x0 = __shfl_sync(~0u, x0, from);
        if (T::M)
#pragma unroll
            for (int n = 0; n < NT; n++) {
                m[n][0] = __dp2a_lo(h.sum[n][half], (int)oa.mins, m[n][0]);
                m[n][1] = __dp2a_lo(h.sum[n][half], (int)ob.mins, m[n][1]);
            }
#pragma unroll
        for (int run = 0; run < RUNS; run++)
#pragma unroll
            for (int j = 0; j < PAIRS; j++) {
                int c[4] = {0, 0, 0, 0};

#pragma unroll
                for (int k = 4 / RUNS * run; k < 4 / RUNS * (run + 1); k++)
                    mma32_add(c, oa.w[2 * k], ob.w[2 * k], oa.w[2 * k + 1], ob.w[2 * k + 1],
                              h.q[half][j][2 * k], h.q[half][j][2 * k + 1]);
                s[j][0] += signed_byte(x0, run) * c[0] + signed_byte(x1, run) * c[1];
                s[j][1] += signed_byte(x0, 2 + run) * c[2] + signed_byte(x1, 2 + run) * c[3];
            }
    }
    /* thread t gets row g + 8 (t % 2), of each pair the vector t / 2 */
    const int row = r + lane / 4 + 8 * (t & 1);
    float d = T::factor(t & 1 ? b : a, 0, 0), dm = T::M ? T::factor(t & 1 ? b : a, 1, 0) : 0;
#pragma unroll
    for (int j = 0; j < PAIRS; j++) {
        const int n = 2 * j + t / 2;
        int x = keep_one<1>(s[j][0], s[j][1], lane), y = 0;

        if (T::M)
            y = keep_one<2>(keep_one<1>(m[2 * j][0], m[2 * j][1], lane),
                            keep_one<1>(m[2 * j + 1][0], m[2 * j + 1][1], lane), lane);
        if (row < end) {
            float2 *to = parts + (row * NT + n) * g.part_row + super * KINDS;
            to[0] = make_float2(__fmul_rn(d, h.d[j]), __int2float_rn(x));
            if (T::M)
                to[1] = make_float2(__fmul_rn(dm, h.d[j]), __int2float_rn(y));
        }
    }
}

/* ---- copying ---- */

/* Rows n of one matrix from `row` on, n_super pieces of 256 values from `super` on. From sm_90 on the
 * last warp asks the copy engine, a thread a row; each thread of it arrives at `bar` with the bytes that
 * it asked for. Before, all threads copy, eight a row: one warp alone would take longer for it than the
 * others for their sums. */
template <class T, int ALL>
static __device__ __forceinline__ uint32_t copy_chunk(const tiling &g, const uint8_t *w,
                                                      size_t row_bytes, uint32_t row, uint32_t n,
                                                      uint32_t super, uint32_t n_super,
                                                      uint8_t *to, uint32_t bar)
{
    uint32_t asked = 0;

#if __CUDA_ARCH__ >= 900
    for (uint32_t r = threadIdx.x % 32; r < n; r += 32) {
        const uint8_t *from = w + (row + r) * row_bytes + super * T::BYTES;
        uint32_t shift = T::BYTES % 16 ? (uint32_t)(size_t)from & 15 : 0;
        uint32_t bytes = (shift + n_super * T::BYTES + 15) & ~15u;

        bar_copy(to + r * g.pitch, from - shift, bytes, bar);
        asked += bytes;
    }
#else
    (void)bar;
    for (uint32_t r = threadIdx.x / 8; r < n; r += 4 * ALL) {
        const uint8_t *from = w + (row + r) * row_bytes + super * T::BYTES;
        uint32_t shift = T::BYTES % 16 ? (uint32_t)(size_t)from & 15 : 0;
        uint32_t bytes = shift + n_super * T::BYTES, c = 16 * (threadIdx.x % 8);
        uint8_t *at = to + r * g.pitch;

        from -= shift;
#pragma unroll 4
        for (; c < bytes; c += 128)
            copy16(at + c, from + c);
    }
#endif
    return asked;
}

/* where row r of the tile, whose first row is row0, has its block `super`; the chunk begins at
 * `first` */
template <class T, int MATS>
static __device__ __forceinline__ const uint8_t *block_in(const tiling &g, const source &s,
                                                          const uint8_t *stage, uint32_t row0,
                                                          uint32_t r, uint32_t first,
                                                          uint32_t super)
{
    uint32_t at = r / MATS * g.pitch + (super - first) * T::BYTES;

    if (MATS == 2 && r % 2)
        at += g.piece_bytes;
    if (T::BYTES % 16)
        at += ((row0 + r) / MATS * (uint32_t)s.row_bytes + first * T::BYTES) & 15;
    return stage + at;
}

/* Asks for step after step: tiles of a range, each in chunks; stages in turn. */
struct asking {
    uint32_t tile, chunk, in;
};
template <class T, int MATS, int ALL>
static __device__ __forceinline__ void ask_step(const tiling &g, const source &s, uint8_t *smem,
                                                uint32_t begin, uint32_t end, uint32_t bars,
                                                asking *a)
{
    uint32_t row = begin + (a->tile << g.row_shift), n = min(1u << g.row_shift, end - row);
    uint32_t super = a->chunk * g.chunk, n_super = min(g.chunk, g.n_super - super);
    uint32_t bar = bars + 8 * a->in, asked;
    uint8_t *stage = smem + g.stage[a->in];

    asked = copy_chunk<T, ALL>(g, s.w[0], s.row_bytes, row / MATS, n / MATS, super, n_super, stage,
                               bar);
    if (MATS == 2)
        asked += copy_chunk<T, ALL>(g, s.w[1], s.row_bytes, row / 2, n / 2, super, n_super,
                                    stage + g.piece_bytes, bar);
    bar_expect(bar, asked);
    a->in = a->in + 1 == g.n_stages ? 0 : a->in + 1;
    if (++a->chunk == g.n_chunks)
        a->chunk = 0, a->tile++;
}

/* The stages' barriers from one range of rows to the next: set up once a kernel, for racecheck does not follow
 * what is copied again under a barrier that was set up anew. */
struct stages {
    uint32_t next, parity; /* the stage that is filled next */
    bool ready;
};

/* As rows_range (dot.cuh), by W warps of ALL. */
template <class T, int NT, int MATS, int W, int ALL, class MEET, class PUT>
static __device__ __forceinline__ void rows_range16(const tiling &g, const source &s,
                                                    uint8_t *smem, uint32_t begin, uint32_t end,
                                                    stages &of, MEET meet, PUT put)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const uint32_t rows = 1u << g.row_shift, n_tiles = (end - begin + rows - 1) >> g.row_shift;
    const uint32_t n_steps = n_tiles * g.n_chunks;
    const uint32_t bars = (uint32_t)__cvta_generic_to_shared(smem + g.bars_at); /* one a stage */
    float2 *parts = (float2 *)(smem + g.part_at);
    const uint32_t parts_each = rows * NT * g.part_row;
    /* this warp's piece of a chunk, and its groups of rows: from `turn` on, each `turns` */
    const uint32_t mine = warp % g.chunk, turn = warp / g.chunk, turns = W / g.chunk;
    uint32_t tile = 0, chunk = 0, held = ~0u, out = of.next, parity = of.parity;
    asking asked = {0, 0, out};
    right<T, NT> h;

    auto ask = [&](uint32_t step) { /* the next step's bytes */
#if __CUDA_ARCH__ >= 900
        if (warp != ALL - 1)
            return;
#endif
        if (step < n_steps)
            ask_step<T, MATS, ALL>(g, s, smem, begin, end, bars, &asked);
#if __CUDA_ARCH__ < 900
        copies_close();
#endif
    };

    if (!of.ready) {
        if (threadIdx.x == 0) {
            for (uint32_t i = 0; i < g.n_stages; i++)
                bar_init(bars + 8 * i, 32);
            bars_ready();
        }
#if __CUDA_ARCH__ >= 900
        __syncthreads();
#endif
        of.ready = true;
    }
    for (uint32_t i = 0; i < g.n_stages - 1; i++)
        ask(i);
    meet();
    for (uint32_t i = 0; i < n_steps; i++) {
        uint32_t row0 = begin + (tile << g.row_shift), n = min(rows, end - row0);

#if __CUDA_ARCH__ >= 900
        bar_wait(bars + 8 * out, parity);
#else
        if (g.n_stages == 3)
            copies_wait<1>();
        else
            copies_wait<0>();
#endif
        __syncthreads(); /* the step's bytes are there; everybody has left those filled next */
        ask(i + g.n_stages - 1);
        if (chunk == 0 && tile)
            floats<T, NT, MATS>(g, parts + (tile - 1) % 2 * parts_each, rows, my_chain<ALL>(),
                                32 * ALL, [&](uint32_t r, uint32_t t, float y, float y2) {
                                       put(row0 - rows + r, t, y, y2);
                                   });
        const uint32_t first = chunk * g.chunk, super = first + mine;
        if (warp < W && turn < turns && super < g.n_super) {
            const uint8_t *stage = smem + g.stage[out];
            float2 *to = parts + tile % 2 * parts_each;

            if (super != held) {
                hold16<T, NT>(g, s, super, lane, h);
                held = super;
            }
#pragma unroll 1
            for (uint32_t r = GROUP * turn; r < n; r += GROUP * turns) {
                uint32_t ra = min(r + lane / 4, n - 1), rb = min(r + lane / 4 + 8, n - 1);
                const uint8_t *at[2] = {block_in<T, MATS>(g, s, stage, row0, ra, first, super),
                                        block_in<T, MATS>(g, s, stage, row0, rb, first, super)};

                if constexpr (NT == 1)
                    one_vector<T>(g, at[0], at[1], smem + g.table_at, to, r, n, super, lane, h);
                else
                    vectors<T, NT>(g, at[0], at[1], smem + g.table_at, to, r, n, super, lane, h);
            }
        }
        if (++out == g.n_stages)
            out = 0, parity ^= 1;
        if (++chunk == g.n_chunks)
            chunk = 0, tile++;
    }
#if __CUDA_ARCH__ < 900
    copies_wait<0>();
#endif
    of.next = out;
    of.parity = parity;
    __syncthreads();
    if (n_tiles) {
        uint32_t row0 = begin + ((n_tiles - 1) << g.row_shift);
        floats<T, NT, MATS>(g, parts + (n_tiles - 1) % 2 * parts_each, end - row0,
                            my_chain<ALL>(), 32 * ALL, [&](uint32_t r, uint32_t t, float y, float y2) {
                                   put(row0 + r, t, y, y2);
                               });
    }
    __syncthreads(); /* shared memory may be used again */
}
