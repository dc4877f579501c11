/* Numbers from a command line. strtol and its kin alone would take " 5", "0x10" and "nan", and half
 * of "5abc": the characters are looked at first. */
#include "coordinator/cli/value.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 1: an optional sign and digits, nothing else */
static int is_whole(const char *s)
{
    s += *s == '-' || *s == '+';
    return *s && !s[strspn(s, "0123456789")];
}

int value_i64(const char *text, int64_t *out)
{
    intmax_t v;

    if (!is_whole(text))
        return -1;
    errno = 0;
    v = strtoimax(text, NULL, 10);
    if (errno || v < INT64_MIN || v > INT64_MAX)
        return -1;
    *out = v;
    return 0;
}

int value_bits64(const char *text, uint64_t *out)
{
    int64_t negative;
    uintmax_t v;

    if (*text == '-') {
        if (value_i64(text, &negative))
            return -1;
        *out = (uint64_t)negative;
        return 0;
    }
    if (!is_whole(text))
        return -1;
    errno = 0;
    v = strtoumax(text, NULL, 10);
    if (errno || v > UINT64_MAX)
        return -1;
    *out = v;
    return 0;
}

/* Length of the decimal number at s, an exponent only if allowed; 0: none. */
static size_t number_length(const char *s, int exponent)
{
    const char *at = s + (*s == '-' || *s == '+');
    size_t whole = strspn(at, "0123456789"), fraction = 0;

    at += whole;
    if (*at == '.') {
        fraction = strspn(at + 1, "0123456789");
        at += 1 + fraction;
    }
    if (!whole && !fraction)
        return 0;
    if (exponent && (*at == 'e' || *at == 'E')) {
        const char *digits = at + 1 + (at[1] == '-' || at[1] == '+');
        size_t n = strspn(digits, "0123456789");

        if (n)
            at = digits + n;
    }
    return (size_t)(at - s);
}

int value_f64(const char *text, double *out)
{
    size_t n = number_length(text, 1);
    double v;

    if (!n || text[n])
        return -1;
    v = strtod(text, NULL);
    if (!isfinite(v))
        return -1;
    *out = v;
    return 0;
}

int value_size(const char *text, uint64_t *out)
{
    size_t n = number_length(text, 0);
    const char *unit = text + n, *at;
    static const char units[] = "KMGTP";
    double v;
    int shift;

    if (!n || *text == '-')
        return -1;
    if (!*unit || !strcmp(unit, "B")) { /* whole bytes: exact, also above 2^53 */
        uintmax_t bytes;

        errno = 0;
        bytes = strtoumax(text, NULL, 10);
        if (errno || bytes > UINT64_MAX || memchr(text, '.', n))
            return -1;
        *out = bytes;
        return 0;
    }
    at = strchr(units, *unit >= 'a' ? *unit - 'a' + 'A' : *unit);
    if (!at || (unit[1] && strcmp(unit + 1, "B") && strcmp(unit + 1, "iB")))
        return -1;
    shift = 10 * (int)(at - units + 1);
    v = ldexp(strtod(text, NULL), shift); /* strtod stops at the unit */
    if (!(v < 0x1p64))
        return -1;
    *out = (uint64_t)v;
    return 0;
}

char *value_show_size(uint64_t bytes, char text[32])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    size_t u = 0;

    while (v >= 1024 && u < 6) {
        v /= 1024;
        u++;
    }
    snprintf(text, 32, u && v < 100 ? "%.2f %s" : "%.0f %s", v, unit[u]);
    return text;
}
