/* Decode of a model that lies wholly on the card: qwen3moe's program with large experts (4096 x 2048, of
 * 128 eight work), random weights made on the card. Tokens a second by batch and context, the host's
 * time a token, what each kind of operation takes (the same recorded list without it), and what it costs that
 * experts may come and go: the same with the card's own copy of the table in place of a fixed one. Then small
 * experts, some of which a node's worker on the host computes: what a layer's hand-off adds to their computing.
 *
 *   run_cuda_bench [LAYERS [SECONDS]] */
#include <time.h>

#include "gpu-worker/calls_cuda.h"
#include "gpu-worker/calls_rig.h"
#include "gpu-worker/clock.cuh"
#include "gpu-worker/run_cuda.h"
#include "tests/cuda.h"
extern "C" {
#include "coordinator/model/model.h"
#include "coordinator/trunk/arch/arch.h"
#include "kernels/type/type.h"
}
#include "kernels/moe/items_cuda.h"
#include "kernels/moe/moe_cuda.h"

enum {
    EMBD = 4096,
    TOP_K = 8,
    VOCAB = 151936,
    CTX = 32768,
    FILL_THREADS = 256
};

static __device__ __forceinline__ uint32_t mixed(uint64_t i)
{
    i = (i ^ i >> 30) * 0xBF58476D1CE4E5B9ull;
    i = (i ^ i >> 27) * 0x94D049BB133111EBull;
    return (uint32_t)(i >> 32);
}
/* random bytes in blocks of `block` bytes whose scales (f16 at 0, and at 2 where there are minima)
 * are small */
static __global__ void fill_blocks(uint8_t *p, uint64_t bytes, unsigned block, int minima,
                                   uint64_t seed)
{
    for (uint64_t i = blockIdx.x * (uint64_t)FILL_THREADS + threadIdx.x; i < bytes;
         i += gridDim.x * (uint64_t)FILL_THREADS) {
        unsigned at = (unsigned)(i % block);
        uint8_t v = (uint8_t)mixed(seed + i);
        if (at < 2 || (minima && at < 4))
            v = at % 2 ? 0x0C : v; /* 2^-12 and a little */
        p[i] = v;
    }
}
static __global__ void fill_floats(float *p, uint64_t n, float middle, float width, uint64_t seed)
{
    for (uint64_t i = blockIdx.x * (uint64_t)FILL_THREADS + threadIdx.x; i < n;
         i += gridDim.x * (uint64_t)FILL_THREADS)
        p[i] = middle + width * ((int)mixed(seed + i) * 0x1p-31f);
}

static uint64_t seed;
static void *made(uint32_t type, uint64_t values, float middle, float width)
{
    const struct type_info *t = type_info(type);
    uint64_t bytes = values / t->block_values * t->block_bytes;
    uint8_t *p;

    CUDA_OK(cudaMalloc(&p, bytes + 16));
    seed += 0x9E3779B97F4A7C15ull;
    if (type == W_F32)
        fill_floats<<<2048, FILL_THREADS>>>((float *)p, values, middle, width, seed);
    else
        fill_blocks<<<2048, FILL_THREADS>>>(p, bytes, t->block_bytes, type == W_Q4_K, seed);
    CUDA_OK(cudaGetLastError());
    return p;
}

/* ---- the model: only what arch_qwen3moe reads ---- */

struct whole {
    struct model m;
    struct program *prog;
    const void **weight;
    struct run_cuda_layer *layer;
    struct expert_layer shape; /* of every layer */
    uint8_t *pool;             /* expert e of layer l in slot l * n_experts + e */
    uint64_t expert_bytes, trunk_bytes; /* of one expert; read a token */
};

