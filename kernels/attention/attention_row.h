/* Rows of keys and values, for the forms of attention. */
#pragma once
#include "kernels/attention/attention.h"

#define INLINE static inline __attribute__((always_inline))

/* key j's row */
INLINE const char *row_at(const uint32_t *list, const void *base, size_t stride, size_t j)
{
    return (const char *)base + (list ? list[j] : j) * stride;
}
