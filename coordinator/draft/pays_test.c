/* The choice by replay: steps of a machine whose costs and acceptance are made up, and change. */
#include "coordinator/draft/pays.h"

#include "tests/test.h"

struct made {
    double one, more; /* a step of one token, each further one */
    double draft;     /* a draft */
    double right;     /* share of drafts that are right, at every place */
    uint64_t random;
};

static double draw(struct made *m)
{
    m->random = m->random * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(m->random >> 40) / (double)(1 << 24);
}

/* n steps; seconds and tokens are added up */
static void run(struct draft_pays *p, struct made *m, uint32_t n, double *seconds, double *tokens)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = draft_pays_next(p), right = 0;
        double step = (m->one + m->more * k) * (0.9 + 0.2 * draw(m)), draft = m->draft * k;
        while (right < k && draw(m) < m->right)
            right++;
        draft_pays_made(p, k, draft);
        draft_pays_note(p, k, right, step);
        *seconds += step + draft;
        *tokens += 1 + right;
    }
}

static double rate(const struct made *m, uint32_t k)
{
    double tokens = 1, path = 1;

    for (uint32_t j = 0; j < k; j++)
        tokens += path *= m->right;
    return tokens / (m->one + m->more * k + m->draft * k);
}

static void finds(const char *what, struct made m, uint32_t most)
{
    struct draft_pays p;
    double seconds = 0, tokens = 0, best = 0;

    for (uint32_t k = 0; k <= most; k++)
        best = rate(&m, k) > best ? rate(&m, k) : best;
    draft_pays_init(&p, most);
    run(&p, &m, 400, &seconds, &tokens);
    seconds = tokens = 0;
    run(&p, &m, 2000, &seconds, &tokens);
    CHECK(rate(&m, p.now) > 0.94 * best, "%s: settled at %u, %.2f of %.2f", what, p.now, rate(&m, p.now), best);
    CHECK(tokens / seconds > 0.92 * best, "%s: %.3f tokens a second of %.3f", what, tokens / seconds, best);
}

static void exact_formula(void)
{
    struct draft_pays p;

    draft_pays_init(&p, 2);
    for (int i = 0; i < 64; i++) {
        draft_pays_note(&p, 0, 0, 1.0);
        draft_pays_made(&p, 2, 0.5);
        draft_pays_note(&p, 2, 2, 1.5);
    }
    CHECK(draft_pays_tokens(&p, 2) > 2.999999 && draft_pays_tokens(&p, 2) < 3.000001, "%g", draft_pays_tokens(&p, 2));
    CHECK(draft_pays_rate(&p, 2) > 1.499999 && draft_pays_rate(&p, 2) < 1.500001, "%g", draft_pays_rate(&p, 2));
    CHECK(draft_pays_rate(&p, 0) > 0.999999 && draft_pays_rate(&p, 0) < 1.000001, "%g", draft_pays_rate(&p, 0));
    CHECK(draft_pays_rate(&p, 1) == 0, "one draft was never tried");
}

/* Of a place behind a wrong draft nothing is learnt. */
static void looks_to_the_first_wrong_one(void)
{
    struct draft_pays p;

    draft_pays_init(&p, 4);
    for (int i = 0; i < 10; i++)
        draft_pays_note(&p, 4, 1, 1);
    CHECK_EQ(p.right[1].n, 10);
    CHECK_EQ(p.right[2].n, 10);
    CHECK_EQ(p.right[3].n, 0);
    CHECK(draft_pays_tokens(&p, 4) > 1.999999 && draft_pays_tokens(&p, 4) < 2.000001, "%g", draft_pays_tokens(&p, 4));
}

static void follows_a_change(void)
{
    struct made hits = {1, 0.15, 0.05, 0.85, 1}, misses = {1, 0.95, 0.05, 0.85, 2};
    struct draft_pays p;
    double seconds = 0, tokens = 0;

    draft_pays_init(&p, 4);
    run(&p, &hits, 500, &seconds, &tokens);
    CHECK(p.now >= 2, "%u drafts where further tokens are cheap", p.now);
    run(&p, &misses, 3000, &seconds, &tokens);
    CHECK(draft_pays_off(&p) || p.now == 0, "%u drafts where a token costs as much as a step", p.now);
    run(&p, &hits, 4000, &seconds, &tokens);
    CHECK(p.now >= 2, "%u drafts after it was off", p.now);
}

static void nothing_to_draft_with(void)
{
    struct draft_pays p;

    draft_pays_init(&p, 0);
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(draft_pays_next(&p), 0);
        draft_pays_note(&p, 0, 0, 1);
    }
}

int main(void)
{
    exact_formula();
    looks_to_the_first_wrong_one();
    finds("cheap tokens, good drafts", (struct made){1, 0.1, 0.05, 0.9, 3}, 4);
    finds("cheap tokens, bad drafts", (struct made){1, 0.1, 0.05, 0.2, 4}, 4);
    finds("one draft pays", (struct made){1, 0.5, 0.05, 0.75, 5}, 4);
    finds("drafts cost too much", (struct made){1, 0.1, 1.0, 0.8, 6}, 4);
    finds("misses dominate", (struct made){1, 1.0, 0.02, 0.95, 7}, 4);
    finds("at most one", (struct made){1, 0.1, 0.05, 0.9, 8}, 1);
    follows_a_change();
    nothing_to_draft_with();
    return test_end();
}
