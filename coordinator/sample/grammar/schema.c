/* JSON schemas as rules. Every keyword is one of four: it acts, it is a note, it is refused by name, or it is not
 * known and refused by name. White space is what people and models write: nothing, a blank, or a new line with an
 * indent, behind `{`, `[`, `,`, `:` and before `}` and `]`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/sample/grammar.h"
#include "coordinator/sample/grammar/front.h"
#include "coordinator/sample/grammar/schema_merge.h"

enum {
    PROPERTIES_MAX = 2000, /* of an object, items that are told apart, values of an enum: lists walked in pairs */
    NAME_MAX_BYTES = 1000, /* of a property where others are allowed beside it */
    INDENT_MAX = 20,
    WHERE_MAX = 400,
};

struct schema_rule { /* a schema that was seen: the same place is the same rule, so that it may come in itself */
    const struct json *schema;
    uint32_t rule;
};
struct schema {
    struct rules *r;
    struct merge merge;
    struct schema_rule *seen;
    size_t n_seen, seen_mask;
    int depth;
    char where[WHERE_MAX]; /* "#/properties/name" */
    /* rules that every schema may use, made when first used */
    uint32_t ws, character, string, number, integer, value, object;
};

enum type { TYPE_OBJECT = 1, TYPE_ARRAY = 2, TYPE_STRING = 4, TYPE_NUMBER = 8, TYPE_INTEGER = 16, TYPE_BOOLEAN = 32,
            TYPE_NULL = 64, TYPE_ALL = 111 };
static const struct {
    const char *name;
    int type;
} type_name[] = {{"object", TYPE_OBJECT},   {"array", TYPE_ARRAY},     {"string", TYPE_STRING}, {"number", TYPE_NUMBER},
                 {"integer", TYPE_INTEGER}, {"boolean", TYPE_BOOLEAN}, {"null", TYPE_NULL}};
static const struct {
    const char *name;
    int type; /* that it speaks of; 0: of all */
} keyword[] = {
    {"type", 0},          {"enum", 0},           {"const", 0},         {"anyOf", 0},        {"oneOf", 0},
    {"nullable", 0},
    {"properties", TYPE_OBJECT}, {"required", TYPE_OBJECT}, {"additionalProperties", TYPE_OBJECT},
    {"minProperties", TYPE_OBJECT}, {"maxProperties", TYPE_OBJECT},
    {"items", TYPE_ARRAY}, {"prefixItems", TYPE_ARRAY}, {"minItems", TYPE_ARRAY}, {"maxItems", TYPE_ARRAY},
    {"uniqueItems", TYPE_ARRAY},
    {"minLength", TYPE_STRING}, {"maxLength", TYPE_STRING}, {"pattern", TYPE_STRING}, {"format", TYPE_STRING},
    {"minimum", TYPE_NUMBER}, {"maximum", TYPE_NUMBER}, {"exclusiveMinimum", TYPE_NUMBER},
    {"exclusiveMaximum", TYPE_NUMBER}, {"multipleOf", TYPE_NUMBER},
};

static uint32_t visit(struct schema *s, const struct json *j);

static uint32_t refuse(struct schema *s, const char *what, const char *name)
{
    return rules_fail(s->r, -ENOTSUP, "%s: '%.100s' %s", s->where, name, what);
}

/* ---- values that need no schema ---- */

static uint32_t ws(struct schema *s)
{
    if (s->ws == RULES_NONE) {
        uint32_t blank = TEXT(s->r, " "), line = rules_repeat(s->r, TEXT(s->r, "\n"), 1, 2),
                 indent = rules_repeat(s->r, CLASS(s->r, {' ', ' '}, {'\t', '\t'}), 0, INDENT_MAX);
        s->ws = rules_rule_new(s->r, "white space");
        rules_define(s->r, s->ws, OPTION(s->r, ALT(s->r, blank, SEQ(s->r, line, indent))));
    }
    return rules_ref(s->r, s->ws);
}

