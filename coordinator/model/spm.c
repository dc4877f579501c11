/* SentencePiece-style merging: a fragment is one word, its symbols are characters, and the pair
 * whose joined text is the token with the highest score merges first. */
#include <string.h>

#include "coordinator/model/vocab.h"

/* A smaller key for a higher score; equal scores (0 and -0 too) have equal keys. */
static uint32_t key_of_score(float score)
{
    uint32_t u;

    score += 0.0f; /* -0 becomes +0 */
    memcpy(&u, &score, sizeof u);
    return u >> 31 ? u : ~u & 0x7FFFFFFF;
}

static int pair_of(const void *ctx, const char *word, const struct symbol *l,
                   const struct symbol *r, uint32_t *key, uint32_t *id)
{
    const struct tokenizer *t = ctx;

    *id = vocab_find(t, word + l->at, (size_t)l->n + r->n);
    if (*id == NO_TOKEN)
        return 0;
    *key = key_of_score(t->tokens[*id].score);
    return 1;
}

/* Bytes that a lead byte promises; nobody checks whether they follow. */
static size_t promised(unsigned char lead)
{
    return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/* A space in front, and every space as U+2581, in t->scratch. */
static int rewrite(struct tokenizer *t, const char **text, size_t *n, struct err *e)
{
    static const char space[3] = "\xE2\x96\x81";
    size_t n_spaces = t->add_space_prefix != 0, k = 0;
    int rc;

    for (size_t i = 0; i < *n; i++)
        n_spaces += (*text)[i] == ' ';
    if ((rc = vocab_scratch(t, *n + 3 * n_spaces, e)) < 0)
        return rc;
    if (t->add_space_prefix) {
        memcpy(t->scratch, space, 3);
        k = 3;
    }
    for (size_t i = 0; i < *n; i++) {
        if ((*text)[i] == ' ') {
            memcpy(t->scratch + k, space, 3);
            k += 3;
        } else {
            t->scratch[k++] = (*text)[i];
        }
    }
    *text = t->scratch;
    *n = k;
    return 0;
}

int spm_fragment(struct tokenizer *t, const char *text, size_t n, struct token_list *out,
                 struct err *e)
{
    struct merger *m = &t->merger;
    size_t n_sym = 0;
    int rc;

    if ((rc = rewrite(t, &text, &n, e)) < 0)
        return rc;
    for (size_t p = 0; p < n; p += promised((unsigned char)text[p]))
        n_sym++;
    if ((rc = merge_reserve(m, n_sym, e)) < 0)
        return rc;
    for (size_t p = 0, i = 0; p < n; i++) {
        size_t len = promised((unsigned char)text[p]);

        if (len > n - p)
            len = n - p;
        m->sym[i] = (struct symbol){.at = (uint32_t)p, .n = (uint32_t)len};
        m->sym[i].id = vocab_find(t, text + p, len);
        p += len;
    }
    if ((rc = merge_all(m, text, pair_of, t, e)) < 0)
        return rc;
    for (uint32_t i = 0; i != NO_SYMBOL; i = m->sym[i].next) {
        const struct symbol *s = &m->sym[i];

        if (s->id != NO_TOKEN) {
            if ((rc = token_append(out, s->id, e)) < 0)
                return rc;
            continue;
        }
        for (uint32_t b = 0; b < s->n; b++) {
            uint32_t id = t->byte_ids[(unsigned char)text[s->at + b]];

            if (id != NO_TOKEN && (rc = token_append(out, id, e)) < 0)
                return rc;
        }
    }
    return 0;
}
