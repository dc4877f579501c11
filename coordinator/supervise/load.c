/* Keeps the pager's order ring full until everything was asked for. Runs before the steward's thread
 * takes the orders over, on the main thread. */
#include "coordinator/supervise/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BAR 30
#define ANSWER_MS 100 /* between two looks at the pager's life */
#define WARM_US 5000  /* between two looks at how far the steward is */

struct load {
    const struct load_config *c;
    uint64_t next, answered; /* order numbers */
    uint64_t bytes, total;
    uint64_t start, shown;
    uint32_t tensor, layer, expert, place;
    uint64_t n_read_again;
    uint32_t n_again; /* orders that failed and have another source, */
    struct order_name {
        uint32_t layer, expert;
    } *again; /* order_slots: no more can be unanswered */
};

/* Slabs of a resident model are numbered as its experts are. */
static uint32_t place_of(const struct load_config *c, uint32_t layer, uint32_t expert)
{
    uint32_t place = expert;

    for (uint32_t i = 0; i < layer; i++)
        place += table_layer(c->tables, i)->n_experts;
    return place;
}

/* From a pack's original. */
static int order_again(const struct load_config *c, struct order_name n, struct order *o)
{
    return n.layer == UINT32_MAX
               ? pieces_trunk_again(c->pieces, n.expert, c->trunk_off[n.expert], o)
               : pieces_expert_again(c->pieces, n.layer, n.expert, place_of(c, n.layer, n.expert), o);
}

/* The next order: what must be read again, then trunk tensors, then experts in order of their slabs. 0:
 * none left. */
static int next_order(struct load *l, struct order *o)
{
    const struct load_config *c = l->c;

    if (l->n_again)
        return order_again(c, l->again[--l->n_again], o);
    while (l->tensor < c->m->n_tensors && c->trunk_off[l->tensor] == LOOKUP_PAGED)
        l->tensor++;
    if (l->tensor < c->m->n_tensors) {
        pieces_trunk(c->pieces, l->tensor, c->trunk_off[l->tensor], o);
        l->tensor++;
        return 1;
    }
    while (c->resident && l->layer < c->geo->n_layers) {
        if (l->expert < table_layer(c->tables, l->layer)->n_experts) {
            pieces_expert(c->pieces, l->layer, l->expert++, l->place++, o);
            return 1;
        }
        l->layer++;
        l->expert = 0;
    }
    return 0;
}

/* part of total bytes since start; shown: when the bar was shown last. */
static void bar(const char *what, uint64_t bytes, uint64_t total, uint64_t start, uint64_t *shown, int last)
{
    uint64_t now = now_ns();
    double part = total ? (double)bytes / (double)total : 1;
    double s = (double)(now - start) * 1e-9, rate = s > 0 ? (double)bytes / s : 0;
    int full = (int)(part * BAR);

    if (!last && now - *shown < 100000000)
        return;
    *shown = now;
    fprintf(stderr, "\r%s [%.*s%*s] %3.0f%%  %.2f GB/s  %.0f s left   ", what, full,
            "##############################", BAR - full, "", 100 * part, rate * 1e-9,
            rate > 0 ? (double)(total - bytes) / rate : 0.0);
    if (last)
        fprintf(stderr, "\r\033[K");
}

static void show(struct load *l, int last)
{
    if (l->c->progress)
        bar("loading", l->bytes, l->total, l->start, &l->shown, last);
}

/* Its last words, if it has any. */
static int pager_says(struct load *l, int ms, struct err *e)
{
    struct ctl_msg m;
    int got_fd, rc;

    while ((rc = ctl_recv(l->c->worker->ctl, &m, &got_fd, ms)) > 0) {
        if (got_fd >= 0)
            close(got_fd);
        if (m.kind == CTL_ERROR)
            return err_set(e, -EIO, "%s", m.text);
        if (m.kind == CTL_LOG)
            fprintf(stderr, "conclave: %s: %s\n", l->c->worker->name, m.text);
    }
    return rc < 0 ? err_set(e, -ECHILD, "the pager (pid %d) ended while it was loading", l->c->worker->pid)
                  : 0;
}

