/* One lock guards cache and queues: the main thread takes it a few times a step, the steward once an order. */
#define _GNU_SOURCE
#include "coordinator/supervise/lookup.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/model/ngram.h"
#include "shm/bell.h"
#include "shm/size.h"

#define BLOCK 4096u
#define NOBODY UINT32_MAX
#define WAIT_MS 100

/* A row of the cache. */
struct entry {
    uint32_t table, row;
    uint32_t chain;      /* next of its bucket */
    uint32_t next, prev; /* by last use; the first of all leaves first */
    uint8_t coming, wanted; /* its bytes are not there yet; the step waits for it */
};
struct batch { /* an order's rows in the stage */
    uint32_t n, entry[ORDER_PIECES];
    int out;
};
struct queue { /* entries whose rows are to be ordered */
    uint32_t *item, head, n;
};
struct lookup {
    struct lookup_config c;
    uint32_t *ids;   /* (n_seqs, n_ctx): the sequences' tokens by position */
    uint32_t n_rows; /* a token, all tables */
    uint32_t *id;    /* (max_tokens, n_rows) of the step */
    uint8_t *bytes;  /* (max_tokens, token_bytes) */
    int asked; /* lookup_ask has seen the step whose rows are wanted next */
    int paged[PROG_TABLES], any_paged;
    uint32_t row_room;   /* of an entry's bytes */
    uint64_t stage_room; /* of a row in the stage */
    uint32_t n_entries, n_used, n_coming, n_buckets;
    struct entry *entry; /* n_entries, then the list's head */
    uint32_t *bucket;
    uint8_t *data;
    struct queue now, later; /* a step waits; foreseen */
    struct batch batch[LOOKUP_ORDERS];
    pthread_mutex_t lock;
    _Atomic uint32_t n_queued, n_out; /* of both queues; orders out */
    _Atomic uint32_t missing;         /* rows that the step waits for */
    _Atomic uint64_t reads, read_bytes;
    uint64_t rows, hits, wait_ns;
};

/* ---- sizes ---- */

static uint64_t stage_row(const struct prog_table *t)
{
    return round_up(BLOCK - 1 + (uint64_t)t->row_bytes, BLOCK);
}
static uint64_t entry_bytes(uint32_t row_bytes)
{
    return sizeof(struct entry) + 3 * sizeof(uint32_t) + row_bytes; /* two buckets, a place in a queue */
}

struct lookup_needs lookup_needs(const struct program *p, const struct model *m, uint32_t max_tokens)
{
    struct lookup_needs n = {0};
    uint32_t rows = 0, widest = 0;

    for (uint32_t i = 0; i < p->n_tables; i++) {
        const struct model_tensor *t = &m->tensor[p->table[i].tensor];
        int again = 0;
        for (uint32_t k = 0; k < i; k++)
            again |= p->table[k].tensor == p->table[i].tensor;
        n.whole += again ? 0 : t->bytes + 2 * BLOCK;
        rows += p->table[i].rows;
        if (widest < p->table[i].row_bytes)
            widest = p->table[i].row_bytes;
        if (n.stage < stage_row(&p->table[i]))
            n.stage = stage_row(&p->table[i]);
    }
    n.stage *= LOOKUP_ORDERS * ORDER_PIECES;
    n.row = rows ? entry_bytes(widest) : 0;
    n.least = 2ull * max_tokens * rows * n.row;
    return n;
}

/* ---- life ---- */

