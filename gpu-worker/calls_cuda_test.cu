/* The trunk on a card whose experts lie on it, on another card, in RAM or nowhere, against a plain walk of the
 * same program: logits by their bytes, batches of 1 to 8 as graphs, passes in several calls; the own copy of the
 * table changes between steps, entries are stale, owners late. Then many calls of a small model; a call that
 * nobody answers, in a graph and in launched passes, which leave the card to others meanwhile.
 *
 *   calls_cuda_test [MODEL [CALLS]] */
#include <pthread.h>
#include <sched.h>

#include "gpu-worker/calls_cuda.h"
#include "gpu-worker/calls_rig.h"
#include "gpu-worker/test_walk.cuh"

enum { MOST = 200, PIECE = 40, CTX = 500, NODES = 2 };

struct rigged {
    struct loaded l;
    struct walk w;
    struct calls_rig r;
    struct calls_rig_layer *layer;
    struct calls_cuda *calls;
    struct run_cuda *card;
    void *pool;
    const char *model;
    float *logits;
    uint32_t next; /* position */
    struct nasty random;
};

static void rig_layers(struct rigged *x)
{
    const struct model *m = x->l.m;

    x->layer = (struct calls_rig_layer *)calloc(m->n_layers, sizeof *x->layer);
    for (uint32_t i = 0; i < m->n_layers; i++)
        for (int k = 0; k < EXPERT_MATS; k++) {
            const struct model_matrix *mm = &m->layer[i].expert[k];
            struct calls_rig_layer *to = &x->layer[i];
            to->top_k = m->top_k;
            to->type[k] = mm->type;
            to->rows[k] = x->l.expert[i * EXPERT_MATS + k];
            to->bytes[k] = mm->bytes;
            if (mm->scale != MODEL_NONE) {
                const struct model_tensor *t = &m->tensor[mm->scale];
                to->scale[k] = (const float *)read_bytes(m, t->shard, t->file_offset, t->bytes);
            }
        }
}

static void open_rigged(struct rigged *x, const char *model, uint32_t max_tokens, uint32_t slots_of_100)
{
    struct calls_rig_config c = {};
    struct calls_cuda_config cc = {};
    struct run_cuda_config rc = {};
    struct err e = {};

    memset(x, 0, sizeof *x);
    load(model, &x->l);
    rig_layers(x);
    x->model = model;
    x->random.state = 17;
    x->logits = (float *)malloc((size_t)MOST * x->l.m->n_vocab * 4);
    c.n_nodes = NODES;
    c.n_layers = x->l.m->n_layers;
    c.n_experts = x->l.m->n_experts;
    c.n_embd = x->l.m->n_embd;
    c.n_ff = x->l.m->n_ff;
    c.max_tokens = max_tokens;
    c.step_tokens = MOST;
    c.n_slots = (c.n_layers * c.n_experts * slots_of_100 + 99) / 100;
    c.layer = x->layer;
    c.seed = 11;
    if (calls_rig_open(&c, &x->r, &e))
        stop(&e);
    for (uint32_t i = 0; i < x->r.n_segs; i++)
        CUDA_OK(cudaHostRegister(x->r.seg[i].base, x->r.seg[i].bytes, cudaHostRegisterMapped));
    x->pool = cuda_room(x->r.pool_bytes + 4096);
    cc.geo = &x->r.g;
    cc.calls = x->r.calls;
    cc.acts = x->r.acts;
    cc.amends = x->r.amends;
    cc.tables = x->r.tables;
    cc.outbox = x->r.outbox;
    for (uint32_t k = 0; k < NODES; k++)
        cc.owner[k] = PROC_FIRST_WORKER + k;
    cc.n_cards = RIG_CARDS;
    for (uint32_t k = 0; k < RIG_CARDS; k++)
        cc.card_slot0[k] = k * c.n_slots;
    cc.pool = x->pool;
    cc.n_slots = c.n_slots;
    cc.first = 1;
    cc.limit_ms = 20000;
    if (calls_cuda_open(&cc, &x->calls, &e))
        stop(&e);
    rc.prog = x->l.prog;
    rc.weight = x->l.card;
    rc.layer = x->l.layer;
    rc.calls = x->calls;
    rc.call_tokens = max_tokens;
    rc.n_experts = c.n_experts;
    rc.max_tokens = rc.max_out = MOST;
    rc.n_ctx = CTX;
    rc.n_seqs = 1;
    rc.kv = KV_F16;
    if (run_cuda_open(&rc, &x->card, &e))
        stop(&e);
    walk_open(&x->w, &x->l, MOST, CTX, 1, KV_F16);
}

