/* The books against a plain copy of them; what may never happen; what the next start gets. */
#include "coordinator/residency/policy.h"

#include <math.h>
#include <stdlib.h>

#include "coordinator/residency/heat.h"
#include "tests/test.h"

enum { LAYERS = 6, EXPERTS = 20, PAIRS = LAYERS * EXPERTS, USED = 4 };
static const uint8_t size_of[LAYERS] = {0, 1, 2, 0, 1, 2};
static const char *const kind_name[] = {"heat", "lru", "lfu"};

/* The test's own books. */
static struct {
    int place[PAIRS]; /* or -1 */
    uint32_t n[POLICY_SIZES];
    unsigned busy[PAIRS]; /* may not leave */
    double last[PAIRS], count[PAIRS];
} own;

static int not_busy(void *arg, uint32_t layer, uint32_t expert)
{
    (void)arg;
    return !own.busy[layer * EXPERTS + expert];
}

static struct policy *make(enum policy_kind kind, uint32_t n_sizes, uint32_t places, double margin,
                           double moves)
{
    struct policy_config c = {.kind = kind,
                              .n_layers = LAYERS,
                              .n_experts = EXPERTS,
                              .n_sizes = n_sizes,
                              .size_of = n_sizes > 1 ? size_of : NULL,
                              .margin = margin,
                              .moves = moves};
    struct policy *p = NULL;
    struct err e = {0};

    for (uint32_t s = 0; s < n_sizes; s++)
        c.places[s] = places;
    CHECK(!policy_open(&c, &p, &e), "%s", e.msg);
    memset(&own, 0, sizeof own);
    for (int i = 0; i < PAIRS; i++)
        own.place[i] = -1;
    return p;
}

/* The resident that must leave by the plain rule; -1: none may. */
static int plain_victim(enum policy_kind kind)
{
    const double *by = kind == POLICY_LRU ? own.last : own.count;
    int best = -1;

    for (int i = 0; i < PAIRS; i++)
        if (own.place[i] >= 0 && !own.busy[i] && (best < 0 || by[i] < by[best] - 1e-12))
            best = i;
    return best;
}

/* Carries out an answer in both books; 1 if the expert entered. Counts what may not be. */
static int obey(struct policy *p, uint32_t i, struct policy_answer a, uint32_t n_sizes,
                uint32_t places, int *wrong)
{
    uint32_t layer = i / EXPERTS, out = a.layer * EXPERTS + a.expert;

    if (a.verdict == POLICY_STAYS || a.verdict == POLICY_WAITS)
        return 0;
    if (a.verdict == POLICY_REPLACE) {
        *wrong += out >= PAIRS || own.busy[out] || own.place[out] != (int)a.place;
        policy_leave(p, a.layer, a.expert);
        own.place[out] = -1;
        own.n[a.place]--;
    }
    *wrong += a.place >= n_sizes || own.n[a.place] >= places;
    *wrong += n_sizes > 1 && a.place < size_of[layer]; /* a place too small */
    own.place[i] = (int)a.place;
    own.n[a.place]++;
    policy_enter(p, layer, i % EXPERTS, a.place);
    return 1;
}

