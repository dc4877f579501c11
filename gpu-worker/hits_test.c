/* The trunk's card's copy of the table, with a fake worker: a world of slots whose bytes are the expert's
 * number, a steward that moves experts between them in the order of docs/DESIGN.md section 4, and an executor
 * that takes its hits when a step begins and reads their slots at any later moment of it. A steward that does
 * not wait for the confirmation must be seen to fail. */
#include "gpu-worker/hits.h"

#include <stdlib.h>

#include "shm/layout.h"
#include "tests/test.h"

enum { LAYERS = 3, EXPERTS = 7, ALL = LAYERS * EXPERTS, SLOTS = 6, ORDERS = 8, ROUNDS = 40000, NOBODY = -1 };

static uint32_t seed;
static uint32_t pick(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

struct slot {
    int bytes;                         /* whose lie here */
    int holds;                         /* who is in the tables here */
    uint64_t epoch, clearing;          /* order that is open */
};
struct world {
    struct hits *h;
    struct slot slot[SLOTS];
    int in_step, at_once;              /* the faulty steward */
    uint64_t next_order, next_epoch;
    uint64_t view[ALL];                /* of the step */
    uint64_t device[ALL];              /* a copy that follows the changes alone */
    long waiting;                      /* clears put off in this step */
    long wrong, hits, steps, moves, put_off;
};

static int lies_somewhere(const struct world *w, int x)
{
    for (int i = 0; i < SLOTS; i++)
        if (w->slot[i].holds == x)
            return 1;
    return 0;
}

static void come(struct world *w, int i)
{
    int x = (int)pick(ALL);

    if (lies_somewhere(w, x))
        return;
    w->slot[i].bytes = x; /* overwritten: only the steward's order protects a reader */
    w->slot[i].holds = x;
    w->slot[i].epoch = w->next_epoch++;
    hits_came(w->h, (uint32_t)x / EXPERTS, (uint32_t)x % EXPERTS, (uint32_t)i, w->slot[i].epoch);
    w->moves++;
}

static void leave(struct world *w, int i)
{
    int x = w->slot[i].holds;
    uint64_t number = w->next_order++;

    if (hits_clear(w->h, (uint32_t)x / EXPERTS, (uint32_t)x % EXPERTS, (uint32_t)i, w->slot[i].epoch, number)) {
        CHECK(w->in_step, "a clear was put off though no step is open");
        w->slot[i].clearing = number;
        w->put_off++;
        w->waiting++;
    } else {
        CHECK(!w->in_step, "a clear was confirmed in a step");
        w->slot[i].holds = NOBODY;
    }
    if (w->at_once)
        w->slot[i].holds = NOBODY, w->slot[i].clearing = 0;
}

static void take_confirmed(struct world *w)
{
    uint64_t n;

    while ((n = hits_confirmed(w->h)))
        for (int i = 0; i < SLOTS; i++)
            if (w->slot[i].clearing == n) {
                w->slot[i].clearing = 0;
                w->slot[i].holds = NOBODY;
            }
    CHECK(!hits_look(w->h), "more than was named");
}

static void steward(struct world *w)
{
    int i = (int)pick(SLOTS);

    take_confirmed(w);
    if (w->slot[i].clearing)
        return;
    if (w->slot[i].holds == NOBODY)
        come(w, i);
    else if (pick(3) == 0)
        leave(w, i);
}

static void begin(struct world *w)
{
    const uint32_t *changed;
    size_t n;

    hits_begin(w->h, &changed, &n);
    w->in_step = 1;
    w->waiting = 0;
    w->steps++;
    for (size_t k = 0; k < n; k++)
        w->device[changed[k]] = hits_entries(w->h)[changed[k]];
    for (uint32_t x = 0; x < ALL; x++) {
        w->view[x] = hits_entry(w->h, x / EXPERTS, x % EXPERTS);
        CHECK(w->device[x] == w->view[x], "the changes do not tell of expert %u", x);
    }
}

static void read_one(struct world *w)
{
    uint32_t x = pick(ALL);

    CHECK(w->view[x] == hits_entry(w->h, x / EXPERTS, x % EXPERTS), "the copy moved inside a step");
    if (!w->view[x])
        return;
    w->hits++;
    w->wrong += w->slot[ENTRY_PLACE(w->view[x])].bytes != (int)x;
}

static void end(struct world *w)
{
    w->in_step = 0;
    CHECK(hits_end(w->h) == (w->waiting > 0), "whether a clear was confirmed");
}

static struct world play(int at_once)
{
    struct world w = {.at_once = at_once, .next_order = 1, .next_epoch = 1};
    struct err e = {0};

    seed = 7;
    CHECK(!hits_open(LAYERS, EXPERTS, at_once ? ROUNDS : ORDERS, &w.h, &e), "%s", e.msg);
    for (int i = 0; i < SLOTS; i++)
        w.slot[i] = (struct slot){NOBODY, NOBODY, 0, 0};
    for (int r = 0; r < ROUNDS; r++)
        switch (pick(6)) {
        case 0:
            if (pick(3) == 0)
                w.in_step ? end(&w) : begin(&w);
            break;
        case 1:
        case 2:
            steward(&w);
            break;
        default:
            if (w.in_step)
                read_one(&w);
        }
    hits_close(w.h);
    return w;
}

/* A clear of what is not here is confirmed all the same, and changes nothing. */
static void strange_clears(void)
{
    struct hits *h = NULL;
    struct err e = {0};

    CHECK(!hits_open(1, 2, ORDERS, &h, &e), "%s", e.msg);
    hits_came(h, 0, 1, 4, 9);
    CHECK_EQ(hits_clear(h, 0, 0, 4, 9, 1), 0);
    CHECK_EQ(hits_clear(h, 0, 1, 4, 8, 2), 0);
    CHECK(hits_entry(h, 0, 1) == ENTRY(4, 9), "an older epoch's clear took it");
    hits_begin(h, NULL, NULL);
    CHECK_EQ(hits_clear(h, 0, 1, 4, 9, 3), 1);
    hits_came(h, 0, 0, 5, 10);
    CHECK(hits_entry(h, 0, 1) == ENTRY(4, 9) && !hits_entry(h, 0, 0), "the copy moved inside a step");
    CHECK(!hits_confirmed(h) && !hits_look(h), "confirmed inside the step");
    CHECK_EQ(hits_end(h), 1);
    CHECK(hits_look(h) && hits_confirmed(h) == 3 && !hits_confirmed(h), "order 3 is confirmed once");
    CHECK(!hits_entry(h, 0, 1) && hits_entry(h, 0, 0) == ENTRY(5, 10), "after the step");
    hits_close(h);
}

int main(void)
{
    struct world w = play(0);

    CHECK(w.hits > 1000 && w.moves > 100 && w.put_off > 50 && w.steps > 100,
          "too little happened: %ld hits, %ld moves, %ld put off, %ld steps", w.hits, w.moves, w.put_off, w.steps);
    CHECK(!w.wrong, "%ld of %ld hits read another expert's bytes", w.wrong, w.hits);
    w = play(1);
    CHECK(w.wrong > 0, "a slot that is overwritten before the confirmation was not noticed");
    strange_clears();
    return test_end();
}
