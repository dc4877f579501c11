/* hopper.cuh's products for types of units of 256 whose integers times their scales can be cut into two
 * signed bytes: scale = low + 8 high, and w * low and w * high lie in a byte each. Then the tensor cores
 * sum a whole unit, S = sum of (w low) q + 8 * sum of (w high) q, and a result takes one multiply-add a
 * unit in place of one a sub-block. Twice the products of a matrix unit that is idle for the most part.
 * The high bytes first; their sums times eight are what the low ones are added to, so that there is room for a second
 * set of integers: one is summed while the other one goes to floats.
 *
 * Makers have the bytes of blocks in registers, two parts a thread; they meet only at the barriers of a
 * stage. A block goes through tiles of results, as many blocks as multiprocessors. */
#pragma once

/* scale, weight: at most 7 + 8 * 7, 15 */
template <class T> constexpr bool splits = false;
template <> constexpr bool splits<q4_k> = true;

template <class T> struct split_shape {
    static constexpr int UNITS = 1;
    /* of a stage; tiles for the matrix unit begin at multiples of 1024 */
    static constexpr int LOW_AT = 0;
    static constexpr int HIGH_AT = LOW_AT + HOPPER_ROWS * 256;
    static constexpr int B_AT = HIGH_AT + HOPPER_ROWS * 256;
    static constexpr int D_AT = B_AT + HOPPER_VECS * 256;
    static constexpr int M_AT = D_AT + HOPPER_ROWS * 4;
    static constexpr int DV_AT = M_AT + HOPPER_ROWS * 4;
    static constexpr int MIN_AT = DV_AT + DV_UNIT * 4;
    static constexpr int SUM_AT = MIN_AT + HOPPER_ROWS * 16;
    static constexpr int STAGE = (SUM_AT + HOPPER_VECS * 32 + 1023) / 1024 * 1024;
    static constexpr int BYTES = HOPPER_STAGES * STAGE + 1024; /* to a multiple of 1024 */
    static_assert(T::BYTES % 16 == 0 && T::M < 0 && T::SUB == 32, "");
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- makers ---- */

/* a vector's sums of a piece: eight of the sixteen (threadIdx.x % 2), asked for one piece ahead */
static __device__ __forceinline__ uint4 ask_sums(uint32_t n_cols, const uint8_t *mine, uint32_t u)
{
    return *(const uint4 *)(mine + cu_act_sum_at(n_cols, 256) + 32 * u + 16 * (threadIdx.x % 2));
}
/* a vector's factor, likewise; by the first of its two threads */
static __device__ __forceinline__ float ask_factor(uint32_t n_cols, const uint8_t *mine, uint32_t u)
{
    return threadIdx.x % 2 ? 0 : *((const float *)(mine + cu_act_d_at(n_cols)) + u);
}
/* ... as two signed bytes each, s = 128 h + l: sixteen bytes a vector of h, then of l, side by side */
template <class S> static __device__ __forceinline__ void make_sums(uint8_t *stage, uint4 x, float d)
{
    const uint32_t two[4] = {x.x, x.y, x.z, x.w};
    uint32_t h[2], l[2], hs[4], ls[4];

#pragma unroll
    for (int i = 0; i < 4; i++) { /* s + 64 + 2048: sums of sixteen are at least -2032 */
        uint32_t y = (two[i] ^ 0x80008000u) - 0x77C077C0u;
        hs[i] = y >> 7 & 0x003F003Fu;
        ls[i] = y & 0x007F007Fu;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        h[i] = minus4(pick4(hs[2 * i], hs[2 * i + 1], 0x6420), 16);
        l[i] = minus4(pick4(ls[2 * i], ls[2 * i + 1], 0x6420), 64);
    }
    uint8_t *to = stage + S::SUM_AT + 8 * threadIdx.x;
    *(uint2 *)to = make_uint2(h[0], h[1]);
    *(uint2 *)(to + HOPPER_VECS * 16) = make_uint2(l[0], l[1]);
    if (threadIdx.x % 2 == 0)
        *((float *)(stage + S::DV_AT) + dv_at(threadIdx.x / 2)) = d;
}

/* Parts p and p + 4 of a row's 256 values as they lie in the file: the block's first 16 bytes, and theirs. */
struct raw_parts {
    uint4 head, x[2];
};
static __device__ __forceinline__ raw_parts ask_parts(const uint8_t *block, int p)
{
    raw_parts r;

    r.head = __ldg((const uint4 *)block);
    r.x[0] = __ldg((const uint4 *)(block + 16 + 16 * p));
    r.x[1] = __ldg((const uint4 *)(block + 80 + 16 * p));
    return r;
}
static __device__ __forceinline__ uint4 times4(const uint32_t *w, uint32_t k)
{
    return make_uint4(w[0] * k, w[1] * k, w[2] * k, w[3] * k);
}
template <class T>
static __device__ __forceinline__ void make_split(uint8_t *stage, int r, int p0, const raw_parts &raw)
{
    using S = split_shape<T>;
    const uint32_t head[4] = {raw.head.x, raw.head.y, raw.head.z, raw.head.w};

#pragma unroll
    for (int k = 0; k < 2; k++) {
        const int p = p0 + 4 * k;
        const uint32_t x[4] = {raw.x[k].x, raw.x[k].y, raw.x[k].z, raw.x[k].w};
        opened o;

        T::open_words(head, x, p, &o);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t to = in_tile(HOPPER_ROWS, r, T::at(p, 4 * h) / 16);
            const uint32_t scale = (uint32_t)o.scale[h];

            *(uint4 *)(stage + S::LOW_AT + to) = times4(o.w + 4 * h, scale & 7);
            *(uint4 *)(stage + S::HIGH_AT + to) = times4(o.w + 4 * h, scale >> 3);
            (stage + S::MIN_AT)[16 * r + T::at(p, 4 * h) / 16] = (uint8_t)(o.mins >> 8 * h);
        }
    }
    if (p0 == 0)
        *((float *)(stage + S::D_AT) + r) = cu_f16((uint16_t)raw.head.x);
    if (p0 == 1)
        *((float *)(stage + S::M_AT) + r) = cu_f16((uint16_t)(raw.head.x >> 16));
}
/* The pieces of tile after tile, and in each of matrix after matrix: those of the next one are made while the
 * multipliers write results. */
