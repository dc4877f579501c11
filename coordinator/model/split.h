/* Cuts text into the words that byte-level BPE works on (the "pre-tokenizer"). A merge never
 * crosses the end of a word.
 *
 * The names are values of tokenizer.ggml.pre. Text is well-formed UTF-8 (anything else is cut
 * somewhere, safely). Nothing is allocated, time is linear in the text. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { SPLIT_PASSES = 6 };

struct split_rule {
    const char *name;
    int ignore_merges; /* a word that equals a token's text is that token */
    int add_bos;       /* default of tokenizer.ggml.add_bos_token */
    int n_passes;
    /* Each pass cuts every piece left by the pass before into matches and gaps. A matcher returns
     * the end of the match that begins at p < e, or p: none, and the next place to try is *next. */
    size_t (*match[SPLIT_PASSES])(const char *s, size_t p, size_t e, size_t *next);
};

/* NULL: no such rule. */
const struct split_rule *split_find(const char *name, size_t n);
/* All names, for messages: "gpt-2, olmo, ...". */
extern const char split_names[];

struct split {
    const struct split_rule *rule;
    const char *text;
    struct {
        size_t at, end;             /* what is left of this pass's piece */
        size_t match_at, match_end; /* a match found behind a gap; match_end 0: none */
    } pass[SPLIT_PASSES];
};

/* Borrows text (n bytes) while the words are taken. */
void split_init(struct split *s, const struct split_rule *rule, const char *text, size_t n);
/* 1: the next word is text[*at .. *at + *n), n > 0, and words follow each other without holes.
 * 0: there is none. */
int split_next(struct split *s, size_t *at, size_t *n);
