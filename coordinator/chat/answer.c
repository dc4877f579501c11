/* Which part of a model's output is what. Every decision is made from bytes that are there, or at the end:
 * so it cannot depend on how they came. */
#include "coordinator/chat/answer_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/model/utf8.h"

enum state {
    AT_START,    /* blanks, then <think> or not */
    IN_THOUGHT,  /* up to </think> or a call */
    PAST_THOUGHT, /* blanks go */
    IN_CONTENT,
    AT_CALL,     /* a mark stands at `at`; a->from: what it would be text of */
    PAST_CALL,   /* up to the next call; other text goes */
    ONE_OBJECT,  /* llama: the whole answer may be a call */
    PLAIN,       /* content, and nothing else comes */
    OSS_HEADER,  /* gpt-oss: up to <|message|> */
    OSS_THOUGHT, OSS_CONTENT, OSS_CALL,
};

static const char think_open[] = "<think>", think_shut[] = "</think>", message_mark[] = "<|message|>";
static const char *const oss_ends[] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|channel|>", NULL};
enum { OSS_GOES = 3 }; /* the first so many are the end's own; the others begin a header */

/* ---- text ---- */

int text_add(struct text *t, const char *s, size_t n)
{
    if (t->cap - t->n <= n) {
        size_t cap = 2 * (t->n + n) + 64;
        char *more = realloc(t->s, cap);

        if (!more)
            return -ENOMEM;
        t->s = more;
        t->cap = cap;
    }
    if (n)
        memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = 0;
    return 0;
}

int text_add_utf8(struct text *t, const char *s, size_t n)
{
    int rc = 0;

    for (size_t p = 0, len; !rc && p < n; p += len)
        rc = utf8_next(s + p, n - p, &len) == UTF8_OK ? text_add(t, s + p, len) : text_add(t, "\xEF\xBF\xBD", 3);
    return rc ? rc : text_add(t, "", 0);
}

static int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Adds to `to`, and keeps back in `held` what may turn out to stand next to a tag. */
static int add_held(struct text *to, struct text *held, const char *s, size_t n, int newlines_only)
{
    size_t body = n;

    while (body && (newlines_only ? s[body - 1] == '\n' : is_blank(s[body - 1])))
        body--;
    if (body && (text_add(to, held->s, held->n) || text_add(to, s, body)))
        return -ENOMEM;
    if (body)
        held->n = 0;
    return text_add(held, s + body, n - body);
}

static int think(struct answer *a, const char *s, size_t n)
{
    while (n && !a->reasoning.n && !a->reasoning_held.n && *s == '\n') {
        s++;
        n--;
    }
    return n ? add_held(&a->reasoning, &a->reasoning_held, s, n, 1) : 0;
}

static int say(struct answer *a, const char *s, size_t n)
{
    if (!n)
        return 0;
    if (!a->calls_wanted)
        return text_add(&a->content, s, n);
    while (n && !a->content.n && !a->content_held.n && *s == '\n') {
        s++;
        n--;
    }
    return n ? add_held(&a->content, &a->content_held, s, n, 0) : 0;
}

static int put(struct answer *a, int is_thought, const char *s, size_t n)
{
    return is_thought ? think(a, s, n) : say(a, s, n);
}

/* ---- looking ahead ---- */

static const char *rest(const struct answer *a, size_t *n)
{
    *n = a->in.n - a->at;
    return a->in.s + a->at;
}

/* The first of the marks in s; its place and number, or -1 and the place from which on one may still come. */
static size_t find_mark(const char *s, size_t n, const char *const *marks, int ended, int *which)
{
    for (size_t i = 0; i < n; i++) {
        int may_be = 0;

        for (int m = 0; marks[m]; m++) {
            size_t len = strlen(marks[m]), k = n - i < len ? n - i : len;

            if (s[i] != marks[m][0] || memcmp(s + i, marks[m], k))
                continue;
            if (k == len) {
                *which = m;
                return i;
            }
            may_be = !ended;
        }
        if (may_be) {
            *which = -1;
            return i;
        }
    }
    *which = -1;
    return n;
}

/* 1: s begins with what; 0: it does not; -1: it may when more comes. */
static int begins(const char *s, size_t n, const char *what, int ended)
{
    size_t len = strlen(what);

    if (memcmp(s, what, n < len ? n : len))
        return 0;
    return n >= len ? 1 : ended ? 0 : -1;
}

/* ---- states: 1: go on, 0: more is needed, < 0: an error ---- */

static int go(struct answer *a, enum state s)
{
    a->state = s;
    return 1;
}

static enum state content_state(const struct answer *a)
{
    return !a->calls_wanted ? PLAIN : a->o.format == CHAT_LLAMA ? ONE_OBJECT : IN_CONTENT;
}

static int at_start(struct answer *a)
{
    size_t n, p = 0;
    const char *s = rest(a, &n);
    int is;

    while (p < n && is_blank(s[p]))
        p++;
    is = begins(s + p, n - p, think_open, a->ended);
    if (is < 0)
        return 0;
    if (is) {
        a->at += p + sizeof think_open - 1;
        return go(a, IN_THOUGHT);
    }
    return go(a, content_state(a));
}