/* A character of a string, as itself or as an escape; pairs of \u that are one character count once, halves are none. */
static uint32_t character(struct schema *s)
{
    struct rules *r = s->r;
    uint32_t hex, low, high, plain;

    if (s->character != RULES_NONE)
        return rules_ref(r, s->character);
    hex = CLASS(r, {'0', '9'}, {'a', 'f'}, {'A', 'F'});
    plain = ALT(r, SEQ(r, CLASS(r, {'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}), hex, hex, hex),
                SEQ(r, CLASS(r, {'d', 'd'}, {'D', 'D'}), CLASS(r, {'0', '7'}), hex, hex));
    high = SEQ(r, CLASS(r, {'d', 'd'}, {'D', 'D'}), CLASS(r, {'8', '9'}, {'a', 'b'}, {'A', 'B'}), hex, hex);
    low = SEQ(r, CLASS(r, {'d', 'd'}, {'D', 'D'}), CLASS(r, {'c', 'f'}, {'C', 'F'}), hex, hex);
    s->character = rules_rule_new(r, "character");
    rules_define(r, s->character,
                 ALT(r, CLASS(r, {0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x10FFFF}),
                     SEQ(r, TEXT(r, "\\"),
                         ALT(r, CLASS(r, {'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}),
                             SEQ(r, TEXT(r, "u"), ALT(r, plain, SEQ(r, high, TEXT(r, "\\u"), low)))))));
    return rules_ref(r, s->character);
}

static uint32_t quoted(struct schema *s, uint32_t inside)
{
    return SEQ(s->r, TEXT(s->r, "\""), inside, TEXT(s->r, "\""));
}

static uint32_t string(struct schema *s)
{
    if (s->string == RULES_NONE) {
        uint32_t inside = rules_repeat(s->r, character(s), 0, REPEAT_ANY);
        s->string = rules_rule_new(s->r, "string");
        rules_define(s->r, s->string, quoted(s, inside));
    }
    return rules_ref(s->r, s->string);
}

static uint32_t whole_digits(struct schema *s)
{
    struct rules *r = s->r;
    uint32_t digit = CLASS(r, {'0', '9'});

    return SEQ(r, OPTION(r, TEXT(r, "-")),
               ALT(r, TEXT(r, "0"), SEQ(r, CLASS(r, {'1', '9'}), rules_repeat(r, digit, 0, NUMBER_DIGITS - 1))));
}

static uint32_t integer(struct schema *s)
{
    if (s->integer == RULES_NONE) {
        s->integer = rules_rule_new(s->r, "integer");
        rules_define(s->r, s->integer, whole_digits(s));
    }
    return rules_ref(s->r, s->integer);
}

static uint32_t number(struct schema *s)
{
    struct rules *r = s->r;

    if (s->number == RULES_NONE) {
        uint32_t digit = CLASS(r, {'0', '9'}), frac, power;
        frac = SEQ(r, TEXT(r, "."), rules_repeat(r, digit, 1, NUMBER_DIGITS));
        power = SEQ(r, CLASS(r, {'e', 'e'}, {'E', 'E'}), OPTION(r, CLASS(r, {'+', '+'}, {'-', '-'})), rules_repeat(r, digit, 1, 3));
        s->number = rules_rule_new(r, "number");
        rules_define(r, s->number, SEQ(r, whole_digits(s), OPTION(r, frac), OPTION(r, power)));
    }
    return rules_ref(r, s->number);
}

/* `one`, parted by commas, min to max of them. */
static uint32_t list(struct schema *s, uint32_t one, uint32_t min, uint32_t max)
{
    struct rules *r = s->r;
    uint32_t more, x;

    if (!max)
        return TEXT(r, "");
    more = SEQ(r, TEXT(r, ","), ws(s), one);
    x = SEQ(r, one, rules_repeat(r, more, min ? min - 1 : 0, max == REPEAT_ANY ? max : max - 1));
    return min ? x : OPTION(r, x);
}

static uint32_t bracketed(struct schema *s, const char *open, uint32_t inside, const char *close)
{
    return SEQ(s->r, rules_text(s->r, open, 1), ws(s), inside, ws(s), rules_text(s->r, close, 1));
}

static uint32_t value(struct schema *s);

static uint32_t member(struct schema *s, uint32_t name, uint32_t val)
{
    return SEQ(s->r, name, TEXT(s->r, ":"), ws(s), val);
}

static uint32_t any_object(struct schema *s)
{
    if (s->object == RULES_NONE) {
        s->object = rules_rule_new(s->r, "object");
        rules_define(s->r, s->object, bracketed(s, "{", list(s, member(s, string(s), value(s)), 0, REPEAT_ANY), "}"));
    }
    return rules_ref(s->r, s->object);
}

static uint32_t value(struct schema *s)
{
    struct rules *r = s->r;

    if (s->value == RULES_NONE) {
        s->value = rules_rule_new(r, "value");
        rules_define(r, s->value,
                     ALT(r, any_object(s), bracketed(s, "[", list(s, value(s), 0, REPEAT_ANY), "]"), string(s), number(s),
                         TEXT(r, "true"), TEXT(r, "false"), TEXT(r, "null")));
    }
    return rules_ref(r, s->value);
}

/* ---- values that are given ---- */

/* A character of a text as JSON writes it; its bytes, at most 6. n: bytes of the text that it was. */
static size_t escape(const char *p, char *out)
{
    static const char *const names = "\b\f\n\r\t\"\\", *const letters = "bfnrt\"\\";
    const char *name = *p ? strchr(names, *p) : NULL;

    if (name) {
        out[0] = '\\';
        out[1] = letters[name - names];
        return 2;
    }
    if ((unsigned char)*p < 0x20)
        return (size_t)snprintf(out, 7, "\\u%04x", (unsigned char)*p);
    *out = *p;
    return 1;
}

static uint32_t given_string(struct schema *s, const char *text, size_t n)
{
    char *out = malloc(6 * n + 8); /* snprintf's NUL too */
    size_t k = 0;
    uint32_t x;

    if (!out)
        return rules_fail(s->r, -ENOMEM, "no memory");
    out[k++] = '"';
    for (size_t i = 0; i < n; i++)
        k += escape(text + i, out + k);
    out[k++] = '"';
    x = rules_text(s->r, out, k);
    free(out);
    return x;
}

static uint32_t given(struct schema *s, const struct json *j)
{
    struct rules *r = s->r;
    uint32_t x;

    switch (j->kind) {
    case JSON_NULL:
        return TEXT(r, "null");
    case JSON_BOOL:
        return j->truth ? TEXT(r, "true") : TEXT(r, "false");
    case JSON_NUMBER:
        return rules_text(r, j->text, j->n);
    case JSON_STRING:
        return given_string(s, j->text, j->n);
    default:
        break;
    }
    if (++s->depth > GRAMMAR_NESTING_MAX)
        return rules_fail(r, -E2BIG, "%s: nested too deeply", s->where);
    x = TEXT(r, "");
    for (size_t i = 0; i < j->n && !rules_failed(r); i++) {
        uint32_t one = given(s, &j->items[i]), rule;
        if (j->kind == JSON_OBJECT)
            one = member(s, given_string(s, j->items[i].key, j->items[i].key_n), one);
        rule = rules_rule_new(r, s->where); /* a long list is no deep nest */
        rules_define(r, rule, i ? SEQ(r, x, TEXT(r, ","), ws(s), one) : one);
        x = rules_ref(r, rule);
    }
    s->depth--;
    return bracketed(s, j->kind == JSON_OBJECT ? "{" : "[", x, j->kind == JSON_OBJECT ? "}" : "]");
}

static int type_of(const struct json *j)
{
    int64_t i;

    switch (j->kind) {
    case JSON_NULL:
        return TYPE_NULL;
    case JSON_BOOL:
        return TYPE_BOOLEAN;
    case JSON_NUMBER:
        return json_i64(j, &i) ? TYPE_NUMBER : TYPE_NUMBER | TYPE_INTEGER;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    default:
        return TYPE_OBJECT;
    }
}

/* ---- strings ---- */

/* RFC 3339, 4122, 5321 (the usual part), 2673, 4291, 1123, 3986 (scheme and no blanks) */
static const struct {
    const char *name, *pattern;
} format[] = {
#define DATE "\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])"
#define TIME "([01]\\d|2[0-3]):[0-5]\\d:([0-5]\\d|60)(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE "(25[0-5]|2[0-4]\\d|1?\\d?\\d)"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define H16 "[0-9A-Fa-f]{1,4}"
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"duration", "^P(\\d+W|(\\d+Y(\\d+M)?(\\d+D)?|\\d+M(\\d+D)?|\\d+D)(T(\\d+H(\\d+M)?(\\d+S)?|\\d+M(\\d+S)?|\\d+S))?|"
                 "T(\\d+H(\\d+M)?(\\d+S)?|\\d+M(\\d+S)?|\\d+S))$"},
    {"uuid", "^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$"},
    {"email", "^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,32}(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,15}){0,3}@" LABEL "(\\." LABEL "){1,4}$"},
    {"hostname", "^" LABEL "(\\." LABEL "){0,9}$"},
    {"ipv4", "^" BYTE "(\\." BYTE "){3}$"},
    {"ipv6", "^((" H16 ":){7}" H16 "|(" H16 ":){1,7}:|(" H16 ":){1,6}(:" H16 "){1}|(" H16 ":){1,5}(:" H16 "){1,2}|(" H16
             ":){1,4}(:" H16 "){1,3}|(" H16 ":){1,3}(:" H16 "){1,4}|(" H16 ":){1,2}(:" H16 "){1,5}|" H16 ":(:" H16
             "){1,6}|:(:" H16 "){1,7}|::)$"},
    {"uri", "^[A-Za-z][A-Za-z0-9+.-]{0,19}:[A-Za-z0-9._~:/?#\\[\\]@!$&'()*+,;=%-]+$"},
};

/* A whole number that is not negative; `otherwise` where it is not given. */
static uint32_t amount(struct schema *s, const struct json *j, const char *key, uint32_t otherwise)
{
    const struct json *v = json_get(j, key);
    int64_t n;

    if (!v)
        return otherwise;
    if (json_i64(v, &n) || n < 0)
        return refuse(s, "must be a whole number from 0", key);
    if (n > GRAMMAR_REPEAT_MAX)
        return rules_fail(s->r, -E2BIG, "%s: '%s' is above %d, which is not supported", s->where, key, GRAMMAR_REPEAT_MAX);
    return (uint32_t)n;
}

static uint32_t string_like(struct schema *s, const struct json *j)
{
    const struct json *pattern = json_get(j, "pattern"), *form = json_get(j, "format");
    int counted = json_get(j, "minLength") || json_get(j, "maxLength");
    uint32_t min = amount(s, j, "minLength", 0), max = amount(s, j, "maxLength", REPEAT_ANY);

    if ((pattern && form) || ((pattern || form) && counted))
        return refuse(s, "beside a length, or pattern beside format, is not supported", pattern ? "pattern" : "format");
    if (pattern && pattern->kind != JSON_STRING)
        return refuse(s, "must be a string", "pattern");
    if (pattern)
        return quoted(s, pattern_read(s->r, pattern->text, pattern->n, s->where));
    for (size_t i = 0; form && i < sizeof format / sizeof *format; i++)
        if (json_is(form, format[i].name))
            return quoted(s, pattern_read(s->r, format[i].pattern, strlen(format[i].pattern), s->where));
    if (form)
        return rules_fail(s->r, -ENOTSUP, "%s: format '%.100s' is not supported", s->where,
                          form->kind == JSON_STRING ? form->text : "?");
    if (max < min)
        return rules_fail(s->r, -EINVAL, "%s: 'minLength' is above 'maxLength'", s->where);
    return counted ? quoted(s, rules_repeat(s->r, character(s), min, max)) : string(s);
}

/* ---- numbers ---- */

/* Of a bound with the value in and one without, the one that says more. exclusive: a number (draft 6) or a boolean
 * beside the other (draft 4). */
static const char *bound(struct schema *s, const struct json *j, const char *key, const char *open_key, int sign, int *open)
{
    const struct json *in = json_get(j, key), *out = json_get(j, open_key);
    double x, y;

    *open = 0;
    if (in && json_f64(in, &x))
        refuse(s, "must be a number", key);
    if (out && out->kind == JSON_BOOL) {
        *open = out->truth && in;
        return in ? in->text : NULL;
    }
    if (out && json_f64(out, &y))
        refuse(s, "must be a number", open_key);
    if (rules_failed(s->r) || !out)
        return in ? in->text : NULL;
    *open = !in || sign * y >= sign * x;
    return *open ? out->text : in->text;
}

static uint32_t number_like(struct schema *s, const struct json *j, int whole)
{
    const struct json *step = json_get(j, "multipleOf");
    struct number_bounds b = {.whole = whole};
    int64_t one;

    if (step && (json_i64(step, &one) || one != 1))
        return refuse(s, "other than 1 is not supported", "multipleOf");
    b.whole |= step != NULL;
    b.lo = bound(s, j, "minimum", "exclusiveMinimum", 1, &b.lo_open);
    b.hi = bound(s, j, "maximum", "exclusiveMaximum", -1, &b.hi_open);
    if (rules_failed(s->r))
        return 0;
    if (!b.lo && !b.hi)
        return b.whole ? integer(s) : number(s);
    return number_read(s->r, &b, s->where);
}

/* ---- places in messages ---- */

/* What s->where had before. */
static size_t enter(struct schema *s, const char *key)
{
    size_t n = strlen(s->where);

    snprintf(s->where + n, sizeof s->where - n, "/%.60s", key); /* cut where it is too long */
    return n;
}

static uint32_t visit_at(struct schema *s, const char *key, const char *key2, const struct json *j)
{
    size_t n = enter(s, key);
    uint32_t x;

    if (key2)
        enter(s, key2);
    x = visit(s, j);
    s->where[n] = 0;
    return x;
}

/* ---- arrays ---- */

static uint32_t array_like(struct schema *s, const struct json *j)
{
    const struct json *items = json_get(j, "items"), *front = json_get(j, "prefixItems"), *unique = json_get(j, "uniqueItems");
    uint32_t min = amount(s, j, "minItems", 0), max = amount(s, j, "maxItems", REPEAT_ANY), x;
    uint32_t n_front, one = 0;
    char place[24];

    if (unique && (unique->kind != JSON_BOOL || unique->truth))
        return refuse(s, "is not supported", "uniqueItems");
    if (front && (front->kind != JSON_ARRAY || front->n > PROPERTIES_MAX))
        return refuse(s, "must be a list, and not a long one", "prefixItems");
    n_front = front ? (uint32_t)front->n : 0;
    if (items && items->kind == JSON_BOOL && !items->truth)
        max = max < n_front ? max : n_front;
    if (max < min)
        return rules_fail(s->r, -EINVAL, "%s: no array has so few and so many items", s->where);
    if (max > n_front)
        one = items ? visit_at(s, "items", NULL, items) : value(s);
    if (!n_front)
        return bracketed(s, "[", list(s, one, min, max), "]");
    /* from the last of the first ones to the first: each may be the last of all, where min has it so */
    x = TEXT(s->r, "");
    if (max > n_front)
        x = rules_repeat(s->r, SEQ(s->r, TEXT(s->r, ","), ws(s), one), min > n_front ? min - n_front : 0,
                         max == REPEAT_ANY ? max : max - n_front);
    for (uint32_t i = n_front < max ? n_front : max; i--;) {
        uint32_t rule;

        snprintf(place, sizeof place, "%u", i);
        x = SEQ(s->r, visit_at(s, "prefixItems", place, &front->items[i]), x);
        if (i)
            x = SEQ(s->r, TEXT(s->r, ","), ws(s), x);
        if (i >= min)
            x = OPTION(s->r, x);
        rule = rules_rule_new(s->r, s->where);
        rules_define(s->r, rule, x);
        x = rules_ref(s->r, rule);
    }
    return bracketed(s, "[", x, "]");
}

/* ---- objects ---- */

struct property {
    const char *name;
    size_t n;
    const struct json *schema; /* NULL: that of further ones */
    int required;
};

/* What may follow the first `from` bytes of a name of further properties, which are those of names[0 .. n) too,
 * sorted: the names themselves may not come. Recursion: NAME_MAX_BYTES. Names are as JSON writes them; where one
 * could go on, escapes may not, as they could spell it in another way. */
static uint32_t other_names(struct schema *s, char *const *name, size_t n, size_t from)
{
    struct rules *r = s->r;
    uint32_t *item = calloc(n + 2, sizeof *item), x;
    struct code_range *next = calloc(n + 3, sizeof *next);
    size_t k = 0, n_next = 0;
    int ends = 0;

    if (!item || !next) {
        free(item);
        free(next);
        return rules_fail(r, -ENOMEM, "no memory");
    }
    for (size_t i = 0, j; i < n; i = j) {
        uint32_t c = (unsigned char)name[i][from];
        size_t len = !c ? 0 : c == '\\' ? (name[i][from + 1] == 'u' ? 6 : 2) : c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;

        for (j = i + 1; j < n && !strncmp(name[i] + from, name[j] + from, len ? len : 1); j++)
            ;
        if (!len) {
            ends = 1;
            continue;
        }
        if (c != '\\') {
            c = len == 1 ? c : c & (0xFFu >> (len + 1));
            for (size_t b = 1; b < len; b++)
                c = c << 6 | ((unsigned char)name[i][from + b] & 0x3F);
            next[n_next++] = (struct code_range){c, c};
        }
        x = rules_rule_new(r, s->where);
        rules_define(r, x, SEQ(r, rules_text(r, name[i] + from, len), other_names(s, name + i, j - i, from + len)));
        item[k++] = rules_ref(r, x);
    }
    next[n_next++] = (struct code_range){0, 0x1F};
    next[n_next++] = (struct code_range){'"', '"'};
    next[n_next++] = (struct code_range){'\\', '\\'};
    item[k++] = SEQ(r, rules_class(r, next, n_next, 1), rules_repeat(r, character(s), 0, REPEAT_ANY));
    if (!ends)
        item[k++] = TEXT(r, "");
    x = rules_alt(r, item, k);
    free(item);
    free(next);
    return x;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A name that is none of these. */
static uint32_t further_name(struct schema *s, const struct property *p, size_t n)
{
    char **name = calloc(n + 1, sizeof *name);
    uint32_t x = 0;

    for (size_t i = 0; name && i < n && !rules_failed(s->r); i++) {
        size_t k = 0;

        if (p[i].n > NAME_MAX_BYTES)
            rules_fail(s->r, -E2BIG, "%s: a property's name of more than %d bytes is not supported beside others", s->where,
                       NAME_MAX_BYTES);
        else if (!(name[i] = malloc(6 * p[i].n + 7)))
            rules_fail(s->r, -ENOMEM, "no memory");
        for (size_t b = 0; b < p[i].n && !rules_failed(s->r); b++)
            k += escape(p[i].name + b, name[i] + k);
        if (name[i])
            name[i][k] = 0;
    }
    if (name && !rules_failed(s->r)) {
        qsort(name, n, sizeof *name, by_text);
        x = n ? quoted(s, other_names(s, name, n, 0)) : string(s);
    }
    for (size_t i = 0; name && i < n; i++)
        free(name[i]);
    free(name);
    return x;
}

/* The properties in the order of the schema; optional ones may be left out; then further ones. first: none came
 * before (no comma). more: one of the further ones; RULES_NONE: there are none. */
static uint32_t members(struct schema *s, const struct property *p, const uint32_t *kv, size_t n, uint32_t more)
{
    struct rules *r = s->r;
    uint32_t rest, first;

    rest = more == RULES_NONE ? TEXT(r, "") : rules_repeat(r, SEQ(r, TEXT(r, ","), ws(s), more), 0, REPEAT_ANY);
    first = more == RULES_NONE ? TEXT(r, "") : list(s, more, 0, REPEAT_ANY);
    for (size_t i = n; i-- && !rules_failed(r);) {
        uint32_t rest_rule = rules_rule_new(r, s->where), first_rule = rules_rule_new(r, s->where), x;

        x = SEQ(r, kv[i], rest);
        rules_define(r, first_rule, p[i].required ? x : ALT(r, x, first));
        x = SEQ(r, TEXT(r, ","), ws(s), kv[i], rest);
        rules_define(r, rest_rule, p[i].required ? x : ALT(r, x, rest));
        rest = rules_ref(r, rest_rule);
        first = rules_ref(r, first_rule);
    }
    return first;
}

/* Properties, and names that are required without being described. */
static struct property *read_properties(struct schema *s, const struct json *j, size_t *out)
{
    const struct json *props = json_get(j, "properties"), *required = json_get(j, "required");
    size_t most = (props ? props->n : 0) + (required ? required->n : 0), n = 0;
    struct property *p;

    if ((props && props->kind != JSON_OBJECT) || (required && required->kind != JSON_ARRAY)) {
        refuse(s, "must be an object, and 'required' a list", "properties");
        return NULL;
    }
    p = most <= 2 * PROPERTIES_MAX ? calloc(most + 1, sizeof *p) : NULL;
    if (!p) {
        rules_fail(s->r, -E2BIG, "%s: more than %d properties", s->where, PROPERTIES_MAX);
        return NULL;
    }
    for (size_t i = 0; props && i < props->n; i++)
        if (json_get(props, props->items[i].key) == &props->items[i]) /* of equal names the last */
            p[n++] = (struct property){props->items[i].key, props->items[i].key_n, &props->items[i], 0};
    for (size_t i = 0; required && i < required->n; i++) {
        const struct json *q = &required->items[i];
        size_t k = 0;

        if (q->kind != JSON_STRING) {
            refuse(s, "must be a list of strings", "required");
            break;
        }
        while (k < n && (p[k].n != q->n || memcmp(p[k].name, q->text, q->n)))
            k++;
        if (k == n)
            p[n++] = (struct property){q->text, q->n, NULL, 1};
        p[k].required = 1;
    }
    *out = n;
    return p;
}

static uint32_t object_like(struct schema *s, const struct json *j)
{
    const struct json *more = json_get(j, "additionalProperties");
    /* of further properties nothing is said: none, if some are described. All that comes satisfies the schema, and
     * models make up fewer */
    int closed = more ? more->kind == JSON_BOOL && !more->truth : json_get(j, "properties") != NULL;
    uint32_t min = amount(s, j, "minProperties", 0), max = amount(s, j, "maxProperties", REPEAT_ANY);
    uint32_t *kv = NULL, other = RULES_NONE, val = 0, x = 0;
    size_t n = 0, n_required = 0;
    struct property *p = read_properties(s, j, &n);

    if (!p || rules_failed(s->r) || !(kv = calloc(n + 1, sizeof *kv)))
        goto done;
    if (!closed) {
        val = more ? visit_at(s, "additionalProperties", NULL, more) : value(s);
        other = rules_rule_new(s->r, s->where);
        rules_define(s->r, other, member(s, further_name(s, p, n), val));
        other = rules_ref(s->r, other);
    }
    for (size_t i = 0; i < n && !rules_failed(s->r); i++) {
        n_required += (size_t)p[i].required;
        if (!p[i].schema && closed && !more)
            val = value(s);
        if (!p[i].schema && closed && more)
            rules_fail(s->r, -EINVAL, "%s: '%.100s' is required, and 'additionalProperties' forbids it", s->where, p[i].name);
        else
            kv[i] = rules_rule_new(s->r, s->where);
        x = given_string(s, p[i].name, p[i].n);
        rules_define(s->r, kv[i], member(s, x, p[i].schema ? visit_at(s, "properties", p[i].name, p[i].schema) : val));
        kv[i] = rules_ref(s->r, kv[i]);
    }
    if (!n && !closed && max >= min)
        x = list(s, other, min, max);
    else if (min > n_required || max < n || (max != REPEAT_ANY && !closed))
        rules_fail(s->r, -ENOTSUP, "%s: 'minProperties' and 'maxProperties' beside 'properties' are not supported", s->where);
    else
        x = members(s, p, kv, n, other);
    x = bracketed(s, "{", x, "}");
done:
    free(p);
    free(kv);
    return x;
}

/* ---- schemas ---- */

/* Which types its `type` says, or the keywords that it has. */
static int types(struct schema *s, const struct json *j)
{
    const struct json *t = json_get(j, "type"), *null = json_get(j, "nullable");
    int set = 0;

    if (t && t->kind != JSON_STRING && t->kind != JSON_ARRAY)
        return (int)refuse(s, "must be a string or a list of strings", "type");
    for (size_t i = 0; t && i < (t->kind == JSON_ARRAY ? t->n : 1); i++) {
        const struct json *one = t->kind == JSON_ARRAY ? &t->items[i] : t;
        int found = 0;

        for (size_t k = 0; k < sizeof type_name / sizeof *type_name; k++)
            if (json_is(one, type_name[k].name))
                found = type_name[k].type;
        if (!found)
            return (int)rules_fail(s->r, -EINVAL, "%s: type '%.100s' is not known", s->where,
                                   one->kind == JSON_STRING ? one->text : "?");
        set |= found;
    }
    for (size_t k = 0; !t && k < sizeof keyword / sizeof *keyword; k++)
        if (json_get(j, keyword[k].name))
            set |= keyword[k].type;
    if (set & TYPE_NUMBER)
        set &= ~TYPE_INTEGER;
    if (t && !set)
        return (int)rules_fail(s->r, -EINVAL, "%s: no value has the types that must hold together", s->where);
    return null && null->truth && set ? set | TYPE_NULL : set;
}

static void check_keywords(struct schema *s, const struct json *j)
{
    for (size_t i = 0; i < j->n; i++) {
        const char *key = j->items[i].key;
        size_t k = 0;

        while (k < sizeof keyword / sizeof *keyword && strcmp(key, keyword[k].name))
            k++;
        if (k == sizeof keyword / sizeof *keyword && !schema_is_note(key, j->items[i].key_n))
            refuse(s, "is not supported", key);
    }
}

static int in_enum(const struct json *list, const struct json *v)
{
    size_t i = 0;

    while (list && i < list->n && !json_same(&list->items[i], v))
        i++;
    return !list || i < list->n;
}

/* enum, const: the values that are of the right type. What else must hold cannot be checked here. */
static uint32_t one_of(struct schema *s, const struct json *j, const struct json *list_or_one, int is_list)
{
    int set = json_get(j, "type") ? types(s, j) : TYPE_ALL | TYPE_INTEGER;
    size_t n = is_list ? list_or_one->n : 1, k = 0;
    uint32_t *item, x;

    for (size_t i = 0; i < sizeof keyword / sizeof *keyword; i++)
        if (keyword[i].type && json_get(j, keyword[i].name))
            return refuse(s, "beside 'enum' or 'const' is not supported", keyword[i].name);
    if (is_list && list_or_one->kind != JSON_ARRAY)
        return refuse(s, "must be a list", "enum");
    item = calloc(n + 1, sizeof *item);
    if (!item)
        return rules_fail(s->r, -ENOMEM, "no memory");
    for (size_t i = 0; i < n && !rules_failed(s->r); i++) {
        const struct json *v = is_list ? &list_or_one->items[i] : list_or_one;
        if ((type_of(v) & set) && (is_list || in_enum(json_get(j, "enum"), v)))
            item[k++] = given(s, v);
    }
    x = k ? rules_alt(s->r, item, k) : rules_fail(s->r, -EINVAL, "%s: no value of 'enum' or 'const' may come", s->where);
    free(item);
    return x;
}

static uint32_t branches(struct schema *s, const struct json *j, const char *key)
{
    const struct json *list = json_get(j, key), *rest = schemas_without(&s->merge, j, key);
    uint32_t *item, x;
    char place[24];
    size_t n = 0;
    int alone = 1;

    if (!rest || list->kind != JSON_ARRAY || !list->n)
        return refuse(s, "must be a list of schemas", key);
    for (size_t i = 0; i < rest->n; i++)
        alone &= schema_is_note(rest->items[i].key, rest->items[i].key_n);
    item = calloc(list->n, sizeof *item);
    if (!item)
        return rules_fail(s->r, -ENOMEM, "no memory");
    for (size_t i = 0; i < list->n && !rules_failed(s->r); i++) {
        const struct json *one = &list->items[i];

        if (!alone) {
            const struct json *flat = schemas_flat(&s->merge, one, s->where);
            one = flat ? schemas_both(&s->merge, flat, rest, s->where) : NULL;
        }
        snprintf(place, sizeof place, "%zu", i);
        if (one && (one->kind != JSON_BOOL || one->truth)) /* false: no such value */
            item[n++] = visit_at(s, key, place, one);
    }
    x = n ? rules_alt(s->r, item, n) : rules_fail(s->r, -EINVAL, "%s: no branch of '%s' may come", s->where, key);
    free(item);
    return x;
}

/* A schema without $ref and allOf. */
static uint32_t flat(struct schema *s, const struct json *j)
{
    const struct json *given_one = json_get(j, "const"), *given_many = json_get(j, "enum");
    uint32_t item[8];
    size_t n = 0;
    int set;

    check_keywords(s, j);
    if (rules_failed(s->r))
        return 0;
    if (json_get(j, "anyOf"))
        return branches(s, j, "anyOf");
    if (json_get(j, "oneOf"))
        return branches(s, j, "oneOf");
    if (given_one || given_many)
        return one_of(s, j, given_one ? given_one : given_many, !given_one);
    set = types(s, j);
    if (rules_failed(s->r))
        return 0;
    if (!set)
        return value(s);
    if (set & TYPE_OBJECT)
        item[n++] = object_like(s, j);
    if (set & TYPE_ARRAY)
        item[n++] = array_like(s, j);
    if (set & TYPE_STRING)
        item[n++] = string_like(s, j);
    if (set & (TYPE_NUMBER | TYPE_INTEGER))
        item[n++] = number_like(s, j, set & TYPE_INTEGER);
    if (set & TYPE_BOOLEAN)
        item[n++] = ALT(s->r, TEXT(s->r, "true"), TEXT(s->r, "false"));
    if (set & TYPE_NULL)
        item[n++] = TEXT(s->r, "null");
    return rules_failed(s->r) ? 0 : rules_alt(s->r, item, n);
}

/* $ref, or allOf of one schema, with nothing but notes beside it: that schema itself. NULL: it is not so. */
static const struct json *other_schema(struct schema *s, const struct json *j)
{
    const struct json *ref = json_get(j, "$ref"), *all = json_get(j, "allOf");

    for (size_t i = 0; i < j->n; i++)
        if (!schema_is_note(j->items[i].key, j->items[i].key_n) && &j->items[i] != ref && &j->items[i] != all)
            return NULL;
    if (ref && !all && ref->kind == JSON_STRING)
        return schemas_ref(&s->merge, ref->text, ref->n, s->where);
    return all && !ref && all->kind == JSON_ARRAY && all->n == 1 ? &all->items[0] : NULL;
}

static uint32_t make(struct schema *s, const struct json *j)
{
    const struct json *other;

    if (j->kind == JSON_BOOL && j->truth)
        return value(s);
    if (j->kind == JSON_BOOL)
        return rules_fail(s->r, -EINVAL, "%s: the schema false, which no value satisfies", s->where);
    if (j->kind != JSON_OBJECT)
        return rules_fail(s->r, -EINVAL, "%s: a schema is an object or a boolean", s->where);
    other = other_schema(s, j);
    if (rules_failed(s->r))
        return 0;
    if (other)
        return visit(s, other);
    other = schemas_flat(&s->merge, j, s->where);
    if (!other)
        return 0;
    return other->kind == JSON_OBJECT ? flat(s, other) : make(s, other);
}

/* The rule of a place in the schema. 0: it was seen before. */
static int rule_of(struct schema *s, const struct json *j, uint32_t *rule)
{
    size_t i;

    if (2 * s->n_seen >= s->seen_mask) {
        size_t slots = s->seen_mask ? 2 * (s->seen_mask + 1) : 256;
        struct schema_rule *seen = calloc(slots, sizeof *seen);

        if (!seen)
            return (int)rules_fail(s->r, -ENOMEM, "no memory");
        for (size_t k = 0; s->seen && k <= s->seen_mask; k++) {
            if (!s->seen[k].schema)
                continue;
            for (i = (uintptr_t)s->seen[k].schema / 16 & (slots - 1); seen[i].schema; i = (i + 1) & (slots - 1))
                ;
            seen[i] = s->seen[k];
        }
        free(s->seen);
        s->seen = seen;
        s->seen_mask = slots - 1;
    }
    for (i = (uintptr_t)j / 16 & s->seen_mask; s->seen[i].schema; i = (i + 1) & s->seen_mask)
        if (s->seen[i].schema == j) {
            *rule = s->seen[i].rule;
            return 0;
        }
    *rule = rules_rule_new(s->r, s->where);
    s->seen[i] = (struct schema_rule){j, *rule};
    s->n_seen++;
    return 1;
}

static uint32_t visit(struct schema *s, const struct json *j)
{
    uint32_t rule = 0;

    if (rules_failed(s->r))
        return 0;
    if (s->depth >= GRAMMAR_NESTING_MAX)
        return rules_fail(s->r, -E2BIG, "%s: schemas nested too deeply, or within themselves", s->where);
    s->depth++;
    if (rule_of(s, j, &rule))
        rules_define(s->r, rule, make(s, j));
    s->depth--;
    return rules_ref(s->r, rule);
}

uint32_t schema_read(struct rules *r, const struct json *schema)
{
    struct schema s = {.r = r, .merge = {.r = r, .root = schema}, .where = "#"};
    uint32_t root = rules_rule_new(r, "#");

    s.ws = s.character = s.string = s.number = s.integer = s.value = s.object = RULES_NONE;
    rules_define(r, root, schema ? visit(&s, schema) : any_object(&s));
    schemas_free(&s.merge);
    free(s.seen);
    return root;
}
