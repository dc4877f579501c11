/* Members of the object that is open in o: key and value in one call. */
#pragma once
#include "coordinator/json/json.h"
#include "coordinator/json/json_write.h"

void put_text(struct json_out *o, const char *key, const char *s);
void put_bytes(struct json_out *o, const char *key, const char *s, size_t n);
void put_u64(struct json_out *o, const char *key, uint64_t v);
void put_i64(struct json_out *o, const char *key, int64_t v);
void put_f64(struct json_out *o, const char *key, double v);
void put_bool(struct json_out *o, const char *key, int v);
void put_null(struct json_out *o, const char *key);
void put_value(struct json_out *o, const char *key, const struct json *v); /* a copy of v */
void put_any(struct json_out *o, const struct json *v);                    /* without a key */
/* Opened; the caller closes. */
void put_object(struct json_out *o, const char *key);
void put_array(struct json_out *o, const char *key);
/* Two texts as one string; without memory the first alone. */
void put_two(struct json_out *o, const char *a, size_t a_n, const char *b, size_t b_n);
