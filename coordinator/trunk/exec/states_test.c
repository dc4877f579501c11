/* Tails and matrices' versions over made-up steps: every row that a step may look back at is the one that
 * was last taken, whatever was rejected in between; what a matrix is made again from. */
#include "coordinator/trunk/exec/states.h"

#include <stdlib.h>
#include <string.h>

#include "tests/test.h"

enum { ROLLBACK = 4, ROWS = 3, WIDTH = 5, N_CTX = 4096 };
static struct prog_state parts[] = {
    {.kind = STATE_TAIL, .k_width = WIDTH, .head_values = ROWS},
    {.kind = STATE_MATRIX, .heads = 2, .k_heads = 1, .k_width = 3, .v_width = 4, .decay = 3},
    {.kind = STATE_TAIL, .k_width = WIDTH, .head_values = ROWS, .draft = 1},
    {.kind = STATE_POOLS, .k_width = 6, .head_values = 4},
    {.k_width = 8, .v_width = 8, .head_values = 4},
    {.k_width = 8, .head_values = 8},
};
static const struct program prog = {.n_states = sizeof parts / sizeof *parts, .state = parts, .rollback = ROLLBACK};

static uint64_t seed = 1;
static uint32_t draw(uint32_t n)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 40) % n;
}

struct sequence {
    float row[N_CTX];  /* by position: what its last step wrote */
    uint32_t n;        /* positions taken */
    float written;
};

/* A step over n tokens from position pos on: looks back, writes. */
static void step(struct states *s, struct sequence *q, uint32_t pos, uint32_t n, enum step_pass pass)
{
    struct step_token tok[64];
    struct step st = {.n_tokens = n, .token = tok, .pass = pass};
    uint32_t state = pass == STEP_TRUNK ? 0 : 2, n_runs;
    float rows[64][WIDTH];
    const struct run *r;

    for (uint32_t i = 0; i < n; i++) {
        tok[i] = (struct step_token){0, pos + i, 0};
        q->written += 1;
        for (uint32_t k = 0; k < WIDTH; k++)
            rows[i][k] = q->written + 0.125f * (float)k;
    }
    states_begin(s, &st);
    r = states_runs(s, &n_runs);
    CHECK_EQ(n_runs, 1);
    CHECK(r->pos == pos && r->n == n && r->first == 0 && !r->zero == (pos > 0), "run at %u", r->pos);
    for (int64_t back = 1; back <= ROWS; back++) {
        const float *row = states_tail_row(s, state, r, (int64_t)pos - back);
        CHECK(!row == (pos < back), "position %u, %d back", pos, (int)back);
        if (row)
            CHECK(row[0] == q->row[pos - back] && row[WIDTH - 1] == q->row[pos - back] + 0.125f * (WIDTH - 1),
                  "position %u, %d back: %g, wanted %g", pos, (int)back, (double)row[0], (double)q->row[pos - back]);
    }
    states_tail_write(s, state, r, 0, 2, &rows[0][0], WIDTH); /* in two parts, as two threads do */
    states_tail_write(s, state, r, 2, WIDTH, &rows[0][2], WIDTH);
    for (uint32_t i = 0; i < n; i++)
        q->row[pos + i] = rows[i][0];
    q->n = pos + n;
}

/* Steps of 1 to 5 tokens of which any number is taken; prompts in between; steps played again. */
static void rejections(void)
{
    struct states *s = states_open(&prog, KV_F16, N_CTX, 1, 2);
    struct sequence *q = calloc(1, sizeof *q);
    uint32_t pos = 0;

    for (int i = 0; i < 3000; i++) {
        uint32_t n = draw(20) ? 1 + draw(ROLLBACK + 1) : 6 + draw(50), end;
        if (pos + n > N_CTX || !draw(200))
            pos = 0; /* another sequence */
        step(s, q, pos, n, STEP_TRUNK);
        if (!draw(10)) /* the step broke: the same again */
            step(s, q, pos, n, STEP_TRUNK);
        end = pos + n;
        pos = n > ROLLBACK + 1 ? end : end - draw(n); /* at least one token is taken */
    }
    states_close(s);
    free(q);
}

/* The NextN block's rows: some, then guesses one by one, then real ones over them. */
static void guesses(void)
{
    struct states *s = states_open(&prog, KV_F16, N_CTX, 1, 2);
    struct sequence *q = calloc(1, sizeof *q);
    uint32_t pos = 0;

    for (int i = 0; i < 2000; i++) {
        uint32_t n = 1 + draw(ROLLBACK + 1), guessed = draw(ROLLBACK);
        if (pos + n + guessed > N_CTX || !draw(100))
            pos = 0;
        step(s, q, pos, n, STEP_DRAFT);
        pos += n;
        for (uint32_t k = 0; k < guessed; k++)
            step(s, q, pos + k, 1, STEP_CHAIN);
    }
    states_close(s);
    free(q);
}

static struct run run_of(struct states *s, uint32_t pos, uint32_t n)
{
    struct step_token tok[8];
    struct step st = {.n_tokens = n, .token = tok};
    uint32_t n_runs;

