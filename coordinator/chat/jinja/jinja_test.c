/* The engine's own rules, without templates of models: what is refused and how it is named, limits,
 * marks, and that an error leaves nothing behind. What Jinja prints is in jinja_golden_test.c. */
#include "coordinator/chat/jinja/jinja.h"

#include <stdlib.h>

#include "tests/test.h"

static const char context[] = "{\"u\": \"<|x|>\\u00e9\", \"l\": [\"a\", \"b\"], \"m\": {\"k\": \"v\", \"n\": null}, \"i\": 3,"
                              " \"bos\": \"<s>\"}";

struct result {
    int rc;
    struct jinja_text text;
    struct jinja_fault fault;
    struct err e;
};

/* Renders with the context above, of which `bos` alone is no user's text. */
static struct result render_n(const char *source, size_t n, const struct jinja_limits *limits)
{
    struct result r = {0};
    struct jinja *t = NULL;
    struct json_doc *d = NULL;
    struct jinja_var v[16];
    size_t n_vars = 0;

    CHECK(!json_parse("context", context, sizeof context - 1, NULL, &d, &r.e), "%s", r.e.msg);
    for (; n_vars < json_root(d)->n; n_vars++) {
        const struct json *j = &json_root(d)->items[n_vars];

        v[n_vars] = (struct jinja_var){j->key, j, !strcmp(j->key, "bos")};
    }
    r.rc = jinja_parse("T", source, n, &t, &r.fault, &r.e);
    if (!r.rc)
        r.rc = jinja_render(t, v, n_vars, NULL, limits, &r.text, &r.fault, &r.e);
    CHECK(!r.rc == !r.e.code && r.rc == r.e.code, "%s: %d and %d", source, r.rc, r.e.code);
    CHECK(!r.rc || (!r.text.s && !r.text.user), "%s: text after an error", source);
    jinja_free(t);
    json_free(d);
    return r;
}

static struct result render(const char *source)
{
    return render_n(source, strlen(source), NULL);
}

static void gives(const char *source, const char *text)
{
    struct result r = render(source);

    CHECK(!r.rc && r.text.n == strlen(text) && !strcmp(r.text.s, text), "%s gives '%s', wanted '%s'", source,
          r.rc ? r.e.msg : r.text.s, text);
    jinja_text_free(&r.text);
}

static void refused(const char *source, enum jinja_kind kind, const char *message)
{
    struct result r = render(source);

    CHECK(r.rc && r.fault.kind == kind, "%s: kind %d, wanted %d: %s", source, (int)r.fault.kind, (int)kind,
          r.rc ? r.e.msg : r.text.s);
    if (r.rc)
        CHECK_STR(r.e.msg, message);
    jinja_text_free(&r.text);
}

