/* Every piece is given once, whoever asks in whichever order; who is done helps; a little work stays where it was. */
#include "shm/runs.h"

#include <pthread.h>
#include <stdlib.h>

#include "tests/test.h"

enum { THREADS_MOST = 9, ALL_MOST = 5000000 };

struct taken {
    struct runs *r;
    int thread, stop_after; /* pieces; 0: to the end */
    uint64_t sum, pieces;
};

static void *take(void *arg)
{
    struct taken *t = arg;
    uint64_t from, to;
    int of = t->thread;

    while ((!t->stop_after || t->pieces < (uint64_t)t->stop_after) && runs_take(t->r, &of, t->thread, &from, &to)) {
        t->pieces++;
        t->sum += to - from;
    }
    return NULL;
}

/* One thread after the other: whoever comes first takes all that others may take. */
static void in_turn(struct runs *r, int n, uint64_t all, uint8_t *seen)
{
    uint64_t from, to, sum = 0;

    runs_cut(r, n, all);
    memset(seen, 0, all);
    for (int thread = n - 1; thread >= 0; thread--)
        for (int of = thread; runs_take(r, &of, thread, &from, &to);) {
            CHECK(from <= to && to <= all, "a piece %llu to %llu of %llu", (unsigned long long)from, (unsigned long long)to,
                  (unsigned long long)all);
            for (uint64_t i = from; i < to; i++)
                sum += !seen[i]++;
            if (r->pieces == 1)
                CHECK_EQ(of, thread);
        }
    CHECK_EQ(sum, all);
}

static void all_at_once(struct runs *r, int n, uint64_t all, int stop_after)
{
    struct taken t[THREADS_MOST] = {0};
    pthread_t id[THREADS_MOST];
    uint64_t sum = 0, pieces = 0;

    runs_cut(r, n, all);
    for (int i = 0; i < n; i++) {
        t[i] = (struct taken){.r = r, .thread = i, .stop_after = i ? 0 : stop_after};
        CHECK_EQ(pthread_create(&id[i], NULL, take, &t[i]), 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(id[i], NULL);
        sum += t[i].sum;
        pieces += t[i].pieces;
    }
    CHECK_EQ(sum, all); /* of the first one's run the others took what it left */
    CHECK_EQ(pieces, (uint64_t)n * r->pieces);
}

int main(void)
{
    uint8_t *seen = malloc(ALL_MOST);
    struct err e = {0};
    struct runs r;

    CHECK_EQ(runs_init(&r, THREADS_MOST, &e), 0);
    CHECK_EQ((uintptr_t)r.run % 64, 0u);
    for (int n = 1; n <= THREADS_MOST; n++) {
        static const uint64_t ALL[] = {0, 1, 17, PIECE_LEAST - 1, 3 * PIECE_LEAST + 5, 4999999};
        for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++)
            in_turn(&r, n, ALL[i], seen);
        for (int round = 0; round < 20; round++) {
            all_at_once(&r, n, 1ull << 40, 0);
            if (n > 1)
                all_at_once(&r, n, 1ull << 40, 3);
        }
    }
    runs_cut(&r, 4, 8 * PIECE_LEAST - 1);
    CHECK_EQ(r.pieces, 1u);
    runs_cut(&r, 4, 8 * PIECE_LEAST);
    CHECK_EQ(r.pieces, 2u);
    runs_drop(&r);
    free(seen);
    return test_end();
}
