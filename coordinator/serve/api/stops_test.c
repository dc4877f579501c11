/* Every way to cut a text gives the same end and gives out the same. */
#include "coordinator/serve/api/stops.h"

#include "tests/test.h"

/* Feeds text in two cuts; what was given out in `out`; which or -1. */
static int feed(const struct stops *s, const char *text, size_t a, size_t b, char *out)
{
    size_t cut[] = {a, b, strlen(text)}, given = 0, at = 0, which;

    for (int i = 0; i < 3; i++) {
        int found = stops_find(s, text, cut[i], given, i == 2, &at, &which);

        CHECK(at >= given);
        memcpy(out + given, text + given, at - given);
        given = at;
        out[given] = 0;
        if (found)
            return (int)which;
    }
    return -1;
}

static void all_cuts(const char *const *stop, size_t n, const char *text, const char *wanted, int which)
{
    size_t len[4];
    struct stops s = {stop, len, n};
    char out[100];

    for (size_t i = 0; i < n; i++)
        len[i] = strlen(stop[i]);
    for (size_t a = 0; a <= strlen(text); a++)
        for (size_t b = a; b <= strlen(text); b++) {
            CHECK_EQ(feed(&s, text, a, b, out), which);
            CHECK_STR(out, wanted);
        }
}

int main(void)
{
    static const char *const one[] = {"END"}, *const two[] = {"ab", "abc"}, *const inner[] = {"abcd", "bc"},
                             *const self[] = {"aab"};

    all_cuts(one, 1, "some END here", "some ", 0);
    all_cuts(one, 1, "some EN", "some EN", -1);
    all_cuts(one, 1, "EEEND", "EE", 0);
    all_cuts(one, 1, "plain", "plain", -1);
    all_cuts(two, 2, "xabc", "x", 0);
    all_cuts(inner, 2, "xabcx", "xa", 1);
    all_cuts(inner, 2, "xabc", "xa", 1);
    all_cuts(inner, 2, "xabcd", "x", 0);
    all_cuts(self, 1, "aaab", "a", 0);
    all_cuts(one, 0, "text", "text", -1);
    return test_end();
}
