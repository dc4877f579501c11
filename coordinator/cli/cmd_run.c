/* conclave run: goes on from a text. The answer goes to standard output token by token, everything
 * else to standard error. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/cli/answer_flags.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/common.h"
#include "coordinator/cli/escape.h"
#include "coordinator/cli/grammar_flags.h"
#include "coordinator/cli/output.h"
#include "coordinator/cli/sample_flags.h"
#include "coordinator/cli/stop.h"
#include "coordinator/cli/value.h"
#include "coordinator/draft/decode.h"
#include "coordinator/model/tokenizer.h"
#include "coordinator/sample/sample.h"

struct run_flags {
    const char *prompt, *file;
    int escape, no_echo, ignore_eos, warm_first;
};

#define AT(x) offsetof(struct run_flags, x)
static const struct flag run_table[] = {
    {.name = "prompt",
     .letter = 'p',
     .arg = "TEXT",
     .group = "text",
     .kind = FLAG_STRING,
     .at = AT(prompt),
     .help = "the text to go on from; its bytes as they are"},
    {.name = "file",
     .letter = 'f',
     .arg = "FILE",
     .kind = FLAG_STRING,
     .at = AT(file),
     .help = "read the text from FILE (without -p and -f, or with -: standard input)"},
    {.name = "escape|process-escapes",
     .letter = 'e',
     .kind = FLAG_ON,
     .at = AT(escape),
     .help = "in the text, \\n \\r \\t \\\" \\' \\\\ \\xHH stand for one byte"},
    {.name = "ignore-eos",
     .kind = FLAG_ON,
     .at = AT(ignore_eos),
     .help = "never choose a token that ends the answer"},
    {.name = "no-display-prompt",
     .kind = FLAG_ON,
     .at = AT(no_echo),
     .help = "write the answer alone, without the prompt before it"},
    {.name = "warm-first",
     .kind = FLAG_ON,
     .at = AT(warm_first),
     .help = "where not all experts fit: read those that earlier runs used most before the first token, "
             "with a bar, and not beside it"},
    {.kind = 0},
};

struct run {
    struct engine_flags engine;
    struct run_flags flags;
    struct answer_flags answers;
    struct sample_flags sampling;
    struct sample_settings settings;
    struct sample_bias *never; /* with --ignore-eos */
    struct grammar_flags asked;
    struct grammar_vocab *vocab;
    struct grammar *grammar; /* NULL: any text */
    struct model *m;           /* for the tokenizer, before the engine opens its own */
    struct tokenizer *tok;
    char *text; /* the prompt */
    size_t text_n;
    struct token_list ids; /* the prompt, then the answer */
    size_t n_prompt;

    /* inside the engine */
    struct engine *en;
    struct decode decode;
    struct detok detok;
    char last_byte;  /* of what was written */
    const char *why; /* the answer ended: "end of text", "length", "context", "stopped" */
    struct phase prompt_phase, answer_phase;
};

/* ---- before the engine ---- */

static int read_prompt(struct run *r, struct err *e)
{
    const struct run_flags *f = &r->flags;

    if (f->prompt) {
        r->text_n = strlen(f->prompt);
        r->text = malloc(r->text_n + 1);
        if (!r->text)
            return err_set(e, -ENOMEM, "no memory for the prompt");
        memcpy(r->text, f->prompt, r->text_n + 1);
    } else {
        int rc;

        if ((!f->file || !strcmp(f->file, "-")) && isatty(0))
            fprintf(stderr, "conclave: the prompt is read from the terminal, until Ctrl-D\n");
        rc = input_text(f->file, &r->text, &r->text_n, e);
        if (rc)
            return rc;
    }
    if (f->escape)
        r->text_n = unescape(r->text, r->text_n);
    return 0;
}

