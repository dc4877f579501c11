/* Test help: a unit test or a measuring program that opens an engine lies in build/test/... or build/bench/..., the
 * programs that the engine starts in build/bin. Header only. */
#pragma once
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* 0: CONCLAVE_PROGRAMS names them. */
static inline int programs_find(void)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    char *at;

    path[n > 0 ? n : 0] = 0;
    at = strstr(path, "/test/coordinator/");
    if (!at)
        at = strstr(path, "/bench/coordinator/");
    if (!at)
        return -1;
    strcpy(at, "/bin");
    return setenv("CONCLAVE_PROGRAMS", path, 1);
}
