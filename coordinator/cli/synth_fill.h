/* Random weights in a file's block formats, as fast as a disk takes them: random bytes where a
 * block has its numbers, chosen scales where it has its scales, so that the values have the mean 0
 * and the standard deviation that was asked for, and none is NaN or infinite. Or blocks of one
 * value. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/err.h"

struct synth_fill {
    uint32_t type;
    size_t block_bytes;
    float sd;
    uint64_t state[4];
    uint16_t half[4096];    /* f16, bf16: values; block formats: scales */
    uint8_t packed[64][12]; /* q4_k: eight scales and mins */
    int same;               /* every block is this one */
    uint8_t block[256];
};

/* f32, f16, bf16, q8_0, q4_k, q6_k, iq4_nl, iq2_xxs, iq2_xs, iq3_xxs, iq3_s, iq4_xs; another type: -EINVAL. The same seed gives the same
 * bytes. sd 0: zeros. */
int synth_fill_begin(struct synth_fill *f, uint32_t type, double sd, uint64_t seed, struct err *e);
/* The same types; all values are `value` (of the last five: 0), to the precision of the block's scale. */
int synth_fill_same(struct synth_fill *f, uint32_t type, double value, struct err *e);
/* The next bytes, whole blocks. */
void synth_fill_blocks(struct synth_fill *f, void *out, size_t bytes);
