/* An expert's rows times one vector, for types that look values up in tables, by warps that work each for
 * itself (sm_90: the copy engine). The tables of steps.cuh, with a copy for each thread of a warp, leave room for
 * one block on a multiprocessor, and an expert's launch is short: so there is no warp that serves others. A warp
 * takes a few rows at a time, asks for the next ones' bytes itself, and holds the whole vector in registers: a
 * thread 128 neighbouring values, so that two threads' sums are one of 256, and little lies between products and
 * chains. Integers are dot.cuh's. Chains are run by all warps together when rows have been made. */
#pragma once
#include "kernels/dot/steps.cuh"
extern "C" {
#include "kernels/dot/dot_cuda.h"
}

enum {
    OWN_STAGES = 3,  /* at most */
    OWN_BATCH = 16,  /* chunks of a warp between two meetings, at most */
    OWN_HALF = 144,  /* bytes of 128 values of the vector in shared memory */
    OWN_MOST = 4096, /* values of a row, at most */
};

/* x as it is, but nothing that the compiler knows: a constant that has to be in a register would be moved there
 * before each use. */
static __device__ __forceinline__ uint32_t unknown(uint32_t x)
{
    uint32_t lane;

    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return x + lane / 32;
}
/* one thread of a whole warp, of which the compiler knows that it is one */
static __device__ __forceinline__ bool elected(void)
{
    uint32_t is = 0;

#if __CUDA_ARCH__ >= 900
    asm volatile("{\n.reg .pred p;\n"
                 "elect.sync _|p, 0xFFFFFFFF;\n"
                 "selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(is));
#endif
    return is;
}

/* sums of neighbouring sub-blocks times the odd numbers 2k + 1 of a byte's low and high nibble, added up */
struct odd_sum {
    int once, twice;

    /* first: the first sub-block's; both: with the second one's on top */
    __device__ __forceinline__ void add(uint32_t x, int first, int both)
    {
        once += both;
        twice += (int)x * first + (int)(x >> 4) * (both - 17 * first);
    }
    __device__ __forceinline__ int all(void) const
    {
        return once + 2 * twice;
    }
};

/* What a type says: WARPS; FIRST: which place of the table of 512 grid entries number 0 has (the others follow, round
 * the end); what lies there (codes_of what grid_of has) and in the table of 256 bytes' signs (signs_of); where a thread
 * has its values (begin: a half of the block `super`); dot: those of a row times the vector's, scaled. */
template <class T> struct own {
    static constexpr int WARPS = 0;
};
template <> struct own<iq2_xs> {
    static constexpr int WARPS = 16, FIRST = 0;
    uint32_t grid, signs, shift, codes, scales, low;

    using entry = uint64_t;
    static __device__ __forceinline__ const entry *grid_of(void)
    {
        return card::iq2xs_grid;
    }
    static __device__ __forceinline__ uint32_t codes_of(entry v)
    {
        return codes8(v, 0, 4);
    }
    /* the highest of seven signs and their parity, which makes eight; the byte's lowest bit is the grid's */
    static __device__ __forceinline__ uint32_t signs_of(uint32_t byte)
    {
        return bits_to_nibbles(byte >> 1 | (__popc(byte >> 1) & 1) << 7) << 2;
    }

    __device__ __forceinline__ void begin(uint32_t grid_at, uint32_t signs_at, uint32_t super, uint32_t half)
    {
        const uint32_t at = super * iq2_xs::BYTES + 2 + 32 * half;

        grid = grid_at, signs = signs_at;
        shift = kept(8 * (at & 3)), codes = kept(at & ~3u);
        scales = kept(super * iq2_xs::BYTES + 66 + 4 * half);
        low = unknown(0x002B1908u);
    }
    template <bool HIGH>
    __device__ __forceinline__ int eight(uint32_t x, uint32_t places, const uint32_t *q, int sum) const
    {
        uint32_t code = shared_word(HIGH ? high_half_to<WIDE_ENTRY>(places, grid) : half_to<WIDE_ENTRY>(places, grid)) ^
                        shared_word(byte_to<HIGH ? 3 : 1, WIDE_ENTRY>(x, signs));

        sum = __dp4a((int)pick4(low, 0x00D5E7F8u, code), (int)q[0], sum);
        return __dp4a((int)pick4(low, 0x00D5E7F8u, high_half_to<1>(code, 0)), (int)q[1], sum);
    }
    __device__ __forceinline__ int sixteen(uint32_t x, const uint32_t *q, int sum) const
    {
        const uint32_t places = x & 0x01FF01FFu;

        return eight<true>(x, places, q + 2, eight<false>(x, places, q, sum));
    }
    __device__ __forceinline__ int dot(const uint8_t *row, const uint32_t *q) const
    {
        const uint32_t *x = (const uint32_t *)(row + codes);
        odd_sum sum = {};
        uint32_t word = x[0];

#pragma unroll
        for (int k = 0; k < 4; k++) {
            const uint32_t next = x[2 * k + 1], last = x[2 * k + 2];
            const int first = sixteen(__funnelshift_r(word, next, shift), q + 8 * k, 0);

            sum.add(row[scales + k], first, sixteen(__funnelshift_r(next, last, shift), q + 8 * k + 4, first));
            word = last;
        }
        return sum.all();
    }
};
template <> struct own<iq3_s> {
    /* with ones as its high byte a place's number is negative */
    static constexpr int WARPS = 12, FIRST = 256;
    uint32_t grid, signs, shift, codes, sign_codes, highs, scales;

    using entry = uint32_t;
    static __device__ __forceinline__ const entry *grid_of(void)
    {
        return card::iq3s_grid;
    }
    static __device__ __forceinline__ uint32_t codes_of(entry v)
    {
        return v;
    }
    /* those of the low four bits are the highest bits of four bytes, the others lie below them */
    static __device__ __forceinline__ uint32_t signs_of(uint32_t byte)
    {
        return (sign_bytes<false>(byte) & 0x80808080u) | (sign_bytes<true>(byte) & 0x40404040u);
    }

    __device__ __forceinline__ void begin(uint32_t grid_at, uint32_t signs_at, uint32_t super, uint32_t half)
    {
        const uint32_t b = super * iq3_s::BYTES, at = b + 2 + 32 * half;

        grid = grid_at + FIRST * WIDE_ENTRY, signs = signs_at;
        shift = kept(8 * (at & 3)), codes = kept(at & ~3u);
        /* as far from whole words as the codes */
        highs = kept((b + 66 + 4 * half) & ~3u);
        sign_codes = kept((b + 74 + 16 * half) & ~3u);
        scales = kept(b + 106 + 2 * half);
    }
    /* bytes of ones where byte K of x has ones */
    template <int K> __device__ __forceinline__ uint2 masks(uint32_t x) const
    {
        const uint32_t bits = shared_word(byte_to<K, WIDE_ENTRY>(x, signs));

        return make_uint2(pick4(bits, 0, 0xBA98), pick4(2 * bits, 0, 0xBA98)); /* each byte's highest bit, eight times */
    }
    template <bool HIGH> static __device__ __forceinline__ uint32_t place(uint32_t two, uint32_t base)
    {
        uint32_t at; /* halves with a sign, times a byte without */

        asm("dp2a.lo.s32.u32 %0, %1, %2, %3;" : "=r"(at) : "r"(two), "r"(WIDE_ENTRY << (HIGH ? 8 : 0)), "r"(base));
        return at;
    }
    /* eight values, by the low bytes of their two places and masks of the ninth bits, of which L % 2 says which */
    template <int L>
    __device__ __forceinline__ int eight(uint32_t x, uint32_t high, uint32_t s, const uint32_t *q, int sum) const
    {
        const uint32_t two = pick4(x, high, L % 2 ? 0x7362 : 0x5140);
        const uint2 m = masks<L>(s);

        /* the grid's bytes are odd: -x = ~x | 1 */
        sum = __dp4a((int)((shared_word(place<false>(two, grid)) ^ m.x) | 0x01010101u), (int)q[0], sum);
        return __dp4a((int)((shared_word(place<true>(two, grid)) ^ m.y) | 0x01010101u), (int)q[1], sum);
    }
    /* sub-block K of four; high: a byte each */
    template <int K>
    __device__ __forceinline__ int part(const uint32_t *x, uint32_t high, const uint32_t *s, const uint32_t *q, int sum) const
    {
        const uint32_t x0 = __funnelshift_r(x[2 * K], x[2 * K + 1], shift);
        const uint32_t x1 = __funnelshift_r(x[2 * K + 1], x[2 * K + 2], shift);
        const uint32_t bits = __funnelshift_r(s[K], s[K + 1], shift);
        const uint2 h = masks<K>(high);

        sum = eight<0>(x0, h.x, bits, q + 8 * K, sum);
        sum = eight<1>(x0, h.x, bits, q + 8 * K + 2, sum);
        sum = eight<2>(x1, h.y, bits, q + 8 * K + 4, sum);
        return eight<3>(x1, h.y, bits, q + 8 * K + 6, sum);
    }
    __device__ __forceinline__ int dot(const uint8_t *row, const uint32_t *q) const
    {
        const uint32_t *x = (const uint32_t *)(row + codes), *s = (const uint32_t *)(row + sign_codes);
        const uint32_t *h = (const uint32_t *)(row + highs), high = __funnelshift_r(h[0], h[1], shift);
        odd_sum sum = {};
        int first;

        first = part<0>(x, high, s, q, 0);
        sum.add(row[scales], first, part<1>(x, high, s, q, first));
        first = part<2>(x, high, s, q, 0);
        sum.add(row[scales + 1], first, part<3>(x, high, s, q, first));
        return sum.all();
    }
};

/* R rows at a time, of up to OWN_MOST / R values, of MATS matrices, by W warps */
template <class T_, int R_, int MATS_, int W_> struct own_shape {
    using T = T_;
    static constexpr int R = R_, MATS = MATS_, W = W_;
    static constexpr int LANES = 32 / R;                 /* threads of a row */
    static constexpr int CHUNK = 2 * R;                  /* rows of a stage, counted over both matrices */
    static constexpr int PIECES = MATS == 2 ? 2 : R;     /* of a stage, neighbouring rows each */
    static constexpr int FILLS = (512 + 32 * W - 1) / (32 * W); /* grid entries of a thread */
    /* warps that ask for the first rows of all, while the others fetch the vector */
    static constexpr int LOWER = (W + 1) / 2;
};

/* The tables: fetched early, written when there is time. */
template <class A> struct own_tables {
    using O = own<typename A::T>;
    typename O::entry v[A::FILLS];

    __device__ __forceinline__ void fetch(void)
    {
#pragma unroll
        for (int i = 0; i < A::FILLS; i++)
            v[i] = O::grid_of()[min((int)threadIdx.x + i * 32 * A::W, 511)];
    }
    __device__ __forceinline__ void write(uint8_t *grid, uint8_t *signs) const
    {
#pragma unroll
        for (int i = 0; i < A::FILLS; i++) {
            const int at = threadIdx.x + i * 32 * A::W;

            if (at < 512)
                wide_words(grid, (at + O::FIRST) % 512, O::codes_of(v[i]));
        }
        if (threadIdx.x < 256)
            wide_words(signs, threadIdx.x, O::signs_of(threadIdx.x));
    }
};

/* The items' list: which expert an item needs is read together with how many items there are, and used later. */
struct own_list {
    uint32_t n, slot, tok, row; /* the latter three: of the item whose number is the lane's */

    __device__ __forceinline__ void read(const dot_cuda_experts &j)
    {
        const expert_item &item = j.items[min(threadIdx.x & 31, j.most - 1)];

        slot = item.slot, tok = item.tok[0], row = item.row[0];
        n = *j.n_items;
    }
};

/* What a warp does of a launch's items of one vector. A chunk is two units of R rows: of one matrix each, or the first
 * and the second rows of R pieces. */
template <class A> struct own_warp {
    using T = typename A::T;
    uint8_t *stages;
    float2 *parts; /* of all warps */
    uint32_t bars, in, out, parity;
    own<T> o;
    /* a piece of an item's rows */
    const uint8_t *w[2], *vec;
    float scale0, scale1;
    uint32_t begin, end, n_chunks, to_row, tok;
    uint32_t asked, ask_at; /* what is asked for next: a chunk, and where its rows lie in a matrix */

    /* which of a unit's R rows this thread takes part in, and which 256 values */
    static __device__ __forceinline__ uint32_t my_row(void)
    {
        return (threadIdx.x & 31) / A::LANES;
    }
    static __device__ __forceinline__ uint32_t my_super(void)
    {
        return (threadIdx.x & (A::LANES - 1)) / 2;
    }
    /* The barriers are there for this warp; for others when all have met. Before any copy. */
    __device__ __forceinline__ void start(const tiling &g, uint8_t *smem)
    {
        const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;

        stages = smem + g.stage_at + warp * g.n_stages * g.stage_bytes;
        parts = (float2 *)(smem + g.part_at);
        bars = (uint32_t)__cvta_generic_to_shared(smem + g.bars_at) + warp * 8 * OWN_STAGES;
        in = out = parity = 0;
        if (lane == 0 && (A::MATS == 1 || warp < A::LOWER)) {
            for (int i = 0; i < OWN_STAGES; i++) {
                bar_init(bars + 8 * i, 1);
                if (A::MATS == 2 && warp + A::LOWER < A::W)
                    bar_init(bars + 8 * (i + OWN_STAGES * A::LOWER), 1);
            }
            bars_ready();
        }
        __syncwarp();
        /* a row may have less than the threads take: the others multiply what comes first, for nobody */
        o.begin(table_copy(smem + g.grid_at, lane, 4, T::GRID_COPIES), table_copy(smem + g.signs_at, lane, 4, WIDE_ENTRY / 4),
                my_super() < g.n_super ? my_super() : 0, lane & 1);
    }
    /* Asks for a chunk, a copy for each piece: this warp's next one, or that of the warp `ahead` warps on. */
    __device__ __forceinline__ void ask_of(const tiling &g, const dot_cuda_experts &j, uint32_t ahead)
    {
        constexpr uint32_t EACH = A::CHUNK / A::PIECES; /* rows */
        const uint32_t row_bytes = (uint32_t)j.row_bytes, chunk = asked + ahead;

        if (chunk < n_chunks && elected()) {
            const uint32_t n = min((uint32_t)A::CHUNK, end - begin - chunk * A::CHUNK);
            const uint32_t first = ask_at + ahead * (A::CHUNK / A::MATS) * row_bytes;
            uint8_t *to = stages + (in + ahead * g.n_stages) * g.stage_bytes;
            const uint32_t bar = bars + 8 * (in + ahead * OWN_STAGES);
            uint32_t at[A::PIECES], shift[A::PIECES], bytes[A::PIECES], all = 0;

#pragma unroll
            for (uint32_t p = 0; p < A::PIECES; p++) {
                const uint32_t left = A::MATS == 2 ? n / 2 : n < p * EACH ? 0 : n - p * EACH; /* from this piece on */

                at[p] = A::MATS == 2 ? first : first + p * EACH * row_bytes;
                shift[p] = at[p] & 15; /* a matrix begins with sixteen bytes */
                bytes[p] = left ? (shift[p] + min(left, EACH) * row_bytes + 15) & ~15u : 0;
                all += bytes[p];
            }
            bar_expect(bar, all);
#pragma unroll
            for (uint32_t p = 0; p < A::PIECES; p++)
                if (A::MATS == 2 || p == 0 || bytes[p])
                    bar_copy(to + p * g.piece_bytes, w[A::MATS == 2 ? p : 0] + (at[p] - shift[p]), bytes[p], bar);
        }
    }
    __device__ __forceinline__ void asked_for(const tiling &g, const dot_cuda_experts &j)
    {
        asked += A::W;
        ask_at += A::W * A::CHUNK / A::MATS * (uint32_t)j.row_bytes;
        in = in + 1 == g.n_stages ? 0 : in + 1;
    }
    __device__ __forceinline__ void ask(const tiling &g, const dot_cuda_experts &j)
    {
        ask_of(g, j, 0);
        asked_for(g, j);
    }
    /* Task number `task`, and its first bytes. The next ones are asked for when these are there: all begin at once,
     * and none should wait for others' second. */
    __device__ __forceinline__ void take(const tiling &g, const dot_cuda_experts &j, const own_list &l, uint32_t pieces,
                                         uint32_t task)
    {
        const uint32_t at = task / pieces, piece = task % pieces;
        const bool here = at < 32, first = task == blockIdx.x;

        to_row = here ? __shfl_sync(~0u, l.row, at & 31) : j.items[at].row[0];
        tok = here ? __shfl_sync(~0u, l.tok, at & 31) : j.items[at].tok[0];
        const expert_slot &slot = j.slots[here ? __shfl_sync(~0u, l.slot, at & 31) : j.items[at].slot];
        w[0] = (const uint8_t *)slot.w[A::MATS == 2 ? 0 : j.which];
        w[1] = (const uint8_t *)slot.w[1];
        scale0 = slot.scale[A::MATS == 2 ? 0 : j.which], scale1 = slot.scale[1];
        /* divided while that is on its way */
        const uint32_t each = j.n_rows / pieces, more = j.n_rows % pieces;
        begin = A::MATS * (each * piece + min(piece, more));
        end = begin + A::MATS * (each + (piece < more));
        n_chunks = (end - begin + A::CHUNK - 1) / A::CHUNK;
        asked = threadIdx.x / 32;
        ask_at = (begin + asked * A::CHUNK) / A::MATS * (uint32_t)j.row_bytes;
        in = out;
        if (A::MATS == 1 || !first || threadIdx.x / 32 < A::LOWER) {
            ask_of(g, j, 0);
            if (A::MATS == 2 && first && threadIdx.x / 32 + A::LOWER < A::W)
                ask_of(g, j, A::LOWER);
        }
        asked_for(g, j);
    }
    /* The vector to shared memory, for all warps, who then meet: every 128 bytes are sixteen more, so that threads
     * who read their own begin in different banks. Behind them its factors. */
    __device__ __forceinline__ void vector(const tiling &g, const dot_cuda_experts &j, uint8_t *smem)
    {
        float *d = (float *)(smem + g.vec_at + 2 * OWN_HALF * g.n_super);

        vec = smem + g.vec_at;
        if (A::MATS == 2) {
            const uint8_t *from = j.acts + j.a_stride * tok;
            const uint32_t threads = 32 * (A::W - A::LOWER);

            if (threadIdx.x < 32 * A::LOWER)
                return;
            for (uint32_t i = threadIdx.x - 32 * A::LOWER; i < 16 * g.n_super; i += threads)
                *(uint4 *)(smem + g.vec_at + OWN_HALF * (i / 8) + i % 8 * 16) = ((const uint4 *)from)[i];
            for (uint32_t i = threadIdx.x - 32 * A::LOWER; i < g.n_super; i += threads)
                d[i] = ((const float *)(from + cu_act_d_at(j.n_cols)))[i];
        } else {
            for (uint32_t u = threadIdx.x / 32; u < g.n_super; u += A::W) {
                uint8_t *to = smem + g.vec_at + 2 * OWN_HALF * u;

                cu_quantise_256_to(j.hidden + to_row * j.ld_hidden + 256 * u, (uint32_t *)to, (uint32_t *)(to + OWN_HALF),
                                   NULL, d + u);
            }
        }
    }
    /* the chains of n rows from the piece's number `first` on */
    __device__ __forceinline__ void chains(const tiling &g, const dot_cuda_experts &j, uint32_t first, uint32_t n)
    {
        floats<T, 1, A::MATS>(g, parts, n, threadIdx.x, 32 * A::W, [&](uint32_t r, uint32_t, float y, float y2) {
            if (scale0 != 1.0f)
                y = cu_canon(__fmul_rn(y, scale0));
            if (A::MATS == 2) {
                if (scale1 != 1.0f)
                    y2 = cu_canon(__fmul_rn(y2, scale1));
                y = cu_swiglu(y, y2, j.limit);
            }
            j.y[to_row * j.ldy + (begin + first + r) / A::MATS] = y;
        });
    }
    /* The piece's rows times the vector; all warps. They have not met since the last chains. */
    __device__ __forceinline__ void rows(const tiling &g, const dot_cuda_experts &j)
    {
        constexpr int CHUNK = A::CHUNK;
        const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32, row_bytes = (uint32_t)j.row_bytes;
        const bool there = my_super() < g.n_super, second = lane & 1;
        const uint32_t super = there ? my_super() : 0;
        /* Where this thread's row of the first unit lies, how far away that of the second one, and that of the unit
         * whose sum it ends up with; which row of a chunk that is. */
        const uint32_t at = kept(my_row() * (A::MATS == 2 ? row_bytes : g.piece_bytes));
        const uint32_t to_unit = A::MATS == 2 ? g.piece_bytes : row_bytes;
        const uint32_t own_at = kept(at + (second ? to_unit : 0) + super * T::BYTES), row = 2 * my_row() + second;
        const uint32_t mine = there ? row : ~0u, each = g.batch * A::W; /* chunks between two meetings */
        const float d = there ? ((const float *)(vec + 2 * OWN_HALF * g.n_super))[super] : 0;
        float2 *const to0 = parts + kept((warp * CHUNK + row) * g.part_row + super);
        /* how far from sixteen bytes the thread's piece of a chunk begins */
        uint32_t shift = ((begin + warp * CHUNK) / A::MATS + (A::MATS == 2 ? 0 : 2 * my_row())) * row_bytes;
        uint32_t q[32], k = warp;

#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint4 v = ((const uint4 *)(vec + OWN_HALF * (2 * super + second)))[i];

            q[4 * i] = v.x, q[4 * i + 1] = v.y, q[4 * i + 2] = v.z, q[4 * i + 3] = v.w;
        }
        for (uint32_t met = 0; met < n_chunks; met += each) {
            const uint32_t upto = min(n_chunks, met + each);
            float2 *to = to0;

            if (met)
                __syncthreads(); /* the last chains have been run */
            for (; k < upto; k += A::W) {
                const uint8_t *stage = stages + out * g.stage_bytes + (shift & 15);

                bar_wait(bars + 8 * out, parity);
                if (k == warp && g.n_stages > 2)
                    ask(g, j);
                ask(g, j);
                /* rows that are not there: whatever lies in their places, for nobody */
                const int a = o.dot(stage + at, q), b = o.dot(stage + at + to_unit, q);
                const int x = (second ? b : a) + __shfl_xor_sync(~0u, second ? a : b, 1);

                if (mine < end - begin - k * CHUNK)
                    *to = make_float2(__fmul_rn(T::factor(stage + own_at, 0, 0), d), __int2float_rn(x));
                __syncwarp();
                to += A::W * CHUNK * g.part_row;
                shift += A::W * CHUNK / A::MATS * row_bytes;
                if (++out == g.n_stages)
                    out = 0, parity ^= 1;
            }
            __syncthreads();
            chains(g, j, met * CHUNK, min(end - begin, upto * CHUNK) - met * CHUNK);
        }
    }
};