template <class T, class JOB>
static __device__ __forceinline__ void make_split_pieces(const JOB &j, uint8_t *smem, uint32_t full,
                                                         uint32_t empty, uint32_t n_tiles)
{
    using S = split_shape<T>;
    /* eight neighbouring threads have four parts of two rows that are two apart: so they store to
     * different banks */
    const int lane = threadIdx.x % 32, p = lane % 4;
    const int r = threadIdx.x / 32 * 8 + lane / 4 % 2 * 2 + lane / 8 % 2 + lane / 16 * 4;
    const uint32_t n_units = j.n_cols / 256;
    const uint32_t n_pieces = ((n_tiles - 1 - blockIdx.x) / gridDim.x + 1) * JOB::MATS * n_units;
    const uint8_t *block, *mine;
    uint32_t of[8], u = 0, mat = 0, tile = blockIdx.x, s = 0, n = 0; /* n: of[] that are vectors */
    uint32_t parity = 1; /* of the next stage's last use */

    auto aim = [&] {
        block = j.row(tile, mat, r);
        mine = j.acts + (size_t)j.begin(tile, threadIdx.x / 2) * 16;
        n = j.few(tile) ? HOPPER_VECS / 32 : HOPPER_VECS / 16;
#pragma unroll
        for (int k = 0; k < 8; k++)
            of[k] = j.begin(tile, threadIdx.x / 16 + 16 * k);
    };
    aim();
    raw_parts raw = ask_parts(block, p);
    uint4 sums = ask_sums(j.n_cols, mine, 0);
    float factor = ask_factor(j.n_cols, mine, 0);
    ask_vectors<S, true>(j, of, mine, smem, 0, n);
    copies_close();
#pragma unroll 1
    for (uint32_t i = 0; i < n_pieces; i++) {
        uint8_t *stage = smem + s * S::STAGE;
        const uint32_t next = s + 1 == HOPPER_STAGES ? 0 : s + 1;

        if (i + 1 < n_pieces) {
            if (++u == n_units) {
                u = 0;
                if (++mat == JOB::MATS)
                    mat = 0, tile += gridDim.x;
                aim();
            }
            if (next == 0)
                parity ^= 1;
            if (i + 1 >= HOPPER_STAGES)
                bar_wait(empty + 8 * next, parity);
            ask_vectors<S, true>(j, of, mine, smem + next * S::STAGE, u, n);
        }
        copies_close();
        make_sums<S>(stage, sums, factor);
        sums = ask_sums(j.n_cols, mine, u);
        factor = ask_factor(j.n_cols, mine, u);
        make_split<T>(stage, r, p, raw);
        raw = ask_parts(block + u * T::BYTES, p);
        copies_wait<1>(); /* this piece's vectors */
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* wgmma reads it */
        bar_arrive(full + 8 * s);
        s = next;
    }
    copies_wait<0>();
}

