/* Class of a code point, from its general category (Unicode 14.0.0, scripts/unicode-table). */
#pragma once
#include <stdint.h>

enum unicode_class {
    UNICODE_NONE = 0,         /* controls, formats, unassigned, private use, surrogates */
    UNICODE_UPPER = 1,        /* Lu, Lt */
    UNICODE_LOWER = 2,        /* Ll */
    UNICODE_OTHER_LETTER = 3, /* Lm, Lo */
    UNICODE_MARK = 4,         /* M* */
    UNICODE_NUMBER = 5,       /* N* */
    UNICODE_PUNCT = 6,        /* P* */
    UNICODE_SYMBOL = 7,       /* S* */
    UNICODE_SEPARATOR = 8,    /* Z* */
};

extern const uint8_t unicode_index[4352];
extern const uint8_t unicode_blocks[144][128]; /* two classes a byte, the lower half first */

/* c <= 0x10FFFF */
static inline enum unicode_class unicode_class(uint32_t c)
{
    return unicode_blocks[unicode_index[c >> 8]][(c & 255) >> 1] >> (4 * (c & 1)) & 15;
}