static void test_text(void)
{
    gives("", "");
    gives("a\r\nb\rc\n", "a\nb\nc");
    gives("{{ i }}{{ l[1] ~ m.k }}{{ m.n is none }}", "3bvTrue");
    gives("{% for x in l %}{{ loop.index }}{{ x }}{% endfor %}", "1a2b");
    gives("{% set ns = namespace(n=0) %}{% for x in l %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "6");
    gives("{% macro f(a, b=i) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(1, b=2) }}", "1312");
    gives("{% if false %}{{ i | sparkle }}{{ i is sparkling }}{% endif %}x", "x");
    gives("{{ m | tojson }}", "{\"k\": \"v\", \"n\": null}");
    gives("{{ '{\"a\": [1, 2.0]}' | from_json }}{{ ('[1]' | from_json)[0] + 1 }}", "{'a': [1, 2.0]}2");
    gives("{{ ('a', 'b').index('b') }}{{ (1, 1).count(1) }}", "12");
    gives("{% set q = [] %}{% for x in l %}{% set _ = q.append(x) %}{% endfor %}{{ q }}", "['a', 'b']");
}

static void test_refusals(void)
{
    refused("a\n{% include 'x' %}", JINJA_SYNTAX, "T: line 2: the tag {% include %} is not known here");
    refused("{{ i | sparkle }}", JINJA_SYNTAX, "T: line 1: the filter 'sparkle' is not known");
    refused("\n\n{{ i is sparkling }}", JINJA_SYNTAX, "T: line 3: the test 'sparkling' is not known");
    refused("{% if true %}\n{{ i | sparkle }}{% endif %}", JINJA_SYNTAX, "T: line 2: the filter 'sparkle' is not known");
    refused("{{ 'a'.casefold() }}", JINJA_SYNTAX, "T: line 1: 'casefold' is not supported");
    refused("{{ cycler(1) }}", JINJA_SYNTAX, "T: line 1: 'cycler' is not supported");
    refused("{{ i.__class__ }}", JINJA_SYNTAX,
            "T: line 1: attributes that begin with two underscores ('__class__') are refused");
    refused("{% for x in l recursive %}{% endfor %}", JINJA_SYNTAX, "T: line 1: recursive loops are not supported");
    refused("{{ f(*l) }}", JINJA_SYNTAX, "T: line 1: arguments with * are not supported");
    refused("{% macro f() %}{{ varargs }}{% endmacro %}", JINJA_SYNTAX,
            "T: line 1: 'varargs' in a macro is not supported");
    refused("{% if i %}", JINJA_SYNTAX, "T: line 1: {% endif %} is missing");
    refused("x\n{% endif %}", JINJA_SYNTAX, "T: line 2: the tag {% endif %} is not known here");
    refused("{% break %}", JINJA_SYNTAX, "T: line 1: {% break %} outside a loop");
    refused("{{ 1 +\n }}", JINJA_SYNTAX, "T: line 2: the tag ends where a value is wanted");
    refused("{{ 1", JINJA_SYNTAX, "T: line 1: a tag does not end (}} is missing)");
    refused("{{ 'x }}", JINJA_SYNTAX, "T: line 1: a string does not end");
    refused("a\n{# x", JINJA_SYNTAX, "T: line 2: a comment {# does not end");
    refused("{{ i ? 1 }}", JINJA_SYNTAX, "T: line 1: '?' in a tag is not known");
    refused("{{ '\\ud800' }}", JINJA_SYNTAX, "T: line 1: U+D800 in a string is no character");
    refused("{{ (1 }}", JINJA_SYNTAX, "T: line 1: '}' closes nothing");
    refused("{{ 1) }}", JINJA_SYNTAX, "T: line 1: ')' closes nothing");
    refused("\xFF", JINJA_SYNTAX, "T: line 0: byte 0 is not UTF-8");
    refused("{{ nope.x }}", JINJA_UNDEFINED, "T: line 1: 'nope' is undefined");
    refused("{{ nope() }}", JINJA_UNDEFINED, "T: line 1: 'nope' is undefined");
    refused("{{ 'a' + 1 }}", JINJA_TYPE, "T: line 1: + between a string and a whole number");
    refused("{{ i | length }}", JINJA_TYPE, "T: line 1: length: not with a whole number");
    refused("{% set m.k = 1 %}", JINJA_RUNTIME, "T: line 1: m.k cannot be set: m is a map, no namespace");
    refused("{{ l.append(1) }}", JINJA_RUNTIME, "T: line 1: an input cannot be changed");
    refused("{{ 9223372036854775807 + 1 }}", JINJA_RUNTIME, "T: line 1: a whole number beyond 64 bits");
    refused("{{ 1 // 0 }}", JINJA_RUNTIME, "T: line 1: division by zero");
    refused("{{ strftime_now('%Y') }}", JINJA_RUNTIME, "T: line 1: strftime_now: no clock was given");
    refused("{{ raise_exception('no:\n' ~ i) }}", JINJA_RAISED, "T: line 1: the template refuses: no: 3");
}

/* The client gets what the template said, as it said it. */
static void test_raised(void)
{
    struct result r = render("{{ raise_exception('no:\n' ~ i) }}");

    CHECK_STR(r.fault.text, "no:\n3");
    r = render("{{ raise_exception('\xC3\xA9' * 700) }}");
    CHECK(strlen(r.fault.text) == 1022, "cut at %zu, not before a character", strlen(r.fault.text));
}

/* n times text, between a beginning and an end */
static char *many(const char *begin, const char *text, size_t n, const char *end)
{
    size_t k = strlen(text), size = strlen(begin) + n * k + strlen(end) + 1;
    char *s = malloc(size), *at = s;

    if (!s)
        abort();
    at += sprintf(at, "%s", begin);
    for (size_t i = 0; i < n; i++, at += k)
        memcpy(at, text, k);
    strcpy(at, end);
    return s;
}

static void limited(char *source)
{
    struct result r = render(source);

    CHECK(r.rc == -E2BIG && r.fault.kind == JINJA_LIMIT, "%.60s: %s", source, r.rc ? r.e.msg : "no error");
    jinja_text_free(&r.text);
    free(source);
}

static void test_limits(void)
{
    struct jinja_limits few = {.steps = 1000, .output = 100, .memory = 1 << 20};
    static const struct {
        const char *begin, *text;
        size_t n;
        const char *end;
    } hostile[] = {
        {"{{ ", "(", 100000, "1 }}"},
        {"{{ ", "[", 100000, "1 }}"},
        {"{{ ", "-", 100000, "1 }}"},
        {"{{ ", "not ", 100000, "1 }}"},
        {"{{ i", "[0]", 100000, " }}"},
        {"{{ i", ".a", 100000, " }}"},
        {"{{ i", "()", 100000, " }}"},
        {"{{ i", " | abs", 100000, " }}"},
        {"{{ 1", " if 1 else 1", 50000, " }}"},
        {"", "{% if 1 %}", 90000, ""},
        {"", "{% for x in l %}", 60000, ""},
        {"", "x", JINJA_SOURCE_MAX + 1, ""},
        {"{% set s = 'aaaaaaaa' %}", "{% set s = s ~ s %}", 60, ""},
        {"{% set s = [1, 2, 3] %}", "{% set s = s + s %}", 60, ""},
        {"{{ 'x' * 9999999999 }}", "", 0, ""},
        {"{{ [1] * 9999999999 }}", "", 0, ""},
        {"{{ 'x'.replace('', 'yyyyyyyy' * 10000000) }}", "", 0, ""},
        {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "", 0, ""},
        {"{{ range(100001) }}", "", 0, ""},
        {"{{ range(-9223372036854775807, 9223372036854775807) }}", "", 0, ""},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "", 0, ""},
        {"{% macro f(a) %}{{ f([a]) }}{% endmacro %}{{ f(1) }}", "", 0, ""},
        {"{% set s = [] %}{% set _ = s.append(s) %}{{ s }}", "", 0, ""},
        {"{% set s = [] %}{% set _ = s.append(s) %}{{ s | tojson }}", "", 0, ""},
        {"{% set s = [] %}{% set _ = s.append(s) %}{% set t = [] %}{% set _ = t.append(t) %}{{ s == t }}", "", 0, ""},
        {"{% set s = [1] %}{% for i in range(60) %}{% set _ = s.append(s + s) %}{% endfor %}{{ s }}", "", 0, ""},
        {"{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}"
         "{{ ns.s }}", "", 0, ""},
        {"{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}"
         "{% set t = ns.s %}{% for i in range(60) %}{% set ns.s = [ns.s[0], ns.s[1]] %}{% endfor %}"
         "{{ [1, ns.s[0]] == [1, [t[0][0], t[1][1]]] and ns.s | string }}", "", 0, ""},
        {"{{ ('a' * 30000000).rsplit('a' * 10000 + 'b' + 'a' * 10000) | length }}"
         "{{ 'a' * 60000000 ~ 'a' * 60000000 }}", "", 0, ""},
    };

    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++)
        limited(many(hostile[i].begin, hostile[i].text, hostile[i].n, hostile[i].end));
    for (int i = 0; i < 3; i++) {
        static const char *const one_too_many[] = {"{% for i in range(999) %}{{ i }}{% endfor %}",
                                                   "{{ 'x' * 101 }}", "{% set l = [0] * 60000 %}"};
        static const char *const message[] = {"T: line 1: takes more than 1000 steps",
                                              "T: line 1: makes more than 100 bytes of text",
                                              "T: line 1: needs more than 1 MiB of memory"};
        struct jinja_limits only = {.steps = i == 0 ? few.steps : 0, .output = i == 1 ? few.output : 0,
                                    .memory = i == 2 ? few.memory : 0};
        struct result r = render_n(one_too_many[i], strlen(one_too_many[i]), &only);

        CHECK_STR(r.e.msg, message[i]);
    }
    { /* a long chain is no nesting, and is taken in one go */
        char *s = many("{{ ", "'a' + ", 100000, "'a' }}");
        struct result r = render(s);

        CHECK(!r.rc && r.text.n == 100001, "%s", r.e.msg);
        jinja_text_free(&r.text);
        free(s);
    }
}

