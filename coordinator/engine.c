/* Puts the processes together: sizes first, then segments, workers, loading, the steward, the team. The
 * order of teardown is the reverse. Everything that takes memory is compared with what is left before
 * it is made. */
#define _GNU_SOURCE
#include "coordinator/engine.h"

#include <assert.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/lights.h"
#include "coordinator/machine.h"
#include "coordinator/pack/original.h"
#include "coordinator/pack/verify.h"
#include "coordinator/residency/plan.h"
#include "coordinator/supervise/load.h"
#include "coordinator/supervise/lookup.h"
#include "coordinator/supervise/trunk_host.h"
#include "coordinator/trunk/arch/arch.h"
#include "coordinator/trunk/dump.h"
#include "coordinator/trunk/routes.h"
#include "kernels/matmul/matmul.h"
#include "coordinator/trunk/exec/exec.h"
#include "coordinator/trunk/exec/moe.h"

#define PAGER_SLOT PROC_PAGER
#define N_WORKERS_MAX (1 + MAX_NODES + MAX_CARDS)
#define CARD_LEAST (1ull << 30) /* with less free memory a card is of no use */
#define OWN_CORE_LEAST 8u /* cores from which on one is kept for those that look (own_core) */
#define LOOKUP_TOKEN_BYTES 512u /* of rows' numbers and lists, for each token of a pass */
#define CARD_PARTS 64u /* emulated pools are not made smaller than this part of the experts unless asked for */
#define CARD_BESIDE (768ull << 20) /* of a real card: kernels, and the arrays of a pass */

struct engine {
    const struct engine_options *o;
    struct model *m;
    struct program *prog;
    uint32_t drafts; /* most for a step; 0: the NextN block is not used */
    struct machine machine;
    struct memory memory;
    struct plan plan;
    int trunk_card;           /* whose worker executes the trunk's program; -1: we do */
    int card_failed;          /* its first worker did not start */
    uint32_t n_cards;         /* 0: none */
    struct cards_chosen real; /* n of them: cards that the driver has; 0: emulated */
    struct card_plan cards;
    uint8_t *card_size_of; /* by layer */
    struct card_channel channel[MAX_CARDS];
    struct spread_rates rates; /* given, for tests */
    struct life life[MAX_CARDS]; /* of each card's workers */
    struct pieces pieces;
    uint32_t threads, n_nodes, n_seqs;
    struct expert_layer *layer;
    uint64_t *trunk_off, trunk_bytes; /* trunk_off LOOKUP_PAGED: a table's rows are read as needed */
    struct lookup_needs table_needs;
    uint64_t stage;           /* where such rows are read to, in the trunk's segment */
    struct lookup *lookup;    /* NULL: no tables by rows */
    struct weight_at *weight_at; /* by program weight */
    struct weights weights;

    struct seg board, calls, acts, amends, bells, tables, orders, trunk, pager_box;
    struct seg outbox[MAX_NODES], slab[MAX_NODES];
    struct seg card_box[2 * MAX_CARDS]; /* by outbox_home */
    struct seg card_orders[MAX_CARDS], card_answers[MAX_CARDS];
    struct outbox *box[MAX_PROCS]; /* by outbox number */
    struct worker worker[N_WORKERS_MAX]; /* the pager, then the nodes, then the cards */
    size_t n_workers;
    struct watch *watch;
    struct paging *paging;
    struct moe *moe; /* the trunk is executed here ... */
    struct exec *exec;
    struct trunk_host *host; /* ... or by a card's worker */
    int host_cpu[MACHINE_MAX_CPUS];
    _Atomic uint64_t here;     /* steps that we execute in place of a card that was left out << 32 | the last one's tokens */
    uint64_t told_record;      /* of the steward's thread: last one whose tokens `uses` knows */
    uint32_t *told_uses;       /* ... and the own hits that it knows, as answer_uses counts them */
    const uint32_t *best;            /* of the last step, told by its executor; NULL: not */
    struct engine_saved {
        uint32_t seq, pos;
        uint64_t life; /* of the executor that has it */
        int there;
    } *saved;             /* n_saved */
    uint64_t *draft_life; /* by sequence: of the executor that has its rows of the NextN block */
    struct team *team;
    _Atomic uint64_t disk_call;
    _Atomic uint32_t step_open; /* of an executor on a real card, which rings nobody */
    struct uses *uses;  /* not all experts are resident */
    struct ahead *ahead;
    struct prefetch prefetch; /* this thread's */
    uint64_t ahead_steps;
    struct heat_keeper *heat;
    struct routes *routes;
    struct tracer *tracer;
    struct timeline timeline; /* this process's */
    uint64_t load_ns, loaded_bytes, loaded_again, step_ns, steps, draft_ns;

    int (*body)(struct engine *en, void *arg, struct err *e);
    void *arg;
    struct err *e;
};

static struct board *board_of(struct engine *en)
{
    return en->board.base;
}

