/* Grammars and schemas: which texts they take, what is refused and how, sets of tokens against texts one by one,
 * every cutting of a text alike, random grammars against a naive matcher, limits. */
#include "coordinator/sample/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/model/gguf_build.h"
#include "coordinator/sample/grammar/front.h"
#include "coordinator/sample/grammar/sets.h"
#include "coordinator/sample/grammar_keep.h"
#include "tests/test.h"

static unsigned seed = 7;
static unsigned any(unsigned n)
{
    seed = seed * 1103515245 + 12345;
    return (seed >> 16) % n;
}

/* ---- a vocabulary ---- */

enum { BYTE0 = 3, END = 2 };
static const char *const pieces[] = {"a", "b", "c", "ab", "ba", "abc", "aa", "cab", "{", "}", "{\"", "\":", "\"}", "\",", "\"",
                                     "true", "tr", "ue", "false", "null", "12", "1", "0", "-", ".", ",", " ", "\n", "  ", "é",
                                     "名前", "名", "\\n", "\\", "hello world", " the", "name", "\"name\"", "[1", "]]", "<", "</think>",
                                     "<think>", "a long piece of text that is plain, and longer than sixteen characters", "e", "E5"};
enum { N_PIECES = sizeof pieces / sizeof *pieces, N_VOCAB = BYTE0 + 256 + N_PIECES + 5 /* the model has more than the file */ };

struct both {
    struct gguf *g;
    struct tokenizer *t;
    struct grammar_vocab *v;
};

static int is_think(size_t id)
{
    return id >= BYTE0 + 256 && id < BYTE0 + 256 + N_PIECES && strstr(pieces[id - BYTE0 - 256], "think>");
}

static struct both vocabulary(void)
{
    struct both b = {0};
    struct build w;
    struct err e = {0};
    size_t n = BYTE0 + 256 + N_PIECES;

    build_begin(&w, 3);
    build_string(&w, "tokenizer.ggml.model", "llama");
    build_array(&w, "tokenizer.ggml.tokens", 8, n);
    build_str(&w, "<unk>");
    build_str(&w, "<s>");
    build_str(&w, "</s>");
    for (int i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", i);
        build_str(&w, name);
    }
    for (size_t i = 0; i < N_PIECES; i++)
        build_str(&w, pieces[i]);
    build_array(&w, "tokenizer.ggml.token_type", 5, n);
    for (size_t i = 0; i < n; i++)
        build_int(&w, !i ? 2 : i < BYTE0 || is_think(i) ? 3 : i < BYTE0 + 256 ? 6 : 1, 4);
    build_array(&w, "tokenizer.ggml.scores", 6, n);
    for (size_t i = 0; i < n; i++)
        build_int(&w, 0, 4);
    build_u32(&w, "tokenizer.ggml.bos_token_id", 1);
    build_u32(&w, "tokenizer.ggml.eos_token_id", END);
    build_end(&w);
    CHECK(!gguf_parse("m.gguf", w.b, w.n, w.n, &b.g, &e), "%s", e.msg);
    build_free(&w);
    CHECK(!tokenizer_open(b.g, NULL, &b.t, &e), "%s", e.msg);
    CHECK(!grammar_vocab_new(b.t, N_VOCAB, &b.v, &e), "%s", e.msg);
    return b;
}
static struct both vocab;

static int bit(const uint64_t *bits, uint32_t id)
{
    return bits[id / 64] >> id % 64 & 1;
}

/* ---- texts ---- */

enum { NO, FRONT, WHOLE, TOO_MUCH }; /* of a text of the grammar */

static int look(const struct grammar *fresh, const char *text, size_t n)
{
    struct grammar *g;
    struct err e = {0};
    int rc, is;

    CHECK(!grammar_clone(fresh, &g, &e), "%s", e.msg);
    rc = grammar_accept_text(g, text, n, &e);
    CHECK(!rc || rc == -EINVAL || rc == -E2BIG, "%s", e.msg);
    is = rc == -E2BIG ? TOO_MUCH : rc ? NO : grammar_may_end(g) ? WHOLE : FRONT;
    grammar_close(g);
    return is;
}

static struct grammar *open_text(const char *gbnf, const char *schema)
{
    struct grammar_source s = {.gbnf = gbnf, .n = gbnf ? strlen(gbnf) : 0};
    struct json_doc *d = NULL;
    struct grammar *g = NULL;
    struct err e = {0};

    if (schema) {
        CHECK(!json_parse("schema", schema, strlen(schema), NULL, &d, &e), "%s", e.msg);
        s.schema = json_root(d);
    }
    CHECK(!grammar_open(vocab.v, &s, &g, &e), "%s: %s", gbnf ? gbnf : schema, e.msg);
    json_free(d);
    return g;
}

