/* A step: one pass of the trunk over some tokens, or one of the NextN block over the rows behind it.
 * Plain values; to another process the trunk's goes as a record (shm/steps.h). */
#pragma once
#include <stdint.h>

#include "shm/layout.h" /* struct step_token, enum step_pass */

struct step {
    uint32_t n_tokens;
    uint32_t n_out; /* logits are wanted for these rows */
    const struct step_token *token;
    const uint32_t *out; /* n_out indices into token, ascending */
    enum step_pass pass; /* one of the first three */
    int best_only; /* the first token of each wanted row's order is all that is wanted: an executor that knows it may
                    * leave the logits out (engine_best) */
};
/* What is handed over with a step for its looked-up rows (struct prog_table). */
struct step_rows {
    const uint8_t *bytes; /* token_bytes for each token */
    const uint32_t *id;   /* rows' numbers, for each token those of its tables; NULL: not known here */
};
