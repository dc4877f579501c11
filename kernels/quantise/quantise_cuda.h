/* A vector as the operand of a product, made on a card (ARITHMETIC.md rule 8): the bytes of
 * act_prepare, padding excepted. Launchers allocate nothing and wait for nothing; they may be
 * captured. Each returns 0 or a cudaError_t. */
#pragma once
#include "kernels/quantise/quantise.h"
#include "kernels/type/type.h"
#include <stddef.h>

struct CUstream_st;

/* n_vec vectors of n values, ldx floats apart, to out, out_stride bytes apart (at least
 * act_stride(form, n), a multiple of 64). Device pointers; x 16-byte aligned with ldx % 4 == 0 (but
 * for ACT_F32), out 64-byte aligned. */
int act_prepare_cuda(enum act_form form, const float *x, size_t ldx, size_t n, size_t n_vec,
                     void *out, size_t out_stride, struct CUstream_st *stream);

/* act_stride, so that every vector begins with a line of the card's cache: many vectors' pieces of 256 values then
 * lie in two lines each, not three. */
static inline size_t act_stride_cuda(enum act_form form, size_t n)
{
    return (act_stride(form, n) + 127) & ~(size_t)127;
}