static void note(const struct engine *en, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(const struct engine *en, const char *fmt, ...)
{
    va_list ap;

    if (!en->o->verbose)
        return;
    va_start(ap, fmt);
    fputs("conclave: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}

/* ---- sizes ---- */

static void choose_counts(struct engine *en)
{
    const struct engine_options *o = en->o;

    machine_look(&en->machine);
    en->threads = o->threads ? o->threads : en->machine.n_cores;
    en->n_seqs = o->n_seqs ? o->n_seqs : 1;
    en->n_nodes = o->nodes ? o->nodes : en->machine.n_nodes;
    if (en->n_nodes > MAX_NODES)
        en->n_nodes = MAX_NODES;
}

/* The NUMA node of worker k; -1: simulated, or a machine without. */
static int node_of(const struct engine *en, uint32_t k)
{
    return en->n_nodes == en->machine.n_nodes ? en->machine.numa_id[k] : -1;
}

static int expert_layers(struct engine *en, struct err *e)
{
    const struct model *m = en->m;

    en->layer = calloc(m->n_layers, sizeof *en->layer);
    if (!en->layer)
        return err_set(e, -ENOMEM, "no memory for %u layers", m->n_layers);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        struct expert_layer *l = &en->layer[i];
        if (!m->layer[i].n_experts || (i >= m->n_layers - m->n_nextn && !en->drafts))
            continue; /* a dense layer, or a block that nobody asks */
        l->n_experts = m->layer[i].n_experts;
        l->top_k = m->top_k;
        l->limit = m->layer[i].limit;
        l->packed = gguf_pack(m->g) != NULL;
        for (int k = 0; k < N_MATS; k++) {
            const struct model_matrix *x = &m->layer[i].expert[k];
            l->m[k] = (struct expert_matrix){
                .type = x->type,
                .rows = x->rows,
                .cols = x->cols,
                .shard = x->shard,
                .row_bytes = x->row_bytes,
                .file_off = x->file_offset,
                .stride = x->stride,
            };
            l->has_scale |= x->scale != MODEL_NONE;
        }
    }
    return 0;
}

static int trunk_places(struct engine *en, struct err *e)
{
    en->trunk_off = calloc(en->m->n_tensors + 1, sizeof *en->trunk_off);
    if (!en->trunk_off)
        return err_set(e, -ENOMEM, "no memory for the table of tensors");
    for (uint32_t i = 0; i < en->m->n_tensors; i++) {
        if (en->m->tensor[i].by_rows)
            continue;
        en->trunk_off[i] = en->trunk_bytes;
        en->trunk_bytes += trunk_room(&en->m->tensor[i]);
    }
    return 0;
}

/* Tables behind the other weights: whole, or a stage for rows. */
static void table_places(struct engine *en)
{
    for (uint32_t i = 0; i < en->m->n_tensors; i++) {
        if (!en->m->tensor[i].by_rows)
            continue;
        en->trunk_off[i] = en->plan.tables_whole ? en->trunk_bytes : LOOKUP_PAGED;
        if (en->plan.tables_whole)
            en->trunk_bytes += trunk_room(&en->m->tensor[i]);
    }
    if (!en->prog->n_tables || en->plan.tables_whole)
        return;
    en->stage = en->trunk_bytes;
    en->trunk_bytes += en->table_needs.stage;
}

static int with_cards(const struct engine *en)
{
    return en->n_cards > 0;
}
/* Is the trunk executed by another process? */
static int away(const struct engine *en)
{
    return en->trunk_card >= 0;
}

/* Cards that were chosen automatically are not used after all. */
static void drop_cards(struct engine *en, const char *why)
{
    en->n_cards = en->real.n = 0;
    en->trunk_card = -1;
    memset(&en->cards, 0, sizeof en->cards);
    snprintf(en->real.why, sizeof en->real.why, "%s", why);
    fprintf(stderr, "conclave: cards are %s\n", why);
}

/* Cards of the driver: those that can be used, or why not. */
static int real_cards(struct engine *en, struct err *e)
{
    struct cards_found *f = calloc(1, sizeof *f);
    int rc;

    if (!f)
        return err_set(e, -ENOMEM, "no memory");
    cards_find(0, f);
    rc = cards_choose(&en->o->want, f, CARD_LEAST, &en->real, e);
    free(f);
    if (rc)
        return rc;
    if (*en->real.why && (en->real.notable || en->o->verbose))
        fprintf(stderr, "conclave: %s\n", en->real.why);
    return 0;
}

/* The flag that reads what the trunk makes, where it makes it; NULL: none. */
static const char *reads_trunk(const struct engine *en)
{
    return en->o->trunk_here ? en->o->trunk_here : en->o->record_routes ? "--record-routes" : NULL;
}

/* Which cards there are, and where the trunk is computed. */
static int which_cards(struct engine *en, struct err *e)
{
    const struct cards_wanted *w = &en->o->want;
    int rc;

    en->trunk_card = -1;
    if ((w->kind == CARDS_LISTED || w->kind == CARDS_AUTO) && (rc = real_cards(en, e)))
        return rc;
    en->n_cards = w->kind == CARDS_EMULATED ? w->n : en->real.n;
    if (w->trunk >= (int)en->n_cards)
        return err_set(e, -EINVAL, "--trunk %d: the list of cards has %s", w->trunk,
                       en->n_cards ? "fewer; it is counted from 0" : "none; see --cards");
    if (w->trunk >= 0 && reads_trunk(en))
        return err_set(e, -ENOTSUP, "--trunk %d: %s reads what the trunk makes, and a card's worker would have it; leave one "
                       "of them out", w->trunk, reads_trunk(en));
    if (en->n_cards && w->trunk != TRUNK_CPU && !reads_trunk(en))
        en->trunk_card = w->trunk >= 0 ? w->trunk : 0;
    if (en->n_cards && en->o->prefetch == PREFETCH_ON && w->kind == CARDS_AUTO)
        drop_cards(en, "not used: nothing is read ahead with cards, and --prefetch on wants it");
    return 0;
}

/* A trunk that real cards cannot compute yet is computed here. */
static int trunk_can(struct engine *en, struct err *e)
{
    uint32_t i = en->real.n && away(en) ? program_not_on_cards(en->prog) : PROG_NONE;

    if (i == PROG_NONE)
        return 0;
    if (en->o->want.trunk >= 0)
        return err_set(e, -ENOTSUP, "--trunk %d: cards do not compute this model's trunk yet (%s): --trunk cpu",
                       en->o->want.trunk, op_name((enum op_kind)en->prog->op[i].kind));
    note(en, "the trunk is computed here: cards do not compute this model's yet");
    en->trunk_card = -1;
    return 0;
}

/* What the trunk takes of its card: weights, keys and values, buffers of a pass. An upper bound: the worker
 * asks for it exactly. */
static uint64_t trunk_takes(const struct engine *en)
{
    const struct geometry *g = &en->plan.geo;
    const struct program *p = en->prog;
    struct exec_needs need = exec_needs(p, en->o->kv);
    uint64_t pairs = (uint64_t)en->plan.max_tokens * p->top_k, attention = 0;

    for (uint32_t i = 0; i < p->n_ops; i++) /* a few tokens by chunks of the context: heads, values */
        if (p->op[i].kind == OP_ATTENTION) {
            uint64_t n = (uint64_t)p->op[i].n[0] * (p->op[i].n[2] + 2) * sizeof(float) * 8 * (en->plan.n_ctx / 256 + 1);
            attention = n > attention ? n : attention;
        }
    return en->trunk_bytes + 512ull * p->n_weights + need.position * en->plan.n_ctx +
           en->n_seqs * (need.kept * en->plan.n_ctx + need.sequence) + (en->n_seqs + en->o->n_saved) * need.saved +
           need.token * en->plan.max_tokens + need.row * en->plan.max_out + attention +
           pairs * (g->n_embd + 4ull * g->n_ff) * sizeof(float) + 3ull * en->plan.max_tokens * g->n_embd * sizeof(float) +
           64 * (uint64_t)g->n_layers * g->n_experts;
}

/* What a pool takes of a card. */
static int pool_room(const struct engine *en, uint32_t c, uint64_t *bytes, struct err *e)
{
    const struct card_chosen *k = &en->real.card[c];
    uint64_t beside = CARD_BESIDE + ((int)c == en->trunk_card ? trunk_takes(en) : 0);
    uint64_t room = k->free > beside ? k->free - beside : 0;

    *bytes = k->most ? k->most : room;
    if (*bytes > room || !room)
        return err_set(e, -ENOMEM, "--cards: %llu bytes are wanted of card %u, %llu are free for experts%s; give less after "
                       "its number%s", (unsigned long long)*bytes, k->device, (unsigned long long)room,
                       (int)c == en->trunk_card ? " beside the trunk" : "",
                       (int)c == en->trunk_card ? ", a smaller -c, or --trunk cpu" : "");
    return 0;
}

/* The slots; `part`: of all experts that emulated pools of no given size hold together, one in so many. */
static int cut_cards(struct engine *en, uint32_t part, struct plan_cards *c, struct err *e)
{
    uint64_t bytes[MAX_CARDS];
    int rc;

    *c = (struct plan_cards){.n = en->n_cards, .emulated = !en->real.n, .trunk = away(en)};
    for (uint32_t k = 0; k < c->n; k++) {
        bytes[k] = en->o->want.most[k];
        if (en->real.n && (rc = pool_room(en, k, &bytes[k], e)))
            return rc;
    }
    rc = card_plan(en->layer, en->m->n_layers, c->n, bytes, part, en->card_size_of, &en->cards, e);
    c->n_slots = en->cards.n_slots;
    for (uint32_t k = 0; !rc && c->emulated && k < c->n; k++)
        c->pools += en->cards.bytes[k];
    return rc;
}

/* Emulated cards take their memory from ours: pools of no given size are halved until everything fits. */
static int plan_with_cards(struct engine *en, const struct plan_file *f, struct plan_ask *a,
                           const struct plan_budget *b, struct err *e)
{
    int halves = !en->real.n && !en->o->want.most[0], rc;

    if (!en->n_cards)
        return plan_make(f, a, b, &en->plan, e);
    free(en->card_size_of);
    en->card_size_of = calloc(en->m->n_layers, 1);
    if (!en->card_size_of)
        return err_set(e, -ENOMEM, "no memory for %u layers", en->m->n_layers);
    memset(&en->plan, 0, sizeof en->plan);
    /* once more where the trunk takes room of a card that its context decides, which the plan decides */
    if (en->real.n && away(en) && ((rc = cut_cards(en, 1, &a->cards, e)) || (rc = plan_make(f, a, b, &en->plan, e))))
        return rc;
    for (uint32_t part = 1;; part *= 2) {
        struct err why = {0};
        rc = cut_cards(en, part, &a->cards, e);
        if (rc)
            return rc;
        rc = plan_make(f, a, b, &en->plan, &why);
        if (rc != -ENOMEM || !halves || part >= CARD_PARTS) {
            if (rc && a->cards.emulated)
                return err_set(e, rc, "%.400s (emulated cards take %.1f MB of it: --cards emu:%u:BYTES)", why.msg,
                               1e-6 * (double)a->cards.pools, a->cards.n);
            *e = why;
            if (!rc && part > 1)
                fprintf(stderr, "conclave: the emulated cards together have room for 1/%u of the experts: no more fits "
                                "into memory\n", part);
            return rc;
        }
    }
}

static int choose_sizes(struct engine *en, struct err *e)
{
    const struct model *m = en->m;
    const struct engine_options *o = en->o;
    struct exec_needs need = exec_needs(en->prog, o->kv);

    en->table_needs = lookup_needs(en->prog, m, 1);
    struct plan_file f = {
        .path = m->path,
        .layer = en->layer,
        .n_layers = m->n_layers,
        .n_experts = m->n_experts,
        .top_k = m->top_k,
        .n_embd = m->n_embd,
        .n_ff = m->n_ff,
        .n_vocab = m->n_vocab,
        .n_ctx_train = m->n_ctx_train,
        .trunk_bytes = en->trunk_bytes,
        .token_bytes = need.token + 2 * en->prog->token_bytes + (en->prog->n_tables ? LOOKUP_TOKEN_BYTES : 0),
        .row_bytes = need.row,
        .position_bytes = need.position + (en->prog->n_tables ? en->n_seqs * sizeof(uint32_t) : 0),
        .kept_bytes = need.kept,
        .sequence_bytes = need.sequence,
        .saved_bytes = o->n_saved * need.saved,
        .tables = {.whole = en->table_needs.whole,
                   .stage = en->table_needs.stage,
                   .row = en->table_needs.row,
                   .token = en->table_needs.least},
    };
    const char *call_tokens = getenv("CONCLAVE_CALL_TOKENS"); /* tests: calls that small models do not need */
    struct plan_ask a = {.ram = o->ram, .tables = o->table_ram, .n_ctx = o->n_ctx, .batch = o->batch,
                         .n_nodes = en->n_nodes, .n_seqs = en->n_seqs, .threads = en->threads, .every_row = o->every_row,
                         .rows = en->n_seqs > 1 + en->drafts ? en->n_seqs : 1 + en->drafts,
                         .call_tokens = call_tokens ? (uint32_t)strtoul(call_tokens, NULL, 10) : 0};
    struct plan_budget b;
    struct err why = {0};
    int rc;

    memory_look(&en->memory);
    b.left = en->memory.left;
    b.own = en->memory.left < en->memory.available;
    for (uint32_t k = 0; k < en->n_nodes; k++)
        b.node_left[k] = node_of(en, k) < 0 ? UINT64_MAX : memory_node_left(node_of(en, k));
    if ((rc = plan_with_cards(en, &f, &a, &b, &why)) && en->real.n && o->want.kind == CARDS_AUTO) {
        char text[sizeof en->real.why];
        snprintf(text, sizeof text, "not used: %.500s", why.msg);
        drop_cards(en, text);
        memset(&a.cards, 0, sizeof a.cards);
        why = (struct err){0};
        rc = plan_with_cards(en, &f, &a, &b, &why);
    }
    if (rc)
        return err_set(e, rc, "%s", why.msg);
    en->plan.geo.n_vocab = m->n_vocab;
    en->plan.geo.n_ctx = en->plan.n_ctx;
    en->plan.geo.n_seqs = en->n_seqs;
    en->plan.geo.n_saved = o->n_saved;
    en->plan.geo.step_tokens = en->plan.max_tokens;
    en->plan.geo.step_out = en->plan.max_out;
    en->plan.geo.n_slots = en->cards.n_slots;
    en->plan.geo.token_bytes = en->prog->token_bytes;
    table_places(en);
    for (uint32_t i = 0; i < en->plan.n_notes; i++)
        if (en->plan.note[i].always || o->verbose)
            fprintf(stderr, "conclave: %s\n", en->plan.note[i].text);
    return 0;
}

/* ---- segments ---- */

static int make_tables(struct engine *en, struct err *e)
{
    const struct geometry *g = &en->plan.geo;
    uint64_t entries = (uint64_t)g->n_layers * g->n_experts, at = 64, off[7];
    struct tables *t;
    int rc;

    off[0] = at;
    off[1] = at = round_up(at + entries * 8, 64);
    off[2] = at = round_up(at + (uint64_t)g->n_nodes * g->n_slabs * 8, 64);
    off[3] = at = round_up(at + (uint64_t)g->n_nodes * g->n_slabs * 8, 64);
    off[4] = at = round_up(at + g->n_layers * sizeof(struct expert_layer), 64);
    off[5] = at = round_up(at + entries * N_MATS * sizeof(float), 64);
    off[6] = at = round_up(at + g->n_slots * sizeof(struct card_slot), 64);
    at += MAX_CARDS * sizeof(uint32_t);
    rc = seg_create(SEG_TABLES, 0, at, -1, &en->tables, e);
    if (rc)
        return rc;
    t = en->tables.base;
    *t = (struct tables){off[0], off[1], off[2], off[3], off[4], off[5], off[6]};
    card_plan_slots(&en->cards, table_slot(t, 0));
    memcpy(table_layer(t, 0), en->layer, g->n_layers * sizeof *en->layer);
    for (uint32_t k = 0; k < g->n_nodes; k++)
        slab_offsets(&en->plan.slabs, en->layer, g->n_layers, g->n_nodes, k, table_slab_off(t, g, k, 0));
    for (uint64_t i = 0; i < entries * N_MATS; i++)
        table_scale(t, g, 0, 0)[i] = 1;
    return 0;
}

static void card_name(const struct engine *en, uint32_t c, char name[32])
{
    snprintf(name, 32, en->real.n ? "card %u" : "emulated card %u", c);
}

static int make_card(struct engine *en, uint32_t c, struct err *e)
{
    const struct geometry *g = &en->plan.geo;
    uint32_t outbox = card_outbox(c, 0);
    struct worker_seg ring[1];
    char name[32];
    size_t n = 0;
    int rc;

    card_name(en, c, name);
    rc = tracer_give(en->tracer, outbox, name, ring, &n, e); /* card_segs finds it made */
    for (uint32_t life = 0; !rc && life < 2; life++) {
        struct seg *s = &en->card_box[card_outbox(c, life) - PROC_FIRST_CARD];
        rc = seg_create(SEG_OUTBOX, card_outbox(c, life), outbox_bytes(g), -1, s, e);
        outbox_put(en->box, card_outbox(c, life), s->base);
    }
    if (rc || (rc = seg_create(SEG_ORDERS, outbox, orders_bytes(g), -1, &en->card_orders[c], e)) ||
        (rc = seg_create(SEG_CARD_ANSWERS, outbox, pager_box_bytes(g), -1, &en->card_answers[c], e)))
        return rc;
    en->channel[c] = (struct card_channel){outbox, PROC_CARD_UPLOADS(c), en->card_orders[c].base,
                                           en->card_answers[c].base};
    return 0;
}

static int make_segments(struct engine *en, struct err *e)
{
    const struct geometry *g = &en->plan.geo;
    int rc;

    if ((rc = seg_create(SEG_BOARD, 0, sizeof(struct board), -1, &en->board, e)) ||
        (rc = seg_create(SEG_BELLS, 0, MAX_PROCS * sizeof(struct bell), -1, &en->bells, e)) ||
        (rc = seg_create(SEG_CALLS, 0, calls_bytes(g), -1, &en->calls, e)) ||
        (rc = seg_create(SEG_AMENDS, 0, amends_bytes(g), -1, &en->amends, e)) ||
        (rc = seg_create(SEG_ORDERS, 0, orders_bytes(g), -1, &en->orders, e)) ||
        (rc = seg_create(SEG_ACTS, 0, CALLS_IN_FLIGHT * g->acts_half, -1, &en->acts, e)) ||
        (rc = seg_create(SEG_OUTBOX, PAGER_SLOT, pager_box_bytes(g), -1, &en->pager_box, e)) ||
        (rc = make_tables(en, e)) ||
        (rc = seg_create(SEG_TRUNK, 0, en->trunk_bytes, -1, &en->trunk, e)) ||
        (rc = seg_populate(&en->trunk, e)))
        return rc;
    board_of(en)->geo = *g;
    for (uint32_t k = 0; k < g->n_nodes; k++) {
        int node = node_of(en, k);
        rc = seg_create(SEG_OUTBOX, PROC_FIRST_WORKER + k, outbox_bytes(g), node, &en->outbox[k], e);
        if (!rc)
            rc = seg_create(SEG_SLABS, k, en->plan.slabs.node_bytes[k] ? en->plan.slabs.node_bytes[k] : 4096, node,
                            &en->slab[k], e);
        if (!rc) /* refused now, with a line, rather than killed later */
            rc = seg_populate(&en->slab[k], e);
        if (rc)
            return rc;
        en->box[PROC_FIRST_WORKER + k] = en->outbox[k].base;
    }
    for (uint32_t c = 0; !rc && c < en->cards.n_cards; c++)
        rc = make_card(en, c, e);
    return rc;
}

/* ---- workers ---- */

static int send_file(struct worker *w, size_t number, const char *path, uint64_t bytes, struct err *e)
{
    struct ctl_msg m = {.kind = CTL_FILE, .a = number, .b = bytes, .flags = 1};
    int rc, fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);

    if (fd < 0) { /* tmpfs and some network file systems have none */
        m.flags = 0;
        fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0)
        return err_set(e, -errno, "%s: cannot open: %s", path, strerror(errno));
    snprintf(m.text, sizeof m.text, "%s", path);
    rc = ctl_send(w->ctl, &m, fd);
    close(fd);
    return rc ? spawn_wait_ready(w, e) : 0; /* it has gone: its last words */
}

static int send_files(struct engine *en, struct worker *w, struct err *e)
{
    const struct pack *p = gguf_pack(en->m->g);
    int rc = 0;

    for (size_t i = 0; !rc && i < gguf_n_shards(en->m->g); i++)
        rc = send_file(w, i, gguf_shard_path(en->m->g, i), gguf_shard_bytes(en->m->g, i), e);
    for (uint32_t i = 0; !rc && en->pieces.original != MODEL_NONE && i < p->head.n_originals; i++)
        rc = send_file(w, en->pieces.original + i, pack_original_path(p, i), p->original[i].bytes, e);
    return rc;
}

static int start_pager(struct engine *en, struct err *e)
{
    struct worker_seg s[MAX_NODES + 6] = {
        {&en->board, 0}, {&en->bells, 1}, {&en->orders, 0}, {&en->pager_box, 1}, {&en->trunk, 1}};
    struct worker *w = &en->worker[0];
    size_t n = 5;
    int rc;

    for (uint32_t k = 0; k < en->plan.geo.n_nodes; k++)
        s[n++] = (struct worker_seg){&en->slab[k], 1};
    if ((rc = tracer_give(en->tracer, PAGER_SLOT, "pager", s, &n, e)) ||
        (rc = spawn_worker("conclave-pager", "pager", PAGER_SLOT, s, n, w, e)))
        return rc;
    en->n_workers = 1;
    rc = send_files(en, w, e);
    return rc ? rc : ctl_sendf(w->ctl, CTL_START, 0, "start") ? spawn_wait_ready(w, e) : 0;
}

/* What every worker that computes experts sees: its own outbox to write, all others' to read, for shares of
 * one item may change hands. Returns how many; room for EXPERT_SEGS. */
#define EXPERT_SEGS (2 * MAX_NODES + 2 * MAX_CARDS + 6)
static size_t expert_segs(struct engine *en, uint32_t self, struct worker_seg *s)
{
    int makes = away(en) && outbox_is_card(self) && (int)outbox_card(self) == en->trunk_card; /* the calls */
    const struct worker_seg all[] = {{&en->board, 0},  {&en->bells, 1},    {&en->calls, makes},
                                     {&en->amends, 0}, {&en->acts, makes}, {&en->tables, 0}};
    size_t n = sizeof all / sizeof *all;

    memcpy(s, all, sizeof all);
    for (uint32_t i = 0; i < en->plan.geo.n_nodes; i++) {
        s[n++] = (struct worker_seg){&en->outbox[i], PROC_FIRST_WORKER + i == self};
        s[n++] = (struct worker_seg){&en->slab[i], 0};
    }
    for (uint32_t c = 0; c < 2 * MAX_CARDS; c++)
        if (en->card_box[c].fd >= 0)
            s[n++] = (struct worker_seg){&en->card_box[c], PROC_FIRST_CARD + c == outbox_home(self)};
    return n;
}

/* ... and a card's worker besides. Room for CARD_SEGS. */
#define CARD_SEGS (EXPERT_SEGS + 4 + TRUNK_HOST_SEGS)
_Static_assert(CARD_SEGS <= CHILD_SEGS, "a child takes so many");
static size_t card_segs(struct engine *en, uint32_t outbox, struct worker_seg *s)
{
    size_t n = expert_segs(en, outbox, s);
    const struct card_chosen *real = en->real.n ? &en->real.card[outbox_card(outbox)] : NULL;

    /* what its kernels and copies read is mapped writable where the driver takes no other */
    for (size_t i = 0; real && !real->read_only && i < n; i++)
        s[i].writable |= s[i].seg == &en->acts || s[i].seg->role == SEG_SLABS ||
                         ((int)outbox_card(outbox) == en->trunk_card &&
                          (s[i].seg == &en->amends || s[i].seg == &en->tables || s[i].seg->role == SEG_OUTBOX));
    /* where RAM does not have every expert, what leaves a card is copied down by its worker */
    for (size_t i = 0; !en->plan.slabs.resident && i < n; i++)
        s[i].writable |= s[i].seg->role == SEG_SLABS;

    s[n++] = (struct worker_seg){&en->card_orders[outbox_card(outbox)], 0};
    s[n++] = (struct worker_seg){&en->card_answers[outbox_card(outbox)], 1};
    if ((int)outbox_card(outbox) == en->trunk_card) {
        s[n++] = (struct worker_seg){&en->trunk, 0};
        trunk_host_segs(en->host, s + n);
        n += TRUNK_HOST_SEGS;
    }
    tracer_give(en->tracer, card_outbox(outbox_card(outbox), 0), "", s, &n, NULL); /* made by make_card */
    return n;
}

/* Threads for experts in each card's worker: a real one's launches kernels. */
static uint32_t card_threads(const struct engine *en)
{
    uint32_t threads = en->threads / en->cards.n_cards;

    return threads && !en->real.n ? threads : 1;
}
static void card_device(const struct engine *en, uint32_t c, char device[16])
{
    snprintf(device, 16, "emu");
    if (en->real.n)
        snprintf(device, 16, "%u", en->real.card[c].device);
}

static void on_board(struct engine *en, const struct worker *w)
{
    struct board_proc *p = &board_of(en)->proc[w->outbox];

    atomic_store(&p->pid, (uint32_t)w->pid);
    atomic_store(&p->role, w->outbox == PAGER_SLOT ? 2 : outbox_is_card(w->outbox) ? 3 : 1);
    atomic_store(&p->alive, 1);
}

/* A card's worker, the first or a successor: it begins behind both rings as they are now. */
/* With the trunk on a real card four threads look at words all through a step: the main thread, the steward, the
 * card's host and who follows the rings for that card. They take turns on one core, the first, where there are
 * enough; the nodes' workers have the rest. A core of its own for each was no faster, and the workers missed them. */
static int own_core(const struct engine *en)
{
    return en->real.n && away(en) && en->machine.n_cpus >= OWN_CORE_LEAST;
}

static int start_card(struct engine *en, uint32_t c, struct worker *w, struct err *e)
{
    uint32_t outbox = card_outbox(c, en->life[c].number);
    struct worker_seg s[CARD_SEGS];
    size_t n = card_segs(en, outbox, s);
    struct calls *calls = en->calls.base;
    struct amends *amends = en->amends.base;
    struct ctl_msg m = {.kind = CTL_START,
                        .a = atomic_load_explicit(&calls->head, memory_order_acquire),
                        .b = atomic_load_explicit(&amends->head, memory_order_acquire)};
    char trunk[CTL_TEXT / 2] = "", device[16], cpu[16] = "-";
    int rc = spawn_worker("conclave-gpu", en->life[c].name, outbox, s, n, w, e);

    if (rc)
        return rc;
    card_device(en, c, device);
    if ((int)c == en->trunk_card)
        trunk_host_says(en->host, trunk, sizeof trunk, &m.a);
    if ((int)c == en->trunk_card && own_core(en))
        snprintf(cpu, sizeof cpu, "%d", en->machine.cpu[0]);
    snprintf(m.text, sizeof m.text, "card=%u device=%s%s threads=%u cpus=%s shared=1", c, device, trunk,
             card_threads(en), cpu);
    ctl_send(w->ctl, &m, -1); /* it has gone: its last words follow */
    return 0;
}
static int start_first(struct engine *en, uint32_t c, struct err *e)
{
    int rc;

    card_name(en, c, en->life[c].name);
    rc = start_card(en, c, &en->worker[en->n_workers], e);
    if (!rc)
        en->life[c].pid = (int)en->worker[en->n_workers++].pid;
    en->card_failed |= rc != 0;
    return rc;
}
static int wait_ready(struct engine *en, struct worker *w, struct err *e)
{
    int rc = spawn_wait_ready(w, e);

    on_board(en, w);
    en->card_failed |= rc && outbox_is_card(w->outbox);
    return rc;
}

/* ---- successors of cards' workers ---- */

static int start_successor(void *arg, uint32_t c, struct worker *w, struct err *e)
{
    struct engine *en = arg;
    int rc;

    atomic_store(&board_of(en)->proc[w->outbox].alive, 0);
    rc = start_card(en, c, w, e);
    if (!rc)
        on_board(en, w);
    return rc;
}
static void ring_steward(void *arg)
{
    struct engine *en = arg;
    struct bell *bells = en->bells.base;

    bell_ring(&bells[PROC_STEWARD], &board_of(en)->asleep_steward);
}

static int start_watch(struct engine *en, struct err *e)
{
    struct watch_kept k = {.first = 1 + en->plan.geo.n_nodes,
                           .life = en->life,
                           .start = start_successor,
                           .news = ring_steward,
                           .arg = en};

    for (size_t i = k.first; i < en->n_workers; i++) {
        uint32_t c = outbox_card(en->worker[i].outbox);
        k.card[k.n++] = c;
        k.beat[c] = &en->channel[c].answers->heartbeat;
    }
    return watch_start(en->worker, en->n_workers, &k, en->o->verbose, &en->watch, e);
}

/* CPUs for the threads of node k's worker: none that is kept for those that look, whatever -t says. A node that has
 * no other keeps it. */
static uint32_t node_cpus(const struct engine *en, uint32_t k, int *cpu, uint32_t most)
{
    struct machine m = en->machine;
    uint32_t keeps = own_core(en) != 0;

    m.n_cpus -= keeps;
    memmove(m.cpu, m.cpu + keeps, m.n_cpus * sizeof *m.cpu);
    memmove(m.node_of, m.node_of + keeps, m.n_cpus * sizeof *m.node_of);
    cpu[0] = en->machine.cpu[0];
    return machine_share(&m, k, en->plan.geo.n_nodes, keeps && en->threads > m.n_cpus ? m.n_cpus : en->threads, cpu, most);
}

static int start_node(struct engine *en, uint32_t k, struct err *e)
{
    struct worker_seg s[EXPERT_SEGS + 1];
    struct worker *w = &en->worker[en->n_workers];
    char name[32], cpus[MACHINE_MAX_CPUS * 5 + 1] = "-";
    int cpu[256];
    size_t n = expert_segs(en, PROC_FIRST_WORKER + k, s), at = 0;
    uint32_t threads;
    int rc;

    snprintf(name, sizeof name, "cpu worker %u", k);
    if ((rc = tracer_give(en->tracer, PROC_FIRST_WORKER + k, name, s, &n, e)) ||
        (rc = spawn_worker("conclave-cpu", name, PROC_FIRST_WORKER + k, s, n, w, e)))
        return rc;
    en->n_workers++;
    threads = node_cpus(en, k, cpu, 256);
    for (uint32_t i = 0; i < threads; i++)
        at += (size_t)snprintf(cpus + at, sizeof cpus - at, "%s%d", i ? "," : "", cpu[i]);
    rc = ctl_sendf(w->ctl, CTL_START, 0, "threads=%u cpus=%s shared=%d", threads, cpus, !own_core(en));
    return rc ? spawn_wait_ready(w, e) : 0;
}

static int start_workers(struct engine *en, struct err *e)
{
    int rc = start_pager(en, e);

    for (uint32_t k = 0; !rc && k < en->plan.geo.n_nodes; k++) {
        atomic_store(&board_of(en)->proc[PROC_FIRST_WORKER + k].node, k);
        rc = start_node(en, k, e);
    }
    for (uint32_t c = 0; !rc && c < en->cards.n_cards; c++)
        if ((int)c != en->trunk_card) /* that one starts when the trunk is loaded */
            rc = start_first(en, c, e);
    for (size_t i = 0; !rc && i < en->n_workers; i++)
        rc = wait_ready(en, &en->worker[i], e);
    return rc;
}

/* ---- the trunk ---- */

static int find_weights(struct engine *en, struct err *e)
{
    const struct program *p = en->prog;

    en->weight_at = calloc(p->n_weights + 1, sizeof *en->weight_at);
    if (!en->weight_at)
        return err_set(e, -ENOMEM, "no memory for the table of weights");
    for (uint32_t i = 0; i < p->n_weights; i++) {
        const struct model_tensor *t = &en->m->tensor[p->weight[i].tensor];
        en->weight_at[i].off = en->trunk_off[p->weight[i].tensor] + trunk_shift(t);
        en->weight_at[i].vector = t->n_dims == 1;
    }
    return away(en) ? 0 : weights_open(p, en->trunk.base, en->weight_at, &en->weights, e);
}

/* Factors of the experts' products go to the table that the workers see. */
static void fill_scales(struct engine *en)
{
    struct tables *t = en->tables.base;

    for (uint32_t l = 0; l < en->plan.geo.n_layers; l++)
        for (int k = 0; k < N_MATS; k++) {
            uint32_t s = en->m->layer[l].expert[k].scale;
            const float *v;
            if (s == MODEL_NONE)
                continue;
            v = (const float *)((const uint8_t *)en->trunk.base + en->trunk_off[s] +
                                trunk_shift(&en->m->tensor[s]));
            for (uint32_t x = 0; x < en->m->n_experts; x++)
                table_scale(t, &en->plan.geo, l, x)[k] = v[x];
        }
}

static int load(struct engine *en, struct err *e)
{
    struct load_config c = {
        .m = en->m,
        .geo = &en->plan.geo,
        .board = en->board.base,
        .tables = en->tables.base,
        .orders = en->orders.base,
        .pager = en->pager_box.base,
        .bells = en->bells.base,
        .worker = &en->worker[0],
        .pieces = &en->pieces,
        .trunk_off = en->trunk_off,
        .resident = en->plan.slabs.resident,
        .progress = en->o->progress,
    };
    uint64_t start = now_ns(), traced = timeline_begin(&en->timeline);
    int rc;

    en->pieces.m = en->m;
    en->pieces.geo = &en->plan.geo;
    en->pieces.tables = en->tables.base;
    rc = load_all(&c, &en->loaded_bytes, &en->loaded_again, e);
    en->load_ns = now_ns() - start;
    timeline_end(&en->timeline, TIMELINE_LEADER, TIMELINE_LOAD, traced, en->loaded_bytes, 0, 0);
    if (rc)
        return rc;
    note(en, "loaded %.3f GB in %.2f s (%.2f GB/s)", (double)en->loaded_bytes * 1e-9,
         (double)en->load_ns * 1e-9, (double)en->loaded_bytes / (double)en->load_ns);
    fill_scales(en);
    return find_weights(en, e);
}

/* What the paging's policy knows: uses of experts, and those of earlier runs. */
static int start_memory(struct engine *en, struct err *e)
{
    size_t bytes = round_up(sizeof *en->uses, 64), list = round_up(sizeof *en->ahead, 64);

    en->uses = aligned_alloc(64, bytes);
    if (!with_cards(en)) /* with them nothing is read ahead yet */
        en->ahead = aligned_alloc(64, list);
    if (!en->uses || (!with_cards(en) && !en->ahead))
        return err_set(e, -ENOMEM, "no memory for the experts' uses");
    memset(en->uses, 0, bytes);
    if (en->ahead)
        memset(en->ahead, 0, list);
    if (en->o->heat && (!en->plan.slabs.resident || with_cards(en)))
        en->heat = heat_keeper_open(en->m->g, en->plan.geo.n_layers, en->plan.geo.n_experts);
    return 0;
}

/* ---- what the trunk's executor chooses: heat, and --record-routes ---- */

static void told_step(void *arg, uint32_t n_tokens)
{
    struct engine *en = arg;

    if (en->uses)
        uses_step(en->uses, n_tokens);
    if (en->routes)
        routes_step(en->routes, n_tokens);
}
static void told_layer(void *arg, uint32_t layer, uint32_t used, const int32_t *ids)
{
    routes_layer(((struct engine *)arg)->routes, layer, used, ids);
}
static void light(struct engine *en, uint32_t layer, uint32_t expert, uint32_t place)
{
    lights_put(en->o->lights, layer, expert,
               place == PLACE_NONE ? LIGHT_DISK : place < en->plan.geo.n_slabs ? LIGHT_RAM : LIGHT_CARD);
}
static void told_expert(void *arg, uint32_t layer, uint32_t expert, uint32_t n_tokens)
{
    struct engine *en = arg;

    if (en->uses)
        uses_note(en->uses, layer, expert, n_tokens);
    if (lights_on(en->o->lights)) {
        uint64_t entry = atomic_load_explicit(table_entry(en->tables.base, &en->plan.geo, layer, expert), memory_order_relaxed);
        light(en, layer, expert, entry ? ENTRY_PLACE(entry) : PLACE_NONE);
    }
}
static void told_foreseen(void *arg, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    ahead_tell(((struct engine *)arg)->ahead, layer, experts, n);
}
/* The steward's thread. A step of an executor that is a worker: its tokens, and what own hits its card had
 * since the last one. */
static void told_steps(void *arg)
{
    struct engine *en = arg;
    _Atomic uint32_t *uses;
    uint64_t record, here;
    uint32_t n_tokens;

    if (!en->uses || !en->host)
        return;
    here = atomic_load_explicit(&en->here, memory_order_acquire);
    n_tokens = trunk_host_tokens(en->host, &record);
    if (here) {
        record = here >> 32 | 1ull << 63;
        n_tokens = (uint32_t)here;
    }
    if (record == en->told_record)
        return;
    en->told_record = record;
    uses = answer_uses(&en->plan.geo, trunk_host_answers(en->host));
    for (uint32_t l = 0; l < en->plan.geo.n_layers; l++)
        for (uint32_t x = 0; x < en->plan.geo.n_experts; x++) {
            size_t at = (size_t)l * en->plan.geo.n_experts + x;
            uint32_t now = atomic_load_explicit(&uses[at], memory_order_relaxed);
            if (now != en->told_uses[at]) {
                uses_note(en->uses, l, x, now - en->told_uses[at]);
                if (lights_on(en->o->lights))
                    lights_put(en->o->lights, l, x, LIGHT_CARD);
            }
            en->told_uses[at] = now;
        }
    uses_step(en->uses, n_tokens);
}
/* ... and each of its calls. */
static void told_call(void *arg, const struct call *c)
{
    struct engine *en = arg;

    told_steps(en);
    for (uint32_t i = 0; en->uses && i < c->head.n_items; i++) {
        uses_note(en->uses, c->head.layer, c->items[i].expert, c->items[i].n_pairs);
        if (lights_on(en->o->lights))
            light(en, c->head.layer, c->items[i].expert, c->items[i].place);
    }
}

static int start_host(struct engine *en, struct err *e)
{
    struct trunk_host_config c = {
        .geo = &en->plan.geo,
        .board = en->board.base,
        .bells = en->bells.base,
        .calls = en->calls.base,
        .life = &en->life[en->trunk_card],
        .prog = en->prog,
        .at = en->weight_at,
        .kv = en->o->kv,
        .threads = en->threads,
        .cpu = en->host_cpu,
        .rows = en->lookup ? lookup_rows : NULL,
        .rows_arg = en->lookup,
        .open = en->real.n ? &en->step_open : NULL,
        .watch = &en->watch,
    };
    struct worker *w = &en->worker[en->n_workers];
    int rc;

    en->told_uses = calloc((size_t)en->plan.geo.n_layers * en->plan.geo.n_experts, sizeof *en->told_uses);
    if (!en->told_uses)
        return err_set(e, -ENOMEM, "no memory for the experts' uses");
    for (uint32_t i = 0; i < en->threads && i < MACHINE_MAX_CPUS; i++)
        en->host_cpu[i] = en->machine.cpu[i % en->machine.n_cpus];
    en->life[en->trunk_card].hosts = 1;
    if ((rc = trunk_host_open(&c, &en->host, e)) || (rc = start_first(en, (uint32_t)en->trunk_card, e)))
        return rc;
    return wait_ready(en, w, e);
}

static struct moe_told told(struct engine *en)
{
    return (struct moe_told){.foreseen = en->ahead ? told_foreseen : NULL,
                             .foresee = &en->prefetch.on,
                             .step = told_step,
                             .layer = en->routes ? told_layer : NULL,
                             .expert = en->uses || en->o->lights ? told_expert : NULL,
                             .arg = en};
}

/* For tests: an expert leaves each card so often, used or not. */
static uint32_t churn_asked(void)
{
    const char *v = getenv("CONCLAVE_CARD_CHURN_US");

    return v ? (uint32_t)strtoul(v, NULL, 10) : 0;
}

/* The trunk's executor in this process. first: number of its first call. */
static int open_executor(struct engine *en, uint64_t first, struct err *e)
{
    const struct geometry *g = &en->plan.geo;
    struct moe_config mc = {
        .geo = g,
        .board = en->board.base,
        .calls = en->calls.base,
        .amends = en->amends.base,
        .tables = en->tables.base,
        .bells = en->bells.base,
        .acts = en->acts.base,
        .outbox = en->box,
        .disk_call = &en->disk_call,
        .first = first,
        .rings = !away(en), /* else the steward does, and tells who uses what */
        .shared = 1,
        .timeline = en->timeline,
        .lane = TIMELINE_LEADER,
    };
    struct exec_config xc = {
        .prog = en->prog,
        .max_tokens = en->plan.max_tokens,
        .max_out = en->plan.max_out,
        .n_ctx = en->plan.n_ctx,
        .n_seqs = en->n_seqs,
        .n_saved = en->o->n_saved,
        .kv = en->o->kv,
        .rows = lookup_rows,
        .rows_arg = en->lookup,
    };
    int rc;

    for (uint32_t k = 0; k < g->n_nodes; k++)
        mc.owner[k] = PROC_FIRST_WORKER + k;
    mc.n_cards = en->cards.n_cards;
    for (uint32_t c = 0; c < en->cards.n_cards; c++)
        mc.card_slot0[c] = en->cards.slot0[c];
    if (!away(en))
        mc.told = told(en);
    if ((rc = moe_open(&mc, &en->moe, e)))
        return rc;
    xc.weight = en->weights.at;
    xc.moe = en->moe;
    return exec_open(&xc, &en->exec, e);
}

/* For tests: CONCLAVE_CARD_RATES=NODES,CARD0,CARD1,... in bytes a second, taken for measured. */
static int rates_asked(struct spread_rates *r)
{
    const char *v = getenv("CONCLAVE_CARD_RATES");
    char *end;

    memset(r, 0, sizeof *r);
    r->nodes.most = 1;
    if (!v)
        return 0;
    r->nodes.rate = strtod(v, &end);
    for (uint32_t c = 0; c < MAX_CARDS && *end == ','; c++)
        r->card[c].rate = strtod(end + 1, &end);
    return 1;
}

static int start_lookup(struct engine *en, struct err *e)
{
    struct lookup_config c = {
        .m = en->m,
        .prog = en->prog,
        .board = en->board.base,
        .bells = en->bells.base,
        .max_tokens = en->plan.max_tokens,
        .n_ctx = en->plan.n_ctx,
        .n_seqs = en->n_seqs,
        .trunk = en->trunk.base,
        .trunk_off = en->trunk_off,
        .stage = en->stage,
        .cache_bytes = en->plan.table_cache,
    };

    return en->prog->n_tables ? lookup_open(&c, &en->lookup, e) : 0;
}

static int start_trunk(struct engine *en, struct err *e)
{
    const struct geometry *g = &en->plan.geo;
    struct paging_config pc = {
        .geo = g,
        .board = en->board.base,
        .bells = en->bells.base,
        .calls = en->calls.base,
        .amends = en->amends.base,
        .tables = en->tables.base,
        .orders = en->orders.base,
        .pager = en->pager_box.base,
        .pager_outbox = PAGER_SLOT,
        .outbox = en->box,
        .disk_call = &en->disk_call,
        .watch = &en->watch,
        .pieces = &en->pieces,
        .slabs = &en->plan.slabs,
        .policy = en->o->policy,
        .cards = &en->cards,
        .card_size_of = en->card_size_of,
        .card = en->channel,
        .life = en->life,
        .trunk_card = en->trunk_card,
        .step_open = &en->step_open,
        .own_cpu = own_core(en) ? 1 + en->machine.cpu[0] : 0,
        .churn_us = churn_asked(),
        .cards_measured = en->real.n > 0, /* an emulated card's rate says nothing */
        .card_rates = rates_asked(&en->rates) ? &en->rates : NULL,
    };
    int rc;

    en->saved = calloc(en->o->n_saved + 1, sizeof *en->saved);
    en->draft_life = calloc(en->n_seqs, sizeof *en->draft_life);
    if (!en->saved || !en->draft_life)
        return err_set(e, -ENOMEM, "no memory for the books of %u sequences", en->n_seqs);
    if ((rc = start_lookup(en, e)))
        return rc;
    pc.lookup = en->lookup;
    if ((!en->plan.slabs.resident || en->cards.n_cards) && (rc = start_memory(en, e)))
        return rc;
    for (uint32_t k = 0; k < g->n_nodes; k++)
        pc.owner[k] = PROC_FIRST_WORKER + k;
    pc.uses = en->uses;
    pc.ahead = en->ahead;
    prefetch_start(&en->prefetch, en->ahead ? en->o->prefetch : PREFETCH_OFF);
    pc.heat = en->heat;
    if (away(en)) {
        pc.taken = told_call;
        pc.own_uses = told_steps;
        pc.arg = en;
        if ((rc = start_host(en, e))) /* orders wait for it; no step goes out before the steward follows */
            return rc;
        pc.step = trunk_host_word(en->host);
    }
    if ((rc = start_watch(en, e)) ||
        (rc = paging_start(&pc, &en->paging, e)))
        return rc;
    return away(en) ? 0 : open_executor(en, 1, e);
}

/* ---- life ---- */

static int leader(void *arg, struct team *t)
{
    struct engine *en = arg;

    en->team = t;
    return en->body(en, en->arg, en->e);
}

static int run_team(struct engine *en)
{
    int cpus[MACHINE_MAX_CPUS];

    for (uint32_t i = 0; i < en->threads && i < MACHINE_MAX_CPUS; i++)
        cpus[i] = en->machine.cpu[i % en->machine.n_cpus];
    return team_run((int)en->threads, cpus, 1, leader, en);
}

static uint64_t slab_total(const struct engine *en)
{
    uint64_t n = 0;

    for (uint32_t k = 0; k < en->plan.geo.n_nodes; k++)
        n += en->plan.slabs.node_bytes[k];
    return n;
}

/* What was read by heat, at the end: a line beside the text would tear it. */
static void say_warm(struct engine *en)
{
    struct paging_stats s;

    paging_stats(en->paging, &s);
    if (s.warm_total)
        note(en, "read %llu hot experts of earlier runs, %.3f GB; %llu were waited for%s",
             (unsigned long long)s.warm_reads, (double)s.warm_bytes * 1e-9,
             (unsigned long long)s.warm_raised, s.warm ? "; some were still to come" : "");
}

/* A pack: are the files it was made from still there, in case a block is damaged? */
static void find_originals(struct engine *en)
{
    const struct pack *p = gguf_pack(en->m->g);
    struct err why = {0};

    en->pieces.original = MODEL_NONE;
    if (!p)
        return;
    if (!pack_originals_match(p, &why))
        en->pieces.original = (uint32_t)gguf_n_shards(en->m->g);
    else
        note(en, "%s; a damaged block would end the run", why.msg);
}

static void verify_bad(void *arg, const char *line)
{
    (void)arg;
    fprintf(stderr, "conclave: %s\n", line);
}

/* --verify: all of the pack now. Damage is no error where every read finds it and has another source. */
static int verify_pack(struct engine *en, struct err *e)
{
    struct pack_verify v = {.g = en->m->g, .bad = verify_bad};
    const struct pack *p = gguf_pack(en->m->g);
    int rc;

    if (!p)
        return err_set(e, -EINVAL, "--verify: %s is no pack: a GGUF file has no checksums", en->m->path);
    rc = pack_verify(&v, e);
    if (rc)
        return rc;
    if (v.n_bad && (en->pieces.original == MODEL_NONE || p->head.n_nodes != en->n_nodes))
        return err_set(e, -EIO, "%s: %llu parts of the pack are damaged; remove it and pack the model again",
                       p->path, (unsigned long long)v.n_bad);
    note(en, "%.2f GB of the pack checked, %llu parts damaged", (double)v.bytes * 1e-9,
         (unsigned long long)v.n_bad);
    return 0;
}

static int look_at_pack(struct engine *en, struct err *e)
{
    const struct pack *p = gguf_pack(en->m->g);

    find_originals(en);
    if (p && p->head.n_nodes != en->n_nodes)
        fprintf(stderr,
                "conclave: packed for %u node%s, run with %u: experts are read in more pieces, without "
                "checksums; conclave pack --nodes %u makes each one checked read\n",
                p->head.n_nodes, p->head.n_nodes > 1 ? "s" : "", en->n_nodes, en->n_nodes);
    return en->o->verify ? verify_pack(en, e) : 0;
}

/* Drafts need the block, the trunk's hidden states beside it, and a recorder sees the trunk's choices alone. */
static void choose_drafts(struct engine *en)
{
    const struct engine_options *o = en->o;

    en->drafts = o->drafts;
    if (!en->drafts)
        return;
    if (!en->m->n_nextn || o->record_routes)
        en->drafts = 0;
    if (en->drafts)
        note(en, "drafts: the NextN block can draft %u tokens for a step%s", en->drafts,
             o->drafts_asked ? "" : ", and does where that is measured to pay");
    if (!en->m->n_nextn && o->drafts_asked)
        fprintf(stderr, "conclave: --draft: this file has no NextN block, nothing is drafted\n");
    else if (!en->drafts && o->drafts_asked)
        fprintf(stderr, "conclave: --draft: nothing is drafted with --record-routes\n");
}

/* A token table of its own that is larger than what tables may take is looked up by rows as well. */
static void choose_tables(struct engine *en)
{
    struct model *m = en->m;
    struct model_tensor *t = &m->tensor[m->token_embd];

    if (en->o->table_ram && t->bytes > en->o->table_ram && m->output.w != m->token_embd)
        t->by_rows = 1;
}

/* Weights that a token reads: those of the trunk's operations, and the experts that work for it. */
static uint64_t token_bytes(const struct engine *en)
{
    const struct program *p = en->prog;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < p->draft_at; i++)
        if (p->op[i].w != PROG_NONE)
            bytes += p->weight[p->op[i].w].row_bytes * (p->op[i].kind == OP_EMBED ? 1 : p->weight[p->op[i].w].rows);
    for (uint32_t i = 0; i < en->m->n_layers - en->m->n_nextn; i++)
        bytes += en->m->layer[i].n_experts ? en->m->top_k * en->m->layer[i].expert_bytes : 0;
    return bytes;
}

