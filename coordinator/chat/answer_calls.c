/* The families' forms of a call, and the types of its arguments. Forms in JSON pass the model's bytes
 * through once they have been parsed; of tagged forms the JSON is made here, after the tool's schema. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/chat/answer_inside.h"
#include "coordinator/model/utf8.h"

#define BAR "\xEF\xBD\x9C"   /* U+FF5C */
#define LOW "\xE2\x96\x81"   /* U+2581 */
#define DSML BAR "DSML" BAR

static const char tool_open[] = "<tool_call>", tool_shut[] = "</tool_call>", function_open[] = "<function=";
static const char ds_section[] = "<" BAR "tool" LOW "calls" LOW "begin" BAR ">";
static const char ds_open[] = "<" BAR "tool" LOW "call" LOW "begin" BAR ">";
static const char ds_sep[] = "<" BAR "tool" LOW "sep" BAR ">";
static const char dsml_section[] = "<" DSML "tool_calls>", dsml_section_old[] = "<" DSML "function_calls>";
static const char dsml_open[] = "<" DSML "invoke name=\"", dsml_shut[] = "</" DSML "invoke>";
static const char dsml_param[] = "<" DSML "parameter name=\"", dsml_param_shut[] = "</" DSML "parameter>";
static const char kimi_section[] = "<|tool_calls_section_begin|>", kimi_open[] = "<|tool_call_begin|>";
static const char kimi_args[] = "<|tool_call_argument_begin|>";
static const char mistral_open[] = "[TOOL_CALLS]", mistral_id[] = "[CALL_ID]", mistral_args[] = "[ARGS]";

enum { ARGS_DEPTH = 200 };

const char *const *call_marks(enum chat_format f)
{
    static const char *const none[] = {NULL}, *const tool[] = {tool_open, NULL},
                      *const qwen[] = {tool_open, function_open, NULL}, *const ds[] = {ds_section, ds_open, NULL},
                      *const dsml[] = {dsml_section, dsml_section_old, dsml_open, NULL},
                      *const kimi[] = {kimi_section, kimi_open, NULL}, *const mistral[] = {mistral_open, NULL};

    switch (f) {
    case CHAT_HERMES:
    case CHAT_GLM:
        return tool;
    case CHAT_QWEN_XML:
        return qwen;
    case CHAT_DEEPSEEK:
        return ds;
    case CHAT_DSML:
        return dsml;
    case CHAT_KIMI:
        return kimi;
    case CHAT_MISTRAL:
        return mistral;
    default:
        return none;
    }
}

/* ---- calls ---- */

int text_add_json(struct text *t, const char *s, size_t n)
{
    static const char hex[] = "0123456789abcdef", plain[] = "\"\\\n\r\t\b\f", names[] = "\"\\nrtbf";
    int rc = text_add(t, "\"", 1);

    for (size_t p = 0, len; !rc && p < n; p += len) {
        const char *k = s[p] ? strchr(plain, s[p]) : NULL;
        unsigned char c = (unsigned char)s[p];
        char code[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};

        len = 1;
        if (k)
            rc = text_add(t, (char[]){'\\', names[k - plain]}, 2);
        else if (c < 0x20)
            rc = text_add(t, code, 6);
        else if (utf8_next(s + p, n - p, &len) == UTF8_OK)
            rc = text_add(t, s + p, len);
        else
            rc = text_add(t, "\xEF\xBF\xBD", 3);
    }
    return rc ? rc : text_add(t, "\"", 1);
}

/* Nine letters and digits from the seed and the call's number. */
static void make_id(const struct answer *a, char id[10])
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    uint64_t x = a->o.seed + 0x9E3779B97F4A7C15 * (a->n_calls + 1); /* SplitMix64 */

    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    x ^= x >> 31;
    for (int i = 0; i < 9; i++, x /= 62)
        id[i] = letters[x % 62];
    id[9] = 0;
}

