/* The launches of one quantised type: its .cu file says DOT_CUDA_TYPE(name). Grids follow from the
 * shape and the card alone. */
#pragma once
#include "kernels/dot/own.cuh"
#include "kernels/dot/several.cuh"

/* ---- kernels ---- */

/* How a kernel makes its integers: dot.cuh, sixteen.cuh, steps.cuh (rows times one vector, where its tables
 * fit), several.cuh (rows times several); for an expert's short launches own.cuh has kernels of its own. */
enum form { PLAIN, SIXTEEN, STEPS, SEVERAL };
template <class T, int NT> constexpr form form_of = NT >= sixteen_from<T> ? SIXTEEN : PLAIN;
/* Warps of a kernel of at most MAX_NT vectors that make integers. There are more for copies and floats, but
 * where the integers need the registers. */
template <int MAX_NT, form F>
constexpr int warps_of = F == PLAIN || (F == SIXTEEN && MAX_NT > 4) ? (int)WARPS : (int)MANY_WARPS;
template <int MAX_NT, form F>
constexpr int threads_of =
    32 * (warps_of<MAX_NT, F> + (F == SEVERAL ? (int)SEVERAL_EXTRA : F == SIXTEEN ? 0 : 1));

template <class T, form F>
constexpr bool wide_tables = F == STEPS || (F == SEVERAL && has_steps<T>);

template <class T, int NT, int MAX_NT, int MATS, form F, class MEET, class PUT>
static __device__ __forceinline__ void rows_of(const tiling &g, const source &s, uint8_t *smem,
                                               uint32_t begin, uint32_t end, stages &of, MEET meet, PUT put)
{
    if constexpr (F == PLAIN)
        rows_range<T, NT, MATS>(g, s, smem, begin, end, meet, put);
#if __CUDA_ARCH__ >= 900 /* else these two are never launched (launch_rows_as) */
    else if constexpr (F == STEPS)
        rows_steps<T, warps_of<MAX_NT, F>>(g, s, smem, begin, end, meet, put);
    else if constexpr (F == SEVERAL)
        rows_several<T, NT, warps_of<MAX_NT, F>>(g, s, smem, begin, end, meet, put);
#endif
    else if constexpr (F == SIXTEEN)
        rows_range16<T, NT, MATS, warps_of<MAX_NT, F>, threads_of<MAX_NT, F> / 32>(
            g, s, smem, begin, end, of, meet, put);
}
template <class T, int MAX_NT, form F>
static __device__ __forceinline__ void fill_tables(const tiling &g, uint8_t *smem)
{
    if constexpr (wide_tables<T, F>)
        T::template wide_fill<threads_of<MAX_NT, F>>(smem + g.grid_at, smem + g.signs_at);
    else
        T::fill(smem + g.table_at);
}

/* One matrix; blocks share its rows evenly. Weights are asked for before the launch before this one
 * has ended: nothing that runs just before may write them. */
template <class T, int NT, form F>
__global__ void __launch_bounds__(threads_of<NT, F>, F == PLAIN && NT <= 4 ? 3 : 1)
    rows_kernel(const __grid_constant__ tiling g, const __grid_constant__ dot_cuda_rows j)
{
    extern __shared__ __align__(128) uint8_t smem[];
    if (!has_steps<T>) /* before or after: each as it was run on a card */
        fill_tables<T, NT, F>(g, smem);
    uint32_t begin = (uint32_t)((uint64_t)j.n_rows * blockIdx.x / gridDim.x);
    uint32_t end = (uint32_t)((uint64_t)j.n_rows * (blockIdx.x + 1) / gridDim.x);
    source s;
    stages of = {};

    if (has_steps<T>)
        fill_tables<T, NT, F>(g, smem);
    s.w[0] = s.w[1] = j.w;
    s.row_bytes = j.row_bytes;
    rows_of<T, NT, NT, 1, F>(
        g, s, smem, begin, end, of,
        [&] {
            next_may_start();
            before_is_done();
#pragma unroll
            for (int t = 0; t < NT; t++) {
                uint32_t i = t < j.n_tok ? t : j.n_tok - 1;
                s.vec[t] = j.acts + j.a_stride * (j.idx ? j.idx[i] : i);
            }
        },
        [&](uint32_t r, uint32_t t, float y, float) {
            if (t >= j.n_tok)
                return;
            if (j.scale)
                y = __fmul_rn(y, *j.scale);
            if (j.bias)
                y = __fadd_rn(y, j.bias[r]);
            j.y[t * j.ldy + r] = cu_canon(y);
        });
}

