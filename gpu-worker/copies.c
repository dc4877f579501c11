/* Copies are queued some at once, so that the link has something to do however late this thread is woken: where all cores
 * work, that is up to some milliseconds, and each time it takes a core from somebody. While calls are published (a
 * decode is in flight) uploads take PACE of the link at most: what would last for AHEAD_NS at that pace, then nothing
 * until its time is over. */
#define _GNU_SOURCE
#include "gpu-worker/copies.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "shm/bell.h"

#define PIECE (4u << 20)       /* of a copy at most, and each buffer's size */
#define PACE 0.515             /* of the link, while a decode is in flight: a half is to be left when some was slept away */
#define AHEAD_NS 2000000u
#define CREDIT_NS 6000000u     /* time that was slept away and is made up for */
#define QUIET_NS 20000000u     /* no call for so long: no decode is in flight */
#define NAP_NS 15000
#define ROOM_NAP_NS 200000     /* while all copies are on the way */
#define SLACK_NS 1000
#define MEASURED 8             /* copies of a piece to know the link by, */
#define TRIES 6                /* so often, the best of them: others use link and card, too */
#define LATE_NS 30000000000ull /* a copy that takes longer has gone astray */

enum {
    DEPTH = 16, /* copies on the way, a power of two. Marks 0 .. DEPTH - 1 are theirs, then come those of copies_mark */
    BUFFERS = 2,
};
_Static_assert(DEPTH + COPIES_MARKS <= CARD_MARKS, "a card has marks for both");

struct copies {
    struct card *card;
    const struct maps *m;
    const struct pool *pool;
    const struct slabs *slabs;
    uint8_t *buffer[BUFFERS]; /* for bytes that are not registered */
    void *scratch; /* PIECE bytes of the card */
    unsigned turn; /* of the newest copy */
    double link;
    int measured; /* ... while a decode was in flight and nothing else went on */
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

static int wait(struct copies *c, unsigned mark, uint64_t nap, struct err *e)
{
    uint64_t start = now_ns();
    int rc;

    while (!(rc = card_marked(c->card, mark, e))) {
        if (nap)
            sleep_ns(nap);
        if (now_ns() - start > LATE_NS)
            return err_set(e, -ETIMEDOUT, "%s: a copy does not end", card_name(c->card));
    }
    return rc < 0 ? rc : 0;
}

/* Copies of a piece, one after the other, all queued before the first one ends unless a call is held up. */
static int measure(struct copies *c, struct err *e)
{
    int rc;

    for (int k = 0; k <= TRIES; k++) { /* the first one warms up */
        uint64_t start = now_ns();
        double rate;
        for (int i = 0; i < MEASURED; i++)
            if ((rc = card_copy_in(c->card, c->scratch, c->buffer[i % BUFFERS], PIECE, e)))
                return rc;
        if ((rc = card_mark(c->card, 0, e)) || (rc = wait(c, 0, 0, e)))
            return rc;
        rate = MEASURED * (double)PIECE / ((double)(now_ns() - start) * 1e-9);
        if (k && rate > c->link)
            c->link = rate;
    }
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
    if ((rc = card_alloc(card, PIECE, "what the link is measured with", &c->scratch, e)))
        return rc;
    for (int i = 0; i < BUFFERS; i++) {
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

/* At the start the trunk's weights come over the same link. */
static int measure_again(struct copies *c, struct err *e)
{
    int rc = wait(c, c->turn % DEPTH, NAP_NS, e);

    c->measured = 1;
    return rc ? rc : measure(c, e);
}

/* Waits until the next copy may begin. */
static int pace(struct copies *c, struct err *e)
{
    uint64_t now = now_ns();
    int rc;

    if (!(c->link > 0) || !in_flight(c, now)) {
        c->free_at = now;
        return 0;
    }
    if (!c->measured && slabs_settled(c->slabs) && (rc = measure_again(c, e)))
        return rc;
    if (c->free_at > now + AHEAD_NS) {
        for (; now < c->free_at; now = now_ns())
            sleep_ns(c->free_at - now);
    } else if (c->free_at < now) {
        if ((rc = card_marked(c->card, c->turn % DEPTH, e)) < 0)
            return rc;
        if (rc) /* none is on the way: there was none, which is not made up for */
            c->free_at = now;
    }
    return 0;
}
static void begun(struct copies *c, uint64_t bytes)
{
    uint64_t least = now_ns() - CREDIT_NS;

    if (c->link > 0)
        c->free_at = (c->free_at > least ? c->free_at : least) + (uint64_t)((double)bytes / (c->link * PACE) * 1e9);
}

/* The next copy, when there is room for it: how many of these bytes are one, and where from or to here: slabs, or a
 * buffer, which is free then. */
static int next(struct copies *c, uint32_t node, uint64_t off, uint64_t bytes, uint64_t *n, int *straight, uint8_t **at,
                struct err *e)
{
    int rc;

    if ((rc = pace(c, e)))
        return rc;
    c->turn++;
    *n = slabs_run(c->slabs, node, off, bytes < PIECE ? bytes : PIECE, straight);
    if ((rc = wait(c, c->turn % DEPTH, ROOM_NAP_NS, e)) ||
        (!*straight && (rc = wait(c, (c->turn - BUFFERS) % DEPTH, NAP_NS, e))))
        return rc;
    *at = *straight ? (uint8_t *)(uintptr_t)c->m->slabs[node] + off : c->buffer[c->turn % BUFFERS];
    return 0;
}

int copies_put(struct copies *c, uint32_t node, uint64_t off, uint64_t dst, uint64_t bytes, struct err *e)
{
    for (uint64_t n; bytes; off += n, dst += n, bytes -= n) {
        uint8_t *from;
        int straight, rc;
        if ((rc = next(c, node, off, bytes, &n, &straight, &from, e)))
            return rc;
        if (!straight)
            memcpy(from, c->m->slabs[node] + off, n);
        if ((rc = card_copy_in(c->card, c->pool->base + dst, from, n, e)) || (rc = card_mark(c->card, c->turn % DEPTH, e)))
            return rc;
        begun(c, n);
    }
    return 0;
}

int copies_get(struct copies *c, uint32_t node, uint64_t off, uint64_t src, uint64_t bytes, struct err *e)
{
    for (uint64_t n; bytes; off += n, src += n, bytes -= n) {
        uint8_t *to;
        int straight, rc;
        if ((rc = next(c, node, off, bytes, &n, &straight, &to, e)) ||
            (rc = card_copy_out(c->card, to, c->pool->base + src, n, e)) || (rc = card_mark(c->card, c->turn % DEPTH, e)))
            return rc;
        begun(c, n);
        if (straight)
            continue;
        if ((rc = wait(c, c->turn % DEPTH, NAP_NS, e)))
            return rc;
        memcpy((uint8_t *)(uintptr_t)c->m->slabs[node] + off, to, n);
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
