/* Checks for unit tests. A test program calls CHECK and friends, and ends with `return test_end();`,
 * which prints the line that tests/run adds up: "N passed, N failed, N skipped". A failed check is
 * reported and counted, and the program goes on. */
#pragma once
#include <stdio.h>
#include <string.h>

/* a format may be empty here: a check without a message */
#define test_say(...)                                                                              \
    do {                                                                                           \
        _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wformat-zero-length\"")  \
            printf(__VA_ARGS__);                                                                   \
        _Pragma("GCC diagnostic pop")                                                              \
    } while (0)
static int test_passed, test_failed, test_skipped;

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (cond) {                                                                                \
            test_passed++;                                                                         \
        } else if (test_failed++ < 50) {                                                           \
            printf("%s:%d: FAILED: %s: ", __FILE__, __LINE__, #cond);                              \
            test_say("" __VA_ARGS__);                                                              \
            printf("\n");                                                                          \
        }                                                                                          \
    } while (0)
#define CHECK_EQ(a, b)                                                                             \
    do {                                                                                           \
        long long a_ = (long long)(a), b_ = (long long)(b);                                        \
        CHECK(a_ == b_, "%s is %lld, wanted %lld", #a, a_, b_);                                    \
    } while (0)
#define CHECK_STR(a, b)                                                                            \
    do {                                                                                           \
        const char *a_ = (a), *b_ = (b);                                                           \
        CHECK(a_ && b_ && !strcmp(a_, b_), "%s is '%s', wanted '%s'", #a, a_, b_);                 \
    } while (0)
#define SKIP(...)                                                                                  \
    do {                                                                                           \
        test_skipped++;                                                                            \
        printf("skipped: " __VA_ARGS__);                                                           \
        printf("\n");                                                                              \
    } while (0)

static inline int test_end(void)
{
    printf("%d passed, %d failed, %d skipped\n", test_passed, test_failed, test_skipped);
    return test_failed != 0;
}
