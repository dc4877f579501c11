/* Chat templates: a small, strict subset of Jinja2 (README.md has the list). What it does not know is
 * refused by name and line. A template is foreign code: every loop of the engine counts against the
 * limits below, and exceeding one is an error of the rendering.
 *
 * No I/O, no clock, no global state: inputs are JSON trees, the time is an argument. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "coordinator/json/json.h"
#include "coordinator/model/text_span.h"
#include "shm/err.h"

enum {
    JINJA_SOURCE_MAX = 1 << 20,      /* bytes of a template */
    JINJA_OUTPUT_MAX = 64 << 20,     /* bytes of a rendering, and of any string in it */
    JINJA_STEPS_MAX = 10 * 1000000,  /* things done: nodes, items, 64 bytes of text */
    JINJA_MEMORY_MAX = 512 << 20,    /* bytes of all values of a rendering together */
    JINJA_NESTING_MAX = 200,         /* brackets and blocks in the source; macros in macros; data in data */
    JINJA_RANGE_MAX = 100 * 1000,    /* numbers of a range() */
};

enum jinja_kind { /* what went wrong */
    JINJA_OK,
    JINJA_SYNTAX,    /* refused when it is parsed, or unknown when it is reached */
    JINJA_UNDEFINED, /* something was done with an undefined value */
    JINJA_TYPE,      /* something was done with a value of the wrong kind */
    JINJA_RUNTIME,   /* other errors of running it */
    JINJA_RAISED,    /* the template called raise_exception: the text is for the client */
    JINJA_LIMIT,
    JINJA_MEMORY,
};

struct jinja_fault {
    enum jinja_kind kind;
    unsigned line;   /* of the template, from 1; 0: none */
    char text[1024]; /* JINJA_RAISED: its text, cut where the space ends; otherwise what err says */
};

struct jinja;

/* Parses n bytes of source. name stands for the template in messages ("NAME: line N: ..."). source is
 * not kept. f may be NULL. Hands over *out, which is never written again: any number of threads may
 * render it. */
int jinja_parse(const char *name, const char *source, size_t n, struct jinja **out,
                struct jinja_fault *f, struct err *e);
void jinja_free(struct jinja *t); /* NULL is allowed */

struct jinja_var {
    const char *name;
    const struct json *value; /* borrowed while it is rendered */
    int ours;                 /* 1: no text of a user: its bytes are not marked */
};

struct jinja_limits { /* 0: the largest */
    uint64_t steps;
    size_t output, memory;
};

struct jinja_text {
    char *s; /* owned, a NUL follows; zero the struct first */
    size_t n;
    struct text_span *user; /* owned: what came from variables, and stays text */
    size_t n_user;
};

/* Renders with the variables; a name that is not among them is undefined. now is what strftime_now
 * gives out, in local time; NULL: calling it is an error. f and limits may be NULL. Hands over out,
 * for jinja_text_free; nothing after an error. */
int jinja_render(const struct jinja *t, const struct jinja_var *vars, size_t n_vars,
                 const struct tm *now, const struct jinja_limits *limits, struct jinja_text *out,
                 struct jinja_fault *f, struct err *e);
void jinja_text_free(struct jinja_text *text);
