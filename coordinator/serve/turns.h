/* Whose turn it is in a step: how much of a pass prompts may take while others answer, and how prompts share it.
 * Numbers in, numbers out; the scheduler measures (schedule.c). No clock: tested by replay.
 *
 * A step with prompts in it should take at most TURNS_TIMES times as long as one without, or TURNS_LEAST_S: an
 * answer goes on at a pace that one can follow, and prompts have most of the time. The piece that they get follows
 * what steps with a whole piece took: smaller in the ratio that they were too long, at most by half; larger by a
 * quarter where they took less than half of that, by an eighth where less than three quarters.
 *
 * Where nobody answers a pass may take longer, for whoever comes meanwhile, or leaves, waits for its end: passes are
 * halved as long as they take more than TURNS_ALONE_S and a token of a smaller one costs at most TURNS_MORE times as
 * much. Where experts come from the disk it costs twice as much, and passes stay whole. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define TURNS_TIMES 4.0
#define TURNS_LEAST_S 0.1
#define TURNS_PIECE_LEAST 8u /* a prompt never starves */
#define TURNS_PIECE_FIRST 64u
#define TURNS_ALONE_S 1.0
#define TURNS_MORE 1.1
#define TURNS_ALONE_LEAST 32u
enum { TURNS_HALVINGS = 8 };

struct turns {
    uint32_t most;  /* of a pass */
    uint32_t piece; /* for all prompts of a step in which others answer */
    double without_s; /* mean of steps without prompts, forgetting; 0: none yet */
    uint32_t halved;                    /* passes of prompts alone: so often */
    double token_s[TURNS_HALVINGS + 1]; /* by that: mean seconds of a token; 0: none yet */
};
void turns_init(struct turns *t, uint32_t most);
/* A step with so many answering, and so many tokens of prompts, took so long. */
void turns_note(struct turns *t, uint32_t answering, uint32_t prompt_tokens, double seconds);
/* Tokens of prompts for the next step beside `answering` tokens: of its `most`. */
uint32_t turns_piece(const struct turns *t, uint32_t answering);
/* room, shared evenly by n prompts with left[i] tokens each, oldest first; what is over goes to the oldest that
 * have more. share (n) adds up to room, or to all that is left. */
void turns_share(uint32_t room, const size_t *left, uint32_t n, uint32_t *share);
