/* Edit distance over short words: three rows of a table, nothing kept. */
#include "coordinator/cli/nearest.h"

#include <string.h>

enum { WORD_MAX = 40 }; /* longer ones are nobody's typing error */

void nearest_begin(struct nearest *s, const char *word, size_t n)
{
    /* a third of the word may be wrong, and a letter: what is further off is another word */
    *s = (struct nearest){.word = word, .n = n, .changes = n > WORD_MAX ? 0 : n / 3 + 2};
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void try_word(struct nearest *s, const char *known, size_t m)
{
    size_t rows[3][WORD_MAX + 1], *before = rows[0], *last = rows[1], *now = rows[2];

    if (s->n > WORD_MAX || m > WORD_MAX)
        return;
    for (size_t j = 0; j <= m; j++)
        last[j] = j;
    for (size_t i = 1; i <= s->n; i++) {
        size_t *spare = before;

        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            int same = s->word[i - 1] == known[j - 1];

            now[j] = least(least(last[j], now[j - 1]) + 1, last[j - 1] + !same);
            if (i > 1 && j > 1 && s->word[i - 1] == known[j - 2] && s->word[i - 2] == known[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
        before = last;
        last = now;
        now = spare;
    }
    if (last[m] < s->changes) {
        s->changes = last[m];
        s->near = known;
        s->near_n = m;
    }
}

void nearest_try(struct nearest *s, const char *known)
{
    for (;; known++) {
        size_t m = strcspn(known, "|");

        try_word(s, known, m);
        known += m;
        if (!*known)
            return;
    }
}
