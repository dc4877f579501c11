/* A step: one pass of the trunk over some tokens. Plain values; on cards it lies in shared memory. */
#pragma once
#include <stdint.h>

struct step_token {
    uint32_t id;  /* below n_vocab */
    uint32_t pos; /* position in its sequence, from 0; all earlier positions are in the state */
    uint32_t seq; /* sequence slot */
};
struct step {
    uint32_t n_tokens;
    uint32_t n_out; /* logits are wanted for these rows */
    const struct step_token *token;
    const uint32_t *out; /* n_out indices into token, ascending */
};
