/* Writes JSON (libyajl). Calls in the order of the text; the first error stays and json_text
 * reports it, so calls need not be checked one by one. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/err.h"

struct json_out;

/* indent: one member a line, for people; else one line. NULL: no memory. */
struct json_out *json_out_new(int indent);
void json_out_free(struct json_out *o); /* NULL is allowed */

void json_open_object(struct json_out *o);
void json_close_object(struct json_out *o);
void json_open_array(struct json_out *o);
void json_close_array(struct json_out *o);
/* Before each value in an object. */
void json_key(struct json_out *o, const char *key);
void json_put_null(struct json_out *o);
void json_put_bool(struct json_out *o, int truth);
void json_put_i64(struct json_out *o, int64_t v);
void json_put_u64(struct json_out *o, uint64_t v);
/* The shortest text that reads back as v; null where v is not finite. */
void json_put_f64(struct json_out *o, double v);
/* A number's text as it is; the caller vouches for it. */
void json_put_number(struct json_out *o, const char *text, size_t n);
/* Must be UTF-8; NUL and controls are escaped. */
void json_put_str(struct json_out *o, const char *s);
void json_put_strn(struct json_out *o, const char *s, size_t n);

/* The text so far, in o until the next call; a whole value if everything was closed. NUL follows.
 */
int json_text(struct json_out *o, const char **text, size_t *n, struct err *e);
