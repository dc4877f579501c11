/* Orders: taken once, in order, never torn, by another process that sleeps between them. */
#include "shm/orders.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/test.h"

#define SLOTS 4
#define ORDERS 5000

static struct geometry g = {.order_slots = SLOTS};
struct all {
    struct bell bell;
    struct pager_box *box;
    struct orders *os;
};

static void *shared(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        exit(1);
    return p;
}

static struct order order_of(uint64_t n)
{
    struct order o = {
        .number = n, .kind = ORDER_READ, .layer = (uint32_t)n, .n_pieces = 1 + n % ORDER_PIECES};

    for (uint32_t i = 0; i < o.n_pieces; i++)
        o.piece[i] = (struct order_piece){.shard = i,
                                          .file_off = n * 4096,
                                          .bytes = 4096 + i,
                                          .dst = n,
                                          .xxh = n * i,
                                          .flags = PIECE_CHECK};
    return o;
}

struct wait {
    struct all *a;
    uint64_t next;
};
static int look(void *arg)
{
    struct wait *w = arg;

    return order_look(&g, w->a->os, w->next);
}

static enum order_why why_of(uint64_t n)
{
    return n % 7 ? ORDER_WHY_OK : n % 2 ? ORDER_WHY_IO : ORDER_WHY_CHECKSUM;
}

static int pager(struct all *a) /* every seventh order fails */
{
    struct wait w = {a, 1};
    struct order o, want;
    size_t size;
    uint32_t round = 0;

    while (w.next <= ORDERS) {
        if (!order_take(&g, a->os, w.next, &o)) {
            if (wait_round(&round, 1))
                continue;
            a->box->count.sleeps++;
            a->box->count.net_finds +=
                bell_sleep(&a->bell, &a->box->asleep, look, &w, 0) == BELL_NET;
            round = 0;
            continue;
        }
        round = 0;
        want = order_of(w.next);
        size = offsetof(struct order, piece) + want.n_pieces * sizeof *want.piece;
        if (memcmp(&o, &want, size))
            return 1;
        order_done(&g, a->box, w.next, why_of(w.next), (uint32_t)w.next % ORDER_PIECES);
        w.next++;
    }
    return 0;
}

int main(void)
{
    struct all *a = shared(sizeof *a);
    uint64_t wrong = 0, answered = 0;
    int status;
    pid_t p;

    a->box = shared(pager_box_bytes(&g));
    a->os = shared(orders_bytes(&g));
    p = fork();
    if (!p)
        _exit(pager(a));
    for (uint64_t n = 1; answered < ORDERS;) {
        int how = order_answer(&g, a->box, answered + 1); /* of the oldest that is open */
        if (how) {
            uint32_t piece, why = order_why(&g, a->box, ++answered, &piece);
            wrong += how != (answered % 7 ? 1 : -1);
            wrong += why != why_of(answered) || piece != answered % ORDER_PIECES;
        }
        if (n > ORDERS || !order_fits(&g, n, answered + 1) || !order_room(&g, a->box, n))
            continue;
        order_publish(&g, a->os, &(struct order[]){order_of(n)}[0], &a->bell, &a->box->asleep);
        if (++n % 1000 == 0)
            nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    CHECK(waitpid(p, &status, 0) == p && status == 0, "status %d: an order was torn", status);
    CHECK_EQ(wrong, 0);
    CHECK_EQ(a->os->head, ORDERS);
    CHECK(a->box->count.sleeps > 0, "none");
    CHECK_EQ(a->box->count.net_finds, 0);
    CHECK_EQ(order_take(&g, a->os, ORDERS + 1, &(struct order){0}), 0);
    return test_end();
}
