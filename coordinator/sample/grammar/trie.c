/* Sorted tokens make a trie in one pass: what two neighbours share is their common front. */
#define _GNU_SOURCE /* qsort_r */
#include "coordinator/sample/grammar/trie.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/model/utf8.h"
#include "coordinator/sample/grammar.h"

static size_t piece_n(const struct grammar_vocab *v, uint32_t t)
{
    return v->piece[t + 1] - v->piece[t];
}

static int by_bytes(const void *a, const void *b, void *arg)
{
    const struct grammar_vocab *v = arg;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    size_t nx = piece_n(v, x), ny = piece_n(v, y);
    int c = memcmp(v->bytes + v->piece[x], v->bytes + v->piece[y], nx < ny ? nx : ny);

    if (!c)
        c = nx < ny ? -1 : nx > ny;
    return c ? c : x < y ? -1 : x > y;
}

/* Of the tokens in t->token, sorted. path: the node at each depth. */
static int build(const struct grammar_vocab *v, struct trie *t, struct err *e)
{
    size_t nodes = 0, path_n = 0;
    struct trie_node *less;
    uint32_t *path = malloc((v->longest + 1) * sizeof *path);
    const char *last = NULL;

    for (size_t i = 0; i < t->n_tokens; i++)
        nodes += piece_n(v, t->token[i]); /* more than there will be */
    t->node = malloc((nodes + 1) * sizeof *t->node);
    if (!path || !t->node) {
        free(path);
        return err_set(e, -ENOMEM, "no memory for the trie of a vocabulary");
    }
    for (size_t i = 0; i <= t->n_tokens; i++) {
        const char *b = i < t->n_tokens ? v->bytes + v->piece[t->token[i]] : "";
        size_t n = i < t->n_tokens ? piece_n(v, t->token[i]) : 0, same = 0;

        while (same < path_n && same < n && last[same] == b[same])
            same++;
        while (path_n > same)
            t->node[path[--path_n]].after = (uint32_t)t->n_nodes;
        for (; path_n < n; path_n++) {
            path[path_n] = (uint32_t)t->n_nodes;
            t->node[t->n_nodes++] = (struct trie_node){.token = (uint32_t)i, .depth = (uint16_t)path_n, .byte = (uint8_t)b[path_n]};
        }
        if (n)
            t->node[path[n - 1]].n_tokens++;
        last = b;
    }
    free(path);
    less = realloc(t->node, (t->n_nodes + 1) * sizeof *t->node);
    if (less)
        t->node = less;
    return 0;
}

static int is_plain(const char *b, size_t n)
{
    size_t chars = 0, len;

    for (size_t p = 0; p < n; p += len, chars++)
        if (utf8_next(b + p, n - p, &len) != UTF8_OK || (unsigned char)b[p] < 0x20 || b[p] == 0x7F || b[p] == '"' ||
            b[p] == '\\')
            return 0;
    return chars <= PLAIN_CHARS;
}

/* What a token stands for. Control tokens for nothing, except the two around a thought (struct grammar_source), which
 * some vocabularies have among them. */
static void piece_of(const struct tokenizer *t, uint32_t id, const char **b, size_t *n)
{
    token_piece(t, id, 0, b, n);
    if (*n)
        return;
    token_piece(t, id, 1, b, n);
    if ((*n != 7 || memcmp(*b, "<think>", 7)) && (*n != 8 || memcmp(*b, "</think>", 8)))
        *n = 0;
}

static int take_pieces(struct grammar_vocab *v, const struct tokenizer *t, struct err *e)
{
    size_t total = 0, n;
    uint32_t known = tokenizer_n_vocab(t);
    const char *b;

    for (uint32_t i = 0; i < known; i++) {
        piece_of(t, i, &b, &n);
        total += n;
    }
    if (known > v->n_vocab || total > UINT32_MAX)
        return err_set(e, -EINVAL, "the tokenizer has %u tokens, the model %u", known, v->n_vocab);
    v->piece = calloc(v->n_vocab + 1, sizeof *v->piece);
    v->bytes = malloc(total + 1);
    if (!v->piece || !v->bytes)
        return err_set(e, -ENOMEM, "no memory for the texts of a vocabulary");
    total = 0;
    for (uint32_t i = 0; i < v->n_vocab; i++) {
        n = 0;
        if (i < known && token_is_eog(t, i))
            v->ends[i / 64] |= 1ull << i % 64;
        else if (i < known)
            piece_of(t, i, &b, &n);
        if (n)
            memcpy(v->bytes + total, b, n);
        v->longest = n > v->longest ? n : v->longest;
        total += n;
        v->piece[i + 1] = (uint32_t)total;
    }
    return 0;
}

int grammar_vocab_new(const struct tokenizer *t, uint32_t n_vocab, struct grammar_vocab **out, struct err *e)
{
    struct grammar_vocab *v = calloc(1, sizeof *v);
    int rc = -ENOMEM;

    if (!v)
        return err_set(e, -ENOMEM, "no memory for a vocabulary");
    v->n_vocab = n_vocab;
    v->n_words = ((size_t)n_vocab + 63) / 64;
    v->plain = calloc(v->n_words + 1, sizeof *v->plain);
    v->ends = calloc(v->n_words + 1, sizeof *v->ends);
    v->all.token = malloc(((size_t)n_vocab + 1) * sizeof *v->all.token);
    v->rest.token = malloc(((size_t)n_vocab + 1) * sizeof *v->rest.token);
    if (!v->plain || !v->ends || !v->all.token || !v->rest.token) {
        err_set(e, rc, "no memory for a vocabulary of %u tokens", n_vocab);
        goto done;
    }
    if ((rc = take_pieces(v, t, e)))
        goto done;
    for (uint32_t i = 0; i < n_vocab; i++)
        if (piece_n(v, i))
            v->all.token[v->all.n_tokens++] = i;
    qsort_r(v->all.token, v->all.n_tokens, sizeof *v->all.token, by_bytes, v);
    for (size_t i = 0; i < v->all.n_tokens; i++) {
        uint32_t id = v->all.token[i];
        if (is_plain(v->bytes + v->piece[id], piece_n(v, id)))
            v->plain[id / 64] |= 1ull << id % 64;
        else
            v->rest.token[v->rest.n_tokens++] = id;
    }
    if ((rc = build(v, &v->all, e)) || (rc = build(v, &v->rest, e)))
        goto done;
    *out = v;
    v = NULL;
done:
    grammar_vocab_free(v);
    return rc;
}

void grammar_vocab_free(struct grammar_vocab *v)
{
    if (!v)
        return;
    free(v->all.node);
    free(v->all.token);
    free(v->rest.node);
    free(v->rest.token);
    free(v->plain);
    free(v->ends);
    free(v->bytes);
    free(v->piece);
    free(v);
}