/* A small model is done before a card has begun: whoever named no card gets none. */
static void weigh_cards(struct engine *en)
{
    char why[300];

    if (en->real.n && en->o->want.kind == CARDS_AUTO && en->o->want.trunk == TRUNK_AUTO &&
        !cards_pay(en->prog->draft_at, token_bytes(en), en->threads, why, sizeof why))
        drop_cards(en, why);
}

/* What is drafted is a part of the program. */
static int make_program(struct engine *en, struct err *e)
{
    int rc = arch_program(en->m, &en->prog, e);

    if (rc)
        return rc;
    weigh_cards(en);
    if ((rc = trunk_can(en, e)))
        return rc;
    choose_drafts(en);
    if (!en->drafts)
        return 0;
    program_free(en->prog);
    en->prog = NULL;
    rc = arch_program_drafting(en->m, en->drafts, &en->prog, e);
    return rc ? rc : trunk_can(en, e);
}

/* Everything that can be known before anything is made. */
static int decide(struct engine *en, struct err *e)
{
    int rc;

    if ((rc = which_cards(en, e)))
        return rc;
    if (with_cards(en) && en->o->prefetch == PREFETCH_ON)
        return err_set(e, -EINVAL, "--prefetch on: nothing is read ahead with --cards; leave one of them out");
    if ((rc = model_open(en->o->model_path, 0, &en->m, e)))
        return rc;
    choose_tables(en);
    choose_counts(en);
    if ((rc = make_program(en, e)))
        return rc;
    for (size_t i = 0; i < en->m->n_warnings; i++)
        fprintf(stderr, "conclave: %s\n", en->m->warning[i]);
    if ((rc = look_at_pack(en, e)))
        return rc;
    if ((rc = expert_layers(en, e)) || (rc = trunk_places(en, e)))
        return rc;
    return choose_sizes(en, e);
}

