/* Sizes in the order of their importance: passes and arenas, trunk, experts, context. No I/O, no clock:
 * tested by tables. */
#include "coordinator/residency/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "shm/size.h"

#define RESERVE_PART 16 /* a sixteenth of the free memory is left alone */
#define CONTEXT_STEP 256u

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

/* ---- passes ---- */

static void choose_passes(const struct plan_file *f, const struct plan_ask *a, struct plan *p)
{
    uint32_t logits = at_least(PLAN_LOGIT_BYTES / (f->n_vocab * sizeof(float)), 1);

    p->max_tokens = a->batch ? a->batch : PLAN_BATCH;
    p->max_out = 1;
    if (!a->every_row)
        return;
    p->max_out = p->max_tokens < logits ? p->max_tokens : logits;
    if (p->max_out < p->max_tokens) { /* every token of a pass may want its row */
        if (a->batch)
            note(p, 1, "--batch %u: passes of %u tokens, whose logits fit into %llu MB", a->batch,
                 p->max_out, PLAN_LOGIT_BYTES >> 20);
        p->max_tokens = p->max_out;
    }
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

/* ---- experts ---- */

/* How the bytes for experts are cut. */
static int cut_experts(const struct plan_file *f, struct plan *p, struct err *e)
{
    int rc = slab_plan(f->layer, f->n_layers, p->geo.n_nodes, p->ram, &p->slabs, e);

    p->geo.n_slabs = p->slabs.n_slabs;
    return rc;
}

static int choose_experts(const struct plan_file *f, const struct plan_ask *a, uint64_t *left,
                          struct plan *p, struct err *e)
{
    struct slab_plan all;
    int rc = slab_plan(f->layer, f->n_layers, p->geo.n_nodes, UINT64_MAX, &all, e);

    if (rc)
        return rc;
    p->ram = a->ram;
    if (!p->ram) { /* everything, or what is left beside a modest context */
        uint64_t kv = f->kv_bytes * (a->n_ctx ? a->n_ctx : PLAN_CONTEXT);
        p->ram = *left > kv ? *left - kv : 0;
        if (p->ram < all.need_all)
            note(p, 1, "%.2f GB of %.2f GB of experts fit into memory, the rest is read as needed",
                 (double)p->ram * 1e-9, (double)all.need_all * 1e-9);
    }
    rc = cut_experts(f, p, e);
    if (rc)
        return rc;
    for (uint32_t k = 0; k < p->geo.n_nodes; k++) {
        if (p->slabs.node_bytes[k] > *left)
            return err_set(e, -ENOMEM,
                           "slabs for experts take %llu bytes, but %llu bytes of memory are left; a "
                           "smaller --ram reads the rest as needed",
                           (unsigned long long)p->slabs.node_bytes[k], (unsigned long long)*left);
        *left -= p->slabs.node_bytes[k];
    }
    return 0;
}

/* ---- context ---- */

/* As asked, or the model's maximum, or what fits beside trunk and experts. */
static int choose_context(const struct plan_file *f, const struct plan_ask *a, uint64_t left,
                          struct plan *p, struct err *e)
{
    uint64_t one = f->kv_bytes, want = a->n_ctx, most;
    uint32_t max = f->n_ctx_train;

    if (want) {
        if (want * one > left)
            return err_set(e, -ENOMEM,
                           "-c %u: keys and values take %llu bytes, but %llu are left; a context of "
                           "%llu fits",
                           a->n_ctx, (unsigned long long)(want * one), (unsigned long long)left,
                           (unsigned long long)(left / one));
        p->n_ctx = a->n_ctx;
        if (p->n_ctx > max)
            note(p, 1, "-c %u is more than the %u tokens the model was trained on", p->n_ctx, max);
        return 0;
    }
    most = left / 2 / one;
    p->n_ctx = most < max ? (uint32_t)(most / CONTEXT_STEP * CONTEXT_STEP) : max;
    if (!p->n_ctx)
        return err_set(e, -ENOMEM, "no memory for keys and values: %llu bytes a token, %llu bytes left",
                       (unsigned long long)one, (unsigned long long)left);
    if (p->n_ctx < max)
        note(p, 1, "context %u tokens, what fits in memory (the model's maximum is %u)", p->n_ctx, max);
    else
        note(p, 0, "context %u tokens, the model's maximum", p->n_ctx);
    return 0;
}

int plan_make(const struct plan_file *f, const struct plan_ask *a, const struct plan_budget *b,
              struct plan *p, struct err *e)
{
    uint64_t left = b->left - b->left / RESERVE_PART, fixed;
    int rc;

    *p = (struct plan){0};
    choose_passes(f, a, p);
    geometry_of(f, a, p);
    fixed = f->trunk_bytes + (3 + a->n_nodes) * PLAN_ARENA_BYTES / 4;
    if (fixed > left)
        return err_set(e, -ENOMEM, "%s: the trunk takes %llu bytes, but %llu bytes of memory are left",
                       f->path, (unsigned long long)f->trunk_bytes, (unsigned long long)left);
    left -= fixed;
    rc = choose_experts(f, a, &left, p, e);
    return rc ? rc : choose_context(f, a, left, p, e);
}
