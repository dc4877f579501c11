/* The timeline's text: valid JSON with every record once and in order, names before events, full lanes counted,
 * nonsense left out, a successor in its predecessor's ring, an error of writing told. */
#define _GNU_SOURCE
#include "coordinator/supervise/tracer.h"

#include <stdlib.h>
#include <unistd.h>

#include "coordinator/json/json.h"
#include "tests/test.h"

struct text {
    char *at;
    size_t n;
    int refuse;
};

static int keep(void *to, const void *data, size_t n, struct err *e)
{
    struct text *t = to;

    if (t->refuse)
        return err_set(e, -ENOSPC, "no space");
    t->at = realloc(t->at, t->n + n);
    memcpy(t->at + t->n, data, n);
    t->n += n;
    return 0;
}

static const struct json *read_back(struct text *t, struct json_doc **doc)
{
    struct err e = {0};

    *doc = NULL;
    CHECK(!json_parse("trace", t->at, t->n, NULL, doc, &e), "%s", e.msg);
    return *doc ? json_root(*doc) : NULL;
}

/* Events of a name by one process. */
static uint32_t count(const struct json *events, const char *name, uint64_t pid)
{
    uint32_t n = 0;

    for (size_t i = 0; events && i < events->n; i++) {
        uint64_t p = 0;
        json_u64(json_get(&events->items[i], "pid"), &p);
        n += json_is(json_get(&events->items[i], "name"), name) && p == pid;
    }
    return n;
}

static void whole(void)
{
    struct text text = {0};
    struct tracer *t;
    struct timeline own, other = {.pid = 77};
    struct worker_seg s[2];
    struct json_doc *doc;
    const struct json *events, *args;
    uint64_t dropped, last = 0;
    struct err e = {0};
    size_t n = 0, seen = 0;

    CHECK(!tracer_open(keep, &text, &t, &own, &e) && t && own.ring, "%s", e.msg);
    CHECK(!tracer_give(t, 5, "cpu worker 0", s, &n, &e) && n == 1 && s[0].writable && s[0].seg->role == SEG_TIMELINE);
    other.ring = s[0].seg->base;
    for (uint64_t i = 0; i < 1000; i++) {
        timeline_end(&other, TIMELINE_LEADER, TIMELINE_PASS, timeline_begin(&other), i, 3, 4);
        timeline_end(&own, TIMELINE_LEADER, TIMELINE_STEP, timeline_begin(&own), i, 1, 1);
    }
    timeline_row(&other, TIMELINE_SIDE, TIMELINE_UPLOAD, 0, timeline_begin(&other), 1ull << 40, UINT32_MAX, UINT32_MAX);
    other.pid = 78; /* a successor */
    CHECK(!tracer_give(t, 5, "another name", s, &n, &e) && n == 2 && s[1].seg == s[0].seg, "the same ring");
    timeline_end(&other, TIMELINE_LEADER, TIMELINE_PASS, timeline_begin(&other), 1000, 3, 4);
    timeline_put(&other, TIMELINE_LEADER, &(struct timeline_record){.start = 5, .end = 4, .kind = TIMELINE_PASS});
    timeline_put(&other, TIMELINE_LEADER, &(struct timeline_record){.kind = TIMELINE_KINDS});
    timeline_put(&other, TIMELINE_LEADER, &(struct timeline_record){.kind = TIMELINE_READ, .row = 1000});
    CHECK(!tracer_close(t, &dropped, &e) && !dropped, "%s", e.msg);
    events = read_back(&text, &doc);
    CHECK_EQ(count(events, "pass", 77), 1000);
    CHECK_EQ(count(events, "pass", 78), 1);
    CHECK_EQ(count(events, "step", (uint64_t)getpid()), 1000);
    CHECK_EQ(count(events, "started", (uint64_t)getpid()), 1);
    CHECK_EQ(count(events, "process_name", 77) + count(events, "process_name", 78), 2);
    CHECK_EQ(count(events, "thread_name", 77), 2);
    CHECK_EQ(count(events, "upload", 77), 1);
    CHECK_EQ(count(events, "read", 78), 0);
    for (size_t i = 0; events && i < events->n; i++) {
        uint64_t call = UINT64_MAX;
        double ts = 0, dur = -1;
        args = json_get(&events->items[i], "args");
        if (json_is(json_get(&events->items[i], "name"), "upload")) {
            json_u64(json_get(args, "bytes"), &call);
            CHECK(call == 1ull << 40 && !json_get(args, "layer") && !json_get(args, "expert"));
        }
        if (!json_is(json_get(&events->items[i], "name"), "pass"))
            continue;
        json_u64(json_get(args, "call"), &call);
        CHECK(call == seen && !json_f64(json_get(&events->items[i], "ts"), &ts) && ts >= (double)last &&
              !json_f64(json_get(&events->items[i], "dur"), &dur) && dur >= 0, "pass %zu", seen);
        last = (uint64_t)ts;
        seen++;
    }
    CHECK_EQ(seen, 1001);
    json_free(doc);
    free(text.at);
}