static int add_call(struct answer *a, const char *name, size_t name_n, const char *id, size_t id_n, const char *args,
                    size_t args_n)
{
    struct text t[3] = {{0}};
    char made[10];

    if (!name_n)
        return CALL_BROKEN;
    if (!id) {
        make_id(a, made);
        id = made;
        id_n = 9;
    }
    if (a->n_calls == a->calls_cap) {
        size_t cap = a->calls_cap ? 2 * a->calls_cap : 4;
        struct answer_call *more = realloc(a->calls, cap * sizeof *more);

        if (!more)
            return -ENOMEM;
        a->calls = more;
        a->calls_cap = cap;
    }
    if (text_add_utf8(&t[0], id, id_n) || text_add_utf8(&t[1], name, name_n) || text_add_utf8(&t[2], args, args_n)) {
        for (int i = 0; i < 3; i++)
            free(t[i].s);
        return -ENOMEM;
    }
    a->calls[a->n_calls++] = (struct answer_call){t[0].s, t[1].s, t[2].s};
    return 1;
}

static struct json_doc *parsed(const char *s, size_t n)
{
    struct json_limits limits = {.depth = ARGS_DEPTH};
    struct json_doc *d = NULL;

    return json_parse("arguments", s, n, &limits, &d, NULL) ? NULL : d;
}

static void trim(const char **s, size_t *n)
{
    while (*n && strchr(" \t\r\n", **s) && **s)
        ++*s, --*n;
    while (*n && strchr(" \t\r\n", (*s)[*n - 1]) && (*s)[*n - 1])
        --*n;
}

int call_add_json(struct answer *a, const char *name, size_t name_n, const char *id, size_t id_n, const char *args,
                  size_t n)
{
    struct json_doc *d;
    int is_object;

    trim(&args, &n);
    trim(&name, &name_n);
    d = parsed(args, n);
    is_object = d && json_root(d)->kind == JSON_OBJECT;
    json_free(d);
    return is_object ? add_call(a, name, name_n, id, id_n, args, n) : CALL_BROKEN;
}

/* ---- bytes of JSON ---- */

static size_t skip(const char *s, size_t n, size_t p, const char *what)
{
    while (p < n && s[p] && strchr(what, s[p]))
        p++;
    return p;
}

/* The bytes of a member's value in an object that was parsed; 0: there is none. */
static int member(const char *s, size_t n, const char *key, const char **v, size_t *v_n)
{
    size_t p = skip(s, n, 0, " \t\r\n{"), len = strlen(key);
    int found = 0;

    while (p < n && s[p] == '"') {
        size_t end = json_value_end(s, n, p), from = skip(s, n, end, " \t\r\n:"), to = json_value_end(s, n, from);

        if (end - p == len + 2 && !memcmp(s + p + 1, key, len)) {
            *v = s + from; /* the last one counts */
            *v_n = to - from;
            found = 1;
        }
        p = skip(s, n, to, " \t\r\n,");
    }
    return found;
}

/* {"name": N, "arguments": {...}[, "id": I]}, of which d is the tree. */
static int add_object(struct answer *a, const struct json *j, const char *s, size_t n)
{
    const char *key = json_get(j, "arguments") ? "arguments" : "parameters", *args = "{}";
    const struct json *name = json_get(j, "name"), *v = json_get(j, key), *id = json_get(j, "id");
    size_t args_n = 2;

    if (j->kind != JSON_OBJECT || !name || name->kind != JSON_STRING)
        return CALL_BROKEN;
    if (id && id->kind != JSON_STRING)
        id = NULL;
    if (v && v->kind == JSON_STRING) /* an object within a string: some models do that */
        return call_add_json(a, name->text, name->n, id ? id->text : NULL, id ? id->n : 0, v->text, v->n);
    if (v && (v->kind != JSON_OBJECT || !member(s, n, key, &args, &args_n)))
        return CALL_BROKEN;
    return add_call(a, name->text, name->n, id ? id->text : NULL, id ? id->n : 0, args, args_n);
}

int call_add_object(struct answer *a, const char *s, size_t n)
{
    struct json_doc *d;
    int rc = CALL_BROKEN;

    trim(&s, &n);
    d = parsed(s, n);
    /* llama's answers are calls only if they have both: other JSON is an answer */
    if (d && (json_get(json_root(d), "parameters") || json_get(json_root(d), "arguments")))
        rc = add_object(a, json_root(d), s, n);
    json_free(d);
    return rc;
}

/* ---- reading a form ---- */

