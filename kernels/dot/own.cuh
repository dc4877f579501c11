/* An expert's rows times one vector, for types that look values up in tables, by warps that work each for
 * itself (sm_90: the copy engine). The tables of steps.cuh, with a copy for each thread of a warp, leave room for
 * one block on a multiprocessor, and an expert's launch is short: so there is no warp that serves others and no
 * meeting. A warp takes a few rows at a time, asks for the next ones' bytes itself, and holds the whole
 * vector in registers; integers are dot.cuh's, a thread's part of a row lies at the same place of every row, so
 * that its addresses are sums with constants; sums of sixteen are joined at once. Its own chains follow when
 * eight rows are made. */
#pragma once
#include "kernels/dot/steps.cuh"
extern "C" {
#include "kernels/dot/dot_cuda.h"
}

enum { OWN_STAGES = 2, OWN_PIECES = 4 /* of 1024 values, at most */, OWN_BATCH = 8 };

/* What a type says: WARPS, that its tables leave room for; SUMS that are joined at once, 8 or 16; ENTRIES of both tables, which are fetched (entry)
 * long before there is time to write them (store: grid, then signs); where a thread has its parts (begin: of the block
 * `super`, its part p); dot: the part of piece C of a row times the vector's. */
template <class T> struct own {
    static constexpr int WARPS = 0;
};
template <> struct own<iq2_xs> {
    static constexpr int WARPS = 12, SUMS = 16, ENTRIES = 512 + 256;
    uint32_t grid, signs, shift, codes, scales, low;

    static __device__ __forceinline__ uint32_t entry(int i)
    {
        return i < 512 ? codes8(card::iq2xs_grid[i], 0, 4) : bits_to_nibbles(card::sign_masks[(i - 512) / 2]) << 2;
    }
    static __device__ __forceinline__ void store(uint8_t *to, int i, uint32_t v)
    {
        wide_words(to, i, v);
    }

    __device__ __forceinline__ void begin(uint32_t grid_at, uint32_t signs_at, int super, int p)
    {
        const uint32_t at = super * iq2_xs::BYTES + 2 + 8 * p;

        grid = grid_at, signs = signs_at;
        shift = 8 * (at & 3), codes = at & ~3u;
        scales = super * iq2_xs::BYTES + 66 + p;
        low = kept(0x002B1908u);
    }
    template <bool HIGH>
    __device__ __forceinline__ int eight(uint32_t x, uint32_t places, const uint32_t *q, int sum) const
    {
        uint32_t code = shared_word(HIGH ? high_half_to<WIDE_ENTRY>(places, grid) : half_to<WIDE_ENTRY>(places, grid)) ^
                        shared_word(byte_to<HIGH ? 3 : 1, WIDE_ENTRY>(x, signs));

        sum = __dp4a((int)pick4(low, 0x00D5E7F8u, code), (int)q[0], sum);
        return __dp4a((int)pick4(low, 0x00D5E7F8u, high_half_to<1>(code, 0)), (int)q[1], sum);
    }
    template <int C> __device__ __forceinline__ int dot(const uint8_t *row, const uint32_t *q) const
    {
        constexpr int AT = 4 * C * iq2_xs::BYTES;
        const uint32_t *x = (const uint32_t *)(row + codes + AT);
        const uint32_t x0 = __funnelshift_r(x[0], x[1], shift), x1 = __funnelshift_r(x[1], x[2], shift);
        const uint32_t places0 = x0 & 0x01FF01FFu, places1 = x1 & 0x01FF01FFu;
        int c[2];

        c[0] = eight<true>(x0, places0, q + 2, eight<false>(x0, places0, q, 0));
        c[1] = eight<true>(x1, places1, q + 6, eight<false>(x1, places1, q + 4, 0));
        return odd_scales(row[scales + AT], c);
    }
};
template <> struct own<iq3_s> {
    static constexpr int WARPS = 8, SUMS = 16, ENTRIES = 512 + 256;
    uint32_t grid, signs, shift, codes, sign_codes, highs, scales, nibble;

    static __device__ __forceinline__ uint32_t entry(int i)
    {
        return i < 512 ? card::iq3s_grid[i] : i - 512;
    }
    static __device__ __forceinline__ void store(uint8_t *to, int i, uint32_t v)
    {
        if (i < 512)
            wide_words(to, i, v);
        else
            wide_pairs(to, i, make_uint2(sign_bytes<false>(v), sign_bytes<true>(v)));
    }

    __device__ __forceinline__ void begin(uint32_t grid_at, uint32_t signs_at, int super, int p)
    {
        const uint32_t b = super * iq3_s::BYTES, at = b + 2 + 8 * p;

        grid = grid_at, signs = signs_at;
        shift = 8 * (at & 3), codes = at & ~3u;
        sign_codes = (b + 74 + 4 * p) & ~3u; /* as far from whole words as the codes */
        highs = b + 66 + p;
        scales = b + 106 + p / 2, nibble = 4 * (p % 2);
    }
    template <int L>
    __device__ __forceinline__ int eight(uint32_t x, uint32_t high, uint32_t s, const uint32_t *q, int sum) const
    {
        const uint32_t two = iq3_s::two_places<L>(x, high);
        const uint2 m = shared_pair(byte_to<L, WIDE_ENTRY>(s, signs));

        /* the grid's bytes are odd: -x = ~x | 1 */
        sum = __dp4a((int)((shared_word(half_to<WIDE_ENTRY>(two, grid)) ^ m.x) | 0x01010101u), (int)q[0], sum);
        return __dp4a((int)((shared_word(high_half_to<WIDE_ENTRY>(two, grid)) ^ m.y) | 0x01010101u), (int)q[1], sum);
    }
    template <int C> __device__ __forceinline__ int dot(const uint8_t *row, const uint32_t *q) const
    {
        constexpr int AT = 4 * C * iq3_s::BYTES;
        const uint32_t *x = (const uint32_t *)(row + codes + AT), *s = (const uint32_t *)(row + sign_codes + AT);
        const uint32_t x0 = __funnelshift_r(x[0], x[1], shift), x1 = __funnelshift_r(x[1], x[2], shift);
        const uint32_t bits = __funnelshift_r(s[0], s[1], shift), high = row[highs + AT];
        int sum = eight<0>(x0, high, bits, q, 0);

        sum = eight<1>(x0, high, bits, q + 2, sum);
        sum = eight<2>(x1, high, bits, q + 4, sum);
        sum = eight<3>(x1, high, bits, q + 6, sum);
        return sum + 2 * (int)(row[scales + AT] >> nibble & 15) * sum;
    }
};

