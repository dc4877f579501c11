/* Backslash escapes in a typed text. */
#pragma once
#include <stddef.h>

/* Replaces \n \r \t \" \' \\ and \xHH by the byte that they stand for, in place; anything else
 * stays. Returns the new length. */
size_t unescape(char *text, size_t n);
