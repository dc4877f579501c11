/* Reads JSON (libyajl) into a tree. Numbers keep the text they were written in, strings are bytes
 * and a length (they may hold NUL), objects keep the order of their members.
 *
 * Strict: UTF-8 only, no comments, nothing after the value. An escape for half of a surrogate
 * pair without the other half becomes U+FFFD. Depth and size are limited; a tree takes about a
 * hundred bytes a value at worst. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/err.h"

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_kind kind;
    int truth;                /* JSON_BOOL */
    const char *text;         /* JSON_STRING, JSON_NUMBER (as written); a NUL follows */
    size_t n;                 /* bytes of text; items of an array or object */
    const struct json *items; /* JSON_ARRAY, JSON_OBJECT: n of them, in order */
    const char *key;          /* the member's name if this lies in an object, else NULL */
    size_t key_n;
};

enum { JSON_DEPTH_MAX = 1000, JSON_BYTES_MAX = 1 << 30 };

struct json_limits {
    size_t bytes; /* of the text; 0: JSON_BYTES_MAX */
    size_t depth; /* nested arrays and objects; 0: JSON_DEPTH_MAX */
    size_t values; /* of all kinds, arrays and objects too; 0: no limit */
};

struct json_doc;

/* name stands for the text in messages ("NAME: byte N: what is wrong"). limits: NULL for the
 * largest. Hands over *out; text is not kept. */
int json_parse(const char *name, const char *text, size_t n, const struct json_limits *limits,
               struct json_doc **out, struct err *e);
/* The same from a file. */
int json_load(const char *path, const struct json_limits *limits, struct json_doc **out,
              struct err *e);
/* NULL is allowed. The whole tree goes. */
void json_free(struct json_doc *d);
const struct json *json_root(const struct json_doc *d);

/* An object's member; of several with one name the last. NULL: none, or j is no object (or NULL, so
 * that look-ups can be chained). */
const struct json *json_get(const struct json *j, const char *key);
/* An array's item; NULL: none, or j is no array or NULL. */
const struct json *json_at(const struct json *j, size_t i);
/* 1: j is a string equal to s. */
int json_is(const struct json *j, const char *s);
/* 0, or -EINVAL: j is no number (or NULL), or not a whole one in the range. "1e3" and "2.0" count
 * as whole, so does "-0". */
int json_i64(const struct json *j, int64_t *out);
int json_u64(const struct json *j, uint64_t *out);
/* 0, or -EINVAL: no number. Beyond the range of a double: infinite. */
int json_f64(const struct json *j, double *out);

/* Where the value that begins at text[p] (p < n) ends, in JSON that was parsed: its bytes can be passed on as
 * they are. */
size_t json_value_end(const char *text, size_t n, size_t p);
