/* dot.cuh's fourth way to make the integers, for two to eight vectors, types that several_types.cuh knows, and
 * cards with a copy engine (sm_90). A warp takes 256 values of sixteen rows in steps of 32: the tensor cores
 * multiply them with those of eight vectors, a column each, or of four, whose two halves of sixteen have a column
 * each; and a thread multiplies the sums that it gets with the rows' scales. They are S at once. Minima, or
 * what was left in the values, times the vectors' sums are such a product, too, of the sums' high and low bits.
 * So eight vectors cost little more than one, but for their chains, which have warps of their own.
 * Rows are staged, copied and given back as in steps.cuh. */
#pragma once
#include "kernels/dot/several_types.cuh"
#include "kernels/dot/steps.cuh"

enum {
    SEVERAL_EXTRA = 4, /* warps: the first asks for bytes, the others run chains */
    SEVERAL_PARTS = 2, /* tiles */
    SEVERAL_BARS_BYTES = 8 * (2 * STAGES + 2 * SEVERAL_PARTS) + 16,
};

/* Vectors: of column c of set k, and which of its halves; and of result k of a thread. */
template <class T> static __device__ __forceinline__ int column_vector(int c, int k)
{
    return several<T>::HALVES == 2 ? c / 2 + 4 * k : c;
}
template <class T> static __device__ __forceinline__ int result_vector(int t, int k)
{
    return several<T>::HALVES == 2 ? t + 4 * k : 2 * t + k;
}
/* the vectors' values of this thread, and what its results are multiplied with */
template <class T, int NT> struct right_several {
    static constexpr int SETS = NT * several<T>::HALVES > 8 ? 2 : 1; /* of columns */
    static constexpr int RESULTS = several<T>::HALVES == 2 ? SETS : 2; /* of a row */
    uint32_t q[SETS][8][2];
    uint32_t low, high; /* of the vectors' sums, where there is a side */
    float d[RESULTS];
};
template <int NT>
static __device__ __forceinline__ const uint8_t *vector_of(const source &s, int n)
{
    const uint8_t *vec = s.vec[0];

#pragma unroll
    for (int i = 1; i < NT; i++)
        vec = n == i ? s.vec[i] : vec;
    return vec;
}
template <class T, int NT>
static __device__ __forceinline__ void hold_several(const tiling &g, const source &s, int super,
                                                    int lane, right_several<T, NT> &h)
{
    using S = several<T>;
    const int t = lane % 4, c = lane / 4;

#pragma unroll
    for (int k = 0; k < h.SETS; k++) {
        const uint8_t *vec = vector_of<NT>(s, column_vector<T>(c, k));
#pragma unroll
        for (int i = 0; i < 8; i++)
            S::right(vec + 256 * super, i, t, c % 2, h.q[k][i]);
    }
    if constexpr (S::SIDE != 0) { /* column c belongs to the threads c / 2, as their result c % 2 */
        const uint8_t *vec = vector_of<NT>(s, result_vector<T>(c / 2, c % 2));
        const int16_t *sum = (const int16_t *)(vec + cu_act_sum_at(g.n_cols, 256)) + 16 * super;

        h.low = h.high = 0;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            int all = S::SIDE == 16 ? sum[4 * t + k] : t < 2 ? sum[8 * t + 2 * k] + sum[8 * t + 2 * k + 1] : 0;
            int low = ((all + 64) & 127) - 64; /* all: at most 32 * 127 */

            h.low |= (uint32_t)(low & 255) << 8 * k;
            h.high |= (uint32_t)((all - low) / 128 & 255) << 8 * k;
        }
    }
#pragma unroll
    for (int k = 0; k < h.RESULTS; k++)
        h.d[k] = ((const float *)(vector_of<NT>(s, result_vector<T>(t, k)) + cu_act_d_at(g.n_cols)))[super];
}