struct cursor {
    struct answer *a;
    const char *s; /* from the call's mark on */
    size_t n, p;
    int more; /* it stopped because the text ends */
};

static int fail(const struct cursor *c)
{
    return c->more && !c->a->ended ? CALL_MORE : CALL_BROKEN;
}

static int lit(struct cursor *c, const char *what)
{
    size_t len = strlen(what), left = c->n - c->p;

    if (memcmp(c->s + c->p, what, left < len ? left : len))
        return 0;
    if (left < len) {
        c->more = 1;
        return 0;
    }
    c->p += len;
    return 1;
}

static void blanks(struct cursor *c)
{
    c->p = skip(c->s, c->n, c->p, " \t\r\n");
}

/* The text up to `what`, which is passed. */
static int until(struct cursor *c, const char *what, const char **s, size_t *n)
{
    const char *at = memmem(c->s + c->p, c->n - c->p, what, strlen(what));

    if (!at) {
        c->more = 1;
        return 0;
    }
    *s = c->s + c->p;
    *n = (size_t)(at - *s);
    c->p += *n + strlen(what);
    return 1;
}

/* A JSON object or array: its bytes. The scan goes on where the last try stopped. */
static int json_value(struct cursor *c, const char **s, size_t *n)
{
    struct json_scan *k = &c->a->scan;

    if (c->p == c->n) {
        c->more = 1;
        return 0;
    }
    if (c->s[c->p] != '{' && c->s[c->p] != '[')
        return 0;
    if (!k->begun || k->from != c->p)
        *k = (struct json_scan){.from = c->p, .at = c->p, .begun = 1};
    for (; k->at < c->n; k->at++) {
        char x = c->s[k->at];

        if (k->escaped)
            k->escaped = 0;
        else if (k->in_string)
            k->escaped = x == '\\', k->in_string = x != '"';
        else if (x == '"')
            k->in_string = 1;
        else if (x == '{' || x == '[')
            k->depth++;
        else if ((x == '}' || x == ']') && !--k->depth) {
            *s = c->s + c->p;
            *n = k->at + 1 - c->p;
            c->p = k->at + 1;
            return 1;
        }
    }
    c->more = 1;
    return 0;
}

/* ---- types of arguments ---- */

enum {
    T_STRING = 1, T_INTEGER = 2, T_NUMBER = 4, T_BOOLEAN = 8, T_NULL = 16, T_ARRAY = 32, T_OBJECT = 64,
};

static unsigned type_named(const struct json *j)
{
    static const char *const names[] = {"string", "integer", "number", "boolean", "null", "array", "object"};

    for (unsigned i = 0; i < 7; i++)
        if (json_is(j, names[i]))
            return 1u << i;
    return 0;
}

static unsigned type_of_value(const struct json *j)
{
    int64_t i;

    switch (j->kind) {
    case JSON_NULL:
        return T_NULL;
    case JSON_BOOL:
        return T_BOOLEAN;
    case JSON_NUMBER:
        return json_i64(j, &i) ? T_NUMBER : T_NUMBER | T_INTEGER;
    case JSON_STRING:
        return T_STRING;
    case JSON_ARRAY:
        return T_ARRAY;
    default:
        return T_OBJECT;
    }
}

/* The types that a schema allows; 0: it does not say. */
static unsigned types_of(const struct json *schema, int depth)
{
    static const char *const unions[] = {"anyOf", "oneOf"};
    const struct json *type = json_get(schema, "type"), *list = json_get(schema, "enum");
    unsigned t = type_named(type);

    if (depth > 8)
        return 0;
    for (size_t i = 0; type && type->kind == JSON_ARRAY && i < type->n; i++)
        t |= type_named(&type->items[i]);
    for (int k = 0; !t && k < 2; k++) {
        const struct json *u = json_get(schema, unions[k]);

        for (size_t i = 0; u && u->kind == JSON_ARRAY && i < u->n; i++)
            t |= types_of(&u->items[i], depth + 1);
    }
    if (!type && !t && list && list->kind == JSON_ARRAY)
        for (size_t i = 0; i < list->n; i++)
            t |= type_of_value(&list->items[i]);
    return t;
}

