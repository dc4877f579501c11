/* Survival tables. The constants are not fine-tuned: README.md says how little they matter. */
#include "coordinator/residency/reuse.h"

#include <math.h>
#include <string.h>

#include "coordinator/residency/heat.h"

/* turns in which a use loses half its value: a few more than an expert stays in a small cache */
#define HORIZON 8.0
#define FORGET 4000.0 /* tokens after which what was learned counts half */
#define PRIOR 20.0    /* turns in every cell that the guess is worth */

uint32_t reuse_bucket(uint64_t age)
{
    uint32_t octave, b;

    if (age < 8)
        return (uint32_t)age;
    octave = 63 - (uint32_t)__builtin_clzll(age);
    b = 8 + (octave - 3) * 4 + (uint32_t)(age >> (octave - 2) & 3);
    return b < REUSE_AGES ? b : REUSE_AGES - 1;
}

uint64_t reuse_bucket_start(uint32_t b)
{
    return b < 8 ? b : (uint64_t)(4 + (b & 3)) << ((b - 8) / 4 + 1);
}

/* The chance of a use at a turn, before anything was learned: the class's heat, fading with age. */
static double guess(uint32_t class, double age)
{
    return 0.9 * heat_class_rate(class) * exp2(-age / HEAT_FAST) + 1e-5;
}

/* From the oldest age down: the value at the beginning of a bucket through which the chance of a
 * use stays the same, from the value at its end. */
static void make_values(struct reuse *r, uint32_t c)
{
    double g = exp2(-1 / HORIZON), after = 0, waiting = 0;

    for (uint32_t b = REUSE_AGES; b-- > 0;) {
        double start = (double)reuse_bucket_start(b), len, turns, uses, chance, stay, v;
        int last = b == REUSE_AGES - 1;

        len = last ? start : (double)reuse_bucket_start(b + 1) - start;
        turns = len * waiting + r->ended_in[c][b] + r->open_in[c][b];
        uses = r->ended[c][b] + PRIOR * guess(c, start + (len - 1) / 2);
        chance = uses / (turns + PRIOR);
        if (chance > 1)
            chance = 1;
        stay = g * (1 - chance);
        v = g * chance / (1 - stay); /* if the bucket never ended */
        if (!last)
            v += pow(stay, len) * (after - v);
        r->value[c][b] = (float)v;
        after = v;
        waiting += r->ended[c][b] + r->open[c][b]; /* have gone through every younger bucket */
    }
}

void reuse_init(struct reuse *r)
{
    memset(r, 0, sizeof *r);
    for (uint32_t c = 0; c < REUSE_CLASSES; c++)
        make_values(r, c);
}

void reuse_used(struct reuse *r, uint32_t class, uint64_t age)
{
    uint32_t b = reuse_bucket(age);

    r->ended[class][b]++;
    r->ended_in[class][b] +=
        (double)(age + 1 - reuse_bucket_start(b)); /* the last turn is the use */
}

void reuse_waits(struct reuse *r, uint32_t class, uint64_t age)
{
    uint32_t b = reuse_bucket(age);

    r->open[class][b]++;
    r->open_in[class][b] += (double)(age - reuse_bucket_start(b));
}

void reuse_learn(struct reuse *r, double tokens)
{
    double keep = exp2(-tokens / FORGET);

    for (uint32_t c = 0; c < REUSE_CLASSES; c++) {
        for (uint32_t b = 0; b < REUSE_AGES; b++) {
            r->ended[c][b] *= keep;
            r->ended_in[c][b] *= keep;
        }
        make_values(r, c);
    }
    memset(r->open, 0, sizeof r->open);
    memset(r->open_in, 0, sizeof r->open_in);
}

float reuse_value(const struct reuse *r, uint32_t class, uint64_t age)
{
    return r->value[class][reuse_bucket(age)];
}