static uint32_t tensor(struct model *m, uint32_t type, uint64_t cols, uint64_t rows)
{
    struct model_tensor *t = &m->tensor[m->n_tensors];

    t->type = type;
    t->dims[0] = cols;
    t->dims[1] = rows;
    t->dims[2] = t->dims[3] = 1;
    if (type_row_bytes(type, cols, &t->row_bytes))
        exit(1);
    return m->n_tensors++;
}
static struct model_weight matrix(struct model *m, uint32_t type, uint64_t cols, uint64_t rows)
{
    return {tensor(m, type, cols, rows), MODEL_NONE, MODEL_NONE};
}

/* All experts as slots of a card. */
static void make_experts(struct whole *w, uint32_t type)
{
    const struct model *m = &w->m;
    struct expert_layer *l = &w->shape;
    struct expert_slot *slot = (struct expert_slot *)calloc(m->n_experts, sizeof *slot);

    l->n_experts = m->n_experts;
    l->top_k = m->top_k;
    l->packed = 1;
    for (int k = 0; k < EXPERT_MATS; k++) {
        l->m[k].type = type;
        l->m[k].rows = k == MAT_DOWN ? m->n_embd : m->n_ff;
        l->m[k].cols = k == MAT_DOWN ? m->n_ff : m->n_embd;
        if (type_row_bytes(type, l->m[k].cols, &l->m[k].row_bytes))
            exit(1);
        w->expert_bytes += l->m[k].rows * l->m[k].row_bytes;
    }
    CUDA_OK(cudaMalloc(&w->pool, slot_bytes(l) * m->n_experts * m->n_layers));
    w->layer = (struct run_cuda_layer *)calloc(m->n_layers, sizeof *w->layer);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        for (uint32_t e = 0; e < m->n_experts; e++)
            for (int k = 0; k < EXPERT_MATS; k++) {
                uint8_t *at = w->pool + (i * m->n_experts + e) * slot_bytes(l) + slot_mat_off(l, k);
                fill_blocks<<<256, FILL_THREADS>>>(at, l->m[k].rows * l->m[k].row_bytes, type_info(type)->block_bytes,
                                                   type == W_Q4_K, seed += 0x9E3779B97F4A7C15ull);
                slot[e].w[k] = at;
                slot[e].scale[k] = 1;
                w->layer[i].shape.type[k] = type;
                w->layer[i].shape.row_bytes[k] = l->m[k].row_bytes;
            }
        w->layer[i].shape.n_embd = m->n_embd;
        w->layer[i].shape.n_ff = m->n_ff;
        w->layer[i].slot = (const struct expert_slot *)cuda_copy(slot, m->n_experts * sizeof *slot);
    }
    CUDA_OK(cudaGetLastError());
    free(slot);
}

static void make_model(struct whole *w, uint32_t n_layers, uint32_t n_experts, uint32_t n_ff, uint32_t expert_type)
{
    struct model *m = &w->m;
    struct err e = {};

    memset(w, 0, sizeof *w);
    m->n_layers = n_layers;
    m->n_embd = EMBD;
    m->n_vocab = VOCAB;
    m->n_head = 32, m->n_head_kv = 4, m->head_dim = m->n_rot = 128;
    m->rope_base = 1e6f;
    m->rms_eps = 1e-6f;
    m->n_experts = n_experts, m->top_k = TOP_K, m->n_ff = n_ff;
    m->router_normalise = 1;
    m->router_floor = 0x1p-14f;
    m->router_scale = 1;
    m->tensor = (struct model_tensor *)calloc(n_layers * 9 + 3, sizeof *m->tensor);
    m->layer = (struct model_layer *)calloc(n_layers, sizeof *m->layer);
    m->token_embd = tensor(m, W_Q8_0, EMBD, VOCAB);
    m->output_norm = tensor(m, W_F32, EMBD, 1);
    m->output = matrix(m, W_Q8_0, EMBD, VOCAB);
    for (uint32_t i = 0; i < n_layers; i++) {
        struct model_layer *l = &m->layer[i];
        l->attn_norm = tensor(m, W_F32, EMBD, 1);
        l->attn_q = matrix(m, W_Q8_0, EMBD, 4096);
        l->attn_k = matrix(m, W_Q8_0, EMBD, 512);
        l->attn_v = matrix(m, W_Q8_0, EMBD, 512);
        l->attn_output = matrix(m, W_Q8_0, 4096, EMBD);
        l->attn_q_norm = tensor(m, W_F32, 128, 1);
        l->attn_k_norm = tensor(m, W_F32, 128, 1);
        l->ffn_norm = tensor(m, W_F32, EMBD, 1);
        l->n_experts = n_experts;
        l->router_bias = MODEL_NONE;
        l->ffn_gate_inp = matrix(m, W_F32, EMBD, n_experts);
    }
    if (arch_qwen3moe(m, 0, &w->prog, &e))
        exit(1);
    w->weight = (const void **)calloc(w->prog->n_weights, sizeof *w->weight);
    for (uint32_t i = 0; i < w->prog->n_weights; i++) {
        const struct prog_weight *p = &w->prog->weight[i];
        int norm = p->type == W_F32 && p->rows == 1;
        w->weight[i] =
            made(p->type, (uint64_t)p->rows * p->cols, norm ? 1.0f : 0.0f, norm ? 0.1f : 0.02f);
        if (p->tensor != m->token_embd)
            w->trunk_bytes += (uint64_t)p->rows * p->row_bytes;
    }
    make_experts(w, expert_type);
    CUDA_OK(cudaDeviceSynchronize());
}

