/* From a pass of shares to lists for the card. All shares of an item are one entry: the card multiplies the
 * whole expert whichever of them it was given, and hands on what was wanted. */
#include "gpu-worker/card_pass.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "gpu-worker/experts_cuda.h"
#include "shm/bell.h"
#include "shm/fault.h"

#define LOOKS 32u                /* at the stamp, between two yields */
#define LATE_NS 30000000000ull   /* a pass that takes longer has gone astray */
#define BEAT_NS 50000000ull

struct card_pass {
    struct card *card;
    int ctl;
    const struct maps *m;
    struct experts_cuda *cuda;
    struct experts_cuda_lists list;
    struct expert_shape *shape;
    uint32_t n_shapes, *shape_of; /* by layer */
    uint32_t **shares;            /* by item of the call: where those that are wanted are noted */
    float *acts;                  /* activations are copied here first, if the card does not reach them; [half] */
};

/* ---- opening ---- */

static int same(const struct expert_shape *a, const struct expert_shape *b)
{
    for (int k = 0; k < EXPERT_MATS; k++)
        if (a->type[k] != b->type[k] || a->row_bytes[k] != b->row_bytes[k])
            return 0;
    return a->n_embd == b->n_embd && a->n_ff == b->n_ff && !memcmp(&a->limit, &b->limit, sizeof a->limit);
}

static int find_shapes(struct card_pass *x, struct err *e)
{
    const struct maps *m = x->m;

    x->shape = calloc(m->g.n_layers, sizeof *x->shape);
    x->shape_of = calloc(m->g.n_layers, sizeof *x->shape_of);
    if (!x->shape || !x->shape_of)
        return err_set(e, -ENOMEM, "no memory for %u layers", m->g.n_layers);
    for (uint32_t i = 0; i < m->g.n_layers; i++) {
        const struct layer *l = &m->layer[i];
        struct expert_shape s = {.n_embd = l->n_embd, .n_ff = l->n_ff, .limit = l->limit};
        uint32_t k = 0;
        if (!l->n_experts)
            continue;
        for (int mat = 0; mat < N_MATS; mat++) {
            s.type[mat] = l->m[mat].type;
            s.row_bytes[mat] = l->m[mat].row_bytes;
        }
        while (k < x->n_shapes && !same(&x->shape[k], &s))
            k++;
        if (k == x->n_shapes)
            x->shape[x->n_shapes++] = s;
        x->shape_of[i] = k;
    }
    return 0;
}

static const struct seg *segment(const struct child *c, enum seg_role role, uint32_t index)
{
    for (size_t i = 0; i < c->n_segs; i++)
        if (c->seg[i].role == role && c->seg[i].index == index)
            return &c->seg[i];
    return NULL;
}

/* The card's address of the activations. Not reached by it: of a copy that card_pass_run makes. */
static int map_acts(struct card_pass *x, const struct child *c, uint8_t **dev, struct err *e)
{
    const struct seg *s = segment(c, SEG_ACTS, 0);
    struct err why = {0};
    void *at, *host;
    int rc;

    if (!card_map(x->card, s->base, x->m->acts_bytes, s->writable, &at, &why)) {
        *dev = at;
        return 0;
    }
    ctl_sendf(c->ctl, CTL_LOG, 2, "activations are copied for the card: %s", why.msg);
    if ((rc = card_shared(x->card, x->m->acts_bytes, "activations", &host, &at, e)))
        return rc;
    x->acts = host;
    *dev = at;
    return 0;
}

int card_pass_open(struct card *card, const struct child *c, const struct maps *m, struct card_pass **out,
                   struct err *e)
{
    struct card_pass *x = calloc(1, sizeof *x);
    struct experts_cuda_config cc = {.card = card,
                                     .max_tokens = m->g.max_tokens,
                                     .max_rows = m->g.max_pairs,
                                     .max_slots = m->g.max_items,
                                     .top_k = m->g.top_k,
                                     .ld_embd = m->g.n_embd,
                                     .ld_ff = m->g.n_ff,
                                     .n_nodes = m->g.n_nodes,
                                     .weights = m->pool};
    uint8_t *acts;
    void *box;
    int rc;