/* What can be known without loading a weight: the prompt, and that it fits. */
static int prepare(struct run *r, struct err *e)
{
    uint32_t n_ctx;
    int rc;

    if ((rc = model_open(r->engine.model, 0, &r->m, e)) ||
        (rc = tokenizer_open(r->m->g, NULL, &r->tok, e)) || (rc = read_prompt(r, e)) ||
        (rc = tokenize(r->tok, r->text, r->text_n, 1, 1, &r->ids, e)))
        return rc;
    r->n_prompt = r->ids.n;
    if (!r->n_prompt)
        return err_set(e, -EINVAL,
                       "the prompt is empty, and this model has no BOS token to begin with; "
                       "give some text with -p");
    n_ctx = r->answers.n_ctx ? r->answers.n_ctx : r->m->n_ctx_train;
    if (r->n_prompt > n_ctx)
        return err_set(e, -E2BIG,
                       "the prompt has %zu tokens, but the context %u; %s", r->n_prompt, n_ctx,
                       r->answers.n_ctx ? "a larger -c is needed" : "it is the model's largest: shorten it");
    if (grammar_flags_given(&r->asked) &&
        (rc = grammar_flags_open(&r->asked, r->tok, r->m->n_vocab, &r->vocab, &r->grammar, e)))
        return rc;
    if (gguf_kind(r->m->g, "tokenizer.chat_template") >= 0)
        fprintf(stderr,
                "conclave: this model has a chat template; run does not apply it, it goes on from "
                "the raw text (conclave chat applies it)\n");
    return 0;
}

/* A bias of minus infinity for all tokens that end an answer. */
static int never_end(struct run *r, struct err *e)
{
    uint32_t n_vocab = tokenizer_n_vocab(r->tok);
    size_t n = 0;

    for (uint32_t id = 0; id < n_vocab; id++)
        n += (size_t)token_is_eog(r->tok, id);
    r->never = malloc((n + 1) * sizeof *r->never);
    if (!r->never)
        return err_set(e, -ENOMEM, "no memory");
    for (uint32_t id = 0; id < n_vocab; id++)
        if (token_is_eog(r->tok, id))
            r->never[r->settings.n_bias++] = (struct sample_bias){id, -INFINITY};
    r->settings.bias = r->never;
    return 0;
}

/* ---- inside the engine ---- */

static int write_text(struct run *r, const char *text, size_t n, struct err *e)
{
    if (!n)
        return 0;
    r->last_byte = text[n - 1];
    return output_bytes(1, "standard output", text, n, e);
}

/* One token more, written. 1: the answer ends with it. */
static int choose(struct run *r, struct err *e)
{
    uint32_t id;
    const char *text;
    size_t n;
    int rc = decode_next(&r->decode, &id, e);

    if (rc)
        return rc;
    r->ids.n++;
    if (token_is_eog(r->tok, id) && !r->flags.ignore_eos)
        return 1;
    detok_push(&r->detok, id, &text, &n);
    return write_text(r, text, n, e);
}

static int answer(struct run *r, struct err *e)
{
    uint32_t n_ctx = engine_n_ctx(r->en);
    int64_t left = r->answers.n_predict;

    for (;; left -= left > 0) {
        int rc;

        if (stop_asked() || !left || r->ids.n == n_ctx) {
            r->why = stop_asked() ? "stopped" : !left ? "length" : "context";
            return 0;
        }
        rc = choose(r, e);
        if (rc < 0)
            return rc;
        if (rc || (r->grammar && r->decode.given == r->decode.n && grammar_ended(r->grammar))) {
            r->why = "end of text";
            return 0;
        }
    }
}