/* an item's vectors from `first` on, at most NT of them, over rows [begin, end) of one matrix */
template <class T, int NT, int MAX_NT, int MATS, form F>
static __device__ __forceinline__ void item_rows(const tiling &g, const dot_cuda_experts &j,
                                                 const expert_item &item, uint8_t *smem, stages &of,
                                                 uint32_t first, uint32_t begin, uint32_t end)
{
    const expert_slot &slot = j.slots[item.slot];
    uint32_t n_tok = item.n_tok - first;
    source s;
    float scale0 = slot.scale[MATS == 2 ? 0 : j.which], scale1 = slot.scale[1];

    s.w[0] = (const uint8_t *)slot.w[MATS == 2 ? 0 : j.which];
    s.w[1] = (const uint8_t *)slot.w[1];
    s.row_bytes = j.row_bytes;
    rows_of<T, NT, MAX_NT, MATS, F>(
        g, s, smem, begin, end, of,
        [&] {
            before_is_done();
#pragma unroll
            for (int t = 0; t < NT; t++) {
                uint32_t i = first + (t < n_tok ? t : n_tok - 1);
                uint8_t *to = smem + g.vec_at + t * g.vec_stride;

                s.vec[t] = j.acts ? j.acts + j.a_stride * item.tok[i] : to;
                if (j.acts)
                    continue;
                const float *x = j.hidden + item.row[i] * j.ld_hidden;
                int warp = threadIdx.x / 32, warps = threads_of<MAX_NT, F> / 32;
                if (T::UNIT == 256)
                    for (uint32_t u = warp; u < j.n_cols / 256; u += warps)
                        cu_quantise_256(x + 256 * u, u, j.n_cols, to);
                else
                    for (uint32_t u = 4 * warp; u < j.n_cols / 32; u += 4 * warps)
                        cu_quantise_4x32(x + 32 * u, u, j.n_cols, to);
            }
        },
        [&](uint32_t r, uint32_t t, float y, float y2) {
            if (t >= n_tok)
                return;
            if (scale0 != 1.0f)
                y = cu_canon(__fmul_rn(y, scale0));
            if (MATS == 2) {
                if (scale1 != 1.0f)
                    y2 = cu_canon(__fmul_rn(y2, scale1));
                y = cu_swiglu(y, y2, j.limit);
            }
            j.y[item.row[first + t] * j.ldy + r / MATS] = y;
        });
}

/* All items of a layer. The list may be read at once where that was promised, and by the second of an expert's
 * launches: who wrote it ended before the first one let this one start. */
template <class T, int MAX_NT, int MATS, form F>
__global__ void __launch_bounds__(threads_of<MAX_NT, F>, F == PLAIN ? 2 : 1)
    items_kernel(const __grid_constant__ tiling g, const __grid_constant__ dot_cuda_experts j)
{
    extern __shared__ __align__(128) uint8_t smem[];
    stages of = {};

    fill_tables<T, MAX_NT, F>(g, smem);
    if (j.acts && !j.early)
        before_is_done();
    next_may_start();
    uint32_t n = *j.n_items, pieces = n ? pieces_of(n, j.n_rows) : 0;
    for (uint32_t task = blockIdx.x; task < n * pieces; task += gridDim.x) {
        const expert_item &item = j.items[task / pieces];
        uint32_t piece = task % pieces, n_tok = item.n_tok;
        uint32_t begin = MATS * (uint32_t)((uint64_t)j.n_rows * piece / pieces);
        uint32_t end = MATS * (uint32_t)((uint64_t)j.n_rows * (piece + 1) / pieces);

        if constexpr (MAX_NT == 1) {
            item_rows<T, 1, MAX_NT, MATS, F>(g, j, item, smem, of, 0, begin, end);
        } else {
            for (uint32_t first = 0; first < n_tok; first += MAX_NT)
                if (n_tok - first == 1)
                    item_rows<T, 1, MAX_NT, MATS, F>(g, j, item, smem, of, first, begin, end);
                else if (n_tok - first == 2)
                    item_rows<T, 2, MAX_NT, MATS, F>(g, j, item, smem, of, first, begin, end);
                else
                    item_rows<T, MAX_NT, MAX_NT, MATS, F>(g, j, item, smem, of, first, begin, end);
        }
    }
    before_is_done(); /* a launch without items, too, ends after the one before it */
}