static unsigned types_of_param(const struct answer *a, const char *name, size_t name_n, const char *key, size_t key_n)
{
    for (size_t i = 0; i < a->o.tools->n; i++) {
        const struct json *f = json_get(&a->o.tools->items[i], "function"), *n = json_get(f, "name");
        const struct json *props = json_get(json_get(f, "parameters"), "properties");

        if (!n || n->kind != JSON_STRING || n->n != name_n || memcmp(n->text, name, name_n))
            continue;
        for (size_t k = 0; props && props->kind == JSON_OBJECT && k < props->n; k++)
            if (props->items[k].key_n == key_n && !memcmp(props->items[k].key, key, key_n))
                return types_of(&props->items[k], 0);
        return 0;
    }
    return 0;
}

/* A raw value as JSON, by the types that are allowed (0: any). */
static int add_value(struct text *out, const char *s, size_t n, unsigned types)
{
    static const char *const python[] = {"True", "False", "None"}, *const literal[] = {"true", "false", "null"};
    const char *v = s;
    size_t v_n = n;
    struct json_doc *d = NULL;
    int fits = 0;

    if (types == T_STRING)
        return text_add_json(out, s, n);
    trim(&v, &v_n);
    for (int i = 0; i < 3; i++)
        if (v_n == strlen(python[i]) && !memcmp(v, python[i], v_n)) {
            v = literal[i];
            v_n = strlen(v);
        }
    if ((d = parsed(v, v_n)))
        fits = !types || !(types & T_STRING) || (types & type_of_value(json_root(d)));
    json_free(d);
    return fits ? text_add(out, v, v_n) : text_add_json(out, s, n);
}

struct param {
    const char *key;
    size_t key_n;
    struct text value; /* JSON */
};
struct params {
    struct param *p;
    size_t n, cap;
    int failed; /* no memory */
};

/* Of a key that comes again the last value counts. */
static void add_param(struct params *ps, const char *key, size_t key_n, const char *s, size_t n, unsigned types)
{
    struct param *p = NULL;

    for (size_t i = 0; i < ps->n; i++)
        if (ps->p[i].key_n == key_n && !memcmp(ps->p[i].key, key, key_n))
            p = &ps->p[i];
    if (!p) {
        if (ps->n == ps->cap) {
            size_t cap = ps->cap ? 2 * ps->cap : 8;
            struct param *more = realloc(ps->p, cap * sizeof *more);

            if (!more) {
                ps->failed = 1;
                return;
            }
            ps->p = more;
            ps->cap = cap;
        }
        p = &ps->p[ps->n++];
        *p = (struct param){key, key_n, {0}};
    }
    p->value.n = 0;
    ps->failed |= add_value(&p->value, s, n, types) != 0;
}

static int add_params(struct answer *a, const char *name, size_t name_n, struct params *ps)
{
    struct text args = {0};
    int rc = ps->failed ? -ENOMEM : text_add(&args, "{", 1);

    for (size_t i = 0; !rc && i < ps->n; i++) {
        if (i)
            rc = text_add(&args, ", ", 2);
        if (!rc)
            rc = text_add_json(&args, ps->p[i].key, ps->p[i].key_n);
        if (!rc)
            rc = text_add(&args, ": ", 2);
        if (!rc)
            rc = text_add(&args, ps->p[i].value.s, ps->p[i].value.n);
    }
    if (!rc)
        rc = text_add(&args, "}", 1);
    if (!rc)
        rc = add_call(a, name, name_n, NULL, 0, args.s, args.n);
    free(args.s);
    return rc;
}

static void free_params(struct params *ps)
{
    for (size_t i = 0; i < ps->n; i++)
        free(ps->p[i].value.s);
    free(ps->p);
}

/* ---- the forms; each: 1 done, else CALL_MORE, CALL_BROKEN, -ENOMEM ---- */

static int read_hermes(struct cursor *c)
{
    const char *s;
    size_t n;
    struct json_doc *d;
    int rc;

    if (!lit(c, tool_open))
        return fail(c);
    blanks(c);
    if (!json_value(c, &s, &n))
        return fail(c);
    d = parsed(s, n);
    rc = d ? add_object(c->a, json_root(d), s, n) : CALL_BROKEN;
    json_free(d);
    return rc;
}