/* ---- multipliers: as hopper.cuh's ---- */

/* all that was asked for is done, c may be read from here on */
static __device__ __forceinline__ void wgmma_wait_all(int c[32])
{
    asm volatile("wgmma.wait_group.sync.aligned 0;");
#pragma unroll
    for (int i = 0; i < 32; i++)
        asm volatile("" : "+r"(c[i]));
}

/* c = (ADD: c +) A x B over 32 values; 64 rows, 64 vectors */
template <int ADD>
static __device__ __forceinline__ void wgmma64(int c[32], uint64_t a, uint64_t b)
{
    asm volatile("{\n.reg .pred add;\nsetp.ne.u32 add, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
                 "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, add;\n}"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]), "+r"(c[4]), "+r"(c[5]),
                   "+r"(c[6]), "+r"(c[7]), "+r"(c[8]), "+r"(c[9]), "+r"(c[10]), "+r"(c[11]),
                   "+r"(c[12]), "+r"(c[13]), "+r"(c[14]), "+r"(c[15]), "+r"(c[16]), "+r"(c[17]),
                   "+r"(c[18]), "+r"(c[19]), "+r"(c[20]), "+r"(c[21]), "+r"(c[22]), "+r"(c[23]),
                   "+r"(c[24]), "+r"(c[25]), "+r"(c[26]), "+r"(c[27]), "+r"(c[28]), "+r"(c[29]),
                   "+r"(c[30]), "+r"(c[31])
                 : "l"(a), "l"(b), "n"(ADD));
}
/* [4 t + c]: vectors 8 t + 2 (lane % 4) + c % 2, rows lane / 4 + 8 (c / 2) of the warp's sixteen */
struct split_sums {
    float p[32], q[32];
};
/* what of a piece is left to do when its stage is given back: factors of rows and vectors */
struct split_left {
    float d0, d1;
    float2 v[8];
};

/* the eight products of a piece: c = (ADD: c +) A x B */
template <bool ADD> static __device__ __forceinline__ void ask_sum(int c[32], uint64_t a, uint64_t b)
{
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const uint64_t of_a = k / 4 * (HOPPER_ROWS * 128 >> 4) + k % 4 * 2;
        const uint64_t of_b = k / 4 * (HOPPER_VECS * 128 >> 4) + k % 4 * 2;

        if (k || ADD)
            wgmma64<1>(c, a + of_a, b + of_b);
        else
            wgmma64<0>(c, a + of_a, b + of_b);
    }
    wgmma_commit();
}
/* P of a piece whose S are in c */
static __device__ __forceinline__ void add_piece(split_sums &out, const split_left &x, const int c[32])
{
#pragma unroll
    for (int t = 0; t < 8; t++)
        add_tile(out.p + 4 * t, x.d0, x.d1, x.v[t].x, x.v[t].y, c + 4 * t);
}
/* A piece: its S to c. While the tensor cores sum the high bytes, the piece before goes to P (last, x; not FIRST);
 * while they sum the low ones, T goes to Q. bar_wait passes at once: it is a loop, across which the compiler moves
 * nothing. */
