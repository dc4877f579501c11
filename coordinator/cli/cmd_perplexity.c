/* conclave perplexity: how surprised the model is by a text, by llama.cpp's method, so that the
 * numbers compare: windows of C tokens, each alone from position 0, scored from their middle on. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/cli/commands.h"
#include "coordinator/cli/common.h"
#include "coordinator/cli/output.h"
#include "coordinator/model/tokenizer.h"
#include "kernels/func/hostmath.h"
#include "kernels/logprob/logprob.h"

struct perplexity_flags {
    const char *file;
    uint32_t n_ctx;
};

#define AT(x) offsetof(struct perplexity_flags, x)
enum { WINDOW_MIN = 4 }; /* the shortest that scores a token */
static const struct flag perplexity_table[] = {
    {.name = "file",
     .letter = 'f',
     .arg = "TEXT",
     .group = "text",
     .kind = FLAG_STRING,
     .at = AT(file),
     .required = 1,
     .help = "the text (-: standard input)"},
    {.name = "ctx-size",
     .letter = 'c',
     .arg = "N",
     .kind = FLAG_U32,
     .at = AT(n_ctx),
     .min = WINDOW_MIN,
     .max = 1 << 24,
     .help = "tokens of a window"},
    {.kind = 0},
};

struct perplexity {
    struct engine_flags engine;
    struct perplexity_flags flags;
    struct token_list ids;
    int64_t bos; /* in place of each window's first token; -1: not */
    struct engine *en;
    struct step_token *pass;
    uint32_t *rows;
    double sum, squares; /* of the log probabilities: rule 34's chain; for the spread */
    uint64_t scored;
    double wall;
};

static int prepare(struct perplexity *p, struct err *e)
{
    struct model *m = NULL;
    struct tokenizer *t = NULL;
    char *text = NULL;
    size_t n;
    int rc;

    /* as llama.cpp does: BOS where the file asks for it, names of control tokens are text */
    if (!(rc = model_open(p->engine.model, 0, &m, e)) &&
        !(rc = tokenizer_open(m->g, NULL, &t, e)) &&
        !(rc = input_text(p->flags.file, &text, &n, e)) &&
        !(rc = tokenize(t, text, n, 1, 0, &p->ids, e))) {
        p->bos = tokenizer_add_bos(t) ? tokenizer_bos(t) : -1;
        if (p->ids.n < p->flags.n_ctx)
            rc = err_set(e, -EINVAL,
                         "%s has %zu tokens, but a window %u; a longer text or a smaller -c is "
                         "needed",
                         p->flags.file, p->ids.n, p->flags.n_ctx);
        for (size_t i = 0; !rc && i < p->ids.n; i++)
            if (p->ids.ids[i] >= m->n_vocab)
                rc = err_set(e, -EINVAL,
                             "token %u of the text is not in the model, which has %u tokens",
                             p->ids.ids[i], m->n_vocab);
    }
    free(text);
    tokenizer_close(t);
    model_close(m);
    return rc;
}

/* ---- inside the engine ---- */

/* Adds the log probability of the token after each position whose row was asked for. */
static int score(struct perplexity *p, const struct step *s, const float *logits, size_t window,
                 struct err *e)
{
    size_t n_vocab = engine_model(p->en)->n_vocab;

    for (uint32_t i = 0; i < s->n_out; i++) {
        size_t next = window * p->flags.n_ctx + s->token[s->out[i]].pos + 1;
        double lp = logprob(logits + i * n_vocab, n_vocab, p->ids.ids[next]);

        if (isnan(lp))
            return err_set(e, -EDOM,
                           "no probability at token %zu of the text: the logits are not finite",
                           next);
        p->sum += lp;
        p->squares += lp * lp;
        p->scored++;
    }
    return 0;
}

static int one_window(struct perplexity *p, size_t window, struct err *e)
{
    uint32_t most = engine_max_tokens(p->en), n_ctx = p->flags.n_ctx, first = n_ctx / 2;
    const uint32_t *ids = p->ids.ids + window * n_ctx;

    if (most > engine_max_out(p->en))
        most = engine_max_out(p->en);
    engine_foresee(p->en, ids, n_ctx, 0, 0);
    for (uint32_t at = 0; at < n_ctx - 1;) { /* the last token has no successor in its window */
        struct step s = {.token = p->pass, .out = p->rows};

        for (; s.n_tokens < most && at < n_ctx - 1; at++) {
            if (at >= first)
                p->rows[s.n_out++] = s.n_tokens;
            p->pass[s.n_tokens++] =
                (struct step_token){!at && p->bos >= 0 ? (uint32_t)p->bos : ids[at], at, 0};
        }
        if (score(p, &s, engine_step(p->en, &s), window, e))
            return -1;
    }
    return 0;
}

