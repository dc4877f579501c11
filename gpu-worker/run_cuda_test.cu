/* The program on a card beside its walk by the CPU's executor: operation by operation, then recorded graphs by
 * their logits: batches of 1 to 8, prompt passes, two sequences, more than one chunk of keys, tokens that are
 * rejected, steps played again, saved states, and the NextN block's passes. Golden models and the demo models.
 *
 *   run_cuda_test [MODEL]                          the test, of one model alone
 *   run_cuda_test MODEL times [TOKENS]             where a token's time goes, by kinds of operations; or that of a
 *                                                  prompt's pass of so many
 *   run_cuda_test MODEL KV BATCH OUT < ids         writes the logits of every position, f32, to OUT; of the NextN
 *                                                  block's rows too, where there is one, to OUT.nextn
 */
#include <time.h>

#include "gpu-worker/test_walk.cuh"

/* ---- the comparisons ---- */

static void open_card(const struct loaded *l, uint32_t max_tokens, uint32_t n_ctx, uint32_t n_seqs,
                      enum kv_type kv, struct run_cuda **out)
{
    struct run_cuda_config c = {};
    struct err e = {};

    c.prog = l->prog;
    c.weight = l->card;
    c.layer = l->layer;
    c.n_experts = l->m->n_experts;
    c.max_tokens = c.max_out = max_tokens;
    c.n_ctx = n_ctx;
    c.n_seqs = n_seqs;
    c.n_saved = SAVED;
    c.kv = kv;
    c.rows = look_up;
    c.rows_arg = (void *)l;
    if (run_cuda_open(&c, out, &e))
        stop(&e);
}

struct beside {
    struct walk *w;
    const char *model;
    uint32_t ops, differ;
};

/* What an operation leaves in a row: of a list, its entries. */
static int same(const struct op *op, const float *got, const float *want, uint32_t rows, uint32_t n)
{
    for (uint32_t t = 0; t < rows; t++) {
        const uint32_t *w = (const uint32_t *)(want + (size_t)t * n);
        uint32_t live = op->kind != OP_SELECT ? n : *w == LIST_ALL ? 1 : 1 + *w;
        if (memcmp(got + (size_t)t * n, w, (size_t)live * 4))
            return 0;
    }
    return 1;
}

/* after each operation of the card: the same one here, then both results */
static void compare_op(void *arg, const struct op *op, const void *result, uint32_t rows,
                       uint32_t n)
{
    struct beside *b = (struct beside *)arg;
    uint32_t buf = op->out == PROG_NONE ? op->in[0] : op->out;
    float *got = (float *)malloc((size_t)rows * n * 4 + 4);

    walk_op(b->w, op);
    cuda_back(got, result, (size_t)rows * n * 4);
    b->ops++;
    if (!same(op, got, row(b->w, buf, 0), rows, n) && !b->differ++)
        printf("%s: the first different result is that of operation %u, %s, '%s'\n", b->model,
               b->ops - 1, op_name((enum op_kind)op->kind), op->name);
    free(got);
}

struct both {
    const struct loaded *l;
    struct walk w;
    struct run_cuda *card;
    const char *model;
    float *logits;
    uint32_t next[2]; /* positions of the two sequences */
    int drafts;       /* the NextN block follows every step */
    struct nasty r;
};

enum wanted { ALL_ROWS, LAST_ROW, NO_ROW };

/* A step of T tokens over the two sequences. */
static void make_step(struct both *x, uint32_t T, struct step_token *tok, uint32_t *out,
                      struct step *s, enum wanted rows)
{
    s->n_tokens = T;
    s->token = tok;
    s->out = out;
    s->n_out = 0;
    for (uint32_t t = 0; t < T; t++) {
        uint32_t seq = t >= T - T / 3;
        tok[t] = {nasty_u32(&x->r) % x->l->m->n_vocab, x->next[seq]++, seq};
        if (rows == ALL_ROWS || (rows == LAST_ROW && t + 1 == T))
            out[s->n_out++] = t;
    }
}