/* Rows of NQ pieces at most, of MATS matrices, by W warps */
template <class T_, int NQ_, int MATS_, int W_, int SUMS_> struct own_shape {
    using T = T_;
    static constexpr int NQ = NQ_, MATS = MATS_, W = W_, SUMS = SUMS_;
    static constexpr int EACH = NQ == 1 ? 1 : NQ == 2 ? 2 : 4; /* sums of a row */
    static constexpr int CHUNK = SUMS / EACH;                  /* rows of a stage */
    static constexpr int BATCH = CHUNK > OWN_BATCH ? CHUNK : OWN_BATCH;
    static constexpr int FILLS = (own<T>::ENTRIES + 32 * W - 1) / (32 * W);
};

/* the sums of the rows from number R on and piece C on */
template <class A, int C, int R>
static __device__ __forceinline__ void own_dots(const own<typename A::T> &o, const uint8_t *const *row,
                                                const held<typename A::T, 1> *h, int *x)
{
    if constexpr (R < A::CHUNK) {
        x[R * A::EACH + C] = o.template dot<C>(row[R], h[C].q[0]);
        if constexpr (C + 1 < A::NQ)
            own_dots<A, C + 1, R>(o, row, h, x);
        else
            own_dots<A, 0, R + 1>(o, row, h, x);
    }
}

/* The tables: fetched early, written when there is time. */
template <class A> struct own_tables {
    uint32_t v[A::FILLS];

    __device__ __forceinline__ void fetch(void)
    {
#pragma unroll
        for (int i = 0; i < A::FILLS; i++)
            v[i] = own<typename A::T>::entry(min((int)threadIdx.x + i * 32 * A::W, own<typename A::T>::ENTRIES - 1));
    }
    __device__ __forceinline__ void write(uint8_t *to) const
    {
#pragma unroll
        for (int i = 0; i < A::FILLS; i++)
            if ((int)threadIdx.x + i * 32 * A::W < own<typename A::T>::ENTRIES)
                own<typename A::T>::store(to, threadIdx.x + i * 32 * A::W, v[i]);
    }
};

/* The items' list: which expert an item needs is read together with how many items there are. */
struct own_list {
    uint32_t n, pieces, slot, tok, row; /* the latter three: of the item whose number is the lane's */

    __device__ __forceinline__ void read(const dot_cuda_experts &j)
    {
        const expert_item &item = j.items[min(threadIdx.x & 31, j.most - 1)];

        slot = item.slot, tok = item.tok[0], row = item.row[0];
        n = *j.n_items;
        pieces = n ? pieces_of(n, j.n_rows) : 0;
    }
};

