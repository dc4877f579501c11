/* Outputs of models to answers: cases made here for what may go wrong, and those of golden/chat. Each is fed
 * whole, a byte at a time, and in two pieces cut at every place; nothing may differ, and what was given out
 * may only grow. */
#include "coordinator/chat/answer.h"

#include <stdlib.h>

#include "coordinator/model/golden_vectors.h"

static int same_json(const struct json *a, const struct json *b)
{
    double x, y;

    if (!a || !b || a->kind != b->kind || (a->kind != JSON_NUMBER && a->n != b->n))
        return 0;
    switch (a->kind) {
    case JSON_NULL:
        return 1;
    case JSON_BOOL:
        return a->truth == b->truth;
    case JSON_NUMBER:
        return !json_f64(a, &x) && !json_f64(b, &y) && x == y;
    case JSON_STRING:
        return !memcmp(a->text, b->text, a->n);
    case JSON_ARRAY:
        for (size_t i = 0; i < a->n; i++)
            if (!same_json(&a->items[i], &b->items[i]))
                return 0;
        return 1;
    default:
        for (size_t i = 0; i < a->n; i++)
            if (!same_json(&a->items[i], json_get(b, a->items[i].key)))
                return 0;
        return 1;
    }
}

struct want {
    const char *name;
    struct answer_options o;
    const char *output;
    size_t n;
    const char *reasoning, *content; /* "" for null */
    size_t n_calls;
};

/* Pushes s[from..to) and checks that what was there before still is. */
static void push(struct answer *a, const struct want *w, size_t from, size_t to)
{
    size_t n[2], m[2], calls = answer_n_calls(a);
    char *before[2];
    struct err e = {0};

    before[0] = strdup(answer_reasoning(a, &n[0]));
    before[1] = strdup(answer_content(a, &n[1]));
    CHECK(!answer_push(a, w->output + from, to - from, &e), "%s", e.msg);
    CHECK(!strncmp(answer_reasoning(a, &m[0]), before[0], n[0]) && m[0] >= n[0] &&
              !strncmp(answer_content(a, &m[1]), before[1], n[1]) && m[1] >= n[1] && answer_n_calls(a) >= calls,
          "%s: what was given out changed at %zu", w->name, from);
    free(before[0]);
    free(before[1]);
}

static int compare(const struct answer *a, const struct want *w, const char *how, size_t at)
{
    size_t n, m;
    const char *r = answer_reasoning(a, &n), *c = answer_content(a, &m);
    int same = !strcmp(r, w->reasoning) && !strcmp(c, w->content) && answer_n_calls(a) == w->n_calls && strlen(r) == n &&
               strlen(c) == m;

    CHECK(same, "%s (%s %zu): reasoning '%s', content '%s', %zu calls; wanted '%s', '%s', %zu", w->name, how, at, r, c,
          answer_n_calls(a), w->reasoning, w->content, w->n_calls);
    return same;
}

/* The answer in one piece, for further checks; freed by the caller. */
static struct answer *all_ways(const struct want *w)
{
    struct answer *first = NULL, *a;
    struct err e = {0};

    CHECK(!answer_new(&w->o, &first, &e), "%s", e.msg);
    push(first, w, 0, w->n);
    CHECK(!answer_end(first, &e), "%s", e.msg);
    if (!compare(first, w, "whole", 0))
        return first;
    for (size_t cut = 0; cut <= w->n; cut++) { /* the last: a byte at a time */
        CHECK(!answer_new(&w->o, &a, &e), "%s", e.msg);
        if (cut < w->n) {
            push(a, w, 0, cut);
            push(a, w, cut, w->n);
        } else {
            for (size_t i = 0; i < w->n; i++)
                push(a, w, i, i + 1);
        }
        CHECK(!answer_end(a, &e), "%s", e.msg);
        if (compare(a, w, cut < w->n ? "cut at" : "by bytes", cut))
            for (size_t i = 0; i < w->n_calls; i++) {
                const struct answer_call *x = answer_call(a, i), *y = answer_call(first, i);

                CHECK(!strcmp(x->id, y->id) && !strcmp(x->name, y->name) && !strcmp(x->arguments, y->arguments),
                      "%s: call %zu differs when cut at %zu", w->name, i, cut);
            }
        answer_free(a);
    }
    return first;
}

/* ---- golden ---- */

static enum chat_format format_named(const char *name)
{
    static const char *const other[][2] = {{"qwen3", "hermes"}, {"deepseek-v3.1", "deepseek"}};

