/* Bytes [begin, end) of a text. Lists of them are in order, not empty and don't overlap. */
#pragma once
#include <stddef.h>

struct text_span {
    size_t begin, end;
};