static int open_cache(struct lookup *l, uint64_t least)
{
    uint64_t n = l->c.cache_bytes / entry_bytes(l->row_room);
    uint32_t *queues;

    n = n < least ? least : n < NOBODY / 4 ? n : NOBODY / 4;
    l->n_entries = (uint32_t)n;
    l->n_buckets = 1;
    while (l->n_buckets < l->n_entries)
        l->n_buckets *= 2;
    l->entry = calloc(n + 1, sizeof *l->entry);
    l->bucket = malloc(l->n_buckets * sizeof *l->bucket);
    l->data = malloc(n * l->row_room);
    queues = malloc(2 * n * sizeof *queues);
    l->now.item = queues;
    l->later.item = queues ? queues + n : NULL;
    if (!l->entry || !l->bucket || !l->data || !queues)
        return -ENOMEM;
    for (uint32_t i = 0; i < l->n_buckets; i++)
        l->bucket[i] = NOBODY;
    l->entry[n].next = l->entry[n].prev = l->n_entries;
    return 0;
}

int lookup_open(const struct lookup_config *c, struct lookup **out, struct err *e)
{
    struct lookup *l = calloc(1, sizeof *l);
    const struct program *p = c->prog;

    if (!l)
        return err_set(e, -ENOMEM, "no memory for looked-up rows");
    l->c = *c;
    pthread_mutex_init(&l->lock, NULL);
    for (uint32_t i = 0; i < p->n_tables; i++) {
        l->n_rows += p->table[i].rows;
        l->paged[i] = c->trunk_off[p->table[i].tensor] == LOOKUP_PAGED;
        l->any_paged |= l->paged[i];
        if (l->row_room < p->table[i].row_bytes)
            l->row_room = p->table[i].row_bytes;
        if (l->stage_room < stage_row(&p->table[i]))
            l->stage_room = stage_row(&p->table[i]);
    }
    l->ids = calloc((size_t)c->n_seqs * c->n_ctx, sizeof *l->ids);
    l->id = calloc((size_t)c->max_tokens * l->n_rows, sizeof *l->id);
    l->bytes = calloc(c->max_tokens, p->token_bytes);
    if (!l->ids || !l->id || !l->bytes || (l->any_paged && open_cache(l, 2ull * c->max_tokens * l->n_rows))) {
        lookup_close(l);
        return err_set(e, -ENOMEM, "no memory for looked-up rows of %u tokens", c->max_tokens);
    }
    *out = l;
    return 0;
}

void lookup_close(struct lookup *l)
{
    if (!l)
        return;
    pthread_mutex_destroy(&l->lock);
    free(l->ids);
    free(l->id);
    free(l->bytes);
    free(l->entry);
    free(l->bucket);
    free(l->data);
    free(l->now.item); /* both queues */
    free(l);
}

/* ---- the cache, with the lock held ---- */

static uint32_t *bucket_of(struct lookup *l, uint32_t table, uint32_t row)
{
    uint64_t h = ((uint64_t)table << 32 | row) * 0x9E3779B97F4A7C15ull;

    return &l->bucket[(h >> 32) & (l->n_buckets - 1)];
}

static void unlink_entry(struct lookup *l, uint32_t i)
{
    l->entry[l->entry[i].prev].next = l->entry[i].next;
    l->entry[l->entry[i].next].prev = l->entry[i].prev;
}
static void link_last(struct lookup *l, uint32_t i)
{
    uint32_t head = l->n_entries;

    l->entry[i].next = head;
    l->entry[i].prev = l->entry[head].prev;
    l->entry[l->entry[i].prev].next = i;
    l->entry[head].prev = i;
}

static uint32_t find(struct lookup *l, uint32_t table, uint32_t row)
{
    uint32_t i = *bucket_of(l, table, row);

    while (i != NOBODY && (l->entry[i].table != table || l->entry[i].row != row))
        i = l->entry[i].chain;
    return i;
}

/* An entry that holds nothing, in no list: a new one, or the one whose use is longest ago. NOBODY: all are coming. */
static uint32_t take_entry(struct lookup *l)
{
    uint32_t i = l->entry[l->n_entries].next, *at;

    if (l->n_used < l->n_entries)
        return l->n_used++;
    while (i != l->n_entries && l->entry[i].coming)
        i = l->entry[i].next;
    if (i == l->n_entries)
        return NOBODY;
    unlink_entry(l, i);
    for (at = bucket_of(l, l->entry[i].table, l->entry[i].row); *at != i; at = &l->entry[*at].chain)
        ;
    *at = l->entry[i].chain;
    return i;
}

