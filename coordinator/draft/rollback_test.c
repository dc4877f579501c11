/* Steps of which any number of tokens is taken, at every offset in a pool of the index: the rows that stand are those
 * of a text without drafts, byte for byte. Between them states are saved, others are tried, and the sequence goes
 * back. On the CPU, and with the trunk on an emulated card, which also dies.
 *
 *   rollback_test [CARDS]   on the driver's card too, for instance 0 */
#include <stdlib.h>
#include <string.h>

#include "coordinator/engine.h"
#include "tests/programs.h"
#include "tests/test.h"

#define TOKENS 208u /* more than the index of any of the models chooses from */
#define MOST (DRAFTS_MOST + 1)

struct text {
    const char *what;
    uint32_t id[TOKENS + MOST];
    float *rows; /* (TOKENS, n_vocab), of steps of one token */
};

static const float *step(struct engine *en, const uint32_t *ids, uint32_t pos, uint32_t n)
{
    struct step_token tok[MOST];
    uint32_t out[MOST];
    struct step s = {.n_tokens = n, .n_out = n, .token = tok, .out = out};

    for (uint32_t i = 0; i < n; i++) {
        tok[i] = (struct step_token){ids[i], pos + i, 0};
        out[i] = i;
    }
    return engine_step(en, &s);
}

/* n tokens from pos on, the first `right` of them the text's; are their rows? */
static void tried(struct engine *en, const struct text *t, uint32_t pos, uint32_t n, uint32_t right)
{
    uint32_t ids[MOST], n_vocab = engine_model(en)->n_vocab;
    const float *rows;

    for (uint32_t i = 0; i < n; i++)
        ids[i] = i < right ? t->id[pos + i] : (t->id[pos + i] + 1) % n_vocab;
    rows = step(en, ids, pos, n);
    CHECK(!memcmp(rows, t->rows + (size_t)pos * n_vocab, (size_t)right * n_vocab * sizeof *rows),
          "%s: %u tokens from position %u, %u of them right: other rows", t->what, n, pos, right);
}

/* Every number of tokens, every number of them taken (0: the step is made again), one after the other. */
static uint32_t all_ends(struct engine *en, const struct text *t, uint32_t pos, int saves)
{
    for (uint32_t n = 1; n <= MOST; n++)
        for (uint32_t right = 0; right <= n; right++) {
            tried(en, t, pos, n, right);
            pos += right;
            if (!saves)
                continue;
            engine_save(en, 0, pos, right % 2);
            tried(en, t, pos, 2, 1); /* a way that is not gone on */
            tried(en, t, pos + 1, 3, 3);
            CHECK_EQ(engine_restore(en, right % 2), pos);
            tried(en, t, pos, 1, 1);
            CHECK_EQ(engine_restore(en, right % 2), pos); /* once more */
        }
    return pos;
}

static int body(struct engine *en, void *arg, struct err *e)
{
    struct text *t = arg;
    uint32_t n_vocab = engine_model(en)->n_vocab, pos;
    int first = !t->rows;

    (void)e;
    if (first)
        t->rows = malloc((size_t)TOKENS * n_vocab * sizeof *t->rows);
    for (uint32_t i = 0; first && i < TOKENS + MOST; i++)
        t->id[i] = (i * i * 7 + 11 * i + 3) % n_vocab;
    for (pos = 0; first && pos < TOKENS; pos++)
        memcpy(t->rows + (size_t)pos * n_vocab, step(en, t->id + pos, pos, 1), n_vocab * sizeof *t->rows);
    CHECK(engine_drafts(en) == DRAFTS_MOST && engine_saved_bytes(en), "%s: %u drafts", t->what, engine_drafts(en));
    pos = 0;
    for (uint32_t i = 0; i < 3; i++) {
        pos = all_ends(en, t, pos, i == 1);
        tried(en, t, pos, 1, 1); /* the next round begins at another offset */
        pos++;
    }
    CHECK(pos + MOST <= TOKENS, "%u positions", pos);
    return 0;
}

static void run(struct text *t, const char *model, struct cards_wanted want)
{
    struct engine_options o = {.model_path = model, .kv = KV_F16, .n_ctx = TOKENS + MOST, .threads = 2, .nodes = 1,
                               .want = want, .drafts = DRAFTS_MOST, .n_saved = 2};
    struct err e = {0};

    o.want.trunk = TRUNK_AUTO;
    CHECK(!engine_run(&o, body, t, &e), "%s: %s", t->what, e.msg);
}

int main(int argc, char **argv)
{
    static const char *const models[] = {"tests/golden/tiny/glm5next/model.gguf", "tests/golden/tiny/qwen35moe/model.gguf",
                                         "tests/demo/story-glm5next-f16.gguf"};
    const struct cards_wanted none = {.kind = CARDS_NONE}, emulated = {.kind = CARDS_EMULATED, .n = 1};
    struct cards_wanted real = {.kind = CARDS_LISTED, .n = 1};

    CHECK(!programs_find());
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct text t = {.what = models[i]};
        run(&t, models[i], none);
        run(&t, models[i], emulated);
        if (argc > 1) {
            real.card[0] = (uint32_t)strtoul(argv[1], NULL, 10);
            run(&t, models[i], real);
        }
        setenv("CONCLAVE_DIE", "step:61:0:2", 1);
        run(&t, models[i], argc > 1 ? real : emulated);
        unsetenv("CONCLAVE_DIE");
        free(t.rows);
    }
    return test_end();
}