template <class T>
static __device__ __forceinline__ void multiply_split(const uint8_t *stage, int group, int warp, int lane,
                                                      split_sums &out, int c[32], const int last[32], split_left &x,
                                                      bool first, uint32_t bar, uint32_t parity)
{
    using S = split_shape<T>;
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(stage);
    const uint64_t b = tile_at(at + S::B_AT + group * 64 * 128);
    const int row = 16 * warp + lane / 4;
    const float *d = (const float *)(stage + S::D_AT) + row, *m = (const float *)(stage + S::M_AT) + row;
    const float *dv = (const float *)(stage + S::DV_AT) + dv_at(64 * group + lane % 4 * 2);
    uint32_t am[2];

    ask_sum<false>(c, tile_at(at + S::HIGH_AT), b);
    bar_wait(bar, parity);
    if (!first)
        add_piece(out, x, last);
#pragma unroll
    for (int i = 0; i < 32; i++)
        asm volatile("" : "+f"(out.p[i]));
    bar_wait(bar, parity);
    const float m0 = m[0], m1 = m[8];
    x.d0 = d[0], x.d1 = d[8];
#pragma unroll
    for (int t = 0; t < 8; t++)
        x.v[t] = *(const float2 *)(dv + 2 * t);
    load_matrices2(stage + S::MIN_AT + (16 * warp + lane % 16) * 16, am);
    wgmma_wait_all(c);
#pragma unroll
    for (int i = 0; i < 32; i++)
        c[i] *= 8;
    ask_sum<true>(c, tile_at(at + S::LOW_AT), b);
    bar_wait(bar, parity);
#pragma unroll
    for (int t = 0; t < 8; t++) {
        uint32_t bs[2]; /* h, l */
        int h[4], l[4];

        load_matrices2(stage + S::SUM_AT + (64 * group + 8 * t + lane % 8) * 16 + lane / 8 % 2 * HOPPER_VECS * 16, bs);
        mma16(h, am[0], am[1], bs[0], 0);
        mma16(l, am[0], am[1], bs[1], 0);
#pragma unroll
        for (int i = 0; i < 4; i++)
            l[i] += 128 * h[i];
        add_tile(out.q + 4 * t, m0, m1, x.v[t].x, x.v[t].y, l);
    }
#pragma unroll
    for (int i = 0; i < 32; i++)
        asm volatile("" : "+f"(out.q[i]));
    bar_wait(bar, parity);
    wgmma_wait_all(c);
}
#endif

/* JOB: MATS matrices of a tile, one after the other; tiles(), few(tile): has it no more than half of the vectors;
 * row(tile, matrix, r): where row r of a tile's
 * 64 begins; begin(tile, v): where vector v of its 128 begins, in sixteen bytes after `acts`; n_cols;
 * put(tile, matrix, row, vector, result): a thread's results, as put_results. */
template <class T, class JOB>
__global__ void __launch_bounds__(HOPPER_THREADS, 1) split_kernel(const __grid_constant__ JOB j)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using S = split_shape<T>;
    __shared__ __align__(8) uint64_t bars[2 * HOPPER_STAGES]; /* static: as hopper_kernel's */
    extern __shared__ __align__(128) uint8_t dynamic[];
    uint8_t *smem = dynamic + (-(uint32_t)__cvta_generic_to_shared(dynamic) & 1023);
    const uint32_t full = (uint32_t)__cvta_generic_to_shared(bars);
    const uint32_t empty = full + 8 * HOPPER_STAGES;

    before_is_done();
    const uint32_t n_tiles = j.tiles();
    if (blockIdx.x >= n_tiles)
        return;
    if (threadIdx.x == 0)
        stage_bars(full, empty);
    __syncthreads();
    if (threadIdx.x < MAKERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
        make_split_pieces<T>(j, smem, full, empty, n_tiles);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 184;");
        const int group = __shfl_sync(~0u, (threadIdx.x - MAKERS) / 128, 0); /* one of a warp's, so that the compiler sees it */
        const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        const uint32_t n_units = j.n_cols / 256;
        uint32_t parity = 0, s = 0;

#pragma unroll 1
        for (uint32_t tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
            if (group && j.few(tile)) { /* none of its vectors is there */
                for (uint32_t i = 0; i < JOB::MATS * n_units; i++) {
                    bar_wait(full + 8 * s, parity);
                    bar_arrive(empty + 8 * s);
                    if (++s == HOPPER_STAGES)
                        s = 0, parity ^= 1;
                }
                continue;
            }
#pragma unroll 1
            for (int mat = 0; mat < JOB::MATS; mat++) {
                split_sums sum = {};
                split_left left;
                int c[2][32];
                auto piece = [&](uint32_t u, int now) {
                    bar_wait(full + 8 * s, parity);
                    multiply_split<T>(smem + s * S::STAGE, group, warp, lane, sum, c[now], c[!now], left, u == 0,
                                      full + 8 * s, parity);
                    bar_arrive(empty + 8 * s);
                    if (++s == HOPPER_STAGES)
                        s = 0, parity ^= 1;
                };

#pragma unroll 1
                for (uint32_t u = 0; u < n_units; u += 2) {
                    piece(u, 0);
                    if (u + 1 < n_units)
                        piece(u + 1, 1);
                }
                if (n_units % 2)
                    add_piece(sum, left, c[0]);
                else
                    add_piece(sum, left, c[1]);
                j.put(tile, mat, 16 * warp + lane / 4, 64 * group + lane % 4 * 2,
                      [&](int i) { return __fsub_rn(sum.p[i], sum.q[i]); });
            }
        }
    }
