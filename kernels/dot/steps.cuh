/* dot.cuh's third way to make the integers, for one vector, types with steps (open.cuh) and cards with a
 * copy engine (sm_90): sixteen.cuh's, with tables of 32 copies and no meeting of all warps.
 *
 * A warp takes 256 values of sixteen rows, whose bytes it takes first and all at once. In column
 * T::column(i, t) of step i lie the vector's values, zeros in the others: the sums that a thread gets are
 * those of the sub-blocks whose scales it took. Four threads' products of scales and sums add up to S.
 *
 * Tables leave room for one block on a multiprocessor: few warps have a long time to wait for, and those that
 * share a scheduler with the one more that copies and runs chains are slowed down by all that it does. So a
 * stage is free as soon as its bytes are taken, not when they are worked off, and is filled again before
 * anything else is done; and rows are copied several at once and staged as they lie in the file (row_offset):
 * a copy costs that warp as much whatever its length. */
#pragma once
#include "kernels/dot/sixteen.cuh"

enum {
    STEP_PARTS = 4, /* tiles whose parts there is room for: warps may be so far apart */
    STEP_BARS_BYTES = 8 * (2 * STAGES + 2 * STEP_PARTS) + 16,
};

template <class T, class = void> constexpr bool has_steps = false;
template <class T> constexpr bool has_steps<T, decltype((void)T::STEPS)> = T::STEPS;
template <class T, class = void> constexpr bool has_masks = false;
template <class T> constexpr bool has_masks<T, decltype((void)T::MASKS)> = T::MASKS;

/* the vector's values of this thread, as the right side of the product */
struct right_steps {
    uint32_t q[8][2];
    int start[2][2];
    float d;
};
template <class T>
static __device__ __forceinline__ void hold_steps(const tiling &g, const source &s, int super, int turn,
                                                  int lane, right_steps &h)
{
    const int col = lane / 4, t = lane % 4;

#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t w[2];

        T::right(s.vec[0] + 256 * super, i, t, turn, w);
        h.q[i][0] = T::column(i, t, turn) == col ? w[0] : 0;
        h.q[i][1] = T::column(i, t, turn) == col ? w[1] : 0;
    }
    if constexpr (T::START != 0) {
        const int16_t *sum = (const int16_t *)(s.vec[0] + cu_act_sum_at(g.n_cols, 256)) + 16 * super + 2 * t;
#pragma unroll
        for (int k = 0; k < 2; k++)
            h.start[k][0] = T::START * sum[8 * k], h.start[k][1] = T::START * sum[8 * k + 1];
    }
    h.d = ((const float *)(s.vec[0] + cu_act_d_at(g.n_cols)))[super];
}

/* the shared address of a thread's copy in a wide table whose entries have `copies` of `bytes` */
static __device__ __forceinline__ uint32_t table_copy(const uint8_t *table, int lane, int bytes,
                                                      int copies)
{
    return (uint32_t)__cvta_generic_to_shared(table) + lane % copies * bytes;
}
/* x as it is, but so that the compiler does not make it again wherever it is used */
static __device__ __forceinline__ uint32_t kept(uint32_t x)
{
    return __shfl_sync(~0u, x, threadIdx.x & 31);
}
/* S of the rows g and g + 8 as far as it is this thread's */
template <class T>
static __device__ __forceinline__ void step_sums(const typename T::raw &a, const typename T::raw &b,
                                                 uint32_t grid, uint32_t signs, int t,
                                                 const right_steps &h, int x[2])
{
    int c[2][4] = {};

    if constexpr (T::START != 0)
#pragma unroll
        for (int i = 0; i < 8; i++)
            c[i / 4][i % 4] = h.start[i / 4][i % 2];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t wa[2], wb[2], ma[2], mb[2];

        if constexpr (has_masks<T>) {
            T::step(a, i, t, grid, signs, wa, ma);
            T::step(b, i, t, grid, signs, wb, mb);
            mma32_add(c[1], ma[0], mb[0], ma[1], mb[1], h.q[i][0], h.q[i][1]);
        } else {
            T::step(a, i, t, grid, signs, wa);
            T::step(b, i, t, grid, signs, wb);
        }
        mma32_add(c[has_masks<T> ? 0 : T::SUB == 32 ? i % 2 : i / 4], wa[0], wb[0], wa[1], wb[1],
                  h.q[i][0], h.q[i][1]);
    }
    if (T::SUB == 32) /* -x = ~x + 1, and a mask is -1 */
