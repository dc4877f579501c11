/* run_cuda over calls_cuda over the segments of a process. */
#include "gpu-worker/trunk_card.h"

#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

#include "gpu-worker/calls_cuda.h"
#include "gpu-worker/run_cuda.h"
#include "kernels/topk/topk_cuda.h"

enum { PAGE = 4096, BEHIND = 32 /* readable bytes behind a weight */ };

struct trunk_card {
    struct trunk_card_config c;
    struct geometry g;
    struct calls_cuda *calls;
    struct run_cuda *run;
    struct run_cuda_layer *layer;
    const void **weight; /* on the card */
    uint32_t *used;      /* by layer; 0: no experts */
    uint8_t *draft;      /* by layer: 1: the NextN block's */
};

/* ---- weights ---- */

static uint64_t weight_bytes(const struct trunk_card *t, uint32_t i)
{
    const struct prog_weight *w = &t->c.prog->weight[i];

    return t->c.vector[i] ? (uint64_t)w->cols * sizeof(float) : (uint64_t)w->rows * w->row_bytes;
}

/* The earlier weight that is the same bytes (a head that is the table of embeddings), or i. */
static uint32_t first_of(const struct trunk_card *t, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (t->c.weight[k] == t->c.weight[i] && weight_bytes(t, k) == weight_bytes(t, i))
            return k;
    return i;
}

static uint64_t lay_out(struct trunk_card *t, uint8_t *base)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < t->c.prog->n_weights; i++) {
        uint32_t k = first_of(t, i);
        t->weight[i] = k < i ? t->weight[k] : base + at;
        if (k == i)
            at += (weight_bytes(t, i) + BEHIND + 255) & ~(uint64_t)255;
    }
    return at;
}

/* On a stream of their own: the worker's expert thread may be at work already. */
static int upload(struct trunk_card *t, struct err *e)
{
    cudaStream_t s = NULL;
    cudaError_t rc;
    void *base;
    int code = card_alloc(t->c.card, lay_out(t, NULL), "the trunk's weights", &base, e);

    if (code)
        return code;
    lay_out(t, (uint8_t *)base);
    rc = cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    for (uint32_t i = 0; !rc && i < t->c.prog->n_weights; i++)
        if (first_of(t, i) == i)
            rc = cudaMemcpyAsync((void *)t->weight[i], t->c.weight[i], weight_bytes(t, i), cudaMemcpyHostToDevice,
                                 s);
    if (!rc)
        rc = cudaStreamSynchronize(s);
    if (s)
        cudaStreamDestroy(s);
    return rc ? err_set(e, -EIO, "%s: the trunk's weights: %s", card_name(t->c.card), cudaGetErrorString(rc)) : 0;
}

/* ---- segments ---- */

/* Whoever comes first maps a segment for the card. What we only read is mapped for reading, or for writing too
 * where the card takes nothing else. */
