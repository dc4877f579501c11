/* The launches of a pass. What differs from pass to pass is read by kernels from one block of mapped memory, so
 * that a recorded graph serves all passes of a shape, a half of the arenas and a kind (one token, or a few). */
#include "gpu-worker/experts_cuda.h"

#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu-worker/handoff.cuh"
extern "C" {
#include "kernels/dot/dot_cuda.h"
#include "kernels/matmul/matmul_cuda.h"
#include "kernels/quantise/quantise.h"
#include "kernels/type/type.h"
}
#include "kernels/early.cuh"
#include "kernels/func/func.cuh"
#include "kernels/quantise/quantise.cuh"

enum {
    KIND_ONE, /* one token */
    KIND_FEW, /* up to EXPERT_TOKENS */
    KINDS,
    TAKE_WARPS = 4,
    FINISH_THREADS = 256,
    SIDES = 8, /* streams for products that fill no card alone */
    PARTS = 7, /* of the lists */
    MOST_ROWS = 8192, /* of blocks */
    QUERY_EVERY = 8192, /* polls between two questions whether the card has failed */
    WARM_S = 60
};

struct control { /* mapped, and its copy on the card */
    uint64_t number; /* of the pass: what the stamp will say */
    uint32_t n_items, n_tokens;
};

struct experts_cuda {
    struct experts_cuda_config c;
    cudaStream_t stream;
    cudaGraphExec_t *graph; /* [shape][half][kind] */
    cudaStream_t side[SIDES];
    cudaEvent_t ready, done[SIDES];
    /* mapped: control, slots, items, shares, many, tok, row, stamp */
    uint8_t *host, *mapped;
    struct experts_cuda_lists lists;
    uint64_t stamp_at;
    /* on the card, laid out as in mapped memory up to the stamp */
    uint8_t *copy;
    uint64_t part_at[PARTS];
    uint8_t *act[2], *mid; /* gate's operands, up's; down's, by pair */
    float *hidden, *y, *tmp;
    float *gate, *up, *pair_y; /* by pair */
    uint32_t ld_hidden;
    unsigned *arrived;
    uint64_t number;
    uint32_t polls;
    int broken;
};

static int failed(const struct experts_cuda *x, int rc, const char *what, struct err *e)
{
    return err_set(e, -EIO, "%s: %s: %s", card_name(x->c.card), what, cudaGetErrorString((cudaError_t)rc));
}

/* ---- launches overlap: a kernel's blocks come to their places while the one before it ends ---- */

template <class K> static int launch_early(void (*kernel)(K), dim3 grid, unsigned threads, cudaStream_t stream, const K *k)
{
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute early = {};

    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    c.gridDim = grid;
    c.blockDim = dim3(threads);
    c.stream = stream;
    c.attrs = &early;
    c.numAttrs = 1;
    return cudaLaunchKernelEx(&c, kernel, *k);
}

/* ---- taking: vectors and lists to the card ---- */

struct taking {
    const uint8_t *from; /* mapped: control and lists */
    uint8_t *to;
    uint32_t at[PARTS], words[PARTS]; /* parts of both: where, and how many pieces of 8 bytes */
    const float *acts;
    uint32_t ld, n, n_tokens; /* n_tokens 0: as control says */
    int form[2];              /* [1] < 0: as [0] */
    uint8_t *out[2];
    size_t stride[2];
};

/* One vector as an operand, by gridDim.x blocks: a warp takes 256 values, or 128, at a time */
static __device__ void operand(int form, const float *x, uint32_t n, uint8_t *out)
{
    uint32_t warp = blockIdx.x * TAKE_WARPS + threadIdx.x / 32, warps = gridDim.x * TAKE_WARPS;

    if (form == ACT_A256)
        for (uint32_t u = warp; u < n / 256; u += warps)
            cu_quantise_256(x + 256 * u, u, n, out);
    else if (form == ACT_A32)
        for (uint32_t u = 4 * warp; u < n / 32; u += 4 * warps)
            cu_quantise_4x32(x + 32 * u, u, n, out);
    else
        for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
            ((float *)out)[i] = x[i];
}

