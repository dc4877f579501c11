/* Rows of a pass against the plain answer, bit by bit: types mixed inside an expert, batches,
 * threads, nodes, several shares of one item in one hand. */
#include "cpu-worker/work.h"

#include "cpu-worker/test_world.h"

static const struct world_layer LAYERS[] = {
    {{W_Q8_0, W_Q8_0, W_Q8_0}, 96, 64, 0, 0, 4096},
    {{W_Q4_K, W_Q8_0, W_Q6_K}, 512, 256, 0.7f, 1, 1234567},
    {{W_F32, W_F16, W_Q8_0}, 64, 160, 0, 0, 5000032},
    {{W_Q6_K, W_Q4_K, W_F16}, 256, 8, 0, 1, 9000032},
    {{W_BF16, W_BF16, W_F32}, 20, 12, 2.0f, 0, 12000064},
    {{W_Q5_K, W_Q5_K, W_Q4_K}, 512, 512, 0, 0, 16384000},
};
#define N_LAYERS (sizeof LAYERS / sizeof *LAYERS)

struct one { /* a node's worker, in this process */
    struct maps m;
    struct shares s;
    struct work w;
};
struct lead {
    struct world *world;
    struct one *one;
    uint32_t n_nodes;
    int n_threads;
};

/* Makes every pass that the nodes find, until none finds any. */
static void drain(struct lead *l, struct team *t)
{
    struct err e = {0};
    int found = 1, declined;

    while (found) {
        found = 0;
        for (uint32_t k = 0; k < l->n_nodes; k++) {
            struct one *o = &l->one[k];
            const struct pass *p;
            CHECK_EQ(shares_follow(&o->s, &e), 0);
            p = shares_next(&o->s, &declined);
            if (!p)
                continue;
            found = 1;
            work_pass(&o->w, t, p);
            shares_done(&o->s, p);
        }
    }
}

/* The plain answer of a pair. Every run makes the same calls, so it is computed once. */
static const float *answer_of(struct world *w, uint32_t layer, uint64_t n, uint32_t pair,
                              uint32_t expert, uint32_t token)
{
    static float *kept[N_LAYERS * 4 + 1][160];
    float **y = &kept[n][pair];

    if (!*y) {
        *y = malloc(w->g.n_embd * sizeof **y);
        world_answer(w, layer, expert, world_acts(w, &w->call) + (size_t)token * w->g.n_embd, *y);
    }
    return *y;
}

static void check_rows(struct world *w, uint32_t layer, const char *what)
{
    uint32_t n_embd = table_layer(w->tables, layer)->m[MAT_GATE].cols, bad = 0;

    for (uint32_t i = 0; i < w->call.head.n_items; i++) {
        const struct call_item *it = &w->call.items[i];
        for (uint32_t p = it->pair0; p < it->pair0 + it->n_pairs; p++) {
            uint32_t token = w->call.pairs[p].token;
            size_t at = (size_t)(token * w->call.head.top_k + w->call.pairs[p].rank) * w->g.n_embd;
            const float *want = answer_of(w, layer, w->call.head.seq, p, it->expert, token);
            for (uint32_t k = 0; k < w->g.n_nodes; k++) {
                uint32_t r0 = share_row(n_embd, k, w->g.n_nodes);
                uint32_t r1 = share_row(n_embd, k + 1, w->g.n_nodes);
                float *got = outbox_rows(&w->g, w->box[it->owner[k]], w->call.head.seq) + at;
                bad += memcmp(got + r0, want + r0, (r1 - r0) * sizeof *want) != 0;
            }
        }
    }
    CHECK(!bad, "layer %u, %s: %u rows differ", layer, what, bad);
    for (uint32_t k = 0; k < w->g.n_nodes; k++)
        CHECK_EQ(
            atomic_load(&w->box[w->call.items[0].owner[k]]->owner[w->call.head.seq % CALL_SLOTS]),
            2 * w->call.head.seq);
}

static int lead(void *arg, struct team *t)
{
    struct lead *l = arg;
    struct world *w = l->world;
    static const uint32_t tokens[] = {1, 3, 9, 40};
    uint64_t n = 0;

    for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
        for (size_t b = 0; b < sizeof tokens / sizeof *tokens; b++) {
            char what[80];
            world_call(w, ++n, layer, tokens[b]);
            for (uint32_t i = 0; i < 4; i++) { /* items with all, half, few of the tokens */
                uint32_t expert = (i + layer + (uint32_t)b) % WORLD_EXPERTS;
                world_item(w, expert, i, world_load(w, layer, expert, i), i, i < tokens[b] ? i : 0,
                           i + 1);
            }
            if (l->n_nodes > 1) /* one hand has two shares of an item */
                w->call.items[1].owner[1] = PROC_FIRST_WORKER;
            world_publish(w);
            drain(l, t);
            snprintf(what, sizeof what, "%u tokens, %u nodes, %d threads", tokens[b], l->n_nodes,
                     l->n_threads);
            check_rows(w, layer, what);
            call_retire(&w->g, w->calls, n);
        }
    }
    return 0;
}

static void run(uint32_t n_nodes, int n_threads)
{
    static struct world w;
    static struct one one[3];
    struct lead l = {&w, one, n_nodes, n_threads};
    struct err e = {0};

    world_make(&w, n_nodes, n_nodes, LAYERS, N_LAYERS);
    for (uint32_t k = 0; k < n_nodes; k++) {
        w.child.outbox = PROC_FIRST_WORKER + k;
        CHECK(!maps_take(&one[k].m, &w.child, &e), "%s", e.msg);
        CHECK(!shares_init(&one[k].s, &one[k].m, 0, 0, &e), "%s", e.msg);
        CHECK(!work_init(&one[k].w, &one[k].m, n_threads, &e), "%s", e.msg);
    }
    team_run(n_threads, NULL, 1, lead, &l);
    for (uint32_t k = 0; k < n_nodes; k++) {
        struct outbox_counters *c = &one[k].m.out->count;
        CHECK(atomic_load(&c->rows) && atomic_load(&c->weight_bytes) && atomic_load(&c->items),
              "node %u counted nothing", k);
        work_drop(&one[k].w);
        shares_drop(&one[k].s);
        maps_drop(&one[k].m);
    }
    world_drop(&w);
}

int main(void)
{
    for (uint32_t n_nodes = 1; n_nodes <= 3; n_nodes++)
        for (int n_threads = 1; n_threads <= 3; n_threads++)
            run(n_nodes, n_threads);
    return test_end();
}
