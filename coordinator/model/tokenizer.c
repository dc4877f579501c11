/* Cuts a text at its special tokens and hands the rest to BPE or SPM; and what is asked of a
 * loaded vocabulary. */
#include "coordinator/model/tokenizer.h"

#include <stdlib.h>

#include "coordinator/model/vocab.h"

enum { SCRATCH_KEEP = 1 << 20 }; /* bytes that are kept from call to call */

uint32_t tokenizer_n_vocab(const struct tokenizer *t)
{
    return t->n_tokens;
}

int64_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int64_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

int tokenizer_add_bos(const struct tokenizer *t)
{
    return t->add_bos;
}

int tokenizer_add_eos(const struct tokenizer *t)
{
    return t->add_eos;
}

int64_t tokenizer_find(const struct tokenizer *t, const char *text, size_t n)
{
    uint32_t id = vocab_find(t, text, n);

    return id == NO_TOKEN ? -1 : (int64_t)id;
}

int vocab_scratch(struct tokenizer *t, size_t n, struct err *e)
{
    char *p;

    if (n <= t->scratch_cap)
        return 0;
    if (!(p = realloc(t->scratch, n)))
        return err_set(e, -ENOMEM, "no memory for a text of %zu bytes", n);
    t->scratch = p;
    t->scratch_cap = n;
    return 0;
}

int token_append(struct token_list *out, uint32_t id, struct err *e)
{
    if (out->n == out->cap) {
        size_t cap = out->cap ? 2 * out->cap : 64;
        uint32_t *ids = realloc(out->ids, cap * sizeof *ids);

        if (!ids)
            return err_set(e, -ENOMEM, "no memory for %zu tokens", cap);
        out->ids = ids;
        out->cap = cap;
    }
    out->ids[out->n++] = id;
    return 0;
}

static int fragment(struct tokenizer *t, const char *text, size_t n, struct token_list *out,
                    struct err *e)
{
    if (!n)
        return 0;
    return t->rule ? bpe_fragment(t, text, n, out, e) : spm_fragment(t, text, n, out, e);
}

/* What is looked for in a text: names, or in marked text those that a mark allows. */
struct names {
    const struct special *any;
    const struct text_span *user;
    size_t n_user, k;
    int marked;
};

static int next_name(const struct tokenizer *t, struct names *s, const char *text, size_t p, size_t n, size_t *at,
                     size_t *len, uint32_t *id)
{
    if (s->marked)
        return special_find_outside(&t->all, &t->user, s->user, s->n_user, &s->k, text, p, n, at, len, id);
    return special_find(s->any, text, p, n, at, len, id);
}

static int pieces(struct tokenizer *t, const char *text, size_t n, struct names *names,
                  struct token_list *out, struct err *e)
{
    size_t p = 0, at, len;
    uint32_t id;
    int rc;

    while (next_name(t, names, text, p, n, &at, &len, &id)) {
        if ((rc = fragment(t, text + p, at - p, out, e)) < 0 || (rc = token_append(out, id, e)) < 0)
            return rc;
        p = at + len;
    }
    return fragment(t, text + p, n - p, out, e);
}

static int whole(struct tokenizer *t, const char *text, size_t n, int add_special, struct names *names,
                 struct token_list *out, struct err *e)
{
    int rc = 0;

    if (n > TOKENIZE_TEXT_MAX)
        return err_set(e, -E2BIG, "a text of %zu bytes is too long, at most %d work", n,
                       TOKENIZE_TEXT_MAX);
    if (add_special && t->add_bos)
        rc = token_append(out, (uint32_t)t->bos, e);
    if (rc >= 0)
        rc = pieces(t, text, n, names, out, e);
    if (rc >= 0 && add_special && t->add_eos)
        rc = token_append(out, (uint32_t)t->eos, e);
    merge_trim(&t->merger);
    if (t->scratch_cap > SCRATCH_KEEP) {
        free(t->scratch);
        t->scratch = NULL;
        t->scratch_cap = 0;
    }
    return rc;
}

int tokenize(struct tokenizer *t, const char *text, size_t n, int add_special, int parse_special,
             struct token_list *out, struct err *e)
{
    struct names names = {.any = parse_special ? &t->all : &t->user};

    return whole(t, text, n, add_special, &names, out, e);
}

int tokenize_marked(struct tokenizer *t, const char *text, size_t n, const struct text_span *user, size_t n_user,
                    int add_special, struct token_list *out, struct err *e)
{
    struct names names = {.user = user, .n_user = n_user, .marked = 1};

    return whole(t, text, n, add_special, &names, out, e);
}

void token_piece(const struct tokenizer *t, uint32_t id, int control_text, const char **bytes,
                 size_t *n)
{
    *bytes = "";
    *n = 0;
    if (id >= t->n_tokens)
        return;
    switch (t->tokens[id].type) {
    case TOKEN_UNDEFINED:
    case TOKEN_UNUSED:
        return;
    case TOKEN_CONTROL:
    case TOKEN_UNKNOWN:
        if (!control_text)
            return;
    }
    *bytes = t->tokens[id].piece;
    *n = t->tokens[id].piece_n;
}

int token_is_eog(const struct tokenizer *t, uint32_t id)
{
    return id < t->n_tokens && t->tokens[id].eog;
}
