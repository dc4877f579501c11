/* Prompts, of keys and values of two bytes: a block of WARPS warps takes 8 queries a warp that share a kv head,
 * and walks their chunks of 256 keys. Keys and values come in tiles of 64 rows through shared memory, the next
 * one on its way while one is used.
 *   scores   a thread has two of LANE8's lanes of eight keys of a tile and the warp's eight queries, in registers:
 *            a load fills registers at 128 bytes a cycle, whoever reads the same, and so least is read. Four threads
 *            have the lanes of a score; in LANE8's tree each gives away half of what is left, keys first that
 *            it does not keep;
 *   softmax  a warp goes through its queries, its lanes are SUM32's lanes over the chunk;
 *   values   a thread has four channels of the warp's eight queries, keys ascending; TILES times that where values are
 *            long, one after the other.
 * What a warp makes of scores only that warp reads; the block meets where tiles change. Included by
 * attention.cu alone. */
#pragma once

enum {
    TILE_KEYS = 64,
    TILE_DIMS = 128, /* values of a key, or channels, in a tile */
    TILE_PITCH = TILE_DIMS * 2 + 16, /* bytes from row to row: rows begin in different banks */
    TILE_BYTES = TILE_KEYS * TILE_PITCH,
    WARP_QUERIES = 8,
    SEVERAL_TILES = 4, /* of channels that a block has, where one is not enough: their sums are not in registers */
    TILE_WARPS = 4, /* two blocks a multiprocessor: a thread may have all registers there are */
};

