/* Follows the card's order ring. An upload is answered when its bytes are in the pool: the steward sets
 * header and entry only then, and leaves the slabs as they are until then. A clear waits for the end of a step
 * that is open; whatever comes behind it does not. The copies of an upload begin before those of the one before
 * it are over. */
#include "gpu-worker/upload.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu-worker/copies.h"
#include "gpu-worker/storm.h"
#include "shm/fault.h"
#include "shm/orders.h"

#define LAST_WORDS_NS 200000000 /* the thread that computes sees an error of the card, too, and knows more of it */

struct flight { /* an order whose copies have begun */
    int down;
    uint64_t number, epoch, traced, bytes;
    uint32_t layer, expert, place;
};
struct uploader {
    struct card *card;
    struct slabs *slabs;
    struct copies *copies;
    const struct maps *m;
    const struct pool *pool;
    struct hits *hits; /* NULL: the trunk is executed elsewhere */
    struct orders *orders;
    struct pager_box *box;
    int ctl, writable; /* the slabs are, for copies down */
    uint64_t next;
    struct flight flight[COPIES_MARKS]; /* numbers over .. begun - 1, each with its mark */
    uint32_t begun, over;
    struct storm storm;
    _Atomic int quit;
    pthread_t thread;
};

static int inside(uint64_t at, uint64_t n, uint64_t size)
{
    return at <= size && n <= size - at;
}

static int check(const struct uploader *u, const struct order *o)
{
    const struct maps *m = u->m;

    int copies = o->kind == ORDER_UPLOAD || (o->kind == ORDER_COPY_DOWN && u->writable);

    if ((!copies && o->kind != ORDER_CLEAR) || o->layer >= m->g.n_layers ||
        o->expert >= m->g.n_experts || !maps_has_place(m, o->place) || o->epoch >> ENTRY_EPOCH_BITS)
        return -1;
    if (copies ? !o->n_pieces || o->n_pieces > N_MATS * m->g.n_nodes : o->n_pieces != 0)
        return -1;
    for (uint32_t i = 0; i < o->n_pieces; i++) {
        const struct order_piece *x = &o->piece[i];
        if (x->seg < 1 || x->seg > m->g.n_nodes || !inside(x->dst, x->bytes, u->pool->bytes) ||
            !inside(x->file_off, x->bytes, m->slabs_bytes[x->seg - 1]))
            return -1;
    }
    return 0;
}

static void answer(struct uploader *u, uint64_t number, enum order_why why)
{
    counter_add(&u->box->count.orders, 1);
    order_done(&u->m->g, u->box, number, why, 0);
    bell_ring(&u->m->bells[PROC_STEWARD], &u->m->board->asleep_steward);
}

/* The card has failed: nothing can be answered any more. */
static void die(struct uploader *u, const struct err *e)
{
    nanosleep(&(struct timespec){.tv_nsec = LAST_WORDS_NS}, NULL);
    card_die(u->ctl, e);
}

/* Answers orders whose copies are over. */
static int land(struct uploader *u)
{
    struct err e = {0};
    int n = 0;

    for (; u->over != u->begun; n++) {
        const struct flight *f = &u->flight[u->over % COPIES_MARKS];
        int over = copies_over(u->copies, u->over % COPIES_MARKS, &e);
        if (over < 0)
            die(u, &e);
        if (!over)
            break;
        timeline_row(&u->m->timeline, TIMELINE_SIDE, f->down ? TIMELINE_DOWN : TIMELINE_UPLOAD,
                     (uint16_t)(u->over % COPIES_MARKS), f->traced, f->bytes, f->layer, f->expert);
        if (u->hits && !f->down)
            hits_came(u->hits, f->layer, f->expert, f->place, f->epoch);
        u->over++;
        if (fault_due(FAULT_UPLOADED))
            fault_hold();
        answer(u, f->number, ORDER_WHY_OK);
    }
    return n;
}

/* An upload, or the same downwards. */
static void copy(struct uploader *u, const struct order *o)
{
    unsigned mark = u->begun % COPIES_MARKS;
    int down = o->kind == ORDER_COPY_DOWN;
    struct flight f = {down, o->number, o->epoch, timeline_begin(&u->m->timeline), 0, o->layer, o->expert, o->place};
    struct err e = {0};

    while (u->begun - u->over == COPIES_MARKS) /* the mark is in use */
        if (!land(u))
            copies_nap();
    for (uint32_t i = 0; i < o->n_pieces; i++) {
        const struct order_piece *x = &o->piece[i];
        int dies = i == o->n_pieces / 2 && fault_due(down ? FAULT_DOWN : FAULT_UPLOAD);
        if ((down ? copies_get : copies_put)(u->copies, x->seg - 1, x->file_off, x->dst, dies ? x->bytes / 2 : x->bytes,
                                             &e))
            die(u, &e);
        if (dies)
            fault_hold();
        counter_add(&u->box->count.bytes, x->bytes);
        f.bytes += x->bytes;
        land(u);
    }
    if (copies_mark(u->copies, mark, &e))
        die(u, &e);
    u->flight[mark] = f;
    u->begun++;
}