/* Random traffic; every answer is checked. One token is USED experts of each layer. */
static void test_books(enum policy_kind kind, uint32_t n_sizes, uint32_t places, int busy_part)
{
    struct policy *p = make(kind, n_sizes, places, POLICY_MARGIN, 0);
    int wrong = 0, victims = 0, waits = 0, differ = 0;
    uint32_t time = 0;

    for (uint32_t t = 0; t < 3000; t++) {
        policy_step(p, 1);
        for (int i = 0; i < PAIRS; i++)
            own.count[i] *= exp2(-1 / 64.0);
        for (uint32_t k = 0; k < LAYERS * USED; k++) {
            uint32_t i =
                k / USED * EXPERTS + (uint32_t)(rand() % EXPERTS * (rand() % EXPERTS)) / EXPERTS;
            int must = rand() % 8 == 0, here = policy_resident(p, i / EXPERTS, i % EXPERTS), want;
            struct policy_answer a;
            uint32_t could = 0;
            for (int j = 0; j < PAIRS; j++)
                own.busy[j] = rand() % 100 < busy_part;
            policy_use(p, i / EXPERTS, i % EXPERTS, 1);
            own.last[i] = ++time;
            own.count[i]++;
            wrong += here != (own.place[i] >= 0);
            if (here)
                continue;
            for (int j = 0; j < PAIRS; j++)
                could += own.place[j] >= 0 && !own.busy[j] &&
                         (n_sizes == 1 || own.place[j] >= size_of[i / EXPERTS]);
            want = plain_victim(kind);
            a = policy_admit(p, i / EXPERTS, i % EXPERTS, must, not_busy, NULL);
            wrong += (a.verdict == POLICY_WAITS) != (!could && a.verdict != POLICY_FREE);
            wrong += a.verdict == POLICY_STAYS && (must || kind != POLICY_HEAT);
            if (a.verdict == POLICY_REPLACE && kind != POLICY_HEAT && n_sizes == 1) {
                int got = (int)(a.layer * EXPERTS + a.expert);
                victims++;
                differ += got != want && fabs(own.count[got] - own.count[want]) > 1e-9;
                differ += kind == POLICY_LRU && got != want;
            }
            waits += a.verdict == POLICY_WAITS;
            obey(p, i, a, n_sizes, places, &wrong);
            for (uint32_t s = 0; s < n_sizes; s++)
                wrong += policy_residents(p, s) != own.n[s] || own.n[s] > places;
        }
    }
    CHECK(!wrong && !differ, "%s, %u sizes: %d wrong, %d other victims", kind_name[kind], n_sizes,
          wrong, differ);
    CHECK(n_sizes > 1 || kind == POLICY_HEAT || busy_part == 100 || victims > 1000);
    CHECK(busy_part == 100 ? waits > 0 : busy_part || !waits, "%d waits", waits);
    policy_close(p);
}

/* heat: nobody is displaced by one that is not worth more by the margin, and with a margin above 1
 * nobody at all; the hot ones stay. */
static void test_heat(void)
{
    struct policy *p = make(POLICY_HEAT, 1, 12, POLICY_MARGIN, 0);
    int wrong = 0, entered = 0, kept_out = 0;

    for (uint32_t t = 0; t < 2000; t++) {
        policy_step(p, 1);
        for (uint32_t l = 0; l < LAYERS; l++)
            for (uint32_t k = 0; k < 2;
                 k++) { /* experts 0 and 1 every other token, the rest by chance */
                uint32_t x = rand() % 2 ? k : 2 + (uint32_t)rand() % (EXPERTS - 2);
                struct policy_answer a;
                policy_use(p, l, x, 1);
                if (policy_resident(p, l, x))
                    continue;
                a = policy_admit(p, l, x, 0, NULL, NULL);
                if (a.verdict == POLICY_REPLACE)
                    wrong += !(policy_value(p, l, x) >
                               policy_value(p, a.layer, a.expert) + POLICY_MARGIN);
                kept_out += a.verdict == POLICY_STAYS;
                entered += obey(p, l * EXPERTS + x, a, 1, 12, &wrong) && t > 500;
            }
    }
    CHECK_EQ(wrong, 0);
    CHECK(kept_out > 5000 && entered < 200, "%d kept out, %d entered", kept_out, entered);
    for (uint32_t l = 0; l < LAYERS; l++)
        CHECK(policy_resident(p, l, 0) && policy_resident(p, l, 1));
    policy_close(p);
}

static void test_allowance(void)
{
    struct policy *p = make(POLICY_HEAT, 1, 10, 0, 0.25); /* one move in four tokens */
    int moved = 0, wrong = 0, most = 0;

    for (uint32_t t = 0; t < 4000; t++) {
        int now = 0;
        policy_step(p, 1);
        for (uint32_t l = 0; l < LAYERS; l++)
            for (int k = 0; k < USED; k++) {
                uint32_t x = ((uint32_t)rand() % 5 + t / 40) % EXPERTS; /* a hot set that wanders */
                policy_use(p, l, x, 1);
                if (!policy_resident(p, l, x)) {
                    struct policy_answer a = policy_admit(p, l, x, 0, NULL, NULL);
                    now += a.verdict == POLICY_REPLACE;
                    obey(p, l * EXPERTS + x, a, 1, 10, &wrong);
                }
            }
        moved += now;
        most = now > most ? now : most;
    }
    CHECK_EQ(wrong, 0);
    CHECK(moved <= 4000 / 4 + 9 && moved > 900, "%d moves", moved);
    CHECK(most <= 9, "%d moves in one token", most);
    policy_close(p);
}

