/* Whoever writes the rings is not trusted: ends that make no sense move on to what can be read, kinds that
 * do not exist are left out. */
#define _GNU_SOURCE
#include "coordinator/supervise/tracer.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DRAIN_MS 20 /* a lane's records last longer at 400,000 events a second */
#define MOST_RINGS (4 + MAX_NODES + MAX_CARDS)
#define MOST_NAMED 128
#define TEXT_BYTES (64u << 10)
#define EVENT_BYTES 512u /* the longest */
#define OWN_KEY UINT32_MAX
#define NONE UINT32_MAX /* a layer or expert that there is none of */

static const struct kind {
    const char *name, *about, *a, *b, *c; /* about: the category; a, b, c: what they are, NULL: nothing */
} kinds[TIMELINE_KINDS] = {
    [TIMELINE_STARTED] = {"started", "process", NULL, NULL, NULL},
    [TIMELINE_LOAD] = {"load", "disk", "bytes", NULL, NULL},
    [TIMELINE_STEP] = {"step", "trunk", "step", "tokens", "rows"},
    [TIMELINE_HOSTED] = {"step on a card", "trunk", "step", "tokens", NULL},
    [TIMELINE_LAUNCH] = {"launch", "trunk", "step", "tokens", NULL},
    [TIMELINE_ANSWER] = {"kernels", "trunk", "step", "tokens", NULL},
    [TIMELINE_PUBLISH] = {"publish", "call", "call", "layer", "items"},
    [TIMELINE_WAIT] = {"wait", "call", "call", "layer", NULL},
    [TIMELINE_SUM] = {"sum", "call", "call", "layer", NULL},
    [TIMELINE_OWN] = {"own experts", "experts", NULL, "layer", "items"},
    [TIMELINE_PASS] = {"pass", "experts", "call", "layer", "items"},
    [TIMELINE_UPLOAD] = {"upload", "card", "bytes", "layer", "expert"},
    [TIMELINE_DOWN] = {"copy down", "card", "bytes", "layer", "expert"},
    [TIMELINE_READ] = {"read", "disk", "bytes", "layer", "expert"},
};
static const char *const lanes[TIMELINE_LANES] = {"main", "uploads", "trunk"};

struct ring {
    struct seg seg;
    uint32_t key;
    char name[48];
};
struct named { /* a process whose name was written */
    uint32_t pid;
    uint64_t rows[TIMELINE_LANES]; /* bits of rows whose thread's name was */
};
struct tracer {
    tracer_write *write;
    void *to;
    struct ring ring[MOST_RINGS];
    struct named named[MOST_NAMED]; /* in turns: with more deaths than this a name is written again */
    uint32_t n_named;
    _Atomic uint32_t n; /* rings; the thread looks at those below it */
    char *text;
    size_t used;
    int begun, failed;
    struct err e;
    _Atomic int end;
    pthread_t thread;
};

/* ---- text ---- */

static void flush(struct tracer *t)
{
    if (t->used && !t->failed)
        t->failed = t->write(t->to, t->text, t->used, &t->e);
    t->used = 0;
}
static void say(struct tracer *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct tracer *t, const char *fmt, ...)
{
    va_list ap;

    if (TEXT_BYTES - t->used < EVENT_BYTES)
        flush(t);
    va_start(ap, fmt);
    t->used += (size_t)vsnprintf(t->text + t->used, EVENT_BYTES, fmt, ap);
    va_end(ap);
}
/* What stands between two events. */
static const char *comma(struct tracer *t)
{
    const char *c = t->begun ? ",\n" : "[\n";

    t->begun = 1;
    return c;
}

static uint32_t thread_of(uint32_t lane, uint32_t row)
{
    return lane * 1000 + row;
}

/* Names of a process and of a thread, before their first event. */
static void names(struct tracer *t, const struct ring *g, uint32_t lane, const struct timeline_record *r)
{
    struct named *p = NULL;

    for (uint32_t i = 0; !p && i < t->n_named && i < MOST_NAMED; i++)
        if (t->named[i].pid == r->pid)
            p = &t->named[i];
    if (!p) {
        p = &t->named[t->n_named++ % MOST_NAMED];
        *p = (struct named){.pid = r->pid};
        say(t, "%s{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":0,\"args\":{\"name\":\"%s\"}}", comma(t), r->pid,
            g->name);
    }
    if (r->row < 64 && !(p->rows[lane] >> r->row & 1)) {
        p->rows[lane] |= 1ull << r->row;
        say(t, "%s{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":\"%s", comma(t), r->pid,
            thread_of(lane, r->row), r->kind == TIMELINE_READ ? "read" : lanes[lane]);
        say(t, r->row ? " %u\"}}" : "\"}}", r->row);
    }
}