/* What tokens may come is what their texts may; every cutting of the text comes to the same. */
static void tokens_agree(const struct grammar *fresh, const char *text, size_t n)
{
    struct grammar *g, *c;
    struct err e = {0};
    const uint64_t *bits;

    CHECK(!grammar_clone(fresh, &g, &e), "%s", e.msg);
    for (size_t p = 0;;) {
        uint32_t fit[N_VOCAB], n_fit = 0;
        size_t piece_n;

        bits = grammar_allowed(g, &e);
        CHECK(bits != NULL, "%s", e.msg);
        if (!bits)
            break;
        for (uint32_t id = 0; id < N_VOCAB; id++) {
            const char *b = "";
            size_t b_n = 0;
            int may;

            if (id < tokenizer_n_vocab(vocab.t)) /* two control tokens have a text */
                token_piece(vocab.t, id, is_think(id), &b, &b_n);
            grammar_clone(g, &c, &e);
            may = id == END ? grammar_may_end(g) : b_n && !grammar_accept_text(c, b, b_n, &(struct err){0});
            grammar_set(c, g);
            CHECK(bit(bits, id) == may, "token %u '%.*s' behind '%.*s'", id, (int)b_n, b, (int)p, text);
            CHECK((grammar_accept(c, id, &(struct err){0}) == 0) == may, "token %u behind '%.*s'", id, (int)p, text);
            grammar_close(c);
            if (may && b_n && b_n <= n - p && !memcmp(b, text + p, b_n))
                fit[n_fit++] = id;
        }
        if (!n_fit)
            break;
        n_fit = fit[any(n_fit)];
        CHECK(!grammar_accept(g, n_fit, &e), "%s", e.msg);
        token_piece(vocab.t, n_fit, is_think(n_fit), &(const char *){0}, &piece_n);
        p += piece_n;
        CHECK_EQ(grammar_may_end(g), look(fresh, text, p) == WHOLE);
    }
    grammar_close(g);
}

static void check_text(const struct grammar *g, const char *of, const char *text, int want)
{
    int is = look(g, text, strlen(text));

    CHECK(want == is, "%s: '%s' is %d, wanted %d", of, text, is, want);
    for (size_t n = 0; want == WHOLE && n < strlen(text); n++)
        CHECK(look(g, text, n) != NO, "%s: '%.*s'", of, (int)n, text);
}

struct sample {
    const char *of;       /* grammar or schema */
    const char *whole[8]; /* texts of it */
    const char *not[10];  /* and such that are none, nor the front of one; those with '~' in front are fronts */
};

static void run(const struct sample *s, size_t n, int schemas)
{
    for (size_t i = 0; i < n; i++) {
        struct grammar *g = open_text(schemas ? NULL : s[i].of, schemas ? s[i].of : NULL);

        if (!g)
            continue;
        for (size_t k = 0; k < 8 && s[i].whole[k]; k++) {
            check_text(g, s[i].of, s[i].whole[k], WHOLE);
            if (!k)
                tokens_agree(g, s[i].whole[k], strlen(s[i].whole[k]));
        }
        for (size_t k = 0; k < 10 && s[i].not[k]; k++)
            check_text(g, s[i].of, s[i].not[k] + (*s[i].not[k] == '~'), *s[i].not[k] == '~' ? FRONT : NO);
        grammar_close(g);
    }
}

static void test_gbnf(void)
{
    static const struct sample s[] = {
        {"root ::= \"ab\"", {"ab"}, {"~a", "b", "abc"}},
        {"root ::= \"a\" | \"abc\" | \"\"", {"", "a", "abc"}, {"~ab", "b"}},
        {"# a comment\nroot ::= # here too\n  x+ # and here\n\nx ::= [a-c] # end", {"a", "cab"}, {"d", "ad"}},
        {"root ::= \"a\"* \"b\"? \"c\"+", {"c", "aabcc", "bc"}, {"~aa", "bb", "ca"}},
        {"root ::= \"a\"{2} \"b\"{1,} \"c\"{0,2}", {"aab", "aabbbcc"}, {"~aa", "ab", "aabccc", "aaa"}},
        {"root ::= (\"a\" | \"b\" (\"c\"\n | \"a\")){ 1 , 3 }", {"a", "bca", "baaa"}, {"~bcab", "aaaa", "bb"}},
        {"root ::= a\n  | b\na ::= \"1\"\nb ::= \"2\"", {"1", "2"}, {"12"}},
        {"root ::= [^a-y\"]+", {"z", "Z1", "é名"}, {"b", "\"", "\xFF", "~\xE5\x90"}},
        {"root ::= [\\]\\\\a-] [-b]", {"]-", "\\b", "a-", "--"}, {"b"}},
        {"root ::= \"\\x41\\u00e9\\U00010348\\n\\t\\\"\"", {"Aé\xF0\x90\x8D\x88\n\t\""}, {"\xE9", "~A\xC3"}},
        {"root ::= .", {"x", "名", "\n", "\xF4\x8F\xBF\xBF"}, {"\x80", "\xC0", "\xED\xA0", "\xF4\x90", "xx"}},
        {"root ::= [é-名]", {"é", "名", "\xE2\x82\xAC"}, {"e", "\xC3\xA8", "\xE5\x91"}},
        {"root ::= s\ns ::= \"(\" s \")\" s | \"\"", {"", "()", "(())()"}, {"~((", ")", "())"}},
        {"root ::= item (\",\" item)*\nitem ::= [0-9]+ | \"[\" root \"]\"", {"1", "1,[2,[3]],4"}, {"~1,", ",", "1]", "~[1"}},
        {"root ::= (\"\" | \"a\")* \"b\"", {"b", "aab"}, {"~aa", "ba"}},
        {"root ::= ((\"a\"?)*)+", {"", "aaa"}, {"b"}},
        {"root::=\"x\"\r\n", {"x"}, {"y"}},
        {"root ::= expr \"=\" term\nexpr ::= term ([-+*/] term)*\nterm ::= [a-z] | [0-9]+ | \"(\" expr \")\"",
         {"a=1", "a*(b+12)-c=x"}, {"~(a", "=", "a++"}},
        {"root ::= \"<\" [^>]{0,40} \">\"", {"<>", "<a long piece of text that is plain>"}, {"~<a", ">", "<>>"}},
    };

    run(s, sizeof s / sizeof *s, 0);
}