/* Row 0 of blocks copies the lists, each other row takes a vector (and every gridDim.y - 1st after it). All
 * loads from mapped memory of one thread are independent: the link's latency is paid once. */
static __global__ void take(const __grid_constant__ taking k)
{
    next_may_start();
    if (blockIdx.y == 0) {
        for (int p = 0; p < PARTS; p++) {
            const uint2 *from = (const uint2 *)(k.from + k.at[p]);
            uint2 *to = (uint2 *)(k.to + k.at[p]);
            for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < k.words[p]; i += gridDim.x * blockDim.x)
                to[i] = from[i];
        }
        return;
    }
    uint32_t n_tokens = k.n_tokens ? k.n_tokens : ((const control *)k.from)->n_tokens;
    for (uint32_t t = blockIdx.y - 1; t < n_tokens; t += gridDim.y - 1)
        for (int f = 0; f < 2; f++)
            if (k.form[f] >= 0)
                operand(k.form[f], k.acts + (size_t)t * k.ld, k.n, k.out[f] + t * k.stride[f]);
}

/* ---- finishing: rows to mapped memory, and the stamp ---- */

struct finishing {
    const control *control;
    const expert_item *items;
    const uint32_t *shares;
    const float *y, *h; /* on the card */
    float *rows, *inter; /* mapped; rows NULL: they are there. inter NULL: not wanted */
    uint32_t n_embd, n_ff, ld_embd, ld_ff, ld_hidden, n_nodes;
    uint64_t *stamp;
    unsigned *arrived;
};

/* columns [c0, c1) of one row, by gridDim.x blocks; c0 % 4 == 0 */
static __device__ void columns(float *to, const float *from, uint32_t c0, uint32_t c1)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;

    if (((size_t)to | (size_t)from) % 16 == 0 && c1 % 4 == 0)
        for (i += c0 / 4; i < c1 / 4; i += step)
            ((float4 *)to)[i] = ((const float4 *)from)[i];
    else
        for (i += c0; i < c1; i += step)
            to[i] = from[i];
}
/* the wanted shares' columns of a row of n values */
static __device__ void wanted(float *to, const float *from, uint32_t n, uint32_t shares, uint32_t n_nodes)
{
    if (shares == (1u << n_nodes) - 1)
        return columns(to, from, 0, n);
    for (uint32_t k = 0; k < n_nodes; k++)
        if (shares >> k & 1)
            columns(to, from, k ? (uint32_t)((uint64_t)n * k / n_nodes) & ~3u : 0,
                    k + 1 == n_nodes ? n : (uint32_t)((uint64_t)n * (k + 1) / n_nodes) & ~3u);
}

/* blockIdx.y walks over items. */
static __global__ void finish(const __grid_constant__ finishing k)
{
    before_is_done();
    uint32_t n = k.rows ? k.control->n_items : 0;

    for (uint32_t i = blockIdx.y; i < n; i += gridDim.y) {
        const expert_item &item = k.items[i];
        for (uint32_t j = 0; j < item.n_tok; j++) {
            size_t row = item.row[j];
            wanted(k.rows + row * k.ld_embd, k.y + row * k.ld_embd, k.n_embd, k.shares[i], k.n_nodes);
            if (k.inter)
                wanted(k.inter + row * k.ld_ff, k.h + row * k.ld_hidden, k.n_ff, k.shares[i], k.n_nodes);
        }
    }
    handoff_publish(k.stamp, k.control->number, k.arrived, gridDim.x * gridDim.y);
}

/* ---- experts with many vectors: everything by pair, a block a pair ---- */

struct joining {
    const float *gate, *up;
    const uint32_t *row;
    float *h; /* by row */
    uint8_t *mid;
    size_t stride; /* of mid */
    uint32_t n_pairs, n_ff, ld_hidden;
    int form;
    float limit;
};
/* gridDim.x is 1. The activation, and by the same block, which is the only one of its row, down's operand */
static __global__ void join_many(const __grid_constant__ joining k)
{
    for (uint32_t p = blockIdx.y; p < k.n_pairs; p += gridDim.y) {
        const float *g = k.gate + (size_t)p * k.n_ff, *u = k.up + (size_t)p * k.n_ff;
        float *h = k.h + (size_t)k.row[p] * k.ld_hidden;

        for (uint32_t r = threadIdx.x; r < k.n_ff; r += blockDim.x)
            h[r] = cu_swiglu(g[r], u[r], k.limit);
        __syncthreads();
        operand(k.form, h, k.n_ff, k.mid + p * k.stride);
    }
}

