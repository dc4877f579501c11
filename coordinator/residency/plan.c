/* Sizes in the order of their importance: passes and arenas, trunk, context as asked, experts, context
 * as it fits. No I/O, no clock: tested by tables. */
#include "coordinator/residency/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/residency/uses.h"
#include "shm/size.h"

#define CONTEXT_STEP 256u
/* Left alone. Of a limit of our own: the text of the programs and libraries (some 10 MB, counted in the
 * group that touched it first) and pages of files on their way. Of the whole machine: others live there. */
#define RESERVE_LEAST (16ull << 20)
#define RESERVE_PART_OWN 64
#define RESERVE_PART 16
/* Beside the segments, measured (docs/MEASUREMENTS.md): a process 0.9 to 1.1 MB of heap and libraries' data,
 * and kernel objects; a thread of a team 0.4 MB of stacks and scratch, more for wide experts. */
#define PROCESS_BYTES (3ull << 20)
#define THREAD_BYTES (448ull << 10)
#define THREAD_WIDE 32 /* bytes for each value of an expert's intermediate */
#define CARD_PROCESS_BYTES (160ull << 20) /* with a CUDA context: 48 MB of its own and 101 of libraries */
#define PROGRAM_BYTES (1ull << 20)        /* the largest program there is takes a fifth of it */
#define READER_BYTES (64ull << 10)
#define PAGER_THREADS 34 /* without io_uring: its readers */
#define PASS_PART 8      /* buffers of a pass take at most this part of the memory beside the trunk, unless asked for */
#define LOGIT_PART 16

#define GB(x) ((double)(x)*1e-9)

