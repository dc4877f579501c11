/* conclave chat: a conversation in the terminal. The answer goes to standard output, the model's thoughts and
 * everything else to standard error. Ctrl-C stops an answer, which stays in the conversation as far as it
 * came; at the prompt it leaves. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "coordinator/chat/answer.h"
#include "coordinator/chat/chat.h"
#include "coordinator/cli/answer_flags.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/common.h"
#include "coordinator/cli/line_read.h"
#include "coordinator/cli/output.h"
#include "coordinator/cli/sample_flags.h"
#include "coordinator/cli/stop.h"
#include "coordinator/draft/decode.h"
#include "coordinator/model/tokenizer.h"

struct chat_flags {
    const char *system;
};

#define AT(x) offsetof(struct chat_flags, x)
static const struct flag chat_table[] = {
    {.name = "system|system-prompt",
     .letter = 'S',
     .arg = "TEXT",
     .group = "conversation",
     .kind = FLAG_STRING,
     .at = AT(system),
     .help = "the system message: what the model is told before the conversation"},
    {.kind = 0},
};

/* What of a recurrent model's conversation is saved for its next turn: where the prompt ended, for a template may
 * write a past answer otherwise than it was; where the answer did. */
enum chat_saved { CHAT_PROMPT, CHAT_ANSWER, CHAT_SAVED };

struct message {
    const char *role; /* static */
    char *content, *reasoning;
};

struct chat {
    struct engine_flags engine;
    struct chat_flags flags;
    struct template_flags how;
    struct answer_flags answers;
    struct sample_flags sampling;
    struct sample_settings settings;
    struct model *m;
    struct tokenizer *tok;
    struct chat_template *template;
    struct json_doc *kwargs;
    struct message *messages;
    size_t n_messages, cap;
    char *line; /* getline's */
    size_t line_cap;
    struct line_edit edit; /* in a terminal */
    int interrupted;       /* Ctrl-C at the prompt */

    /* inside the engine */
    struct engine *en;
    uint32_t *ids; /* engine_n_ctx: the prompt and the answer in work */
    struct token_list fed; /* tokens whose rows the engine has, from position 0 on */
    size_t saved[CHAT_SAVED]; /* of a recurrent model: before these positions of them its state is saved; 0: nowhere */
    char last_byte;
};

/* ---- the conversation ---- */

static int remember(struct chat *c, const char *role, const char *content, size_t n, const char *reasoning,
                    size_t reasoning_n, struct err *e)
{
    struct message m = {role, strndup(content, n), reasoning_n ? strndup(reasoning, reasoning_n) : NULL};

    if (c->n_messages == c->cap) {
        size_t cap = c->cap ? 2 * c->cap : 16;
        struct message *more = realloc(c->messages, cap * sizeof *more);

        if (more) {
            c->messages = more;
            c->cap = cap;
        }
    }
    if (!m.content || (reasoning_n && !m.reasoning) || c->n_messages == c->cap) {
        free(m.content);
        free(m.reasoning);
        return err_set(e, -ENOMEM, "no memory for the conversation");
    }
    c->messages[c->n_messages++] = m;
    return 0;
}

static void forget(struct chat *c, size_t from)
{
    while (c->n_messages > from) {
        free(c->messages[--c->n_messages].content);
        free(c->messages[c->n_messages].reasoning);
    }
}

/* Without the system message: how many there are before the conversation. */
static size_t beginning(const struct chat *c)
{
    return c->flags.system != NULL;
}

/* The prompt for all messages. */
static int render(const struct chat *c, struct chat_prompt *p, struct err *e)
{
    struct json *m = calloc(c->n_messages + 1, sizeof *m), *members = calloc(3 * c->n_messages + 1, sizeof *members);
    struct json all = {.kind = JSON_ARRAY, .items = m, .n = c->n_messages};
    struct chat_request q = {.messages = &all,
                             .kwargs = c->kwargs ? json_root(c->kwargs) : NULL,
                             .reasoning_effort = c->how.effort,
                             .thinking = template_flags_thinking(&c->how),
                             .keep_reasoning = c->how.keep_reasoning};
    time_t t = time(NULL);
    struct tm now;
    int rc;

    q.now = localtime_r(&t, &now);
    for (size_t i = 0; m && members && i < c->n_messages; i++) {
        const struct message *from = &c->messages[i];
        const char *const text[] = {from->role, from->content, from->reasoning};
        static const char *const keys[] = {"role", "content", "reasoning_content"};
        struct json *to = &members[3 * i];

        for (int k = 0; k < 3 && text[k]; k++)
            to[k] = (struct json){.kind = JSON_STRING, .text = text[k], .n = strlen(text[k]), .key = keys[k],
                                  .key_n = strlen(keys[k])};
        m[i] = (struct json){.kind = JSON_OBJECT, .items = to, .n = from->reasoning ? 3 : 2};
    }
    rc = m && members ? chat_render(c->template, &q, p, NULL, e) : err_set(e, -ENOMEM, "no memory for the conversation");
    free(m);
    free(members);
    return rc;
}