/* rows: mapped */
static __global__ void scatter_many(const __grid_constant__ finishing k, const float *pair_y,
                                    const experts_cuda_many *many, uint32_t n_many, const uint32_t *row,
                                    uint32_t n_pairs, float *rows)
{
    for (uint32_t p = blockIdx.y, i = 0; p < n_pairs; p += gridDim.y) {
        size_t to = row[p];

        while (i + 1 < n_many && p >= many[i + 1].first)
            i++;
        wanted(rows + to * k.ld_embd, pair_y + (size_t)p * k.n_embd, k.n_embd, many[i].shares, k.n_nodes);
        if (k.inter)
            wanted(k.inter + to * k.ld_ff, k.h + to * k.ld_hidden, k.n_ff, many[i].shares, k.n_nodes);
    }
}

static __global__ void wrong(void)
{
    *(volatile int *)16 = 1;
}

/* ---- launches ---- */

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

enum { CONTROL, SLOT, ITEM, SHARES, MANY, TOK, ROW };

static void take_of(const struct experts_cuda *x, const struct experts_cuda_pass *p, struct taking *t)
{
    const struct expert_shape *s = &x->c.shape[p->shape];
    const struct type_info *gate = type_info(s->type[EXPERT_GATE]), *up = type_info(s->type[EXPERT_UP]);

    t->from = x->mapped;
    t->to = x->copy;
    for (int i = 0; i < PARTS; i++)
        t->at[i] = (uint32_t)x->part_at[i];
    t->words[CONTROL] = sizeof(control) / 8;
    t->words[SLOT] = p->n_slots * (uint32_t)sizeof(expert_slot) / 8;
    t->words[ITEM] = p->n_items * (uint32_t)sizeof(expert_item) / 8;
    t->words[SHARES] = (p->n_items + 1) / 2;
    t->words[MANY] = p->n_many * (uint32_t)sizeof(experts_cuda_many) / 8;
    t->words[TOK] = t->words[ROW] = (p->n_pairs + 1) / 2;
    t->acts = x->c.half[p->half].acts;
    t->ld = x->c.ld_embd;
    t->n = s->n_embd;
    t->n_tokens = p->n_tokens;
    t->form[0] = gate->act;
    t->form[1] = gate->act != up->act ? up->act : -1;
    t->out[0] = x->act[0], t->out[1] = x->act[1];
    t->stride[0] = act_stride(gate->act, s->n_embd);
    t->stride[1] = act_stride(up->act, s->n_embd);
}

static void finish_of(const struct experts_cuda *x, const struct experts_cuda_pass *p, int direct, struct finishing *f)
{
    const struct expert_shape *s = &x->c.shape[p->shape];

    f->control = (const control *)x->copy;
    f->items = (const expert_item *)(x->copy + x->part_at[ITEM]);
    f->shares = (const uint32_t *)(x->copy + x->part_at[SHARES]);
    f->y = x->y, f->h = x->hidden;
    f->rows = direct ? NULL : x->c.half[p->half].rows;
    f->inter = x->c.n_nodes > 1 ? x->c.half[p->half].inter : NULL;
    f->n_embd = s->n_embd, f->n_ff = s->n_ff;
    f->ld_embd = x->c.ld_embd, f->ld_ff = x->c.ld_ff, f->ld_hidden = x->ld_hidden;
    f->n_nodes = x->c.n_nodes;
    f->stamp = (uint64_t *)(x->mapped + x->stamp_at);
    f->arrived = x->arrived;
}

/* Products of one kind for all experts with many vectors, over the side streams; the main stream goes on when
 * all are over. */