#else
    (void)j;
#endif
}

/* ---- one matrix and many vectors ---- */

/* tiles of the same vectors follow each other */
struct split_rows : dot_cuda_rows {
    enum { MATS = 1 };

    __device__ __forceinline__ uint32_t wide(void) const
    {
        return (n_rows + HOPPER_ROWS - 1) / HOPPER_ROWS;
    }
    __device__ __forceinline__ uint32_t tiles(void) const
    {
        return wide() * ((n_tok + HOPPER_VECS - 1) / HOPPER_VECS);
    }
    __device__ __forceinline__ const uint8_t *row(uint32_t tile, uint32_t, uint32_t r) const
    {
        return w + (size_t)min(tile % wide() * HOPPER_ROWS + r, n_rows - 1) * row_bytes;
    }
    __device__ __forceinline__ bool few(uint32_t tile) const
    {
        return n_tok - tile / wide() * HOPPER_VECS <= HOPPER_VECS / 2;
    }
    __device__ __forceinline__ uint32_t begin(uint32_t tile, uint32_t v) const
    {
        return begin_of(*this, tile / wide() * HOPPER_VECS + v);
    }
    template <class Y>
    __device__ __forceinline__ void put(uint32_t tile, int, uint32_t r, uint32_t v, Y result) const
    {
        put_results(*this, tile % wide() * HOPPER_ROWS + r, tile / wide() * HOPPER_VECS + v, result);
    }
};

/* ---- launches of both ---- */

template <class T> constexpr bool on_hopper = splits<T> || hopper_small<T>;

template <class T> static constexpr auto hopper_form(void)
{
    if constexpr (splits<T>)
        return split_kernel<T, split_rows>;
    else
        return hopper_kernel<T>;
}
template <class T> constexpr int hopper_bytes(void)
{
    if constexpr (splits<T>)
        return split_shape<T>::BYTES;
    else
        return hopper_shape<T>::BYTES;
}
/* whether this build's code for this card has the instruction */
template <class T> static bool hopper_there(int most)
{
    cudaFuncAttributes a;

    return hopper_bytes<T>() + 1024 <= most &&
           cudaFuncGetAttributes(&a, hopper_form<T>()) == cudaSuccess && a.sharedSizeBytes > 0;
}
template <class T> static int launch_hopper(const dot_cuda_rows *j)
{
    const uint32_t wide = (j->n_rows + HOPPER_ROWS - 1) / HOPPER_ROWS;
    const uint32_t high = (j->n_tok + HOPPER_VECS - 1) / HOPPER_VECS;
    int dev, n_sms;
    cudaError_t e = cudaGetDevice(&dev);

    if (!e)
        e = cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, dev);
    if (e)
        return e;
    if constexpr (splits<T>)
        split_kernel<T, split_rows><<<min(wide * high, (uint32_t)n_sms), HOPPER_THREADS,
                                      split_shape<T>::BYTES, j->stream>>>(split_rows{*j});
    else
        hopper_kernel<T><<<dim3(wide, high), HOPPER_THREADS, hopper_shape<T>::BYTES, j->stream>>>(*j);
    return cudaGetLastError();
}
