/* Splits against results of a regex engine (golden/vocab/splits.json), and the spec's own examples.
 */
#include "coordinator/model/split.h"

#include <time.h>

#include "coordinator/model/golden_vectors.h"
#include "coordinator/model/unicode_table.h"

/* The words of text as "a|b|c". */
static const char *words(const char *rule, const char *text)
{
    static char out[1000];
    struct split s;
    size_t at, n, k = 0, end = 0;

    split_init(&s, split_find(rule, strlen(rule)), text, strlen(text));
    while (split_next(&s, &at, &n)) {
        CHECK(at == end && n > 0, "a hole before byte %zu of '%s'", at, text);
        k += (size_t)snprintf(out + k, sizeof out - k, "%s%.*s", k ? "|" : "", (int)n, text + at);
        end = at + n;
    }
    CHECK_EQ(end, strlen(text));
    out[k] = 0;
    return out;
}

static void test_examples(void)
{
    CHECK_STR(words("gpt-4o", "HelloWorldHTTPServer"), "Hello|World|HTTPServer");
    CHECK_STR(words("gpt-4o", "X\xE3\x81\xAE"
                              "ABC"),
              "X\xE3\x81\xAE|ABC");
    CHECK_STR(words("gpt-2", "it's IT'S  12345 x"), "it|'s| IT|'|S| | 12345| x");
    CHECK_STR(words("qwen2", "it's IT'S  123 x\n\n y"), "it|'s| IT|'S| | |1|2|3| x|\n\n| y");
    CHECK_STR(words("llama-bpe", "12345,\"x\"...\r\n"), "123|45|,\"|x|\"...\r\n");
    CHECK_STR(words("deepseek-v3", "12345\xE4\xB8\xAD\xE6\x96\x87"
                                   "a_b"),
              "123|45|\xE4\xB8\xAD\xE6\x96\x87|a|_b");
    CHECK_STR(words("deepseek-llm", "x\n\n12 y  "), "x|\n|\n|1|2| y|  ");
    CHECK(!split_find("default", 7), "default is no rule");
    CHECK(!split_find("qwen", 4) && !split_find("qwen22", 6), "a part of a name is a name");
}

static void test_classes(void)
{
    /* code points of each class in Unicode 14.0.0 */
    static const unsigned want[9] = {969578, 1862, 2227, 127667, 2408, 1791, 819, 7741, 19};
    unsigned count[9] = {0};

    for (uint32_t c = 0; c < 0x110000; c++)
        count[unicode_class(c)]++;
    for (int i = 0; i < 9; i++)
        CHECK_EQ(count[i], want[i]);
}

static void test_golden(void)
{
    struct json_doc *d = vector_json("splits.json");
    const struct json *cases, *same;
    size_t n_compared = 0;

    if (!d)
        return;
    cases = json_get(json_root(d), "cases");
    same = json_get(json_root(d), "same_as");
    for (size_t i = 0; cases && i < cases->n; i++) {
        struct bytes in = vector_input(&cases->items[i]);
        static const char *const names[] = {"gpt-2",       "olmo",         "qwen2", "qwen35",
                                            "llama-bpe",   "glm4",         "glm5",  "chatglm-bpe",
                                            "deepseek-v3", "deepseek-llm", "gpt-4o"};

        for (size_t r = 0; r < sizeof names / sizeof *names; r++) {
            const struct json *as = json_get(same, names[r]);
            const struct json *want = json_get(&cases->items[i], as ? as->text : names[r]);
            struct split s;
            size_t at, n, k = 0;
            uint64_t w;

            CHECK(want, "no vector of %s", names[r]);
            split_init(&s, split_find(names[r], strlen(names[r])), in.s, in.n);
            while (split_next(&s, &at, &n)) {
                if (json_u64(json_at(want, k), &w) || w != n)
                    break;
                k++;
            }
            CHECK(want && k == want->n, "%s: %s: word %zu of %zu", names[r],
                  json_get(&cases->items[i], "name")->text, k, want ? want->n : 0);
            n_compared++;
        }
        free(in.s);
    }
    CHECK(n_compared == 584 * 11, "%zu comparisons", n_compared);
    json_free(d);
}

/* Anything may come, if only by mistake: no byte is lost, none is read behind the end. */
static void test_not_utf8(void)
{
    unsigned seed = 1;

    for (int round = 0; round < 20000; round++) {
        static const char *const names[] = {"gpt-2", "qwen35", "gpt-4o", "deepseek-v3",
                                            "deepseek-llm"};
        size_t n = (size_t)(round % 20), at, len, end = 0;
        char *text = malloc(n + 1); /* its own block, so that a sanitizer sees a step too far */
        struct split s;
        const char *name = names[round % 5];

        for (size_t i = 0; i < n; i++)
            text[i] = (char)((seed = seed * 1664525 + 1013904223) >> 24);
        text = realloc(text, n ? n : 1);
        split_init(&s, split_find(name, strlen(name)), text, n);
        while (split_next(&s, &at, &len) && at == end && len)
            end += len;
        if (end != n)
            CHECK(0, "%s lost bytes in round %d", name, round);
        free(text);
    }
    CHECK(1, "done");
}

/* Long runs that a careless scanner walks again and again: linear or hours. */
static void test_long_runs(void)
{
    enum { N = 400000 };
    static const char *const units[] = {" ", "\n",           "a",        "A",  "1",
                                        "=", "\xE2\x80\xA8", "\xCC\x81", " \n"};
    static const char *const names[] = {"gpt-2",  "qwen2",       "qwen35",      "llama-bpe",
                                        "gpt-4o", "deepseek-v3", "deepseek-llm"};
    char *text = malloc(N + 4);
    clock_t start = clock();

    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        size_t len = strlen(units[u]), n = 0;

        while (n + len <= N) {
            memcpy(text + n, units[u], len);
            n += len;
        }
        text[n++] = 'x';
        for (size_t r = 0; r < sizeof names / sizeof *names; r++) {
            struct split s;
            size_t at, k, end = 0;

            split_init(&s, split_find(names[r], strlen(names[r])), text, n);
            while (split_next(&s, &at, &k))
                end = at + k;
            CHECK_EQ(end, n);
        }
    }
    CHECK((clock() - start) / CLOCKS_PER_SEC < 30, "more than 30 s");
    free(text);
}

int main(void)
{
    test_examples();
    test_classes();
    test_golden();
    test_not_utf8();
    test_long_runs();
    return test_end();
}