static void serve(struct uploader *u, const struct order *o)
{
    if (check(u, o)) {
        ctl_sendf(u->ctl, CTL_ERROR, 0, "order %llu makes no sense for this card", (unsigned long long)o->number);
        answer(u, o->number, ORDER_WHY_IO);
        return;
    }
    if (o->kind != ORDER_CLEAR) {
        copy(u, o);
        return;
    }
    if (u->hits && hits_clear(u->hits, o->layer, o->expert, o->place, o->epoch, o->number))
        return; /* a step is open */
    answer(u, o->number, ORDER_WHY_OK);
}

/* Clears whose step has ended. */
static int confirm(struct uploader *u)
{
    uint64_t number;
    int n = 0;

    for (; u->hits && (number = hits_confirmed(u->hits)); n++)
        answer(u, number, ORDER_WHY_OK);
    return n;
}

/* A copy for measuring, if one is due. */
static int blow(struct uploader *u)
{
    struct err e = {0};
    uint64_t traced = timeline_begin(&u->m->timeline), bytes;

    if (!storm_due(&u->storm))
        return 0;
    if (storm_put(&u->storm, u->copies, u->m, u->pool, &bytes, &e))
        die(u, &e);
    timeline_row(&u->m->timeline, TIMELINE_SIDE, TIMELINE_UPLOAD, 0, traced, bytes, 0, 0);
    return 1;
}

static int look(void *arg)
{
    const struct uploader *u = arg;

    if (atomic_load_explicit(&u->quit, memory_order_acquire) || (u->hits && hits_look(u->hits)))
        return LOOK_FOUND;
    return order_look(&u->m->g, u->orders, u->next);
}

static void *follow(void *arg)
{
    struct uploader *u = arg;
    struct err e = {0};
    struct order o;

    if (copies_open(u->card, u->m, u->pool, u->slabs, &u->copies, &e) || slabs_register(u->slabs, &e))
        die(u, &e);
    if (copies_link(u->copies) > 0)
        ctl_sendf(u->ctl, CTL_LOG, 3, "%s: the link takes %.1f GB/s", card_name(u->card), copies_link(u->copies) * 1e-9);
    storm_begin(&u->storm);
    while (!atomic_load_explicit(&u->quit, memory_order_acquire)) {
        int moved = confirm(u) + land(u) + blow(u);
        if (order_take(&u->m->g, u->orders, u->next, &o)) {
            serve(u, &o);
            u->next++;
            moved = 1;
        }
        if (!moved && u->over != u->begun)
            copies_nap();
        if (moved || u->over != u->begun)
            continue;
        counter_add(&u->box->count.sleeps, 1);
        if (bell_sleep(&u->m->bells[PROC_CARD_UPLOADS(outbox_card(u->m->self))], &u->box->asleep, look, u,
                       storm_ms(&u->storm)) == BELL_NET)
            counter_add(&u->box->count.net_finds, 1);
    }
    return NULL;
}

int uploader_start(const struct child *c, const struct maps *m, struct card *card, const struct pool *p,
                   struct slabs *slabs, struct hits *hits, struct uploader **out, struct err *e)
{
    struct uploader *u = calloc(1, sizeof *u);
    int rc;

    if (!u)
        return err_set(e, -ENOMEM, "no memory for uploads");
    *u = (struct uploader){.card = card, .slabs = slabs, .m = m, .pool = p, .hits = hits, .ctl = c->ctl};
    u->orders = child_seg(c, SEG_ORDERS, card_outbox(outbox_card(c->outbox), 0));
    u->box = child_seg(c, SEG_CARD_ANSWERS, card_outbox(outbox_card(c->outbox), 0));
    u->writable = 1;
    for (size_t i = 0; i < c->n_segs; i++)
        u->writable &= c->seg[i].role != SEG_SLABS || c->seg[i].writable;
    if (!u->orders || !u->box) {
        free(u);
        return err_set(e, -EPROTO, "no ring of orders was passed on");
    }
    /* a predecessor's are answered for it; none is written while the card has no worker */
    u->next = atomic_load_explicit(&u->orders->head, memory_order_acquire) + 1;
    rc = -pthread_create(&u->thread, NULL, follow, u);
    if (rc) {
        free(u);
        return err_set(e, rc, "cannot start a thread: %s", strerror(-rc));
    }
    *out = u;
    return 0;
}

void uploader_ring(struct uploader *u)
{
    if (u)
        bell_ring(&u->m->bells[PROC_CARD_UPLOADS(outbox_card(u->m->self))], &u->box->asleep);
}

void uploader_stop(struct uploader *u)
{
    if (!u)
        return;
    atomic_store_explicit(&u->quit, 1, memory_order_release);
    bell_wake(&u->m->bells[PROC_CARD_UPLOADS(outbox_card(u->m->self))]);
    pthread_join(u->thread, NULL);
    copies_close(u->copies);
    free(u);
}
