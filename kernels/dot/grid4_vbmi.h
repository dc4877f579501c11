/* The types whose grid entries are four values, for few_vbmi_form.h. A type's file defines
 *
 *   enum { BLOCK_BYTES, OFFSET };
 *   void begin(const uint8_t *const b[TOGETHER], struct opened *x)
 *   void open_part(struct opened *x, int j)              j = 0..3 after it: x is complete
 *   __m512i value(struct opened *x, int k)               value k of all entries, in the order of k:
 *                              OFFSET added, with its sign; OFFSET 0: without, see opened.signs
 *
 * A register has a byte for each of a block's 64 entries, in order. Their value k comes out of
 * tables for all of them, and meets a vector that was turned likewise: value k of all entries side by
 * side. Eight entries share a scale. */
#pragma once
#include "kernels/dot/vbmi.h"

enum { TOGETHER = 1 };

struct opened {
    __m512i pairs[2]; /* values 0 and 1, 2 and 3 of the entries */
    __m512i signs;    /* OFFSET 0: of an even entry's values in bits 0..3, an odd one's in 4..7; else as
                       * value() wants them */
    __m512i pair;     /* value()'s own */
    __m512i scale;    /* int32 for each four entries */
    /* while it is opened: */
    __m512i index, half;
    struct bits at;
};
