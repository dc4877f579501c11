/* A step: one pass of the trunk over some tokens. Plain values; to another process it goes as a record
 * (shm/steps.h). */
#pragma once
#include <stdint.h>

#include "shm/layout.h" /* struct step_token */

struct step {
    uint32_t n_tokens;
    uint32_t n_out; /* logits are wanted for these rows */
    const struct step_token *token;
    const uint32_t *out; /* n_out indices into token, ascending */
};