static struct run_cuda *open_card(const struct whole *w, const struct program *p, struct calls_cuda *calls)
{
    struct run_cuda_config c = {};
    struct run_cuda *x;
    struct err e = {};

    c.prog = p;
    c.weight = w->weight;
    c.layer = w->layer;
    c.calls = calls;
    c.call_tokens = 512;
    c.n_experts = w->m.n_experts;
    c.max_tokens = 512;
    c.max_out = 8;
    c.n_ctx = CTX;
    c.n_seqs = 1;
    c.kv = KV_F16;
    if (run_cuda_open(&c, &x, &e)) {
        printf("%s\n", e.msg);
        exit(1);
    }
    return x;
}

static void drop_model(struct whole *w)
{
    for (uint32_t i = 0; i < w->prog->n_weights; i++)
        CUDA_OK(cudaFree((void *)w->weight[i]));
    for (uint32_t i = 0; i < w->m.n_layers; i++)
        CUDA_OK(cudaFree((void *)w->layer[i].slot));
    CUDA_OK(cudaFree(w->pool));
    free(w->weight);
    free(w->layer);
    free(w->m.tensor);
    free(w->m.layer);
    program_free(w->prog);
}

/* ---- the words between processes, where nobody else is: every expert is in a slot ---- */

static void *mapped(uint64_t bytes)
{
    void *p;

    CUDA_OK(cudaHostAlloc(&p, bytes, cudaHostAllocMapped));
    memset(p, 0, bytes);
    return p;
}

static struct calls_cuda *all_own(const struct whole *w)
{
    static struct geometry g;
    static struct outbox *none[MAX_PROCS];
    struct calls_cuda_config c = {};
    uint32_t n = w->m.n_layers * w->m.n_experts, *at = (uint32_t *)calloc(n, 4);
    uint64_t *entry = (uint64_t *)calloc(n, 8);
    struct calls_cuda *x;
    struct err e = {};