static double per_second(uint64_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

/* Tokens of the answer that the answer's own steps made: the first one came with the prompt. */
static uint64_t in_steps(size_t n_answer)
{
    return n_answer ? n_answer - 1 : 0;
}

/* "; drafts ..." for the closing line: how many were right, what they gained. */
static const char *draft_text(const struct run *r, char *out, size_t cap)
{
    const struct decode *d = &r->decode;
    uint64_t drafted = 0, right = 0;
    int n;

    *out = 0;
    for (int j = 0; j < DRAFT_PLACES; j++) {
        drafted += d->count.drafted[j];
        right += d->count.right[j];
    }
    if (!drafted)
        return out;
    n = snprintf(out, cap, "; drafts %llu of %llu right, %.2f tokens a step", (unsigned long long)right,
                 (unsigned long long)drafted, decode_yield(d));
    if (decode_gain(d) > 0)
        n += snprintf(out + n, cap - (size_t)n, ", %.2f times as fast", decode_gain(d));
    if (d->count.went_off)
        snprintf(out + n, cap - (size_t)n, ", off %s as they cost more than they gain",
                 draft_pays_off(d->pays) ? "in the end," : "at times,");
    return out;
}

/* Times are the answer's; with no answer, the prompt's. */
static void closing_line(const struct run *r, size_t n_answer)
{
    const struct phase *a = &r->answer_phase, *p = n_answer ? a : &r->prompt_phase;
    const char *dim = stderr_colour() ? "\033[2m" : "", *plain = *dim ? "\033[0m" : "";
    uint64_t tokens = n_answer ? n_answer : r->n_prompt;
    char size[32], drafts[200];

    if (isatty(1) && r->last_byte != '\n')
        (void)!write(1, "\n", 1);
    if (!strcmp(r->why, "context"))
        fprintf(stderr, "conclave: the text ends here: the context of %u tokens is full (-c)\n",
                engine_n_ctx(r->en));
    fprintf(stderr,
            "%sconclave: prompt %zu tokens, %.1f tokens/s; answer %zu tokens, %.1f tokens/s; "
            "experts %.3f s, trunk %.3f s, waiting %.3f s, other %.3f s; %s a token from the file%s; seed "
            "%llu%s\n",
            dim, r->n_prompt, per_second(r->n_prompt, r->prompt_phase.wall), n_answer,
            per_second(in_steps(n_answer), a->wall), p->experts, p->trunk, p->waiting, p->rest,
            value_show_size(p->bytes_read / (tokens ? tokens : 1), size), draft_text(r, drafts, sizeof drafts),
            (unsigned long long)r->settings.seed, plain);
}

static void put(struct json_out *j, const char *key, double v)
{
    json_key(j, key);
    json_put_f64(j, v);
}

static void put_counts(struct json_out *j, const char *key, const uint64_t *n)
{
    json_key(j, key);
    json_open_array(j);
    for (int i = 0; i < DRAFT_PLACES && n[i]; i++)
        json_put_u64(j, n[i]);
    json_close_array(j);
}

static void put_drafts(struct json_out *j, const struct decode *d)
{
    uint64_t right = 0;

    for (int i = 0; i < DRAFT_PLACES; i++)
        right += d->count.right[i];
    json_key(j, "drafts");
    json_open_object(j);
    put(j, "most", d->o.drafts);
    put(j, "steps", (double)d->count.steps);
    put(j, "accepted", (double)right);
    put_counts(j, "looked_at", d->count.drafted);
    put_counts(j, "right", d->count.right);
    put(j, "tokens_per_step", decode_yield(d));
    put(j, "gain", decode_gain(d));
    put(j, "draft_ms", 1e3 * d->count.draft_s);
    put(j, "went_off", (double)d->count.went_off);
    put(j, "now", d->o.fixed ? d->o.drafts : d->pays->now);
    json_close_object(j);
}

static int write_stats(struct run *r, size_t n_answer, const struct engine_stats *s, struct err *e)
{
    struct json_out *j = json_out_new(1);
    const struct sample_settings *set = &r->settings;
    const char *text;
    size_t n;
    int rc;

    if (!j)
        return err_set(e, -ENOMEM, "no memory for --stats");
    json_open_object(j);
    json_key(j, "command");
    json_put_str(j, "run");
    stats_put_engine(j, &r->engine, engine_model(r->en), engine_n_ctx(r->en), s);
    json_key(j, "sampling");
    json_open_object(j);
    put(j, "temp", set->temp);
    put(j, "top_k", set->top_k);
    put(j, "top_p", set->top_p);
    put(j, "min_p", set->min_p);
    put(j, "repeat_penalty", set->repeat);
    put(j, "frequency_penalty", set->frequency);
    put(j, "presence_penalty", set->presence);
    put(j, "repeat_last_n", set->last_n);
    json_key(j, "seed");
    json_put_u64(j, set->seed);
    json_close_object(j);
    json_key(j, "stop");
    json_put_str(j, r->why);
    json_key(j, "timings");
    json_open_object(j);
    put(j, "prompt_n", (double)r->n_prompt);
    put(j, "prompt_ms", 1e3 * r->prompt_phase.wall);
    put(j, "prompt_per_second", per_second(r->n_prompt, r->prompt_phase.wall));
    put(j, "predicted_n", (double)n_answer);
    put(j, "predicted_ms", 1e3 * r->answer_phase.wall);
    put(j, "predicted_per_second", per_second(in_steps(n_answer), r->answer_phase.wall));
    json_close_object(j);
    stats_put_phase(j, "prompt", &r->prompt_phase, r->n_prompt);
    stats_put_phase(j, "answer", &r->answer_phase, in_steps(n_answer));
    put_drafts(j, &r->decode);
    json_close_object(j);
    rc = json_text(j, &text, &n, e);
    if (!rc && !(rc = output_write(&r->engine.stats_file, text, n, e)))
        rc = output_write(&r->engine.stats_file, "\n", 1, e);
    json_out_free(j);
    return rc;
}

static int check_in_engine(struct run *r, struct err *e)
{
    struct decode_options how = {.drafts = answer_flags_drafts(&r->answers), .fixed = r->answers.draft >= 0, .grammar = r->grammar};
    size_t room = r->n_prompt, n_ctx = engine_n_ctx(r->en);
    uint32_t *ids;

    if (r->n_prompt > n_ctx)
        return err_set(e, -E2BIG, "the prompt has %zu tokens, but the context that fits %zu",
                       r->n_prompt, n_ctx);
    for (size_t i = 0; i < r->n_prompt; i++)
        if (r->ids.ids[i] >= engine_model(r->en)->n_vocab)
            return err_set(e, -EINVAL,
                           "token %u of the prompt is not in the model, which has %u tokens",
                           r->ids.ids[i], engine_model(r->en)->n_vocab);
    room = n_ctx; /* the text never gets longer */
    ids = realloc(r->ids.ids, room * sizeof *ids);
    if (!ids)
        return err_set(e, -ENOMEM, "no memory for %zu tokens", room);
    r->ids.ids = ids;
    return decode_open(&r->decode, r->en, &r->settings, how, ids, r->n_prompt, e);
}

static int go_on(struct run *r, struct engine *en, struct err *e)
{
    struct engine_stats s[3];
    double t[3];
    const char *text;
    size_t n;
    int rc;

    r->en = en;
    detok_init(&r->detok, r->tok, 0, 0);
    rc = check_in_engine(r, e);
    if (rc)
        return 1;
    sample_flags_print(r->engine.kv, &r->settings);
    if (!r->flags.no_echo && write_text(r, r->text, r->text_n, e))
        return 1;
    engine_stats(en, &s[0]);
    t[0] = seconds_now();
    if (decode_prompt(&r->decode, stop_asked, e) < 0)
        return 1;
    t[1] = seconds_now();
    engine_stats(en, &s[1]);
    rc = answer(r, e);
    detok_flush(&r->detok, &text, &n);
    if (rc || write_text(r, text, n, e))
        return 1;
    t[2] = seconds_now();
    engine_stats(en, &s[2]);
    r->prompt_phase = phase_between(&s[0], &s[1], t[1] - t[0]);
    r->answer_phase = phase_between(&s[1], &s[2], t[2] - t[1]);
    closing_line(r, r->ids.n - r->n_prompt);
    engine_flags_processes(&r->engine, en);
    if (r->engine.stats && write_stats(r, r->ids.n - r->n_prompt, &s[2], e))
        return 1;
    return stop_asked();
}

static int body(struct engine *en, void *arg, struct err *e)
{
    int status;

    stop_may_ask(1);
    status = go_on(arg, en, e);
    stop_may_ask(0);
    return status;
}

int cmd_run(int argc, char **argv)
{
    struct run r = {.why = NULL};
    struct args a = {
        .verb = "run",
        .about = "go on from a text",
        .usage = "-m MODEL [-p TEXT | -f FILE | < TEXT] [flags]",
        .notes = engine_flags_notes,
        .foreign = 1,
        .part = {{run_table, &r.flags},
                 {answer_flag_table, &r.answers},
                 {sample_flag_table, &r.sampling},
                 {grammar_flag_table, &r.asked},
                 {engine_flag_table, &r.engine},
                 {engine_run_table, &r.engine}},
    };
    struct engine_options o = {0};
    struct err e = {0};
    int status;

    answer_flags_init(&r.answers);
    sample_flags_init(&r.sampling);
    engine_flags_init(&r.engine);
    if (args_parse(&a, argc, argv, &status))
        return status;
    if (r.flags.prompt && r.flags.file)
        return args_usage("run", "-p and -f exclude each other; give one of them");
    if (grammar_flags_check(&r.asked, "run"))
        return 2;
    if (sample_flags_settings(&r.sampling, &r.settings, &e))
        return args_usage("run", "%s", e.msg);
    status = 1;
    if (engine_flags_open(&r.engine, NULL, &e) || prepare(&r, &e) ||
        (r.flags.ignore_eos && never_end(&r, &e)))
        goto done;
    engine_flags_options(&r.engine, &o);
    answer_flags_options(&r.answers, &o);
    o.warm_first = r.flags.warm_first;
    status = engine_run(&o, body, &r, &e);
done:
    if (engine_flags_close(&r.engine, &e) && !status)
        status = 1;
    if (status == 1)
        report_error(&e);
    decode_close(&r.decode);
    grammar_close(r.grammar);
    grammar_vocab_free(r.vocab);
    free(r.never);
    free(r.ids.ids);
    free(r.text);
    tokenizer_close(r.tok);
    model_close(r.m);
    return status;
}