#pragma unroll
        for (int i = 0; i < 4; i++)
            c[0][i] += has_masks<T> ? -c[1][i] : c[1][i];
    x[0] = T::scaled(a, t, c[0], c[1]);
    x[1] = T::scaled(b, t, c[0] + 2, c[1] + 2);
}

/* Row r lies so far from the first one: 1 << run_shift rows as in the file, then sixteen bytes more, so
 * that eight rows begin in different banks. Modulo sixteen it is as in the file. */
static __device__ __forceinline__ uint32_t row_offset(const tiling &g, uint32_t r)
{
    return (r >> g.run_shift) * g.pitch + (r & ((1u << g.run_shift) - 1)) * g.row_step;
}
/* where in its stage the first of rows from `row` on begins, with its piece `first` */
template <class T>
static __device__ __forceinline__ uint32_t rows_begin(const source &s, uint32_t row, uint32_t first)
{
    return (row * (uint32_t)s.row_bytes + first * T::BYTES) & 15;
}
/* Asks for the pieces from `first` on of a tile that begins with `row`; one warp, a thread a run. */
template <class T>
static __device__ __forceinline__ void ask_rows(const tiling &g, const source &s, uint32_t row,
                                                uint32_t end, uint32_t first, uint8_t *stage,
                                                uint32_t bar)
{
    const uint32_t n = min(1u << g.row_shift, end - row), run = 1u << g.run_shift;
    const uint32_t begin = rows_begin<T>(s, row, first);
    const uint32_t of_row = min(g.chunk, g.n_super - first) * T::BYTES;
    uint32_t asked = 0;

    for (uint32_t r = threadIdx.x % 32 * run; r < n; r += 32 * run) {
        const uint8_t *from = s.w[0] + (row + r) * s.row_bytes + first * T::BYTES;
        uint32_t shift = (uint32_t)(size_t)from & 15, more = min(run, n - r) - 1;
        uint32_t bytes = (shift + more * (uint32_t)s.row_bytes + of_row + 15) & ~15u;

        bar_copy(stage + ((begin + row_offset(g, r)) & ~15u), from - shift, bytes, bar);
        asked += bytes;
    }
    bar_expect(bar, asked);
}

/* which step comes next: tiles of a range, each in chunks, stages and parts in turn */
struct step {
    uint32_t row, first, stage, round; /* the tile's, the chunk's first piece; round: of the stages */
};
static __device__ __forceinline__ void step_next(const tiling &g, step *i)
{
    if (++i->stage == g.n_stages)
        i->stage = 0, i->round++;
    if ((i->first += g.chunk) >= g.n_super)
        i->first = 0, i->row += 1u << g.row_shift;
}

/* As rows_range (dot.cuh), by W warps and one more. Barriers: one a stage for its bytes, one for who has
 * taken them; one for each of the tiles' parts that are made, one for those that are free again. */