    *out = x;
    if (!x)
        return err_set(e, -ENOMEM, "no memory");
    x->card = card;
    x->ctl = c->ctl;
    x->m = m;
    x->shares = calloc(m->g.max_items, sizeof *x->shares);
    if (!x->shares)
        return err_set(e, -ENOMEM, "no memory for %u items a pass", m->g.max_items);
    if ((rc = find_shapes(x, e)) || (rc = map_acts(x, c, &acts, e)) ||
        (rc = card_map(card, m->out, outbox_bytes(&m->g), 1, &box, e)))
        return rc;
    for (uint32_t h = 0; h < CALLS_IN_FLIGHT; h++) {
        cc.half[h].acts = (const float *)(acts + h * m->g.acts_half);
        cc.half[h].inter = (float *)((uint8_t *)box + ((uint8_t *)outbox_inter(&m->g, m->out, h) - (uint8_t *)m->out));
        cc.half[h].rows = (float *)((uint8_t *)box + ((uint8_t *)outbox_rows(&m->g, m->out, h) - (uint8_t *)m->out));
    }
    cc.shape = x->shape;
    cc.n_shapes = x->n_shapes;
    if ((rc = experts_cuda_open(&cc, &x->cuda, e)))
        return rc;
    x->list = experts_cuda_lists(x->cuda);
    return 0;
}

void card_pass_close(struct card_pass *x)
{
    if (!x)
        return;
    experts_cuda_close(x->cuda);
    free(x->shape);
    free(x->shape_of);
    free(x->shares);
    free(x);
}

/* ---- a pass ---- */

static void set_slot(struct card_pass *x, const struct call *c, const struct pass_item *it, uint32_t slot)
{
    const struct maps *m = x->m;
    const struct layer *l = &m->layer[c->head.layer];
    uint32_t expert = c->items[it->item].expert;
    const float *scale = table_scale(m->tables, &m->g, c->head.layer, expert);
    struct expert_slot *to = &x->list.slot[slot];

    for (int mat = 0; mat < N_MATS; mat++) {
        to->w[mat] = maps_rows(m, l, 0, it->place, expert, mat); /* share 0 begins with the matrix */
        to->scale[mat] = l->has_scale ? scale[mat] : 1;
    }
}

/* An item of at most EXPERTS_CUDA_FEW pairs, EXPERT_TOKENS an entry; the first one notes the shares. */
static void set_few(struct card_pass *x, const struct call *c, const struct call_item *it, uint32_t slot,
                    struct experts_cuda_pass *out)
{
    for (uint32_t p = 0; p < it->n_pairs; p++) {
        const struct call_pair *pair = &c->pairs[it->pair0 + p];
        struct expert_item *to = &x->list.item[out->n_items + p / EXPERT_TOKENS];
        uint32_t j = p % EXPERT_TOKENS;
        to->slot = slot;
        to->n_tok = j + 1;
        to->tok[j] = pair->token;
        to->row[j] = (uint32_t)pair->token * c->head.top_k + pair->rank;
    }
    out->several |= it->n_pairs > 1;
    out->n_items += (it->n_pairs + EXPERT_TOKENS - 1) / EXPERT_TOKENS;
}
/* ... of more. */
static void set_many(struct card_pass *x, const struct call *c, const struct call_item *it, uint32_t slot,
                     struct experts_cuda_pass *out)
{
    x->list.many[out->n_many++] = (struct experts_cuda_many){slot, out->n_pairs, it->n_pairs, 0};
    for (uint32_t p = 0; p < it->n_pairs; p++, out->n_pairs++) {
        const struct call_pair *pair = &c->pairs[it->pair0 + p];
        x->list.tok[out->n_pairs] = pair->token;
        x->list.row[out->n_pairs] = (uint32_t)pair->token * c->head.top_k + pair->rank;
    }
}

