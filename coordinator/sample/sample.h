/* The next token, ARITHMETIC.md rule 37: a function of the row of logits, the tokens before it, the
 * settings and one block of a counter-based generator. No state: the same inputs give the same
 * token on every machine, in every batch, after every restart. */
#pragma once
#include "shm/err.h"

#include <stddef.h>
#include <stdint.h>

struct sample_bias {
    uint32_t token;
    double value; /* added to the logit as f32; -inf: never; not NaN */
};

/* Read as doubles, used as f32 (rounded once). */
struct sample_settings {
    double temp;                        /* <= 0: the first of the order */
    int top_k;                          /* <= 0: off */
    double top_p;                       /* >= 1: off */
    double min_p;                       /* 0: off */
    double repeat, frequency, presence; /* 1, 0, 0: off */
    int last_n;                         /* tokens that penalties count; 0: none, -1: all */
    uint64_t seed;                      /* the number itself: choosing one is the caller's */
    uint32_t choice;                    /* 0, or which of several answers */
    const struct sample_bias *bias;     /* borrowed; an id that occurs twice gets both, in order */
    size_t n_bias;
};

/* What the steps left: for tests and -v. */
struct sample_trace {
    size_t left[4]; /* ids after steps 4, 7, 8, 9 */
    double sum, u;  /* S of step 11, and the draw's number; 0 at temp <= 0, with left[1..3] */
};

/* Working memory of one caller, reused from token to token. */
struct sample_scratch {
    struct sample_trace *trace; /* NULL, or written by each call (one more pass over the row) */
    size_t n_vocab;
    float *logit;             /* n_vocab: the row after steps 1 to 3, NaN where removed */
    float *value, *weight;    /* n_vocab: of the ids at hand, side by side */
    uint32_t *id, *near;      /* n_vocab: ids by number; candidates for the order */
    uint32_t *order;          /* n_vocab: a first part of the order */
    uint32_t *key[2], *other; /* n_vocab: sorting */
    uint32_t *count;          /* n_vocab: occurrences, all 0 between calls */
    uint64_t *member;         /* a bit an id, all 0 between calls */
    void *memory;
};

void sample_defaults(struct sample_settings *s); /* rule 37's, seed 0 */
/* Rule 37's ranges; the message names the setting. */
int sample_check(const struct sample_settings *s, struct err *e);

int sample_scratch_init(struct sample_scratch *scratch, size_t n_vocab, struct err *e);
void sample_scratch_free(struct sample_scratch *scratch);

/* Is the token always the first in the order of the logits? Then who knows that needs no logits. */
int sample_is_first(const struct sample_settings *s);
/* Is `first`, the first in the order of the logits as they are (TOKEN_NONE: none), the token? 0: look at the
 * logits. Biases that only take away leave a first token in its place if it has none itself: the others'
 * logits sink or stay, and equal ones had larger ids before. */
int sample_keeps_first(const struct sample_settings *s, uint32_t first);
/* The error of a row without one. */
int sample_none(size_t n_before, struct err *e);
/* *token = token number n_before of the sequence. logits: n_vocab floats, not changed. before: all
 * tokens before it, the prompt first. allowed_bits: bit t of word t/64 set where token t may come
 * (a grammar's answer), NULL: all. Settings that passed sample_check; scratch of n_vocab.
 * Fails where no token is left, or where a bias or a token before lies outside the vocabulary. */
int sample_token(const struct sample_settings *s, const float *logits, size_t n_vocab,
                 const uint32_t *before, size_t n_before, const uint64_t *allowed_bits,
                 struct sample_scratch *scratch, uint32_t *token, struct err *e);
