/* Strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF. */
#pragma once
#include <stddef.h>

enum utf8 {
    UTF8_OK,    /* a character of *len bytes begins here */
    UTF8_BAD,   /* *len bytes are the longest beginning of a character that nothing can complete */
    UTF8_SHORT, /* the text ends inside a character, all of whose *len bytes so far are right */
};
/* Looks at s[0 .. n), n > 0. */
enum utf8 utf8_next(const char *s, size_t n, size_t *len);