template <class T, int W, class MEET, class PUT>
static __device__ __forceinline__ void rows_steps(const tiling &g, const source &s, uint8_t *smem,
                                                  uint32_t begin, uint32_t end, MEET meet, PUT put)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, t = lane % 4;
    const uint32_t rows = 1u << g.row_shift, parts_each = rows * g.part_row;
    const uint32_t bars = (uint32_t)__cvta_generic_to_shared(smem + g.bars_at);
    const uint32_t taken = bars + 8 * STAGES, made = taken + 8 * STAGES, freed = made + 8 * STEP_PARTS;
    float2 *parts = (float2 *)(smem + g.part_at);
    step i = {begin, 0, 0, 0};
    uint32_t slot = 0, used = 0; /* of parts, and how often it was used */

    if (threadIdx.x == 0) {
        for (uint32_t k = 0; k < g.n_stages; k++) {
            bar_init(bars + 8 * k, 32);
            bar_init(taken + 8 * k, 32 * W);
        }
        for (uint32_t k = 0; k < STEP_PARTS; k++) {
            bar_init(made + 8 * k, 32 * W);
            bar_init(freed + 8 * k, 32);
        }
        bars_ready();
    }
    __syncthreads();
    if (warp == W) {
        step next = i;

        for (uint32_t k = 0; k < g.n_stages && next.row < end; k++, step_next(g, &next))
            ask_rows<T>(g, s, next.row, end, next.first, smem + g.stage[k], bars + 8 * k);
        meet();
        __syncthreads(); /* tables and vectors are there */
        for (; i.row < end; step_next(g, &i)) {
            if (next.row < end) {
                bar_wait(taken + 8 * i.stage, i.round & 1);
                ask_rows<T>(g, s, next.row, end, next.first, smem + g.stage[i.stage],
                            bars + 8 * i.stage);
                step_next(g, &next);
            }
            if (i.first + g.chunk >= g.n_super) {
                bar_wait(made + 8 * slot, used & 1);
                floats<T, 1, 1>(g, parts + slot * parts_each, min(rows, end - i.row), lane, 32,
                                [&](uint32_t r, uint32_t k, float y, float y2) {
                                    put(i.row + r, k, y, y2);
                                });
                bar_arrive(freed + 8 * slot);
                if (++slot == STEP_PARTS)
                    slot = 0, used++;
            }
        }
    } else {
        /* this warp's piece of a chunk; its groups of rows from the one at r0 on, so far apart */
        const uint32_t mine = warp % g.chunk, turn = warp / g.chunk, turns = W / g.chunk;
        const uint32_t r0 = turn < turns ? GROUP * turn : ~0u >> 1, apart = GROUP * turns;
        const uint32_t my_bytes = row_offset(g, lane / 4 + GROUP * turn) + mine * T::BYTES;
        const uint32_t eight = row_offset(g, 8), ahead = row_offset(g, apart);
        /* the row of a group that this thread writes, if it is even */
        const uint32_t own = lane / 4 + 8 * (lane / 2 % 2), own_eight = kept(lane & 2 ? eight : 0);
        const uint32_t written = kept(lane & 1 ? 1 << 30 : own), upper = kept(lane & 2);
        const uint32_t grid = kept(table_copy(smem + g.grid_at, lane, 4, T::GRID_COPIES));
        const uint32_t signs = kept(table_copy(smem + g.signs_at, lane, T::SIGN_BYTES, WIDE_ENTRY / T::SIGN_BYTES));
        uint32_t held = ~0u;
        turned u = {};
        right_steps h;

        meet();
        __syncthreads();
        for (; i.row < end; step_next(g, &i)) {
            const uint32_t n = min(rows, end - i.row), super = i.first + mine;

            bar_wait(bars + 8 * i.stage, i.round & 1);
            if (r0 < n && super < g.n_super) {
                const uint8_t *at = smem + g.stage[i.stage] + rows_begin<T>(s, i.row, i.first) + my_bytes;
                float2 *to = parts + slot * parts_each + (r0 + own) * g.part_row + super;

                if (super != held) {
                    held = super;
                    u = turned_of(super % 2 == T::TURNED, t);
                    u.word = kept(u.word), u.pair = kept(u.pair), u.first = kept(u.first), u.both = kept(u.both);
                    hold_steps<T>(g, s, super, u.turn, lane, h);
                }
                if (i.first == 0 && used)
                    bar_wait(freed + 8 * slot, (used - 1) & 1);
#pragma unroll 1
                for (uint32_t r = r0;;) {
                    const bool in = r + written < n;
                    typename T::raw a, b;
                    int x[2];

                    /* rows that are not there: whatever lies in their places, for nobody */
                    T::load(at, t, u, &a);
                    T::load(at + eight, t, u, &b);
                    float d = T::factor(at + own_eight, 0, 0);
                    r += apart;
                    if (r >= n)
                        bar_arrive(taken + 8 * i.stage);
                    step_sums<T>(a, b, grid, signs, t, h, x);
                    x[0] = keep_one<2>(x[0], x[1], upper);
                    x[0] += __shfl_xor_sync(~0u, x[0], 1);
                    if (in)
                        *to = make_float2(__fmul_rn(d, h.d), __int2float_rn(x[0]));
                    if (r >= n)
                        break;
                    at += ahead;
                    to += apart * g.part_row;
                }
            } else {
                bar_arrive(taken + 8 * i.stage);
            }
            if (i.first + g.chunk >= g.n_super) {
                bar_arrive(made + 8 * slot);
                if (++slot == STEP_PARTS)
                    slot = 0, used++;
            }
        }
    }
    __syncthreads();
    bars_drop(bars, g.n_stages);
    bars_drop(taken, g.n_stages);
    bars_drop(made, 2 * STEP_PARTS);
    __syncthreads(); /* shared memory may be used again */
}
