/* Which states of a recurrent model's sequence are saved for later prompts, and which of them still stand. Positions
 * in, positions out: saving is the scheduler's (engine_save). A state at position p can be gone on from by a prompt
 * whose first p tokens are those of the text before.
 *
 * Three a slot:
 *   KEPT_FORK   where a prompt leaves the text before it: what several conversations begin with
 *   KEPT_TAIL   KEPT_BACK tokens before a prompt's end: the same prompt again, or the next turn where the template
 *               writes a past answer otherwise than it opens one
 *   KEPT_END    the text's end: the next turn where it does not */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define KEPT_BACK 16u /* more than what templates put behind the last message */
#define KEPT_WORTH 32u /* fewer tokens are computed again */

enum kept_state { KEPT_FORK, KEPT_TAIL, KEPT_END, KEPT_STATES };
struct kept_states {
    size_t pos[KEPT_STATES];     /* 0: none */
    size_t mark[KEPT_STATES];    /* where the prompt in work is to stop, and its state be saved; 0: nowhere */
};
/* The one with the longest front of at most `most` tokens; -1: none. */
int kept_states_best(const struct kept_states *k, size_t most);
/* A prompt of n tokens begins, whose first `stands` are those before, and `front` are not computed again: states
 * behind what stands are forgotten, marks are set. */
void kept_states_begin(struct kept_states *k, size_t stands, size_t front, size_t n);
/* Tokens of a pass from position `at` that does not go beyond the next mark. */
uint32_t kept_states_before(const struct kept_states *k, size_t at, uint32_t n);
/* 1: at a mark, *which is to be saved. */
int kept_states_at(const struct kept_states *k, size_t at, enum kept_state *which);