/* A mark of a call, or </think> in a thought. */
static int in_text(struct answer *a)
{
    const char *marks[8] = {think_shut};
    const char *const *calls = call_marks(a->o.format);
    int thought = a->state == IN_THOUGHT, n_marks = thought, which, rc;
    size_t n, p;
    const char *s = rest(a, &n);

    while (a->calls_wanted && *calls)
        marks[n_marks++] = *calls++;
    marks[n_marks] = NULL;
    p = find_mark(s, n, marks, a->ended, &which);
    if (a->state != PAST_CALL && (rc = put(a, thought, s, p)))
        return rc;
    a->at += p;
    if (which < 0)
        return 0;
    if (thought && !which) {
        a->reasoning_held.n = 0;
        a->at += sizeof think_shut - 1;
        return go(a, PAST_THOUGHT);
    }
    a->from = a->state;
    a->scan = (struct json_scan){0};
    return go(a, AT_CALL);
}

static int past_thought(struct answer *a)
{
    while (a->at < a->in.n && is_blank(a->in.s[a->at]))
        a->at++;
    if (a->at == a->in.n && !a->ended)
        return 0;
    return go(a, content_state(a));
}

static int at_call(struct answer *a)
{
    ptrdiff_t r = call_read(a);
    size_t n, len;
    const char *s = rest(a, &n);
    int which, rc;

    if (r == -ENOMEM || r == CALL_MORE)
        return (int)r;
    if (r > 0) {
        a->reasoning_held.n = a->content_held.n = 0;
        a->at += (size_t)r;
        return go(a, PAST_CALL);
    }
    find_mark(s, n, call_marks(a->o.format), 1, &which);
    len = strlen(call_marks(a->o.format)[which]); /* no call: the mark is text, and what follows is looked at */
    rc = put(a, a->from == IN_THOUGHT, s, len);
    if (rc)
        return rc;
    a->at += len;
    return go(a, a->from == IN_THOUGHT ? IN_THOUGHT : IN_CONTENT);
}

static int one_object(struct answer *a)
{
    size_t n, p = 0;
    const char *s = rest(a, &n);
    int rc;

    while (p < n && is_blank(s[p]))
        p++;
    if (!a->ended && (p == n || s[p] == '{'))
        return 0;
    if (p < n && s[p] == '{') {
        if ((rc = call_add_object(a, s + p, n - p)) == -ENOMEM)
            return rc;
        if (rc > 0) {
            a->at += n;
            return go(a, PLAIN);
        }
    }
    return go(a, PLAIN);
}

static int plain(struct answer *a)
{
    size_t n;
    const char *s = rest(a, &n);

    a->at += n;
    return say(a, s, n);
}

/* ---- gpt-oss: <|start|>assistant ... <|channel|>NAME ...<|message|>TEXT<|end|> ---- */

static const char *find_text(const char *s, size_t n, const char *what)
{
    size_t len = strlen(what);

    for (size_t i = 0; i + len <= n; i++)
        if (!memcmp(s + i, what, len))
            return s + i;
    return NULL;
}

/* Output may begin in the middle of a header: behind "<|start|>assistant". */
static int may_be_header(const char *s, size_t n, int ended)
{
    return begins(s, n, "<|start|>", ended) || begins(s, n, "<|channel|>", ended) || begins(s, n, " to=", ended);
}

static int oss_header(struct answer *a)
{
    size_t n, head;
    const char *s = rest(a, &n), *m;
    int rc;

    if (!n)
        return 0;
    if (!may_be_header(s, n, a->ended))
        return go(a, OSS_CONTENT);
    m = find_text(s, n, message_mark);
    if (!m && !a->ended)
        return 0;
    if (!m)
        return go(a, OSS_CONTENT);
    head = (size_t)(m - s);
    if (a->calls_wanted && find_text(s, head, "to=")) {
        a->scan = (struct json_scan){.at = head + sizeof message_mark - 1};
        return go(a, OSS_CALL);
    }
    a->at += head + sizeof message_mark - 1;
    if (find_text(s, head, "analysis")) {
        rc = a->reasoning.n ? think(a, "\n\n", 2) : 0;
        return rc ? rc : go(a, OSS_THOUGHT);
    }
    rc = a->content.n ? say(a, "\n\n", 2) : 0;
    return rc ? rc : go(a, OSS_CONTENT);
}

static int oss_text(struct answer *a)
{
    int which, rc;
    size_t n, p;
    const char *s = rest(a, &n);

    p = find_mark(s, n, oss_ends, a->ended, &which);
    if ((rc = put(a, a->state == OSS_THOUGHT, s, p)))
        return rc;
    a->at += p;
    if (which < 0)
        return 0;
    if (which < OSS_GOES)
        a->at += strlen(oss_ends[which]);
    else if (!p && !find_text(s, n, message_mark)) { /* a header that never ends */
        if (!a->ended)
            return go(a, OSS_HEADER);
        a->at += strlen(oss_ends[which]);
        rc = put(a, a->state == OSS_THOUGHT, s, strlen(oss_ends[which]));
        return rc ? rc : 1;
    }
    return go(a, OSS_HEADER);
}