    for (size_t i = 0; i < 2; i++)
        if (!strcmp(name, other[i][0]))
            name = other[i][1];
    for (int f = CHAT_PLAIN; f <= CHAT_MISTRAL; f++)
        if (!strcmp(name, chat_format_name((enum chat_format)f)))
            return (enum chat_format)f;
    CHECK(0, "format %s", name);
    return CHAT_PLAIN;
}

static const char *text_of(const struct json *j)
{
    return j && j->kind == JSON_STRING ? j->text : "";
}

static void golden(void)
{
    struct json_doc *d = golden_json("chat", "toolcalls.json");
    const struct json *cases = d ? json_get(json_root(d), "cases") : NULL;

    if (!d)
        return;
    CHECK_EQ(cases->n, 60);
    for (size_t i = 0; i < cases->n; i++) {
        const struct json *c = &cases->items[i], *calls = json_get(c, "tool_calls"), *output = json_get(c, "output");
        struct want w = {.name = text_of(json_get(c, "name")),
                         .o = {.format = format_named(text_of(json_get(c, "format"))),
                               .start = json_is(json_get(c, "start"), "reasoning") ? CHAT_REASONING : CHAT_AUTO,
                               .tools = json_get(json_root(d), "tools"),
                               .seed = i},
                         .output = output->text,
                         .n = output->n,
                         .reasoning = text_of(json_get(c, "reasoning_content")),
                         .content = text_of(json_get(c, "content")),
                         .n_calls = calls->n};
        struct answer *a = all_ways(&w);

        for (size_t k = 0; k < calls->n && k < answer_n_calls(a); k++) {
            const struct json *want = &calls->items[k];
            const struct answer_call *got = answer_call(a, k);
            struct json_doc *args = NULL;
            struct err e = {0};

            CHECK_STR(got->name, text_of(json_at(want, 0)));
            CHECK(!json_parse("arguments", got->arguments, strlen(got->arguments), NULL, &args, &e), "%s: %s", w.name, e.msg);
            CHECK(args && same_json(json_root(args), json_at(want, 1)), "%s: arguments %s", w.name, got->arguments);
            if (json_at(want, 2))
                CHECK_STR(got->id, text_of(json_at(want, 2)));
            else
                CHECK(strlen(got->id) == 9, "%s: id %s", w.name, got->id);
            json_free(args);
        }
        answer_free(a);
    }
    json_free(d);
}

/* ---- ours ---- */

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"any\":{},\"e\":{\"enum\":[\"1\",\"2\"]},"
    "\"x\":{\"enum\":[1,\"a\"]},\"u\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]},"
    "\"b\":{\"type\":[\"boolean\",\"null\"]}}}}}]";

