/* The page's files, which are in the program. */
#pragma once
#include <stddef.h>

struct page_file {
    const char *path, *type, *bytes, *end;
};
extern const struct page_file page_files[];
extern const size_t page_n_files;
