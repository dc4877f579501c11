/* conclave eval: the logits of given tokens, for comparing engines bit by bit. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/cli/commands.h"
#include "coordinator/cli/common.h"
#include "coordinator/cli/output.h"
#include "coordinator/sample/sample.h"
#include "coordinator/trunk/dump.h"

struct eval_flags {
    const char *tokens, *logits, *nextn, *dump;
    uint32_t n_ctx, greedy;
};

#define AT(x) offsetof(struct eval_flags, x)
static const struct flag eval_table[] = {
    {.name = "tokens",
     .arg = "LIST",
     .group = "what",
     .kind = FLAG_STRING,
     .at = AT(tokens),
     .required = 1,
     .help = "token ids, separated by commas or spaces; nothing is added"},
    {.name = "logits",
     .arg = "OUT",
     .kind = FLAG_STRING,
     .at = AT(logits),
     .help =
         "write the logits to OUT: little-endian f32, one row of the vocabulary's size a position"},
    {.name = "nextn",
     .arg = "OUT",
     .kind = FLAG_STRING,
     .at = AT(nextn),
     .help = "write the NextN block's logits to OUT, in the same form: row p is made from position p and the "
             "token after it (the last row: the most likely one)"},
    {.name = "dump",
     .arg = "DIR",
     .kind = FLAG_STRING,
     .at = AT(dump),
     .help = "write the named buffers of every position to DIR/index.json and DIR/tensors.bin"},
    {.name = "greedy",
     .arg = "N",
     .kind = FLAG_U32,
     .at = AT(greedy),
     .max = 1 << 24,
     .shown = "0",
     .help = "go on with N most likely tokens (the lowest id wins a tie) and print their ids, on "
             "one line"},
    {.name = "ctx-size",
     .letter = 'c',
     .arg = "N",
     .kind = FLAG_U32,
     .at = AT(n_ctx),
     .min = 1,
     .max = 1 << 30,
     .shown = "what the tokens need",
     .help = "tokens of the context"},
    {.kind = 0},
};

struct eval {
    struct engine_flags engine;
    struct eval_flags flags;
    uint32_t *ids; /* the tokens, then room for the greedy ones */
    size_t n;
    struct output logits, nextn;
    struct engine *en;
    struct step_token *pass;
    uint32_t *rows;
    struct sample_scratch scratch;
    double wall;
};

/* "1,2 3": 0, or a line. Hands over e->ids with room for the greedy tokens. */
static int read_tokens(struct eval *v, struct err *e)
{
    static const char between[] = ", \t\r\n";
    const char *at = v->flags.tokens;

    v->ids = malloc((strlen(at) / 2 + 2 + v->flags.greedy) * sizeof *v->ids);
    if (!v->ids)
        return err_set(e, -ENOMEM, "no memory for the tokens");
    for (at += strspn(at, between); *at; at += strspn(at, between)) {
        uint64_t id = 0;
        size_t n = strspn(at, "0123456789");

        for (size_t i = 0; i < n && id <= UINT32_MAX; i++)
            id = 10 * id + (uint64_t)(at[i] - '0');
        if (!n || id > UINT32_MAX || (at[n] && !strchr(between, at[n])))
            return err_set(e, -EINVAL, "--tokens: entry %zu, '%.*s', is no token id", v->n + 1,
                           (int)(strcspn(at, between) < 40 ? strcspn(at, between) : 40), at);
        v->ids[v->n++] = (uint32_t)id;
        at += n;
        if (at[strspn(at, between)] == 0 && strchr(at, ','))
            return err_set(e, -EINVAL, "--tokens: nothing after the last comma");
        if (strspn(at, between) > 1 && memchr(at, ',', strspn(at, between)) !=
                                           memrchr(at, ',', strspn(at, between)))
            return err_set(e, -EINVAL, "--tokens: nothing between two commas after entry %zu", v->n);
    }
    if (!v->n)
        return err_set(e, -EINVAL, "--tokens: the list is empty");
    return 0;
}

