#include "coordinator/serve/kept_states.h"

int kept_states_best(const struct kept_states *k, size_t most)
{
    int best = -1;

    for (int i = 0; i < KEPT_STATES; i++)
        if (k->pos[i] && k->pos[i] <= most && (best < 0 || k->pos[i] > k->pos[best]))
            best = i;
    return best;
}

void kept_states_begin(struct kept_states *k, size_t stands, size_t front, size_t n)
{
    size_t tail = n > KEPT_BACK ? n - KEPT_BACK : 0;

    for (int i = 0; i < KEPT_STATES; i++) {
        if (k->pos[i] > stands)
            k->pos[i] = 0;
        k->mark[i] = 0;
    }
    if (tail > front + KEPT_WORTH)
        k->mark[KEPT_TAIL] = tail;
    if (stands > front + KEPT_WORTH && stands + KEPT_WORTH < tail)
        k->mark[KEPT_FORK] = stands;
}

uint32_t kept_states_before(const struct kept_states *k, size_t at, uint32_t n)
{
    for (int i = 0; i < KEPT_STATES; i++)
        if (k->mark[i] > at && k->mark[i] - at < n)
            n = (uint32_t)(k->mark[i] - at);
    return n;
}

int kept_states_at(const struct kept_states *k, size_t at, enum kept_state *which)
{
    for (int i = 0; i < KEPT_STATES; i++)
        if (at && k->mark[i] == at) {
            *which = (enum kept_state)i;
            return 1;
        }
    return 0;
}