static int open_lights(struct engine *en, struct err *e)
{
    uint32_t *of_layer = calloc(en->plan.geo.n_layers + 1, sizeof *of_layer);
    struct engine_stats s;
    int rc = -ENOMEM;

    if (of_layer) {
        for (uint32_t i = 0; i < en->plan.geo.n_layers; i++)
            of_layer[i] = en->layer[i].n_experts;
        rc = lights_open(en->o->lights, en->plan.geo.n_layers, of_layer, e);
    }
    free(of_layer);
    if (rc)
        return err_set(e, rc, "no memory for the picture of the experts");
    engine_stats(en, &s); /* sizes and processes, before anybody watches */
    lights_put_stats(en->o->lights, &s);
    return 0;
}

static int open_all(struct engine *en, struct err *e)
{
    int rc;

    if ((rc = decide(en, e)) ||
        (en->o->record_routes && (rc = routes_open(en->o->record_routes, en->layer, en->plan.geo.n_layers,
                                                   en->plan.max_tokens, &en->routes, e))) ||
        (!en->tracer && (rc = tracer_open(en->o->trace, en->o->trace_to, &en->tracer, &en->timeline, e))) ||
        (rc = make_segments(en, e)) || (rc = start_workers(en, e)))
        return rc;
    note(en, "%u threads, %u node%s, %u slabs (%s), %.3f GB of slabs, trunk %.3f GB", en->threads,
         en->plan.geo.n_nodes, en->plan.geo.n_nodes > 1 ? "s" : "", en->plan.geo.n_slabs,
         en->plan.slabs.resident ? "all experts resident" : "experts are read as needed",
         (double)slab_total(en) * 1e-9, (double)en->trunk_bytes * 1e-9);
    if ((rc = load(en, e)))
        return rc;
    if ((rc = start_trunk(en, e)) || (en->o->lights && (rc = open_lights(en, e))))
        return rc;
    if (en->o->warm_first)
        load_warm(en->paging, en->o->progress);
    return 0;
}