static int products(struct experts_cuda *x, const struct experts_cuda_pass *p, int down)
{
    const struct expert_shape *s = &x->c.shape[p->shape];
    const uint32_t *tok = (const uint32_t *)(x->copy + x->part_at[TOK]);
    const expert_slot *slots = (const expert_slot *)(x->copy + x->part_at[SLOT]);
    size_t mid = act_stride(type_info(s->type[EXPERT_DOWN])->act, s->n_ff);
    int e = cudaEventRecord(x->ready, x->stream);

    for (int i = 0; i < SIDES && !e; i++)
        e = cudaStreamWaitEvent(x->side[i], x->ready, 0);
    for (uint32_t i = 0; i < p->n_many; i++) {
        const struct experts_cuda_many *m = &x->lists.many[i];
        const struct expert_slot *slot = &x->lists.slot[m->slot];
        cudaStream_t to = x->side[i % SIDES];
        for (int k = down ? EXPERT_DOWN : EXPERT_GATE; k <= (down ? EXPERT_DOWN : EXPERT_UP) && !e; k++) {
            const float *scale = slot->scale[k] != 1.0f ? &slots[m->slot].scale[k] : NULL;
            int form = k == EXPERT_UP && type_info(s->type[0])->act != type_info(s->type[1])->act;
            if (down)
                e = matmul_cuda(s->type[k], slot->w[k], s->row_bytes[k], s->n_ff, s->n_embd, x->mid + m->first * mid,
                                mid, NULL, m->n, scale, NULL, x->pair_y + (size_t)m->first * s->n_embd, s->n_embd, to);
            else
                e = matmul_cuda(s->type[k], slot->w[k], s->row_bytes[k], s->n_embd, s->n_ff, x->act[form],
                                act_stride(type_info(s->type[k])->act, s->n_embd), tok + m->first, m->n, scale, NULL,
                                (k == EXPERT_GATE ? x->gate : x->up) + (size_t)m->first * s->n_ff, s->n_ff, to);
        }
    }
    for (int i = 0; i < SIDES && !e; i++)
        if (!(e = cudaEventRecord(x->done[i], x->side[i])))
            e = cudaStreamWaitEvent(x->stream, x->done[i], 0);
    return e;
}

static int launch_many(struct experts_cuda *x, const struct experts_cuda_pass *p)
{
    const struct expert_shape *s = &x->c.shape[p->shape];
    const uint32_t *row = (const uint32_t *)(x->copy + x->part_at[ROW]);
    struct joining j = {};
    struct finishing f = {};
    int e = products(x, p, 0);

    if (e)
        return e;
    j.gate = x->gate, j.up = x->up;
    j.row = row;
    j.h = x->hidden;
    j.mid = x->mid;
    j.form = type_info(s->type[EXPERT_DOWN])->act;
    j.stride = act_stride((enum act_form)j.form, s->n_ff);
    j.n_pairs = p->n_pairs;
    j.n_ff = s->n_ff;
    j.ld_hidden = x->ld_hidden;
    j.limit = s->limit;
    join_many<<<dim3(1, least(p->n_pairs, MOST_ROWS)), 32 * TAKE_WARPS, 0, x->stream>>>(j);
    if ((e = cudaGetLastError()) || (e = products(x, p, 1)))
        return e;
    finish_of(x, p, 1, &f);
    scatter_many<<<dim3(1, least(p->n_pairs, MOST_ROWS)), FINISH_THREADS, 0, x->stream>>>(
        f, x->pair_y, (const experts_cuda_many *)(x->copy + x->part_at[MANY]), p->n_many, row, p->n_pairs,
        x->c.half[p->half].rows);
    return cudaGetLastError();
}

