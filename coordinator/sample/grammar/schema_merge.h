/* Schemas that must hold together, made into one: what allOf says, and a schema around anyOf or beside $ref. */
#pragma once
#include "coordinator/json/json.h"
#include "coordinator/sample/grammar/rules.h"

/* Trees made here; they share the parts of those that they come from. */
struct merge {
    struct rules *r;         /* takes the errors */
    const struct json *root; /* what $ref looks in */
    void *memory;            /* all that was made */
    size_t bytes;
    int depth;
};
void schemas_free(struct merge *m);

/* The schema of a $ref ("#", "#/a/b"). NULL: an error. */
const struct json *schemas_ref(struct merge *m, const char *ref, size_t n, const char *where);
/* Both: a and b are objects or booleans. NULL: an error, or no value can be both. */
const struct json *schemas_both(struct merge *m, const struct json *a, const struct json *b, const char *where);
/* s without $ref, and without allOf: what these say is merged in. */
const struct json *schemas_flat(struct merge *m, const struct json *s, const char *where);
/* s without the member `key`. */
const struct json *schemas_without(struct merge *m, const struct json *s, const char *key);
/* Is it one whole value, written the same or not? */
int json_same(const struct json *a, const struct json *b);
/* Says nothing about values: title, description, ... */
int schema_is_note(const char *key, size_t n);