static void each_seg(struct engine *en, void (*fn)(struct seg *s))
{
    struct seg *s[] = {&en->board,  &en->calls,  &en->acts,  &en->amends,   &en->bells,
                       &en->tables, &en->orders, &en->trunk, &en->pager_box};

    for (size_t i = 0; i < sizeof s / sizeof *s; i++)
        fn(s[i]);
    for (uint32_t k = 0; k < MAX_NODES; k++) {
        fn(&en->outbox[k]);
        fn(&en->slab[k]);
    }
    for (uint32_t c = 0; c < MAX_CARDS; c++) {
        fn(&en->card_box[c]);
        fn(&en->card_box[MAX_CARDS + c]);
        fn(&en->card_orders[c]);
        fn(&en->card_answers[c]);
    }
}
static void not_open(struct seg *s)
{
    s->fd = -1;
}

static void close_all(struct engine *en)
{
    exec_close(en->exec);
    moe_close(en->moe);
    paging_stop(en->paging);
    lookup_close(en->lookup);
    heat_keeper_close(en->heat);
    watch_stop(en->watch);
    spawn_end(en->worker, en->n_workers);
    trunk_host_close(en->host);
    each_seg(en, seg_close);
    if (en->prog)
        weights_close(&en->weights);
    free(en->weight_at);
    free(en->uses);
    free(en->ahead);
    free(en->saved);
    free(en->draft_life);
    free(en->told_uses);
    free(en->card_size_of);
    free(en->trunk_off);
    free(en->layer);
    program_free(en->prog);
    model_close(en->m);
}