/* Behind <parameter=K>: the newlines next to the tags are theirs, everything else is the value's. */
static int qwen_value(struct cursor *c, const char **s, size_t *n)
{
    static const char shut[] = "\n</parameter>";
    size_t from = c->p;

    if (from == c->n) {
        c->more = 1;
        return 0;
    }
    if (c->s[from] != '\n') /* all on one line */
        return until(c, shut + 1, s, n);
    for (size_t p = from;;) {
        const char *at = memmem(c->s + p, c->n - p, shut, sizeof shut - 1);
        size_t behind = at ? (size_t)(at - c->s) + sizeof shut - 1 : 0;

        if (!at || (behind == c->n && !c->a->ended)) {
            c->more = 1;
            return 0;
        }
        p = behind;
        if (behind < c->n && c->s[behind] != '\n' && c->s[behind] != '<')
            continue; /* text of the value */
        *s = c->s + from + (at > c->s + from);
        *n = (size_t)(at - *s);
        c->p = behind;
        return 1;
    }
}

static int read_qwen(struct cursor *c, struct params *ps)
{
    const char *name, *key, *v;
    size_t name_n, key_n, v_n;

    if (lit(c, tool_open))
        blanks(c);
    if (c->more || !lit(c, function_open) || !until(c, ">", &name, &name_n))
        return fail(c);
    if (memchr(name, '<', name_n) || memchr(name, '\n', name_n))
        return CALL_BROKEN;
    for (;;) {
        blanks(c);
        if (lit(c, "</function>"))
            return add_params(c->a, name, name_n, ps);
        if (!lit(c, "<parameter=") || !until(c, ">", &key, &key_n) || !qwen_value(c, &v, &v_n))
            return fail(c);
        add_param(ps, key, key_n, v, v_n, types_of_param(c->a, name, name_n, key, key_n));
    }
}

static int read_glm(struct cursor *c, struct params *ps)
{
    static const char key_open[] = "<arg_key>", key_shut[] = "</arg_key>", v_open[] = "<arg_value>",
                      v_shut[] = "</arg_value>";
    const char *name, *key, *v;
    size_t name_n, key_n, v_n;

    if (!lit(c, tool_open))
        return fail(c);
    name = c->s + c->p;
    while (c->p < c->n && c->s[c->p] != '<')
        c->p++;
    name_n = (size_t)(c->s + c->p - name);
    trim(&name, &name_n);
    if (memchr(name, '\n', name_n) || (!name_n && c->p < c->n))
        return CALL_BROKEN;
    for (;;) {
        blanks(c);
        if (lit(c, tool_shut))
            return add_params(c->a, name, name_n, ps);
        if (!lit(c, key_open) || !until(c, key_shut, &key, &key_n))
            return fail(c);
        blanks(c);
        if (!lit(c, v_open) || !until(c, v_shut, &v, &v_n))
            return fail(c);
        trim(&key, &key_n);
        add_param(ps, key, key_n, v, v_n, types_of_param(c->a, name, name_n, key, key_n));
    }
}

static int read_deepseek(struct cursor *c)
{
    const char *name, *s;
    size_t name_n, n;

    if (lit(c, ds_section))
        blanks(c);
    if (!lit(c, ds_open) || !until(c, ds_sep, &name, &name_n))
        return fail(c);
    blanks(c);
    if (!json_value(c, &s, &n))
        return fail(c);
    return call_add_json(c->a, name, name_n, NULL, 0, s, n);
}

static int read_kimi(struct cursor *c)
{
    static const char prefix[] = "functions.";
    const char *id, *name, *s, *colon;
    size_t id_n, name_n, n;

    if (lit(c, kimi_section))
        blanks(c);
    if (!lit(c, kimi_open) || !until(c, kimi_args, &id, &id_n))
        return fail(c);
    blanks(c);
    if (!json_value(c, &s, &n))
        return fail(c);
    trim(&id, &id_n);
    name = id;
    name_n = id_n;
    if (name_n >= sizeof prefix - 1 && !memcmp(name, prefix, sizeof prefix - 1)) {
        name += sizeof prefix - 1;
        name_n -= sizeof prefix - 1;
    }
    colon = name_n ? memrchr(name, ':', name_n) : NULL;
    if (colon && colon + 1 < name + name_n && skip(colon + 1, (size_t)(name + name_n - colon - 1), 0, "0123456789") ==
                                                  (size_t)(name + name_n - colon - 1))
        name_n = (size_t)(colon - name);
    return call_add_json(c->a, name, name_n, id, id_n, s, n);
}