static void event(struct tracer *t, const struct ring *g, uint32_t lane, const struct timeline_record *r)
{
    const struct kind *k = &kinds[r->kind < TIMELINE_KINDS ? r->kind : 0];
    uint64_t ns = r->end - r->start;
    const char *sep = "";

    if (r->kind >= TIMELINE_KINDS || r->end < r->start || r->row >= 1000)
        return;
    names(t, g, lane, r);
    say(t, "%s{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%" PRIu64 ".%03u,\"dur\":%" PRIu64 ".%03u,\"pid\":%u,"
        "\"tid\":%u,\"args\":{", comma(t), k->name, k->about, r->start / 1000, (unsigned)(r->start % 1000), ns / 1000,
        (unsigned)(ns % 1000), r->pid, thread_of(lane, r->row));
    if (k->a) {
        say(t, "\"%s\":%" PRIu64, k->a, r->a);
        sep = ",";
    }
    if (k->b && r->b != NONE) {
        say(t, "%s\"%s\":%u", sep, k->b, r->b);
        sep = ",";
    }
    if (k->c && r->b != NONE)
        say(t, "%s\"%s\":%u", sep, k->c, r->c);
    say(t, "}}");
}

/* ---- taking out ---- */

static void drain_lane(struct tracer *t, struct ring *g, uint32_t lane)
{
    struct timeline_lane *l = &((struct timeline_ring *)g->seg.base)->lane[lane];
    uint64_t next = atomic_load_explicit(&l->next, memory_order_acquire),
             at = atomic_load_explicit(&l->taken, memory_order_relaxed);

    if (next - at > TIMELINE_RECORDS)
        at = next - TIMELINE_RECORDS;
    for (; at != next; at++) {
        struct timeline_record r = l->record[at % TIMELINE_RECORDS];
        atomic_store_explicit(&l->taken, at + 1, memory_order_release);
        event(t, g, lane, &r);
    }
}
static void drain(struct tracer *t)
{
    uint32_t n = atomic_load_explicit(&t->n, memory_order_acquire);

    for (uint32_t i = 0; i < n; i++)
        for (uint32_t lane = 0; lane < TIMELINE_LANES; lane++)
            drain_lane(t, &t->ring[i], lane);
    flush(t);
}
static void *follow(void *arg)
{
    struct tracer *t = arg;

    while (!atomic_load_explicit(&t->end, memory_order_acquire)) {
        drain(t);
        nanosleep(&(struct timespec){.tv_nsec = DRAIN_MS * 1000000L}, NULL);
    }
    return NULL;
}

/* ---- life ---- */

static int ring_of(struct tracer *t, uint32_t key, const char *name, struct ring **out, struct err *e)
{
    uint32_t n = atomic_load(&t->n);
    int rc;

    for (uint32_t i = 0; i < n; i++)
        if (t->ring[i].key == key) {
            *out = &t->ring[i];
            return 0;
        }
    if (n == MOST_RINGS)
        return err_set(e, -ENOSPC, "--trace: more processes than %u", n);
    *out = &t->ring[n];
    rc = seg_create(SEG_TIMELINE, n, sizeof(struct timeline_ring), -1, &t->ring[n].seg, e);
    if (rc)
        return rc;
    t->ring[n].key = key;
    snprintf(t->ring[n].name, sizeof t->ring[n].name, "%s", name);
    atomic_store_explicit(&t->n, n + 1, memory_order_release);
    return 0;
}

int tracer_open(tracer_write *write, void *to, struct tracer **out, struct timeline *own, struct err *e)
{
    struct tracer *t = NULL;
    struct ring *g;
    int rc;

    *out = NULL;
    *own = (struct timeline){.pid = (uint32_t)getpid()};
    if (!write)
        return 0;
    t = calloc(1, sizeof *t);
    if (!t || !(t->text = malloc(TEXT_BYTES))) {
        free(t);
        return err_set(e, -ENOMEM, "no memory for --trace");
    }
    t->write = write;
    t->to = to;
    rc = ring_of(t, OWN_KEY, "coordinator", &g, e);
    if (!rc) {
        rc = -pthread_create(&t->thread, NULL, follow, t);
        if (rc) {
            err_set(e, rc, "cannot start a thread: %s", strerror(-rc));
            seg_close(&g->seg);
        }
    }
    if (rc) {
        free(t->text);
        free(t);
        return rc;
    }
    own->ring = g->seg.base;
    timeline_end(own, TIMELINE_LEADER, TIMELINE_STARTED, timeline_begin(own), 0, 0, 0);
    *out = t;
    return 0;
}

int tracer_give(struct tracer *t, uint32_t key, const char *name, struct worker_seg *s, size_t *n, struct err *e)
{
    struct ring *g;
    int rc;

    if (!t)
        return 0;
    rc = ring_of(t, key, name, &g, e);
    if (!rc)
        s[(*n)++] = (struct worker_seg){&g->seg, 1};
    return rc;
}

int tracer_close(struct tracer *t, uint64_t *dropped, struct err *e)
{
    uint32_t n;
    int rc;

    *dropped = 0;
    if (!t)
        return 0;
    atomic_store_explicit(&t->end, 1, memory_order_release);
    pthread_join(t->thread, NULL);
    drain(t);
    say(t, "\n]\n");
    flush(t);
    n = atomic_load(&t->n);
    for (uint32_t i = 0; i < n; i++) {
        const struct timeline_ring *g = t->ring[i].seg.base;
        for (uint32_t lane = 0; lane < TIMELINE_LANES; lane++)
            *dropped += atomic_load_explicit(&g->lane[lane].dropped, memory_order_relaxed);
        seg_close(&t->ring[i].seg);
    }
    rc = t->failed ? err_set(e, t->failed, "%s", t->e.msg) : 0;
    free(t->text);
    free(t);
    return rc;
}
