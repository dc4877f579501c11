/* Rows of two tables by way of a stage, with a thread in the steward's and the pager's place: the bytes of the file
 * whatever the cache holds, each row read once while it is kept, all of a prompt asked for at once. */
#include "coordinator/supervise/lookup.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/test.h"

enum { ROWS = 3000, VOCAB = 500, WIDE = 90, TOKEN = 68, TOKENS = 6, CTX = 400, HEADS = 4 };
enum { TABLE_AT = 4096 * 3 + 50, TOKEN_AT = 4096 * 90 + 8 };

static uint8_t file[4096 * 110];
static struct model_tensor tensors[2] = {
    {.dims = {WIDE, ROWS}, .row_bytes = WIDE, .bytes = ROWS * WIDE, .file_offset = TABLE_AT, .by_rows = 1},
    {.dims = {TOKEN, VOCAB}, .row_bytes = TOKEN, .bytes = VOCAB * TOKEN, .file_offset = TOKEN_AT, .by_rows = 1}};
static struct model model = {.tensor = tensors, .n_tensors = 2, .token_embd = 1};
static struct program prog = {.n_tables = 2,
                              .token_bytes = 432,
                              .table = {{.tensor = 0, .rows = HEADS, .first = 0, .row_bytes = WIDE},
                                        {.tensor = 1, .rows = 1, .first = 360, .row_bytes = TOKEN}}};
static struct board board;
static struct bell bells[MAX_PROCS];
static uint8_t trunk[8192 * LOOKUP_ORDERS * ORDER_PIECES];
static uint64_t off[2] = {LOOKUP_PAGED, LOOKUP_PAGED};
static _Atomic int stop;
static uint64_t n_orders, n_urgent, n_pieces;

/* What the steward and the pager do, one order out at a time, or several. */
static void *steward(void *arg)
{
    struct lookup *l = arg;
    struct order o[LOOKUP_ORDERS];
    uint32_t which[LOOKUP_ORDERS], n = 0;

    while (!atomic_load(&stop)) {
        while (n < LOOKUP_ORDERS && lookup_next(l, &o[n], &which[n]))
            n++;
        if (!n)
            sched_yield();
        for (uint32_t k = n; k-- > 0;) { /* the last one first */
            for (uint32_t i = 0; i < o[k].n_pieces; i++) {
                const struct order_piece *p = &o[k].piece[i];
                if (p->file_off % 4096 || p->dst % 4096 || p->bytes % 4096 || p->need > p->bytes ||
                    p->dst + p->bytes > sizeof trunk)
                    abort();
                memcpy(trunk + p->dst, file + p->file_off, p->need);
                memset(trunk + p->dst + p->need, 0xEE, p->bytes - p->need);
            }
            n_orders++;
            n_urgent += o[k].prio == PRIO_DEMAND;
            n_pieces += o[k].n_pieces;
            lookup_came(l, which[k]);
        }
        n = 0;
    }
    return NULL;
}

static void start(uint64_t cache, struct lookup **l, pthread_t *t)
{
    struct lookup_config c = {.m = &model, .prog = &prog, .board = &board, .bells = bells, .max_tokens = TOKENS,
                              .n_ctx = CTX, .n_seqs = 2, .trunk = trunk, .trunk_off = off, .cache_bytes = cache};
    struct err e = {0};

    CHECK(!lookup_open(&c, l, &e), "%s", e.msg);
    stop = 0;
    n_orders = n_urgent = n_pieces = 0;
    pthread_create(t, NULL, steward, *l);
}
static void end(struct lookup *l, pthread_t t)
{
    atomic_store(&stop, 1);
    pthread_join(t, NULL);
    lookup_close(l);
}

/* Are the bytes of the step's rows those of the file? */
static int right(struct lookup *l, const struct step *s)
{
    struct step_rows r;
    int wrong = 0;

    lookup_rows(l, s, &r);
    for (uint32_t t = 0; t < s->n_tokens; t++) {
        const uint8_t *b = r.bytes + t * prog.token_bytes;
        for (uint32_t k = 0; k < HEADS; k++)
            wrong |= memcmp(b + k * WIDE, file + TABLE_AT + r.id[t * (HEADS + 1) + k] * WIDE, WIDE);
        wrong |= memcmp(b + 360, file + TOKEN_AT + s->token[t].id * TOKEN, TOKEN);
        wrong |= r.id[t * (HEADS + 1) + HEADS] != s->token[t].id;
    }
    return !wrong;
}

static void steps(uint64_t cache, int ask, int foresee, struct lookup_counters *c)
{
    struct step_token tok[TOKENS];
    uint32_t ids[CTX], seed = 1;
    struct lookup *l;
    pthread_t t;
    int wrong = 0;

    start(cache, &l, &t);
    for (uint32_t i = 0; i < CTX; i++)
        ids[i] = (seed = seed * 1103515245 + 12345) >> 16 & 31; /* few, so that n-grams come again */
    if (foresee)
        lookup_foresee(l, ids, CTX, 0, 1);
    for (uint32_t at = 0, n = 1; at < CTX; at += n, n = n % TOKENS + 1) {
        struct step s = {.token = tok};
        n = at + n <= CTX ? n : CTX - at;
        for (; s.n_tokens < n; s.n_tokens++)
            tok[s.n_tokens] = (struct step_token){ids[at + s.n_tokens], at + s.n_tokens, 1};
        if (ask)
            lookup_ask(l, &s);
        wrong += !right(l, &s);
    }
    CHECK_EQ(wrong, 0);
    lookup_counters(l, c);
    CHECK(c->rows == CTX * (HEADS + 1) && c->reads == n_pieces && c->hits < c->rows, "%llu rows",
          (unsigned long long)c->rows);
    end(l, t);
}

int main(void)
{
    struct lookup_counters small, large, ahead;
    struct lookup_needs need = lookup_needs(&prog, &model, TOKENS);

    for (size_t i = 0; i < sizeof file; i++)
        file[i] = (uint8_t)(i * 2654435761u >> 13);
    model.ngram = (struct model_ngram){.size = 3, .per_gram = 2, .heads = HEADS, .eos = 3, .factor = {77777, 999, 31},
                                       .first = {0, 701, 1420, 2200}, .rows = {701, 719, 733, 787}};
    CHECK(need.whole > ROWS * WIDE + VOCAB * TOKEN && need.stage == sizeof trunk && need.least == 60 * need.row);
    steps(1, 0, 0, &small);
    CHECK(small.cached == 60 && small.reads > small.rows / 3 && n_urgent == n_orders);
    steps(1, 1, 0, &small);
    steps(1 << 20, 1, 0, &large);
    CHECK(large.reads + CTX < small.reads && large.reads + large.hits <= large.rows, "%llu and %llu reads",
          (unsigned long long)small.reads, (unsigned long long)large.reads);
    steps(1 << 20, 1, 1, &ahead); /* all at once, behind what is waited for */
    CHECK(ahead.reads == large.reads && n_urgent == 0 && n_orders < large.reads / 10, "%llu orders",
          (unsigned long long)n_orders);
    steps(1, 0, 1, &ahead); /* more than fits */
    CHECK(ahead.cached == 60);
    return test_end();
}
