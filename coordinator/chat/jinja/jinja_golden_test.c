/* Every case of golden/chat: templates of models with conversations, and small templates for one feature
 * each, all rendered by Jinja2 itself. Text byte for byte; of errors the kind, and what
 * raise_exception said. */
#include "coordinator/chat/jinja/jinja.h"

#include "coordinator/model/golden_vectors.h"

enum { VARS_MAX = 64 };

static struct tm clock_then(void)
{
    /* 2026-11-29 12:34:56, a Sunday */
    return (struct tm){.tm_year = 126, .tm_mon = 10, .tm_mday = 29, .tm_hour = 12, .tm_min = 34, .tm_sec = 56,
                       .tm_wday = 0, .tm_yday = 332};
}

static int kind_fits(const struct json *want, enum jinja_kind kind)
{
    if (json_is(want, "syntax"))
        return kind == JINJA_SYNTAX;
    if (json_is(want, "raise_exception"))
        return kind == JINJA_RAISED;
    return kind == JINJA_UNDEFINED || kind == JINJA_TYPE || kind == JINJA_RUNTIME;
}

/* want: {"text"}, {"append"} (to base) or {"error"[, "message"]}. */
static void check(const char *file, const char *name, int rc, const struct jinja_text *got,
                  const struct jinja_fault *f, const struct json *want, const struct json *base, const struct err *e)
{
    const struct json *error = json_get(want, "error"), *text = json_get(want, "text");
    const struct json *message = json_get(want, "message"), *append = json_get(want, "append");
    size_t n = append ? base->n + append->n : text ? text->n : 0;

    if (error) {
        CHECK(rc && kind_fits(error, f->kind), "%s: %s: an error is wanted (%s), got %d: %s", file, name, error->text,
              rc, rc ? e->msg : got->s);
        if (message)
            CHECK_STR(f->text, message->text);
        return;
    }
    CHECK(!rc, "%s: %s: %s", file, name, e->msg);
    if (rc)
        return;
    CHECK(got->n == n && !memcmp(got->s, append ? base->text : text->text, append ? base->n : n) &&
              (!append || !memcmp(got->s + base->n, append->text, append->n)),
          "%s: %s:\n--- got\n%s\n--- wanted\n%s%s", file, name, got->s, append ? base->text : text->text,
          append ? append->text : "");
}

static size_t add_members(struct jinja_var *v, size_t n, const struct json *object, int ours)
{
    for (size_t i = 0; object && i < object->n && n < VARS_MAX; i++)
        v[n++] = (struct jinja_var){object->items[i].key, &object->items[i], ours};
    return n;
}

static const struct json *conversation(const struct json *all, const struct json *name)
{
    for (size_t i = 0; i < all->n; i++)
        if (json_is(json_get(&all->items[i], "name"), name->text))
            return &all->items[i];
    return NULL;
}

static void family(const char *file, const struct json *conversations)
{
    struct json_doc *d = golden_json("chat", file);
    const struct json *r = d ? json_root(d) : NULL, *cases = json_get(r, "cases");
    struct jinja_fault f;
    struct err e = {0};
    struct jinja *t = NULL;
    struct bytes source;
    struct tm now = clock_then();

    if (!d)
        return;
    source = golden_file("chat", json_get(r, "template")->text);
    CHECK(jinja_parse(file, source.s, source.n, &t, &f, &e) == 0, "%s", e.msg);
    CHECK(cases && cases->n == 43, "%s: not 43 cases", file);
    for (size_t i = 0; t && i < cases->n; i++) {
        const struct json *c = &cases->items[i], *conv = conversation(conversations, json_get(c, "conv"));

        for (int add = 0; add < 2; add++) {
            struct json truth = {.kind = JSON_BOOL, .truth = add};
            struct jinja_var v[VARS_MAX] = {{"messages", json_get(conv, "messages"), 0},
                                            {"add_generation_prompt", &truth, 1}};
            const struct json *want = json_get(c, "both"), *base = json_get(json_get(c, "false"), "text");
            struct jinja_text out;
            size_t n = add_members(v, 2, json_get(r, "special_tokens"), 1);
            int rc;

            n = add_members(v, n, json_get(conv, "inputs"), 0);
            if (!want)
                want = json_get(c, add ? "true" : "false");
            memset(&e, 0, sizeof e);
            rc = jinja_render(t, v, n, &now, NULL, &out, &f, &e);
            check(file, json_get(c, "conv")->text, rc, &out, &f, want, base, &e);
            jinja_text_free(&out);
        }
    }
    jinja_free(t);
    free(source.s);
    json_free(d);
}

static void units(void)
{
    struct json_doc *d = golden_json("chat", "jinja_units.json");
    const struct json *cases = d ? json_get(json_root(d), "cases") : NULL;
    struct tm now = clock_then();

    if (!d)
        return;
    CHECK_EQ(cases->n, 159);
    for (size_t i = 0; i < cases->n; i++) {
        const struct json *c = &cases->items[i], *source = json_get(c, "template");
        struct jinja_var v[VARS_MAX];
        size_t n = add_members(v, 0, json_get(json_root(d), "context"), 0);
        struct jinja_text out = {0};
        struct jinja_fault f;
        struct err e = {0};
        struct jinja *t = NULL;
        int rc = jinja_parse("unit", source->text, source->n, &t, &f, &e);

        if (!rc)
            rc = jinja_render(t, v, n, &now, NULL, &out, &f, &e);
        check("jinja_units.json", source->text, rc, &out, &f, c, NULL, &e);
        jinja_text_free(&out);
        jinja_free(t);
    }
    json_free(d);
}

int main(void)
{
    static const char *const families[] = {
        "deepseek-v3.1.json", "deepseek-v4-flash.json", "glm-4.6.json",           "glm-4.7-flash.json", "gpt-oss.json",
        "kimi-k2.json",       "kimi-k2-thinking.json",  "llama-3.1.json",         "mimo-vl.json",
        "mistral-small-3.2.json", "qwen3-coder.json",   "qwen3.5.json",           "qwen3.json",
    };
    struct json_doc *d = golden_json("chat", "conversations.json");

    for (size_t i = 0; d && i < sizeof families / sizeof *families; i++)
        family(families[i], json_root(d));
    json_free(d);
    units();
    return test_end();
}