static void close_rigged(struct rigged *x)
{
    walk_close(&x->w);
    run_cuda_close(x->card);
    calls_cuda_close(x->calls);
    for (uint32_t i = 0; i < x->r.n_segs; i++)
        CUDA_OK(cudaHostUnregister(x->r.seg[i].base));
    CHECK(!calls_rig_close(&x->r), "%s: a worker failed", x->model);
    CUDA_OK(cudaFree(x->pool));
    for (uint32_t i = 0; i < x->l.m->n_layers * EXPERT_MATS; i++)
        free((void *)x->layer[i / EXPERT_MATS].scale[i % EXPERT_MATS]);
    free(x->layer);
    unload(&x->l);
    free(x->logits);
}

static void deal(struct rigged *x, const struct rig_deal *d)
{
    calls_rig_deal(&x->r, d);
    CUDA_OK(cudaMemcpy(x->pool, x->r.pool, x->r.pool_bytes, cudaMemcpyHostToDevice));
    calls_cuda_changes(x->calls, x->r.changed, x->r.n_changed, x->r.own);
}

/* What the last layer chose, as it is told. */
static void check_choice(struct rigged *x, uint32_t T, const char *what)
{
    const struct op *last = NULL;

    for (uint32_t i = 0; i < x->l.prog->draft_at; i++)
        if (x->l.prog->op[i].kind == OP_MOE_CALL)
            last = &x->l.prog->op[i];
    CHECK(last && !memcmp(calls_cuda_choice(x->calls, last->n[0]), row(&x->w, last->in[1], 0),
                          (size_t)T * last->n[1] * 4),
          "%s: the choice of %u tokens, %s", x->model, T, what);
}

/* A step of T tokens; the logits of all, or of the last. */
static void step(struct rigged *x, uint32_t T, const char *what)
{
    struct step_token tok[MOST];
    uint32_t out[MOST];
    struct step s = {T, 0, tok, out, STEP_TRUNK, 0};
    const float *want;
    const uint32_t *best;
    struct err e = {};
    size_t n_vocab = x->l.m->n_vocab;

    if (x->next + T > CTX)
        x->next = 0; /* the sequence begins anew: what lies behind is not read */
    for (uint32_t t = 0; t < T; t++) {
        tok[t] = {nasty_u32(&x->random) % x->l.m->n_vocab, x->next++, 0};
        if (T < 9 || t + 1 == T)
            out[s.n_out++] = t;
    }
    if (run_cuda_step(x->card, &s, &e) || run_cuda_wait(x->card, 60000, &best, &e) ||
        run_cuda_logits(x->card, x->logits, &e))
        stop(&e);
    want = walk_step(&x->w, &s);
    CHECK(!memcmp(x->logits, want, s.n_out * n_vocab * 4), "%s: %u tokens from position %u, %s", x->model, T,
          tok[0].pos, what);
    check_choice(x, T, what);
}

