/* Reading: kinds, order, numbers as text, escapes, limits, the line of each refusal. Writing. */
#include "coordinator/json/json.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "coordinator/json/json_write.h"
#include "tests/test.h"

#define IS(cond) CHECK(cond, "is not so")

static struct json_doc *parse(const char *text, size_t n)
{
    struct json_doc *d = NULL;
    struct err e = {0};

    CHECK(json_parse("text", text, n, NULL, &d, &e) == 0, "%s", e.msg);
    return d;
}
#define PARSE(text) parse(text, sizeof text - 1)

static void test_tree(void)
{
    struct json_doc *d = PARSE(" {\"b\": [1, [], {}, null], \"a\": {\"x\": true, \"y\": false},\n"
                               "\"b\": \"last\", \"\": -0.5e3} ");
    const struct json *j = json_root(d);
    double f;

    CHECK_EQ(j->kind, JSON_OBJECT);
    CHECK_EQ(j->n, 4);
    CHECK_STR(j->items[0].key, "b");
    CHECK_STR(j->items[1].key, "a");
    CHECK_EQ(j->items[0].n, 4);
    CHECK_EQ(j->items[0].items[1].kind, JSON_ARRAY);
    CHECK_EQ(j->items[0].items[2].kind, JSON_OBJECT);
    CHECK_EQ(json_at(&j->items[0], 3)->kind, JSON_NULL);
    IS(!json_at(&j->items[0], 4));
    IS(!j->items[0].items[0].key);
    IS(json_is(json_get(j, "b"), "last"));
    IS(json_get(json_get(j, "a"), "x")->truth);
    IS(!json_get(json_get(j, "a"), "y")->truth);
    IS(!json_get(json_get(j, "none"), "x"));
    IS(!json_f64(json_get(j, ""), &f) && f == -500);
    CHECK_STR(json_get(j, "")->text, "-0.5e3");
    json_free(d);
    d = PARSE("7");
    CHECK_EQ(json_root(d)->kind, JSON_NUMBER);
    json_free(d);
}

static void test_numbers(void)
{
    struct json_doc *d =
        PARSE("[123456789012345678901234567890, 18446744073709551615, -1, 1e3, 1.5,"
              "-9223372036854775808, 9223372036854775808, 1e400, -0, 2.0, \"3\"]");
    const struct json *j = json_root(d);
    int64_t i;
    uint64_t u;
    double f;

    CHECK_STR(j->items[0].text, "123456789012345678901234567890");
    IS(json_i64(&j->items[0], &i) < 0 && json_u64(&j->items[0], &u) < 0);
    IS(!json_u64(&j->items[1], &u) && u == UINT64_MAX);
    IS(json_i64(&j->items[1], &i) < 0);
    IS(!json_i64(&j->items[2], &i) && i == -1);
    IS(json_u64(&j->items[2], &u) < 0);
    IS(!json_i64(&j->items[3], &i) && i == 1000);
    IS(json_i64(&j->items[4], &i) < 0 && json_u64(&j->items[4], &u) < 0);
    IS(!json_i64(&j->items[5], &i) && i == INT64_MIN);
    IS(json_i64(&j->items[6], &i) < 0);
    IS(!json_u64(&j->items[6], &u) && u == 1ull << 63);
    IS(!json_f64(&j->items[7], &f) && isinf(f));
    IS(json_i64(&j->items[7], &i) < 0 && json_u64(&j->items[7], &u) < 0);
    IS(!json_i64(&j->items[8], &i) && i == 0);
    IS(!json_u64(&j->items[8], &u) && u == 0);
    IS(!json_u64(&j->items[9], &u) && u == 2);
    IS(json_i64(&j->items[10], &i) < 0 && json_f64(&j->items[10], &f) < 0);
    IS(json_i64(NULL, &i) < 0);
    json_free(d);
}

static void test_strings(void)
{
    static const struct {
        const char *json, *want;
        size_t n;
    } cases[] = {
        {"\"a\\u0000b\"", "a\0b", 3},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8},
        {"\"\\u00e9\\uD83D\\uDE00\"", "\xC3\xA9\xF0\x9F\x98\x80", 6},
        {"\"\xF0\x9F\x98\x80\"", "\xF0\x9F\x98\x80", 4},
        /* halves of pairs */
        {"\"\\uD83D\"", "\xEF\xBF\xBD", 3},
        {"\"\\uDE00x\"", "\xEF\xBF\xBDx", 4},
        {"\"\\uD83D\\u0041\"",
         "\xEF\xBF\xBD"
         "A",
         4},
        {"\"\\uD83D\\uD83D\\uDE00\"", "\xEF\xBF\xBD\xF0\x9F\x98\x80", 7},
        {"\"\\\\uD83D\"", "\\uD83D", 6},
        {"\"\"", "", 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct json_doc *d = parse(cases[i].json, strlen(cases[i].json));

        if (!d)
            continue;
        CHECK(json_root(d)->n == cases[i].n &&
                  !memcmp(json_root(d)->text, cases[i].want, cases[i].n + 1),
              "case %zu: %s", i, cases[i].json);
        json_free(d);
    }
}

