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
#include "kernels/quantise/quantise.h"
#include "kernels/type/type.h"
}
#include "kernels/quantise/quantise.cuh"

enum {
    KIND_ONE, /* one token */
    KIND_FEW, /* up to EXPERT_TOKENS */
    KINDS,
    TAKE_WARPS = 4,
    FINISH_THREADS = 256,
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
    /* mapped: control, slots, items, shares, stamp */
    uint8_t *host, *mapped;
    struct experts_cuda_lists lists;
    uint64_t stamp_at;
    /* on the card, laid out as in mapped memory up to the stamp */
    uint8_t *copy;
    uint64_t slot_at, item_at, shares_at;
    uint8_t *act[2]; /* gate's operands, up's */
    float *hidden, *y, *tmp;
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

/* ---- taking: vectors and lists to the card ---- */

struct taking {
    const uint8_t *from; /* mapped: control and lists */
    uint8_t *to;
    uint32_t at[4], words[4]; /* parts of both: where, and how many pieces of 8 bytes */
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
    if (blockIdx.y == 0) {
        for (int p = 0; p < 4; p++) {
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
    float *rows, *inter; /* mapped; inter NULL: not wanted */
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
    uint32_t n = k.control->n_items;

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

static __global__ void wrong(void)
{
    *(volatile int *)16 = 1;
}

/* ---- launches ---- */

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* n_tokens 0: as control says, at most EXPERT_TOKENS. Slots and items: so many are copied. */
static int launch(struct experts_cuda *x, const struct experts_cuda_pass *p, uint32_t rows_of_blocks)
{
    const struct expert_shape *s = &x->c.shape[p->shape];
    const struct experts_cuda_half *half = &x->c.half[p->half];
    const struct type_info *gate = type_info(s->type[EXPERT_GATE]), *up = type_info(s->type[EXPERT_UP]);
    int two = gate->act != up->act, e;
    struct expert_work work = {};
    struct taking t = {};
    struct finishing f = {};

    t.from = x->mapped;
    t.to = x->copy;
    t.at[1] = (uint32_t)x->slot_at, t.at[2] = (uint32_t)x->item_at, t.at[3] = (uint32_t)x->shares_at;
    t.words[0] = sizeof(control) / 8;
    t.words[1] = p->n_slots * (uint32_t)sizeof(expert_slot) / 8;
    t.words[2] = p->n_items * (uint32_t)sizeof(expert_item) / 8;
    t.words[3] = (p->n_items + 1) / 2;
    t.acts = half->acts;
    t.ld = x->c.ld_embd;
    t.n = s->n_embd;
    t.n_tokens = p->n_tokens;
    t.form[0] = gate->act;
    t.form[1] = two ? up->act : -1;
    t.out[0] = x->act[0], t.out[1] = x->act[1];
    t.stride[0] = act_stride(gate->act, s->n_embd);
    t.stride[1] = act_stride(up->act, s->n_embd);
    take<<<dim3((s->n_embd + 511) / 512, 1 + least(rows_of_blocks, 1024)), 32 * TAKE_WARPS, 0, x->stream>>>(t);
    if ((e = cudaGetLastError()))
        return e;
    work.slots = (const expert_slot *)(x->copy + x->slot_at);
    work.items = (const expert_item *)(x->copy + x->item_at);
    work.n_items = &((const control *)x->copy)->n_items;
    work.max_rows = x->c.max_rows;
    work.several = p->several;
    if ((e = expert_gate_up_cuda(s, &work, x->act[0], t.stride[0], two ? x->act[1] : x->act[0], t.stride[1], x->tmp,
                                 x->hidden, x->ld_hidden, x->stream)) ||
        (e = expert_down_cuda(s, &work, x->hidden, x->ld_hidden, x->y, x->c.ld_embd, x->stream)))
        return e;
    f.control = (const control *)x->copy;
    f.items = work.items;
    f.shares = (const uint32_t *)(x->copy + x->shares_at);
    f.y = x->y, f.h = x->hidden;
    f.rows = half->rows;
    f.inter = x->c.n_nodes > 1 ? half->inter : NULL;
    f.n_embd = s->n_embd, f.n_ff = s->n_ff;
    f.ld_embd = x->c.ld_embd, f.ld_ff = x->c.ld_ff, f.ld_hidden = x->ld_hidden;
    f.n_nodes = x->c.n_nodes;
    f.stamp = (uint64_t *)(x->mapped + x->stamp_at);
    f.arrived = x->arrived;
    finish<<<dim3((s->n_embd + 4 * FINISH_THREADS - 1) / (4 * FINISH_THREADS), least(p->n_items, 256)), FINISH_THREADS,
             0, x->stream>>>(f);
    return cudaGetLastError();
}

static cudaGraphExec_t *graph_of(struct experts_cuda *x, uint32_t shape, uint32_t half, int kind)
{
    return &x->graph[(shape * EXPERTS_CUDA_HALVES + half) * KINDS + kind];
}

static int record(struct experts_cuda *x, uint32_t shape, uint32_t half, int kind, struct err *e)
{
    uint32_t tokens = kind == KIND_ONE ? 1 : least(EXPERT_TOKENS, x->c.max_tokens);
    uint32_t rows = least(tokens * x->c.top_k, x->c.max_rows);
    struct experts_cuda_pass p = {shape, half, kind == KIND_ONE ? 1u : 0, least(rows, x->c.max_slots), rows,
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

static int take_memory(struct experts_cuda *x, struct err *e)
{
    const struct experts_cuda_config *c = &x->c;
    size_t stride[2] = {0, 0}, tmp = 0, n;
    uint64_t at = 0, card = 0, act[2], hidden, y, tmp_at, arrived;
    void *base, *host, *mapped;
    int rc;

    for (uint32_t i = 0; i < c->n_shapes; i++) {
        for (int f = 0; f < 2; f++) {
            n = act_stride(type_info(c->shape[i].type[f])->act, c->shape[i].n_embd);
            stride[f] = n > stride[f] ? n : stride[f];
        }
        n = expert_cuda_tmp(&c->shape[i], c->max_rows);
        tmp = n > tmp ? n : tmp;
    }
    place(&at, sizeof(control));
    x->slot_at = place(&at, c->max_slots * sizeof(expert_slot));
    x->item_at = place(&at, c->max_rows * sizeof(expert_item));
    x->shares_at = place(&at, (c->max_rows + 1) * sizeof(uint32_t));
    x->stamp_at = place(&at, sizeof(uint64_t));
    if ((rc = card_shared(c->card, at, "the lists of a pass", &host, &mapped, e)))
        return rc;
    x->host = (uint8_t *)host;
    x->mapped = (uint8_t *)mapped;
    x->lists.slot = (expert_slot *)(x->host + x->slot_at);
    x->lists.item = (expert_item *)(x->host + x->item_at);
    x->lists.shares = (uint32_t *)(x->host + x->shares_at);
    x->ld_hidden = (c->ld_ff + 3) & ~3u;
    place(&card, at);
    for (int f = 0; f < 2; f++)
        act[f] = place(&card, c->max_tokens * stride[f]);
    hidden = place(&card, (uint64_t)c->max_rows * x->ld_hidden * sizeof(float));
    y = place(&card, (uint64_t)c->max_rows * c->ld_embd * sizeof(float));
    tmp_at = place(&card, tmp * sizeof(float));
    arrived = place(&card, sizeof *x->arrived);
    if ((rc = card_alloc(c->card, card, "a pass of its experts", &base, e)))
        return rc;
    x->copy = (uint8_t *)base;
    for (int f = 0; f < 2; f++)
        x->act[f] = x->copy + act[f];
    x->hidden = (float *)(x->copy + hidden);
    x->y = (float *)(x->copy + y);
    x->tmp = (float *)(x->copy + tmp_at);
    x->arrived = (unsigned *)(x->copy + arrived);
    rc = cudaMemsetAsync(x->copy, 0, card, x->stream);
    return rc ? failed(x, rc, "clearing memory", e) : 0;
}

static int load_kernels(struct experts_cuda *x, struct err *e)
{
    for (uint32_t i = 0; i < x->c.n_shapes; i++)
        for (int m = 0; m < EXPERT_MATS; m++) {
            const struct dot_cuda_type *t = dot_cuda_type(x->c.shape[i].type[m]);
            int rc = t ? t->load() : (int)cudaErrorInvalidValue;
            if (rc)
                return failed(x, rc, "loading kernels", e);
        }
    return 0;
}

/* A pass without items through every graph, and through launches: the first launch of a kernel waits for
 * whatever runs. */
static int warm(struct experts_cuda *x, struct err *e)
{
    uint32_t many = x->c.max_tokens;

    for (uint32_t i = 0; i < x->c.n_shapes * EXPERTS_CUDA_HALVES; i++)
        for (uint32_t n = 1; n <= 3; n++) {
            struct experts_cuda_pass p = {i / EXPERTS_CUDA_HALVES, i % EXPERTS_CUDA_HALVES, n < 3 ? n : many, 0, 0,
                                          n > 1};
            time_t end = time(NULL) + WARM_S;
            int rc;
            if (p.n_tokens > many)
                continue;
            if (p.n_tokens > EXPERT_TOKENS) /* grids are never empty */
                p.n_slots = p.n_items = 1;
            memset(x->lists.item, 0, sizeof *x->lists.item);
            if ((rc = experts_cuda_run(x, &p, e)))
                return rc;
            while (!(rc = experts_cuda_poll(x, e)))
                if (time(NULL) > end)
                    return err_set(e, -EIO, "%s: the first pass does not end within %d s", card_name(x->c.card), WARM_S);
            if (rc < 0)
                return rc;
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
    if ((rc = take_memory(x, e)) || (rc = load_kernels(x, e)))
        return rc;
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