/* ---- reading ---- */

static int at_terminal(void)
{
    return isatty(0);
}

/* 1: *line is a line without its end, until the next one; 0: there is no more. */
static int read_line(struct chat *c, const char *prompt, const char **line, size_t *n)
{
    ssize_t got;

    if (line_can_read()) {
        enum line_state s = line_read(&c->edit, prompt);

        c->interrupted = s == LINE_BREAK;
        *line = c->edit.s;
        *n = c->edit.n;
        return s == LINE_DONE;
    }
    if (at_terminal())
        fprintf(stderr, "%s", prompt);
    fflush(stderr);
    got = getline(&c->line, &c->line_cap, stdin);
    if (got < 0)
        return 0;
    *n = (size_t)got;
    if (*n && c->line[*n - 1] == '\n')
        c->line[--*n] = 0;
    *line = c->line;
    return 1;
}

struct text {
    char *s;
    size_t n;
};

static int append(struct text *t, const char *s, size_t n, struct err *e)
{
    char *more;

    if (n > TOKENIZE_TEXT_MAX - t->n)
        return err_set(e, -E2BIG, "a message is too long, at most %d bytes work", TOKENIZE_TEXT_MAX);
    if (!(more = realloc(t->s, t->n + n + 2)))
        return err_set(e, -ENOMEM, "no memory for a message");
    t->s = more;
    if (n)
        memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = 0;
    return 0;
}

/* A message: a line; lines that end with a backslash and the one after them; or what stands between two lines
 * """. 1: it is in *out; 0: the end; < 0: an error. */
static int read_message(struct chat *c, struct text *out, struct err *e)
{
    static const char fence[] = "\"\"\"";
    int fenced = 0, first = 1, rc;
    const char *line;
    size_t n;

    *out = (struct text){NULL, 0};
    if ((rc = append(out, "", 0, e)))
        return rc;
    while (read_line(c, first ? "> " : ". ", &line, &n)) {
        int more = !fenced && n && line[n - 1] == '\\';

        if (first && !strcmp(line, fence)) {
            fenced = 1;
            first = 0;
            continue;
        }
        if (fenced && !strcmp(line, fence))
            return 1;
        if ((out->n && (rc = append(out, "\n", 1, e))) || (rc = append(out, line, n - (size_t)more, e)))
            return rc;
        first = 0;
        if (!more && !fenced)
            return 1;
    }
    return !first && !c->interrupted; /* the text ended within a message: that is one, too */
}

/* ---- answering ---- */

static int write_out(struct chat *c, const char *text, size_t n, struct err *e)
{
    if (!n)
        return 0;
    c->last_byte = text[n - 1];
    return output_bytes(1, "standard output", text, n, e);
}

/* What the answer has more than was shown: thoughts dimmed on stderr, content on stdout. */
struct shown {
    size_t thought, content;
};

static int show(struct chat *c, const struct answer *a, struct shown *s, struct err *e)
{
    size_t n, m;
    const char *thought = answer_reasoning(a, &n), *content = answer_content(a, &m);
    const char *dim = stderr_colour() ? "\033[2m" : "", *plain = *dim ? "\033[0m" : "";

    if (n > s->thought)
        fprintf(stderr, "%s%.*s%s", dim, (int)(n - s->thought), thought + s->thought, plain);
    s->thought = n;
    fflush(stderr);
    if (m > s->content && !s->content && n)
        fputs("\n\n", stderr);
    if (m > s->content && write_out(c, content + s->content, m - s->content, e))
        return -EIO;
    s->content = m;
    return 0;
}

