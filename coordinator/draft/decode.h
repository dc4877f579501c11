/* Tokens of an answer, one after another, with drafts or without: the text is the same, byte for byte
 * (ARITHMETIC.md, rules 16 and 37). Owns nothing but its working memory; one sequence of the engine. It makes
 * steps of its own, or puts its tokens into steps that others share:
 *
 *   struct decode d;                                   decode_open(&d, ...);
 *   decode_open(&d, ...);  decode_prompt(&d, stop, e); for (;;) {
 *   while (...) decode_next(&d, &id, e);                   decode_put(&d, &pass, most, alone); ... of others too
 *                                                          logits = engine_step(...);
 *                                                          decode_take(&d, logits, seconds, alone, e); ...
 *                                                          if (decode_waits(&d)) decode_first(&d, alone, e);
 *                                                      }
 *
 * The NextN block sees the rows of the prompt and of accepted tokens. Drafts for token i are made by the
 * sampler's own function on the block's logits, with the same settings, position and random number. */
#pragma once
#include "coordinator/draft/pays.h"
#include "coordinator/engine.h"
#include "coordinator/sample/grammar.h"
#include "coordinator/sample/sample.h"

struct decode_options {
    uint32_t seq;    /* of the engine's */
    uint32_t drafts; /* at most for a step */
    int fixed;       /* 1: always so many; 0: as many as pay */
    size_t kept;     /* tokens at the prompt's front whose rows the engine has from an earlier text; where something has
                      * to be saved (engine_saved_bytes), those before a restored state. The last one is fed in any case */
    struct draft_pays *pays;        /* borrowed: what earlier texts taught; NULL: its own */
    struct sample_scratch *scratch; /* borrowed, of decodes that take turns; NULL: its own */
    struct grammar *grammar;        /* borrowed, goes on with the answer; NULL: everything may come. Where nothing can be
                                     * added to the text, the answer has ended */
    int rows;        /* 1: chosen() looks at logits */
    /* A token was chosen, ids[d->n - 1], from this row. 1: nothing comes after it; 0; or an error. NULL: nobody asks */
    int (*chosen)(void *arg, uint32_t id, const float *logits, struct err *e);
    void *arg;
};
struct decode {
    struct engine *en;
    const struct sample_settings *settings;
    struct decode_options o;
    uint32_t *ids; /* borrowed, engine_n_ctx; the prompt, then the answer */
    size_t n_prompt;
    size_t n;      /* known: the last one is not fed yet, unless a row waits */
    size_t fed;    /* of these, those whose rows are there */
    size_t given;  /* of these, handed out by decode_next */
    int ended;     /* chosen() said so, or the grammar */
    struct grammar *guess; /* the grammar's place behind drafts; NULL: not needed yet */
    struct sample_scratch own_scratch, *scratch;
    struct step_token *pass;
    uint32_t *rows;
    const float *waiting; /* the prompt's last row of logits: of row `row` of its step */
    uint32_t row, put;    /* this one's first wanted row, and its tokens, in the step that is being made */
    uint32_t tried;       /* drafts among them */
    uint32_t draft[DRAFT_PLACES], n_drafts; /* for the next step */
    /* the NextN block's rows */
    int rows_there;   /* it has those of all tokens since base */
    size_t base;      /* position of its row 0 */
    size_t left_at;   /* the trunk's last pass began at this position ... */
    uint32_t left;    /* ... and the block has not seen so many of its first tokens */
    struct draft_pays own_pays, *pays;
    struct decode_count {
        uint64_t steps, tokens;                              /* of the answer; tokens that the steps yielded */
        uint64_t drafted[DRAFT_PLACES], right[DRAFT_PLACES]; /* by place, from 0: looked at, right */
        uint64_t went_off, went_on;
        double step_s, draft_s;
    } count;
};
/* ids: the prompt's n_prompt tokens, in room for engine_n_ctx. */
int decode_open(struct decode *d, struct engine *en, const struct sample_settings *s, struct decode_options o,
                uint32_t *ids, size_t n_prompt, struct err *e);
void decode_close(struct decode *d);
/* Drafts of a step that the engine can verify, of so many wanted. */
uint32_t decode_most_drafts(const struct engine *en, uint32_t wanted);
/* Another text, in the same memory. */
void decode_begin(struct decode *d, const struct sample_settings *s, struct decode_options o, uint32_t *ids,
                  size_t n_prompt);
/* The whole prompt, in passes. 1: stop() said so in between; 0; or an error. */
int decode_prompt(struct decode *d, int (*stop)(void), struct err *e);
/* The next token, which is appended to ids. The context must have room for it. */
int decode_next(struct decode *d, uint32_t *id, struct err *e);
/* ---- steps that others share ---- */
struct decode_pass { /* a step in the making; tokens of a sequence together */
    struct step_token *token;
    uint32_t *out;
    uint32_t n, n_out;
    int best_only; /* begins as 1 */
};
/* Does the prompt's last row wait for decode_first? The next step overwrites it. */
int decode_waits(const struct decode *d);
/* Tokens of the prompt that were not fed; 0: it is complete. */
size_t decode_prompt_left(const struct decode *d);
/* Puts the prompt's next `most` tokens, or the answer's last one and its drafts, 1 + `drafts` at most; returns how
 * many. A row is wanted of each of the answer's and of the prompt's last one. */
uint32_t decode_put(struct decode *d, struct decode_pass *p, uint32_t most, uint32_t drafts);
/* After the step. alone: nobody else was in it. Tokens that were chosen are told and appended. */
int decode_take(struct decode *d, const float *logits, double seconds, int alone, struct err *e);
/* The token after the prompt. */
int decode_first(struct decode *d, int alone, struct err *e);

/* Tokens that a step yielded on average; how much faster than without drafts (0: not known). */
double decode_yield(const struct decode *d);
double decode_gain(const struct decode *d);