/* What a warp does of a launch's items of one vector. */
template <class A> struct own_warp {
    using T = typename A::T;
    uint8_t *stages;
    float2 *parts;
    uint32_t bars, in, out, parity;
    own<T> o;
    /* a piece of an item's rows */
    source s;
    const uint8_t *mine; /* the matrix that this thread asks for */
    float scale0, scale1;
    uint32_t begin, end, n_chunks, asked, to_row, tok;

    /* the barriers are there for this warp alone; before any copy */
    __device__ __forceinline__ void start(const tiling &g, uint8_t *smem)
    {
        const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;

        stages = smem + g.stage_at + warp * OWN_STAGES * g.stage_bytes;
        parts = (float2 *)(smem + g.part_at) + warp * A::BATCH * g.part_row;
        bars = (uint32_t)__cvta_generic_to_shared(smem + g.bars_at) + warp * 8 * OWN_STAGES;
        in = out = parity = 0;
        if (lane == 0) {
            for (int i = 0; i < OWN_STAGES; i++)
                bar_init(bars + 8 * i, A::MATS);
            bars_ready();
        }
        __syncwarp();
        o.begin(table_copy(smem + g.grid_at, lane, 4, T::GRID_COPIES),
                table_copy(smem + g.signs_at, lane, T::SIGN_BYTES, WIDE_ENTRY / T::SIGN_BYTES), lane / 8, lane & 7);
    }
    /* A chunk's rows of one matrix lie side by side: a copy, and a thread, for each. */
    __device__ __forceinline__ void ask(const tiling &g)
    {
        const int lane = threadIdx.x & 31;

        if (asked < n_chunks && lane < A::MATS) {
            uint32_t row = begin + asked * A::CHUNK, n = min((uint32_t)A::CHUNK, end - row);
            const uint8_t *from = mine + (size_t)(row / A::MATS) * s.row_bytes;
            uint32_t shift = (uint32_t)(size_t)from & 15;
            uint32_t bytes = (shift + n / A::MATS * (uint32_t)s.row_bytes + 15) & ~15u;

            bar_expect(bars + 8 * in, bytes);
            bar_copy(stages + in * g.stage_bytes + lane * g.piece_bytes, from - shift, bytes, bars + 8 * in);
        }
        asked += A::W;
        in = in + 1 == OWN_STAGES ? 0 : in + 1;
    }
    /* Task number `task`, and its first bytes. The next ones are asked for when these are there: all begin at once,
     * and none should wait for others' second. */
    __device__ __forceinline__ void take(const tiling &g, const dot_cuda_experts &j, const own_list &l, uint32_t task)
    {
        const uint32_t at = task / l.pieces, piece = task % l.pieces;
        const bool here = at < 32;

        to_row = here ? __shfl_sync(~0u, l.row, at & 31) : j.items[at].row[0];
        tok = here ? __shfl_sync(~0u, l.tok, at & 31) : j.items[at].tok[0];
        const expert_slot &slot = j.slots[here ? __shfl_sync(~0u, l.slot, at & 31) : j.items[at].slot];
        begin = A::MATS * (uint32_t)((uint64_t)j.n_rows * piece / l.pieces);
        end = A::MATS * (uint32_t)((uint64_t)j.n_rows * (piece + 1) / l.pieces);
        n_chunks = (end - begin + A::CHUNK - 1) / A::CHUNK;
        s.w[0] = (const uint8_t *)slot.w[A::MATS == 2 ? 0 : j.which];
        s.w[1] = (const uint8_t *)slot.w[1];
        s.row_bytes = j.row_bytes;
        mine = A::MATS == 2 && (threadIdx.x & 31) ? s.w[1] : s.w[0];
        asked = threadIdx.x / 32;
        in = out;
        ask(g);
        scale0 = slot.scale[A::MATS == 2 ? 0 : j.which], scale1 = slot.scale[1];
    }
    /* The vector; of rows that were just made: all warps together, who then meet. */
    __device__ __forceinline__ void vector(const tiling &g, const dot_cuda_experts &j, uint8_t *smem)
    {
        if (A::MATS == 2) {
            s.vec[0] = j.acts + j.a_stride * tok;
        } else {
            s.vec[0] = smem + g.vec_at;
            for (uint32_t u = threadIdx.x / 32; u < g.n_super; u += A::W)
                cu_quantise_256(j.hidden + to_row * j.ld_hidden + 256 * u, u, j.n_cols, smem + g.vec_at);
        }
    }
    __device__ __forceinline__ void chains(const tiling &g, const dot_cuda_experts &j, uint32_t first, uint32_t n)
    {
        __syncwarp();
        floats<T, 1, A::MATS>(g, parts, n, threadIdx.x & 31, 32, [&](uint32_t r, uint32_t, float y, float y2) {
            uint32_t row = begin + (first + r / A::CHUNK * A::W) * A::CHUNK + r % A::CHUNK;

            if (scale0 != 1.0f)
                y = cu_canon(__fmul_rn(y, scale0));
            if (A::MATS == 2) {
                if (scale1 != 1.0f)
                    y2 = cu_canon(__fmul_rn(y2, scale1));
                y = cu_swiglu(y, y2, j.limit);
            }
            j.y[to_row * j.ldy + row / A::MATS] = y;
        });
        __syncwarp();
    }
    /* the piece's rows times the vector */
    __device__ __forceinline__ void rows(const tiling &g, const dot_cuda_experts &j)
    {
        constexpr int NQ = A::NQ, CHUNK = A::CHUNK, EACH = A::EACH;
        const int lane = threadIdx.x & 31, super0 = lane / 8, last = 4 * (NQ - 1) + super0;
        /* Of the last piece there may be less than a warp takes: it multiplies whatever lies there, for nobody. */
        const bool there = (uint32_t)last < g.n_super;
        held<T, 1> h[NQ];
#pragma unroll
        for (int c = 0; c < NQ; c++)
            hold<T, 1>(g, s, c < NQ - 1 ? 4 * c + super0 : there ? last : 0, lane & 7, lane, h[c]);
        /* of eight sums at once, the one that this thread ends up with */
        const int sum = my_value<8>(lane), my_row = sum / EACH, my_super = 4 * (sum % EACH) + super0;
        const bool writes = sum % EACH < NQ && (uint32_t)my_super < g.n_super;
        const float d = writes ? ((const float *)(s.vec[0] + cu_act_d_at(g.n_cols)))[my_super] : 0;
        uint32_t first = threadIdx.x / 32, got = 0; /* of the batch: its first chunk, its rows */

        for (uint32_t k = threadIdx.x / 32; k < n_chunks; k += A::W) {
            const uint32_t row0 = begin + k * CHUNK, n = min((uint32_t)CHUNK, end - row0);
            const view v = look<T, A::MATS>(g, s, stages + out * g.stage_bytes, row0);
            const uint8_t *row[CHUNK];
            int x[A::SUMS] = {};

#pragma unroll
            for (int r = 0; r < CHUNK; r++)
                row[r] = row_in<A::MATS>(v, r);
            bar_wait(bars + 8 * out, parity);
            ask(g);
            own_dots<A, 0, 0>(o, row, h, x);
#pragma unroll
            for (int i = 0; i < A::SUMS; i += 8) {
                const int r = my_row + i / EACH;

                join8<8>(x + i, lane);
                if (writes && (uint32_t)r < n)
                    parts[(got + r) * g.part_row + my_super] =
                        make_float2(__fmul_rn(T::factor(row_in<A::MATS>(v, r) + my_super * T::BYTES, 0, 0), d),
                                    __int2float_rn(x[i]));
            }
            __syncwarp();
            if (++out == OWN_STAGES)
                out = 0, parity ^= 1;
            got += n;
            if (got >= (uint32_t)A::BATCH) {
                chains(g, j, first, got);
                got = 0, first = k + A::W;
            }
        }
        if (got)
            chains(g, j, first, got);
    }
};

/* As items_kernel (form.cuh), for items of one vector. */
template <class A>
__global__ void __launch_bounds__(32 * A::W, 1)
    own_kernel(const __grid_constant__ tiling g, const __grid_constant__ dot_cuda_experts j)
{
    extern __shared__ __align__(128) uint8_t smem[];
    bool waited = A::MATS == 2 && !j.early;
    own_tables<A> tables;
    own_list list;
    own_warp<A> warp;

    tables.fetch();
    warp.start(g, smem);
    if (waited) {
        tables.write(smem + g.grid_at);
        before_is_done();
        __syncthreads();
    }
    next_may_start();
    list.read(j);
    for (uint32_t task = blockIdx.x; task < list.n * list.pieces; task += gridDim.x) {
        warp.take(g, j, list, task);
        if (!waited) {
            tables.write(smem + g.grid_at);
            before_is_done();
            waited = true;
        }
        warp.vector(g, j, smem);
        if (A::MATS == 1 || j.early)
            __syncthreads(); /* tables and vector are there */
        warp.rows(g, j);
        if (A::MATS == 1)
            __syncthreads(); /* the vector's place may be used again */
    }
    before_is_done(); /* a launch without items, too, ends after the one before it */
}