/* ---- launches ---- */

struct room {
    int n_sms, each, together; /* multiprocessors; shared memory of a block at most, of all of one */
    int copies;                /* there is a copy engine */
};
static inline int room_of_card(room *r)
{
    int dev;
    cudaError_t e = cudaGetDevice(&dev);

    if (!e)
        e = cudaDeviceGetAttribute(&r->n_sms, cudaDevAttrMultiProcessorCount, dev);
    if (!e)
        e = cudaDeviceGetAttribute(&r->each, cudaDevAttrMaxSharedMemoryPerBlockOptin, dev);
    if (!e)
        e = cudaDeviceGetAttribute(&r->together, cudaDevAttrMaxSharedMemoryPerMultiprocessor, dev);
    if (!e)
        e = cudaDeviceGetAttribute(&r->copies, cudaDevAttrComputeCapabilityMajor, dev);
    r->copies = !e && r->copies >= 9;
    return e;
}

/* Bytes of shared memory for tiles of 1 << row_shift rows, and where everything lies in it. n_chunks:
 * sixteen.cuh's, else 0. */
template <class T, form F>
static uint32_t lay_out(tiling *g, size_t row_bytes, int row_shift, int n_tok, int mats,
                        bool makes_vectors, uint32_t n_chunks, uint32_t n_stages)
{
    uint32_t rows = 1u << row_shift, kinds = T::M ? 2 : 1, at = (T::TABLE + 63) & ~63u;
    uint32_t lanes = shape<T, 1>::LANES;

    if constexpr (wide_tables<T, F>) {
        g->grid_at = 0;
        g->signs_at = T::WIDE_GRID;
        at = T::WIDE_GRID + T::WIDE_SIGNS;
    }
    g->n_units = g->n_cols / T::UNIT;
    g->n_super = (g->n_cols + 255) / 256;
    g->row_shift = row_shift;
    /* an odd number of times what the lanes of a result read at once: chains of different rows
     * begin in different banks */
    g->part_row = ((g->n_units * kinds + lanes - 1) / lanes | 1) * lanes;
    /* from the sixteen bytes that the first row begins in; words are read past the end */
    g->piece_bytes = (uint32_t)((rows / mats * row_bytes + 30 + 16) & ~(size_t)15);
    if (n_chunks) {
        /* what four threads read at once; of 16 every odd number of times will do */
        uint32_t apart = T::BYTES < 136 ? 32 : 64;
        g->chunk = (g->n_super + n_chunks - 1) / n_chunks;
        g->n_chunks = (g->n_super + g->chunk - 1) / g->chunk;
        g->pitch = (g->chunk * T::BYTES + 30) & ~15u;
        /* eight rows begin in different banks */
        if (F == STEPS || F == SEVERAL) {
            uint32_t over = row_bytes % 16, row = (uint32_t)row_bytes / 16;
            g->run_shift = over || g->n_chunks > 1 ? 0 : row % 2 ? 3 : row % 4 ? 2 : row % 8 ? 1 : 0;
            g->row_step = (uint32_t)row_bytes;
            g->pitch = g->run_shift ? (g->row_step << g->run_shift) + 16
                                    : ((g->pitch + (over ? 16 : 0)) | 16) + over;
        } else {
            g->pitch += (apart - g->pitch) & 127;
        }
        g->piece_bytes = ((rows / mats >> g->run_shift) * g->pitch + 31) & ~15u;
    }
    g->stage_bytes = mats * g->piece_bytes;
    g->table_at = 0;
    g->vec_at = at;
    g->vec_stride = (uint32_t)(cu_act_sum_at(g->n_cols, T::UNIT == 256 ? 256 : 32) +
                               ((g->n_cols / 8 + 63) & ~63u)); /* n / 16 * 2 or n / 32 * 4 */
    at += makes_vectors ? n_tok * g->vec_stride : 0;
    g->stage_at = at;
    g->n_stages = n_stages;
    for (uint32_t i = 0; i < n_stages; i++, at += g->stage_bytes)
        g->stage[i] = at;
    g->bars_at = at;
    at += F == STEPS ? (int)STEP_BARS_BYTES : F == SEVERAL ? (int)SEVERAL_BARS_BYTES : 64; /* barriers */
    g->part_at = at;
    return at + (F == STEPS ? (int)STEP_PARTS : 2) * rows * n_tok * g->part_row * (uint32_t)sizeof(float2);
}

