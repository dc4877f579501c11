/* Text is cut by stop texts before it is told apart: what a client forbids is forbidden in thoughts, too. */
#include "coordinator/serve/api/turn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int turn_open(struct turn *t, const struct request *r, enum chat_format format, const struct tokenizer *tok,
              uint32_t choice, struct err *e)
{
    struct answer_options o = {.format = format,
                               .start = r->split_reasoning ? r->start : CHAT_CONTENT,
                               .tools = r->tools,
                               .seed = r->settings.seed + choice};

    *t = (struct turn){.r = r, .tok = tok, .word = -1, .keep = r->n_probs >= 0 || r->return_tokens};
    t->detok = malloc(sizeof *t->detok);
    if (!t->detok)
        return err_set(e, -ENOMEM, "no memory for an answer");
    detok_init(t->detok, tok, 1, 0);
    t->detok->control_text = r->chat != NULL; /* calls and thoughts are told by their marks */
    return r->chat ? answer_new(&o, &t->answer, e) : 0;
}

void turn_close(struct turn *t)
{
    free(t->detok);
    answer_free(t->answer);
    free(t->text);
    free(t->token);
    *t = (struct turn){.word = -1};
}

static int append(struct turn *t, const char *s, size_t n, struct err *e)
{
    if (t->n + n > t->cap) {
        size_t cap = 2 * (t->n + n) + 256;
        char *more = realloc(t->text, cap);

        if (!more)
            return err_set(e, -ENOMEM, "no memory for an answer of %zu bytes", cap);
        t->text = more;
        t->cap = cap;
    }
    if (n)
        memcpy(t->text + t->n, s, n);
    t->n += n;
    return 0;
}

static int keep(struct turn *t, const struct job_token *token, struct err *e)
{
    if (!t->keep)
        return 0;
    if (t->n_kept == t->cap_kept) {
        size_t cap = t->cap_kept ? 2 * t->cap_kept : 32;
        struct turn_token *more = realloc(t->token, cap * sizeof *more);

        if (!more)
            return err_set(e, -ENOMEM, "no memory for the tokens of an answer");
        t->token = more;
        t->cap_kept = cap;
    }
    t->token[t->n_kept++] = (struct turn_token){*token, t->n};
    return 0;
}

/* Gives out what is certain. 1: a stop text is complete; what it is made of goes. */
static int give(struct turn *t, int whole, struct err *e)
{
    size_t at, which = 0, from = t->given;
    int found = stops_find(&t->r->stops, t->text, t->n, from, whole, &at, &which), rc = 0;

    t->given = at;
    if (t->answer && at > from)
        rc = answer_push(t->answer, t->text + from, at - from, e);
    if (!found || rc)
        return rc;
    t->word = (int)which;
    t->n = at;
    while (t->n_kept && t->token[t->n_kept - 1].at >= at)
        t->n_kept--;
    return 1;
}

int turn_push(struct turn *t, const struct job_token *token, struct err *e)
{
    const char *text;
    size_t n;
    int rc;

    t->n_tokens++;
    if ((rc = keep(t, token, e)))
        return rc;
    detok_push(t->detok, token->id, &text, &n);
    if ((rc = append(t, text, n, e)))
        return rc;
    return give(t, 0, e);
}

int turn_end(struct turn *t, uint32_t stop, struct err *e)
{
    const char *text = "";
    size_t n = 0;
    int rc = 0;

    if (t->word < 0) {
        detok_flush(t->detok, &text, &n);
        if ((rc = append(t, text, n, e)) || (rc = give(t, 1, e)) < 0)
            return rc;
    }
    if (!t->answer)
        return 0;
    /* gpt-oss ends a call with the token that ends its answer */
    if (t->word < 0 && stop != UINT32_MAX) {
        token_piece(t->tok, stop, 1, &text, &n);
        if (n == 8 && !memcmp(text, "<|call|>", n) && (rc = answer_push(t->answer, text, n, e)))
            return rc;
    }
    return answer_end(t->answer, e);
}

size_t turn_certain(const struct turn *t, int whole)
{
    size_t n = t->n_kept;

    while (!whole && n && t->token[n - 1].at >= t->given)
        n--;
    return n;
}
