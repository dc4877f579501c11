/* What a disk likes differs: some need many reads out, some large ones, most are served by anything.
 * So nothing is assumed; and of what is as good, that is kept which makes a demanded read wait least
 * (bytes out, where they are more than the default's), then what costs the least processor time (largest reads). */
#include "pager/tune.h"

#include <stdio.h>

#define KIB 1024u
#define DEFAULT 1u /* of candidates */

/* The first column times the second is what a demanded read can find before it at the disk: no more than
 * 16 MiB, half a millisecond to 25 ms. */
static const struct {
    uint32_t kib, depth;
} candidates[TUNE_N] = {{512, 8},  {512, 16}, {512, 32}, {1024, 4},
                        {1024, 8}, {1024, 16}, {2048, 4}, {2048, 8}};

static struct tune_choice choice(uint32_t read_bytes, uint32_t depth)
{
    uint32_t low = depth - (depth + 3) / 4, most = (uint32_t)(TUNE_LOW_BYTES / read_bytes);

    low = low < most ? low : most;
    return (struct tune_choice){read_bytes, depth, low ? low : 1};
}

struct tune_choice tune_candidate(uint32_t i)
{
    return choice(candidates[i].kib * KIB, candidates[i].depth);
}

void tune_init(struct tune *t)
{
    *t = (struct tune){.now = tune_candidate(DEFAULT)};
}

int tune_fix(struct tune *t, const char *text)
{
    unsigned kib, depth;
    char end;

    if (sscanf(text, "%ux%u%c", &kib, &depth, &end) != 2 || kib < 4 || kib % 4 ||
        kib > TUNE_READ / KIB || depth < 2 || depth > TUNE_DEPTH)
        return -1;
    *t = (struct tune){.now = choice(kib * KIB, depth), .how = TUNE_FIXED};
    return 0;
}

static double median(const double r[TUNE_ROUNDS])
{
    double a = r[0], b = r[1], c = r[2];
    _Static_assert(TUNE_ROUNDS == 3, "the middle one of three");

    return a > b ? (b > c ? b : a < c ? a : c) : (a > c ? a : b < c ? b : c);
}

/* What a demanded read waits behind, in KiB; the default's or less is as good as the default's. */
static uint32_t wait_of(uint32_t i)
{
    uint32_t n = candidates[i].kib * candidates[i].depth, least = candidates[DEFAULT].kib * candidates[DEFAULT].depth;

    return n > least ? n : least;
}

static void decide(struct tune *t)
{
    uint32_t pick = TUNE_N;
    double most = 0;

    for (uint32_t i = 0; i < TUNE_N; i++)
        most = median(t->rate[i]) > most ? median(t->rate[i]) : most;
    for (uint32_t i = 0; i < TUNE_N; i++) {
        if (median(t->rate[i]) < TUNE_WITHIN * most)
            continue;
        if (pick == TUNE_N || wait_of(i) < wait_of(pick) ||
            (wait_of(i) == wait_of(pick) && candidates[i].kib > candidates[pick].kib))
            pick = i;
    }
    t->now = tune_candidate(pick);
    t->how = TUNE_MEASURED;
    t->trying = 0;
    t->best = median(t->rate[pick]);
    t->standard = median(t->rate[DEFAULT]);
}

static void window(struct tune *t)
{
    t->skipped = t->bytes = t->start = 0;
}

/* Nobody waits for reads of a load while it is tried: they may take all places. */
static void try_it(struct tune *t)
{
    t->now = tune_candidate(t->candidate);
    t->now.low_depth = t->now.depth;
    t->trying = 1;
    window(t);
}

/* 1: what is in force has changed. */
static int pause_trial(struct tune *t)
{
    int was = t->trying;

    if (was)
        t->now = tune_candidate(DEFAULT);
    t->trying = 0;
    window(t);
    return was;
}

int tune_came(struct tune *t, uint64_t bytes, uint64_t now_ns, int more, int bounce, int urgent)
{
    if (t->how != TUNE_DEFAULT)
        return 0;
    if (!more || bounce || urgent) /* the disk got less than it may have, or not what is tried */
        return pause_trial(t);
    if (t->skipped < TUNE_SKIP) {
        t->skipped += bytes;
        t->start = now_ns;
        if (t->trying || t->skipped < TUNE_SKIP)
            return 0;
        try_it(t); /* a load has begun: so much came without a gap */
        return 1;
    }
    t->bytes += bytes;
    if (t->bytes < TUNE_BYTES || now_ns - t->start < TUNE_NS)
        return 0;
    t->rate[t->candidate][t->round] = (double)t->bytes / ((double)(now_ns - t->start) * 1e-9);
    if (++t->candidate == TUNE_N) { /* round about, so that a disk's better and worse times meet all */
        t->candidate = 0;
        t->round++;
    }
    if (t->round == TUNE_ROUNDS)
        decide(t);
    else
        try_it(t);
    return 1;
}