static size_t common(const struct token_list *fed, const uint32_t *ids, size_t n)
{
    size_t k = 0;

    while (k < fed->n && k < n && fed->ids[k] == ids[k])
        k++;
    return k;
}

/* Of the prompt's n tokens, those that need not be read again: what stands of the text before, and of a recurrent
 * model what is saved of that. */
static size_t front(struct chat *c, size_t n)
{
    size_t stands = common(&c->fed, c->ids, n);
    int best = -1;

    if (!engine_saved_bytes(c->en))
        return stands;
    for (int i = 0; i < CHAT_SAVED; i++) {
        if (c->saved[i] > stands)
            c->saved[i] = 0;
        if (c->saved[i] && c->saved[i] < n && (best < 0 || c->saved[i] > c->saved[best])) /* the last row is wanted */
            best = i;
    }
    return best < 0 ? 0 : engine_restore(c->en, (uint32_t)best);
}

/* Behind what was handed out, of what was fed: the last step may have yielded more than the answer has. */
static void save(struct chat *c, const struct decode *d, enum chat_saved which)
{
    size_t pos = d->fed < d->given ? d->fed : d->given;

    if (!engine_saved_bytes(c->en) || !pos)
        return;
    engine_save(c->en, 0, (uint32_t)pos, which);
    c->saved[which] = pos;
}

/* What the engine has seen when d ends: all but the last token. */
static void note_fed(struct chat *c, const struct decode *d, int whole)
{
    size_t n = whole && d->n ? d->n - 1 : 0;
    uint32_t *ids;

    c->fed.n = 0;
    if (!n)
        return;
    if (n > c->fed.cap) {
        ids = realloc(c->fed.ids, n * sizeof *ids);
        if (!ids)
            return; /* then the next turn reads all of it */
        c->fed.ids = ids;
        c->fed.cap = n;
    }
    memcpy(c->fed.ids, d->ids, n * sizeof *d->ids);
    c->fed.n = n;
}

/* Tokens until the answer ends. why: what ended it. */
static int generate(struct chat *c, struct decode *d, struct answer *a, const char **why, struct err *e)
{
    int64_t left = c->answers.n_predict;
    struct shown shown = {0, 0};
    struct detok *detok = malloc(sizeof *detok);
    const char *text;
    uint32_t id;
    size_t n;
    int rc = detok ? 0 : err_set(e, -ENOMEM, "no memory for the answer");

    if (detok) {
        detok_init(detok, c->tok, 1, 0);
        detok->control_text = 1; /* calls and thoughts are told by their marks */
    }
    for (*why = "end"; !rc; left -= left > 0) {
        if (stop_asked() || !left || d->given == engine_n_ctx(c->en)) {
            *why = stop_asked() ? "stopped" : !left ? "length" : "context";
            break;
        }
        if ((rc = decode_next(d, &id, e)) || token_is_eog(c->tok, id))
            break;
        detok_push(detok, id, &text, &n);
        if (!(rc = answer_push(a, text, n, e)))
            rc = show(c, a, &shown, e);
    }
    if (!rc) {
        detok_flush(detok, &text, &n);
        if (!(rc = answer_push(a, text, n, e)) && !(rc = answer_end(a, e)))
            rc = show(c, a, &shown, e);
    }
    free(detok);
    return rc;
}

/* 0: it did not fit; that was said. */
static int fits(struct chat *c, const struct token_list *prompt)
{
    uint32_t n_ctx = engine_n_ctx(c->en);

    if (prompt->n < n_ctx)
        return 1;
    fprintf(stderr, "conclave: the conversation would have %zu tokens, but the context has %u (-c); the message is left "
            "out. /new begins another\n", prompt->n, n_ctx);
    return 0;
}

static void closing_line(const struct chat *c, const struct decode *d, size_t n_prompt, size_t kept, const char *why, double prompt_s,
                         double answer_s)
{
    const char *dim = stderr_colour() ? "\033[2m" : "", *plain = *dim ? "\033[0m" : "";
    size_t n = d->given - n_prompt;

    if (!strcmp(why, "context"))
        fprintf(stderr, "conclave: the answer ends here: the context of %u tokens is full (-c); /new begins another "
                "conversation\n", engine_n_ctx(c->en));
    fprintf(stderr, "%sconclave: prompt %zu tokens, %zu of them known, %.1f s; answer %zu tokens, %.1f tokens/s%s%s\n", dim,
            n_prompt, kept, prompt_s, n, n > 1 && answer_s > 0 ? (double)(n - 1) / answer_s : 0,
            !strcmp(why, "stopped") ? "; stopped" : !strcmp(why, "length") ? "; cut (-n)" : "", plain);
}