static const struct {
    const char *name;
    enum chat_format format;
    enum chat_start start;
    int no_tools;
    const char *output, *reasoning, *content;
    const char *calls[4]; /* "name arguments" */
} cases[] = {
    {"nothing", CHAT_HERMES, CHAT_AUTO, 0, "", "", "", {0}},
    {"blanks", CHAT_HERMES, CHAT_AUTO, 0, " ", "", " ", {0}},
    {"newlines at the front go", CHAT_HERMES, CHAT_AUTO, 0, "\n\nHi\n", "", "Hi\n", {0}},
    {"without tools nothing changes", CHAT_HERMES, CHAT_AUTO, 1, "\n Hi\n<tool_call>\n{\"name\": \"f\"}</tool_call>", "",
     "\n Hi\n<tool_call>\n{\"name\": \"f\"}</tool_call>", {0}},
    {"reasoning without tools", CHAT_PLAIN, CHAT_AUTO, 1, "\n<think>\na\n\nb\n\n</think>\n\n c ", "a\n\nb", "c ", {0}},
    {"reasoning that never ends", CHAT_PLAIN, CHAT_REASONING, 1, "\na\n\n", "a\n\n", "", {0}},
    {"a shut tag without an open one", CHAT_HERMES, CHAT_CONTENT, 0, "a</think>b", "", "a</think>b", {0}},
    {"closed by the prompt", CHAT_HERMES, CHAT_CONTENT, 0, "<think>x", "", "<think>x", {0}},
    {"half a tag", CHAT_HERMES, CHAT_AUTO, 0, "a <tool_ca", "", "a <tool_ca", {0}},
    {"half a tag first", CHAT_HERMES, CHAT_AUTO, 0, "<thin", "", "<thin", {0}},
    {"a tag spoken of in a thought", CHAT_HERMES, CHAT_REASONING, 0, "use <tool_call> now</think>ok", "use <tool_call> now", "ok", {0}},
    {"a call in a thought", CHAT_HERMES, CHAT_REASONING, 0, "t\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "t", "", {"f {}"}},
    {"an unfinished call in a thought", CHAT_QWEN_XML, CHAT_REASONING, 0, "t\n<tool_call>\n<function=f>", "t\n<tool_call>\n<function=f>", "", {0}},
    {"text behind calls goes", CHAT_HERMES, CHAT_AUTO, 0, "a \n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\nbye", "", "a", {"f {}"}},
    {"a broken call, then a good one", CHAT_HERMES, CHAT_AUTO, 0,
     "<tool_call>{\"name\":1}</tool_call>\n<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":[1]}}</tool_call>", "",
     "<tool_call>{\"name\":1}</tool_call>", {"f {\"a\":[1]}"}},
    {"a good call, then a broken one", CHAT_HERMES, CHAT_AUTO, 0,
     "x\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"f\",", "", "x<tool_call>{\"name\":\"f\",", {"f {}"}},
    {"bytes of arguments stay", CHAT_HERMES, CHAT_AUTO, 0,
     "<tool_call>{\"arguments\" : {\"k\":  1.50, \"name\": \"q\\\"}\\u00e9\"} , \"name\":\"f\"}</tool_call>", "", "",
     {"f {\"k\":  1.50, \"name\": \"q\\\"}\\u00e9\"}"}},
    {"arguments in a string", CHAT_HERMES, CHAT_AUTO, 0, "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}</tool_call>", "", "", {"f {\"a\":1}"}},
    {"no arguments", CHAT_HERMES, CHAT_AUTO, 0, "<tool_call>{\"name\":\"f\"}</tool_call>", "", "", {"f {}"}},
    {"arguments of another kind", CHAT_HERMES, CHAT_AUTO, 0, "<tool_call>{\"name\":\"f\",\"arguments\":[]}</tool_call>", "",
     "<tool_call>{\"name\":\"f\",\"arguments\":[]}</tool_call>", {0}},
    {"types", CHAT_QWEN_XML, CHAT_AUTO, 0,
     "<tool_call>\n<function=f>\n<parameter=s>\n1\n</parameter>\n<parameter=n>\n 2 \n</parameter>\n<parameter=any>\n[1]\n</parameter>\n"
     "<parameter=e>\n1\n</parameter>\n<parameter=x>\n1\n</parameter>\n<parameter=u>\n2.5\n</parameter>\n<parameter=b>\nNone\n</parameter>\n"
     "</function>\n</tool_call>", "", "",
     {"f {\"s\": \"1\", \"n\": 2, \"any\": [1], \"e\": \"1\", \"x\": 1, \"u\": \"2.5\", \"b\": null}"}},
    {"a number and a quote is a string", CHAT_QWEN_XML, CHAT_AUTO, 0, "<function=f>\n<parameter=k>\n7\"\n</parameter>\n</function>", "", "",
     {"f {\"k\": \"7\\\"\"}"}},
    {"the last of equal parameters", CHAT_QWEN_XML, CHAT_AUTO, 0,
     "<function=f>\n<parameter=s>\na\n</parameter>\n<parameter=n>\n1\n</parameter>\n<parameter=s>\nb\n</parameter>\n</function>", "", "",
     {"f {\"s\": \"b\", \"n\": 1}"}},
    {"values on one line, empty ones", CHAT_QWEN_XML, CHAT_AUTO, 0,
     "<function=f><parameter=s>a\nb</parameter><parameter=k>\n</parameter><parameter=m>\n\n\n</parameter></function>", "", "",
     {"f {\"s\": \"a\\nb\", \"k\": \"\", \"m\": \"\\n\"}"}},
    {"bytes that are not UTF-8", CHAT_GLM, CHAT_AUTO, 0, "<tool_call>f<arg_key>s</arg_key><arg_value>\xC3\x28\xFF</arg_value></tool_call>", "", "",
     {"f {\"s\": \"\xEF\xBF\xBD(\xEF\xBF\xBD\"}"}},
    {"no name", CHAT_GLM, CHAT_AUTO, 0, "<tool_call></tool_call>", "", "<tool_call></tool_call>", {0}},
    {"prose behind the tag", CHAT_GLM, CHAT_AUTO, 0, "<tool_call> is a tag\nof mine", "", "<tool_call> is a tag\nof mine", {0}},
    {"a value without its end", CHAT_GLM, CHAT_AUTO, 0, "<tool_call>f<arg_key>s</arg_key><arg_value>x</tool_call>", "",
     "<tool_call>f<arg_key>s</arg_key><arg_value>x</tool_call>", {0}},
    {"a section without a call", CHAT_KIMI, CHAT_AUTO, 0, "a <|tool_calls_section_begin|>b", "", "a <|tool_calls_section_begin|>b", {0}},
    {"an id without a number", CHAT_KIMI, CHAT_AUTO, 0,
     "<|tool_call_begin|>f<|tool_call_argument_begin|>{}<|tool_call_end|>", "", "", {"f {}"}},
    {"plain text of gpt-oss", CHAT_GPT_OSS, CHAT_AUTO, 0, "Hello <|x|>", "", "Hello <|x|>", {0}},
    {"two thoughts", CHAT_GPT_OSS, CHAT_AUTO, 0,
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant<|channel|>final<|message|>c<|return|>",
     "a\n\nb", "c", {0}},
    {"a broken call of gpt-oss", CHAT_GPT_OSS, CHAT_AUTO, 0, "<|channel|>commentary to=functions.f<|message|>{\"a\":", "",
     "<|channel|>commentary to=functions.f<|message|>{\"a\":", {0}},
    {"a header that never ends", CHAT_GPT_OSS, CHAT_AUTO, 0, "<|channel|>final", "", "<|channel|>final", {0}},
    {"a call of gpt-oss without tools", CHAT_GPT_OSS, CHAT_AUTO, 1, "<|channel|>commentary to=functions.f<|message|>{}<|call|>", "", "{}", {0}},
    {"llama's JSON that is no call", CHAT_LLAMA, CHAT_AUTO, 0, "{\"name\": \"x\"}", "", "{\"name\": \"x\"}", {0}},
    {"llama's JSON and more", CHAT_LLAMA, CHAT_AUTO, 0, "{\"name\": \"f\", \"parameters\": {}} and", "", "{\"name\": \"f\", \"parameters\": {}} and", {0}},
    {"a list with one bad item", CHAT_MISTRAL, CHAT_AUTO, 0, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, 1]", "",
     "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, 1]", {0}},
    {"a list of two", CHAT_MISTRAL, CHAT_AUTO, 0, "[TOOL_CALLS] [ {\"name\": \"f\", \"arguments\": {}} , {\"name\": \"g\", \"arguments\": {\"a\": \"]\"}}]", "", "",
     {"f {}", "g {\"a\": \"]\"}"}},
};