static __device__ __forceinline__ void tile_copy16(uint8_t *to, const void *from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
#else
    *(uint4 *)to = *(const uint4 *)from;
#endif
}
static __device__ __forceinline__ void tile_wait(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

static __host__ __device__ __forceinline__ unsigned tile_pieces(unsigned hd)
{
    return (hd + TILE_DIMS - 1) / TILE_DIMS;
}
template <int WARPS> static size_t tiles_shared(unsigned hd)
{
    size_t queries = WARPS * WARP_QUERIES;

    return 2 * TILE_BYTES + queries * (CHUNK + tile_pieces(hd) * TILE_DIMS + 1) * sizeof(float);
}

/* What a block works on, and which tile is asked for next: of a chunk first all keys, a piece of TILE_DIMS after the
 * other, then the values, TILE_DIMS channels after others. */
template <kv_type T, int WARPS> struct tile_feed {
    const uint16_t *k, *v;
    const uint32_t *list; /* of the one token, or NULL */
    unsigned hd, dv, c0, c1, to; /* the block's channels: c0 ... c1 - 1; to: keys there are */
    uint8_t *tiles;
    unsigned first, row, dim, buffer; /* of the next tile; dim: of the key, then hd + channel */

    __device__ __forceinline__ void ask(void)
    {
        if (first >= to)
            return;
        const bool keys = dim < hd;
        const unsigned most = keys_in(to, first), at_dim = keys ? dim : dim - hd, ld = keys ? hd : dv;
        const unsigned c = threadIdx.x % 16 * 8;
        const uint16_t *from = (keys ? k : v) + at_dim + c;
        uint8_t *tile = tiles + buffer * TILE_BYTES + threadIdx.x % 16 * 16;

        if (at_dim + c < ld)
#pragma unroll
            for (int i = 0; i < TILE_KEYS / (2 * WARPS); i++) {
                unsigned r = threadIdx.x / 16 + 2 * WARPS * i;
                if (row + r < most) {
                    unsigned at = first + row + r;
                    tile_copy16(tile + r * TILE_PITCH, from + (size_t)(list ? list[at] : at) * ld);
                }
            }
        buffer ^= 1;
        if (keys) {
            dim += TILE_DIMS;
            if (dim < hd)
                return;
            row += TILE_KEYS;
            dim = row < most ? 0 : hd + c0;
            row = row < most ? row : 0;
        } else {
            row += TILE_KEYS;
            if (row < most)
                return;
            row = 0;
            dim += TILE_DIMS;
            if (dim - hd < c1)
                return;
            dim = 0;
            first += CHUNK;
        }
    }
    /* The tile that was asked for last is there, what was done with the one before is done; the next one is asked
     * for. Its place: of the tile that is there. */
    __device__ __forceinline__ const uint8_t *next(void)
    {
        const uint8_t *tile = tiles + (buffer ^ 1) * TILE_BYTES;

        tile_wait();
        __syncthreads();
        ask();
        return tile;
    }
};

/* Where value i of a block's query g of `queries` lies in shared memory: piece after piece of TILE_DIMS; of sixteen,
 * the four of each thread of a score lie together. */
static __device__ __forceinline__ unsigned tile_query_at(unsigned queries, unsigned g, unsigned i)
{
    return (i / TILE_DIMS * queries + g) * TILE_DIMS + i % TILE_DIMS / 16 * 16 + i % 8 / 2 * 4 + i / 8 % 2 * 2 + i % 2;
}
/* 29.1 over up to TILE_DIMS values of a key, sixteens of them; q: the warp's first query. Thread t = threadIdx.x % 4 of
 * four has the lanes 2 t and 2 t + 1; its keys are k + 8 (i ^ 2 t), k = threadIdx.x / 4 % 8: in the tree below
 * the first half of what it has is always what it keeps. */
template <kv_type T>
static __device__ __forceinline__ void tile_scores(const uint8_t *tile, const float *q, unsigned sixteens,
                                                   float lane[WARP_QUERIES][8][2])
{
    const unsigned t = threadIdx.x % 4, k = threadIdx.x % WARP / 4;
    const uint8_t *mine = tile + k * TILE_PITCH + 4 * t;

    q += 4 * t;
#pragma unroll 1
    for (unsigned o = 0; o < sixteens; o++) {
        float4 x[WARP_QUERIES];

#pragma unroll
        for (int g = 0; g < WARP_QUERIES; g++)
            x[g] = *(const float4 *)(q + g * TILE_DIMS + 16 * o);
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float2 v = widen2<T>(*(const uint32_t *)(mine + ((i / 2 ^ t) * 16 + i % 2 * 8) * TILE_PITCH +
                                                               32 * o + 16 * h));
#pragma unroll
                for (int g = 0; g < WARP_QUERIES; g++) {
                    lane[g][i][0] = __fmaf_rn(h ? x[g].z : x[g].x, v.x, lane[g][i][0]);
                    lane[g][i][1] = __fmaf_rn(h ? x[g].w : x[g].y, v.y, lane[g][i][1]);
                }
            }
    }
}
/* LANE8's fold of them; the scores of keys k + 16 t + 8 i, i < 2, to p (from the tile's first key on) */
static __device__ __forceinline__ void tile_fold(float lane[WARP_QUERIES][8][2], float scale, float *p)
{
    const unsigned t = threadIdx.x % 4, k = threadIdx.x % WARP / 4;

#pragma unroll
    for (int g = 0; g < WARP_QUERIES; g++) {
        float four[4][2];

#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                four[i][e] = __fadd_rn(lane[g][i][e], __shfl_xor_sync(WARP_ALL, lane[g][i + 4][e], 2));
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int e = 0; e < 2; e++)
                four[i][e] = __fadd_rn(four[i][e], __shfl_xor_sync(WARP_ALL, four[i + 2][e], 1));
            p[g * CHUNK + k + 16 * t + 8 * i] = __fmul_rn(__fadd_rn(four[i][0], four[i][1]), scale);
        }
    }
}