/* S, and T, of rows g (x[0]) and g + 8 for this thread's vectors */
template <class T, int NT>
static __device__ __forceinline__ void several_sums(const typename several<T>::raw &a,
                                                    const typename several<T>::raw &b, int t,
                                                    uint32_t grid, uint32_t signs,
                                                    const right_several<T, NT> &h, int x[2][2], int y[2][2])
{
    using S = several<T>;

    x[0][0] = x[0][1] = x[1][0] = x[1][1] = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t wa[2], wb[2], ma[2], mb[2];

        if constexpr (has_masks<S>) {
            S::step(a, i, t, grid, signs, wa, ma);
            S::step(b, i, t, grid, signs, wb, mb);
        } else {
            S::step(a, i, t, grid, signs, wa);
            S::step(b, i, t, grid, signs, wb);
        }
#pragma unroll
        for (int k = 0; k < h.SETS; k++) {
            int c[4] = {0, 0, 0, 0}, of_masks[4] = {0, 0, 0, 0};

            mma32_add(c, wa[0], wb[0], wa[1], wb[1], h.q[k][i][0], h.q[k][i][1]);
            if constexpr (has_masks<S>) { /* -x = ~x + 1, and a mask is -1 */
                mma32_add(of_masks, ma[0], mb[0], ma[1], mb[1], h.q[k][i][0], h.q[k][i][1]);
#pragma unroll
                for (int l = 0; l < 4; l++)
                    c[l] -= of_masks[l];
            }
            if constexpr (S::HALVES == 2) {
                x[0][k] += S::scale(a, 2 * i) * c[0] + S::scale(a, 2 * i + 1) * c[1];
                x[1][k] += S::scale(b, 2 * i) * c[2] + S::scale(b, 2 * i + 1) * c[3];
            } else {
                x[0][0] += S::scale(a, i) * c[0], x[0][1] += S::scale(a, i) * c[1];
                x[1][0] += S::scale(b, i) * c[2], x[1][1] += S::scale(b, i) * c[3];
            }
        }
    }
    if constexpr (S::SIDE != 0) {
        int low[4], high[4];

        mma16(low, S::side(a, t), S::side(b, t), h.low, 0);
        mma16(high, S::side(a, t), S::side(b, t), h.high, 0);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            y[k / 2][k % 2] = low[k] + 128 * high[k];
            if (S::OFFSET)
                x[k / 2][k % 2] += S::OFFSET * y[k / 2][k % 2];
        }
    }
}