static int reach(const struct trunk_card *t, const void *base, uint64_t bytes, int writes, struct err *e)
{
    uint64_t whole = (bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
    void *dev;

    if (!cudaHostGetDevicePointer(&dev, (void *)base, 0))
        return 0;
    (void)cudaGetLastError();
    if (!writes && !card_map(t->c.card, base, whole, 0, &dev, e))
        return 0;
    return card_map(t->c.card, base, whole, 1, &dev, e);
}

static int reach_all(const struct trunk_card *t, struct err *e)
{
    const struct geometry *g = &t->g;
    int rc;

    if ((rc = reach(t, t->c.calls, calls_bytes(g), 1, e)) ||
        (rc = reach(t, t->c.acts, CALLS_IN_FLIGHT * g->acts_half, 1, e)) ||
        (rc = reach(t, t->c.amends, amends_bytes(g), 0, e)) || (rc = reach(t, t->c.tables, t->c.tables_bytes, 0, e)) ||
        (rc = reach(t, t->c.answers, answers_bytes(g), 1, e)))
        return rc;
    for (uint32_t i = 0; i < MAX_PROCS; i++) /* several numbers may be one segment */
        if (t->c.outbox[i] && (rc = reach(t, t->c.outbox[i], outbox_bytes(g), 0, e)))
            return rc;
    return 0;
}

/* ---- life ---- */

static void shapes(struct trunk_card *t)
{
    for (uint32_t i = 0; i < t->g.n_layers; i++) {
        const struct expert_layer *l = table_layer(t->c.tables, i);
        struct expert_shape *s = &t->layer[i].shape;

        s->n_embd = l->m[MAT_GATE].cols;
        s->n_ff = l->m[MAT_GATE].rows;
        s->limit = l->limit;
        for (int m = 0; m < EXPERT_MATS; m++) {
            s->type[m] = l->m[m].type;
            s->row_bytes[m] = l->m[m].row_bytes;
        }
    }
    for (uint32_t i = 0; i < t->c.prog->n_ops; i++)
        if (t->c.prog->op[i].kind == OP_MOE_CALL) {
            t->used[t->c.prog->op[i].n[0]] = t->c.prog->op[i].n[1];
            t->draft[t->c.prog->op[i].n[0]] = i >= t->c.prog->draft_at;
        }
}

static int open_calls(struct trunk_card *t, struct err *e)
{
    struct calls_cuda_config c = {};

    c.device = card_device(t->c.card);
    c.geo = &t->g;
    c.calls = t->c.calls;
    c.acts = t->c.acts;
    c.amends = t->c.amends;
    c.tables = t->c.tables;
    c.outbox = t->c.outbox;
    memcpy(c.owner, t->c.owner, sizeof c.owner);
    c.n_cards = t->c.n_cards;
    memcpy(c.card_slot0, t->c.card_slot0, sizeof c.card_slot0);
    c.pool = t->c.pool;
    c.slot0 = t->c.slot0;
    c.n_slots = t->c.n_slots;
    c.first = t->c.first;
    c.limit_ms = t->c.limit_ms;
    return calls_cuda_open(&c, &t->calls, e);
}

static int open_run(struct trunk_card *t, struct err *e)
{
    struct run_cuda_config c = {};
    void *logits;

    if (cudaHostGetDevicePointer(&logits, t->c.answers->data, 0))
        return err_set(e, -EIO, "%s: the answers' segment is out of reach", card_name(t->c.card));
    c.device = card_device(t->c.card);
    c.prog = t->c.prog;
    c.weight = t->weight;
    c.layer = t->layer;
    c.calls = t->calls;
    c.call_tokens = t->g.max_tokens;
    c.logits = (float *)logits;
    c.n_experts = t->g.n_experts;
    c.max_tokens = t->g.step_tokens;
    c.max_out = t->g.step_out;
    c.n_ctx = t->g.n_ctx;
    c.n_seqs = t->g.n_seqs;
    c.n_saved = t->g.n_saved;
    c.kv = t->c.kv;
    c.rows = t->c.rows;
    c.rows_arg = t->c.rows_arg;
    return run_cuda_open(&c, &t->run, e);
}

int trunk_card_open(const struct trunk_card_config *c, struct trunk_card **out, struct err *e)
{
    struct trunk_card *t = (struct trunk_card *)calloc(1, sizeof *t);
    int rc;

    *out = t;
    if (!t)
        return err_set(e, -ENOMEM, "no memory for the trunk on a card");
    t->c = *c;
    t->g = *c->geo;
    t->layer = (struct run_cuda_layer *)calloc(t->g.n_layers, sizeof *t->layer);
    t->weight = (const void **)calloc(c->prog->n_weights + 1, sizeof *t->weight);
    t->used = (uint32_t *)calloc(t->g.n_layers, sizeof *t->used);
    t->draft = (uint8_t *)calloc(t->g.n_layers, 1);
    if (!t->layer || !t->weight || !t->used || !t->draft)
        return err_set(e, -ENOMEM, "no memory for the trunk on a card");
    shapes(t);
    if ((rc = upload(t, e)) || (rc = reach_all(t, e)) || (rc = open_calls(t, e)))
        return rc;
    e->code = 0; /* of a first try */
    return open_run(t, e);
}

void trunk_card_close(struct trunk_card *t)
{
    if (!t)
        return;
    run_cuda_close(t->run);
    calls_cuda_close(t->calls);
    free(t->layer);
    free(t->weight);
    free(t->used);
    free(t->draft);
    free(t);
}

int trunk_card_begin(struct trunk_card *t, const struct step *s, const uint32_t *changed, size_t n,
                     const uint64_t *entry, struct err *e)
{
    calls_cuda_changes(t->calls, changed, n, entry);
    return run_cuda_step(t->run, s, e);
}
int trunk_card_poll(struct trunk_card *t, struct err *e)
{
    return run_cuda_poll(t->run, e);
}
static_assert(TOKEN_NONE == ARGMAX_NONE, "the same word for none");
const uint32_t *trunk_card_best(const struct trunk_card *t)
{
    return run_cuda_best(t->run);
}
void trunk_card_stop(struct trunk_card *t)
{
    calls_cuda_stop(t->calls);
}
/* One thread writes to where nothing is mapped. */
__global__ void fault_kernel(void)
{
    *(volatile uint32_t *)8 = 1;
}
void trunk_card_break(void)
{
    fault_kernel<<<1, 1>>>();
}
int trunk_card_save(struct trunk_card *t, uint32_t seq, uint32_t pos, uint32_t slot, struct err *e)
{
    return run_cuda_save(t->run, seq, pos, slot, e);
}
int trunk_card_restore(struct trunk_card *t, uint32_t slot, struct err *e)
{
    return run_cuda_restore(t->run, slot, e);
}
const uint32_t *trunk_card_choice(const struct trunk_card *t, uint32_t layer, int draft, uint32_t *used)
{
    *used = t->used[layer];
    return t->used[layer] && t->draft[layer] == draft ? calls_cuda_choice(t->calls, layer) : NULL;
}

void trunk_card_counters(const struct trunk_card *t, struct trunk_card_counters *c)
{
    const struct calls_cuda_counters n = calls_cuda_counters(t->calls);

    c->calls = n.calls;
    c->items = n.items;
    c->disk_items = n.disk_items;
    c->card_items = n.card_items;
    c->own_items = n.own_items;
    c->wait_ns = n.wait_ns;
    c->launch_ns = run_cuda_counters(t->run)->launch_ns;
}