/* 29.3, first half, of a query with `count` keys in the chunk; FULL: all of it */
template <bool FULL>
static __device__ __forceinline__ void tile_softmax_of(float *p, unsigned count, float *max, float *sum)
{
    const unsigned lane = threadIdx.x % WARP;
    float e[CHUNK / WARP], m = __int_as_float(0xFF800000), l = 0.0f;

#pragma unroll
    for (int i = 0; i < CHUNK / WARP; i++)
        e[i] = FULL || i * WARP + lane < count ? p[i * WARP + lane] : m;
#pragma unroll
    for (int i = 0; i < CHUNK / WARP; i++)
        m = e[i] > m ? e[i] : m;
    m = cu_warp_max(m);
#pragma unroll
    for (int i = 0; i < CHUNK / WARP; i++)
        if (FULL || i * WARP + lane < count) {
            e[i] = cu_exp(__fsub_rn(e[i], m));
            l = __fadd_rn(l, e[i]);
            p[i * WARP + lane] = e[i];
        }
    *max = m;
    *sum = cu_fold32(l);
}
/* The warp's queries, whose numbers of keys are n[0 ... 7], one after the other. m, l: of query threadIdx.x % 32, where
 * that is less than eight. */
static __device__ __forceinline__ void tile_softmax(float *p, const unsigned *n, unsigned first, unsigned even,
                                                    float *m_of, float *l_of)
{
#pragma unroll 2
    for (unsigned g = 0; g < WARP_QUERIES; g++, p += CHUNK) {
        float m, l;

        if (even == CHUNK)
            tile_softmax_of<true>(p, CHUNK, &m, &l);
        else
            tile_softmax_of<false>(p, keys_in(n[g], first), &m, &l);
        if (threadIdx.x % WARP == g) {
            *m_of = m;
            *l_of = l;
        }
    }
}

/* 29.3, second half: keys first + row ... of a tile, four channels a thread. even: keys of the chunk that all of the
 * warp's queries have; most: that one of them has. */