/* As items_kernel (form.cuh), for items of one vector. */
template <class A>
__global__ void __launch_bounds__(32 * A::W, 1)
    own_kernel(const __grid_constant__ tiling g, const __grid_constant__ dot_cuda_experts j)
{
    extern __shared__ __align__(128) uint8_t smem[];
    const bool later = A::MATS == 2 && !j.early; /* the list may not be read yet */
    bool waited = later;
    own_tables<A> tables;
    own_list list;
    own_warp<A> warp;

    if (!later)
        list.read(j);
    tables.fetch();
    warp.start(g, smem);
    if (later) {
        tables.write(smem + g.grid_at, smem + g.signs_at);
        before_is_done();
        __syncthreads();
        list.read(j);
    }
    next_may_start();
    const uint32_t pieces = list.n ? pieces_of(list.n, j.n_rows) : 0, n_tasks = list.n * pieces;
    for (uint32_t task = blockIdx.x; task < n_tasks; task += gridDim.x) {
        warp.take(g, j, list, pieces, task);
        if (!waited) {
            tables.write(smem + g.grid_at, smem + g.signs_at);
            before_is_done();
            waited = true;
        }
        warp.vector(g, j, smem);
        __syncthreads(); /* tables and vector are there */
        warp.rows(g, j);
        if (task + gridDim.x < n_tasks)
            __syncthreads(); /* places of the vector and of parts may be used again */
    }
    before_is_done(); /* a launch without items, too, ends after the one before it */
}
