/* Shells make a newline in an argument awkward; this is the way people know from elsewhere. */
#include "coordinator/cli/escape.h"

#include <string.h>

static int hex(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c) : NULL;

    return at ? (int)(at - digits) : -1;
}

size_t unescape(char *text, size_t n)
{
    static const char names[] = "nrt\"'\\", bytes[] = "\n\r\t\"'\\";
    size_t out = 0;

    for (size_t i = 0; i < n; i++) {
        const char *at;

        if (text[i] == '\\' && i + 1 < n && text[i + 1] && (at = strchr(names, text[i + 1]))) {
            text[out++] = bytes[at - names];
            i++;
        } else if (text[i] == '\\' && i + 3 < n && text[i + 1] == 'x' && hex(text[i + 2]) >= 0 &&
                   hex(text[i + 3]) >= 0) {
            text[out++] = (char)(16 * hex(text[i + 2]) + hex(text[i + 3]));
            i += 3;
        } else {
            text[out++] = text[i];
        }
    }
    return out;
}