template <kv_type T>
static __device__ __forceinline__ void tile_values(const uint8_t *tile, const float *p, const unsigned *n, unsigned first,
                                                   unsigned row, unsigned even, unsigned most, float o[WARP_QUERIES][4])
{
    const uint8_t *mine = tile + threadIdx.x % WARP * 8;
    const unsigned end = most < row + TILE_KEYS ? most : row + TILE_KEYS;
    unsigned j = row;

#pragma unroll 2
    for (; j + 4 <= even && j + 4 <= end; j += 4) {
        float2 v[4][2];

#pragma unroll
        for (int a = 0; a < 4; a++) {
            uint2 raw = *(const uint2 *)(mine + (j - row + a) * TILE_PITCH);
            v[a][0] = widen2<T>(raw.x);
            v[a][1] = widen2<T>(raw.y);
        }
#pragma unroll
        for (int g = 0; g < WARP_QUERIES; g++) {
            const float4 x = *(const float4 *)(p + g * CHUNK + j);
            const float w[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
            for (int a = 0; a < 4; a++) {
                o[g][0] = __fmaf_rn(w[a], v[a][0].x, o[g][0]);
                o[g][1] = __fmaf_rn(w[a], v[a][0].y, o[g][1]);
                o[g][2] = __fmaf_rn(w[a], v[a][1].x, o[g][2]);
                o[g][3] = __fmaf_rn(w[a], v[a][1].y, o[g][3]);
            }
        }
    }
#pragma unroll 1
    for (; j < end; j++) { /* the tail, where queries end at different keys */
        const uint2 raw = *(const uint2 *)(mine + (j - row) * TILE_PITCH);
        const float2 v0 = widen2<T>(raw.x), v1 = widen2<T>(raw.y);

#pragma unroll
        for (int g = 0; g < WARP_QUERIES; g++)
            if (j < keys_in(n[g], first)) {
                const float w = p[g * CHUNK + j];
                o[g][0] = __fmaf_rn(w, v0.x, o[g][0]);
                o[g][1] = __fmaf_rn(w, v0.y, o[g][1]);
                o[g][2] = __fmaf_rn(w, v1.x, o[g][2]);
                o[g][3] = __fmaf_rn(w, v1.y, o[g][3]);
            }
    }
}

/* A run of queries over all their chunks; query g of the block is head0 + g % heads of token t0 + g / heads. */
template <kv_type T, int WARPS, int TILES>
static __device__ __forceinline__ void tiles_run(const attention_args &x, float *q, float *p, unsigned *n, uint8_t *tiles,
                                                 unsigned n_queries, unsigned t0, unsigned head0, unsigned heads,
                                                 unsigned kv_head, unsigned to)
{
    enum { G = WARPS * WARP_QUERIES, AHEAD = 16 };
    const unsigned lane = threadIdx.x % WARP, g0 = threadIdx.x / WARP * WARP_QUERIES, hd = x.a.hd;
    const size_t row0 = ((size_t)x.a.seq[t0] * x.a.kv_heads + kv_head) * x.a.n_ctx;
    const bool works = g0 < n_queries;
    float acc[TILES][WARP_QUERIES][4], M = 0.0f, l = 0.0f; /* M, l: of query g0 + lane, lanes 0 ... 7 */
    unsigned least = 0xFFFFFFFFu, longest = 0;
    tile_feed<T, WARPS> feed = {};

    feed.k = (const uint16_t *)x.a.k + row0 * hd;
    feed.v = (const uint16_t *)x.a.v + row0 * x.a.dv;
    feed.list = list_of(x, t0);
    feed.list += feed.list != NULL;
    feed.hd = hd;
    feed.dv = x.a.dv;
    feed.c0 = blockIdx.z * TILES * TILE_DIMS;
    feed.c1 = x.a.dv < feed.c0 + TILES * TILE_DIMS ? x.a.dv : feed.c0 + TILES * TILE_DIMS;
    feed.to = to;
    feed.tiles = tiles;
    feed.ask();
    for (unsigned base = threadIdx.x; base < G * hd; base += AHEAD * WARPS * WARP) {
        float v[AHEAD];
#pragma unroll
        for (unsigned k = 0; k < AHEAD; k++) { /* so many on their way */
            unsigned i = base + k * WARPS * WARP, g = i / hd, real = g < n_queries ? g : n_queries - 1;
            v[k] = x.q[(t0 + real / heads) * x.ldq + (size_t)(head0 + real % heads) * hd + i % hd];
        }
#pragma unroll
        for (unsigned k = 0; k < AHEAD; k++) {
            unsigned i = base + k * WARPS * WARP;
            if (i < G * hd)
                q[tile_query_at(G, i / hd, i % hd)] = v[k];
        }
    }
    if (threadIdx.x < G) {
        unsigned real = threadIdx.x < n_queries ? threadIdx.x : n_queries - 1;
        n[threadIdx.x] = keys_of(x, t0 + real / heads);
    }
    __syncthreads();
    n += g0;
    q += g0 * TILE_DIMS;
    p += g0 * CHUNK;
    for (int g = 0; g < WARP_QUERIES; g++) {
        least = n[g] < least ? n[g] : least;
        longest = n[g] > longest ? n[g] : longest;
    }
    for (unsigned first = 0; first < to; first += CHUNK) {
        const unsigned most = keys_in(to, first);
        float m_c = 0.0f, l_c = 0.0f, was = 1.0f, now = 0.0f;
        bool some = false;

        for (unsigned row = 0; row < most; row += TILE_KEYS) {
            float s[WARP_QUERIES][8][2] = {};

            for (unsigned d = 0; d < hd; d += TILE_DIMS) {
                const uint8_t *tile = feed.next();
                if (works)
                    tile_scores<T>(tile, q + d * G, (hd - d < TILE_DIMS ? hd - d : TILE_DIMS) / 16, s);
            }
            tile_fold(s, x.scale, p + row);
        }
        __syncwarp();
        if (works) {
            tile_softmax(p, n, first, keys_in(least, first), &m_c, &l_c);
            some = lane < WARP_QUERIES && keys_in(n[lane % WARP_QUERIES], first);
            if (first == 0) {
                M = m_c;
                l = l_c;
            } else if (some) { /* 29.4 */
                float top = M > m_c ? M : m_c;
                was = cu_exp(__fsub_rn(M, top));
                now = cu_exp(__fsub_rn(m_c, top));
                l = __fmaf_rn(l, was, __fmul_rn(l_c, now));
                M = top;
            }
        }
        __syncwarp();
#pragma unroll 1
        for (unsigned i = 0; i < TILES && feed.c0 + i * TILE_DIMS < feed.c1; i++) {
            float o[WARP_QUERIES][4] = {};

            for (unsigned row = 0; row < most; row += TILE_KEYS) {
                const uint8_t *tile = feed.next();
                if (works)
                    tile_values<T>(tile, p, n, first, row, keys_in(least, first), keys_in(longest, first), o);
            }
#pragma unroll
            for (int g = 0; g < WARP_QUERIES; g++) {
                const float w = __shfl_sync(WARP_ALL, was, g), v = __shfl_sync(WARP_ALL, now, g);
                const int merges = __shfl_sync(WARP_ALL, (int)some, g);
#pragma unroll
                for (int c = 0; c < 4; c++)
                    if (first == 0)
                        acc[i][g][c] = o[g][c];
                    else if (merges)
                        acc[i][g][c] = __fmaf_rn(acc[i][g][c], w, __fmul_rn(o[g][c], v));
            }
        }
    }
#pragma unroll 1
    for (unsigned i = 0; i < TILES; i++)
#pragma unroll
        for (int g = 0; g < WARP_QUERIES; g++) { /* 29.6 */
            const float div = __shfl_sync(WARP_ALL, l, g);
            const unsigned real = g0 + g, c = feed.c0 + i * TILE_DIMS + 4 * lane;
            float *out = x.out + (t0 + real / heads) * x.ldo + (size_t)(head0 + real % heads) * x.a.dv;

            if (real < n_queries)
                for (unsigned k = 0; k < 4; k++)
                    if (c + k < feed.c1)
                        out[c + k] = cu_canon(__fadd_rn(__fdiv_rn(acc[i][g][k], div), 0.0f));
        }
    __syncthreads(); /* q, n and tiles are another run's */
}

/* Block: (group of neighbouring tokens, the last ones, which see most, first; part of the heads of a kv head; TILES
 * tiles of channels). Tokens of a group that belong to other sequences are taken one run after the other. */
template <kv_type T, int WARPS, int TILES>
static __global__ void __launch_bounds__(WARPS *WARP, 8 / WARPS) tiles(attention_args x)
{
    enum { G = WARPS * WARP_QUERIES };
    extern __shared__ __align__(16) float memory[];
    float *q = memory, *p = q + G * tile_pieces(x.a.hd) * TILE_DIMS;
    unsigned *n = (unsigned *)(p + G * CHUNK);
    uint8_t *room = (uint8_t *)(n + G);
    const unsigned per = x.group < (unsigned)G ? x.group : (unsigned)G; /* heads of a token in a block */
    const unsigned tokens = x.a.list ? 1 : G / per, parts = (x.group + per - 1) / per;
    const unsigned kv_head = blockIdx.y / parts, part = blockIdx.y % parts;
    const unsigned head0 = kv_head * x.group + part * per, left = x.group - part * per;
    const unsigned heads = left < per ? left : per;
    unsigned t = (gridDim.x - 1 - blockIdx.x) * tokens, end = t + tokens < x.n_tokens ? t + tokens : x.n_tokens;

    while (t < end) {
        unsigned t0 = t, to = 0;

        for (; t < end && x.a.seq[t] == x.a.seq[t0]; t++)
            to = keys_of(x, t) > to ? keys_of(x, t) : to;
        tiles_run<T, WARPS, TILES>(x, q, p, n, room, (t - t0) * heads, t0, head0, heads, kv_head, to);
    }
}
