/* Tokens of an answer, one after another, with drafts or without: the text is the same, byte for byte
 * (ARITHMETIC.md, rules 16 and 37). Owns nothing but its working memory; one sequence, the engine's slot 0.
 *
 *   struct decode d;
 *   decode_open(&d, ...);  decode_prompt(&d, stop, arg, e);
 *   while (...) decode_next(&d, &id, e);
 *
 * The NextN block sees the rows of the prompt and of accepted tokens. Drafts for token i are made by the
 * sampler's own function on the block's logits, with the same settings, position and random number. */
#pragma once
#include "coordinator/draft/pays.h"
#include "coordinator/engine.h"
#include "coordinator/sample/sample.h"

struct decode_options {
    uint32_t drafts; /* at most for a step */
    int fixed;       /* 1: always so many; 0: as many as pay */
    size_t kept;     /* tokens at the prompt's front whose rows the engine has from an earlier text; only where
                      * every layer is attention. The last token is fed in any case */
};
struct decode {
    struct engine *en;
    const struct sample_settings *settings;
    struct decode_options o;
    uint32_t *ids; /* borrowed, engine_n_ctx; the prompt, then the answer */
    size_t n;      /* known: the last one is not fed yet, unless a row waits */
    size_t given;  /* of these, handed out by decode_next */
    struct sample_scratch scratch;
    struct step_token *pass;
    uint32_t *rows;
    const float *waiting; /* the prompt's last row of logits */
    uint32_t draft[DRAFT_PLACES], n_drafts; /* for the next step */
    /* the NextN block's rows */
    int rows_there;   /* it has those of all tokens since base */
    size_t base;      /* position of its row 0 */
    size_t left_at;   /* the trunk's last pass began at this position ... */
    uint32_t left;    /* ... and the block has not seen so many of its first tokens */
    struct draft_pays pays;
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
/* The whole prompt, in passes. 1: stop() said so in between; 0; or an error. */
int decode_prompt(struct decode *d, int (*stop)(void), struct err *e);
/* The next token, which is appended to ids. The context must have room for it. */
int decode_next(struct decode *d, uint32_t *id, struct err *e);
/* Tokens that a step yielded on average; how much faster than without drafts (0: not known). */
double decode_yield(const struct decode *d);
double decode_gain(const struct decode *d);
