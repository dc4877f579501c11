/* Who may ask: keys, and pages of other origins. No I/O in here. */
#include <string.h>
#include <strings.h>

#include "coordinator/serve/http/inside.h"

/* 1: equal. The time depends on the length of what was given alone, never on where it differs. */
static int same(const char *key, const char *given, size_t n)
{
    size_t key_n = strlen(key);
    volatile unsigned char differs = key_n != n;

    for (size_t i = 0; i < n; i++)
        differs |= (unsigned char)(given[i] ^ key[key_n ? i % key_n : 0]);
    return !differs;
}

static int any(const char *const *keys, size_t n, const char *given)
{
    volatile int found = 0;

    for (size_t i = 0; given && i < n; i++)
        found |= same(keys[i], given, strlen(given));
    return found;
}

int guard_key(const char *const *keys, size_t n, const char *authorization, const char *x_api_key)
{
    static const char bearer[] = "Bearer ";
    int a = 0, b;

    if (!n)
        return 1;
    if (authorization && !strncasecmp(authorization, bearer, sizeof bearer - 1))
        a = any(keys, n, authorization + sizeof bearer - 1 + strspn(authorization + sizeof bearer - 1, " "));
    b = any(keys, n, x_api_key);
    return a | b;
}

int guard_origin(const char *allowed, const char *origin, const char *host)
{
    const char *at;

    if (!origin)
        return 1;
    if (allowed && (!strcmp(allowed, "*") || !strcasecmp(allowed, origin)))
        return 1;
    at = strstr(origin, "://");
    return at && host && !strcasecmp(at + 3, host);
}

/* "localhost", "localhost:8080", "127.0.0.1", "[::1]:8080": a name that a foreign server gave to our address
 * is not among them. */
int guard_host(const char *host)
{
    size_t n;

    if (!host)
        return 1; /* HTTP/1.0: no browser */
    n = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    return (n == 9 && !strncasecmp(host, "localhost", n)) || (n == 5 && !strncmp(host, "[::1]", n)) ||
           (n >= 7 && !strncmp(host, "127.", 4) && strspn(host, "0123456789.") == n);
}
