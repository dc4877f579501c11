/* Replays: the figures of tests/demo/README.md, the optimum against exhaustive search, and that the
 * engine's policy is good on routing of every kind that we could think of. */
#include "coordinator/residency/replay.h"

#include <math.h>
#include <stdlib.h>

#include "tests/test.h"

#define ROUTES "tests/demo/routes.npy"
#define STORY "tests/demo/story-moe-routing.npy"

static struct err e;

static struct trace load(const char *path)
{
    struct trace t;

    CHECK(!trace_read(path, 0, &t, &e), "%s", e.msg);
    return t;
}

/* --- the README's figures ----------------------------------------------------------------------
 */

static void row(const char *what, const struct trace *t, const struct replay *r, long hits,
                long may_differ, double moves)
{
    long d = (long)r->hits - hits;

    CHECK(labs(d) <= may_differ, "%s: %ld hits, wanted %ld", what, (long)r->hits, hits);
    if (moves >= 0)
        CHECK(fabs((double)r->moves / t->n_tokens - moves) <= 0.0501,
              "%s: %.2f moves a token, wanted %.1f", what, (double)r->moves / t->n_tokens, moves);
}

/* uses of the table: hits of lru, lfu, window, decay, decay + 1, fixed, optimum; moves of the first
 * five */
static void test_readme(const struct trace *t, uint32_t places, const long *hits,
                        const double *moves)
{
    struct replay r;

    CHECK(!replay_policy(t, places, POLICY_LRU, &r, &e));
    row("lru", t, &r, hits[0], 0, moves[0]);
    CHECK(!replay_policy(t, places, POLICY_LFU, &r, &e));
    row("lfu", t, &r, hits[1], 3, moves[1]);
    CHECK(!replay_window(t, places, &r, &e));
    row("window", t, &r, hits[2], 3, moves[2]);
    CHECK(!replay_decay(t, places, 32, 0, &r, &e));
    row("decay", t, &r, hits[3], 3, moves[3]);
    CHECK(!replay_decay(t, places, 32, 1, &r, &e));
    row("decay + 1", t, &r, hits[4], 3, moves[4]);
    CHECK(!replay_fixed(t, places, &r, &e));
    row("fixed", t, &r, hits[5], 0, -1);
    CHECK(!replay_optimum(t, places, &r, &e));
    row("optimum", t, &r, hits[6], 0, -1);
}

/* Rates with two decimals, as the README has them for story-moe. */
static void test_story(const struct trace *t, uint32_t places, const double *rate)
{
    struct replay r[4];

    CHECK(!replay_policy(t, places, POLICY_LRU, &r[0], &e));
    CHECK(!replay_policy(t, places, POLICY_LFU, &r[1], &e));
    CHECK(!replay_window(t, places, &r[2], &e));
    CHECK(!replay_optimum(t, places, &r[3], &e));
    for (int i = 0; i < 4; i++) {
        double got = 100 * (double)r[i].hits / (double)trace_accesses(t);
        CHECK(fabs(got - rate[i]) <= (i == 0 || i == 3 ? 0.00501 : 0.011),
              "row %d: %.3f %%, wanted %.2f", i, got, rate[i]);
    }
}

/* --- what the engine's policy must be worth
 * ------------------------------------------------------- */

/* gap: least part of the way from LRU to the optimum; moves: at most this part of LRU's. */
static void test_heat(const char *what, const struct trace *t, uint32_t places, double gap,
                      double moves)
{
    struct replay lru, heat, best;
    double got;

    CHECK(!replay_policy(t, places, POLICY_LRU, &lru, &e));
    CHECK(!replay_policy(t, places, POLICY_HEAT, &heat, &e));
    CHECK(!replay_optimum(t, places, &best, &e));
    got = ((double)heat.hits - (double)lru.hits) / ((double)best.hits - (double)lru.hits);
    CHECK(got >= gap && (double)heat.moves <= moves * (double)lru.moves && best.hits >= heat.hits,
          "%s, %u places: closes %.3f of the gap with %.2f of the moves, wanted %.3f and %.2f",
          what, places, got, (double)heat.moves / (double)lru.moves, gap, moves);
}

