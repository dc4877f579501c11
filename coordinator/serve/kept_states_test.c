/* Conversations by their lengths: what is computed again, and that a state is used only where its text stands. */
#include "coordinator/serve/kept_states.h"

#include "tests/test.h"

/* A prompt of n tokens of which `stands` are as before, then an answer of m; returns what was not computed again. */
static size_t turn(struct kept_states *k, size_t stands, size_t n, size_t m)
{
    int from = kept_states_best(k, stands < n ? stands : n - 1);
    size_t front = from < 0 ? 0 : k->pos[from], at = front;
    enum kept_state which;

    kept_states_begin(k, stands, front, n);
    for (int i = 0; i < KEPT_STATES; i++)
        CHECK(k->pos[i] <= stands);
    while (at < n) {
        at += kept_states_before(k, at, n - at < 100 ? (uint32_t)(n - at) : 100);
        if (kept_states_at(k, at, &which))
            k->pos[which] = at;
    }
    k->pos[KEPT_END] = n + m;
    return front;
}

int main(void)
{
    struct kept_states k = {0};

    CHECK_EQ(turn(&k, 0, 1000, 50), 0);
    CHECK_EQ(turn(&k, 1050, 1200, 50), 1050);           /* a template that writes answers as they came */
    CHECK_EQ(turn(&k, 1190, 1500, 50), 1200 - KEPT_BACK); /* one that does not */
    CHECK_EQ(turn(&k, 1500, 1500, 50), 1500 - KEPT_BACK); /* the same again */
    CHECK_EQ(turn(&k, 600, 900, 50), 0);                /* another conversation that begins alike: not yet known */
    CHECK_EQ(turn(&k, 601, 800, 50), 600);              /* from the next one on */
    CHECK_EQ(turn(&k, 600, 3000, 50), 600);
    CHECK_EQ(turn(&k, 599, 700, 50), 0);
    CHECK_EQ(turn(&k, 0, 10, 5), 0);                    /* short ones have no tail */
    CHECK(!k.pos[KEPT_TAIL] && !k.pos[KEPT_FORK] && k.pos[KEPT_END] == 15);
    CHECK_EQ(turn(&k, 10, 10, 5), 0);
    return test_end();
}