static void enqueue(struct lookup *l, struct queue *q, uint32_t i)
{
    q->item[(q->head + q->n++) % l->n_entries] = i;
    atomic_fetch_add_explicit(&l->n_queued, 1, memory_order_release);
}

/* The row's entry, the one used last from now on; one that is not there is queued. */
static uint32_t enter(struct lookup *l, uint32_t table, uint32_t row, struct queue *q)
{
    uint32_t i = find(l, table, row), *b;

    if (i != NOBODY) {
        unlink_entry(l, i);
        link_last(l, i);
        return i;
    }
    i = take_entry(l);
    if (i == NOBODY)
        return i;
    b = bucket_of(l, table, row);
    l->entry[i] = (struct entry){.table = table, .row = row, .chain = *b, .coming = 1};
    l->n_coming++;
    *b = i;
    link_last(l, i);
    enqueue(l, q, i);
    return i;
}

/* ---- the main thread ---- */

/* Rows of every table for the token at `pos`, whose id and those before it are known. */
static void rows_of(const struct lookup *l, const struct step_token *t, int trunk, uint32_t *id)
{
    const struct model_ngram *g = &l->c.m->ngram;

    for (uint32_t i = 0; i < l->c.prog->n_tables; id += l->c.prog->table[i++].rows)
        if (g->heads && l->c.prog->table[i].tensor == g->table) {
            if (trunk)
                ngram_rows(g, l->ids + (size_t)t->seq * l->c.n_ctx, t->pos, id);
        } else {
            *id = t->id;
        }
}
/* Which tables a pass reads: the NextN block looks nothing up but tokens. */
static int reads(const struct lookup *l, uint32_t table, int trunk)
{
    return trunk || !l->c.m->ngram.heads || l->c.prog->table[table].tensor != l->c.m->ngram.table;
}

static void ring(struct lookup *l)
{
    bell_ring(&l->c.bells[PROC_STEWARD], &l->c.board->asleep_steward);
}

void lookup_foresee(struct lookup *l, const uint32_t *ids, size_t n, size_t from, uint32_t seq)
{
    uint32_t *id = l->id; /* of a step that has not begun */

    memcpy(l->ids + (size_t)seq * l->c.n_ctx, ids, n * sizeof *ids);
    if (!l->any_paged || n - from < 2) /* one token's are asked for by its step */
        return;
    pthread_mutex_lock(&l->lock);
    for (size_t t = from; t < n && l->n_coming + l->n_rows <= l->n_entries / 2; t++) {
        struct step_token tok = {ids[t], (uint32_t)t, seq};
        uint32_t at = 0;
        rows_of(l, &tok, 1, id);
        for (uint32_t i = 0; i < l->c.prog->n_tables; i++)
            for (uint32_t k = 0; k < l->c.prog->table[i].rows; k++, at++)
                if (l->paged[i] && find(l, i, id[at]) == NOBODY)
                    enter(l, i, id[at], &l->later);
    }
    pthread_mutex_unlock(&l->lock);
    ring(l);
}

/* An entry that the step needs: awaited if it is coming. */
static void need(struct lookup *l, uint32_t table, uint32_t row)
{
    uint32_t i = enter(l, table, row, &l->now);
    struct entry *e;

    assert(i != NOBODY); /* the cache has room for two passes */
    e = &l->entry[i];
    l->rows++;
    l->hits += !e->coming;
    if (!e->coming || e->wanted)
        return;
    e->wanted = 1;
    atomic_fetch_add_explicit(&l->missing, 1, memory_order_relaxed);
}