    for (uint32_t i = 0; i < n; i++)
        tok[i] = (struct step_token){0, pos + i, 0};
    states_begin(s, &st);
    return *states_runs(s, &n_runs);
}

/* Saved behind a step, or behind one of its tokens, then other steps, then back: the rows are those of then. What a
 * matrix is made of is in matrices_saved. */
static void saved(void)
{
    struct states *s = states_open(&prog, KV_F16, N_CTX, 1, 2);
    struct sequence *q = calloc(1, sizeof *q), *then = calloc(2, sizeof *then);
    uint32_t pos = 0, at[2] = {0};

    for (int i = 0; i < 3000; i++) {
        uint32_t n = draw(4) ? 1 + draw(ROLLBACK + 1) : 6 + draw(30), slot = draw(2);
        if (pos + n > N_CTX)
            pos = 0;
        step(s, q, pos, n, STEP_TRUNK);
        pos = n > ROLLBACK + 1 ? pos + n : pos + 1 + draw(n);
        if (!draw(3)) {
            states_save(s, 0, pos, slot);
            then[slot] = *q;
            at[slot] = pos;
        }
        if (at[slot] && !draw(3)) {
            pos = states_restore(s, slot);
            CHECK_EQ(pos, at[slot]);
            *q = then[slot];
            q->written += 1000.0f * (float)(i + 1);
        }
    }
    states_close(s);
    free(q);
    free(then);
}

static void fill(struct states *s, uint32_t version, float x)
{
    for (int i = 0; i < 2 * 3 * 4; i++)
        states_matrix(s, 1, 0, version, 0)[i] = x;
}

/* Saved at the beginning, in the middle and at the end of a step of three tokens. */
static void matrices_saved(void)
{
    for (uint32_t behind = 0; behind <= 3; behind++) {
        struct states *s = states_open(&prog, KV_F16, 64, 1, 1);
        struct run b, c;
        run_of(s, 0, 5);
        b = run_of(s, 5, 3);
        fill(s, b.from, 1);
        fill(s, b.from ^ 1, 2);
        *states_kept(s, 1, 0, 0, 1).beta = 7;
        states_save(s, 0, 5 + behind, 0);
        run_of(s, 5 + behind, 4);
        fill(s, 0, 8);
        fill(s, 1, 9);
        *states_kept(s, 1, 0, 0, 1).beta = 8;
        for (int again = 0; again < 2; again++) {
            CHECK_EQ(states_restore(s, 0), 5 + behind);
            c = run_of(s, 5 + behind, 1);
            CHECK(c.redo == (behind == 3 ? 0 : behind) && !c.zero, "behind %u tokens: redo %u", behind, c.redo);
            if (c.redo) { /* made again from the one before */
                CHECK(*states_matrix(s, 1, 0, c.from ^ 1, 1) == 1, "behind %u tokens: the version before", behind);
                CHECK(*states_kept(s, 1, 0, 0, 1).beta == 7, "behind %u tokens: kept", behind);
            } else {
                CHECK(*states_matrix(s, 1, 0, c.from, 1) == (behind ? 2 : 1), "behind %u tokens", behind);
            }
        }
        states_close(s);
    }
    CHECK_EQ(states_saved_bytes(&prog), ((ROWS + ROLLBACK) * WIDTH + 2 * 3 * 4 + (ROLLBACK + 1) * 2 * (3 + 4 + 3 + 1)) * 4);
}

/* What is read, what is written, how many kept tokens come first. */
static void versions(void)
{
    struct states *s = states_open(&prog, KV_F16, 64, 1, 0);
    struct run a = run_of(s, 0, 5), b = run_of(s, 5, 3), c, d;

    CHECK(a.zero && !a.redo && !b.zero && !b.redo && b.from == (a.from ^ 1), "taken whole");
    CHECK(run_keeps(&prog, &b), "three tokens are kept");
    c = run_of(s, 6, 2); /* one of three was taken */
    CHECK(c.redo == 1 && c.from == (b.from ^ 1), "redo %u", c.redo);
    d = run_of(s, 6, 2); /* and this step again */
    CHECK(!d.redo && d.from == c.from, "played again: redo %u", d.redo);
    d = run_of(s, 8, 1);
    CHECK(!d.redo && d.from == (c.from ^ 1), "taken whole after that");
    states_close(s);
}

static void sizes(void)
{
    uint64_t tails = 2ull * 2 * (ROWS + ROLLBACK) * WIDTH * 4, matrix = 2ull * 2 * 3 * 4 * 4,
             kept = (ROLLBACK + 1) * 2ull * (3 + 4 + 3 + 1) * 4;

    CHECK_EQ(states_fixed_bytes(&prog), tails + matrix + kept);
    CHECK_EQ(states_bytes(&prog, KV_F16, 10), tails + matrix + kept + 3 * 6 * 4 + 10 * (16 + 16 + 16));
    CHECK_EQ(states_bytes(&prog, KV_F32, 8), tails + matrix + kept + 2 * 6 * 4 + 8 * (32 + 32 + 32));
}

int main(void)
{
    rejections();
    guesses();
    saved();
    matrices_saved();
    versions();
    sizes();
    return test_end();
}