static void compare(struct both *x, const struct step *s, int slowly)
{
    const struct program *p = x->l->prog;
    size_t n_vocab = x->l->m->n_vocab;
    uint32_t n_ops = s->pass == STEP_TRUNK ? p->draft_at : p->n_ops - p->draft_at;
    const uint32_t *best;
    const float *want;
    struct err e = {};

    if (slowly) {
        struct beside b = {&x->w, x->model, 0, 0};
        walk_begin(&x->w, s);
        if (run_cuda_slowly(x->card, s, compare_op, &b, &e))
            stop(&e);
        CHECK(!b.differ && b.ops == n_ops, "%s: %u of %u operations of %u tokens differ, pass %d", x->model, b.differ,
              b.ops, s->n_tokens, s->pass);
        want = walk_logits(&x->w);
    } else {
        if (run_cuda_step(x->card, s, &e) || run_cuda_wait(x->card, 20000, &best, &e))
            stop(&e);
        want = walk_step(&x->w, s);
        for (uint32_t i = 0; i < s->n_out; i++) {
            uint32_t first;
            order_topk_ref(want + i * n_vocab, (uint32_t)n_vocab, 1, &first);
            CHECK(best[i] == first, "%s: row %u: token %u is the first, wanted %u", x->model, i,
                  best[i], first);
        }
    }
    if (!s->n_out)
        return;
    if (run_cuda_logits(x->card, x->logits, &e))
        stop(&e);
    CHECK(!memcmp(x->logits, want, s->n_out * n_vocab * 4),
          "%s: pass %d, %u tokens from positions %u and %u, %u rows%s", x->model, s->pass, s->n_tokens,
          s->token[0].pos, s->token[s->n_tokens - 1].pos, s->n_out, slowly ? ", operation by operation" : "");
}

/* The NextN block over the step's rows, whatever the tokens after them are, and one row more. */
static void compare_drafts(struct both *x, const struct step *trunk, struct step_token *tok, int slowly)
{
    uint32_t last = trunk->n_tokens - 1;
    struct step s = {};

    s.n_tokens = trunk->n_tokens;
    s.token = tok;
    s.out = &last;
    s.n_out = trunk->n_out > 0;
    s.pass = STEP_DRAFT;
    for (uint32_t t = 0; t < s.n_tokens; t++)
        tok[t].id = nasty_u32(&x->r) % x->l->m->n_vocab;
    compare(x, &s, slowly);
    if (!s.n_out)
        return;
    tok[0] = tok[last];
    tok[0].pos++;
    last = 0;
    s.n_tokens = 1;
    s.pass = STEP_CHAIN;
    compare(x, &s, slowly);
}

static void compare_step(struct both *x, uint32_t T, int slowly, enum wanted rows)
{
    struct step_token tok[512];
    uint32_t out[512];
    struct step s = {};

    make_step(x, T, tok, out, &s, rows);
    compare(x, &s, slowly);
    if (x->drafts)
        compare_drafts(x, &s, tok, slowly);
}

/* Of each sequence's tokens of a step that began there, some are taken: none, and it is played again; or more. The
 * block goes back by no more rows than tokens can be rejected, its chained one among them. */
static void reject(struct both *x, const uint32_t *was)
{
    for (int i = 0; i < 2; i++) {
        uint32_t n = x->next[i] - was[i], most = x->l->prog->rollback, least = n + 1 > most ? n + 1 - most : 0;
        if (n && most && n <= most + 1)
            x->next[i] = was[i] + least + nasty_u32(&x->r) % (n + 1 - least);
    }
}

/* Steps of few tokens, of which any number is taken. */
static void compare_rejections(struct both *x, int steps)
{
    for (int i = 0; i < steps; i++) {
        uint32_t was[2] = {x->next[0], x->next[1]};
        compare_step(x, 1 + nasty_u32(&x->r) % RUN_CUDA_RECORDED, i % 8 == 7, ALL_ROWS);
        reject(x, was);
    }
}