/* The message in work is a call: header and body stay in front of `at` until it is complete. */
static int oss_call(struct answer *a)
{
    size_t n, p, head, name_n = 0;
    const char *s = rest(a, &n), *name, *body;
    int which, rc;

    head = (size_t)(find_text(s, n, message_mark) - s);
    body = s + head + sizeof message_mark - 1;
    p = a->scan.at + find_mark(s + a->scan.at, n - a->scan.at, oss_ends, a->ended, &which);
    a->scan.at = p; /* where to go on when more has come */
    if (which < 0 && !a->ended)
        return 0;
    p -= (size_t)(body - s);
    name = find_text(s, head, "to=") + 3;
    if (begins(name, (size_t)(s + head - name), "functions.", 1))
        name += strlen("functions.");
    while (name + name_n < s + head && !is_blank(name[name_n]) && name[name_n] != '<')
        name_n++;
    rc = call_add_json(a, name, name_n, NULL, 0, body, p);
    if (rc == -ENOMEM)
        return rc;
    if (rc > 0)
        a->content_held.n = 0;
    else if (say(a, s, (size_t)(body - s) + p))
        return -ENOMEM;
    a->at += (size_t)(body - s) + p;
    if (which >= 0 && which < OSS_GOES)
        a->at += strlen(oss_ends[which]);
    return go(a, OSS_HEADER);
}

/* ---- the ways in ---- */

static int run_state(struct answer *a)
{
    switch ((enum state)a->state) {
    case AT_START:
        return at_start(a);
    case IN_THOUGHT:
    case IN_CONTENT:
    case PAST_CALL:
        return in_text(a);
    case PAST_THOUGHT:
        return past_thought(a);
    case AT_CALL:
        return at_call(a);
    case ONE_OBJECT:
        return one_object(a);
    case PLAIN:
        return plain(a);
    case OSS_HEADER:
        return oss_header(a);
    case OSS_THOUGHT:
    case OSS_CONTENT:
        return oss_text(a);
    case OSS_CALL:
        return oss_call(a);
    }
    return 0;
}

static int run(struct answer *a, struct err *e)
{
    int rc;

    do
        rc = run_state(a);
    while (rc > 0);
    if (rc)
        return err_set(e, rc, "no memory for the answer");
    if (a->at) { /* what is settled goes */
        memmove(a->in.s, a->in.s + a->at, a->in.n - a->at + 1);
        a->in.n -= a->at;
        a->at = 0;
    }
    return 0;
}

int answer_new(const struct answer_options *o, struct answer **out, struct err *e)
{
    struct answer *a = calloc(1, sizeof *a);

    if (!a)
        return err_set(e, -ENOMEM, "no memory for the answer");
    a->o = *o;
    a->calls_wanted = o->format != CHAT_PLAIN && o->tools && o->tools->kind == JSON_ARRAY && o->tools->n;
    a->state = o->format == CHAT_GPT_OSS     ? OSS_HEADER
               : o->start == CHAT_REASONING ? IN_THOUGHT
               : o->start == CHAT_CONTENT   ? content_state(a)
                                            : AT_START;
    if (text_add(&a->in, "", 0) || text_add(&a->reasoning, "", 0) || text_add(&a->content, "", 0) ||
        text_add(&a->reasoning_held, "", 0) || text_add(&a->content_held, "", 0)) {
        answer_free(a);
        return err_set(e, -ENOMEM, "no memory for the answer");
    }
    *out = a;
    return 0;
}

void answer_free(struct answer *a)
{
    if (!a)
        return;
    free(a->in.s);
    free(a->reasoning.s);
    free(a->content.s);
    free(a->reasoning_held.s);
    free(a->content_held.s);
    for (size_t i = 0; i < a->n_calls; i++) {
        free(a->calls[i].id);
        free(a->calls[i].name);
        free(a->calls[i].arguments);
    }
    free(a->calls);
    free(a);
}

int answer_push(struct answer *a, const char *text, size_t n, struct err *e)
{
    if (text_add(&a->in, text, n))
        return err_set(e, -ENOMEM, "no memory for the answer");
    return run(a, e);
}

int answer_end(struct answer *a, struct err *e)
{
    int rc;

    a->ended = 1;
    rc = run(a, e);
    if (rc)
        return rc;
    /* nothing stands behind it: it stays; text behind the last call does not */
    if (text_add(&a->reasoning, a->reasoning_held.s, a->reasoning_held.n) ||
        text_add(&a->content, a->content_held.s, a->content_held.n))
        return err_set(e, -ENOMEM, "no memory for the answer");
    a->reasoning_held.n = a->content_held.n = 0;
    return 0;
}

const char *answer_reasoning(const struct answer *a, size_t *n)
{
    *n = a->reasoning.n;
    return a->reasoning.s;
}

const char *answer_content(const struct answer *a, size_t *n)
{
    *n = a->content.n;
    return a->content.s;
}

size_t answer_n_calls(const struct answer *a)
{
    return a->n_calls;
}

const struct answer_call *answer_call(const struct answer *a, size_t i)
{
    return &a->calls[i];
}
