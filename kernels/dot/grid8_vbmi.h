/* The types whose grid entries are eight values, for few_vbmi_form.h. A type's file defines
 *
 *   enum { BLOCK_BYTES, SUB_BLOCK };
 *   int sign_rule(int i)       the bits of an entry's byte of signs whose parity is value i's
 *   void begin(const uint8_t *const b[TOGETHER], struct opened *x)
 *   void open_part(struct opened *x, int j)                  j = 0..3 after it: x is complete
 *
 * Two rows go side by side, so that a register has a byte for each of their 64 entries: in part i
 * the entries 8i.. of the first, then of the second. An entry's levels come out of tables, four
 * values in a byte; its value k is then the same shift and permutation for all 64, and meets a
 * vector that was turned likewise: value k of all entries side by side. Two entries, or four, share
 * a scale, as the bytes do that one instruction adds. */
#pragma once
#include "kernels/dot/vbmi.h"

enum { TOGETHER = 2 };

struct opened {
    __m512i levels[2]; /* values 0..3 and 4..7 of the entries, two bits each */
    __m512i signs;     /* a byte an entry, see sign_rule */
    __m512i scale;     /* int16 for each two entries, or int32 for each four */
    /* while it is opened: */
    __m512i index, half;
    struct bits at;
};

/* 2x + 1 of sixteen nibbles of each of two blocks, one for each two entries */
INLINE __m512i scales_of_two(const uint8_t *a, const uint8_t *b)
{
    /* one place early, so that the nibble is doubled */
    const __m512i place = pairs_64(0x000B00070003003F, 0x001B00170013000F, 0x002B00270023001F,
                                   0x003B00370033002F);

    return and_or(_mm512_multishift_epi64_epi8(place, two_words(a, b)), _mm512_set1_epi16(0x1E),
                  _mm512_set1_epi16(1));
}
/* 32 bytes of each of two blocks, one for each entry */
INLINE __m512i bytes_of_two(const uint8_t *a, const uint8_t *b)
{
    const __m512i turns = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);

    return _mm512_permutex2var_epi64(_mm512_castsi256_si512(load256(a)), turns,
                                     _mm512_castsi256_si512(load256(b)));
}
