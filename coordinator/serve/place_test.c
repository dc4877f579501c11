/* Who sits where: conversations of several people, jobs one after the other. */
#include "coordinator/serve/place.h"

#include "tests/test.h"

enum { SLOTS = 3 };
struct seat {
    int who;       /* 0: nobody yet */
    size_t n;      /* tokens there */
    uint64_t used;
};

/* A prompt of n tokens; everybody's first `alike` tokens are the same, one's own go on. Returns the slot. */
static int job(struct seat *s, int who, size_t n, size_t alike, uint64_t now)
{
    int best = 0;
    double least = 0;

    for (int i = 0; i < SLOTS; i++) {
        size_t front = s[i].who == who ? s[i].n : s[i].who ? alike : 0;
        front = front < n ? front : n - 1;
        struct place p = {front, s[i].n > front ? s[i].n - front : 0, now - s[i].used};
        double cost = place_cost(&p, n, SLOTS);
        if (!i || cost < least) {
            best = i;
            least = cost;
        }
    }
    s[best] = (struct seat){who, n, now};
    return best;
}

int main(void)
{
    struct seat s[SLOTS] = {{0}};

    CHECK_EQ(job(s, 1, 5000, 200, 1), 0);
    CHECK_EQ(job(s, 2, 300, 200, 2), 1); /* beside, not over */
    CHECK_EQ(job(s, 1, 6000, 200, 3), 0);
    CHECK_EQ(job(s, 3, 400, 200, 4), 1); /* 300 tokens' loss, 200 of them gain: nearly as good as an empty one */
    CHECK_EQ(job(s, 2, 900, 0, 5), 2);
    CHECK_EQ(job(s, 1, 7000, 200, 6), 0);
    CHECK_EQ(job(s, 2, 1000, 200, 7), 2);
    for (uint64_t now = 8; now < 100; now++) /* strangers: the old conversation goes in the end */
        if (!job(s, (int)now, 1000, 0, now))
            CHECK(now > 12, "%llu", (unsigned long long)now);
    CHECK(s[0].who != 1);
    return test_end();
}
