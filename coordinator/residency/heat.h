/* Heat of an expert: how much it was used, recent uses counting more. Sums of uses that decay with
 * three half-lives (in tokens); each is kept as it was at the expert's last use.
 *
 * In a pass of several tokens (a prompt) an expert's n uses are taken as spread evenly over it. */
#pragma once
#include <stdint.h>

#define HEAT_FAST 24.0   /* a few sentences: what goes on now */
#define HEAT_SLOW 512.0  /* the conversation */
#define HEAT_LIFE 4096.0 /* this user's work: for the next start only */

struct heat {
    float fast, slow, life; /* uses, as seen from the token `at` */
    uint64_t at;
};

/* n >= 1 of the `tokens` tokens from `now` on used it. */
void heat_use(struct heat *h, uint64_t now, uint32_t n, uint32_t tokens);
/* The recent window plus half as much for the conversation; of an expert used just now at least
 * about 1, at most HEAT_MAX. As it was at `at`. */
float heat_value(const struct heat *h);
/* Classes are thirds of a doubling of heat_value. */
uint32_t heat_class(float value);
/* Uses a token that a class's heat stands for. */
double heat_class_rate(uint32_t class);

/* Decay over `tokens` of a sum with that half-life. */
float heat_decay(double half_life, uint64_t tokens);
/* The sum of a steady use at every token. */
double heat_full(double half_life);
