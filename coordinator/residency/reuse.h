/* What it is worth to have an expert at hand: the chance that it is used again soon, learned from
 * the run itself.
 *
 * After a use an expert has a heat class (heat.h) and an age: how many turns of its layer have
 * passed without another use. From the ages at which experts of a class were used again follows the
 * chance of a use at each next turn, and from that the value of class and age: the mean of
 * 2^(-turns / 8) over the turns until the next use. In [0, 1]: 1 is a use this very moment; what
 * comes in 8 turns counts half.
 *
 * So nobody decides beforehand whether recency or frequency tells more. Where experts come in
 * streaks, the value falls fast with age and the order is that of least recently used; where a few
 * are always hot, age says little and the order is that of the counts; where use is periodic, old
 * is good. */
#pragma once
#include <stdint.h>

enum {
    REUSE_CLASSES = 18,
    REUSE_AGES = 48, /* buckets: 0 to 7 exact, then four to a doubling, the last from 7168 on */
};

struct reuse {
    double ended[REUSE_CLASSES][REUSE_AGES];    /* waits that ended in the bucket, decayed */
    double ended_in[REUSE_CLASSES][REUSE_AGES]; /* turns they had spent in it */
    double open[REUSE_CLASSES][REUSE_AGES];     /* waits that are there now: the census so far */
    double open_in[REUSE_CLASSES][REUSE_AGES];
    float value[REUSE_CLASSES][REUSE_AGES];
};

/* Knows nothing yet: values as if every class went on being used as its heat says. */
void reuse_init(struct reuse *r);
/* An expert of this class was used again after `age` turns without use. */
void reuse_used(struct reuse *r, uint32_t class, uint64_t age);
/* Census: such a wait goes on, `age` turns have passed. All of them once, then reuse_learn: it
 * makes the values, and begins the next census. tokens: since the last reuse_learn. */
void reuse_waits(struct reuse *r, uint32_t class, uint64_t age);
void reuse_learn(struct reuse *r, double tokens);
float reuse_value(const struct reuse *r, uint32_t class, uint64_t age);

uint32_t reuse_bucket(uint64_t age);
uint64_t reuse_bucket_start(uint32_t bucket);
