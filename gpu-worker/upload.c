/* Follows the card's order ring. An order is answered when its bytes are in the pool: the steward sets
 * header and entry only then, and leaves the slabs as they are until then. */
#include "gpu-worker/upload.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "shm/orders.h"

struct uploader {
    const struct maps *m;
    const struct pool *pool;
    struct orders *orders;
    struct pager_box *box;
    int ctl;
    uint64_t next;
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

    if (o->kind != ORDER_UPLOAD || !o->n_pieces || o->n_pieces > N_MATS * m->g.n_nodes)
        return -1;
    for (uint32_t i = 0; i < o->n_pieces; i++) {
        const struct order_piece *x = &o->piece[i];
        if (x->seg < 1 || x->seg > m->g.n_nodes || !inside(x->dst, x->bytes, u->pool->bytes) ||
            !inside(x->file_off, x->bytes, m->slabs_bytes[x->seg - 1]))
            return -1;
    }
    return 0;
}

static void upload(struct uploader *u, const struct order *o)
{
    const struct maps *m = u->m;
    int bad = check(u, o);

    for (uint32_t i = 0; !bad && i < o->n_pieces; i++) {
        const struct order_piece *x = &o->piece[i];
        memcpy(u->pool->base + x->dst, m->slabs[x->seg - 1] + x->file_off, x->bytes);
        counter_add(&u->box->count.bytes, x->bytes);
    }
    if (bad)
        ctl_sendf(u->ctl, CTL_ERROR, 0, "order %llu is no upload of this card", (unsigned long long)o->number);
    counter_add(&u->box->count.orders, 1);
    order_done(&m->g, u->box, o->number, bad ? ORDER_WHY_IO : ORDER_WHY_OK, 0);
    bell_ring(&m->bells[PROC_STEWARD], &m->board->asleep_steward);
}

static int look(void *arg)
{
    const struct uploader *u = arg;

    if (atomic_load_explicit(&u->quit, memory_order_acquire))
        return LOOK_FOUND;
    return order_look(&u->m->g, u->orders, u->next);
}

static void *follow(void *arg)
{
    struct uploader *u = arg;
    struct order o;

    while (!atomic_load_explicit(&u->quit, memory_order_acquire)) {
        if (order_take(&u->m->g, u->orders, u->next, &o)) {
            upload(u, &o);
            u->next++;
            continue;
        }
        counter_add(&u->box->count.sleeps, 1);
        if (bell_sleep(&u->m->bells[PROC_CARD_UPLOADS(outbox_card(u->m->self))], &u->box->asleep, look, u, 0) == BELL_NET)
            counter_add(&u->box->count.net_finds, 1);
    }
    return NULL;
}

int uploader_start(const struct child *c, const struct maps *m, const struct pool *p, struct uploader **out,
                   struct err *e)
{
    struct uploader *u = calloc(1, sizeof *u);
    int rc;

    if (!u)
        return err_set(e, -ENOMEM, "no memory for uploads");
    *u = (struct uploader){.m = m, .pool = p, .ctl = c->ctl};
    u->orders = child_seg(c, SEG_ORDERS, card_outbox(outbox_card(c->outbox), 0));
    u->box = child_seg(c, SEG_CARD_ANSWERS, card_outbox(outbox_card(c->outbox), 0));
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

void uploader_stop(struct uploader *u)
{
    if (!u)
        return;
    atomic_store_explicit(&u->quit, 1, memory_order_release);
    bell_wake(&u->m->bells[PROC_CARD_UPLOADS(outbox_card(u->m->self))]);
    pthread_join(u->thread, NULL);
    free(u);
}