/* What can be known without loading a weight. */
static int prepare(struct eval *v, struct err *e)
{
    size_t more = v->flags.greedy ? v->flags.greedy - 1 : 0; /* the last one is not read again */
    size_t need = v->n + (v->flags.nextn && !more ? 1 : more); /* nor is the NextN block's last row */
    const struct result own[2] = {{"--logits", v->flags.logits}, {"--nextn", v->flags.nextn}};
    struct model *m;
    int rc = model_open(v->engine.model, 0, &m, e);

    if (rc)
        return rc;
    if (v->flags.nextn && !m->n_nextn)
        rc = err_set(e, -EINVAL, "--nextn: %s has no NextN block", v->engine.model);
    for (size_t i = 0; !rc && i < v->n; i++)
        if (v->ids[i] >= m->n_vocab)
            rc = err_set(e, -EINVAL,
                         "--tokens: entry %zu, %u, is not in the vocabulary of %u tokens", i + 1,
                         v->ids[i], m->n_vocab);
    model_close(m);
    if (rc)
        return rc;
    if (!v->flags.n_ctx)
        v->flags.n_ctx = need < UINT32_MAX ? (uint32_t)need : UINT32_MAX;
    if (need > v->flags.n_ctx)
        return err_set(e, -E2BIG,
                       "%zu tokens and %u more do not fit into the context of %u; a larger -c is "
                       "needed",
                       v->n, v->flags.greedy, v->flags.n_ctx);
    if ((v->flags.logits && output_open(&v->logits, v->flags.logits, e)) ||
        (v->flags.nextn && output_open(&v->nextn, v->flags.nextn, e)) ||
        (v->flags.dump && output_folder(v->flags.dump, e)) ||
        engine_flags_open(&v->engine, own, e))
        return -1;
    return 0;
}

/* ---- inside the engine ---- */

/* The most likely token of a row. */
static int best(struct eval *v, const float *logits, uint32_t *id, struct err *e)
{
    struct sample_settings first;

    sample_defaults(&first);
    first.temp = 0; /* rule 37: the first of the order */
    return sample_token(&first, logits, v->scratch.n_vocab, v->ids, v->n, NULL, &v->scratch, id, e);
}

/* The NextN block's rows behind a pass of the trunk over k tokens from at on; last: the trunk's last row. */
static int read_nextn(struct eval *v, size_t at, uint32_t k, const float *last, struct err *e)
{
    struct step s = {.n_tokens = k, .n_out = k, .token = v->pass, .out = v->rows, .pass = STEP_DRAFT};
    size_t n_vocab = engine_model(v->en)->n_vocab;
    const float *logits;
    uint32_t id, zero = 0;

    for (uint32_t i = 0; i < k; i++) {
        if (at + i + 1 < v->n)
            id = v->ids[at + i + 1];
        else if (best(v, last, &id, e))
            return -1;
        v->pass[i] = (struct step_token){id, (uint32_t)(at + i), 0};
    }
    logits = engine_draft(v->en, &s);
    if (!logits)
        return err_set(e, -EIO, "--nextn: the worker that had the block's rows died: run it again");
    if (output_write(&v->nextn, logits, k * n_vocab * sizeof *logits, e))
        return -1;
    if (at + k < v->n || !v->flags.dump)
        return 0;
    if (best(v, logits + (k - 1) * n_vocab, &id, e)) /* one further row, for its buffers' sake */
        return -1;
    v->pass[0] = (struct step_token){id, (uint32_t)v->n, 0};
    s = (struct step){.n_tokens = 1, .n_out = 1, .token = v->pass, .out = &zero, .pass = STEP_CHAIN};
    engine_draft(v->en, &s);
    return 0;
}

/* All given tokens, a row of logits each. *last: the last row, valid until the next step. */
static int read_in(struct eval *v, const float **last, struct err *e)
{
    uint32_t most = engine_max_tokens(v->en), out = engine_max_out(v->en);
    size_t n_vocab = engine_model(v->en)->n_vocab;

    if (most > out)
        most = out;
    engine_foresee(v->en, v->ids, v->n, 0, 0);
    for (size_t at = 0; at < v->n;) {
        struct step s = {.token = v->pass, .out = v->rows};

        for (; s.n_tokens < most && at < v->n; at++) {
            v->rows[s.n_tokens] = s.n_tokens;
            v->pass[s.n_tokens++] = (struct step_token){v->ids[at], (uint32_t)at, 0};
        }
        s.n_out = s.n_tokens;
        *last = engine_step(v->en, &s);
        if (v->flags.logits &&
            output_write(&v->logits, *last, s.n_out * n_vocab * sizeof **last, e))
            return -1;
        *last += (s.n_out - 1) * n_vocab;
        if (v->flags.nextn && read_nextn(v, at - s.n_tokens, s.n_tokens, *last, e))
            return -1;
    }
    return 0;
}

static int go_on(struct eval *v, const float *logits, struct err *e)
{
    uint32_t zero = 0;

    for (uint32_t i = 0; i < v->flags.greedy; i++) {
        struct step s = {.n_tokens = 1, .n_out = 1, .token = v->pass, .out = &zero};
        size_t at = v->n + i;

        if (best(v, logits, &v->ids[at], e))
            return -1;
        if (i + 1 == v->flags.greedy)
            break;
        v->pass[0] = (struct step_token){v->ids[at], (uint32_t)at, 0};
        logits = engine_step(v->en, &s);
    }
    return 0;
}