/* A lane that fills while nobody takes anything out: what came first stays. */
static void full(void)
{
    static struct timeline_ring ring;
    struct timeline t = {&ring, 1};

    for (uint32_t i = 0; i < TIMELINE_RECORDS + 10; i++)
        timeline_end(&t, TIMELINE_TRUNK, TIMELINE_SUM, timeline_begin(&t), i, 0, 0);
    CHECK_EQ(ring.lane[TIMELINE_TRUNK].dropped, 10);
    CHECK_EQ(ring.lane[TIMELINE_TRUNK].next, TIMELINE_RECORDS);
    CHECK_EQ(ring.lane[TIMELINE_TRUNK].record[TIMELINE_RECORDS - 1].a, TIMELINE_RECORDS - 1);
    atomic_store(&ring.lane[TIMELINE_TRUNK].taken, 1);
    timeline_end(&t, TIMELINE_TRUNK, TIMELINE_SUM, timeline_begin(&t), 99, 0, 0);
    CHECK(ring.lane[TIMELINE_TRUNK].dropped == 10 && ring.lane[TIMELINE_TRUNK].record[0].a == 99);
}

/* A process that writes what it likes into its ring: the file stays whole. */
static void lies(void)
{
    struct text text = {0};
    struct tracer *t;
    struct timeline own;
    struct worker_seg s[1];
    struct json_doc *doc;
    uint64_t dropped;
    struct err e = {0};
    size_t n = 0;

    CHECK(!tracer_open(keep, &text, &t, &own, &e) && !tracer_give(t, 1, "liar", s, &n, &e), "%s", e.msg);
    memset(s[0].seg->base, 0xA5, sizeof(struct timeline_ring));
    CHECK(!tracer_close(t, &dropped, &e) && dropped, "%s", e.msg);
    CHECK(read_back(&text, &doc) != NULL);
    json_free(doc);
    free(text.at);
}

static void off_and_refused(void)
{
    struct text text = {.refuse = 1};
    struct tracer *t;
    struct timeline own;
    struct worker_seg s[1];
    uint64_t dropped;
    struct err e = {0};
    size_t n = 0;

    CHECK(!tracer_open(NULL, NULL, &t, &own, &e) && !t && !own.ring);
    CHECK(timeline_begin(&own) == 0);
    timeline_end(&own, TIMELINE_LEADER, TIMELINE_STEP, 0, 1, 1, 1); /* nothing happens */
    CHECK(!tracer_give(t, 1, "x", s, &n, &e) && !n && !tracer_close(t, &dropped, &e) && !dropped);
    CHECK(!tracer_open(keep, &text, &t, &own, &e), "%s", e.msg);
    CHECK(tracer_close(t, &dropped, &e) == -ENOSPC && strstr(e.msg, "no space"), "%s", e.msg);
}

int main(void)
{
    whole();
    full();
    lies();
    off_and_refused();
    return test_end();
}