static void check_model(const char *path, uint32_t max_tokens, uint32_t slots, int rounds)
{
    static const struct rig_deal deals[] = {
        {0, 0, 0, 0, 0, 0},        {100, 0, 0, 0, 0, 0},     {50, 0, 0, 0, 10, 0},
        {50, 30, 0, 0, 10, 0},     {30, 30, 30, 0, 10, 0},   {30, 30, 30, 20, 10, 0},
        {50, 0, 0, 50, 30, 0},     {40, 20, 20, 10, 10, 20000}, {0, 0, 100, 0, 0, 0},
        {10, 0, 0, 0, 50, 20000},
    };
    struct calls_cuda_counters counters;
    const struct calls_cuda_counters *n = &counters;
    struct calls_rig_counts c;
    struct rigged x;

    if (access(path, R_OK)) {
        SKIP("%s is not here", path);
        return;
    }
    open_rigged(&x, path, max_tokens, slots);
    for (int i = 0; i < rounds; i++) {
        uint32_t T = i % 7 == 6 ? 9 + nasty_u32(&x.random) % (PIECE - 8) : 1 + nasty_u32(&x.random) % 8;
        char what[80];
        deal(&x, &deals[i % (sizeof deals / sizeof *deals)]);
        snprintf(what, sizeof what, "deal %d, %u of 100 slots, calls of %u", i, slots, max_tokens);
        step(&x, T, what);
        step(&x, 1, what); /* the same deal: the own table stands */
        if (max_tokens >= MOST / 2 && i % 3 == 0) /* own experts as products (where they are Q4_K), beside a call */
            step(&x, MOST - i % 2, what);
    }
    counters = calls_cuda_counters(x.calls);
    calls_rig_counts(&x.r, &c);
    printf("%s, calls of %u tokens, %u%% slots: %llu calls, %llu items (%llu disk, %llu cards), %llu own; %llu "
           "amendments, %llu declined, %llu late, card workers %llu %llu; %.1f us a wait, %llu looks\n",
           path, max_tokens, slots, (unsigned long long)n->calls, (unsigned long long)n->items,
           (unsigned long long)n->disk_items, (unsigned long long)n->card_items, (unsigned long long)n->own_items,
           (unsigned long long)c.amendments, (unsigned long long)c.declined, (unsigned long long)c.late,
           (unsigned long long)c.served[0], (unsigned long long)c.served[1], n->wait_ns * 1e-3 / (n->calls + 1),
           (unsigned long long)n->looks);
    CHECK(n->calls && n->own_items && n->disk_items && n->card_items && c.amendments && c.declined,
          "%s: every way was gone", path);
    close_rigged(&x);
}

/* Many calls: a step a call or more, all of them compared. */
static void stress(const char *path, uint64_t calls)
{
    struct rigged x;
    uint64_t steps = 0;

    open_rigged(&x, path, 4, 60);
    while (calls_cuda_counters(x.calls).calls < calls && !test_failed) {
        struct rig_deal d = {nasty_u32(&x.random) % 70, nasty_u32(&x.random) % 50, nasty_u32(&x.random) % 8,
                             nasty_u32(&x.random) % 4, 10, steps % 3 ? 0u : 50000u};
        deal(&x, &d);
        for (int i = 0; i < 40 && !test_failed; i++, steps++)
            step(&x, nasty_u32(&x.random) % 8 ? 1 : 1 + nasty_u32(&x.random) % 8, "of many");
    }
    printf("%llu calls in %llu steps\n", (unsigned long long)calls_cuda_counters(x.calls).calls,
           (unsigned long long)steps);
    close_rigged(&x);
}

/* Nobody works: the wait gives up, when it is told to, and says where. */
static void nobody(const char *path)
{
    struct rig_deal d = {0, 0, 100, 0, 0, 0};
    struct step_token tok = {1, 0, 0};
    uint32_t out = 0;
    struct step s = {1, 1, &tok, &out, STEP_TRUNK, 0};
    const uint32_t *best;
    struct rigged x;
    struct err e = {};
    int rc;

    open_rigged(&x, path, 8, 50);
    calls_rig_halt(&x.r); /* the steward takes up nothing: what is on disk stays there */
    deal(&x, &d);
    rc = run_cuda_step(x.card, &s, &e);
    CHECK(!rc && !run_cuda_poll(x.card, &e), "the step is open");
    calls_cuda_stop(x.calls);
    rc = run_cuda_wait(x.card, 20000, &best, &e);
    CHECK(rc == -ETIMEDOUT && strstr(e.msg, "layer 0, call 1: item"), "%d: %s", rc, e.msg);
    close_rigged(&x);
}

