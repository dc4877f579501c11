/* One step of a strict UTF-8 reader. */
#include "coordinator/model/utf8.h"

enum utf8 utf8_next(const char *s, size_t n, size_t *len)
{
    const unsigned char *b = (const unsigned char *)s;
    unsigned lo = 0x80, hi = 0xBF; /* of the second byte */
    size_t want;

    *len = 1;
    if (b[0] < 0x80)
        return UTF8_OK;
    if (b[0] < 0xC2 || b[0] > 0xF4)
        return UTF8_BAD;
    want = b[0] < 0xE0 ? 2 : b[0] < 0xF0 ? 3 : 4;
    if (b[0] == 0xE0)
        lo = 0xA0; /* below: overlong */
    else if (b[0] == 0xED)
        hi = 0x9F; /* above: surrogates */
    else if (b[0] == 0xF0)
        lo = 0x90;
    else if (b[0] == 0xF4)
        hi = 0x8F;
    for (; *len < want; ++*len) {
        if (*len == n)
            return UTF8_SHORT;
        if (b[*len] < lo || b[*len] > hi)
            return UTF8_BAD;
        lo = 0x80;
        hi = 0xBF;
    }
    return UTF8_OK;
}
