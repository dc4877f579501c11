/* The tokens of one sequence in a batch, and where its state is: operations along the sequence (convolution,
 * delta rule, pools) read a version of it and write the other one. Who decides which: coordinator/trunk/exec/versions.h. */
#pragma once
#include <stdint.h>

struct run {
    uint32_t seq, first, n, pos; /* tokens [first, first + n) of the batch, from position pos on */
    uint32_t redo; /* kept tokens of the step before that a matrix is made again with; 0: none */
    uint32_t from; /* version that is read, 0 or 1; the other one is written */
    uint32_t zero; /* 1: it is zero: the sequence begins */
};
