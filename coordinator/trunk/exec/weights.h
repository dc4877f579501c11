/* Where a program's weights lie, as the executor wants them: pointers into the trunk segment, vectors
 * that the file stores in another type than F32 widened (rule 38). */
#pragma once
#include "shm/err.h"
#include "coordinator/trunk/exec/program.h"

struct weight_at {
    uint64_t off;    /* of its first byte in the trunk segment */
    uint32_t vector; /* 1: one dimension, used as f32 */
    uint32_t reserved;
};
struct weights {
    const uint8_t **at; /* by weight; into the segment, or widened */
    float **widened;    /* owned */
    uint32_t n;
};
/* base: the segment, borrowed and filled. Free with weights_close, also after an error. */
int weights_open(const struct program *p, const uint8_t *base, const struct weight_at *at,
                 struct weights *w, struct err *e);
void weights_close(struct weights *w);