/* A tile gives each warp as many rows as it takes at once, and has 12 KB at least (short rows: what a
 * tile costs beside its rows), if that leaves room for three or two blocks on a multiprocessor; else
 * the largest tile that fits at all (two rows where there are two matrices). 0: none does. */
template <class T>
static uint32_t fit(tiling *g, const room &r, size_t row_bytes, int n_tok, int mats,
                    bool makes_vectors)
{
    int quads = (int)((g->n_cols + 1023) / 1024), at_once = shape<T, 1>::ROWS, shift = mats - 1;

    while (shift < 5 && ((quads << shift) < WARPS * at_once || (row_bytes << shift) < 12288))
        shift++;
    for (; shift >= mats - 1; shift--)
        for (int blocks = 3; blocks; blocks--) {
            int bytes = (int)lay_out<T, PLAIN>(g, row_bytes, shift, n_tok, mats, makes_vectors, 0, STAGES);
            if (bytes <= r.each && bytes + 1024 <= r.together / blocks &&
                (blocks > 1 || shift <= mats || n_tok > 4))
                return bytes;
        }
    return 0;
}

/* sixteen.cuh, one block on a multiprocessor: a piece of 256 values a warp (or as much from shorter
 * rows, or where that does not fit), up to 64 rows, three stages rather than two. */
template <class LAY>
static uint32_t fit_stages(const room &r, uint32_t n_super, int warps, LAY lay)
{
    for (uint32_t chunk = warps; chunk; chunk /= 2)
        for (int shift = 6; shift >= 4; shift--)
            for (int stages = 3; stages >= 2; stages--) {
                uint32_t bytes = lay(shift, (n_super + chunk - 1) / chunk, stages);
                if (bytes <= (uint32_t)r.each)
                    return bytes;
            }
    return 0;
}
/* The layout of a kernel of form F; 0: none fits. */
template <class T, int NT, form F>
static uint32_t fit_form(tiling *g, const room &r, size_t row_bytes, int mats, bool makes_vectors)
{
    if constexpr (F == PLAIN)
        return fit<T>(g, r, row_bytes, NT, mats, makes_vectors);
    else
        return fit_stages(r, g->n_cols / 256, warps_of<NT, F>,
                          [&](int shift, uint32_t n_chunks, int stages) {
                              return lay_out<T, F>(g, row_bytes, shift, NT, mats, makes_vectors,
                                                   n_chunks, stages);
                          });
}
template <class T, class JOB>
static int launch(void (*kernel)(tiling, JOB), tiling *g, const JOB *j, int threads,
                  uint32_t bytes, const room &r, uint32_t most_blocks)
{
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute early = {};
    int blocks;
    cudaError_t e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, bytes);

    if (e)
        return e;
    if (!blocks)
        return cudaErrorInvalidConfiguration;
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    c.gridDim = dim3(min((uint32_t)(r.n_sms * blocks), most_blocks));
    c.blockDim = dim3(threads);
    c.dynamicSmemBytes = bytes;
    c.stream = j->stream;
    c.attrs = &early;
    c.numAttrs = 1;
    return cudaLaunchKernelEx(&c, kernel, *g, *j);
}

template <class T> static bool well_aligned(const void *w, size_t row_bytes)
{
    return (size_t)w % 16 == 0 && (row_bytes % T::BYTES == 0 || row_bytes % 16 == 0);
}