/* Both sequences are saved behind a step, or behind one of its tokens; others follow; and back, twice. */
static void compare_saved(struct both *x)
{
    struct err e = {};

    x->drafts = 0; /* the block's rows are not saved */
    for (int round = 0; round < 4; round++) {
        uint32_t was[2] = {x->next[0], x->next[1]}, at[2];
        compare_step(x, 3 + round, 0, ALL_ROWS);
        if (round)
            reject(x, was);
        for (uint32_t i = 0; i < 2; i++) {
            at[i] = x->next[i];
            exec_save(x->w.x, i, at[i], i);
            if (run_cuda_save(x->card, i, at[i], i, &e))
                stop(&e);
        }
        for (int again = 0; again < 2; again++) {
            compare_rejections(x, 3);
            for (uint32_t i = 0; i < 2; i++) {
                CHECK(exec_restore(x->w.x, i) == at[i], "restored");
                if (run_cuda_restore(x->card, i, &e))
                    stop(&e);
                x->next[i] = at[i];
            }
            compare_step(x, 4, 0, ALL_ROWS);
        }
    }
}

static void check_model(const char *path, enum kv_type kv, int longer)
{
    enum { MOST = 100, PIECE = 40, CTX = 1000 };
    struct loaded l;
    struct both x = {};

    if (access(path, R_OK)) {
        SKIP("%s is not here", path);
        return;
    }
    load(path, &l);
    x.l = &l;
    x.model = path;
    x.r.state = 91;
    x.logits = (float *)malloc((size_t)MOST * l.m->n_vocab * 4);
    x.drafts = l.m->n_nextn > 0;
    open_card(&l, MOST, CTX, 2, kv, &x.card);
    walk_open(&x.w, &l, MOST, CTX, 2, kv);
    compare_step(&x, 19, 1, ALL_ROWS);
    compare_step(&x, 1, 1, ALL_ROWS);
    for (uint32_t T = 1; T <= RUN_CUDA_RECORDED; T++)
        compare_step(&x, T, 0, T % 3 ? ALL_ROWS : LAST_ROW);
    compare_step(&x, 33, 0, ALL_ROWS);
    compare_step(&x, 20, 0, NO_ROW); /* seen in the steps after it */
    compare_step(&x, 3, 0, NO_ROW);
    for (int i = 0; i < 12 && longer; i++) /* the first sequence passes 256 */
        compare_step(&x, PIECE, 0, LAST_ROW);
    for (uint32_t T = 1; T <= RUN_CUDA_RECORDED; T += 3)
        compare_step(&x, T, 0, ALL_ROWS);
    compare_step(&x, MOST, 0, ALL_ROWS); /* experts as products, where they have them: 12 experts, 3 of them work */
    compare_step(&x, MOST - 7, 1, LAST_ROW);
    if (l.prog->rollback)
        compare_rejections(&x, 24);
    compare_saved(&x);
    CHECK(run_cuda_counters(x.card)->replayed >= RUN_CUDA_RECORDED + 3, "graphs were replayed");
    walk_close(&x.w);
    run_cuda_close(x.card);
    unload(&l);
    free(x.logits);
}