static void note(struct plan *p, int always, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void note(struct plan *p, int always, const char *fmt, ...)
{
    struct plan_note *n = &p->note[p->n_notes];
    va_list ap;

    if (p->n_notes == PLAN_NOTES)
        return;
    p->n_notes++;
    n->always = always;
    va_start(ap, fmt);
    vsnprintf(n->text, sizeof n->text, fmt, ap);
    va_end(ap);
}

static uint32_t at_least(uint64_t a, uint32_t b)
{
    return a < b ? b : a > UINT32_MAX ? UINT32_MAX : (uint32_t)a;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- what the kernel takes for memory that processes share ----
 * For each 4 KiB page of a segment: 8 bytes of page table in every process that maps it (coordinator,
 * pager, the workers), 9 and a little of the file's tree, and if the pager registers it with io_uring
 * 16 + 8. Huge pages need less; nothing relies on them. */
static uint64_t kernel_per_page(uint32_t n_workers)
{
    return 8ull * (2 + n_workers) + 10 + 24;
}
static uint64_t kernel_bytes(uint64_t segments, uint32_t n_workers)
{
    return segments / 4096 * kernel_per_page(n_workers) + 4096;
}
/* The most bytes of segments that fit into `left` with what the kernel takes for them. */
static uint64_t without_kernel(uint64_t left, uint32_t n_workers)
{
    uint64_t pages = left > 8192 ? (left - 8192) / (4096 + kernel_per_page(n_workers)) : 0;

    return pages * 4096;
}

/* ---- passes ---- */

static uint64_t worker_bytes(const struct plan_file *f, const struct geometry *g)
{
    uint64_t pairs = g->max_pairs, tokens = g->max_tokens;

    /* a node prepares activations in up to three forms, two calls of them, and every pair's intermediate */
    return g->n_nodes * (pairs * (f->n_ff * 4ull + 64) + 2 * 3 * tokens * f->n_embd * 4ull);
}

/* A card's worker is a node's in this; a real one's arrays lie on the card. The trunk's host besides keeps the
 * rows of its own hits, prepared vectors for its threads, the copy of the table and what changes of it. */
static uint64_t cards_bytes(const struct plan_file *f, const struct plan_ask *a, const struct geometry *g)
{
    uint64_t all = 0, experts = (uint64_t)g->n_layers * g->n_experts;

    if (a->cards.emulated)
        all = a->cards.n * worker_bytes(f, g) / g->n_nodes;
    if (a->cards.trunk)
        all += CALLS_IN_FLIGHT * (uint64_t)g->max_pairs * (g->n_embd * 4ull + 2 * sizeof(struct call_pair)) +
               a->threads * 16ull * (f->n_embd * 16ull + f->n_ff * 20ull) + experts * 48;
    return all + experts * 192; /* the policy's books of what lies there */
}
static uint64_t cards_processes(const struct plan_file *f, const struct plan_ask *a)
{
    uint64_t thread = THREAD_BYTES + THREAD_WIDE * (uint64_t)f->n_ff;

    if (!a->cards.n)
        return 0;
    return a->cards.n * (a->cards.emulated ? PROCESS_BYTES + 2 * thread : CARD_PROCESS_BYTES) +
           (a->cards.trunk + a->cards.emulated) * a->threads * thread;
}

/* The steward's books of experts: its policy's, its slabs', the ring of uses. */
static uint64_t paging_bytes(const struct geometry *g)
{
    return sizeof(struct uses) + (uint64_t)g->n_layers * g->n_experts * 192ull;
}

static uint64_t work_bytes(const struct plan_file *f, const struct plan_ask *a, const struct plan *p)
{
    return (a->cards.n ? cards_bytes(f, a, &p->geo) : 0) + p->max_tokens * f->token_bytes + p->max_out * f->row_bytes + worker_bytes(f, &p->geo) +
           paging_bytes(&p->geo) + f->n_vocab * 32ull; /* sampling */
}

static uint64_t tables_bytes(const struct geometry *g)
{
    uint64_t entries = (uint64_t)g->n_layers * g->n_experts;

    return entries * (8 + N_MATS * sizeof(float)) + g->n_layers * sizeof(struct expert_layer) +
           16 * g->n_nodes * entries /* a slab each, at most */ + 8 * 64;
}

static uint64_t calls_all(const struct geometry *g)
{
    return sizeof(struct board) + MAX_PROCS * sizeof(struct bell) + calls_bytes(g) + amends_bytes(g) +
           orders_bytes(g) + CALLS_IN_FLIGHT * g->acts_half + pager_box_bytes(g) + tables_bytes(g) +
           g->n_nodes * outbox_bytes(g) + (8 + 2 * g->n_nodes) * 2 * 4096ull;
}

/* Each card's rings, two outboxes (one for a successor); steps, answers and program of a trunk that is elsewhere. */
static uint64_t cards_segments(const struct plan_file *f, const struct plan_ask *a, const struct plan *p)
{
    const struct geometry *g = &p->geo;
    uint64_t all = a->cards.n * (2 * outbox_bytes(g) + orders_bytes(g) + pager_box_bytes(g) + 4 * 2 * 4096ull) +
                   a->cards.n_slots * sizeof(struct card_slot);

    if (a->cards.trunk)
        all += p->max_out * (uint64_t)f->n_vocab * sizeof(float) + p->max_tokens * sizeof(struct step_token) +
               (uint64_t)g->n_layers * g->n_experts * sizeof(uint32_t) + PROGRAM_BYTES;
    return all;
}

static void geometry_of(const struct plan_file *f, const struct plan_ask *a, struct plan *p)
{
    struct geometry *g = &p->geo;
    uint64_t half = PLAN_ARENA_BYTES / CALLS_IN_FLIGHT;
    uint64_t widest = f->n_embd > f->n_ff ? f->n_embd : f->n_ff;
    uint64_t fit = half / (f->top_k * widest * sizeof(float));

    g->n_nodes = a->n_nodes;
    g->n_layers = f->n_layers;
    g->n_experts = f->n_experts;
    g->top_k = f->top_k;
    g->n_embd = f->n_embd;
    g->n_ff = f->n_ff;
    g->max_tokens = at_least(fit, 1);
    if (g->max_tokens > p->max_tokens)
        g->max_tokens = p->max_tokens;
    if (a->call_tokens && g->max_tokens > a->call_tokens)
        g->max_tokens = a->call_tokens;
    g->max_pairs = g->max_tokens * g->top_k;
    g->max_items = g->max_pairs < g->n_experts ? g->max_pairs : g->n_experts;
    g->amend_slots = 64;
    while (g->amend_slots <= CALLS_IN_FLIGHT * g->max_items * g->n_nodes)
        g->amend_slots *= 2;
    g->order_slots = PLAN_ORDER_SLOTS;
    g->acts_half = round_up((uint64_t)g->max_tokens * g->n_embd * sizeof(float), 4096);
    g->inter_half = round_up((uint64_t)g->max_pairs * g->n_ff * sizeof(float), 4096);
    g->rows_half = round_up((uint64_t)g->max_pairs * g->n_embd * sizeof(float), 4096);
}

static void pass_of(const struct plan_file *f, const struct plan_ask *a, uint64_t left, uint32_t tokens,
                    struct plan *p)
{
    uint64_t room = less(PLAN_LOGIT_BYTES, left / LOGIT_PART);
    uint32_t rows = at_least(room / (f->n_vocab * sizeof(float)), 1);

    p->max_tokens = tokens;
    p->max_out = (uint32_t)less(tokens, a->every_row ? rows : a->rows ? a->rows : 1);
    if (a->every_row) /* every token of a pass may want its row */
        p->max_tokens = p->max_out;
    geometry_of(f, a, p);
    p->bytes.work = work_bytes(f, a, p);
    p->bytes.calls = calls_all(&p->geo) + cards_segments(f, a, p);
}

/* As asked, or as many as are worth it and take no more than their part. */
static void choose_passes(const struct plan_file *f, const struct plan_ask *a, uint64_t left, struct plan *p)
{
    uint32_t tokens = a->batch ? a->batch : PLAN_BATCH;
    uint64_t part = (left > f->trunk_bytes ? left - f->trunk_bytes : 0) / PASS_PART;

    pass_of(f, a, left, tokens, p);
    while (!a->batch && tokens > PLAN_BATCH_LEAST && p->bytes.work + p->bytes.calls > part)
        pass_of(f, a, left, tokens /= 2, p);
    if (a->batch && p->max_tokens < a->batch)
        note(p, 1, "--batch %u: passes of %u tokens, whose logits fit into %llu MB", a->batch,
             p->max_tokens, (unsigned long long)(less(PLAN_LOGIT_BYTES, left / LOGIT_PART) >> 20));
    else if (!a->batch && tokens < PLAN_BATCH)
        note(p, 0, "passes of %u tokens: those of %u would take more than 1/%d of the memory beside the trunk",
             p->max_tokens, PLAN_BATCH, PASS_PART);
}

/* ---- sequences ---- */

static uint32_t n_seqs(const struct plan_ask *a)
{
    return a->n_seqs ? a->n_seqs : 1;
}
/* Of all sequences: for a position, and whatever their length. */
static uint64_t position_bytes(const struct plan_file *f, const struct plan_ask *a)
{
    return f->position_bytes + n_seqs(a) * f->kept_bytes;
}
static uint64_t fixed_bytes(const struct plan_file *f, const struct plan_ask *a)
{
    return n_seqs(a) * f->sequence_bytes + f->saved_bytes;
}
/* A context as asked, or what is left room for. */
static uint64_t least_context(const struct plan_file *f, const struct plan_ask *a)
{
    return fixed_bytes(f, a) + position_bytes(f, a) * (a->n_ctx ? a->n_ctx : less(PLAN_CONTEXT, f->n_ctx_train));
}

/* ---- look-up tables ---- */

#define TABLE_PART 32 /* of what is left for experts: rows at hand cost no read, but a token's are few and small */

/* What all experts and a context take: tables lie whole where there is room beside these. */
static uint64_t before_tables(const struct plan_file *f, const struct plan_ask *a, const struct plan *p)
{
    uint64_t experts = a->ram;
    struct slab_plan all;
    struct err e;

    if (!slab_plan(f->layer, f->n_layers, p->geo.n_nodes, UINT64_MAX, &all, &e) && (!experts || experts > all.need_all))
        experts = all.need_all;
    return experts + kernel_bytes(experts, a->n_nodes + a->cards.n) + least_context(f, a);
}

static int choose_tables(const struct plan_file *f, const struct plan_ask *a, uint64_t *left, struct plan *p,
                         struct err *e)
{
    const struct plan_tables *t = &f->tables;
    uint64_t whole = t->whole + kernel_bytes(t->whole, a->n_nodes + a->cards.n), least = t->token * p->max_tokens;
    uint64_t cache = a->tables ? a->tables : *left / TABLE_PART;

    if (!t->whole)
        return 0;
    if (least >= t->whole) /* rows of two passes are all of it */
        cache = whole;
    p->tables_whole = least >= t->whole ? *left >= whole : a->tables ? a->tables >= t->whole && *left >= whole : *left >= whole + before_tables(f, a, p);
    if (p->tables_whole) {
        p->bytes.tables = whole;
    } else {
        p->table_cache = less(cache > least ? cache : least, t->whole);
        p->bytes.tables = p->table_cache + t->stage + kernel_bytes(t->stage, a->n_nodes + a->cards.n);
        if (a->tables && p->table_cache > a->tables)
            note(p, 1, "--table-ram %llu: passes of %u tokens need %llu", (unsigned long long)a->tables, p->max_tokens,
                 (unsigned long long)p->table_cache);
        else
            note(p, !a->tables, "of %.2f GB of look-up tables %.3f GB of rows are kept in memory, the rest is read as "
                                "needed", GB(t->whole), GB(p->table_cache));
    }
    if (p->bytes.tables > *left)
        return err_set(e, -ENOMEM, "%s: rows of look-up tables take %.1f MB, but %.1f MB of memory are left: raise the "
                                   "limit or free memory, or give a smaller --batch",
                       f->path, (double)p->bytes.tables * 1e-6, (double)*left * 1e-6);
    *left -= p->bytes.tables;
    return 0;
}

/* ---- experts ---- */

/* How the bytes for experts are cut. */
static int cut_experts(const struct plan_file *f, struct plan *p, struct err *e)
{
    int rc = slab_plan(f->layer, f->n_layers, p->geo.n_nodes, p->ram, &p->slabs, e);

    p->geo.n_slabs = p->slabs.n_slabs;
    p->bytes.experts = 0;
    for (uint32_t k = 0; !rc && k < p->geo.n_nodes; k++)
        p->bytes.experts += p->slabs.node_bytes[k];
    return rc;
}

/* The most for experts that every node can hold its share of. */
static uint64_t nodes_hold(const struct plan_budget *b, const struct slab_plan *all, uint32_t n_nodes)
{
    uint64_t most = UINT64_MAX;

    for (uint32_t k = 0; k < n_nodes; k++) {
        uint64_t left = b->node_left[k];
        if (left == UINT64_MAX || !all->node_bytes[k])
            continue;
        left -= left / RESERVE_PART;
        if (left < all->node_bytes[k]) /* its share of all experts does not fit */
            most = less(most, (uint64_t)((double)all->need_all * ((double)left / (double)all->node_bytes[k])));
    }
    return most;
}

static int choose_experts(const struct plan_file *f, const struct plan_ask *a, const struct plan_budget *b,
                          uint64_t *left, struct plan *p, struct err *e)
{
    uint32_t n = p->geo.n_nodes;
    uint64_t context = least_context(f, a);
    uint64_t most = without_kernel(*left > context ? *left - context : 0, n + a->cards.n), node;
    struct slab_plan all;
    int rc = slab_plan(f->layer, f->n_layers, n, UINT64_MAX, &all, e);

    if (rc)
        return rc;
    p->need_experts = all.need_all;
    node = nodes_hold(b, &all, n);
    most = less(most, node);
    if (most < all.need_one)
        return err_set(e, -ENOMEM,
                       "%s: beside trunk, passes%s %.1f MB of memory are left for experts, and one takes "
                       "%.1f MB: raise the limit or free memory%s",
                       f->path, a->n_ctx ? " and -c" : " and context", (double)most * 1e-6,
                       (double)all.need_one * 1e-6,
                       a->n_ctx > PLAN_CONTEXT ? ", or give a smaller -c" : a->batch ? ", or a smaller --batch" : "");
    if (a->ram > most && less(a->ram, all.need_all) > most)
        return err_set(e, -ENOMEM,
                       "--ram %llu: %llu bytes of memory are left for experts%s; a smaller --ram reads the "
                       "rest as needed",
                       (unsigned long long)a->ram, (unsigned long long)most,
                       node == most ? " on the nodes" : "");
    p->ram = a->ram ? a->ram : most;
    if (!a->ram && p->ram < all.need_all)
        note(p, 1, "%.2f GB of %.2f GB of experts fit into memory, the rest is read as needed", GB(p->ram),
             GB(all.need_all));
    rc = cut_experts(f, p, e);
    if (rc)
        return rc;
    node = kernel_bytes(p->bytes.experts, n + a->cards.n);
    p->bytes.kernel += node;
    *left -= p->bytes.experts + node;
    return 0;
}

/* ---- context ---- */

/* What another sequence costs is said where there are several. */
static void say_sequences(const struct plan_file *f, const struct plan_ask *a, struct plan *p)
{
    if (n_seqs(a) > 1)
        note(p, 1, "%u sequences with a context of %u tokens and %.1f MB each", n_seqs(a), p->n_ctx,
             1e-6 * (double)(f->sequence_bytes + f->saved_bytes / n_seqs(a) + p->n_ctx * f->kept_bytes));
}

/* As asked, or the model's maximum, or what fits beside trunk and experts. */
static int choose_context(const struct plan_file *f, const struct plan_ask *a, uint64_t left,
                          struct plan *p, struct err *e)
{
    uint64_t one = position_bytes(f, a), fixed = fixed_bytes(f, a), want = a->n_ctx, most;
    uint32_t max = f->n_ctx_train;

    if (fixed > left)
        return err_set(e, -ENOMEM, "%s %llu bytes whatever %s length, but %llu are left",
                       n_seqs(a) > 1 ? "sequences (--parallel) take" : "a sequence takes", (unsigned long long)fixed,
                       n_seqs(a) > 1 ? "their" : "its", (unsigned long long)left);
    left -= fixed;
    if (want) {
        if (want * one > left)
            return err_set(e, -ENOMEM,
                           "-c %u: keys and values take %llu bytes, but %llu are left; %s of "
                           "%llu fit%s",
                           a->n_ctx, (unsigned long long)(want * one), (unsigned long long)left,
                           n_seqs(a) > 1 ? "--parallel's contexts" : "a context", (unsigned long long)(left / one),
                           n_seqs(a) > 1 ? "" : "s");
        p->n_ctx = a->n_ctx;
        if (p->n_ctx > max)
            note(p, 1, "-c %u is more than the %u tokens the model was trained on", p->n_ctx, max);
        p->bytes.context = fixed + p->n_ctx * one;
        say_sequences(f, a, p);
        return 0;
    }
    /* with all experts in memory half of the rest is left to others; else context is what is over */
    most = (p->slabs.resident ? left / 2 : left) / one;
    p->n_ctx = most < max ? (uint32_t)(most / CONTEXT_STEP * CONTEXT_STEP) : max;
    if (!p->n_ctx)
        return err_set(e, -ENOMEM, "no memory for keys and values: %llu bytes a token, %llu bytes left",
                       (unsigned long long)one, (unsigned long long)left);
    if (p->n_ctx < max)
        note(p, 1, "context %u tokens, what fits in memory (the model's maximum is %u)", p->n_ctx, max);
    else
        note(p, 0, "context %u tokens, the model's maximum", p->n_ctx);
    p->bytes.context = fixed + p->n_ctx * one;
    say_sequences(f, a, p);
    return 0;
}

/* ---- all of it ---- */

static uint64_t reserve_of(const struct plan_budget *b)
{
    uint64_t part = b->left / (b->own ? RESERVE_PART_OWN : RESERVE_PART);

    return less(part > RESERVE_LEAST ? part : RESERVE_LEAST, b->left);
}

int plan_make(const struct plan_file *f, const struct plan_ask *a, const struct plan_budget *b,
              struct plan *p, struct err *e)
{
    uint64_t left, fixed;
    int rc;

    *p = (struct plan){.bytes = {.trunk = f->trunk_bytes, .reserve = reserve_of(b)}};
    left = b->left - p->bytes.reserve;
    choose_passes(f, a, left, p);
    p->bytes.cards = a->cards.pools;
    p->bytes.kernel = kernel_bytes(f->trunk_bytes + p->bytes.calls, a->n_nodes + a->cards.n) +
                      kernel_bytes(a->cards.pools, 0);
    p->bytes.process = (2 + a->n_nodes) * PROCESS_BYTES + cards_processes(f, a) + PAGER_THREADS * READER_BYTES +
                       (2 * a->threads + a->n_nodes) * (THREAD_BYTES + THREAD_WIDE * (uint64_t)f->n_ff);
    fixed = plan_taken(p);
    if (fixed > left)
        return err_set(e, -ENOMEM,
                       "%s: the trunk takes %.1f MB and passes of %u tokens and the processes %.1f MB, but "
                       "%.1f MB of memory are left: raise the limit or free memory%s",
                       f->path, (double)f->trunk_bytes * 1e-6, p->max_tokens,
                       (double)(fixed - f->trunk_bytes) * 1e-6, (double)left * 1e-6,
                       a->batch > PLAN_BATCH_LEAST ? ", or give a smaller --batch" : "");
    left -= fixed;
    if ((rc = choose_tables(f, a, &left, p, e)))
        return rc;
    rc = choose_experts(f, a, b, &left, p, e);
    return rc ? rc : choose_context(f, a, left, p, e);
}

uint64_t plan_taken(const struct plan *p)
{
    const struct plan_bytes *b = &p->bytes;

    return b->trunk + b->tables + b->calls + b->work + b->context + b->experts + b->cards + b->kernel + b->process;
}