/* A card that was found, but cannot start: where nobody named it the run goes on without cards, from the beginning.
 * It is not tried again by leaving cards out one by one: what keeps one from starting is seldom its own. */
static int open_without(struct engine *en, struct engine_options *o, struct err *e)
{
    struct engine new = {.o = o, .body = en->body, .arg = en->arg, .e = e, .tracer = en->tracer, .timeline = en->timeline};
    struct err why = *e, none = {0};

    routes_close(en->routes, &none);
    close_all(en);
    *o = *en->o;
    o->want.kind = CARDS_NONE;
    o->want.trunk = TRUNK_AUTO;
    *en = new;
    each_seg(en, not_open);
    *e = none;
    fprintf(stderr, "conclave: cards are not used: %s\n", why.msg);
    return open_all(en, e);
}

int engine_run(const struct engine_options *o, int (*body)(struct engine *en, void *arg, struct err *e),
               void *arg, struct err *e)
{
    struct engine *en = calloc(1, sizeof *en);
    struct engine_options without;
    uint64_t dropped;
    int status = 1, rc;

    if (!en) {
        err_set(e, -ENOMEM, "no memory");
        return 1;
    }
    en->o = o;
    en->body = body;
    en->arg = arg;
    en->e = e;
    each_seg(en, not_open);
    rc = open_all(en, e);
    if (rc && en->card_failed && o->want.kind == CARDS_AUTO)
        rc = open_without(en, &without, e);
    if (!rc) {
        status = run_team(en);
        say_warm(en);
    }
    if (routes_close(en->routes, e) && !status)
        status = 1;
    close_all(en);
    if (tracer_close(en->tracer, &dropped, e) && !status)
        status = 1;
    if (dropped)
        fprintf(stderr, "conclave: --trace: %llu events came too fast and are missing\n", (unsigned long long)dropped);
    free(en);
    return status;
}