static int read_dsml(struct cursor *c, struct params *ps)
{
    const char *name, *key, *v;
    size_t name_n, key_n, v_n;

    if (lit(c, dsml_section) || lit(c, dsml_section_old))
        blanks(c);
    c->more = 0; /* a mark is there: the sections it is not don't count */
    if (!lit(c, dsml_open) || !until(c, "\">", &name, &name_n))
        return fail(c);
    for (;;) {
        int raw;

        blanks(c);
        if (lit(c, dsml_shut))
            return add_params(c->a, name, name_n, ps);
        if (!lit(c, dsml_param) || !until(c, "\"", &key, &key_n))
            return fail(c);
        raw = lit(c, " string=\"true\">");
        if (!raw && !lit(c, " string=\"false\">"))
            return fail(c);
        if (!until(c, dsml_param_shut, &v, &v_n))
            return fail(c);
        add_param(ps, key, key_n, v, v_n, raw ? T_STRING : 0);
    }
}

static int mistral_list(struct cursor *c)
{
    const char *s;
    size_t n, before = c->a->n_calls, p;
    struct json_doc *d;
    int rc = 1;

    if (!json_value(c, &s, &n))
        return fail(c);
    d = parsed(s, n);
    if (!d || !json_root(d)->n)
        rc = CALL_BROKEN;
    p = skip(s, n, 1, " \t\r\n");
    for (size_t i = 0; rc > 0 && i < json_root(d)->n; i++) {
        size_t end = json_value_end(s, n, p);

        rc = add_object(c->a, &json_root(d)->items[i], s + p, end - p);
        p = skip(s, n, end, " \t\r\n,");
    }
    json_free(d);
    while (rc <= 0 && c->a->n_calls > before) { /* all of the list or nothing */
        struct answer_call *x = &c->a->calls[--c->a->n_calls];

        free(x->id);
        free(x->name);
        free(x->arguments);
    }
    return rc;
}

static int read_mistral(struct cursor *c)
{
    const char *name, *id = NULL, *s;
    size_t name_n, id_n = 0, n;

    if (!lit(c, mistral_open))
        return fail(c);
    blanks(c);
    if (c->p < c->n && c->s[c->p] == '[')
        return mistral_list(c);
    name = c->s + c->p;
    while (c->p < c->n && c->s[c->p] != '[')
        c->p++;
    name_n = (size_t)(c->s + c->p - name);
    if (memchr(name, '\n', name_n))
        return CALL_BROKEN;
    if (lit(c, mistral_id)) {
        if (!until(c, mistral_args, &id, &id_n))
            return fail(c);
        trim(&id, &id_n);
    } else if (!lit(c, mistral_args)) {
        return fail(c);
    }
    blanks(c);
    if (!json_value(c, &s, &n))
        return fail(c);
    return call_add_json(c->a, name, name_n, id, id_n, s, n);
}

ptrdiff_t call_read(struct answer *a)
{
    struct cursor c = {.a = a, .s = a->in.s + a->at, .n = a->in.n - a->at};
    struct params ps = {0};
    int rc = CALL_BROKEN;

    switch (a->o.format) {
    case CHAT_HERMES:
        rc = read_hermes(&c);
        break;
    case CHAT_QWEN_XML:
        rc = read_qwen(&c, &ps);
        break;
    case CHAT_GLM:
        rc = read_glm(&c, &ps);
        break;
    case CHAT_DEEPSEEK:
        rc = read_deepseek(&c);
        break;
    case CHAT_KIMI:
        rc = read_kimi(&c);
        break;
    case CHAT_DSML:
        rc = read_dsml(&c, &ps);
        break;
    case CHAT_MISTRAL:
        rc = read_mistral(&c);
        break;
    default:
        break;
    }
    free_params(&ps);
    return rc == 1 ? (ptrdiff_t)c.p : rc;
}
