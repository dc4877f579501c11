/* The whole source is the key: a schema as the text that its tree gives, so that white space makes no difference. */
#include "coordinator/sample/grammar_keep.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/json/json_write.h"

struct kept {
    char *key;
    size_t n;
    struct grammar *fresh;
    uint64_t used;
};
struct grammar_keep {
    const struct grammar_vocab *v;
    struct kept kept[GRAMMARS_KEPT];
    uint64_t uses;
};

int grammar_keep_new(const struct grammar_vocab *v, struct grammar_keep **out, struct err *e)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return err_set(e, -ENOMEM, "no memory for grammars");
    (*out)->v = v;
    return 0;
}

static void forget(struct kept *q)
{
    free(q->key);
    grammar_close(q->fresh);
    *q = (struct kept){0};
}

void grammar_keep_free(struct grammar_keep *k)
{
    for (int i = 0; k && i < GRAMMARS_KEPT; i++)
        forget(&k->kept[i]);
    free(k);
}

/* Recursion: the depth that the tree's reader allowed. */
static void put(struct json_out *o, const struct json *j)
{
    switch (j->kind) {
    case JSON_NULL:
        json_put_null(o);
        break;
    case JSON_BOOL:
        json_put_bool(o, j->truth);
        break;
    case JSON_NUMBER:
        json_put_number(o, j->text, j->n);
        break;
    case JSON_STRING:
        json_put_strn(o, j->text, j->n);
        break;
    case JSON_ARRAY:
        json_open_array(o);
        for (size_t i = 0; i < j->n; i++)
            put(o, &j->items[i]);
        json_close_array(o);
        break;
    default:
        json_open_object(o);
        for (size_t i = 0; i < j->n; i++) {
            json_put_strn(o, j->items[i].key, j->items[i].key_n);
            put(o, &j->items[i]);
        }
        json_close_object(o);
    }
}

/* [think_begin, think_end, grammar, schema or null]. NULL: too deep for the writer, or no memory: not kept then. */
static char *key_of(const struct grammar_source *s, size_t *n)
{
    struct json_out *o = json_out_new(0);
    struct err none = {0};
    const char *text;
    char *key = NULL;

    if (!o)
        return NULL;
    json_open_array(o);
    json_put_str(o, s->think_end && s->think_begin ? s->think_begin : "");
    json_put_str(o, s->think_end ? s->think_end : "");
    json_put_strn(o, s->gbnf ? s->gbnf : s->any_object ? "{}" : "", s->gbnf ? s->n : s->any_object ? 2 : 0);
    if (s->schema && !s->gbnf && !s->any_object)
        put(o, s->schema);
    else
        json_put_bool(o, s->any_object && !s->gbnf);
    json_close_array(o);
    if (!json_text(o, &text, n, &none) && (key = malloc(*n + 1)))
        memcpy(key, text, *n);
    json_out_free(o);
    return key;
}

int grammar_keep_open(struct grammar_keep *k, const struct grammar_source *s, struct grammar **out, struct err *e)
{
    struct kept *oldest = k->kept, fresh = {.used = ++k->uses};
    int rc;

    fresh.key = key_of(s, &fresh.n);
    for (struct kept *q = k->kept; fresh.key && q < k->kept + GRAMMARS_KEPT; q++) {
        if (q->fresh && q->n == fresh.n && !memcmp(q->key, fresh.key, fresh.n)) {
            free(fresh.key);
            q->used = k->uses;
            return grammar_clone(q->fresh, out, e);
        }
        oldest = q->used < oldest->used ? q : oldest;
    }
    rc = grammar_open(k->v, s, &fresh.fresh, e);
    if (rc || (rc = grammar_clone(fresh.fresh, out, e)) || !fresh.key) {
        forget(&fresh); /* without a key the clone alone stays */
        return rc;
    }
    forget(oldest);
    *oldest = fresh;
    return 0;
}