/* A second start, of somebody who goes on with the same work, with what the first one learned. */
static void test_second_start(const struct trace *t, uint32_t places, uint32_t from)
{
    struct policy_config c = {.kind = POLICY_HEAT,
                              .n_layers = t->n_layers,
                              .n_experts = t->n_experts,
                              .n_sizes = 1,
                              .places = {places},
                              .margin = POLICY_MARGIN};
    size_t n = trace_pairs(t);
    float *uses = malloc(n * sizeof *uses);
    uint32_t *hot = malloc(n * sizeof *hot);
    struct policy *first = NULL, *cold = NULL, *warm = NULL;
    struct replay before = {0}, a = {0}, b = {0};
    double tokens;

    CHECK(uses && hot && !policy_open(&c, &first, &e) && !policy_open(&c, &cold, &e) &&
          !policy_open(&c, &warm, &e));
    replay_part(t, first, 0, from, &before);
    policy_export(first, uses, &tokens);
    policy_import(warm, uses, tokens);
    n = policy_hottest(warm, hot);
    for (size_t i = 0; i < n && i < places; i++)
        policy_enter(warm, hot[i] / t->n_experts, hot[i] % t->n_experts, 0);
    replay_part(t, cold, from, from + 64, &a);
    replay_part(t, warm, from, from + 64, &b);
    CHECK(b.hits > a.hits, "from token %u, first 64: warm %lu hits, cold %lu", from,
          (unsigned long)b.hits, (unsigned long)a.hits);
    replay_part(t, cold, from + 64, from + 1000, &a);
    replay_part(t, warm, from + 64, from + 1000, &b);
    CHECK(b.hits > a.hits, "from token %u, first 1000: warm %lu hits, cold %lu", from,
          (unsigned long)b.hits, (unsigned long)a.hits);
    policy_close(first);
    policy_close(cold);
    policy_close(warm);
    free(uses);
    free(hot);
}

/* --- routing of other kinds
 * ------------------------------------------------------------------------ */

enum { TOKENS = 1500, LAYERS = 4, EXPERTS = 64, USED = 4, N_PAIRS = LAYERS * EXPERTS };

static double uniform(void)
{
    return (rand() + 0.5) / (RAND_MAX + 1.0);
}

static double normal(void)
{
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

/* The USED largest of each layer's scores. */
static void choose(struct trace *t, uint32_t token, double *score)
{
    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t k = 0; k < USED; k++) {
            uint32_t best = l * EXPERTS;
            for (uint32_t i = l * EXPERTS; i < (l + 1) * EXPERTS; i++)
                if (score[i] > score[best])
                    best = i;
            score[best] = -1e9;
            t->pair[(token * LAYERS + l) * USED + k] = best;
        }
}

/* liking: spread of fixed preferences; topic: of preferences that change every `every` tokens;
 * streak: of ones that wander, alike from token to token by `alike`. Chance: spread 1. */
static struct trace make(double liking, double topic, uint32_t every, double streak, double alike)
{
    struct trace t = {TOKENS, LAYERS, USED, EXPERTS,
                      malloc(sizeof(uint32_t) * TOKENS * LAYERS * USED)};
    static double fixed[N_PAIRS], now[N_PAIRS], wander[N_PAIRS], score[N_PAIRS];

    for (int i = 0; i < N_PAIRS; i++) {
        fixed[i] = normal();
        wander[i] = normal();
    }
    for (uint32_t token = 0; token < TOKENS; token++) {
        for (int i = 0; i < N_PAIRS; i++) {
            if (token % every == 0)
                now[i] = normal();
            wander[i] = alike * wander[i] + sqrt(1 - alike * alike) * normal();
            score[i] = liking * fixed[i] + topic * now[i] + streak * wander[i] + normal();
        }
        choose(&t, token, score);
    }
    return t;
}

static struct trace scan(void)
{
    struct trace t = {TOKENS, LAYERS, USED, EXPERTS,
                      malloc(sizeof(uint32_t) * TOKENS * LAYERS * USED)};

    for (uint32_t i = 0; i < TOKENS * LAYERS * USED; i++)
        t.pair[i] = i / USED % LAYERS * EXPERTS + (i / USED / LAYERS * USED + i % USED) % EXPERTS;
    return t;
}

/* points: least difference of the hit rate to LRU's, in percent. Where only recency tells anything,
 * a policy that must find that out may lose a little. */
static void test_points(const char *what, const struct trace *t, uint32_t places, double points)
{
    struct replay lru, heat;
    double got;

    CHECK(!replay_policy(t, places, POLICY_LRU, &lru, &e));
    CHECK(!replay_policy(t, places, POLICY_HEAT, &heat, &e));
    got = 100 * ((double)heat.hits - (double)lru.hits) / (double)trace_accesses(t);
    CHECK(got >= points && (double)heat.moves <= 1.15 * (double)lru.moves,
          "%s, %u places: %+.2f points with %.2f of the moves, wanted %+.2f", what, places, got,
          (double)heat.moves / (double)lru.moves, points);
}

static void test_kinds(void)
{
    static const struct kind {
        const char *name;
        double liking, topic, streak, alike, points25, points50;
        uint32_t every;
    } kinds[] = {{"chance", 0, 0, 0, 0, 1, 1, TOKENS},
                 {"likings", 1, 0, 0, 0, 1, 1, TOKENS},
                 {"long topics", 0, 1, 0, 0, 1, 0, 500},
                 {"short topics", 0, 2, 0, 0, -1.5, -0.5, 40},
                 {"streaks", 0, 0, 3, 0.9, -1.5, -0.75, TOKENS},
                 {"long streaks", 0, 0, 5, 0.97, -0.75, -0.5, TOKENS},
                 {"slow drift", 0, 0, 3, 0.995, -0.5, -0.25, TOKENS},
                 {"a bit of all", 0.5, 0.5, 1, 0.95, 0, -0.25, 100}};
    struct trace t;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct kind *k = &kinds[i];
        t = make(k->liking, k->topic, k->every, k->streak, k->alike);
        test_points(k->name, &t, N_PAIRS / 4, k->points25);
        test_points(k->name, &t, N_PAIRS / 2, k->points50);
        trace_free(&t);
    }
    t = scan(); /* where LRU hits nothing */
    test_points("scan", &t, N_PAIRS / 4, 20);
    test_points("scan", &t, N_PAIRS / 2, 40);
    trace_free(&t);
}