static void *run_step(void *arg)
{
    struct rigged *x = (struct rigged *)arg;
    struct step_token tok[PIECE];
    uint32_t out = 0;
    struct step s = {PIECE, 1, tok, &out, STEP_TRUNK, 0};
    const uint32_t *best;
    static struct err e;

    for (uint32_t t = 0; t < PIECE; t++)
        tok[t] = {t, t, 0};
    if (!run_cuda_step(x->card, &s, &e))
        run_cuda_wait(x->card, 20000, &best, &e);
    return &e;
}
/* A launched pass whose call nobody answers leaves the card to others: all that was launched there ends. max_tokens:
 * of a call, so that its rows are gathered, or summed where they lie. */
static void free_card(const char *path, uint32_t max_tokens)
{
    struct rig_deal d = {0, 0, 100, 0, 0, 0};
    struct rigged x;
    pthread_t thread;
    struct err *e;

    open_rigged(&x, path, max_tokens, 50);
    calls_rig_halt(&x.r);
    deal(&x, &d);
    CHECK(!pthread_create(&thread, NULL, run_step, &x), "no thread");
    while (!__atomic_load_n((const uint64_t *)&x.r.calls->head, __ATOMIC_ACQUIRE))
        sched_yield();
    usleep(100000); /* what follows has been launched by now, if it is not held back */
    CUDA_OK(cudaDeviceSynchronize());
    calls_cuda_stop(x.calls);
    pthread_join(thread, (void **)&e);
    /* a kernel that stood there would have ended by its limit, and say so */
    CHECK(e->code == -ETIMEDOUT && strstr(e->msg, "layer 0, call 1: item") && strstr(e->msg, "nobody waits"), "%d: %s",
          e->code, e->msg);
    close_rigged(&x);
}

/* Launched passes whose last call would be of one token: with all of its experts here the host is told that there is
 * none, and what the calls before it left behind is not taken for its rows. */
static void one_behind(const char *path)
{
    struct rig_deal d = {100, 0, 0, 0, 0, 0};
    struct rigged x;

    open_rigged(&x, path, 3, 100);
    for (int i = 0; i < 20; i++, d.own = 50) {
        deal(&x, &d);
        step(&x, 10, "the last one by itself");
    }
    close_rigged(&x);
}

int main(int argc, char **argv)
{
    uint64_t calls = argc > 2 ? strtoull(argv[2], NULL, 10) : 100000;

    if (!cuda_card())
        return test_end();
    CUDA_OK(cudaSetDeviceFlags(cudaDeviceMapHost));
    cpu_float_state();
    if (argc > 1) {
        check_model(argv[1], 16, 50, 40);
        stress(argv[1], calls);
        return test_end();
    }
    check_model("tests/golden/tiny/qwen3moe/model.gguf", 16, 50, 60);
    check_model("tests/golden/tiny/olmoe/model.gguf", 3, 10, 60);
    check_model("tests/golden/models/qwen3moe-q4_k_m/model.gguf", 40, 100, 30);
    check_model("tests/golden/models/qwen3moe-iq/model.gguf", 7, 50, 30);
    check_model("tests/demo/story-moe-q4_k_m.gguf", 16, 50, 20);
    check_model("tests/demo/story-moe-q4_k_m.gguf", MOST, 100, 20);
    check_model("tests/demo/story-moe-q4_k_m.gguf", MOST / 2, 50, 20);
    nobody("tests/golden/tiny/qwen3moe/model.gguf");
    one_behind("tests/golden/tiny/qwen3moe/model.gguf");
    free_card("tests/golden/tiny/qwen3moe/model.gguf", PIECE);
    free_card("tests/golden/tiny/qwen3moe/model.gguf", PIECE / 2);
    stress("tests/golden/tiny/qwen3moe/model.gguf", calls);
    return test_end();
}