/* The prompt's tokens in c->ids, the answer behind it. */
static int answer_prompt(struct chat *c, const struct token_list *prompt, enum chat_start start, struct err *e)
{
    struct decode d = {0};
    struct answer_options o = {.format = chat_format(c->template), .start = start, .seed = c->settings.seed};
    struct decode_options how = {.drafts = answer_flags_drafts(&c->answers), .fixed = c->answers.draft >= 0};
    struct answer *a = NULL;
    const char *why = "stopped", *thought, *content;
    double t[3] = {seconds_now(), 0, 0};
    size_t n, m;
    int rc;

    memcpy(c->ids, prompt->ids, prompt->n * sizeof *c->ids);
    how.kept = front(c, prompt->n);
    if ((rc = answer_new(&o, &a, e)) || (rc = decode_open(&d, c->en, &c->settings, how, c->ids, prompt->n, e)))
        goto done;
    c->fed.n = 0;
    rc = decode_prompt(&d, stop_asked, e);
    t[1] = t[2] = seconds_now();
    if (!rc) {
        save(c, &d, CHAT_PROMPT);
        rc = generate(c, &d, a, &why, e);
        t[2] = seconds_now();
        note_fed(c, &d, !rc);
        if (!rc)
            save(c, &d, CHAT_ANSWER);
    }
    if (rc < 0)
        goto done;
    rc = 0;
    if (c->last_byte != '\n' && (rc = write_out(c, "\n", 1, e)))
        goto done;
    c->last_byte = '\n';
    closing_line(c, &d, prompt->n, how.kept < prompt->n ? how.kept : prompt->n - 1, why, t[1] - t[0], t[2] - t[1]);
    thought = answer_reasoning(a, &n);
    content = answer_content(a, &m);
    rc = remember(c, "assistant", content, m, thought, n, e);
done:
    decode_close(&d);
    answer_free(a);
    return rc;
}

/* One message more: 0, also when it did not fit or its template refused it (then it is left out). */
static int turn(struct chat *c, const struct text *message, struct err *e)
{
    struct token_list prompt = {0};
    struct chat_prompt p = {.start = CHAT_AUTO};
    struct err why = {0};
    size_t before = c->n_messages;
    int rc = remember(c, "user", message->s, message->n, NULL, 0, e);

    if (rc)
        return rc;
    rc = render(c, &p, &why);
    if (!rc)
        rc = chat_tokenize(c->tok, &p.text, c->how.allow_control, &prompt, &why);
    if (rc) {
        report_error(&why);
        forget(c, before);
        rc = rc == -ENOMEM ? err_set(e, rc, "%s", why.msg) : 0;
    } else if (!prompt.n) {
        fprintf(stderr, "conclave: the template makes an empty prompt of this; the message is left out\n");
        forget(c, before);
    } else if (!fits(c, &prompt)) {
        forget(c, before);
    } else {
        stop_may_ask(1);
        rc = answer_prompt(c, &prompt, p.start, e);
        stop_may_ask(0);
    }
    free(prompt.ids);
    chat_prompt_free(&p);
    return rc;
}

static void help(void)
{
    fprintf(stderr, "conclave: a message is a line; with \\ at its end it goes on in the next one; lines between two lines \"\"\"\n"
            "conclave: are one message. Ctrl-C stops an answer. /new begins another conversation, /undo takes the last\n"
            "conclave: message and answer back, /quit (Ctrl-D, or Ctrl-C here) leaves. Arrows up and down: earlier lines\n");
}

/* 1: it was a command. */
static int command(struct chat *c, const char *s, int *quit)
{
    if (!strcmp(s, "/quit") || !strcmp(s, "/exit"))
        *quit = 1;
    else if (!strcmp(s, "/new"))
        forget(c, beginning(c));
    else if (!strcmp(s, "/undo"))
        forget(c, c->n_messages >= beginning(c) + 2 ? c->n_messages - 2 : beginning(c));
    else if (!strcmp(s, "/help"))
        help();
    else
        return 0;
    return 1;
}