/* As rows_range (dot.cuh), by W warps and SEVERAL_EXTRA more; barriers as rows_steps. */
template <class T, int NT, int W, class MEET, class PUT>
static __device__ __forceinline__ void rows_several(const tiling &g, const source &s, uint8_t *smem,
                                                    uint32_t begin, uint32_t end, MEET meet, PUT put)
{
    constexpr int KINDS = T::M ? 2 : 1, CHAINS = 32 * (SEVERAL_EXTRA - 1);
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, t = lane % 4;
    const uint32_t rows = 1u << g.row_shift, parts_each = rows * NT * g.part_row;
    const uint32_t bars = (uint32_t)__cvta_generic_to_shared(smem + g.bars_at);
    const uint32_t taken = bars + 8 * STAGES, made = taken + 8 * STAGES, freed = made + 8 * SEVERAL_PARTS;
    float2 *parts = (float2 *)(smem + g.part_at);
    step i = {begin, 0, 0, 0};
    uint32_t slot = 0, used = 0; /* of parts, and how often it was used */

    if (threadIdx.x == 0) {
        for (uint32_t k = 0; k < g.n_stages; k++) {
            bar_init(bars + 8 * k, 32);
            bar_init(taken + 8 * k, 32 * W);
        }
        for (uint32_t k = 0; k < SEVERAL_PARTS; k++) {
            bar_init(made + 8 * k, 32 * W);
            bar_init(freed + 8 * k, CHAINS);
        }
        bars_ready();
    }
    __syncthreads();
    if (warp == W) {
        step next = i;

        for (uint32_t k = 0; k < g.n_stages && next.row < end; k++, step_next(g, &next))
            ask_rows<T>(g, s, next.row, end, next.first, smem + g.stage[k], bars + 8 * k);
        meet();
        __syncthreads(); /* the vectors are there */
        for (; next.row < end; step_next(g, &i), step_next(g, &next)) {
            bar_wait(taken + 8 * i.stage, i.round & 1);
            ask_rows<T>(g, s, next.row, end, next.first, smem + g.stage[i.stage], bars + 8 * i.stage);
        }
    } else if (warp > W) {
        meet();
        __syncthreads();
        for (; i.row < end; i.row += rows) {
            bar_wait(made + 8 * slot, used & 1);
            floats<T, NT, 1>(g, parts + slot * parts_each, min(rows, end - i.row),
                             threadIdx.x - 32 * (W + 1), CHAINS,
                             [&](uint32_t r, uint32_t k, float y, float y2) {
                                 put(i.row + r, k, y, y2);
                             });
            bar_arrive(freed + 8 * slot);
            if (++slot == SEVERAL_PARTS)
                slot = 0, used++;
        }
    } else {
        /* this warp's piece of a chunk; its groups of rows from the one at r0 on, so far apart */
        const uint32_t mine = warp % g.chunk, turn = warp / g.chunk, turns = W / g.chunk;
        const uint32_t r0 = turn < turns ? GROUP * turn : ~0u >> 1, apart = GROUP * turns;
        const uint32_t my_bytes = row_offset(g, lane / 4 + GROUP * turn) + mine * T::BYTES;
        const uint32_t eight = row_offset(g, 8), ahead = row_offset(g, apart);
        uint32_t held = ~0u;
        uint32_t grid = 0, signs = 0;
        right_several<T, NT> h;
        turned u = {};

        if constexpr (has_steps<T>) {
            grid = table_copy(smem + g.grid_at, lane, 4, T::GRID_COPIES);
            signs = table_copy(smem + g.signs_at, lane, T::SIGN_BYTES, WIDE_ENTRY / T::SIGN_BYTES);
        }

        meet();
        __syncthreads();
        for (; i.row < end; step_next(g, &i)) {
            const uint32_t n = min(rows, end - i.row), super = i.first + mine;

            bar_wait(bars + 8 * i.stage, i.round & 1);
            if (r0 < n && super < g.n_super) {
                const uint8_t *at = smem + g.stage[i.stage] + rows_begin<T>(s, i.row, i.first) + my_bytes;
                float2 *to = parts + slot * parts_each + super * KINDS;

                if (super != held) {
                    held = super;
                    u = turned_of(super % 2 == several<T>::TURNED, t);
                    hold_several<T, NT>(g, s, super, lane, h);
                }
                if (i.first == 0 && used)
                    bar_wait(freed + 8 * slot, (used - 1) & 1);
#pragma unroll 1
                for (uint32_t r = r0;;) {
                    typename several<T>::raw a, b;
                    float d[2][KINDS];
                    int x[2][2], y[2][2];
                    const uint32_t row = r + lane / 4;

                    /* rows that are not there: whatever lies in their places, for nobody */
                    several<T>::load(at, t, u, &a);
                    several<T>::load(at + eight, t, u, &b);
#pragma unroll
                    for (int k = 0; k < KINDS; k++) {
                        d[0][k] = T::factor(at, k, 0);
                        d[1][k] = T::factor(at + eight, k, 0);
                    }
                    r += apart;
                    if (r >= n)
                        bar_arrive(taken + 8 * i.stage);
                    several_sums<T, NT>(a, b, t, grid, signs, h, x, y);
#pragma unroll
                    for (int k = 0; k < 2 * h.RESULTS; k++) {
                        const int of = k % h.RESULTS, down = k / h.RESULTS;
                        const uint32_t to_row = row + 8 * down, vec = result_vector<T>(t, of);
                        float2 *p = to + (to_row * NT + vec) * g.part_row;

                        if (vec < NT && to_row < n) {
                            p[0] = make_float2(__fmul_rn(d[down][0], h.d[of]), __int2float_rn(x[down][of]));
                            if constexpr (KINDS == 2)
                                p[1] = make_float2(__fmul_rn(d[down][1], h.d[of]),
                                                   __int2float_rn(y[down][of]));
                        }
                    }
                    if (r >= n)
                        break;
                    at += ahead;
                }
            } else {
                bar_arrive(taken + 8 * i.stage);
            }
            if (i.first + g.chunk >= g.n_super) {
                bar_arrive(made + 8 * slot);
                if (++slot == SEVERAL_PARTS)
                    slot = 0, used++;
            }
        }
    }
    __syncthreads();
    bars_drop(bars, g.n_stages);
    bars_drop(taken, g.n_stages);
    bars_drop(made, 2 * SEVERAL_PARTS);
    __syncthreads(); /* shared memory may be used again */
}