/* cudaErrorInvalidValue: the form needs more shared memory than there is, or another card or rows */
template <class T, int NT, form F> static int launch_rows_as(const dot_cuda_rows *j)
{
    tiling g = {};
    room r;
    int e = room_of_card(&r);
    uint32_t bytes;

    if (e)
        return e;
    if constexpr (F == STEPS)
        if (!r.copies || (T::TURNED < 2 && j->row_bytes % 4))
            return cudaErrorInvalidValue;
    if constexpr (F == SEVERAL)
        if (!r.copies || (several<T>::TURNED < 2 && j->row_bytes % 4))
            return cudaErrorInvalidValue;
    g.n_cols = j->n_cols;
    bytes = fit_form<T, NT, F>(&g, r, j->row_bytes, 1, false);
    if (!bytes || !well_aligned<T>(j->w, j->row_bytes))
        return cudaErrorInvalidValue;
    return launch<T>(rows_kernel<T, NT, F>, &g, j, threads_of<NT, F>, bytes, r,
                     (j->n_rows + 3) / 4);
}
template <class T, int NT> static int launch_rows_of(const dot_cuda_rows *j)
{
    if constexpr (NT == 1 && has_steps<T>) {
        int e = launch_rows_as<T, NT, STEPS>(j);
        if (e != cudaErrorInvalidValue)
            return e;
    }
    if constexpr (NT > 1 && several<T>::THERE) {
        int e = launch_rows_as<T, (NT > 4 ? 8 : 4), SEVERAL>(j);
        if (e != cudaErrorInvalidValue)
            return e;
    }
    return launch_rows_as<T, NT, form_of<T, NT>>(j);
}
template <class T> static int launch_rows(const dot_cuda_rows *j)
{
    if (!j->n_rows || !j->n_tok)
        return 0;
    return j->n_tok == 1   ? launch_rows_of<T, 1>(j)
           : j->n_tok == 2 ? launch_rows_of<T, 2>(j)
           : j->n_tok <= 4 ? launch_rows_of<T, 4>(j)
                           : launch_rows_of<T, 8>(j);
}

template <class T, int NT, int MATS, form F> static int launch_items_as(const dot_cuda_experts *j)
{
    tiling g = {};
    room r;
    int e = room_of_card(&r);
    uint32_t bytes;

    if (e)
        return e;
    g.n_cols = j->n_cols;
    bytes = fit_form<T, NT, F>(&g, r, j->row_bytes, MATS, !j->acts);
    if (!bytes || !well_aligned<T>(NULL, j->row_bytes))
        return cudaErrorInvalidValue;
    return launch<T>(items_kernel<T, NT, MATS, F>, &g, j, threads_of<NT, F>, bytes, r, ~0u);
}
/* Bytes of shared memory for own.cuh, and where everything lies in it; 0: for other cards or rows. */
template <class A> static uint32_t lay_out_own(tiling *g, const room &r, const dot_cuda_experts *j)
{
    using T = typename A::T;
    const uint32_t over = j->row_bytes % 16 ? 30 : 0; /* of a copy, at both its ends */
    uint32_t bytes = 0, batch_bytes;

    if (!r.copies || j->row_bytes % 4 || !well_aligned<T>(NULL, j->row_bytes) || A::R * j->n_cols > OWN_MOST)
        return 0;
    g->n_cols = j->n_cols;
    g->n_units = g->n_super = g->n_cols / 256;
    g->part_row = g->n_units | 1;
    batch_bytes = A::W * A::CHUNK * g->part_row * (uint32_t)sizeof(float2);
    g->piece_bytes = (uint32_t)(A::CHUNK / A::PIECES * j->row_bytes + over) & ~15u;
    if (A::MATS == 1 && A::R > 1) /* threads of two pieces read at once: half of the banks apart */
        g->piece_bytes += (64 - g->piece_bytes) & 127;
    g->stage_bytes = A::PIECES * g->piece_bytes;
    g->grid_at = 0;
    g->signs_at = T::WIDE_GRID;
    g->bars_at = T::WIDE_GRID + T::WIDE_SIGNS;
    g->vec_at = (g->bars_at + 8 * A::W * OWN_STAGES + 63) & ~63u;
    g->stage_at = g->vec_at + (((2 * OWN_HALF + (uint32_t)sizeof(float)) * g->n_super + 63) & ~63u);
    /* three stages if that leaves half of the most that is made between two meetings */
    for (g->n_stages = OWN_STAGES; g->n_stages > 1; g->n_stages--) {
        g->part_at = g->stage_at + A::W * g->n_stages * g->stage_bytes;
        g->batch = g->part_at < (uint32_t)r.each ? min(((uint32_t)r.each - g->part_at) / batch_bytes, (uint32_t)OWN_BATCH) : 0;
        if (g->batch >= (g->n_stages > 2 ? OWN_BATCH / 2 : 1)) {
            bytes = g->part_at + g->batch * batch_bytes;
            break;
        }
    }
    return bytes;
}
/* cudaErrorInvalidValue: not for this card or these rows */
template <class A> static int launch_own_as(const dot_cuda_experts *j)
{
    tiling g = {};
    room r;
    int e = room_of_card(&r);
    uint32_t bytes;

    if (e)
        return e;
    bytes = lay_out_own<A>(&g, r, j);
    return bytes ? launch<typename A::T>(own_kernel<A>, &g, j, 32 * A::W, bytes, r, ~0u) : cudaErrorInvalidValue;
}
template <class T, int R, int MATS> using own_of = own_shape<T, R, MATS, own<T>::WARPS>;
template <class T, int MATS> static int launch_own(const dot_cuda_experts *j)
{
    return 4 * j->n_cols <= OWN_MOST   ? launch_own_as<own_of<T, 4, MATS>>(j)
           : 2 * j->n_cols <= OWN_MOST ? launch_own_as<own_of<T, 2, MATS>>(j)
                                       : launch_own_as<own_of<T, 1, MATS>>(j);
}

