/* Two copies are on the way at any time, so that the link has always something to do, and none is large: whoever
 * wants a word over the same link waits for little. While calls are published (a decode is in flight) uploads
 * take PACE of the link at most. */
#define _GNU_SOURCE
#include "gpu-worker/copies.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "shm/bell.h"

#define PIECE (4u << 20)       /* of a copy at most, and each buffer's size */
#define PACED_PIECE (2u << 20) /* ... while a decode is in flight: two last for as long as we come late */
#define PACE 0.58              /* of the link, then: a tenth of it is slept away, and a half is to be left */
#define CREDIT_NS 1000000u     /* time that was slept away and is made up for */
#define QUIET_NS 20000000u     /* no call for so long: no decode is in flight */
#define NAP_NS 15000
#define SLACK_NS 1000
#define MEASURED 8             /* copies of a piece to know the link by */
#define LATE_NS 30000000000ull /* a copy that takes longer has gone astray */

enum { DEPTH = 2 }; /* marks 0 .. DEPTH - 1: of copies; then those of copies_mark */
_Static_assert(DEPTH + COPIES_MARKS <= CARD_MARKS, "a card has marks for both");

struct copies {
    struct card *card;
    const struct maps *m;
    const struct pool *pool;
    const struct slabs *slabs;
    uint8_t *buffer[DEPTH]; /* for bytes that are not registered */
    unsigned turn;
    double link;
    uint64_t free_at; /* by the pace: when the next copy may begin */
    uint64_t call, call_at; /* newest call seen, and when */
};

static void sleep_ns(uint64_t ns)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)}, NULL);
}
void copies_nap(void)
{
    sleep_ns(NAP_NS);
}

static int wait(struct copies *c, unsigned mark, int nap, struct err *e)
{
    uint64_t start = now_ns();
    int rc;

    while (!(rc = card_marked(c->card, mark, e))) {
        if (nap)
            copies_nap();
        if (now_ns() - start > LATE_NS)
            return err_set(e, -ETIMEDOUT, "%s: a copy does not end", card_name(c->card));
    }
    return rc < 0 ? rc : 0;
}

/* Copies of a piece, one after the other, each queued before the one before it ends. */
static int measure(struct copies *c, struct err *e)
{
    uint64_t n = c->pool->bytes < PIECE ? c->pool->bytes : PIECE, start = 0;
    int rc;

    for (int i = 0; i <= MEASURED; i++) {
        if (i == 1) { /* one to warm up */
            if ((rc = wait(c, 0, 0, e)))
                return rc;
            start = now_ns();
        }
        if ((rc = card_copy_in(c->card, c->pool->base, c->buffer[i % DEPTH], n, e)) || (rc = card_mark(c->card, 0, e)))
            return rc;
    }
    if ((rc = wait(c, 0, 0, e)))
        return rc;
    c->link = MEASURED * (double)n / ((double)(now_ns() - start) * 1e-9);
    return 0;
}

int copies_open(struct card *card, const struct maps *m, const struct pool *p, const struct slabs *s,
                struct copies **out, struct err *e)
{
    struct copies *c = calloc(1, sizeof *c);
    int rc;

    *out = c;
    if (!c)
        return err_set(e, -ENOMEM, "no memory");
    *c = (struct copies){.card = card, .m = m, .pool = p, .slabs = s};
    if ((rc = card_use(card, e)) || !card_real(card))
        return rc;
    prctl(PR_SET_TIMERSLACK, SLACK_NS);
    for (int i = 0; i < DEPTH; i++) {
        void *host, *dev;
        if ((rc = card_shared(card, PIECE, "uploads", &host, &dev, e)))
            return rc;
        c->buffer[i] = host;
    }
    return measure(c, e);
}

void copies_close(struct copies *c)
{
    free(c);
}

double copies_link(const struct copies *c)
{
    return c->link;
}

static int in_flight(struct copies *c, uint64_t now)
{
    uint64_t call = atomic_load_explicit(&c->m->calls->head, memory_order_relaxed);

    if (call != c->call) {
        c->call = call;
        c->call_at = now;
    }
    return c->call_at && now - c->call_at < QUIET_NS;
}

/* The most bytes that may begin now, after waiting for the pace. */
static uint64_t pace(struct copies *c)
{
    uint64_t now = now_ns();

    if (!(c->link > 0) || !in_flight(c, now))
        return PIECE;
    for (; now < c->free_at; now = now_ns())
        sleep_ns(c->free_at - now);
    return PACED_PIECE;
}
static void begun(struct copies *c, uint64_t bytes)
{
    uint64_t least = now_ns() - CREDIT_NS;

    if (c->link > 0)
        c->free_at = (c->free_at > least ? c->free_at : least) + (uint64_t)((double)bytes / (c->link * PACE) * 1e9);
}

int copies_put(struct copies *c, uint32_t node, uint64_t off, uint64_t dst, uint64_t bytes, struct err *e)
{
    for (uint64_t n; bytes; off += n, dst += n, bytes -= n) {
        const uint8_t *from = c->m->slabs[node] + off;
        uint64_t most = pace(c);
        unsigned turn = c->turn++ % DEPTH;
        int straight, rc;
        n = slabs_run(c->slabs, node, off, bytes < most ? bytes : most, &straight);
        if ((rc = wait(c, turn, 1, e)))
            return rc;
        if (!straight)
            from = memcpy(c->buffer[turn], from, n);
        if ((rc = card_copy_in(c->card, c->pool->base + dst, from, n, e)) || (rc = card_mark(c->card, turn, e)))
            return rc;
        begun(c, n);
    }
    return 0;
}

int copies_get(struct copies *c, uint32_t node, uint64_t off, uint64_t src, uint64_t bytes, struct err *e)
{
    for (uint64_t n; bytes; off += n, src += n, bytes -= n) {
        uint8_t *to = (uint8_t *)(uintptr_t)c->m->slabs[node] + off;
        uint64_t most = pace(c);
        unsigned turn = c->turn++ % DEPTH;
        int straight, rc;
        n = slabs_run(c->slabs, node, off, bytes < most ? bytes : most, &straight);
        if ((rc = wait(c, turn, 1, e)) ||
            (rc = card_copy_out(c->card, straight ? to : c->buffer[turn], c->pool->base + src, n, e)) ||
            (rc = card_mark(c->card, turn, e)))
            return rc;
        begun(c, n);
        if (straight)
            continue;
        if ((rc = wait(c, turn, 1, e)))
            return rc;
        memcpy(to, c->buffer[turn], n);
    }
    return 0;
}

int copies_mark(struct copies *c, unsigned i, struct err *e)
{
    return card_mark(c->card, DEPTH + i, e);
}
int copies_over(struct copies *c, unsigned i, struct err *e)
{
    return card_marked(c->card, DEPTH + i, e);
}