/* MODEL KV BATCH OUT, ids on standard input */
static int write_logits(char **arg)
{
    struct loaded l;
    struct run_cuda *card;
    uint32_t *ids = NULL, n = 0, batch = (uint32_t)atoi(arg[3]), id;
    enum kv_type kv = !strcmp(arg[2], "f32") ? KV_F32 : !strcmp(arg[2], "bf16") ? KV_BF16 : KV_F16;
    FILE *out = fopen(arg[4], "wb"), *nextn = NULL;
    char name[4096];
    struct err e = {};

    while (scanf("%u%*[, ]", &id) == 1) {
        ids = (uint32_t *)realloc(ids, (n + 1) * sizeof *ids);
        ids[n++] = id;
    }
    if (!out || !n || !batch) {
        printf("usage: run_cuda_test MODEL f32|f16|bf16 BATCH OUT < ids\n");
        return 2;
    }
    load(arg[1], &l);
    l.ids = ids;
    snprintf(name, sizeof name, "%s.nextn", arg[4]);
    if (l.m->n_nextn && !(nextn = fopen(name, "wb")))
        return 2;
    open_card(&l, batch, n, 1, kv, &card);
    for (uint32_t at = 0; at < n; at += batch) {
        struct step_token tok[512];
        uint32_t rows[512];
        struct step s = {n - at < batch ? n - at : batch, 0, tok, rows, STEP_TRUNK, 0};
        const uint32_t *best;
        float *logits = (float *)malloc((size_t)s.n_tokens * l.m->n_vocab * 4);

        for (uint32_t t = 0; t < s.n_tokens; t++) {
            tok[t] = {ids[at + t], at + t, 0};
            rows[s.n_out++] = t;
        }
        if (run_cuda_step(card, &s, &e) || run_cuda_wait(card, 20000, &best, &e) ||
            run_cuda_logits(card, logits, &e))
            stop(&e);
        fwrite(logits, 4, (size_t)s.n_out * l.m->n_vocab, out);
        s.pass = STEP_DRAFT; /* each row with the token after it, the last one with the most likely */
        for (uint32_t t = 0; t < s.n_tokens; t++)
            tok[t].id = at + t + 1 < n ? ids[at + t + 1] : best[t];
        if (nextn) {
            if (run_cuda_step(card, &s, &e) || run_cuda_wait(card, 20000, &best, &e) ||
                run_cuda_logits(card, logits, &e))
                stop(&e);
            fwrite(logits, 4, (size_t)s.n_out * l.m->n_vocab, nextn);
        }
        free(logits);
    }
    run_cuda_close(card);
    unload(&l);
    free(ids);
    return fclose(out) != 0 || (nextn && fclose(nextn));
}

/* ---- times ---- */

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

struct kind_time {
    uint32_t n;
    double us;
};
struct timed {
    double last;
    struct kind_time kind[OP_KINDS];
};

static void time_op(void *arg, const struct op *op, const void *result, uint32_t rows, uint32_t n)
{
    struct timed *t = (struct timed *)arg;
    double now = now_us();

    (void)result, (void)rows, (void)n;
    t->kind[op->kind].us += now - t->last;
    t->kind[op->kind].n++;
    t->last = now_us();
}

/* An operation that does nothing (a form that is the vector itself) says what waiting for one costs, which is taken
 * off. of: passes that were timed. */
static void print_kinds(const struct timed *t, uint32_t of)
{
    double sum = 0, idle = 1e9;

    for (int k = 0; k < OP_KINDS; k++)
        if (t->kind[k].n && t->kind[k].us / t->kind[k].n < idle)
            idle = t->kind[k].us / t->kind[k].n;
    for (int k = 0; k < OP_KINDS; k++)
        sum += t->kind[k].us - t->kind[k].n * idle;
    printf("operation by operation %.0f us, waiting for each (%.1f us) taken off\n", sum / of, idle);
    for (int k = 0; k < OP_KINDS; k++)
        if (t->kind[k].n)
            printf("%-16s %4u a pass %8.1f us %5.1f %%\n", op_name((enum op_kind)k), t->kind[k].n / of,
                   (t->kind[k].us - t->kind[k].n * idle) / of, 100 * (t->kind[k].us - t->kind[k].n * idle) / sum);
}