static void test_refusals(void)
{
    static const struct {
        const char *json;
        size_t n, at;
    } cases[] = {
        {"", 0, 0},          {"[1,]", 4, 3},      {"{\"a\":1,}", 8, 7},
        {"[1 2]", 5, 3},     {"nul", 3, 3},       {"1 2", 3, 2},
        {"\"\xFF\"", 3, 1},  {"\"a\nb\"", 5, 2},  {"[01]", 4, 2},
        {"{\"a\" 1}", 7, 5}, {"\"\\x\"", 4, 2},   {"// c\n1", 6, 0},
        {"[1, \0 2]", 8, 4}, {"\"\\uD83D", 7, 7}, {"NaN", 3, 0},
        {"{1:2}", 5, 1},     {"[", 1, 1},         {"\"\xED\xA0\x80\"", 5, 1},
        /* the beginning of a token behind the value */
        {"7\"", 2, 1},       {"7 \"\\", 4, 2},   {"[1] \"ab}", 8, 4},
        {"{} tr", 5, 3},     {"\"a\" \"b", 6, 4}, {"null\t-", 6, 5},
        {"[\"]\"]\"", 6, 5},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct json_doc *d = NULL;
        struct err e = {0};
        unsigned long at = 0;

        CHECK(json_parse("body", cases[i].json, cases[i].n, NULL, &d, &e) == -EINVAL && !d,
              "case %zu is accepted", i);
        CHECK(sscanf(e.msg, "body: byte %lu: not JSON: ", &at) == 1 && !strchr(e.msg, '\n'),
              "case %zu: '%s'", i, e.msg);
        CHECK(at + 2 >= cases[i].at && at <= cases[i].at + 2, "case %zu: '%s', wanted about %zu", i,
              e.msg, cases[i].at);
    }
}

static void test_limits(void)
{
    enum { DEEP = 100000 };
    static char deep[2 * DEEP];
    struct json_limits limits = {.bytes = 10, .depth = 3};
    struct json_doc *d = NULL;
    struct err e = {0};

    CHECK(json_parse("t", "[[[1]]]", 7, &limits, &d, &e) == 0, "%s", e.msg);
    json_free(d);
    IS(json_parse("t", "[[[[1]]]]", 9, &limits, &d, &e) == -EINVAL);
    CHECK_STR(e.msg, "t: nested too deeply, at most 3 levels work");
    e = (struct err){0};
    limits.values = 3;
    IS(json_parse("t", "[1,{}]", 6, &limits, &d, &e) == 0);
    json_free(d);
    IS(json_parse("t", "[1,2,{}]", 8, &limits, &d, &e) == -E2BIG);
    e = (struct err){0};
    IS(json_parse("t", "[1,2,3,4,5]", 11, &limits, &d, &e) == -E2BIG);
    CHECK_STR(e.msg, "t: 11 bytes of JSON, at most 10 work");
    memset(deep, '[', DEEP);
    memset(deep + DEEP, ']', DEEP);
    IS(json_parse("t", deep, sizeof deep, NULL, &d, NULL) == -EINVAL);
    IS(json_parse("t", deep + DEEP - 1000, 2000, NULL, &d, NULL) == 0);
    json_free(d);
}

static void test_file(void)
{
    char path[] = "/tmp/json_test.XXXXXX";
    int fd = mkstemp(path);
    struct json_doc *d = NULL;
    struct err e = {0};

    IS(fd >= 0 && write(fd, "{\"a\":[1]}", 9) == 9);
    CHECK(json_load(path, NULL, &d, &e) == 0, "%s", e.msg);
    CHECK_EQ(json_get(json_root(d), "a")->n, 1);
    json_free(d);
    IS(json_load(path, &(struct json_limits){.bytes = 8}, &d, &e) == -E2BIG);
    close(fd);
    unlink(path);
    e = (struct err){0};
    IS(json_load(path, NULL, &d, &e) == -ENOENT);
    CHECK(strstr(e.msg, "cannot open"), "%s", e.msg);
    e = (struct err){0};
    CHECK(json_load("/", NULL, &d, &e) < 0 && strstr(e.msg, "cannot read"), "%s", e.msg);
}

static void test_write(void)
{
    struct json_out *o = json_out_new(0);
    const char *text;
    size_t n;
    struct err e = {0};

    json_open_object(o);
    json_key(o, "s");
    json_put_strn(o, "a\0\"\n\xC3\xA9", 6);
    json_key(o, "n");
    json_open_array(o);
    json_put_i64(o, INT64_MIN);
    json_put_u64(o, UINT64_MAX);
    json_put_f64(o, 0.1);
    json_put_f64(o, 1.0 / 3);
    json_put_f64(o, NAN);
    json_put_number(o, "123456789012345678901234567890", 30);
    json_put_bool(o, 1);
    json_put_null(o);
    json_close_array(o);
    json_close_object(o);
    CHECK(json_text(o, &text, &n, &e) == 0, "%s", e.msg);
    CHECK_STR(text, "{\"s\":\"a\\u0000\\\"\\n\xC3\xA9\",\"n\":[-9223372036854775808,"
                    "18446744073709551615,0.1,0.3333333333333333,null,"
                    "123456789012345678901234567890,true,null]}");
    CHECK_EQ(n, strlen(text));
    json_out_free(o);

    o = json_out_new(1);
    json_open_object(o);
    json_key(o, "bad");
    json_put_strn(o, "\xFF", 1);
    json_close_object(o);
    IS(json_text(o, &text, &n, &e) < 0);
    CHECK_STR(e.msg, "a string for JSON is not UTF-8");
    json_out_free(o);

    o = json_out_new(0);
    json_open_object(o);
    json_put_i64(o, 1); /* a value where a key belongs */
    e = (struct err){0};
    CHECK(json_text(o, &text, &n, &e) < 0 && strstr(e.msg, "not well formed"), "%s", e.msg);
    json_out_free(o);
}

int main(void)
{
    test_tree();
    test_numbers();
    test_strings();
    test_refusals();
    test_limits();
    test_file();
    test_write();
    return test_end();
}