static void ours(void)
{
    struct json_doc *tools = NULL;
    struct err e = {0};

    CHECK(!json_parse("tools", tools_text, sizeof tools_text - 1, NULL, &tools, &e), "%s", e.msg);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct want w = {.name = cases[i].name,
                         .o = {cases[i].format, cases[i].start, cases[i].no_tools ? NULL : json_root(tools), 1},
                         .output = cases[i].output,
                         .n = strlen(cases[i].output),
                         .reasoning = cases[i].reasoning,
                         .content = cases[i].content};
        struct answer *a;

        while (cases[i].calls[w.n_calls])
            w.n_calls++;
        a = all_ways(&w);
        for (size_t k = 0; k < w.n_calls && k < answer_n_calls(a); k++) {
            char shown[400];

            snprintf(shown, sizeof shown, "%s %s", answer_call(a, k)->name, answer_call(a, k)->arguments);
            CHECK_STR(shown, cases[i].calls[k]);
        }
        answer_free(a);
    }
    json_free(tools);
}

/* Ids are a function of the seed and the call's number. */
static void ids(void)
{
    static const char text[] = "<tool_call>f</tool_call><tool_call>f</tool_call>";
    struct json_doc *tools = NULL;
    struct err e = {0};
    char seen[6][10];

    CHECK(!json_parse("tools", tools_text, sizeof tools_text - 1, NULL, &tools, &e), "%s", e.msg);
    for (size_t i = 0; i < 3; i++) {
        struct answer_options o = {CHAT_GLM, CHAT_AUTO, json_root(tools), i & 1};
        struct answer *a = NULL;

        CHECK(!answer_new(&o, &a, &e) && !answer_push(a, text, sizeof text - 1, &e) && !answer_end(a, &e), "%s", e.msg);
        CHECK_EQ(answer_n_calls(a), 2);
        for (size_t k = 0; k < 2; k++) {
            snprintf(seen[2 * i + k], 10, "%s", answer_call(a, k)->id);
            CHECK(strspn(seen[2 * i + k], "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == 9, "id %s", seen[2 * i + k]);
        }
        answer_free(a);
    }
    CHECK(!strcmp(seen[0], seen[4]) && !strcmp(seen[1], seen[5]), "ids differ with one seed");
    CHECK(strcmp(seen[0], seen[1]) && strcmp(seen[0], seen[2]) && strcmp(seen[1], seen[3]), "ids are alike");
    json_free(tools);
}

int main(void)
{
    golden();
    ours();
    ids();
    return test_end();
}
