/* Values 64j.. of a block of a type with a grid and sign bits. Included after <type>_avx2.h. */
#pragma once
#include "kernels/dot/avx512.h"

INLINE __m512i bytes512(const uint8_t *b, const struct head *h, int j, __mmask64 *negative)
{
    *negative = sign_mask(h->negative, j);
    return join256(magnitudes(b, 2 * j), magnitudes(b, 2 * j + 1));
}
