/* Decayed sums, brought up to date only when something happens to them. */
#include "coordinator/residency/heat.h"

#include <math.h>

#include "coordinator/residency/reuse.h"

#define PER_DOUBLING 3
#define SLOW_SHARE 0.5 /* a steady use counts half as much in the slow sum as in the fast one */

float heat_decay(double half_life, uint64_t tokens)
{
    return exp2f(-(float)tokens / (float)half_life);
}

double heat_full(double half_life)
{
    return 1 / (1 - exp2(-1 / half_life));
}

/* What n uses, evenly spread over `tokens` tokens, come to at the last of them. */
static float spread(double half_life, uint32_t n, uint32_t tokens)
{
    if (tokens == 1)
        return (float)n;
    return (float)(n * heat_full(half_life) * (1 - exp2(-(double)tokens / half_life)) / tokens);
}

void heat_use(struct heat *h, uint64_t now, uint32_t n, uint32_t tokens)
{
    uint64_t at = now + tokens - 1, passed = at - h->at;

    h->fast = h->fast * heat_decay(HEAT_FAST, passed) + spread(HEAT_FAST, n, tokens);
    h->slow = h->slow * heat_decay(HEAT_SLOW, passed) + spread(HEAT_SLOW, n, tokens);
    h->life = h->life * heat_decay(HEAT_LIFE, passed) + spread(HEAT_LIFE, n, tokens);
    h->at = at;
}

/* heat_full(24) and heat_full(512), so that a use costs no exponentials for them */
#define FULL_FAST 35.1271f
#define FULL_SLOW 739.1600f
#define HEAT_MAX (FULL_FAST * (1 + SLOW_SHARE))

float heat_value(const struct heat *h)
{
    return h->fast + (float)SLOW_SHARE * (FULL_FAST / FULL_SLOW) * h->slow;
}

uint32_t heat_class(float value)
{
    float c = PER_DOUBLING * log2f(value);

    return !(c > 0) ? 0 : c >= REUSE_CLASSES ? REUSE_CLASSES - 1 : (uint32_t)c;
}

double heat_class_rate(uint32_t class)
{
    return exp2((class + 0.5) / PER_DOUBLING) / HEAT_MAX;
}
