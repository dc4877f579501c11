/* One screen: what goes where, what was measured, what follows. */
#include "coordinator/cli/plan_report.h"

#include "coordinator/engine.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/cli/common.h"
#include "coordinator/cli/value.h"
#include "coordinator/residency/card_plan.h"
#include "coordinator/residency/plan.h"
#include "coordinator/trunk/exec/program.h"
#include "coordinator/supervise/cards_choose.h"
#include "shm/memory.h"

#define MS(x) (1e3 * (x))
#define GBS(x) (1e-9 * (x))
#define MBD(x) (1e-6 * (x))

static const char *size(uint64_t bytes)
{
    static char text[4][32];
    static int at;

    return value_show_size(bytes, text[at++ % 4]);
}

static void row(const char *what, uint64_t bytes, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void row(const char *what, uint64_t bytes, const char *fmt, ...)
{
    va_list ap;

    printf("  %-10s %10s  ", what, size(bytes));
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
}

static void memory_line(const struct memory *m)
{
    if (m->version && m->left < m->available)
        printf("memory     %s to take: cgroup v%d %s allows %s%s, %s are used\n", size(m->left), m->version, m->group,
               size(m->limit), m->high ? " (memory.high)" : "", size(m->used));
    else
        printf("memory     %s to take: what the machine has available%s\n", size(m->left),
               m->version ? "; its control groups allow more" : "");
}

/* Places by size class, if there are several. */
static void classes(const struct plan *p)
{
    const struct pools *c = &p->slabs.pools;

    if (p->slabs.resident || c->n < 2)
        return;
    for (uint32_t s = 0; s < c->n; s++)
        printf("%24s%s: %u places and %u spare for %u experts\n", "", size(c->bytes[s]), c->places[s],
               p->slabs.spare[s], c->experts[s]);
}

/* Pools of cards; or why there are none. */
static void cards(const struct plan_report *r)
{
    const struct engine_look *l = r->look;

    for (uint32_t c = 0; c < l->cards->n_cards; c++) {
        const struct card_chosen *k = &l->real->card[c];
        uint32_t slots = l->cards->slot0[c + 1] - l->cards->slot0[c];
        char name[16];

        snprintf(name, sizeof name, "card %u", l->real->n ? k->device : c);
        if (l->real->n)
            row(name, l->cards->bytes[c], "slots for %u experts (%.1f %%)%s; %s, %s free", slots,
                100.0 * slots / (double)r->experts, (int)c == l->trunk_card ? " and the trunk" : "", k->name, size(k->free));
        else
            row(name, l->cards->bytes[c], "slots for %u experts (%.1f %%)%s; emulated, in this memory", slots,
                100.0 * slots / (double)r->experts, (int)c == l->trunk_card ? " and the trunk" : "");
    }
    if (!l->cards->n_cards && *l->real->why)
        printf("  %-10s %10s  %s\n", "cards", "none", strncmp(l->real->why, "no cards: ", 10) ? l->real->why : l->real->why + 10);
}

/* Tables that are looked up by rows. */
static void tables(const struct plan_report *r)
{
    const struct program *g = r->look->prog;
    const struct plan *p = r->look->plan;

    if (!g->n_tables)
        return;
    if (p->tables_whole)
        row("tables", p->bytes.tables, "look-up tables, whole; a token reads %u bytes", g->token_bytes);
    else
        row("tables", p->bytes.tables, "%" PRIu64 " rows and those on their way of %s on the disk; a token needs %s",
            p->table_cache / r->look->table_row, size(r->look->table_bytes), size(g->token_bytes));
}

static void where(const struct plan_report *r)
{
    const struct plan *p = r->look->plan;
    const struct plan_bytes *b = &p->bytes;
    uint64_t at_hand = r->places + (p->slabs.resident ? 0 : r->look->cards->n_slots);
    uint64_t on_disk = r->experts > at_hand ? r->experts - at_hand : 0;

    row("trunk", b->trunk, "weights, all in memory");
    tables(r);
    if (p->slabs.resident)
        row("experts", b->experts, "all %" PRIu64 ", each in memory", r->experts);
    else
        row("experts", b->experts, "%" PRIu64 " of %" PRIu64 " (%.1f %%), %u slabs%s", r->places, r->experts,
            100.0 * (double)r->places / (double)r->experts, p->geo.n_slabs,
            p->geo.n_slabs > r->places ? ", the others are for reading into" : "");
    classes(p);
    cards(r);
    if (r->look->n_nodes > 1)
        for (uint32_t k = 0; k < r->look->n_nodes; k++)
            row("", p->slabs.node_bytes[k], "on node %u", k);
    if (b->cards)
        row("cards", b->cards, "pools of emulated cards");
    if (p->geo.n_seqs > 1)
        row("contexts", b->context, "%u of %u tokens, %s", p->geo.n_seqs, p->n_ctx, kv_name(r->kv));
    else
        row("context", b->context, "%u tokens, %s", p->n_ctx, kv_name(r->kv));
    row("passes", b->work, "buffers of %u tokens", p->max_tokens);
    row("calls", b->calls, "rings, arenas, outboxes, tables");
    row("kernel", b->kernel, "page tables and the like of these");
    row("processes", b->process, "stacks and heaps");
    row("left alone", b->reserve, "text of programs, pages of files, others");
    if (r->look->memory->left > plan_taken(p) + b->reserve)
        row("free", r->look->memory->left - plan_taken(p) - b->reserve, "not needed");
    if (on_disk)
        row("on disk", r->expert_bytes / r->experts * on_disk, "%" PRIu64 " experts, read as needed", on_disk);
}

static void measured(const struct plan_report *r)
{
    const struct layer_times *t = &r->layer;

    printf("\nmeasured   just now, in %.1f s\n", r->measure_seconds);
    printf("  trunk      %8.2f ms a token: %.1f GB/s of weights, %u threads\n", MS(r->trunk.seconds),
           GBS((double)r->trunk.bytes / r->trunk.seconds), r->look->threads);
    printf("  experts    %8.2f ms a layer of %u: %.1f GB/s of weights", MS(t->seconds[0]), t->used, GBS(t->alone));
    if (t->disk > 0)
        printf("; %.1f beside reads", GBS(t->beside));
    printf("\n  disk       %8.2f GB/s in reads of %s, %u at once", GBS(r->disk.bytes_per_s), size(r->disk_read),
           r->disk_depth);
    if (t->disk > 0)
        printf("; %.2f for a layer's %u experts, computing beside", GBS(t->disk), t->used);
    if (t->one_by_one)
        printf(", one by one (no io_uring here: a run, with threads, reads faster)");
    putchar('\n');
    if (t->disk > 0) {
        printf("  reading    a layer of which");
        for (uint32_t i = 0, step = t->used > 5 ? t->used / 4 : 1; i <= t->used; i += step)
            printf("%s %u", i ? "," : "", i);
        printf(" are absent:");
        for (uint32_t i = 0, step = t->used > 5 ? t->used / 4 : 1; i <= t->used; i += step)
            printf("%s %.2f", i ? "," : "", MS(t->seconds[i]));
        printf(" ms\n");
    }
}

static void measured_cards(const struct plan_report *r)
{
    for (uint32_t i = 0; i < r->cards.n; i++) {
        const struct card_found *c = &r->found->card[r->look->real->card[i].device];
        char name[16];

        snprintf(name, sizeof name, "card %u", c->number);
        printf("  %-10s %8.3f ms a layer of %u: %.1f GB/s of weights; uploads %.1f GB/s, hand-off %.1f us\n", name,
               1e-3 * c->experts_layer, r->layer.used, GBS(c->experts), GBS(c->upload), c->round_trip / 2);
    }
}

/* Who has the uses, and who computes them. */
static void tiers(const struct plan_report *r)
{
    printf("  uses       %8.1f %%  of cards' experts, %.1f %% of others in memory, %.1f %% on the disk\n", 100 * r->card_hit,
           100 * (r->hit - r->card_hit), 100 * (1 - r->hit));
    if (r->look->cards->n_cards && !r->cards.n) {
        printf("  cards      %8s    %s: the speed is reckoned without them\n", "",
               r->look->real->n ? "could not be measured" : "emulated");
        return;
    }
    printf("  computed   ");
    for (uint32_t i = 0; i < r->cards.n; i++)
        printf("%s%.1f %% by card %u", i ? ", " : "", 100 * r->out.part[i], r->look->real->card[i].device);
    printf("; the rest by the nodes\n");
}

static void expected(const struct plan_report *r)
{
    const struct predict_out *o = &r->out;

    printf("\nexpected   once the memory has filled\n");
    printf("  hit rate   %8.1f %%  %s\n", 100 * r->hit, r->why);
    if (r->look->cards->n_cards)
        tiers(r);
    printf("  a token    %8.1f MB of the trunk, ", MBD((double)r->trunk.bytes));
    if (r->cards.n)
        printf("%.1f MB of experts from cards, %.1f MB from memory", MBD(o->card_bytes), MBD(o->memory_bytes));
    else
        printf("%.1f MB of experts from memory", MBD(o->memory_bytes));
    printf(", %.1f MB from the disk\n", MBD(o->disk_bytes));
    printf("  takes      %8.1f ms: trunk %.1f, experts %.1f (%.2f layers of %.2f)\n", MS(o->seconds),
           MS(r->in.trunk_seconds), MS(o->experts_seconds), r->in.layers, MS(o->experts_seconds / r->in.layers));
    printf("  speed      %8.1f tokens/s", o->tokens_per_s);
    if (o->seconds > o->best_seconds)
        printf("; %.1f if nothing had to be read", 1 / o->best_seconds);
    putchar('\n');
}

/* Not in the figures below: how often a draft is right is known only while running. */
static void drafts(const struct model *m)
{
    const struct model_layer *l = &m->layer[m->n_layers - 1];

    if (!m->n_nextn)
        return;
    printf("drafts     a NextN block, %s of experts more; run drafts as many tokens as pay, at most %d a step: k with the\n"
           "           largest (1 + a1 + a1 a2 + ...) / (a step of 1 + k tokens + k drafts), aj: part of drafts at place j\n"
           "           that are right, all measured while running, against 1 / (a step of one token) with none\n",
           size(l->expert_bytes * l->n_experts), DRAFTS_MOST);
}

void plan_report_print(const struct plan_report *r)
{
    const struct model *m = r->look->m;

    printf("model      %s: %u layers of %u experts, %u used; an expert is %s\n", model_arch_name(m), r->expert_layers,
           m->n_experts, m->top_k, size(r->expert_bytes / r->experts));
    drafts(m);
    memory_line(r->look->memory);
    where(r);
    if (!r->measured)
        return;
    measured(r);
    measured_cards(r);
    expected(r);
}

/* ---- JSON ---- */

static void put_u64(struct json_out *j, const char *key, uint64_t v)
{
    json_key(j, key);
    json_put_u64(j, v);
}
static void put_f64(struct json_out *j, const char *key, double v)
{
    json_key(j, key);
    json_put_f64(j, v);
}

static void put_card(struct json_out *j, const struct plan_report *r, uint32_t c)
{
    const struct engine_look *l = r->look;
    const struct card_chosen *k = &l->real->card[c];

    json_open_object(j);
    put_u64(j, "card", c);
    json_key(j, "device");
    if (l->real->n)
        json_put_u64(j, k->device);
    else
        json_put_null(j);
    json_key(j, "name");
    json_put_str(j, l->real->n ? k->name : "emulated");
    if (l->real->n)
        put_u64(j, "free_bytes", k->free);
    put_u64(j, "pool_bytes", l->cards->bytes[c]);
    put_u64(j, "slots", l->cards->slot0[c + 1] - l->cards->slot0[c]);
    json_key(j, "trunk");
    json_put_bool(j, (int)c == l->trunk_card);
    if (c < r->cards.n) {
        const struct card_found *f = &r->found->card[k->device];
        put_f64(j, "experts_bytes_per_s", f->experts);
        put_f64(j, "upload_bytes_per_s", f->upload);
        put_f64(j, "round_trip_us", f->round_trip);
        put_f64(j, "part_of_uses", r->out.part[c]);
    }
    json_close_object(j);
}

static void put_cards(struct json_out *j, const struct plan_report *r)
{
    json_key(j, "cards");
    json_open_array(j);
    for (uint32_t c = 0; c < r->look->cards->n_cards; c++)
        put_card(j, r, c);
    json_close_array(j);
    json_key(j, "cards_not_used");
    if (*r->look->real->why)
        json_put_str(j, r->look->real->why);
    else
        json_put_null(j);
    put_u64(j, "card_slots", r->look->cards->n_slots);
}

static void put_where(struct json_out *j, const struct plan_report *r)
{
    const struct plan *p = r->look->plan;
    const struct plan_bytes *b = &p->bytes;

    put_u64(j, "memory_left", r->look->memory->left);
    json_key(j, "bytes");
    json_open_object(j);
    put_u64(j, "trunk", b->trunk);
    put_u64(j, "tables", b->tables);
    put_u64(j, "experts", b->experts);
    put_u64(j, "cards", b->cards);
    put_u64(j, "context", b->context);
    put_u64(j, "passes", b->work);
    put_u64(j, "calls", b->calls);
    put_u64(j, "kernel", b->kernel);
    put_u64(j, "processes", b->process);
    put_u64(j, "left_alone", b->reserve);
    json_close_object(j);
    json_key(j, "node_bytes");
    json_open_array(j);
    for (uint32_t k = 0; k < r->look->n_nodes; k++)
        json_put_u64(j, p->slabs.node_bytes[k]);
    json_close_array(j);
    put_u64(j, "table_bytes", r->look->table_bytes);
    json_key(j, "tables_whole");
    json_put_bool(j, p->tables_whole);
    put_u64(j, "table_rows_kept", p->tables_whole || !r->look->table_row ? 0 : p->table_cache / r->look->table_row);
    put_u64(j, "threads", r->look->threads);
    put_u64(j, "n_ctx", p->n_ctx);
    put_u64(j, "n_seqs", p->geo.n_seqs);
    put_u64(j, "pass_tokens", p->max_tokens);
    put_u64(j, "experts", r->experts);
    put_u64(j, "experts_bytes", r->expert_bytes);
    put_u64(j, "places", r->places);
    put_u64(j, "n_slabs", p->geo.n_slabs);
    put_cards(j, r);
}

static void put_measured(struct json_out *j, const struct plan_report *r)
{
    json_key(j, "measured");
    json_open_object(j);
    put_f64(j, "seconds", r->measure_seconds);
    put_f64(j, "trunk_ms", MS(r->trunk.seconds));
    put_u64(j, "trunk_bytes", r->trunk.bytes);
    put_f64(j, "experts_bytes_per_s", r->layer.alone);
    put_f64(j, "experts_beside_reads_bytes_per_s", r->layer.beside);
    put_f64(j, "disk_bytes_per_s", r->disk.bytes_per_s);
    put_f64(j, "disk_beside_compute_bytes_per_s", r->layer.disk);
    json_key(j, "layer_ms_by_absent");
    json_open_array(j);
    for (uint32_t i = 0; i <= (r->layer.disk > 0 ? r->layer.used : 0); i++)
        json_put_f64(j, MS(r->layer.seconds[i]));
    json_close_array(j);
    json_close_object(j);
}

static void put_expected(struct json_out *j, const struct plan_report *r)
{
    json_key(j, "expected");
    json_open_object(j);
    put_f64(j, "hit_rate", r->hit);
    json_key(j, "hit_rate_from");
    json_put_str(j, r->why);
    put_f64(j, "card_hit_rate", r->card_hit);
    put_f64(j, "card_bytes_a_token", r->out.card_bytes);
    put_f64(j, "memory_bytes_a_token", r->out.memory_bytes);
    put_f64(j, "disk_bytes_a_token", r->out.disk_bytes);
    put_f64(j, "token_ms", MS(r->out.seconds));
    put_f64(j, "tokens_per_s", r->out.tokens_per_s);
    put_f64(j, "tokens_per_s_nothing_read", 1 / r->out.best_seconds);
    json_close_object(j);
}

int plan_report_json(const struct plan_report *r, struct err *e)
{
    struct json_out *j = json_out_new(1);
    const char *text;
    size_t n;
    int rc;

    if (!j)
        return err_set(e, -ENOMEM, "no memory for --json");
    json_open_object(j);
    json_key(j, "command");
    json_put_str(j, "plan");
    json_key(j, "architecture");
    json_put_str(j, model_arch_name(r->look->m));
    put_where(j, r);
    if (r->measured) {
        put_measured(j, r);
        put_expected(j, r);
    }
    json_close_object(j);
    rc = json_text(j, &text, &n, e);
    if (!rc)
        printf("%s\n", text);
    json_out_free(j);
    return rc;
}