void lookup_ask(struct lookup *l, const struct step *s)
{
    int trunk = s->pass == STEP_TRUNK;
    uint32_t missing;

    l->asked = 1;
    for (uint32_t t = 0; trunk && t < s->n_tokens; t++)
        l->ids[(size_t)s->token[t].seq * l->c.n_ctx + s->token[t].pos] = s->token[t].id;
    for (uint32_t t = 0; t < s->n_tokens; t++)
        rows_of(l, &s->token[t], trunk, l->id + (size_t)t * l->n_rows);
    if (!l->any_paged)
        return;
    pthread_mutex_lock(&l->lock);
    for (uint32_t t = 0; t < s->n_tokens; t++) {
        const uint32_t *id = l->id + (size_t)t * l->n_rows;
        for (uint32_t i = 0; i < l->c.prog->n_tables; id += l->c.prog->table[i++].rows)
            for (uint32_t k = 0; l->paged[i] && reads(l, i, trunk) && k < l->c.prog->table[i].rows; k++)
                need(l, i, id[k]);
    }
    missing = atomic_load_explicit(&l->missing, memory_order_relaxed);
    pthread_mutex_unlock(&l->lock);
    if (missing)
        ring(l);
}

static int none_missing(void *arg)
{
    struct lookup *l = arg;

    return atomic_load_explicit(&l->missing, memory_order_acquire) ? LOOK_NOTHING : LOOK_FOUND;
}

static void wait_for_rows(struct lookup *l)
{
    uint64_t start = now_ns();
    uint32_t round = 0;

    while (!none_missing(l))
        if (!wait_round(&round, 1)) {
            bell_sleep(&l->c.bells[PROC_MAIN], &l->c.board->asleep_main, none_missing, l, WAIT_MS);
            round = 0;
        }
    l->wait_ns += now_ns() - start;
}

static const uint8_t *whole_row(const struct lookup *l, const struct prog_table *t, uint32_t row)
{
    const struct model_tensor *x = &l->c.m->tensor[t->tensor];

    return l->c.trunk + l->c.trunk_off[t->tensor] + (x->file_offset & (BLOCK - 1)) + (uint64_t)row * x->row_bytes;
}

void lookup_rows(void *arg, const struct step *s, struct step_rows *out)
{
    struct lookup *l = arg;
    const struct program *p = l->c.prog;
    int trunk = s->pass == STEP_TRUNK;

    if (!l->asked)
        lookup_ask(l, s);
    l->asked = 0;
    if (l->any_paged)
        wait_for_rows(l);
    pthread_mutex_lock(&l->lock);
    for (uint32_t t = 0; t < s->n_tokens; t++) {
        const uint32_t *id = l->id + (size_t)t * l->n_rows;
        for (uint32_t i = 0; i < p->n_tables; id += p->table[i++].rows)
            for (uint32_t k = 0; reads(l, i, trunk) && k < p->table[i].rows; k++)
                memcpy(l->bytes + (size_t)t * p->token_bytes + p->table[i].first + k * p->table[i].row_bytes,
                       l->paged[i] ? l->data + (size_t)find(l, i, id[k]) * l->row_room
                                   : whole_row(l, &p->table[i], id[k]), p->table[i].row_bytes);
    }
    pthread_mutex_unlock(&l->lock);
    *out = (struct step_rows){l->bytes, l->id};
}

void lookup_counters(const struct lookup *l, struct lookup_counters *c)
{
    *c = (struct lookup_counters){.rows = l->rows,
                                  .hits = l->hits,
                                  .wait_ns = l->wait_ns,
                                  .cached = l->n_entries,
                                  .reads = atomic_load_explicit(&l->reads, memory_order_relaxed),
                                  .bytes = atomic_load_explicit(&l->read_bytes, memory_order_relaxed)};
}

/* ---- the steward ---- */