    g = {};
    g.n_nodes = 1;
    g.n_layers = w->m.n_layers;
    g.n_experts = w->m.n_experts;
    g.top_k = TOP_K;
    g.n_embd = EMBD;
    g.n_ff = w->m.n_ff;
    g.max_tokens = g.step_tokens = 512;
    g.max_items = w->m.n_experts;
    g.max_pairs = 512 * TOP_K;
    g.amend_slots = 1024;
    g.n_slabs = 1;
    g.n_slots = n;
    g.acts_half = 512 * EMBD * 4;
    g.inter_half = 512ull * TOP_K * g.n_ff * 4;
    g.rows_half = 512ull * TOP_K * EMBD * 4;
    c.geo = &g;
    c.calls = (struct calls *)mapped(calls_bytes(&g));
    c.acts = mapped(CALLS_IN_FLIGHT * g.acts_half);
    c.amends = (const struct amends *)mapped(amends_bytes(&g));
    c.tables = (struct tables *)mapped(n * 8 + n * sizeof(struct card_slot) + n * N_MATS * 4 + 4096 +
                                       g.n_layers * sizeof(struct expert_layer));
    c.tables->off_entry = 1024;
    c.tables->off_card = 512;
    c.tables->off_slot = 1024 + n * 8;
    c.tables->off_scale = c.tables->off_slot + n * sizeof(struct card_slot);
    c.tables->off_layer = (c.tables->off_scale + n * N_MATS * 4 + 63) & ~63ull;
    for (uint32_t i = 0; i < g.n_layers; i++)
        *table_layer(c.tables, i) = w->shape;
    for (uint32_t i = 0; i < n; i++) {
        table_slot(c.tables, i)->off = i * slot_bytes(&w->shape);
        at[i] = i;
        entry[i] = ENTRY(g.n_slabs + i, 1);
    }
    c.outbox = none;
    c.n_cards = 1;
    c.pool = w->pool;
    c.n_slots = n;
    c.first = 1;
    c.limit_ms = 10000;
    if (calls_cuda_open(&c, &x, &e)) {
        printf("%s\n", e.msg);
        exit(1);
    }
    calls_cuda_changes(x, at, n, entry);
    free(at);
    free(entry);
    return x;
}

/* ---- timing ---- */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int ordered(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Seconds of a step of T tokens from position pos on: the median, all steps waited for in turn. */
static double step_time(struct run_cuda *x, uint32_t T, uint32_t pos, uint32_t out, double limit)
{
    enum { MOST = 4000 };
    static double s[MOST];
    static uint32_t id = 1;
    struct step_token tok[512];
    uint32_t rows[8], n = 0;
    struct step st = {T, out, tok, rows, STEP_TRUNK, 0};
    double begin = now();

    for (uint32_t i = 0; i < out; i++)
        rows[i] = T - out + i;
    for (int i = 0; i < MOST && (n < 5 || now() - begin < limit); i++) {
        const uint32_t *best;
        struct err e = {};
        double t0;

        for (uint32_t t = 0; t < T; t++)
            tok[t] = {id = (id * 48271u) % VOCAB, pos + t, 0};
        t0 = now();
        if (run_cuda_step(x, &st, &e) || run_cuda_wait(x, 20000, &best, &e)) {
            printf("%s\n", e.msg);
            exit(1);
        }
        if (i > 2)
            s[n++] = now() - t0;
    }
    qsort(s, n, sizeof *s, ordered);
    return s[n / 2];
}

/* ... without the products by one weight's shape */
static struct program without_shape(const struct program *p, const struct prog_weight *shape, uint32_t *n)
{
    struct program q = *p;

    q.op = (struct op *)calloc(p->n_ops, sizeof *q.op);
    q.n_ops = *n = 0;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct prog_weight *w = p->op[i].kind == OP_MATMUL ? &p->weight[p->op[i].w] : NULL;
        if (w && w->type == shape->type && w->rows == shape->rows && w->cols == shape->cols)
            (*n)++;
        else
            q.op[q.n_ops++] = p->op[i];
    }
    return q;
}

