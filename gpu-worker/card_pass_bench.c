/* What a pass on a card costs the worker, from its lists to its rows in the outbox, by number of tokens; how much
 * longer it takes while experts are uploaded, at full speed and at the pace of a decode in flight; and what the
 * link carries: plain copies, copies from registered memory, by way of the buffer, and registering itself.
 *
 *   card_pass_bench [DEVICE [LIST]]      Q4_K experts of 4096 x 2048 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu-worker/card_pass.h"
#include "gpu-worker/copies.h"
#include "kernels/type/type.h"

enum { EMBD = 4096, FF = 2048, TOP_K = 8, SLOTS = 192, EXPERTS = 128, TOKENS = 256, ROUNDS = 400 };

struct rig {
    struct card *card;
    struct child child;
    struct maps m;
    struct layer layer;
    struct pool pool;
    struct card_pass *pass;
    struct slabs *slabs;
    struct call call;
    struct pass p;
};
static struct err e;

static void must(int rc)
{
    if (!rc)
        return;
    printf("%s\n", e.msg);
    exit(1);
}
static void *memory(uint64_t bytes)
{
    int fd = memfd_create("card_pass_bench", MFD_CLOEXEC);
    void *p = MAP_FAILED;

    if (fd >= 0 && !ftruncate(fd, (off_t)bytes))
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (p == MAP_FAILED) {
        printf("no memory\n");
        exit(1);
    }
    return p;
}
static void *segment(struct rig *r, enum seg_role role, uint32_t index, uint64_t bytes)
{
    struct seg *s = &r->child.seg[r->child.n_segs++];

    *s = (struct seg){.fd = -1, .role = role, .index = index, .bytes = bytes, .writable = 1};
    return s->base = memory(bytes);
}

static void make(struct rig *r)
{
    struct maps *m = &r->m;
    struct geometry *g = &m->g;
    struct expert_layer x = {.n_experts = EXPERTS, .top_k = TOP_K};
    struct tables *t;

    *g = (struct geometry){.n_nodes = 1, .n_layers = 1, .n_experts = EXPERTS, .top_k = TOP_K, .n_embd = EMBD,
                           .n_ff = FF, .max_tokens = TOKENS, .max_items = EXPERTS, .max_pairs = TOKENS * TOP_K,
                           .amend_slots = 64, .order_slots = 8, .n_slabs = 1, .n_slots = SLOTS};
    g->acts_half = (uint64_t)TOKENS * EMBD * 4;
    g->inter_half = (uint64_t)g->max_pairs * FF * 4;
    g->rows_half = (uint64_t)g->max_pairs * EMBD * 4;
    for (int k = 0; k < N_MATS; k++) {
        struct expert_matrix *y = &x.m[k];
        y->type = W_Q4_K;
        y->rows = k == MAT_DOWN ? EMBD : FF;
        y->cols = k == MAT_DOWN ? FF : EMBD;
        type_row_bytes(y->type, y->cols, &y->row_bytes);
        r->layer.m[k] = (struct mat){.type = y->type, .rows = y->rows, .cols = y->cols, .act = type_info(y->type)->act,
                                     .row_bytes = y->row_bytes, .cut = {{.n_rows = y->rows}}};
        r->layer.slot_off[k] = slot_mat_off(&x, k);
    }
    r->layer.n_experts = EXPERTS;
    r->layer.top_k = TOP_K;
    r->layer.n_embd = EMBD;
    r->layer.n_ff = FF;
    r->layer.slot_bytes = slot_bytes(&x);
    m->layer = &r->layer;
    r->child.ctl = -1;
    r->child.outbox = m->self = PROC_FIRST_CARD;
    m->acts_bytes = CALLS_IN_FLIGHT * g->acts_half;
    m->acts = segment(r, SEG_ACTS, 0, m->acts_bytes);
    m->out = segment(r, SEG_OUTBOX, PROC_FIRST_CARD, outbox_bytes(g));
    m->calls = segment(r, SEG_CALLS, 0, calls_bytes(g));
    m->slabs_bytes[0] = 2ull << 30;
    m->slabs[0] = segment(r, SEG_SLABS, 0, m->slabs_bytes[0]);
    memset((void *)m->slabs[0], 0x11, m->slabs_bytes[0]);
    for (size_t i = 0; i < CALLS_IN_FLIGHT * g->acts_half / 4; i++)
        ((float *)m->acts)[i] = (float)((i * 2654435761u) >> 8 & 0xFFFF) / 65536 - 0.5f;
    m->tables = t = memory(1 << 20);
    *t = (struct tables){.off_slot = 4096, .off_scale = 512 << 10};
    for (uint32_t i = 0; i < SLOTS; i++)
        *table_slot(t, i) = (struct card_slot){.off = i * r->layer.slot_bytes, .bytes = r->layer.slot_bytes};
    r->call.items = calloc(EXPERTS, sizeof *r->call.items);
    r->call.pairs = calloc(g->max_pairs, sizeof *r->call.pairs);
    r->p.item = calloc(EXPERTS, sizeof *r->p.item);
}

/* n_items experts, each for `each` of the call's tokens; slots go round so that no weight is read again soon */
static void fill_call(struct rig *r, uint64_t n, uint32_t n_tokens, uint32_t n_items, uint32_t each)
{
    uint32_t pairs = 0, rank[TOKENS] = {0};

    r->call.head = (struct call_head){.seq = n, .n_tokens = n_tokens, .n_items = n_items, .top_k = TOP_K,
                                      .acts = n % CALLS_IN_FLIGHT * r->m.g.acts_half};
    for (uint32_t i = 0; i < n_items; i++) {
        r->call.items[i] = (struct call_item){.expert = i, .place = 1 + (uint32_t)(n * n_items + i) % SLOTS,
                                              .pair0 = pairs, .n_pairs = each};
        for (uint32_t k = 0; k < each; k++, pairs++) {
            uint32_t t = (i * each + k) % n_tokens;
            r->call.pairs[pairs] = (struct call_pair){(uint16_t)t, (uint16_t)(rank[t]++ % TOP_K)};
        }
        r->p.item[i] = (struct pass_item){.item = i, .place = r->call.items[i].place};
    }
    r->call.head.n_pairs = pairs;
    r->p.call = &r->call;
    r->p.stage_one = r->p.stage_two = 1;
    r->p.n = n_items;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static double passes(struct rig *r, const char *what, uint32_t n_tokens, uint32_t n_items, uint32_t each)
{
    static uint64_t ns[ROUNDS], n;
    uint32_t rounds = n_tokens > 8 ? ROUNDS / 8 : ROUNDS;
    double bytes = (double)n_items * r->layer.slot_bytes, us;

    for (uint32_t i = 0; i < rounds; i++) {
        uint64_t start;
        fill_call(r, ++n, n_tokens, n_items, each);
        atomic_store(&r->m.calls->head, n); /* a decode is in flight: uploads keep their pace */
        start = now_ns();
        must(card_pass_run(r->pass, &r->p, &e));
        ns[i] = now_ns() - start;
    }
    qsort(ns, rounds, sizeof *ns, by_value);
    us = (double)ns[rounds / 2] * 1e-3;
    printf("%-34s %4u tokens %4u items: median %8.1f us, 90%% %8.1f, %7.0f GB/s\n", what, n_tokens, n_items, us,
           (double)ns[rounds * 9 / 10] * 1e-3, bytes / us * 1e-3);
    return us;
}

struct storm {
    struct rig *r;
    _Atomic int quit, started;
    uint64_t bytes, ns;
    int idle; /* no decode in flight: as fast as it goes */
    double link;
};
static void *storm(void *arg)
{
    struct storm *s = arg;
    struct copies *c;
    struct maps still = s->r->m;
    struct err why = {0};
    uint64_t start, at = 0;

    if (s->idle)
        still.calls = memory(calls_bytes(&still.g));
    if (copies_open(s->r->card, &still, &s->r->pool, s->r->slabs, &c, &why)) {
        printf("%s\n", why.msg);
        exit(1);
    }
    s->link = copies_link(c);
    atomic_store(&s->started, 1);
    start = now_ns();
    while (!atomic_load(&s->quit)) {
        uint64_t n = s->r->layer.slot_bytes, off = at % (s->r->m.slabs_bytes[0] - n);
        if (copies_put(c, 0, off, (at / n % SLOTS) * n, n, &why))
            exit(1);
        at += n;
    }
    if (copies_mark(c, 0, &why))
        exit(1);
    while (copies_over(c, 0, &why) == 0)
        ;
    s->bytes = at;
    s->ns = now_ns() - start;
    copies_close(c);
    return NULL;
}
static void under(struct rig *r, const char *what, int idle, double alone)
{
    struct storm s = {.r = r, .idle = idle};
    pthread_t t;
    double us;

    pthread_create(&t, NULL, storm, &s);
    while (!atomic_load(&s.started))
        ;
    us = passes(r, what, 1, TOP_K, 1);
    passes(r, what, 1, TOP_K, 1);
    atomic_store(&s.quit, 1);
    pthread_join(t, NULL);
    printf("%-34s %.1f%% longer than alone; uploads %.1f GB/s of a link of %.1f GB/s\n", what, 100 * (us / alone - 1),
           (double)s.bytes / (double)s.ns, s.link * 1e-9);
}

static void link_rates(struct rig *r, int registered)
{
    struct copies *c;
    struct maps still = r->m;
    uint64_t start, n = r->layer.slot_bytes, at = 0;

    still.calls = memory(calls_bytes(&still.g));
    must(copies_open(r->card, &still, &r->pool, r->slabs, &c, &e));
    start = now_ns();
    for (int i = 0; i < 100; i++, at += n)
        must(copies_put(c, 0, at % (r->m.slabs_bytes[0] - n), (uint64_t)i % SLOTS * n, n, &e));
    must(copies_mark(c, 0, &e));
    while (copies_over(c, 0, &e) == 0)
        ;
    printf("uploads of experts, %-22s %.1f GB/s; the link %.1f GB/s\n",
           registered ? "registered:" : "by way of the buffer:", (double)at / (double)(now_ns() - start),
           copies_link(c) * 1e-9);
    copies_close(c);
}

int main(int argc, char **argv)
{
    const char *device = argc > 1 ? argv[1] : "0";
    struct rig r = {0};
    int straight = 0;
    uint64_t start;
    double alone;
    void *base;

    if (card_open(device, &r.card, &e)) {
        printf("skipped: %s\n", e.msg);
        return 0;
    }
    printf("%s\n", card_name(r.card));
    make(&r);
    r.pool.bytes = SLOTS * r.layer.slot_bytes;
    must(card_alloc(r.card, r.pool.bytes, "the pool", &base, &e));
    r.m.pool = r.pool.base = base;
    start = now_ns();
    must(card_pass_open(r.card, &r.child, &r.m, &r.pass, &e));
    printf("kernels loaded, graphs recorded, first passes: %.0f ms\n", (double)(now_ns() - start) * 1e-6);
    { /* nothing registered yet: a slabs that stays empty */
        struct maps none = r.m;
        none.g.n_nodes = 0;
        must(slabs_open(r.card, &r.child, &none, &r.slabs, &e));
        link_rates(&r, 0);
        slabs_close(r.slabs);
    }
    start = now_ns();
    must(slabs_open(r.card, &r.child, &r.m, &r.slabs, &e));
    must(slabs_register(r.slabs, &e));
    while (!straight && now_ns() - start < 20000000000ull)
        slabs_run(r.slabs, 0, r.m.slabs_bytes[0] - 1, 1, &straight);
    printf("registering: %.0f ms a GiB%s\n", (double)(now_ns() - start) * 1e-6 / ((double)r.m.slabs_bytes[0] / (1 << 30)),
           straight ? "" : ": not done");
    link_rates(&r, 1);
    alone = passes(&r, "decode", 1, TOP_K, 1);
    passes(&r, "decode, one expert", 1, 1, 1);
    passes(&r, "nothing: what a pass costs besides", 1, 0, 0);
    passes(&r, "few, each its own experts", 8, 64, 1);
    passes(&r, "few, one expert for all", 8, 8, 8);
    passes(&r, "prompt, 16 vectors an expert", TOKENS, EXPERTS, TOKENS * TOP_K / EXPERTS);
    passes(&r, "prompt, 64 vectors an expert", TOKENS, 32, 64);
    passes(&r, "prompt, all for eight experts", TOKENS, TOP_K, TOKENS);
    under(&r, "decode, uploads at the pace", 0, alone);
    under(&r, "decode, uploads as fast as they go", 1, alone);
    alone = passes(&r, "decode", 1, TOP_K, 1);
    return 0;
}