static void test_schema(void)
{
    static const struct sample s[] = {
        {"{}", {"1", "\"x\"", "{\"a\": [true, null, {}]}", "-0.5e+10", "[]"}, {"~{", "x", "01", "1.e", "{\"a\",", "[1,]"}},
        {"true", {"null"}, {"nil"}},
        {"{\"type\":\"string\"}",
         {"\"\"", "\"é名\\n\\\\ \\u00e9 \\ud83d\\ude00 /\"", "\"hello world the name\""},
         {"1", "\"\n", "\"\\x", "\"\\ud83dx", "\"\\ude00", "\"a\"b"}},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
         {"\"ab\"", "\"\\n名x\"", "\"\\ud83d\\ude00a\""}, {"\"a\"", "\"abcd", "~\"abc"}},
        {"{\"type\":\"boolean\"}", {"true", "false"}, {"~tr", "null", "1"}},
        {"{\"type\":\"null\"}", {"null"}, {"0"}},
        {"{\"type\":[\"integer\",\"null\"]}", {"-12", "null", "0"}, {"1.5", "true", "1e"}},
        {"{\"type\":\"integer\",\"nullable\":true}", {"7", "null"}, {"\""}},
        {"{\"type\":\"integer\",\"minimum\":-5,\"maximum\":120}",
         {"-5", "0", "9", "10", "99", "120", "-1"}, {"-6", "121", "200", "-0", "01", "1.", "1000"}},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":9,\"exclusiveMaximum\":11}", {"10"}, {"9", "11", "~1", "100", "-"}},
        {"{\"type\":\"integer\",\"minimum\":1e2}", {"100", "101", "5000", "999"}, {"0", "-", "~99", "~1", "0"}},
        {"{\"type\":\"integer\",\"maximum\":-3}", {"-3", "-40"}, {"~-2", "3", "~-1", "0"}},
        {"{\"type\":\"number\",\"minimum\":0.5,\"exclusiveMaximum\":2}",
         {"0.5", "0.75", "1", "1.0", "1.999", "0.500", "1.5"}, {"0.4", "2", "~0", "~0.", "-", "3"}},
        {"{\"type\":\"number\",\"minimum\":-1.25,\"maximum\":1}", {"-1.25", "-1.2", "0", "1", "1.00", "-0.5", "0.0"}, {"-1.26", "1.01", "2", "-2"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0}", {"0.1", "1", "0.001", "12"}, {"-", "~0", "~0.00"}},
        {"{\"enum\":[\"a\",\"b c\",3,null,[1,{\"x\":\"\\\"\"}]]}",
         {"\"a\"", "\"b c\"", "3", "null", "[1, {\"x\": \"\\\"\"}]", "[1,{\"x\":\"\\\"\"}]"}, {"\"c", "4", "a"}},
        {"{\"type\":\"string\",\"enum\":[\"a\",1]}", {"\"a\""}, {"1"}},
        {"{\"const\":\"x\"}", {"\"x\""}, {"\"y", "x"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}", {"[]", "[1, 2,3]", "[\n  1,\n  2\n]"}, {"[,", "[1 ,", "[\"", "~[1"}},
        {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\"]},\"minItems\":1,\"maxItems\":2}", {"[\"a\"]", "[\"a\", \"a\"]"}, {"[]", "[\"a\",\"a\","}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"items\":{\"type\":\"null\"},\"minItems\":1}",
         {"[1]", "[1,\"a\"]", "[1, \"a\", null, null]"}, {"[]", "[\"", "[1,null", "[1,\"a\",1"}},
        {"{\"prefixItems\":[{\"type\":\"integer\"}],\"items\":false}", {"[]", "[1]"}, {"[1,"}},
        {"{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\"}},\"required\":[\"name\",\"age\"],"
         "\"additionalProperties\":false}",
         {"{\"name\": \"Zoë\", \"age\": 7}", "{\"name\":\"\",\"age\":0}", "{\n  \"name\": \"a\",\n  \"age\": 1\n}"},
         {"{}", "{\"age", "{\"name\":1", "{\"name\":\"\"}", "{\"name\":\"\",\"age\":0,", "~{\"name\":\"\",", "{ \"x"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{\"const\":3}},\"required\":[\"b\"],"
         "\"additionalProperties\":false}",
         {"{\"b\":2}", "{\"a\":1,\"b\":2}", "{\"b\":2,\"c\":3}", "{\"a\":1, \"b\":2, \"c\":3}"},
         {"{}", "{\"a\":1}", "{\"c", "{\"b\":2,\"a", "{\"a\":1,\"c"}},
        {"{\"properties\":{\"ab\":{\"const\":1}}}", {"{}", "{\"ab\":1}"}, {"{\"x", "{\"ab\":1,"}},
        {"{\"properties\":{\"ab\":{\"const\":1}},\"required\":[\"c\"]}", {"{\"c\":[]}", "{\"ab\":1,\"c\":2}"}, {"{}", "{\"ab\":1}", "{\"c\":1,"}},
        {"{\"properties\":{\"ab\":{\"const\":1}},\"additionalProperties\":true}",
         {"{}", "{\"ab\":1}", "{\"x\": 2}", "{\"ab\":1,\"abc\":null,\"a\":[]}", "{\"b\":1,\"\":2}", "{\"abc\":1}"},
         {"{\"ab\":2", "{\"ab\":1,\"ab\"", "{\"x\":1,\"ab\"", "{\"\\u0061b\"", "{\"a\\u0062\""}},
        {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"},\"minProperties\":1,\"maxProperties\":2}",
         {"{\"a\":1}", "{\"a\":1,\"b\":2}"}, {"{}", "{\"a\":\"", "{\"a\":1,\"b\":2,"}},
        {"{\"type\":\"object\",\"required\":[\"q\"]}", {"{\"q\":1}", "{\"q\":1,\"r\":2}"}, {"{}", "{\"r"}},
        {"{\"type\":\"object\",\"properties\":{\"a\\\"\\n\":{\"const\":1}},\"required\":[\"a\\\"\\n\"],\"additionalProperties\":true}", {"{\"a\\\"\\n\":1}", "{\"a\\\"\\n\":1,\"a\":2}"}, {"{\"a\\t"}},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}]}", {"12", "\"a\""}, {"\"ab", "t"}},
        {"{\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"x\"}}},{\"properties\":{\"k\":{\"const\":\"y\"},\"v\":{\"type\":\"integer\"}},\"required\":[\"v\"]}],"
         "\"type\":\"object\",\"required\":[\"k\"]}",
         {"{\"k\":\"x\"}", "{\"k\":\"y\",\"v\":1}"}, {"{}", "{\"k\":\"x\", \"w", "{\"k\":\"y\"}", "{\"k\":1"}},
        {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},"
         "{\"properties\":{\"a\":{\"maximum\":5,\"minimum\":0},\"b\":{\"type\":\"null\"}},\"required\":[\"b\"]}]}",
         {"{\"a\":5,\"b\":null}", "{\"a\":0, \"b\":null}"}, {"{\"a\":0, \"b\":null, \"c","{\"a\":6", "{\"a\":1.", "{\"a\":5}", "{\"b"}},
        {"{\"$ref\":\"#/$defs/node\",\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},"
         "\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/node\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"],\"additionalProperties\":false}}}",
         {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"}, {"{\"v\":1}", "{\"v\":1,\"next\":1", "~{\"v\":1,\"next\":{\"v\":2"}},
        {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", {"[]", "[[],[[]]]"}, {"1", "[1"}},
        {"{\"properties\":{\"c\":{\"description\":\"again\",\"allOf\":[{\"$ref\":\"#\"}]}},\"additionalProperties\":false}", {"{}", "{\"c\":{\"c\":{}}}"}, {"{\"c\":1"}},
        {"{\"$ref\":\"#/definitions/a~1b%20c\",\"definitions\":{\"a/b c\":{\"const\":1}}}", {"1"}, {"2"}},
        {"{\"type\":\"string\",\"pattern\":\"^a(b|c)+\\\\d{2}$\"}", {"\"abc12\"", "\"ab01\""}, {"\"a1", "\"ab1\"", "\"ab123"}},
        {"{\"type\":\"string\",\"pattern\":\"b\"}", {"\"b\"", "\"abc\""}, {"\"\"", "\"a\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[^a\\\\s]*$|^x\"}", {"\"\"", "\"\\\"b\"", "\"x a\"", "\"\\\\\""}, {"\"a", "\"b\\n"}},
        {"{\"type\":\"string\",\"pattern\":\"^(?:\\\\.|\\\\w{1,2}?)$\"}", {"\".\"", "\"_\"", "\"ab\""}, {"\"\"", "\"abc", "\"-"}},
        {"{\"type\":\"string\",\"format\":\"date-time\"}", {"\"2026-11-30T23:59:60.5Z\"", "\"2026-01-01T00:00:00+02:00\""}, {"\"2026-13", "\"2026-1-", "\"x"}},
        {"{\"type\":\"string\",\"format\":\"uuid\"}", {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123e4567e"}},
        {"{\"type\":\"string\",\"format\":\"ipv4\"}", {"\"192.168.0.1\"", "\"255.255.255.255\""}, {"\"256", "\"1.2.3\""}},
        {"{\"type\":\"string\",\"format\":\"ipv6\"}", {"\"::\"", "\"fe80::1\"", "\"1:2:3:4:5:6:7:8\""}, {"\":::", "\"g"}},
        {"{\"type\":\"string\",\"format\":\"email\"}", {"\"a.b@c.de\""}, {"\"@", "\"a@\"", "\"a@b\""}},
        {"{\"type\":\"string\",\"format\":\"duration\"}", {"\"P1DT2H\"", "\"PT5S\"", "\"P3W\""}, {"\"P\"", "\"1"}},
        {"{\"title\":\"T\",\"description\":\"d\",\"default\":1,\"x-y\":2,\"type\":\"integer\",\"multipleOf\":1}", {"1"}, {"1."}},
    };

    run(s, sizeof s / sizeof *s, 1);
}

/* ---- what is refused ---- */

static void refused(const char *gbnf, const char *schema, const char *about)
{
    struct grammar_source s = {.gbnf = gbnf, .n = gbnf ? strlen(gbnf) : 0};
    struct json_doc *d = NULL;
    struct grammar *g = NULL;
    struct err e = {0}, none = {0};

    if (schema) {
        CHECK(!json_parse("schema", schema, strlen(schema), NULL, &d, &none), "%s", none.msg);
        s.schema = json_root(d);
    }
    CHECK(grammar_open(vocab.v, &s, &g, &e) < 0 && e.code < 0, "%s is taken", gbnf ? gbnf : schema);
    CHECK(strstr(e.msg, about) && !strchr(e.msg, '\n'), "'%s' does not say '%s'", e.msg, about);
    grammar_close(g);
    json_free(d);
}

static void test_refusals(void)
{
    static const char *const gbnf[][2] = {
        {"", "no rule 'root'"},
        {"x ::= \"a\"", "no rule 'root'"},
        {"root ::= a", "line 1: rule 'a' is not defined"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2: rule 'root' is defined twice"},
        {"root ::= root \"a\" | \"b\"", "rule 'root' begins with itself"},
        {"root ::= a\na ::= b | \"x\"\nb ::= \"\" a \"y\"", "begins with itself (left recursion)"},
        {"root ::= a? root \"x\" | \"b\"\na ::= \"a\"", "rule 'root' begins with itself"},
        {"root ::= (\"b\"? root){2}", "rule 'root' begins with itself"},
        {"root ::= \"a\" root", "rule 'root' can never end"},
        {"root ::= \"a\" x\nx ::= \"[\" y \"]\"\ny ::= x | \"(\" y", "can never end"},
        {"root ::= \"a", "is not closed"},
        {"root ::= [a-", "is not closed"},
        {"root ::= [z-a]", "a range from U+7A to U+61"},
        {"root ::= []", "no character is in"},
        {"root ::= [\\ud800]", "no character is in"},
        {"root ::= \"\\ud800\"", "is no character"},
        {"root ::= [^\\x00-\\U0010ffff]", "no character is in"},
        {"root ::= (\"a\"", "')' was expected"},
        {"root ::= \"a\")", "the end of the rule was expected"},
        {"root ::= * \"a\"", "nothing to repeat"},
        {"root ::= \"a\"{2,1}", "at least 2 repetitions and at most 1"},
        {"root ::= \"a\"{,3}", "a number of repetitions was expected"},
        {"root ::= \"a\"{6000}", "more than 5000 repetitions"},
        {"root ::= (((\"\"){5000}){5000}){5000}", "too much work"},
        {"root ::= \"\\q\"", "an escape is one of"},
        {"root ::= \"\\x4\"", "hexadecimal"},
        {"root ::= <think>", "tokens in angle brackets"},
        {"root = \"a\"", "'::=' was expected"},
        {"root ::= \"\xFF\"", "not UTF-8"},
        {"\"a\"", "the name of a rule was expected"},
    };
    static const char *const schema[][2] = {
        {"false", "#: the schema false"},
        {"3", "a schema is an object or a boolean"},
        {"{\"type\":\"strin\"}", "type 'strin' is not known"},
        {"{\"type\":\"string\",\"maxLenght\":3}", "#: 'maxLenght' is not supported"},
        {"{\"properties\":{\"a\":{\"not\":{}}}}", "#/properties/a: 'not' is not supported"},
        {"{\"items\":{\"uniqueItems\":true}}", "#/items: 'uniqueItems' is not supported"},
        {"{\"if\":{}}", "'if' is not supported"},
        {"{\"patternProperties\":{}}", "'patternProperties' is not supported"},
        {"{\"multipleOf\":5}", "'multipleOf' other than 1 is not supported"},
        {"{\"type\":\"string\",\"format\":\"color\"}", "format 'color' is not supported"},
        {"{\"pattern\":\"a(?=b)\"}", "looking ahead"},
        {"{\"pattern\":\"(a)\\\\1\"}", "back references"},
        {"{\"pattern\":\"a$b\"}", "^ and $"},
        {"{\"pattern\":\"(a\"}", "a group is not closed"},
        {"{\"pattern\":\"a)\"}", "')' without a group"},
        {"{\"pattern\":\"[b-a]\"}", "ends before it begins"},
        {"{\"pattern\":\"a\",\"minLength\":1}", "'pattern' beside a length"},
        {"{\"minLength\":-1}", "'minLength' must be a whole number"},
        {"{\"minLength\":100000}", "'minLength' is above 5000"},
        {"{\"minLength\":3,\"maxLength\":2}", "'minLength' is above 'maxLength'"},
        {"{\"minItems\":3,\"maxItems\":2}", "so few and so many"},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "no number within these bounds"},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":3,\"exclusiveMaximum\":4}", "no number within these bounds"},
        {"{\"minimum\":\"1\"}", "'minimum' must be a number"},
        {"{\"minimum\":1e300}", "more than 18 digits"},
        {"{\"$ref\":\"#\"}", "begins with itself"},
        {"{\"$ref\":\"other.json\"}", "only \"#\" and \"#/...\""},
        {"{\"$ref\":\"#/$defs/a\"}", "which is not there"},
        {"{\"allOf\":[{\"$ref\":\"#\"},{\"type\":\"object\"}]}", "within themselves"},
        {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", "no value has the types"},
        {"{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}", "two different 'pattern'"},
        {"{\"allOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":false},{\"properties\":{\"b\":{}}}]}", "'additionalProperties' beside another"},
        {"{\"type\":\"object\",\"required\":[\"a\"],\"additionalProperties\":false}", "'a' is required"},
        {"{\"properties\":{\"a\":{}},\"additionalProperties\":true,\"maxProperties\":1}", "beside 'properties' are not supported"},
        {"{\"enum\":[]}", "no value of 'enum'"},
        {"{\"enum\":[1],\"minimum\":0}", "'minimum' beside 'enum'"},
        {"{\"properties\":{\"a\":{\"$ref\":\"#/properties/a\"}},\"required\":[\"a\"]}", "begins with itself"},
        {"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "can never end"},
    };
    char *deep = malloc(1 << 20);
    size_t n;

    for (size_t i = 0; i < sizeof gbnf / sizeof *gbnf; i++)
        refused(gbnf[i][0], NULL, gbnf[i][1]);
    for (size_t i = 0; i < sizeof schema / sizeof *schema; i++)
        refused(NULL, schema[i][0], schema[i][1]);
    if (!deep)
        abort();
    n = (size_t)sprintf(deep, "root ::=");
    for (int i = 0; i < 60; i++)
        n += (size_t)sprintf(deep + n, " [a-z]{5000}");
    refused(deep, NULL, "more than 262144 states");
    n = (size_t)sprintf(deep, "root ::= ");
    memset(deep + n, '(', 1 << 15);
    deep[n + (1 << 15)] = 0;
    refused(deep, NULL, "groups inside each other");
    n += (size_t)sprintf(deep + n, "\"a\"");
    memset(deep + n, '*', 1 << 15);
    deep[n + (1 << 15)] = 0;
    refused(deep, NULL, "nested too deeply");
    n = 0;
    for (int i = 0; i < 400; i++)
        n += (size_t)sprintf(deep + n, "{\"items\":");
    n += (size_t)sprintf(deep + n, "{}");
    for (int i = 0; i < 400; i++)
        n += (size_t)sprintf(deep + n, "}");
    refused(NULL, deep, "nested too deeply");
    free(deep);
}

/* ---- random grammars against a naive matcher ---- */

enum { RULES = 4, NODES = 60, TEXT_MAX = 7 };
struct node { /* text a, class [a-b], sequence, alternative, repetition, rule */
    char kind;
    int a, b, min, max;
};
struct naive {
    struct node node[NODES];
    int n, rule[RULES];
    const char *text;
    int len, work;
};

static int naive_make(struct naive *m, int depth)
{
    int at = m->n, k = m->n > NODES - 12 || depth > 4 ? (int)any(3) : (int)any(10);
    struct node x = {0};

    m->n++;
    if (k < 2)
        x = (struct node){'t', 'a' + (int)any(3), 0, 0, 0};
    else if (k < 3)
        x = (struct node){'c', 'a', 'a' + (int)any(3), 0, 0};
    else if (k < 6) {
        int a = naive_make(m, depth + 1);
        x = (struct node){'s', a, naive_make(m, depth + 1), 0, 0};
    } else if (k < 8) {
        int a = naive_make(m, depth + 1);
        x = (struct node){'|', a, naive_make(m, depth + 1), 0, 0};
    } else if (k < 9)
        x = (struct node){'*', naive_make(m, depth + 1), 0, (int)any(3), any(2) ? -1 : 2 + (int)any(2)};
    else
        x = (struct node){'r', (int)any(RULES), 0, 0, 0};
    m->node[at] = x;
    return at;
}

static char *naive_print(const struct naive *m, int at, char *p)
{
    const struct node *x = &m->node[at];

    switch (x->kind) {
    case 't':
        return p + sprintf(p, "\"%c\"", x->a);
    case 'c':
        return p + sprintf(p, "[%c-%c]", x->a, x->b);
    case 'r':
        return p + sprintf(p, "%s", x->a ? (const char *[]){"", "one", "two", "three"}[x->a] : "root");
    case '*':
        p = naive_print(m, x->a, p + sprintf(p, "("));
        return p + (x->max < 0 ? sprintf(p, "){%d,}", x->min) : sprintf(p, "){%d,%d}", x->min, x->max));
    default:
        p = naive_print(m, x->a, p + sprintf(p, "("));
        p = naive_print(m, x->b, p + sprintf(p, x->kind == '|' ? " | " : " "));
        return p + sprintf(p, ")");
    }
}

/* Places where the node can end if it begins at `from`, as bits. */
static unsigned naive_ends(struct naive *m, int at, int from)
{
    const struct node *x = &m->node[at];
    unsigned ends = 0, now;

    if (++m->work > 200000)
        return 0;
    switch (x->kind) {
    case 't':
        return from < m->len && m->text[from] == x->a ? 2u << from : 0;
    case 'c':
        return from < m->len && m->text[from] >= x->a && m->text[from] <= x->b ? 2u << from : 0;
    case 'r':
        return naive_ends(m, m->rule[x->a], from);
    case '|':
        return naive_ends(m, x->a, from) | naive_ends(m, x->b, from);
    case 's':
        now = naive_ends(m, x->a, from);
        for (int i = from; i <= m->len; i++)
            ends |= now >> i & 1 ? naive_ends(m, x->b, i) : 0;
        return ends;
    default:
        now = 1u << from;
        for (int k = 0; k <= (x->max < 0 ? x->min + m->len + 1 : x->max) && now; k++) {
            unsigned next = 0;
            if (k >= x->min)
                ends |= now;
            for (int i = from; i <= m->len; i++)
                next |= now >> i & 1 ? naive_ends(m, x->a, i) : 0;
            now = next;
        }
        return ends;
    }
}

/* The automaton of a grammar without the rest. */
static void open_sets(struct sets *s, const char *gbnf)
{
    struct rules *r;
    struct net net;
    struct err e = {0};

    CHECK(!rules_new("grammar", &r, &e) && !rules_compile(r, gbnf_read(r, gbnf, strlen(gbnf)), &net, &e), "%s", e.msg);
    rules_free(r);
    CHECK(!sets_init(s, &net, vocab.v, &e), "%s", e.msg);
}

/* What goes on can come to an end: of some sets that are reached, nearest first, one is an end. */
static void ends(const char *gbnf)
{
    enum { MOST = 3000 };
    static uint32_t queue[MOST + 3];
    struct sets s;
    struct err e = {0};

    open_sets(&s, gbnf);
    for (int k = 0; k < 20; k++) {
        uint32_t at = s.start, n = 0, done = 0;
        int found = 0;

        for (unsigned i = any(8); i--;) {
            uint32_t to;
            if (!sets_walk(&s, at, &"abc"[any(3)], 1, &to, &e) && to != SET_DEAD)
                at = to;
        }
        for (queue[n++] = at; done < n && n < MOST && !found && !e.code; done++) {
            found = s.set[queue[done]].may_end;
            for (int i = 0; i < 3; i++) {
                uint32_t to, j = 0;
                if (sets_walk(&s, queue[done], &"abc"[i], 1, &to, &e))
                    break;
                while (j < n && queue[j] != to)
                    j++;
                if (to != SET_DEAD && j == n)
                    queue[n++] = to;
            }
        }
        CHECK(found || n >= MOST || e.code == -E2BIG, "%s", gbnf);
    }
    sets_free(&s);
}

static void test_random(void)
{
    int taken = 0, texts = 0;

    for (int round = 0; round < 1500; round++) {
        static struct naive m;
        char text[8192], *p = text;
        struct grammar_source s;
        struct grammar *g = NULL;
        struct err e = {0};

        m.n = 0;
        for (int i = 0; i < RULES; i++) {
            m.rule[i] = naive_make(&m, 1);
            p += sprintf(p, "%s ::= ", i ? (const char *[]){"", "one", "two", "three"}[i] : "root");
            p = naive_print(&m, m.rule[i], p);
            p += sprintf(p, "\n");
        }
        s = (struct grammar_source){.gbnf = text, .n = (size_t)(p - text)};
        if (grammar_open(vocab.v, &s, &g, &e)) {
            CHECK(strstr(e.msg, "left recursion") || strstr(e.msg, "can never end"), "%s", e.msg);
            continue;
        }
        taken++;
        for (int k = 0; k < 40; k++) {
            char word[TEXT_MAX + 1] = "";
            int want, is;

            m.len = (int)any(TEXT_MAX + 1);
            for (int i = 0; i < m.len; i++)
                word[i] = (char)('a' + any(3));
            m.text = word;
            m.work = 0;
            want = naive_ends(&m, m.rule[0], 0) >> m.len & 1;
            if (m.work > 200000)
                continue;
            is = look(g, word, (size_t)m.len);
            texts++;
            CHECK((is == WHOLE) == want || is == TOO_MUCH, "%s'%s' is %d", text, word, is);
        }
        if (round % 10 == 0) {
            ends(text);
            tokens_agree(g, "abcabca", 7);
        }
        grammar_close(g);
    }
    CHECK(taken > 300 && texts > 10000, "%d grammars, %d texts", taken, texts);
}

/* ---- places ---- */

static void test_places(void)
{
    struct grammar *g = open_text("root ::= \"a\" (\"b\" | \"c\")", NULL), *c;
    struct err e = {0};
    const uint64_t *bits;

    CHECK(!grammar_clone(g, &c, &e) && !grammar_accept_text(c, "a", 1, &e), "%s", e.msg);
    CHECK(!grammar_ended(g) && !grammar_ended(c), "not yet");
    CHECK(grammar_accept_text(g, "b", 1, &e) == -EINVAL && !grammar_may_end(g) && strstr(e.msg, "does not go on"), "%s", e.msg);
    CHECK(!grammar_accept_text(c, "b", 1, &(struct err){0}) && grammar_may_end(c) && grammar_ended(c), "b");
    e = (struct err){0};
    CHECK(grammar_accept(g, END, &e) == -EINVAL && strstr(e.msg, "does not allow token 2"), "%s", e.msg);
    CHECK(!grammar_accept(c, END, &(struct err){0}) && grammar_may_end(c), "the end");
    CHECK(grammar_accept(g, 1, &(struct err){0}) && grammar_accept(g, N_VOCAB + 9, &(struct err){0}), "control, unknown");
    grammar_set(c, g);
    CHECK(!grammar_may_end(c) && !grammar_accept_text(c, "ac", 2, &(struct err){0}), "back");
    bits = grammar_allowed(c, &e);
    CHECK(bits && bit(bits, END) && !bit(bits, BYTE0 + 'a'), "nothing but the end");
    grammar_close(g);
    CHECK(grammar_may_end(c), "alone");
    grammar_close(c);
    grammar_close(NULL);
}

static void thought(const char *begin, const char *const *whole, const char *const *not)
{
    struct grammar_source s = {.any_object = 1, .think_begin = begin, .think_end = "</think>"};
    struct grammar *g = NULL;
    struct err e = {0};

    CHECK(!grammar_open(vocab.v, &s, &g, &e), "%s", e.msg);
    for (; *whole; whole++)
        check_text(g, "a thought", *whole, WHOLE);
    for (; *not; not++)
        check_text(g, "a thought", *not + (**not == '~'), **not == '~' ? FRONT : NO);
    tokens_agree(g, begin ? "<think></think>{\"a\":1}" : "<</think>{\"a\":1}", begin ? 22 : 16);
    grammar_close(g);
}

static void test_thought(void)
{
    thought(NULL, (const char *const[]){"</think>{}", "hm <</think </thin</think>\n\n{\"a\": 1}", "\xFF</think>{}", NULL},
            (const char *const[]){"~{}", "</think>x", "~hm", "</think>{}</think>", NULL});
    thought("<think>", (const char *const[]){"{}", "<think>\nso</think>{}", "\n<think></think> {}", NULL},
            (const char *const[]){"x", "~<think>{}", "~<think></think>", "</think>", NULL});
}

/* ---- limits ---- */

static void test_limits(void)
{
    struct grammar *g = open_text(NULL, "{}");
    struct err e = {0};
    int depth = 0;

    while (!grammar_accept_text(g, "[", 1, &(struct err){0}) && depth < 10000)
        depth++;
    CHECK(depth > 100 && depth <= GRAMMAR_DEPTH_MAX, "%d deep", depth);
    CHECK(grammar_allowed(g, &e) != NULL, "%s", e.msg);
    while (depth-- && !grammar_accept_text(g, "]", 1, &e))
        ;
    CHECK(grammar_may_end(g), "%s", e.msg);
    grammar_close(g);

    g = open_text("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"", NULL); /* 2^n stacks behind n letters */
    for (int i = 0; i < 30 && !e.code; i++)
        grammar_accept_text(g, "a", 1, &e);
    CHECK(e.code == -E2BIG && strstr(e.msg, "ways to read"), "%s", e.msg);
    CHECK(grammar_allowed(g, &(struct err){0}) == NULL, "an answer that cannot go on");
    grammar_close(g);
}

/* What is forgotten is found again, and what is kept stays what it was. */
static void test_trim(void)
{
    static const char text[] = "(((()())))()";
    struct sets s;
    struct err e = {0};

    open_sets(&s, "root ::= (\"(\" root \")\")*");
    for (size_t cut = 0; cut < sizeof text; cut++) {
        uint32_t at, other, *keep[2] = {&at, &other};
        const uint64_t *bits;
        uint64_t was[(N_VOCAB + 63) / 64];

        CHECK(!sets_walk(&s, s.start, text, cut, &at, &e) && !sets_walk(&s, s.start, "(", 1, &other, &e), "%s", e.msg);
        CHECK(!sets_allowed(&s, at, &bits, &e), "%s", e.msg);
        memcpy(was, bits, sizeof was);
        CHECK(!sets_trim(&s, keep, 2, &e) && s.n_sets <= 4, "%s, %zu sets", e.msg, s.n_sets);
        CHECK(!sets_allowed(&s, at, &bits, &e) && !memcmp(was, bits, sizeof was), "behind %zu", cut);
        CHECK(!sets_walk(&s, at, text + cut, sizeof text - 1 - cut, &at, &e) && s.set[at].may_end, "behind %zu", cut);
        CHECK(!sets_walk(&s, other, ")", 1, &other, &e) && s.set[other].may_end, "behind %zu", cut);
    }
    sets_free(&s);
}

/* The same source, however it is written, is the same automaton; what was asked for long ago is made again. */
static void test_keep(void)
{
    struct grammar_keep *k;
    struct grammar *g[GRAMMARS_KEPT + 3], *again;
    struct err e = {0};
    char text[64];

    CHECK(!grammar_keep_new(vocab.v, &k, &e), "%s", e.msg);
    for (int i = 0; i < GRAMMARS_KEPT + 2; i++) {
        struct grammar_source s = {.gbnf = text, .n = (size_t)sprintf(text, "root ::= \"%c\" | \"bcd\"", 'a' + i)};
        CHECK(!grammar_keep_open(k, &s, &g[i], &e), "%s", e.msg);
    }
    for (int i = 0; i < GRAMMARS_KEPT + 2; i++) {
        char own = (char)('a' + i);
        CHECK(look(g[i], &own, 1) != NO && look(g[i], "bcd", 3) == WHOLE, "%c", own);
        grammar_close(g[i]);
    }
    for (int i = 0; i < 2; i++) {
        static const char *const schema[] = {"{\"enum\":[1,\"a\"]}", "{ \"enum\" : [1, \"a\"] }"};
        struct json_doc *d = NULL;
        struct grammar_source s = {.think_end = i ? NULL : "</think>"};

        CHECK(!json_parse("schema", schema[i], strlen(schema[i]), NULL, &d, &e), "%s", e.msg);
        s.schema = json_root(d);
        CHECK(!grammar_keep_open(k, &s, &g[0], &e) && look(g[0], "1", 1) == (i ? WHOLE : FRONT), "%s %d", e.msg, i);
        CHECK(!grammar_keep_open(k, &(struct grammar_source){.schema = json_root(d), .think_end = s.think_end}, &again, &e), "%s", e.msg);
        grammar_set(again, g[0]); /* they are clones of each other */
        CHECK(look(again, "\"a\"", 3) == (i ? WHOLE : FRONT), "%d", i);
        grammar_close(g[0]);
        grammar_close(again);
        json_free(d);
    }
    CHECK(!grammar_keep_open(k, &(struct grammar_source){.any_object = 1}, &g[0], &e) && look(g[0], "{}", 2) == WHOLE, "%s", e.msg);
    CHECK(grammar_keep_open(k, &(struct grammar_source){.gbnf = "root", .n = 4}, &again, &e) == -EINVAL, "%s", e.msg);
    grammar_keep_free(k);
    grammar_keep_free(NULL);
    CHECK(look(g[0], "{}", 2) == WHOLE, "clones live on");
    grammar_close(g[0]);
}

int main(void)
{
    vocab = vocabulary();
    test_gbnf();
    test_schema();
    test_refusals();
    test_random();
    test_places();
    test_thought();
    test_limits();
    test_trim();
    test_keep();
    grammar_vocab_free(vocab.v);
    tokenizer_close(vocab.t);
    gguf_close(vocab.g);
    return test_end();
}