/* Steps of one token with every expert on the card: as a graph, then operation by operation. */
static int print_times(const char *path)
{
    enum { STEPS = 40, CTX = 2048 };
    struct loaded l;
    struct run_cuda *card;
    struct timed t = {};
    uint32_t row = 0, pos = 0;
    struct step_token tok = {};
    struct step s = {1, 1, &tok, &row, STEP_TRUNK, 1};
    const uint32_t *best;
    double graph = 0;
    struct err e = {};

    load(path, &l);
    open_card(&l, 8, CTX, 1, KV_F16, &card);
    for (int i = 0; i < 4 * STEPS; i++) {
        double start = now_us();
        tok.pos = pos++;
        tok.id = (tok.id * 7 + 11) % l.m->n_vocab;
        if (run_cuda_step(card, &s, &e) || run_cuda_wait(card, 20000, &best, &e))
            stop(&e);
        graph += i < STEPS ? 0 : now_us() - start;
    }
    for (int i = 0; i < STEPS; i++) {
        tok.pos = pos++;
        tok.id = (tok.id * 7 + 11) % l.m->n_vocab;
        t.last = now_us();
        if (run_cuda_slowly(card, &s, time_op, &t, &e))
            stop(&e);
    }
    printf("a token: %.0f us as a graph; ", graph / (3 * STEPS));
    print_kinds(&t, STEPS);
    run_cuda_close(card);
    unload(&l);
    return 0;
}

/* Passes of n tokens from position 0 on, of which the last one's logits are wanted. */
static int print_prompt_times(const char *path, uint32_t n)
{
    enum { PASSES = 3 };
    struct loaded l;
    struct run_cuda *card;
    struct timed t = {};
    struct step_token *tok = (struct step_token *)calloc(n, sizeof *tok);
    uint32_t row = n - 1;
    struct step s = {n, 1, tok, &row, STEP_TRUNK, 1};
    const uint32_t *best;
    double whole = 1e30;
    struct err e = {};

    load(path, &l);
    for (uint32_t i = 0; i < n; i++)
        tok[i] = {(i * 2654435761u >> 8) % l.m->n_vocab, i, 0};
    open_card(&l, n, n, 1, KV_F16, &card);
    for (int i = 0; i <= PASSES; i++) {
        double start = now_us();
        if (run_cuda_step(card, &s, &e) || run_cuda_wait(card, 60000, &best, &e))
            stop(&e);
        whole = now_us() - start < whole ? now_us() - start : whole;
    }
    for (int i = 0; i < PASSES; i++) {
        t.last = now_us();
        if (run_cuda_slowly(card, &s, time_op, &t, &e))
            stop(&e);
    }
    printf("a pass of %u tokens: %.0f us (best of %d), %.0f tokens/s; ", n, whole, PASSES + 1, n / whole * 1e6);
    print_kinds(&t, PASSES);
    run_cuda_close(card);
    unload(&l);
    free(tok);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const models[] = {
        "tests/golden/tiny/olmoe/model.gguf",
        "tests/golden/tiny/qwen3moe/model.gguf",
        "tests/golden/models/olmoe-q8_0/model.gguf",
        "tests/golden/models/qwen3moe-q4_k_m/model.gguf",
        "tests/golden/models/qwen3moe-iq/model.gguf",
        "tests/demo/story-moe-q4_k_m.gguf",
        "tests/golden/tiny/glm5next/model.gguf",
        "tests/golden/tiny/qwen35moe/model.gguf",
        "tests/demo/story-glm5next-f16.gguf",
        "tests/golden/tiny/qwen4exp/model.gguf",
    };

    if (!cuda_card())
        return argc == 5 ? 1 : test_end();
    cpu_float_state();
    if (argc == 5)
        return write_logits(argv);
    if (argc == 3 && !strcmp(argv[2], "times"))
        return print_times(argv[1]);
    if (argc == 4 && !strcmp(argv[2], "times") && atoi(argv[3]) > 0)
        return print_prompt_times(argv[1], (uint32_t)atoi(argv[3]));
    if (argc == 2) {
        check_model(argv[1], KV_F16, 0);
        return test_end();
    }
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        check_model(models[i], KV_F16, i < 2 || i >= 5);
        check_model(models[i], i % 2 ? KV_F32 : KV_BF16, 0);
    }
    return test_end();
}
