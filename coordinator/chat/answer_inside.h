/* The inside of an answer, for answer.c (which text is what) and answer_calls.c (what a call is). */
#pragma once
#include "coordinator/chat/answer.h"

struct text {
    char *s; /* a NUL follows */
    size_t n, cap;
};
/* 0 or -ENOMEM. */
int text_add(struct text *t, const char *s, size_t n);
/* The same, each byte that is not UTF-8 as U+FFFD. */
int text_add_utf8(struct text *t, const char *s, size_t n);
/* As a JSON string, with quotes. */
int text_add_json(struct text *t, const char *s, size_t n);

/* A scan for the end of a JSON value that goes on where it stopped. */
struct json_scan {
    size_t from, at; /* offsets from the call's beginning */
    unsigned depth;
    int in_string, escaped, begun;
};

struct answer {
    struct answer_options o;
    int calls_wanted;
    struct text in; /* what is not settled: in.s[at..] */
    size_t at;
    struct text reasoning, content;
    struct text reasoning_held, content_held; /* white space that goes if nothing follows */
    struct answer_call *calls;
    size_t n_calls, calls_cap;
    int state, from; /* answer.c */
    struct json_scan scan;
    int ended;
};

/* Where calls begin; ends with NULL. */
const char *const *call_marks(enum chat_format f);
enum { CALL_MORE = 0, CALL_BROKEN = -1 };
/* Reads one call (mistral: or a list of them) at in.s[at], where a mark stands. Its bytes, or CALL_MORE (never
 * with a->ended), CALL_BROKEN, -ENOMEM. What was read is added to a->calls. */
ptrdiff_t call_read(struct answer *a);
/* Adds a call whose arguments are the JSON object args[0..n). 1, or CALL_BROKEN: they are none, or -ENOMEM.
 * id NULL: one is made. */
int call_add_json(struct answer *a, const char *name, size_t name_n, const char *id, size_t id_n, const char *args,
                  size_t n);
/* The whole of s as {"name", "arguments" or "parameters"}: 1, CALL_BROKEN, -ENOMEM. */
int call_add_object(struct answer *a, const char *s, size_t n);