static void time_shapes(const struct whole *w, double one, double limit)
{
    const struct program *p = w->prog;

    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct prog_weight *m = p->op[i].kind == OP_MATMUL ? &p->weight[p->op[i].w] : NULL;
        int seen = 0;
        for (uint32_t k = 0; k < i && m; k++)
            if (p->op[k].kind == OP_MATMUL) {
                const struct prog_weight *o = &p->weight[p->op[k].w];
                seen |= o->type == m->type && o->rows == m->rows && o->cols == m->cols;
            }
        if (!m || seen)
            continue;
        uint32_t n;
        struct program q = without_shape(p, m, &n);
        struct run_cuda *x = open_card(w, &q, NULL);
        double less = one - step_time(x, 1, 64, 1, limit);
        printf("without %u products of %6u x %4u, %-5s %7.1f us less, %6.1f us each, %5.0f GB/s\n", n, m->rows, m->cols,
               type_info(m->type)->name, less * 1e6, less * 1e6 / n, n * m->rows * (double)m->row_bytes / less * 1e-9);
        run_cuda_close(x);
        free(q.op);
    }
}

static double read_rate(void)
{
    enum { ROUNDS = 8 };
    size_t bytes = 4ull << 30;
    uint8_t *p = (uint8_t *)cuda_room(bytes);
    cudaEvent_t a, b;
    float ms;

    CUDA_OK(cudaEventCreate(&a));
    CUDA_OK(cudaEventCreate(&b));
    for (int warm = 0; warm < 2; warm++) { /* a copy reads and writes each byte once */
        CUDA_OK(cudaEventRecord(a));
        for (int i = 0; i < ROUNDS; i++)
            CUDA_OK(cudaMemcpyAsync(p, p + bytes / 2, bytes / 2, cudaMemcpyDeviceToDevice));
        CUDA_OK(cudaEventRecord(b));
        CUDA_OK(cudaEventSynchronize(b));
    }
    CUDA_OK(cudaEventElapsedTime(&ms, a, b));
    CUDA_OK(cudaFree(p));
    return (double)bytes * ROUNDS / (ms * 1e-3);
}

/* the program without the operations of one kind (and what only they need) */
static struct program without(const struct program *p, uint64_t kinds)
{
    struct program q = *p;

    q.op = (struct op *)calloc(p->n_ops, sizeof *q.op);
    q.n_ops = 0;
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (!(kinds >> p->op[i].kind & 1))
            q.op[q.n_ops++] = p->op[i];
    return q;
}

/* Microseconds of one of many nodes in a row. */
template <class LAUNCH> static double node_us(LAUNCH launch)
{
    enum { N = 200, ROUNDS = 20 };
    cudaStream_t s;
    cudaGraph_t g;
    cudaGraphExec_t x;
    cudaEvent_t a, b;
    float ms;

    CUDA_OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CUDA_OK(cudaEventCreate(&a));
    CUDA_OK(cudaEventCreate(&b));
    CUDA_OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < N; i++)
        launch(s);
    CUDA_OK(cudaStreamEndCapture(s, &g));
    CUDA_OK(cudaGraphInstantiate(&x, g, 0));
    for (int i = 0; i < 2; i++) {
        CUDA_OK(cudaEventRecord(a, s));
        for (int k = 0; k < ROUNDS; k++)
            CUDA_OK(cudaGraphLaunch(x, s));
        CUDA_OK(cudaEventRecord(b, s));
        CUDA_OK(cudaEventSynchronize(b));
    }
    CUDA_OK(cudaEventElapsedTime(&ms, a, b));
    CUDA_OK(cudaGraphExecDestroy(x));
    CUDA_OK(cudaGraphDestroy(g));
    CUDA_OK(cudaStreamDestroy(s));
    return ms * 1e3 / (N * ROUNDS);
}

