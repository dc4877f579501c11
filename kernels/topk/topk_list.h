/* The sorted list of the best so far, shared by the forms for small k. */
#pragma once
#include "kernels/topk/topk.h"

/* Puts index i, larger than all in the list, at its place among idx[0 ... n-1], which grows to
 * n + 1 entries. Equal keys: behind. */
static inline void list_insert(const float *v, uint32_t i, uint32_t *idx, uint32_t n)
{
    int32_t key = order_key(v[i]);

    while (n && order_key(v[idx[n - 1]]) < key) {
        idx[n] = idx[n - 1];
        n--;
    }
    idx[n] = i;
}