/* Returns where the wanted shares of the item are noted. */
static uint32_t *set_item(struct card_pass *x, const struct call *c, const struct pass_item *item,
                          struct experts_cuda_pass *out)
{
    const struct call_item *it = &c->items[item->item];
    uint32_t slot = out->n_slots++, *wanted;

    set_slot(x, c, item, slot);
    if (it->n_pairs > EXPERTS_CUDA_FEW) {
        set_many(x, c, it, slot, out);
        wanted = &x->list.many[out->n_many - 1].shares;
    } else {
        wanted = &x->list.shares[out->n_items];
        set_few(x, c, it, slot, out);
    }
    *wanted = 0;
    return wanted;
}

static void set_lists(struct card_pass *x, const struct pass *p, struct experts_cuda_pass *out)
{
    for (uint32_t i = 0; i < p->n; i++)
        x->shares[p->item[i].item] = NULL;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct pass_item *it = &p->item[i];
        if (!x->shares[it->item])
            x->shares[it->item] = set_item(x, p->call, it, out);
        *x->shares[it->item] |= 1u << it->share;
    }
    for (uint32_t i = 1; i < out->n_items; i++)
        if (x->list.item[i].slot == x->list.item[i - 1].slot)
            x->list.shares[i] = x->list.shares[i - 1];
}

static void count(const struct card_pass *x, const struct pass *p)
{
    struct outbox_counters *to = &x->m->out->count;
    const struct layer *l = &x->m->layer[p->call->head.layer];
    uint64_t rows = 0, bytes = 0;

    for (uint32_t i = 0; i < p->n; i++) {
        const struct pass_item *it = &p->item[i];
        for (int mat = 0; mat < N_MATS; mat++)
            bytes += l->m[mat].cut[it->share].n_rows * l->m[mat].row_bytes;
        rows += (uint64_t)l->m[MAT_DOWN].cut[it->share].n_rows * p->call->items[it->item].n_pairs;
    }
    counter_add(&to->weight_bytes, bytes);
    counter_add(&to->rows, rows);
}

static int wait(struct card_pass *x, struct err *e)
{
    uint64_t start = 0, beat = 0;

    for (uint32_t look = 1;; look++) {
        int rc = experts_cuda_poll(x->cuda, e);
        if (rc)
            return rc < 0 ? rc : 0;
        cpu_pause();
        if (look % LOOKS)
            continue;
        sched_yield();
        if (look % (256 * LOOKS)) /* the clock, seldom */
            continue;
        if (!start)
            start = beat = now_ns();
        if (now_ns() - beat > BEAT_NS) {
            counter_add(&x->m->out->heartbeat, 1);
            beat = now_ns();
        }
        if (now_ns() - start > LATE_NS)
            return err_set(e, -ETIMEDOUT, "%s: no answer within %u s", card_name(x->card),
                           (unsigned)(LATE_NS / 1000000000u));
    }
}

int card_pass_run(void *arg, const struct pass *p, struct err *e)
{
    struct card_pass *x = arg;
    const struct call_head *h = &p->call->head;
    struct experts_cuda_pass cp = {.shape = x->shape_of[h->layer],
                                   .half = (uint32_t)(h->seq % CALLS_IN_FLIGHT),
                                   .n_tokens = h->n_tokens};
    struct err why = {0};
    int rc;

    if (h->acts != cp.half * x->m->g.acts_half)
        return err_set(e, -EPROTO, "call %llu: its activations lie at %llu", (unsigned long long)h->seq,
                       (unsigned long long)h->acts);
    if (x->acts)
        memcpy((uint8_t *)x->acts + h->acts, x->m->acts + h->acts, (size_t)h->n_tokens * x->m->g.n_embd * sizeof(float));
    set_lists(x, p, &cp);
    if (fault_due(FAULT_ERROR))
        experts_cuda_break(x->cuda);
    if ((rc = experts_cuda_run(x->cuda, &cp, &why)) || (rc = wait(x, &why))) {
        err_set(e, rc, "%s (call %llu, layer %u)", why.msg, (unsigned long long)h->seq, h->layer);
        card_die(x->ctl, e);
    }
    count(x, p);
    return 0;
}