/* --- against other programs' plainness
 * ------------------------------------------------------------- */

/* The most hits of the rest of a short trace, with the residents in a bit mask: every choice tried.
 */
static uint64_t most(const struct trace *t, uint32_t i, uint32_t mask, uint32_t places,
                     uint64_t *memo)
{
    uint64_t *known = &memo[i << 6 | mask], best, h;
    uint32_t x;

    if (i == trace_accesses(t))
        return 0;
    if (*known != UINT64_MAX)
        return *known;
    x = 1u << t->pair[i];
    best = most(t, i + 1, mask, places, memo) + !!(mask & x);
    if (!(mask & x) && (uint32_t)__builtin_popcount(mask) < places) {
        h = most(t, i + 1, mask | x, places, memo);
        best = h > best ? h : best;
    }
    for (uint32_t out = 1; !(mask & x) && out < 64; out <<= 1)
        if (mask & out) {
            h = most(t, i + 1, (mask & ~out) | x, places, memo);
            best = h > best ? h : best;
        }
    return *known = best;
}

static void test_optimum(void)
{
    static uint64_t memo[64 * 64];
    int wrong = 0, below = 0;

    for (int round = 0; round < 600; round++) {
        struct trace t = {4 + (uint32_t)rand() % 16, 2, 1, 3, NULL};
        uint32_t places = 1 + (uint32_t)rand() % 4;
        struct replay r, lru, heat;
        t.pair = malloc(trace_accesses(&t) * sizeof *t.pair);
        for (uint32_t i = 0; i < trace_accesses(&t); i++)
            t.pair[i] = i % 2 * 3 + (uint32_t)rand() % 3;
        memset(memo, 0xff, sizeof memo);
        CHECK(!replay_optimum(&t, places, &r, &e));
        CHECK(!replay_policy(&t, places, POLICY_LRU, &lru, &e));
        CHECK(!replay_policy(&t, places, POLICY_HEAT, &heat, &e));
        wrong += r.hits != most(&t, 0, 0, places, memo);
        below += lru.hits > r.hits || heat.hits > r.hits;
        trace_free(&t);
    }
    CHECK(!wrong && !below, "%d wrong, %d below a policy", wrong, below);
}

static void test_refusals(void)
{
    struct trace t;

    CHECK(trace_read(ROUTES, 127, &t, &e) < 0 && strstr(e.msg, "expert 127 at token") && !t.pair,
          "%s", e.msg);
    e = (struct err){0};
    CHECK(trace_read("tests/demo/story-moe-routing-tokens.npy", 0, &t, &e) < 0 &&
              strstr(e.msg, "wanted 3"),
          "%s", e.msg);
    e = (struct err){0};
    CHECK(trace_read("tests/demo/heldout.txt", 0, &t, &e) < 0 && strstr(e.msg, "no .npy file"),
          "%s", e.msg);
    e = (struct err){0};
}

int main(void)
{
    struct trace routes = load(ROUTES), story = load(STORY);
    uint32_t n = trace_pairs(&routes), m = trace_pairs(&story);

    srand(1);
    CHECK(n == 2048 && m == 48);
    test_readme(&routes, n / 4,
                (const long[]){304754, 335910, 342034, 345009, 342821, 296377, 425234},
                (const double[]){53.6, 46.0, 10.1, 11.5, 4.5});
    test_readme(&routes, n / 2,
                (const long[]){440739, 449636, 452025, 453028, 451135, 426241, 492092},
                (const double[]){20.4, 18.2, 9.8, 11.7, 4.6});
    test_story(&story, m / 4, (const double[]){21.39, 24.34, 25.90, 53.03});
    test_story(&story, m / 2, (const double[]){47.02, 49.86, 51.39, 76.69});
    test_heat("routes", &routes, n / 4, 0.33, 0.25);
    test_heat("routes", &routes, n / 2, 0.24, 0.50);
    test_heat("story", &story, m / 4, 0.0, 0.25);
    test_heat("story", &story, m / 2, 0.0, 0.25);
    test_second_start(&routes, n / 4, 1000);
    test_second_start(&routes, n / 2, 2015);
    test_second_start(&routes, n / 4, 3000);
    test_kinds();
    test_optimum();
    test_refusals();
    trace_free(&routes);
    trace_free(&story);
    return test_end();
}