/* n_tokens 0: as control says, at most EXPERT_TOKENS. Slots and items: so many are copied. */
static int launch(struct experts_cuda *x, const struct experts_cuda_pass *p, uint32_t rows_of_blocks)
{
    const struct expert_shape *s = &x->c.shape[p->shape];
    /* a decode with one node: all of a row is wanted, and goes where it belongs at once. Many vectors' results
     * would cross the link a few bytes at a time. */
    int e, direct = x->c.n_nodes == 1 && p->n_tokens <= EXPERT_TOKENS;
    float *y = direct ? x->c.half[p->half].rows : x->y;
    struct expert_work work = {};
    struct taking t = {};
    struct finishing f = {};

    take_of(x, p, &t);
    take<<<dim3((s->n_embd + 511) / 512, 1 + least(rows_of_blocks, 1024)), 32 * TAKE_WARPS, 0, x->stream>>>(t);
    if ((e = cudaGetLastError()) || (p->n_many && (e = launch_many(x, p))))
        return e;
    work.slots = (const expert_slot *)(x->copy + x->part_at[SLOT]);
    work.items = (const expert_item *)(x->copy + x->part_at[ITEM]);
    work.n_items = &((const control *)x->copy)->n_items;
    work.max_rows = x->c.max_rows;
    work.several = p->several;
    if (p->n_items &&
        ((e = expert_gate_up_cuda(s, &work, x->act[0], t.stride[0], t.form[1] < 0 ? x->act[0] : x->act[1], t.stride[1],
                                  x->tmp, x->hidden, x->ld_hidden, x->stream)) ||
         (e = expert_down_cuda(s, &work, x->hidden, x->ld_hidden, y, x->c.ld_embd, x->stream))))
        return e;
    finish_of(x, p, direct, &f);
    if (direct)
        return launch_early(finish, dim3(1), 32, x->stream, &f);
    return launch_early(finish,
                        dim3((s->n_embd + 4 * FINISH_THREADS - 1) / (4 * FINISH_THREADS),
                             p->n_items ? least(p->n_items, 256) : 1),
                        FINISH_THREADS, x->stream, &f);
}

static cudaGraphExec_t *graph_of(struct experts_cuda *x, uint32_t shape, uint32_t half, int kind)
{
    return &x->graph[(shape * EXPERTS_CUDA_HALVES + half) * KINDS + kind];
}

static int record(struct experts_cuda *x, uint32_t shape, uint32_t half, int kind, struct err *e)
{
    uint32_t tokens = kind == KIND_ONE ? 1 : least(EXPERT_TOKENS, x->c.max_tokens);
    uint32_t rows = least(tokens * x->c.top_k, x->c.max_rows);
    struct experts_cuda_pass p = {shape, half, kind == KIND_ONE ? 1u : 0, least(rows, x->c.max_slots), rows, 0, 0,
                                  kind != KIND_ONE};
    cudaGraphExec_t *to = graph_of(x, shape, half, kind);
    cudaGraph_t graph = NULL;
    int rc = cudaStreamBeginCapture(x->stream, cudaStreamCaptureModeThreadLocal), end;

    if (rc)
        return failed(x, rc, "recording the experts", e);
    rc = launch(x, &p, tokens);
    end = cudaStreamEndCapture(x->stream, &graph);
    if (!rc)
        rc = end;
    if (!rc)
        rc = cudaGraphInstantiate(to, graph, 0);
    if (!rc)
        rc = cudaGraphUpload(*to, x->stream);
    if (graph)
        cudaGraphDestroy(graph);
    return rc ? failed(x, rc, "recording the experts", e) : 0;
}

int experts_cuda_run(struct experts_cuda *x, const struct experts_cuda_pass *p, struct err *e)
{
    struct control *c = (struct control *)x->host;
    int rc;

    c->number = ++x->number;
    c->n_items = p->n_items;
    c->n_tokens = p->n_tokens;
    x->polls = 0;
    if (x->broken)
        wrong<<<1, 1, 0, x->stream>>>();
    if (p->n_tokens <= EXPERT_TOKENS)
        rc = cudaGraphLaunch(*graph_of(x, p->shape, p->half, p->n_tokens == 1 ? KIND_ONE : KIND_FEW), x->stream);
    else
        rc = launch(x, p, p->n_tokens);
    return rc ? failed(x, rc, "experts", e) : 0;
}

int experts_cuda_poll(struct experts_cuda *x, struct err *e)
{
    const uint64_t *stamp = (const uint64_t *)(x->host + x->stamp_at);
    cudaError_t rc;

    if (__atomic_load_n(stamp, __ATOMIC_ACQUIRE) == x->number)
        return 1;
    if (++x->polls % QUERY_EVERY)
        return 0;
    rc = cudaStreamQuery(x->stream);
    if (rc == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return 0;
    }
    if (rc)
        return failed(x, rc, "experts", e);
    if (__atomic_load_n(stamp, __ATOMIC_ACQUIRE) == x->number)
        return 1;
    return err_set(e, -EIO, "%s: experts: the pass ended without its stamp", card_name(x->c.card));
}