int engine_plan(const struct engine_options *o, int (*look)(const struct engine_look *l, void *arg, struct err *e),
                void *arg, struct err *e)
{
    struct engine *en = calloc(1, sizeof *en);
    int status = 1;

    if (!en) {
        err_set(e, -ENOMEM, "no memory");
        return 1;
    }
    en->o = o;
    each_seg(en, not_open);
    if (!decide(en, e)) {
        struct engine_look l = {
            .m = en->m,
            .prog = en->prog,
            .machine = &en->machine,
            .plan = &en->plan,
            .layer = en->layer,
            .memory = &en->memory,
            .cards = &en->cards,
            .real = &en->real,
            .trunk_card = en->trunk_card,
            .trunk_bytes = en->trunk_bytes,
            .table_bytes = en->table_needs.whole,
            .table_row = en->table_needs.row,
            .threads = en->threads,
            .n_nodes = en->n_nodes,
        };
        status = look(&l, arg, e);
    }
    close_all(en);
    free(en);
    return status;
}

/* ---- inside the body ---- */

const struct model *engine_model(const struct engine *en)
{
    return en->m;
}
uint32_t engine_n_ctx(const struct engine *en)
{
    return en->plan.n_ctx;
}
uint32_t engine_n_seqs(const struct engine *en)
{
    return en->n_seqs;
}
uint32_t engine_max_tokens(const struct engine *en)
{
    return en->plan.max_tokens;
}
uint32_t engine_max_out(const struct engine *en)
{
    return en->plan.max_out;
}
static void dump_one(void *arg, const char *name, int integer, int whole, const void *rows, const size_t n[4])
{
    dump_rows(arg, name, integer, whole, rows, n);
}
void engine_dump(struct engine *en, struct dump *d, uint32_t positions)
{
    assert(en->exec || !d); /* cmd_eval.c refuses --dump where the trunk is elsewhere */
    if (en->exec)
        exec_dump(en->exec, d ? dump_one : NULL, d, positions);
}

/* A pass of one token took so long. */
static void judge_prefetch(struct engine *en, uint64_t ns)
{
    uint32_t trials = en->prefetch.trials;
    struct paging_stats s;

    paging_stats(en->paging, &s);
    en->ahead_steps += (uint64_t)en->prefetch.on;
    prefetch_passed(&en->prefetch, ns, s.ahead_used + s.ahead_late, s.ahead_wasted);
    if (en->prefetch.trials != trials)
        note(en, "reading ahead %s: it %s %.1f %% of a token's time", en->prefetch.on ? "on" : "off",
             en->prefetch.gain < 0 ? "cost" : "saved", 100 * fabs(en->prefetch.gain));
}

/* The card that had the trunk is left out: from now on it is executed here. */
static void take_trunk(struct engine *en)
{
    struct err e = {0};

    if (weights_open(en->prog, en->trunk.base, en->weight_at, &en->weights, &e) ||
        open_executor(en, trunk_host_next_call(en->host), &e))
        watch_fatal(en->watch, "the trunk cannot be executed here either: %s", e.msg);
}

/* A step in its place, behind what its sequences were before. */
static const float *step_in_place(struct engine *en, const struct step *s)
{
    const float *logits;
    struct step m;

    while (trunk_host_owed(en->host, s, &m)) {
        exec_step(en->exec, en->team, &m);
        trunk_host_did(en->host, &m);
    }
    logits = exec_step(en->exec, en->team, s);
    trunk_host_did(en->host, s);
    return logits;
}

/* Another number: another executor, with nothing of the former one's in its memory. */
static uint64_t executor_life(const struct engine *en)
{
    return en->host ? (uint64_t)trunk_host_counters(en->host)->successors << 1 | (en->exec != NULL) : 0;
}

static const float *step(struct engine *en, const struct step *s)
{
    const float *logits = en->exec ? NULL : trunk_host_step(en->host, s);

    en->best = logits ? trunk_host_best(en->host) : NULL;
    if (logits)
        return logits;
    if (!en->exec)
        take_trunk(en);
    if (!en->host)
        return exec_step(en->exec, en->team, s);
    atomic_store_explicit(&en->here, (en->steps + 1) << 32 | s->n_tokens, memory_order_release);
    return step_in_place(en, s);
}

int engine_best(const struct engine *en, uint32_t row, uint32_t *id)
{
    if (en->best)
        *id = en->best[row];
    return en->best != NULL;
}

void engine_show(struct engine *en)
{
    struct engine_stats s;

    if (!lights_figures(en->o->lights))
        return;
    engine_stats(en, &s);
    lights_put_stats(en->o->lights, &s);
}

const float *engine_step(struct engine *en, const struct step *s)
{
    uint64_t start = now_ns();
    const float *logits;

    assert(s->n_tokens && s->n_tokens <= en->plan.max_tokens && s->n_out <= en->plan.max_out);
    for (uint32_t t = 0; t < s->n_tokens; t++)
        assert(s->token[t].id < en->m->n_vocab && s->token[t].pos < en->plan.n_ctx && s->token[t].seq < en->n_seqs);
    for (uint32_t i = 0; i < s->n_out; i++)
        assert(s->out[i] < s->n_tokens);
    if (en->lookup) /* their rows come while the first layers compute */
        lookup_ask(en->lookup, s);
    logits = step(en, s);
    timeline_end(&en->timeline, TIMELINE_LEADER, TIMELINE_STEP, start, en->steps + 1, s->n_tokens, s->n_out);
    start = now_ns() - start;
    en->step_ns += start;
    if (en->ahead && s->n_tokens == 1)
        judge_prefetch(en, start);
    en->steps++;
    if (lights_on(en->o->lights))
        lights_step(en->o->lights, s->n_tokens);
    if (lights_figures(en->o->lights) && lights_want_stats(en->o->lights))
        engine_show(en);
    return logits;
}

uint32_t engine_drafts(const struct engine *en)
{
    return en->drafts;
}

/* Rows of the NextN block are their executor's, and go with it: NULL until they begin anew. */
static const float *draft(struct engine *en, const struct step *s)
{
    uint64_t *life = &en->draft_life[s->token[0].seq];
    const float *logits;

    if (!s->token[0].pos)
        *life = executor_life(en);
    if (*life != executor_life(en))
        return NULL;
    en->best = NULL;
    if (en->exec)
        return exec_step(en->exec, en->team, s);
    logits = trunk_host_draft(en->host, s);
    en->best = logits ? trunk_host_best(en->host) : NULL;
    return logits;
}

const float *engine_draft(struct engine *en, const struct step *s)
{
    uint64_t start = now_ns();
    const float *logits;

    assert(en->drafts && s->pass != STEP_TRUNK && s->n_tokens && s->n_tokens <= en->plan.max_tokens &&
           s->n_out <= en->plan.max_out);
    for (uint32_t t = 0; t < s->n_tokens; t++)
        assert(s->token[t].id < en->m->n_vocab && s->token[t].pos < en->plan.n_ctx && s->token[t].seq < en->n_seqs);
    logits = draft(en, s);
    en->draft_ns += now_ns() - start;
    return logits;
}

void engine_save(struct engine *en, uint32_t seq, uint32_t pos, uint32_t slot)
{
    struct engine_saved *v = &en->saved[slot];

    assert(slot < en->o->n_saved && seq < en->n_seqs && pos <= en->plan.n_ctx);
    *v = (struct engine_saved){.seq = seq, .pos = pos, .life = executor_life(en)};
    if (!en->exec)
        v->there = !trunk_host_save(en->host, seq, pos, slot);
    else if (!en->host || trunk_host_has(en->host, seq) >= pos) {
        exec_save(en->exec, seq, pos, slot);
        v->there = 1;
    }
}

uint32_t engine_restore(struct engine *en, uint32_t slot)
{
    const struct engine_saved *v = &en->saved[slot];
    int there = v->there && v->life == executor_life(en);

    assert(slot < en->o->n_saved);
    if (en->host && !there) /* it went with its executor */
        trunk_host_forget(en->host, v->seq);
    else if (!en->exec)
        trunk_host_restore(en->host, v->seq, v->pos, slot);
    else
        exec_restore(en->exec, slot);
    if (en->exec && en->host && there)
        trunk_host_keeps(en->host, v->seq, v->pos);
    return v->pos;
}
uint64_t engine_saved_bytes(const struct engine *en)
{
    return exec_needs(en->prog, en->o->kv).saved;
}

void engine_foresee(struct engine *en, const uint32_t *ids, size_t n, size_t from, uint32_t seq)
{
    assert(n <= en->plan.n_ctx && from <= n && seq < en->n_seqs);
    if (en->lookup)
        lookup_foresee(en->lookup, ids, n, from, seq);
}