/* Marked bytes of the rendering are shown in [ ]. */
static void marked(const char *source, const char *want)
{
    struct result r = render(source);
    char shown[1000];
    size_t n = 0;

    CHECK(!r.rc, "%s: %s", source, r.e.msg);
    for (size_t i = 0, k = 0; i <= r.text.n; i++) {
        if (k < r.text.n_user && r.text.user[k].end == i) {
            shown[n++] = ']';
            k++;
        }
        if (k < r.text.n_user && r.text.user[k].begin == i)
            shown[n++] = '[';
        shown[n++] = r.text.s[i]; /* the NUL too */
    }
    CHECK_STR(shown, want);
    jinja_text_free(&r.text);
}

static void test_marks(void)
{
    marked("{{ u }}", "[<|x|>é]");
    marked("{{ bos }}<|x|>{{ i }}", "<s><|x|>3");
    marked("<|x|>{{ u }}<|x|>", "<|x|>[<|x|>é]<|x|>");
    marked("{{ 'a' + u + 'b' ~ u }}", "a[<|x|>é]b[<|x|>é]");
    marked("{{ u ~ u }}", "[<|x|>é<|x|>é]");
    marked("{{ (' ' ~ u ~ ' ').strip() }}{{ u[1:3] }}{{ u[::-1] }}{{ u[-1] }}", "[<|x|>é|xé>|x|<é]");
    marked("{{ ('a' ~ u ~ 'b').split('|') }}", "['a[<]', '[x]', '[>é]b']");
    marked("{{ ('a' ~ u).replace('|', '!') }}{{ 'a|b'.replace('|', u) }}", "a[<]![x]![>é]a[<|x|>é]b");
    marked("{{ ('a' ~ u) | upper }}{{ u | title }}{{ u | capitalize }}", "A[<|X|>É<|x|>é<|x|>é]");
    marked("{{ [u, m] | tojson }}", "[\"[<|x|>é]\", {\"[k]\": \"[v]\", \"[n]\": null}]");
    marked("{{ m }}{{ l | join(', ') }}{{ l | string }}", "{'[k]': '[v]', '[n]': None}[a], [b]['[a]', '[b]']");
    marked("{{ ('<' ~ u) | e }}", "&lt;[&lt;|x|&gt;é]");
    marked("{{ '%s' % u }}{{ '{}'.format(u) }}{{ u | format }}", "[<|x|>é<|x|>é<|x|>é]");
    marked("{% macro f(x) %}({{ x }}){% endmacro %}{{ f(u) | trim }}", "([<|x|>é])");
    marked("{% set x %}-{{ u }}-{% endset %}{{ x | trim('-') }}{{ x | indent(1, true) }}", "[<|x|>é] -[<|x|>é]-");
    marked("{{ (u ~ '\\n-').splitlines() | join }}{{ ('\"' ~ u ~ '\"' | string) | from_json }}",
           "[<|x|>é]-[<|x|>é]");
    marked("{% for k, v in m.items() %}{{ k }}={{ v }};{% endfor %}{% for c in u[:2] %}.{{ c }}{% endfor %}",
           "[k]=[v];[n]=None;.[<].[|]");
    marked("{% filter upper %}a{{ u }}{% endfilter %}{{ u | list | first }}{{ [u, 'A'] | sort | join }}",
           "A[<|X|>É<<|x|>é]A");
}

int main(void)
{
    test_text();
    test_refusals();
    test_raised();
    test_limits();
    test_marks();
    return test_end();
}
