/* Streaming text back: characters may be cut anywhere between tokens, but never between writes. */
#include <assert.h>
#include <string.h>

#include "coordinator/model/utf8.h"
#include "coordinator/model/vocab.h"

void detok_init(struct detok *d, const struct tokenizer *t, int replace_invalid, int from_start)
{
    d->t = t;
    d->replace_invalid = replace_invalid;
    d->control_text = 0;
    d->drop_space = from_start && !t->rule && t->add_space_prefix;
    d->n_held = 0;
}

/* Moves text through the check into d->buf; the rest that may still become a character is held. */
static size_t give_out(struct detok *d, const char *text, size_t n)
{
    size_t p = 0, k = 0, len;

    while (p < n) {
        enum utf8 u = utf8_next(text + p, n - p, &len);

        if (u == UTF8_SHORT)
            break;
        if (u == UTF8_BAD && d->replace_invalid) {
            memcpy(d->buf + k, "\xEF\xBF\xBD", 3);
            k += 3;
        } else {
            memcpy(d->buf + k, text + p, len);
            k += len;
        }
        p += len;
    }
    d->n_held = n - p;
    memcpy(d->held, text + p, n - p); /* at most 3 bytes */
    return k;
}

void detok_push(struct detok *d, uint32_t id, const char **out, size_t *n)
{
    char text[TOKEN_TEXT_MAX + 4];
    const char *piece;
    size_t piece_n;

    token_piece(d->t, id, d->control_text, &piece, &piece_n);
    if (d->drop_space && piece_n && id != d->t->bos) {
        d->drop_space = 0;
        if (piece[0] == ' ') {
            piece++;
            piece_n--;
        }
    }
    assert(piece_n <= TOKEN_TEXT_MAX && d->n_held < 4);
    memcpy(text, d->held, d->n_held);
    memcpy(text + d->n_held, piece, piece_n);
    *n = give_out(d, text, d->n_held + piece_n);
    *out = (const char *)d->buf;
}

void detok_flush(struct detok *d, const char **out, size_t *n)
{
    *out = (const char *)d->buf;
    *n = 0;
    if (d->n_held && d->replace_invalid) {
        memcpy(d->buf, "\xEF\xBF\xBD", 3);
        *n = 3;
    } else if (d->n_held) {
        memcpy(d->buf, d->held, d->n_held);
        *n = d->n_held;
    }
    d->n_held = 0;
}