/* Small experts may lie in large places, large ones never in small ones, and a place that only a
 * large one can use is not wasted on a small one for a trifle. */
static void test_sizes(void)
{
    struct policy_config c = {.kind = POLICY_LRU,
                              .n_layers = LAYERS,
                              .n_experts = EXPERTS,
                              .n_sizes = 3,
                              .size_of = size_of,
                              .places = {0, 2, 1}};
    struct policy *p = NULL;
    struct policy_answer a;
    struct err e = {0};

    CHECK(!policy_open(&c, &p, &e), "%s", e.msg);
    policy_step(p, 1);
    policy_use(p, 0, 5, 1); /* size 0: no place of its own */
    a = policy_admit(p, 0, 5, 0, NULL, NULL);
    CHECK(a.verdict == POLICY_FREE && a.place == 1);
    policy_enter(p, 0, 5, 1);
    policy_use(p, 2, 1, 1); /* size 2 */
    a = policy_admit(p, 2, 1, 0, NULL, NULL);
    CHECK(a.verdict == POLICY_FREE && a.place == 2);
    policy_enter(p, 2, 1, 2);
    policy_use(p, 2, 2,
               1); /* size 2 again: only the other one of size 2 may go, though there is room */
    a = policy_admit(p, 2, 2, 0, NULL, NULL);
    CHECK(a.verdict == POLICY_REPLACE && a.place == 2 && a.layer == 2 && a.expert == 1);
    policy_use(p, 1, 1, 1); /* size 1 */
    a = policy_admit(p, 1, 1, 0, NULL, NULL);
    CHECK(a.verdict == POLICY_FREE && a.place == 1);
    policy_enter(p, 1, 1, 1);
    policy_use(p, 4, 1, 1); /* size 1, full: the small one was used longest ago */
    a = policy_admit(p, 4, 1, 0, NULL, NULL);
    CHECK(a.verdict == POLICY_REPLACE && a.place == 1 && a.layer == 0 && a.expert == 5);
    policy_close(p);
}

/* A prompt's pass counts like its tokens; the first call of a pass sees nothing of later ones. */
static void test_passes(void)
{
    struct policy *p = make(POLICY_HEAT, 1, 3, 0, 0);
    int wrong = 0;

    policy_step(p, 512);
    for (uint32_t x = 0; x < 6; x++) /* expert x is used by 80 x + 1 of the tokens */
        policy_use(p, 0, x, 80 * x + 1);
    for (uint32_t x = 1; x < 6; x++)
        CHECK(policy_value(p, 0, x) >= policy_value(p, 0, x - 1));
    for (uint32_t x = 0; x < 6; x++)
        obey(p, x, policy_admit(p, 0, x, 0, NULL, NULL), 1, 3, &wrong);
    CHECK_EQ(wrong, 0);
    CHECK(policy_resident(p, 0, 3) && policy_resident(p, 0, 4) && policy_resident(p, 0, 5));
    CHECK(policy_value(p, 1, 0) == 0); /* never used */
    policy_close(p);
}

/* What was learned in one place stays learned through a long prompt in another. */
static void test_long_prompt(void)
{
    struct policy *p = make(POLICY_HEAT, 1, 3, 0, 0);
    double ignorant = 0, learned, after;

    for (uint32_t t = 0; t < 3000;
         t++) { /* experts in turn: of all, the last one comes again last */
        policy_step(p, 1);
        policy_use(p, 0, t % EXPERTS, 1);
        if (t == 27)
            ignorant = policy_value(p, 0, t % EXPERTS);
    }
    learned = policy_value(p, 0, 2999 % EXPERTS);
    CHECK(learned < 0.25 && ignorant > learned + 0.05, "%f %f", ignorant, learned);
    for (int k = 0; k < 400; k++) {
        policy_step(p, 512);
        policy_use(p, 1, 3, 500);
    }
    after = policy_value(p, 0, 2999 % EXPERTS);
    CHECK(fabs(after - learned) < 0.02, "%f %f", after, learned);
    policy_close(p);
}

