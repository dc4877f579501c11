/* The two tables of a vocabulary: text -> id, and (left id, right id) -> merge. Open addressing,
 * filled once while loading, at most two thirds full. */
#include "coordinator/model/vocab.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint32_t vocab_find(const struct tokenizer *t, const char *text, size_t n)
{
    uint64_t h;

    if (n > t->longest)
        return NO_TOKEN;
    h = XXH3_64bits(text, n);
    for (uint32_t i = (uint32_t)h & t->text_mask;; i = (i + 1) & t->text_mask) {
        const struct text_slot *s = &t->texts[i];

        if (s->id == NO_TOKEN)
            return NO_TOKEN;
        if (s->tag == h >> 32 && t->tokens[s->id].text_n == n &&
            !memcmp(t->tokens[s->id].text, text, n))
            return s->id;
    }
}

static void own_text(struct tokenizer *t, uint32_t id)
{
    const struct token *k = &t->tokens[id];
    uint64_t h = XXH3_64bits(k->text, k->text_n);
    uint32_t i = (uint32_t)h & t->text_mask;

    for (; t->texts[i].id != NO_TOKEN; i = (i + 1) & t->text_mask) {
        const struct token *other = &t->tokens[t->texts[i].id];

        if (t->texts[i].tag == h >> 32 && other->text_n == k->text_n &&
            !memcmp(other->text, k->text, k->text_n))
            break; /* a duplicate: the later id owns the text */
    }
    t->texts[i] = (struct text_slot){(uint32_t)(h >> 32), id};
}

int vocab_make_texts(struct tokenizer *t, struct err *e)
{
    size_t cap = 16;

    while (cap < 2 * (size_t)t->n_tokens)
        cap *= 2;
    t->texts = malloc(cap * sizeof *t->texts);
    if (!t->texts)
        return err_set(e, -ENOMEM, "%s: no memory for %u tokens", t->file, t->n_tokens);
    memset(t->texts, 0xFF, cap * sizeof *t->texts); /* every id is NO_TOKEN */
    t->text_mask = (uint32_t)(cap - 1);
    for (uint32_t id = 0; id < t->n_tokens; id++)
        own_text(t, id);
    return 0;
}

int vocab_make_pairs(struct tokenizer *t, size_t n, struct err *e)
{
    size_t cap;

    t->pair_shift = 60;
    while (((size_t)1 << (64 - t->pair_shift)) < n + n / 2 + 1)
        t->pair_shift--;
    cap = (size_t)1 << (64 - t->pair_shift);
    t->pairs = malloc(cap * sizeof *t->pairs);
    if (!t->pairs)
        return err_set(e, -ENOMEM, "%s: no memory for %zu merges", t->file, n);
    memset(t->pairs, 0xFF, cap * sizeof *t->pairs); /* every left is NO_TOKEN */
    return 0;
}

static size_t pair_at(const struct tokenizer *t, uint32_t left, uint32_t right)
{
    return (((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u) >> t->pair_shift;
}

const struct pair_slot *vocab_pair(const struct tokenizer *t, uint32_t left, uint32_t right)
{
    size_t mask = ((size_t)1 << (64 - t->pair_shift)) - 1;

    if (left == NO_TOKEN)
        return NULL;
    for (size_t i = pair_at(t, left, right);; i = (i + 1) & mask) {
        const struct pair_slot *p = &t->pairs[i];

        if (p->left == left && p->right == right)
            return p;
        if (p->left == NO_TOKEN)
            return NULL;
    }
}

void vocab_add_pair(struct tokenizer *t, struct pair_slot p)
{
    size_t mask = ((size_t)1 << (64 - t->pair_shift)) - 1, i;

    for (i = pair_at(t, p.left, p.right); t->pairs[i].left != NO_TOKEN; i = (i + 1) & mask)
        if (t->pairs[i].left == p.left && t->pairs[i].right == p.right)
            return; /* the same pair again: the lower rank wins */
    t->pairs[i] = p;
}