uint32_t engine_n_saved(const struct engine *en)
{
    return en->o->n_saved;
}

/* Page faults of a process that read from the disk; 0 if it has gone. */
static uint64_t major_faults(int pid)
{
    char path[40], text[1024], *after;
    unsigned long long n = 0;
    size_t got;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    f = fopen(path, "re");
    if (!f)
        return 0;
    got = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[got] = 0;
    after = strrchr(text, ')'); /* the name may hold anything; majflt is the tenth field behind it */
    if (!after || sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %llu", &n) != 1)
        return 0;
    return n;
}

/* The trunk's part, told by its hosts. */
static void host_stats(const struct engine *en, struct engine_stats *s)
{
    struct answer_counters a;

    trunk_host_told(en->host, &a);
    s->call_ns += a.call_ns;
    s->wait_ns += a.wait_ns;
    s->calls += a.calls;
    s->items += a.items;
    s->disk_items += a.disk_items;
    s->card_items += a.card_items;
    s->own_items = a.own_items;
    s->net_finds += a.net_finds;
    s->gap_ns = a.gap_ns;
    s->gaps = a.gaps;
    s->gap_asked_ns = a.gap_asked_ns;
    s->gap_launch_ns = a.gap_launch_ns;
    s->chosen_ns = trunk_host_counters(en->host)->chosen_ns;
    s->chosen = trunk_host_counters(en->host)->chosen;
}

/* Another process wrote them: names come from a table of ours. */
static void reads_stats(const struct pager_box *pb, struct engine_stats *s)
{
    static const char *const how[] = {"default", "measured", "fixed"};
    uint64_t depth = atomic_load(&pb->count.depth), why = depth >> 32;

    s->pager_read_bytes = (uint32_t)atomic_load(&pb->count.read_bytes);
    s->pager_depth = (uint32_t)depth;
    s->pager_how = why < sizeof how / sizeof *how ? how[why] : "?";
}

static void worker_stats(const struct engine *en, const struct worker *from, const struct cards_stats *cards,
                         struct engine_stats *s)
{
    struct engine_worker *w = &s->worker[s->n_workers++];
    const struct outbox *b = from->outbox == PAGER_SLOT ? NULL : en->box[from->outbox];
    struct card_past past = {0}; /* of the card's workers before this one */

    snprintf(w->name, sizeof w->name, "%s", from->name);
    w->pid = (int)from->pid;
    w->major_faults = major_faults(w->pid);
    w->card = outbox_is_card(from->outbox) ? (int)outbox_card(from->outbox) : -1;
    if (w->card >= 0) {
        w->came = cards->came[w->card];
        w->held = cards->held[w->card];
        past = cards->past[w->card];
    }
    if (!b)
        return;
    w->calls = past.calls + atomic_load(&b->count.calls);
    w->items = past.items + atomic_load(&b->count.items);
    w->rows = past.rows + atomic_load(&b->count.rows);
    w->weight_bytes = past.weight_bytes + atomic_load(&b->count.weight_bytes);
    w->work_ns = past.work_ns + atomic_load(&b->count.work_ns);
    w->sleeps = past.sleeps + atomic_load(&b->count.sleeps);
    w->declined = past.declined + atomic_load(&b->count.declined);
    w->amended = past.amended + atomic_load(&b->count.amended);
    s->net_finds += past.net_finds + atomic_load(&b->count.net_finds);
}

void engine_counts(const struct engine *en, struct engine_count *c)
{
    static const struct moe_counters none;
    const struct moe_counters *mc = en->moe ? moe_counters(en->moe) : &none;
    struct pager_box *pb = en->pager_box.base;

    *c = (struct engine_count){mc->items, mc->card_items, mc->disk_items, mc->wait_ns, atomic_load(&pb->count.bytes)};
    if (en->host) {
        struct answer_counters a;
        trunk_host_told(en->host, &a);
        c->items += a.items + a.own_items;
        c->card_items += a.card_items + a.own_items;
        c->disk_items += a.disk_items;
        c->wait_ns += a.wait_ns;
    }
}

static void table_stats(const struct engine *en, struct engine_stats *s)
{
    struct lookup_counters c;

    if (!en->lookup)
        return;
    lookup_counters(en->lookup, &c);
    s->table_bytes = en->table_needs.whole;
    s->tables_whole = en->plan.tables_whole;
    s->table_rows = c.rows;
    s->table_hits = c.hits;
    s->table_reads = c.reads;
    s->table_read_bytes = c.bytes;
    s->table_wait_ns = c.wait_ns;
    s->table_cached = s->tables_whole ? 0 : c.cached;
}

void engine_stats(const struct engine *en, struct engine_stats *s)
{
    static const struct moe_counters none;
    const struct moe_counters *mc = en->moe ? moe_counters(en->moe) : &none;
    const struct steward_counters *sc = paging_counters(en->paging);
    struct paging_stats ps;
    const struct pager_box *pb = en->pager_box.base;

    memset(s, 0, sizeof *s);
    s->steps = en->steps;
    s->step_ns = en->step_ns;
    s->draft_ns = en->draft_ns;
    for (uint32_t i = 0; i < en->m->n_layers; i++) {
        s->expert_layers += en->layer[i].n_experts != 0;
        s->experts += en->layer[i].n_experts;
    }
    s->call_ns = mc->call_ns;
    s->wait_ns = mc->wait_ns;
    s->calls = mc->calls;
    s->items = mc->items;
    s->disk_items = mc->disk_items;
    s->card_items = mc->card_items;
    s->n_cards = en->cards.n_cards;
    s->card_slots = en->cards.n_slots;
    s->card_bytes = en->cards.bytes[0];
    s->net_finds = mc->net_finds;
    if (en->host)
        host_stats(en, s);
    paging_stats(en->paging, &ps);
    s->demand_reads = ps.reads;
    s->moves = ps.moves;
    s->warm_reads = ps.warm_reads;
    s->warm_bytes = ps.warm_bytes;
    s->warm_raised = ps.warm_raised;
    s->lost_uses = ps.lost_uses;
    s->ahead_used = ps.ahead_used;
    s->ahead_late = ps.ahead_late;
    s->ahead_wasted = ps.ahead_wasted;
    s->ahead_dropped = ps.ahead_dropped;
    s->ahead_steps = en->ahead_steps;
    s->ahead_trials = en->prefetch.trials;
    s->ahead_on = en->prefetch.on;
    s->ahead_gain = en->prefetch.gain;
    s->read_again = en->loaded_again + ps.again;
    s->most_open = ps.most_open;
    s->uploads = ps.cards.uploads;
    s->upload_bytes = ps.cards.upload_bytes;
    s->card_moves = ps.cards.left;
    s->copies_down = ps.cards.down;
    s->card_deaths = ps.cards.deaths;
    s->card_successors = ps.cards.successors;
    s->cards_out = ps.cards.out;
    s->lost_items = ps.cards.lost_items;
    s->resident = en->plan.slabs.resident;
    s->places = s->resident ? en->plan.geo.n_slabs : ps.places; /* a slab of its own for each */
    s->residents = s->resident ? en->plan.geo.n_slabs : ps.residents;
    s->spare = ps.spare;
    s->amendments = sc->amendments;
    s->declined = sc->declines;
    s->expert_reads = atomic_load(&pb->count.expert_reads);
    s->bytes_read = atomic_load(&pb->count.bytes);
    reads_stats(pb, s);
    s->load_ns = en->load_ns;
    s->loaded_bytes = en->loaded_bytes;
    s->trunk_bytes = en->trunk_bytes;
    s->expert_bytes = en->plan.slabs.need_all;
    s->expert_one_bytes = en->plan.slabs.need_one;
    s->slab_bytes = slab_total(en);
    table_stats(en, s);
    s->kv_bytes = exec_kv_bytes(en->prog, en->o->kv, en->plan.n_ctx);
    s->threads = en->threads;
    s->nodes = en->plan.geo.n_nodes;
    s->n_slabs = en->plan.geo.n_slabs;
    s->major_faults = major_faults((int)getpid());
    for (size_t i = 0; i < en->n_workers; i++)
        worker_stats(en, &en->worker[i], &ps.cards, s);
    if (en->host) { /* its worker was the last to start */
        s->worker[s->n_workers - 1].trunk = 1;
        s->worker[s->n_workers - 1].items += s->own_items;
        s->host_successors = trunk_host_counters(en->host)->successors;
        s->retired_calls = trunk_host_counters(en->host)->retired;
        s->replayed_tokens = trunk_host_counters(en->host)->replayed;
    }
}

void engine_print_processes(const struct engine *en)
{
    struct engine_stats s;

    engine_stats(en, &s);
    fprintf(stderr, "  pid %-8d coordinator   %s: %llu passes\n", (int)getpid(),
            en->host ? "sampling" : "trunk, routing, sampling", (unsigned long long)s.steps);
    if (en->host)
        fprintf(stderr, "  pid %-8d %-13s trunk, routing: %llu calls\n", (int)en->worker[en->n_workers - 1].pid,
                en->worker[en->n_workers - 1].name, (unsigned long long)s.calls);
    for (uint32_t i = 0; i < s.n_workers; i++) {
        if (s.worker[i].card >= 0)
            fprintf(stderr, "  pid %-8d %-13s %llu calls, %llu experts computed, %llu rows; %llu experts lie there\n",
                    s.worker[i].pid, s.worker[i].name, (unsigned long long)s.worker[i].calls,
                    (unsigned long long)s.worker[i].items, (unsigned long long)s.worker[i].rows,
                    (unsigned long long)s.worker[i].held);
        else if (i == 0)
            fprintf(stderr,
                    "  pid %-8d %-13s %llu expert reads, %llu bytes from the file, by %u KiB, %u out (%s)\n",
                    s.worker[i].pid, s.worker[i].name, (unsigned long long)s.expert_reads,
                    (unsigned long long)s.bytes_read, s.pager_read_bytes >> 10, s.pager_depth, s.pager_how);
        else
            fprintf(stderr, "  pid %-8d %-13s %llu calls, %llu experts computed, %llu rows\n",
                    s.worker[i].pid, s.worker[i].name, (unsigned long long)s.worker[i].calls,
                    (unsigned long long)s.worker[i].items, (unsigned long long)s.worker[i].rows);
    }
}