int lookup_wants(const struct lookup *l)
{
    return l->any_paged && atomic_load_explicit(&l->n_queued, memory_order_acquire) &&
           atomic_load_explicit(&l->n_out, memory_order_relaxed) < LOOKUP_ORDERS;
}

static uint64_t row_at(const struct lookup *l, const struct entry *e)
{
    const struct model_tensor *t = &l->c.m->tensor[l->c.prog->table[e->table].tensor];

    return t->file_offset + (uint64_t)e->row * t->row_bytes;
}
static uint64_t stage_at(const struct lookup *l, uint32_t which, uint32_t piece)
{
    return l->c.stage + ((uint64_t)which * ORDER_PIECES + piece) * l->stage_room;
}

/* The entry's whole blocks to their place in the stage. */
static struct order_piece piece_of(const struct lookup *l, uint32_t entry, uint32_t which, uint32_t k)
{
    const struct entry *e = &l->entry[entry];
    const struct prog_table *t = &l->c.prog->table[e->table];
    uint64_t at = row_at(l, e), shift = at & (BLOCK - 1);

    return (struct order_piece){.shard = l->c.m->tensor[t->tensor].shard,
                                .seg = 0,
                                .file_off = at - shift,
                                .bytes = round_up(shift + t->row_bytes, BLOCK),
                                .need = shift + t->row_bytes,
                                .dst = stage_at(l, which, k)};
}

int lookup_next(struct lookup *l, struct order *o, uint32_t *which)
{
    struct queue *q;
    struct batch *b;
    uint32_t w = 0;

    if (!lookup_wants(l))
        return 0;
    while (l->batch[w].out)
        w++;
    b = &l->batch[w];
    pthread_mutex_lock(&l->lock);
    q = l->now.n ? &l->now : &l->later;
    b->n = 0;
    *o = (struct order){.kind = ORDER_READ, .prio = q == &l->now ? PRIO_DEMAND : PRIO_PREFETCH, .layer = UINT32_MAX};
    while (q->n && b->n < ORDER_PIECES) {
        uint32_t i = q->item[q->head];
        q->head = (q->head + 1) % l->n_entries;
        q->n--;
        atomic_fetch_sub_explicit(&l->n_queued, 1, memory_order_relaxed);
        o->expert = l->c.prog->table[l->entry[i].table].tensor;
        o->piece[b->n] = piece_of(l, i, w, b->n);
        atomic_fetch_add_explicit(&l->read_bytes, o->piece[b->n].bytes, memory_order_relaxed);
        b->entry[b->n++] = i;
    }
    pthread_mutex_unlock(&l->lock);
    o->n_pieces = b->n;
    b->out = b->n > 0;
    atomic_fetch_add_explicit(&l->n_out, (uint32_t)b->out, memory_order_relaxed);
    atomic_fetch_add_explicit(&l->reads, b->n, memory_order_relaxed);
    *which = w;
    return b->out;
}

void lookup_came(struct lookup *l, uint32_t which)
{
    struct batch *b = &l->batch[which];
    uint32_t wanted = 0;

    pthread_mutex_lock(&l->lock);
    for (uint32_t k = 0; k < b->n; k++) {
        struct entry *e = &l->entry[b->entry[k]];
        const struct prog_table *t = &l->c.prog->table[e->table];
        memcpy(l->data + (size_t)b->entry[k] * l->row_room,
               l->c.trunk + stage_at(l, which, k) + (row_at(l, e) & (BLOCK - 1)), t->row_bytes);
        e->coming = 0;
        l->n_coming--;
        wanted += e->wanted;
        e->wanted = 0;
    }
    pthread_mutex_unlock(&l->lock);
    b->out = 0;
    atomic_fetch_sub_explicit(&l->n_out, 1, memory_order_relaxed);
    if (wanted && atomic_fetch_sub_explicit(&l->missing, wanted, memory_order_acq_rel) == wanted)
        bell_ring(&l->c.bells[PROC_MAIN], &l->c.board->asleep_main);
}
