/* Byte-level BPE: a fragment is cut into words, a word begins as its bytes' tokens, and the pair
 * with the lowest rank merges until none is left. */
#include <string.h>

#include "coordinator/model/alphabet.h"
#include "coordinator/model/utf8.h"
#include "coordinator/model/vocab.h"

enum { SHORT_WORD = 32 }; /* bytes up to which a plain search for the minimum is the faster way */

static int pair_of(const void *ctx, const char *word, const struct symbol *l,
                   const struct symbol *r, uint32_t *key, uint32_t *id)
{
    const struct pair_slot *p = vocab_pair(ctx, l->id, r->id);

    (void)word; /* ids say it all */
    if (!p)
        return 0;
    *key = p->rank;
    *id = p->id;
    return 1;
}

static int long_word(struct tokenizer *t, const char *w, size_t n, struct token_list *out,
                     struct err *e)
{
    struct merger *m = &t->merger;
    int rc = merge_reserve(m, n, e);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++)
        m->sym[i] =
            (struct symbol){.at = (uint32_t)i, .n = 1, .id = t->byte_ids[(unsigned char)w[i]]};
    if ((rc = merge_all(m, w, pair_of, t, e)) < 0)
        return rc;
    for (uint32_t i = 0; i != NO_SYMBOL; i = m->sym[i].next)
        if (m->sym[i].id != NO_TOKEN && (rc = token_append(out, m->sym[i].id, e)) < 0)
            return rc;
    return 0;
}

/* The same result: rank[i] belongs to the pair (id[i], id[i + 1]). */
static int short_word(const struct tokenizer *t, const char *w, size_t n, struct token_list *out,
                      struct err *e)
{
    const struct pair_slot *pair[SHORT_WORD];
    uint32_t id[SHORT_WORD];
    int rc;

    for (size_t i = 0; i < n; i++)
        id[i] = t->byte_ids[(unsigned char)w[i]];
    for (size_t i = 0; i + 1 < n; i++)
        pair[i] = vocab_pair(t, id[i], id[i + 1]);
    for (;;) {
        size_t best = n;

        for (size_t i = 0; i + 1 < n; i++)
            if (pair[i] && (best == n || pair[i]->rank < pair[best]->rank))
                best = i;
        if (best == n)
            break;
        id[best] = pair[best]->id;
        n--;
        memmove(id + best + 1, id + best + 2, (n - best - 1) * sizeof *id);
        if (best + 1 < n) {
            memmove(pair + best + 1, pair + best + 2, (n - best - 2) * sizeof *pair);
            pair[best] = vocab_pair(t, id[best], id[best + 1]);
        }
        if (best)
            pair[best - 1] = vocab_pair(t, id[best - 1], id[best]);
    }
    for (size_t i = 0; i < n; i++)
        if (id[i] != NO_TOKEN && (rc = token_append(out, id[i], e)) < 0)
            return rc;
    return 0;
}

/* The token whose text is the whole word, written in the byte alphabet. */
static uint32_t whole_word(const struct tokenizer *t, const char *w, size_t n)
{
    char text[TOKEN_TEXT_MAX + 2];
    size_t k = 0;

    if (n > t->longest)
        return NO_TOKEN;
    for (size_t i = 0; i < n && k <= t->longest; i++)
        k += alphabet_of_byte((unsigned char)w[i], text + k);
    return vocab_find(t, text, k);
}

static int word(struct tokenizer *t, const char *w, size_t n, struct token_list *out, struct err *e)
{
    if (t->rule->ignore_merges) {
        uint32_t id = whole_word(t, w, n);

        if (id != NO_TOKEN)
            return token_append(out, id, e);
    }
    return n <= SHORT_WORD ? short_word(t, w, n, out, e) : long_word(t, w, n, out, e);
}

/* Where text stops being UTF-8; n: nowhere. */
static size_t valid_until(const char *text, size_t n)
{
    size_t p = 0, len;

    while (p < n && utf8_next(text + p, n - p, &len) == UTF8_OK)
        p += len;
    return p;
}

/* Every byte that begins no character becomes U+FFFD, in t->scratch. */
static int repair(struct tokenizer *t, const char **text, size_t *n, struct err *e)
{
    size_t good = valid_until(*text, *n), p, len, k;
    int rc;

    if (good == *n)
        return 0;
    if ((rc = vocab_scratch(t, good + 3 * (*n - good), e)) < 0)
        return rc;
    memcpy(t->scratch, *text, good);
    for (p = k = good; p < *n; p += len) {
        if (utf8_next(*text + p, *n - p, &len) == UTF8_OK) {
            memcpy(t->scratch + k, *text + p, len);
            k += len;
        } else {
            memcpy(t->scratch + k, "\xEF\xBF\xBD", 3);
            k += 3;
            len = 1;
        }
    }
    *text = t->scratch;
    *n = k;
    return 0;
}

int bpe_fragment(struct tokenizer *t, const char *text, size_t n, struct token_list *out,
                 struct err *e)
{
    struct split s;
    size_t at, len;
    int rc = repair(t, &text, &n, e);

    if (rc < 0)
        return rc;
    split_init(&s, t->rule, text, n);
    while (split_next(&s, &at, &len))
        if ((rc = word(t, text + at, len, out, e)) < 0)
            return rc;
    return 0;
}