template <class T, int MATS> static int launch_items(const dot_cuda_experts *j)
{
    if constexpr (own<T>::WARPS != 0)
        if (!j->several && (MATS == 2) == (j->acts != NULL)) {
            int e = launch_own<T, MATS>(j);
            if (e != cudaErrorInvalidValue)
                return e;
        }
    return j->several ? launch_items_as<T, 4, MATS, form_of<T, 4>>(j)
                      : launch_items_as<T, 1, MATS, PLAIN>(j);
}

template <class K> static int allow(K *kernel, int bytes)
{
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}
template <class T, int NT> static int allow_forms(int bytes)
{
    constexpr form F = form_of<T, NT>;
    int e = allow(rows_kernel<T, NT, F>, bytes);

    if (!e)
        e = allow(items_kernel<T, NT, 1, F>, bytes);
    return e ? e : allow(items_kernel<T, NT, 2, F>, bytes);
}
template <class T, int R> static int allow_own(int bytes)
{
    int e = allow(own_kernel<own_of<T, R, 1>>, bytes);

    return e ? e : allow(own_kernel<own_of<T, R, 2>>, bytes);
}
template <class T> static int load_kernels(void)
{
    room r;
    int e = room_of_card(&r);

    if (!e)
        e = allow_forms<T, 1>(r.each);
    if (!e)
        e = allow(rows_kernel<T, 2, form_of<T, 2>>, r.each);
    if (!e)
        e = allow_forms<T, 4>(r.each);
    if (!e)
        e = allow(rows_kernel<T, 8, form_of<T, 8>>, r.each);
    if constexpr (has_steps<T>) {
        if (!e)
            e = allow(rows_kernel<T, 1, STEPS>, r.each);
    }
    if constexpr (several<T>::THERE) {
        if (!e)
            e = allow(rows_kernel<T, 4, SEVERAL>, r.each);
        if (!e)
            e = allow(rows_kernel<T, 8, SEVERAL>, r.each);
    }
    if constexpr (own<T>::WARPS != 0) {
        if (!e)
            e = allow_own<T, 1>(r.each);
        if (!e)
            e = allow_own<T, 2>(r.each);
        if (!e)
            e = allow_own<T, 4>(r.each);
    }
    return e;
}

#define DOT_CUDA_TYPE(name)                                                                        \
    extern "C" const struct dot_cuda_type dot_cuda_##name = {                                      \
        launch_rows<name>, launch_items<name, 2>, launch_items<name, 1>, load_kernels<name>}