void experts_cuda_break(struct experts_cuda *x)
{
    x->broken = 1;
}

struct experts_cuda_lists experts_cuda_lists(struct experts_cuda *x)
{
    return x->lists;
}

/* ---- life ---- */

static uint64_t place(uint64_t *at, uint64_t bytes)
{
    uint64_t here = *at;

    *at += (bytes + 255) & ~(uint64_t)255;
    return here;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static int take_lists(struct experts_cuda *x, uint64_t *bytes, struct err *e)
{
    const struct experts_cuda_config *c = &x->c;
    const uint64_t part[PARTS] = {sizeof(control),
                                  c->max_slots * sizeof(expert_slot),
                                  c->max_rows * sizeof(expert_item),
                                  (c->max_rows + 1) * sizeof(uint32_t),
                                  c->max_slots * sizeof(experts_cuda_many),
                                  (c->max_rows + 1) * sizeof(uint32_t),
                                  (c->max_rows + 1) * sizeof(uint32_t)};
    void *host, *mapped;
    int rc;

    *bytes = 0;
    for (int i = 0; i < PARTS; i++)
        x->part_at[i] = place(bytes, part[i]);
    x->stamp_at = place(bytes, sizeof(uint64_t));
    if ((rc = card_shared(c->card, *bytes, "the lists of a pass", &host, &mapped, e)))
        return rc;
    x->host = (uint8_t *)host;
    x->mapped = (uint8_t *)mapped;
    x->lists.slot = (expert_slot *)(x->host + x->part_at[SLOT]);
    x->lists.item = (expert_item *)(x->host + x->part_at[ITEM]);
    x->lists.shares = (uint32_t *)(x->host + x->part_at[SHARES]);
    x->lists.many = (experts_cuda_many *)(x->host + x->part_at[MANY]);
    x->lists.tok = (uint32_t *)(x->host + x->part_at[TOK]);
    x->lists.row = (uint32_t *)(x->host + x->part_at[ROW]);
    return 0;
}

static int take_memory(struct experts_cuda *x, struct err *e)
{
    const struct experts_cuda_config *c = &x->c;
    uint64_t rows = c->max_rows, many = c->max_tokens > EXPERT_TOKENS ? rows : 0;
    size_t stride[EXPERT_MATS] = {0, 0, 0}, tmp = 0;
    uint64_t lists, card = 0;
    void *base;
    int rc = take_lists(x, &lists, e);

    if (rc)
        return rc;
    for (uint32_t i = 0; i < c->n_shapes; i++) {
        const struct expert_shape *s = &c->shape[i];
        for (int k = 0; k < EXPERT_MATS; k++)
            stride[k] = larger(stride[k], act_stride(type_info(s->type[k])->act, k == EXPERT_DOWN ? s->n_ff : s->n_embd));
        tmp = larger(tmp, expert_cuda_tmp(s, c->max_rows));
    }
    x->ld_hidden = (c->ld_ff + 3) & ~3u;
    const struct {
        void **to;
        uint64_t bytes;
    } part[] = {{(void **)&x->copy, lists},
                {(void **)&x->act[0], c->max_tokens * stride[0]},
                {(void **)&x->act[1], c->max_tokens * stride[1]},
                {(void **)&x->hidden, rows * x->ld_hidden * sizeof(float)},
                {(void **)&x->y, c->n_nodes > 1 || many ? rows * c->ld_embd * sizeof(float) : 0},
                {(void **)&x->tmp, tmp * sizeof(float)},
                {(void **)&x->gate, many * c->ld_ff * sizeof(float)},
                {(void **)&x->up, many * c->ld_ff * sizeof(float)},
                {(void **)&x->mid, many * stride[EXPERT_DOWN]},
                {(void **)&x->pair_y, many * c->ld_embd * sizeof(float)},
                {(void **)&x->arrived, sizeof *x->arrived}};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        place(&card, part[i].bytes);
    if ((rc = card_alloc(c->card, card, "a pass of its experts", &base, e)))
        return rc;
    card = 0;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        *part[i].to = (uint8_t *)base + place(&card, part[i].bytes);
    rc = cudaMemsetAsync(base, 0, card, x->stream);
    return rc ? failed(x, rc, "clearing memory", e) : 0;
}

/* One pass to its end. */
static int first_pass(struct experts_cuda *x, const struct experts_cuda_pass *p, struct err *e)
{
    time_t end = time(NULL) + WARM_S;
    int rc = experts_cuda_run(x, p, e);

    while (!rc && !(rc = experts_cuda_poll(x, e)))
        if (time(NULL) > end)
            return err_set(e, -EIO, "%s: the first pass does not end within %d s", card_name(x->c.card), WARM_S);
    return rc < 0 ? rc : 0;
}

/* Passes of whose rows none is wanted through every graph, and through launches: the first launch of a kernel
 * waits for whatever runs. */
static int warm(struct experts_cuda *x, struct err *e)
{
    const uint32_t most = x->c.max_tokens, pairs = EXPERTS_CUDA_FEW + 1;

    memset(x->lists.item, 0, sizeof *x->lists.item);
    x->lists.item[0].n_tok = 1; /* its row in the outbox is no call's */
    x->lists.shares[0] = 0;
    for (int k = 0; k < EXPERT_MATS; k++) {
        x->lists.slot[0].w[k] = x->c.weights;
        x->lists.slot[0].scale[k] = 1;
    }
    for (uint32_t i = 0; i < pairs && most >= pairs; i++)
        x->lists.tok[i] = x->lists.row[i] = i;
    for (uint32_t s = 0; s < x->c.n_shapes; s++) {
        for (uint32_t i = 0; i < EXPERTS_CUDA_HALVES * KINDS; i++) {
            struct experts_cuda_pass p = {s, i / KINDS, 1 + i % KINDS, 0, 0, 0, 0, 0};
            int rc = p.n_tokens > most ? 0 : first_pass(x, &p, e);
            if (rc)
                return rc;
        }
        for (int several = 0; several < 2 && most >= pairs; several++) {
            struct experts_cuda_pass p = {s, 0, most, 1, 1, 1, pairs, several};
            int rc;
            x->lists.many[0] = {0, 0, pairs, 0};
            if ((rc = first_pass(x, &p, e)))
                return rc;
        }
    }
    return 0;
}

int experts_cuda_open(const struct experts_cuda_config *c, struct experts_cuda **out, struct err *e)
{
    struct experts_cuda *x = (struct experts_cuda *)calloc(1, sizeof *x);
    int rc;

    *out = x;
    if (!x)
        return err_set(e, -ENOMEM, "no memory");
    x->c = *c;
    x->graph = (cudaGraphExec_t *)calloc((size_t)c->n_shapes * EXPERTS_CUDA_HALVES * KINDS, sizeof *x->graph);
    if (!x->graph)
        return err_set(e, -ENOMEM, "no memory");
    if ((rc = cudaStreamCreateWithFlags(&x->stream, cudaStreamNonBlocking)))
        return failed(x, rc, "a stream", e);
    for (int i = 0; i < SIDES && !rc; i++)
        if (!(rc = cudaStreamCreateWithFlags(&x->side[i], cudaStreamNonBlocking)))
            rc = cudaEventCreateWithFlags(&x->done[i], cudaEventDisableTiming);
    if (!rc)
        rc = cudaEventCreateWithFlags(&x->ready, cudaEventDisableTiming);
    if (rc)
        return failed(x, rc, "streams", e);
    if ((rc = take_memory(x, e)))
        return rc;
    if ((rc = products_load_cuda()))
        return failed(x, rc, "loading kernels", e);
    for (uint32_t s = 0; s < c->n_shapes; s++)
        for (uint32_t h = 0; h < EXPERTS_CUDA_HALVES; h++)
            for (int k = 0; k < KINDS; k++)
                if ((rc = record(x, s, h, k, e)))
                    return rc;
    return warm(x, e);
}

void experts_cuda_close(struct experts_cuda *x)
{
    if (!x)
        return;
    free(x->graph); /* what lies on the card goes with it (card_close) */
    free(x);
}