/* What a layer has instead of the items and the sum of a fixed table, each in a row of its kind. */
static void time_nodes(struct calls_cuda *calls, uint32_t T, uint32_t n_experts)
{
    uint32_t ids[8 * TOP_K];
    struct calls_cuda_layer l = {};
    float *w = (float *)cuda_room(8 * TOP_K * 4), *y = (float *)cuda_room(8 * EMBD * 4);
    struct expert_item *items = (struct expert_item *)cuda_room(8 * TOP_K * sizeof *items);
    struct expert_slot *slots = (struct expert_slot *)cuda_room(8 * TOP_K * sizeof *slots);
    uint32_t *n = (uint32_t *)cuda_room(4);

    for (uint32_t i = 0; i < 8 * TOP_K; i++)
        ids[i] = (i * 37 + i / TOP_K) % n_experts;
    l.layer = 1;
    l.used = TOP_K;
    l.n_tokens = T;
    l.n_embd = EMBD;
    l.ids = (const uint32_t *)cuda_copy(ids, sizeof ids);
    l.x = (const float *)cuda_room(8 * EMBD * 4);
    l.rows = (float *)cuda_room(8ull * TOP_K * EMBD * 4);
    printf("%u tokens, us a node in a row of them: items %.2f, items here and elsewhere %.2f; sum %.2f, with the wait "
           "%.2f\n", T,
           node_us([&](cudaStream_t s) { moe_items_cuda(l.ids, TOP_K, T, n_experts, items, n, s); }),
           node_us([&](cudaStream_t s) { calls_cuda_publish(calls, &l, items, n, slots, s); }),
           node_us([&](cudaStream_t s) { moe_sum_cuda(w, l.rows, TOP_K, y, EMBD, EMBD, T, s); }),
           node_us([&](cudaStream_t s) { calls_cuda_sum(calls, &l, w, y, EMBD, s); }));
    CUDA_OK(cudaFree((void *)l.ids));
    CUDA_OK(cudaFree((void *)l.x));
    CUDA_OK(cudaFree(l.rows));
    CUDA_OK(cudaFree(w));
    CUDA_OK(cudaFree(y));
    CUDA_OK(cudaFree(items));
    CUDA_OK(cudaFree(slots));
    CUDA_OK(cudaFree(n));
}

/* Steps in turn of a fixed table and of the card's own, so that clocks and heat are the same for both. */
static void compare_steps(const struct whole *w, const struct program *p, struct calls_cuda *calls, const char *what,
                          double limit)
{
    struct run_cuda *fixed = open_card(w, p, NULL), *own = open_card(w, p, calls);

    step_time(own, 1, 64, 1, 0.001);
    calls_cuda_changes(calls, NULL, 0, NULL); /* the table is as it shall be: nothing changes from step to step */
    for (uint32_t T = 1; T <= 4; T *= 4) {
        double f = 0, o = 0;
        for (int i = 0; i < 4; i++) {
            f += step_time(fixed, T, 64, T, limit / 4) / 4;
            o += step_time(own, T, 64, T, limit / 4) / 4;
        }
        printf("%s, %u tokens: fixed table %.1f us a step, the card's own copy %.1f us: %+.2f%%, %.2f us a layer\n", what,
               T, f * 1e6, o * 1e6, 100 * (o / f - 1), (o - f) * 1e6 / w->m.n_layers);
    }
    run_cuda_close(fixed);
    run_cuda_close(own);
}

static void compare_tables(const struct whole *w, double limit)
{
    struct calls_cuda *calls = all_own(w);
    struct program no_sum = without(w->prog, 1ull << OP_MOE_SUM),
                   none = without(w->prog, 1ull << OP_MOE_SUM | 1ull << OP_MOE_CALL);

    compare_steps(w, w->prog, calls, "whole", limit);
    compare_steps(w, &no_sum, calls, "without sums", limit / 2);
    compare_steps(w, &none, calls, "without experts", limit / 2);
    time_nodes(calls, 1, w->m.n_experts);
    time_nodes(calls, 4, w->m.n_experts);
    printf("of its own: %llu items here, %llu calls\n",
           (unsigned long long)calls_cuda_counters(calls).own_items,
           (unsigned long long)calls_cuda_counters(calls).calls);
    free(no_sum.op);
    free(none.op);
    calls_cuda_close(calls);
}