static int take_answer(struct load *l, struct err *e)
{
    struct order_slot *s = &l->c->orders->slot[l->answered & (l->c->geo->order_slots - 1)];
    int a = order_answer(l->c->geo, l->c->pager, l->answered), rc;

    if (a < 0 && s->order.flags & ORDER_SOFT) {
        const char *from = pieces_original_path(l->c->pieces, s->order.layer, s->order.expert);
        if (s->order.layer == UINT32_MAX)
            fprintf(stderr, "conclave: tensor %s: read from %s instead\n", l->c->m->tensor[s->order.expert].name, from);
        else
            fprintf(stderr, "conclave: layer %u, expert %u: read from %s instead\n", s->order.layer, s->order.expert, from);
        l->again[l->n_again++] = (struct order_name){s->order.layer, s->order.expert};
        l->n_read_again++;
        l->answered++;
        return 1;
    }
    if (a < 0) {
        rc = pager_says(l, 1000, e);
        return rc ? rc : err_set(e, -EIO, "the pager could not read the model");
    }
    if (!a)
        return 0;
    l->bytes += order_bytes(&s->order);
    l->answered++;
    return 1;
}

static int answer_there(void *arg)
{
    struct load *l = arg;

    return order_answer(l->c->geo, l->c->pager, l->answered) ? LOOK_FOUND : LOOK_NOTHING;
}

static void total_of(struct load *l)
{
    struct load copy = *l;
    struct order o;

    while (next_order(&copy, &o))
        l->total += order_bytes(&o);
}

static void enter(struct load *l)
{
    uint32_t place = 0;
    uint64_t epoch = 1;

    for (uint32_t i = 0; i < l->c->geo->n_layers; i++)
        for (uint32_t x = 0; x < table_layer(l->c->tables, i)->n_experts; x++, place++, epoch++) {
            for (uint32_t k = 0; k < l->c->geo->n_nodes; k++)
                atomic_store_explicit(table_header(l->c->tables, l->c->geo, k, place), epoch,
                                      memory_order_release);
            atomic_store_explicit(table_entry(l->c->tables, l->c->geo, i, x), ENTRY(place, epoch),
                                  memory_order_release);
        }
}

static int load_orders(struct load *l, struct err *e)
{
    const struct load_config *c = l->c;
    struct order o = {0};
    int more, rc = 0;

    total_of(l);
    more = next_order(l, &o);
    while (more || l->answered < l->next) {
        while (more && order_fits(c->geo, l->next, l->answered) && order_room(c->geo, c->pager, l->next)) {
            o.number = l->next++;
            o.prio = PRIO_WARM;
            order_publish(c->geo, c->orders, &o, &c->bells[c->worker->outbox], &c->pager->asleep);
            o = (struct order){0};
            more = next_order(l, &o);
        }
        rc = l->answered < l->next ? take_answer(l, e) : 0;
        if (rc < 0)
            return rc;
        if (rc && !more) /* one may have to be read again */
            more = next_order(l, &o);
        show(l, 0);
        if (rc)
            continue;
        if (bell_sleep(&c->bells[PROC_MAIN], &c->board->asleep_main, answer_there, l, ANSWER_MS) ==
                BELL_TIMEOUT &&
            (rc = pager_says(l, 0, e)) < 0)
            return rc;
    }
    return 0;
}

int load_all(const struct load_config *c, uint64_t *bytes, uint64_t *again, struct err *e)
{
    struct load l = {.c = c, .next = 1, .answered = 1, .start = now_ns()};
    int rc;

    l.again = calloc(c->geo->order_slots, sizeof *l.again);
    if (!l.again)
        return err_set(e, -ENOMEM, "no memory for %u orders", c->geo->order_slots);
    rc = load_orders(&l, e);
    free(l.again);
    if (rc)
        return rc;
    show(&l, 1);
    if (c->resident)
        enter(&l);
    *bytes = l.bytes;
    *again = l.n_read_again;
    return 0;
}

void load_warm(const struct paging *p, int progress)
{
    uint64_t start = now_ns(), shown = 0;
    struct paging_stats s;

    for (paging_stats(p, &s); s.cards.filling && !s.warm; paging_stats(p, &s))
        usleep(WARM_US);
    if (!s.warm)
        return;
    for (; s.warm; paging_stats(p, &s)) {
        if (progress)
            bar("warming up", s.warm_bytes, s.warm_total, start, &shown, 0);
        usleep(WARM_US);
    }
    if (progress)
        bar("warming up", s.warm_bytes, s.warm_total, start, &shown, 1);
}
