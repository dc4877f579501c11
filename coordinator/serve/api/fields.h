/* Members of a request's object, with their types checked. Absent and null leave *out as it is; another type or
 * a value out of range is noted in f, named by its key (400). Each returns 1 if *out was set. Members that nobody
 * asks for are ignored. */
#pragma once
#include <stdint.h>

#include "coordinator/json/json.h"
#include "coordinator/serve/fault.h"

int field_bool(const struct json *j, const char *key, int *out, struct fault *f);
int field_i64(const struct json *j, const char *key, int64_t low, int64_t high, int64_t *out, struct fault *f);
int field_f64(const struct json *j, const char *key, double low, double high, double *out, struct fault *f);
/* A string without NUL; borrowed from j. */
int field_text(const struct json *j, const char *key, const char **out, struct fault *f);
int field_array(const struct json *j, const char *key, const struct json **out, struct fault *f);
int field_object(const struct json *j, const char *key, const struct json **out, struct fault *f);
/* Whatever it is, but null. */
const struct json *field_any(const struct json *j, const char *key);