/* Experts of 4096 x 32, sixteen a layer: one in `of` goes to a worker of one thread. */
static void hand_off(double limit)
{
    enum { LAYERS = 8, N = 16, SMALL_FF = 32 };
    struct calls_rig_layer layer[LAYERS] = {};
    struct calls_rig_config c = {};
    struct calls_cuda_config cc = {};
    struct calls_rig_counts n0, n1;
    struct calls_cuda_counters k0, k1;
    struct calls_rig r;
    struct whole w;
    struct run_cuda *x;
    struct calls_cuda *calls;
    struct err e = {};
    double base = 0;

    make_model(&w, LAYERS, N, SMALL_FF, W_Q8_0);
    for (uint32_t i = 0; i < LAYERS; i++) {
        layer[i].top_k = TOP_K;
        for (int k = 0; k < N_MATS; k++) {
            uint64_t bytes = w.shape.m[k].rows * w.shape.m[k].row_bytes;
            uint8_t *rows = (uint8_t *)malloc(bytes * N);
            for (uint32_t x = 0; x < N; x++)
                cuda_back(rows + x * bytes, w.pool + (i * N + x) * slot_bytes(&w.shape) + slot_mat_off(&w.shape, k),
                          bytes);
            layer[i].type[k] = W_Q8_0;
            layer[i].rows[k] = rows;
            layer[i].bytes[k] = bytes;
        }
    }
    c.n_nodes = 1;
    c.n_layers = LAYERS;
    c.n_experts = N;
    c.n_embd = EMBD;
    c.n_ff = SMALL_FF;
    c.max_tokens = c.step_tokens = 512;
    c.n_slots = LAYERS * N;
    c.layer = layer;
    c.seed = 1;
    if (calls_rig_open(&c, &r, &e))
        exit(1);
    for (uint32_t i = 0; i < r.n_segs; i++)
        CUDA_OK(cudaHostRegister(r.seg[i].base, r.seg[i].bytes, cudaHostRegisterMapped));
    cc.geo = &r.g;
    cc.calls = r.calls;
    cc.acts = r.acts;
    cc.amends = r.amends;
    cc.tables = r.tables;
    cc.outbox = r.outbox;
    cc.owner[0] = PROC_FIRST_WORKER;
    cc.n_cards = RIG_CARDS;
    cc.card_slot0[1] = c.n_slots;
    cc.n_slots = c.n_slots;
    cc.first = 1;
    cc.limit_ms = 10000;
    void *pool = cuda_room(r.pool_bytes);
    cc.pool = pool;
    if (calls_cuda_open(&cc, &calls, &e))
        exit(1);
    x = open_card(&w, w.prog, calls);
    for (uint32_t own = 100; own <= 100; own -= 10) {
        struct rig_deal d = {own, 0, 0, 0, 0, 0};
        uint64_t steps;
        double s;
        calls_rig_deal(&r, &d);
        CUDA_OK(cudaMemcpy(pool, r.pool, r.pool_bytes, cudaMemcpyHostToDevice));
        calls_cuda_changes(calls, r.changed, r.n_changed, r.own);
        step_time(x, 1, 64, 1, 0.01);
        calls_cuda_changes(calls, NULL, 0, NULL);
        calls_rig_counts(&r, &n0);
        k0 = calls_cuda_counters(calls);
        steps = run_cuda_counters(x)->steps;
        s = step_time(x, 1, 64, 1, limit / 4);
        calls_rig_counts(&r, &n1);
        k1 = calls_cuda_counters(calls);
        steps = run_cuda_counters(x)->steps - steps;
        if (own == 100)
            base = s;
        double per = (double)(k1.calls - k0.calls) / steps;
        printf("%3u%% of small experts here: %7.1f us a step, %.2f calls and %.2f items elsewhere", own, s * 1e6, per,
               (double)(k1.items - k0.items) / steps);
        if (per > 0.5) {
            double work = (double)(n1.work_ns - n0.work_ns) * 1e-3 / (k1.calls - k0.calls),
                   more = (s - base) * 1e6 / per;
            printf("; a call adds %.1f us, its worker works %.1f us: hand-off %.1f us; waits %.1f us", more, work,
                   more - work, (k1.wait_ns - k0.wait_ns) * 1e-3 / (k1.calls - k0.calls));
        }
        printf("\n");
        if (!own)
            break;
    }
    run_cuda_close(x);
    calls_cuda_close(calls);
    for (uint32_t i = 0; i < r.n_segs; i++)
        CUDA_OK(cudaHostUnregister(r.seg[i].base));
    calls_rig_close(&r);
    CUDA_OK(cudaFree(pool));
    for (uint32_t i = 0; i < LAYERS * N_MATS; i++)
        free((void *)layer[i / N_MATS].rows[i % N_MATS]);
    drop_model(&w);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *what;
        uint64_t kinds;
    } parts[] = {
        {"experts", 1ull << OP_MOE_CALL},
        {"sums of experts", 1ull << OP_MOE_SUM},
        {"products of the trunk", 1ull << OP_MATMUL},
        {"attention", 1ull << OP_ATTENTION},
        {"appending", 1ull << OP_KV_APPEND},
        {"norms", 1ull << OP_RMS_NORM},
        {"rotation", 1ull << OP_ROPE},
        {"activations", 1ull << OP_PREPARE},
        {"additions", 1ull << OP_ADD},
    };
    uint32_t n_layers = argc > 1 ? (uint32_t)atoi(argv[1]) : 8;
    double limit = argc > 2 ? atof(argv[2]) : 0.5, one, less, rate;
    struct whole w;
    struct run_cuda *x;

    if (!cuda_card())
        return test_end();
    CUDA_OK(cudaSetDeviceFlags(cudaDeviceMapHost));
    hand_off(limit);
    rate = read_rate();
    make_model(&w, n_layers, 128, 2048, W_Q4_K);
    compare_tables(&w, limit);
    x = open_card(&w, w.prog, NULL);
    printf("%u layers, %u of %u experts of %u x %u, Q4_K, trunk Q8_0; %.1f MB of experts and %.1f "
           "MB of trunk a "
           "token; a copy on the card moves %.0f GB/s, it runs at %.0f MHz\n",
           n_layers, TOP_K, w.m.n_experts, EMBD, w.m.n_ff, n_layers * TOP_K * w.expert_bytes * 1e-6,
           w.trunk_bytes * 1e-6, rate * 1e-9, clock_mhz());
    for (uint32_t T = 1; T <= 8; T *= 2)
        for (uint32_t pos = 64; pos < CTX; pos *= 8) {
            double s = step_time(x, T, pos, T, limit);
            printf("%u tokens a step, position %5u: %8.1f us a step, %8.1f tokens/s", T, pos,
                   s * 1e6, T / s);
            if (T == 1)
                printf(", %4.1f%% of the copy's rate in weights",
                       100 * (n_layers * TOP_K * w.expert_bytes + w.trunk_bytes) / s / rate);
            printf("\n");
        }
    {
        const struct run_cuda_counters *c = run_cuda_counters(x);
        printf("host: %.1f us a step from its record to the launch's return, over %llu steps\n",
               c->launch_ns * 1e-3 / c->steps, (unsigned long long)c->steps);
    }
    printf("a prompt pass of 512 tokens: %.1f ms\n", step_time(x, 512, 0, 1, limit) * 1e3);
    one = step_time(x, 1, 64, 1, limit);
    printf("the card runs at %.0f MHz\n", clock_mhz());
    run_cuda_close(x);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct program p = without(w.prog, parts[i].kinds);
        x = open_card(&w, &p, NULL);
        less = one - step_time(x, 1, 64, 1, limit);
        printf("without %-24s %8.1f us less of %.1f a token (%.1f us a layer)\n", parts[i].what,
               less * 1e6, one * 1e6, less * 1e6 / n_layers);
        run_cuda_close(x);
        free(p.op);
    }
    time_shapes(&w, one, limit);
    drop_model(&w);
    return 0;
}