static double figure(const struct perplexity *p)
{
    return h_exp(-(p->sum / (double)p->scored));
}

/* Over texts, not over engines: the standard error of the mean, as llama.cpp prints it. */
static double spread(const struct perplexity *p)
{
    double n = (double)p->scored, mean = p->sum / n, variance = p->squares / n - mean * mean;

    return n > 1 && variance > 0 ? figure(p) * sqrt(variance / (n - 1)) : 0;
}

static int write_stats(struct perplexity *p, size_t windows, struct err *e)
{
    struct json_out *j = json_out_new(1);
    struct engine_stats s;
    const char *text;
    size_t n;
    int rc;

    if (!j)
        return err_set(e, -ENOMEM, "no memory for --stats");
    engine_stats(p->en, &s);
    json_open_object(j);
    json_key(j, "command");
    json_put_str(j, "perplexity");
    stats_put_engine(j, &p->engine, engine_model(p->en), engine_n_ctx(p->en), &s);
    json_key(j, "windows");
    json_put_u64(j, windows);
    json_key(j, "scored");
    json_put_u64(j, p->scored);
    json_key(j, "perplexity");
    json_put_f64(j, figure(p));
    json_key(j, "wall_ms");
    json_put_f64(j, 1e3 * p->wall);
    json_close_object(j);
    rc = json_text(j, &text, &n, e);
    if (!rc && !(rc = output_write(&p->engine.stats_file, text, n, e)))
        rc = output_write(&p->engine.stats_file, "\n", 1, e);
    json_out_free(j);
    return rc;
}

static int evaluate(struct perplexity *p, struct err *e)
{
    size_t windows = p->ids.n / p->flags.n_ctx;
    double start = seconds_now();

    p->pass = malloc(engine_max_tokens(p->en) * sizeof *p->pass);
    p->rows = malloc(engine_max_tokens(p->en) * sizeof *p->rows);
    if (!p->pass || !p->rows)
        return err_set(e, -ENOMEM, "no memory for a pass of %u tokens", engine_max_tokens(p->en));
    for (size_t w = 0; w < windows; w++) {
        if (one_window(p, w, e))
            return -1;
        if (isatty(2))
            fprintf(stderr, "\rwindow %zu of %zu: %.5f ", w + 1, windows, figure(p));
    }
    if (isatty(2))
        fputc('\n', stderr);
    p->wall = seconds_now() - start;
    fprintf(stderr,
            "conclave: %zu windows of %u tokens, %llu scored, kv %s: perplexity %.5f +/- %.5f; "
            "%.1f tokens/s\n",
            windows, p->flags.n_ctx, (unsigned long long)p->scored, kv_name(p->engine.kv),
            figure(p), spread(p), (double)(windows * p->flags.n_ctx) / p->wall);
    printf("%.5f\n", figure(p));
    if (fflush(stdout) || ferror(stdout))
        return err_set(e, -EIO, "cannot write to standard output: %s", strerror(errno));
    engine_flags_processes(&p->engine, p->en);
    return p->engine.stats ? write_stats(p, windows, e) : 0;
}

static int body(struct engine *en, void *arg, struct err *e)
{
    struct perplexity *p = arg;

    p->en = en;
    return evaluate(p, e) != 0;
}

int cmd_perplexity(int argc, char **argv)
{
    struct perplexity p = {.flags = {.n_ctx = 512}};
    struct args a = {
        .verb = "perplexity",
        .about = "how surprised the model is by a text (less is better)",
        .usage = "-m MODEL -f TEXT [-c 512] [flags]",
        .notes = engine_flags_notes,
        .foreign = 1,
        .part = {{perplexity_table, &p.flags}, {engine_flag_table, &p.engine}, {engine_run_table, &p.engine}},
    };
    struct engine_options o = {.every_row = 1};
    struct err e = {0};
    int status;

    engine_flags_init(&p.engine);
    if (args_parse(&a, argc, argv, &status))
        return status;
    status = 1;
    if (!engine_flags_open(&p.engine, NULL, &e) && !prepare(&p, &e)) {
        engine_flags_options(&p.engine, &o);
        o.n_ctx = p.flags.n_ctx;
        status = engine_run(&o, body, &p, &e);
    }
    if (engine_flags_close(&p.engine, &e))
        status = 1;
    if (status == 1)
        report_error(&e);
    free(p.pass);
    free(p.rows);
    free(p.ids.ids);
    return status;
}