static int talk(struct chat *c, struct engine *en, struct err *e)
{
    int quit = 0, rc = 0;

    c->en = en;
    c->last_byte = '\n';
    c->ids = malloc((size_t)engine_n_ctx(en) * sizeof *c->ids);
    if (!c->ids)
        return err_set(e, -ENOMEM, "no memory for %u tokens", engine_n_ctx(en));
    sample_flags_print(c->engine.kv, &c->settings);
    if (at_terminal())
        help();
    while (!rc && !quit) {
        struct text message;

        rc = read_message(c, &message, e);
        if (rc <= 0) {
            free(message.s);
            break;
        }
        rc = 0;
        if (message.n && !command(c, message.s, &quit)) {
            rc = turn(c, &message, e);
            quit = stop_ends(); /* a signal that is no Ctrl-C */
            stop_forget();
        }
        free(message.s);
    }
    if (at_terminal())
        fputc('\n', stderr);
    return rc;
}

static int body(struct engine *en, void *arg, struct err *e)
{
    struct chat *c = arg;
    int rc = talk(c, en, e);

    engine_flags_processes(&c->engine, en);
    return rc < 0 ? 1 : c->interrupted ? 128 + SIGINT : stop_ends();
}

/* ---- before the engine ---- */

static int prepare(struct chat *c, struct err *e)
{
    char *source = NULL;
    size_t n = 0;
    int rc;

    if ((rc = model_open(c->engine.model, 0, &c->m, e)) || (rc = tokenizer_open(c->m->g, NULL, &c->tok, e)))
        return rc;
    if (c->how.kwargs && (rc = json_parse("--chat-template-kwargs", c->how.kwargs, strlen(c->how.kwargs), NULL, &c->kwargs, e)))
        return rc;
    if (c->how.template && (rc = input_text(c->how.template, &source, &n, e)))
        return rc;
    rc = chat_open_model(c->m->g, c->tok, c->how.template ? c->how.template : c->engine.model, source, n, &c->template, e);
    free(source);
    if (!rc && c->flags.system)
        rc = remember(c, "system", c->flags.system, strlen(c->flags.system), NULL, 0, e);
    return rc;
}

int cmd_chat(int argc, char **argv)
{
    struct chat c = {.flags = {NULL}};
    struct args a = {
        .verb = "chat",
        .about = "a conversation in the terminal",
        .usage = "-m MODEL [flags]",
        .notes = engine_flags_notes,
        .foreign = 1,
        .part = {{chat_table, &c.flags},
                 {template_flag_table, &c.how},
                 {answer_flag_table, &c.answers},
                 {sample_flag_table, &c.sampling},
                 {engine_flag_table, &c.engine},
                 {engine_run_table, &c.engine}},
    };
    struct engine_options o = {0};
    struct err e = {0};
    int status;

    answer_flags_init(&c.answers);
    sample_flags_init(&c.sampling);
    engine_flags_init(&c.engine);
    if (args_parse(&a, argc, argv, &status))
        return status;
    if (c.engine.stats)
        return args_usage("chat", "--stats is for one answer: conclave run has it");
    if (c.how.template && !strcmp(c.how.template, "-"))
        return args_usage("chat", "--chat-template -: standard input holds the messages; name a file");
    if (sample_flags_settings(&c.sampling, &c.settings, &e))
        return args_usage("chat", "%s", e.msg);
    status = 1;
    if (engine_flags_open(&c.engine, NULL, &e) || prepare(&c, &e))
        goto done;
    engine_flags_options(&c.engine, &o);
    answer_flags_options(&c.answers, &o);
    o.n_saved = CHAT_SAVED;
    status = engine_run(&o, body, &c, &e);
done:
    if (engine_flags_close(&c.engine, &e) && !status)
        status = 1;
    if (status == 1)
        report_error(&e);
    forget(&c, 0);
    free(c.messages);
    free(c.line);
    line_edit_free(&c.edit);
    free(c.ids);
    free(c.fed.ids);
    json_free(c.kwargs);
    chat_close(c.template);
    tokenizer_close(c.tok);
    model_close(c.m);
    return status;
}