static void test_next_start(void)
{
    float uses[PAIRS], again[PAIRS];
    uint32_t hot[PAIRS];
    struct policy *p = make(POLICY_LRU, 1, 5, 0, 0); /* every kind keeps heat */
    double tokens, tokens2;
    size_t n;

    for (uint32_t t = 0; t < 800; t++) {
        policy_step(p, 1);
        for (uint32_t l = 0; l < LAYERS; l++) {
            policy_use(p, l, t % 2 ? 7 : 3 + t % 8 / 2 + l, 1);
            policy_use(p, l, l, t % 100 == 0);
        }
    }
    policy_export(p, uses, &tokens);
    CHECK(tokens > 700 && tokens < 800, "%f", tokens);
    CHECK(uses[7] > 0.45 * tokens && uses[7] < 0.65 * tokens, "%f", (double)uses[7]);
    CHECK(uses[0] > 0 && uses[0] < 10 && uses[1] == 0);
    policy_close(p);

    p = make(POLICY_HEAT, 1, 5, 0, 0);
    uses[1] = NAN, uses[2] = -1, uses[EXPERTS] = INFINITY;
    policy_import(p, uses, tokens);
    n = policy_hottest(p, hot);
    CHECK(n > LAYERS && n < PAIRS);
    for (size_t i = 0; i < LAYERS; i++)
        CHECK(hot[i] % EXPERTS == 7);
    for (size_t i = 1; i < n; i++)
        CHECK(uses[hot[i - 1]] >= uses[hot[i]]);
    CHECK(policy_value(p, 0, 7) > policy_value(p, 0, 0) && policy_value(p, 0, 1) == 0);
    policy_export(p, again, &tokens2);
    CHECK(fabs(tokens2 / tokens - 1) < 0.01 && fabsf(again[7] / uses[7] - 1) < 0.01f &&
          again[1] == 0 && again[EXPERTS] == 0);
    policy_import(p, uses, NAN); /* no reason to fall over */
    policy_close(p);
    policy_close(NULL);
}

/* What is said of all uses is their sum, while tokens pass in passes of one and of many. */
static void test_all_uses(void)
{
    struct policy *p = make(POLICY_HEAT, 1, 5, 0, 0);
    double all = 0; /* a use counts half after HEAT_SLOW tokens */

    for (uint32_t t = 0; t < 3000; t++) {
        uint32_t n = t % 50 ? 1 : 64;
        double sum = 0;
        policy_step(p, n);
        all = all * (double)heat_decay(HEAT_SLOW, n) + n * LAYERS;
        for (uint32_t l = 0; l < LAYERS; l++)
            policy_use(p, l, (t * 7 + l) % EXPERTS, n);
        for (uint32_t i = 0; t % 100 == 99 && i < PAIRS; i++)
            sum += policy_uses(p, i / EXPERTS, i % EXPERTS);
        CHECK(t % 100 != 99 || fabs(all / sum - 1) < 0.1, "token %u: %g of %g", t, all, sum);
    }
    CHECK_EQ(policy_tokens(p), 60 * 64 + 2940 - 1);
    policy_close(p);
}

static void test_limits(void)
{
    struct policy_config c = {
        .kind = POLICY_HEAT, .n_layers = 1 << 16, .n_experts = 1 << 16, .n_sizes = 1};
    struct policy *p = NULL;
    struct err e = {0};

    CHECK(policy_open(&c, &p, &e) == -EOVERFLOW && !p && strstr(e.msg, "too many"), "%s", e.msg);
}

int main(void)
{
    srand(1);
    for (int kind = POLICY_HEAT; kind <= POLICY_LFU; kind++) {
        test_books(kind, 1, 30, 0);
        test_books(kind, 1, 30, 50);
        test_books(kind, 1, 1, 30);
        test_books(kind, 3, 9, 30);
        test_books(kind, 1, 30, 100);
    }
    test_heat();
    test_allowance();
    test_sizes();
    test_passes();
    test_long_prompt();
    test_next_start();
    test_all_uses();
    test_limits();
    return test_end();
}