static int print_greedy(const struct eval *v, struct err *e)
{
    for (uint32_t i = 0; i < v->flags.greedy; i++)
        printf(i ? ",%u" : "%u", v->ids[v->n + i]);
    putchar('\n');
    if (fflush(stdout) || ferror(stdout))
        return err_set(e, -EIO, "cannot write to standard output: %s", strerror(errno));
    return 0;
}

static int write_stats(struct eval *v, struct err *e)
{
    struct json_out *j = json_out_new(1);
    struct engine_stats s;
    const char *text;
    size_t n;
    int rc;

    if (!j)
        return err_set(e, -ENOMEM, "no memory for --stats");
    engine_stats(v->en, &s);
    json_open_object(j);
    json_key(j, "command");
    json_put_str(j, "eval");
    stats_put_engine(j, &v->engine, engine_model(v->en), engine_n_ctx(v->en), &s);
    json_key(j, "n_tokens");
    json_put_u64(j, v->n);
    json_key(j, "wall_ms");
    json_put_f64(j, 1e3 * v->wall);
    json_close_object(j);
    rc = json_text(j, &text, &n, e);
    if (!rc && !(rc = output_write(&v->engine.stats_file, text, n, e)))
        rc = output_write(&v->engine.stats_file, "\n", 1, e);
    json_out_free(j);
    return rc;
}

static int evaluate(struct eval *v, struct dump *dump, struct err *e)
{
    const struct model *m = engine_model(v->en);
    const float *last = NULL;
    double start = seconds_now();

    v->pass = malloc(engine_max_tokens(v->en) * sizeof *v->pass);
    v->rows = malloc(engine_max_tokens(v->en) * sizeof *v->rows);
    if (!v->pass || !v->rows || (v->flags.dump && !dump))
        return err_set(e, -ENOMEM, "no memory for a pass of %u tokens", engine_max_tokens(v->en));
    if (sample_scratch_init(&v->scratch, m->n_vocab, e))
        return -1;
    engine_dump(v->en, dump, (uint32_t)v->n);
    if (read_in(v, &last, e))
        return -1;
    engine_dump(v->en, NULL, 0);
    if (dump && dump_write(dump, v->flags.dump, model_arch_name(m), kv_name(v->engine.kv),
                           m->n_vocab, v->ids, v->n, e))
        return -1;
    if (v->flags.greedy && (go_on(v, last, e) || print_greedy(v, e)))
        return -1;
    v->wall = seconds_now() - start;
    engine_flags_processes(&v->engine, v->en);
    return v->engine.stats ? write_stats(v, e) : 0;
}

static int body(struct engine *en, void *arg, struct err *e)
{
    struct eval *v = arg;
    struct dump *dump = v->flags.dump ? dump_open() : NULL;
    int rc;

    v->en = en;
    rc = evaluate(v, dump, e);
    dump_close(dump);
    return rc != 0;
}

int cmd_eval(int argc, char **argv)
{
    struct eval v = {.logits = {.fd = -1}, .nextn = {.fd = -1}};
    struct args a = {
        .verb = "eval",
        .about = "the logits of given tokens",
        .usage = "-m MODEL --tokens 1,2,3 [--logits OUT] [--dump DIR] [--greedy N] [flags]",
        .notes = engine_flags_notes,
        .foreign = 1,
        .part = {{eval_table, &v.flags}, {engine_flag_table, &v.engine}, {engine_run_table, &v.engine}},
    };
    struct engine_options o = {.every_row = 1};
    struct err e = {0};
    int status;

    engine_flags_init(&v.engine);
    if (args_parse(&a, argc, argv, &status))
        return status;
    if (!v.flags.logits && !v.flags.nextn && !v.flags.dump && !v.flags.greedy && !v.engine.record_routes)
        return args_usage("eval", "nothing to do: give --logits OUT, --nextn OUT, --dump DIR, --greedy N or --record-routes FILE");
    if (read_tokens(&v, &e)) {
        status = args_usage("eval", "%s", e.msg);
        free(v.ids);
        return status;
    }
    status = 1;
    if (!prepare(&v, &e)) {
        engine_flags_options(&v.engine, &o);
        o.warm_first = 1; /* cards are filled first: what lies where does not depend on who was quicker */
        o.n_ctx = v.flags.n_ctx;
        o.trunk_here = v.flags.dump ? "--dump" : NULL;
        o.drafts = v.flags.nextn != NULL;
        status = engine_run(&o, body, &v, &e);
    }
    if (output_close(&v.logits, &e) || output_close(&v.nextn, &e) || engine_flags_close(&v.engine, &e))
        status = 1;
    if (status == 1)
        report_error(&e);
    sample_scratch_free(&v.scratch);
    free(v.pass);
    free(v.rows);
    free(v.ids);
    return status;
}
