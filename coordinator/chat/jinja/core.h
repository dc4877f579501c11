/* What the parser and the evaluator share: memory that goes all at once, the way out of an error, and
 * text that remembers which of its bytes came from a user.
 *
 * An error leaves by longjmp: all memory lies in the arena, so nothing can leak, and an evaluator
 * without a check behind every call can be read. It never leaves this folder. */
#pragma once
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "coordinator/chat/jinja/jinja.h"

struct chunk;
struct core {
    const char *name; /* of the template */
    unsigned line;    /* being worked on */
    struct jinja_fault *fault;
    struct err *e;
    jmp_buf out;
    struct chunk *chunks;
    size_t used, memory_max; /* bytes */
    size_t output_max;
    uint64_t steps, steps_max;
};

_Noreturn void fail(struct core *c, enum jinja_kind kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The text of raise_exception, as it is. */
_Noreturn void fail_raised(struct core *c, const char *text, size_t n);

/* Zeroed memory until core_free. */
void *take(struct core *c, size_t n);
void *take_array(struct core *c, size_t n, size_t size);
/* Room for one more in an array of n; *cap grows. Returns the array. */
void *grow(struct core *c, void *array, size_t n, size_t *cap, size_t size);
void core_free(struct core *c);
int core_errno(enum jinja_kind kind);

void step(struct core *c);
/* n bytes of text or small things were looked at. */
void work(struct core *c, size_t n);

/* ---- text ---- */

/* UTF-8, never changed. m: one byte per byte of s, 1: it came from a user. NULL: none did, MARK_ALL:
 * all. */
struct str {
    const char *s;
    size_t n;
    const unsigned char *m;
};
extern const unsigned char mark_all_[1];
#define MARK_ALL mark_all_
#define STR(literal) ((struct str){literal, sizeof literal - 1, NULL})

static inline struct str str_slice(struct str x, size_t from, size_t to)
{
    return (struct str){x.s + from, to - from, x.m && x.m != MARK_ALL ? x.m + from : x.m};
}
static inline int str_mark(struct str x, size_t i)
{
    return x.m == MARK_ALL || (x.m && x.m[i]);
}
int str_eq(struct str a, struct str b);
int str_is(struct str a, const char *b);
/* By code points, which for UTF-8 is by bytes. */
int str_cmp(struct str a, struct str b);

/* A text that grows. Zero it. */
struct buf {
    char *s;
    unsigned char *m; /* NULL while all marks are alike */
    size_t n, cap, m_cap;
    int mark; /* of all, while m is NULL */
};
void buf_add(struct core *c, struct buf *b, struct str x);
void buf_bytes(struct core *c, struct buf *b, const char *s, size_t n, int mark);
static inline void buf_char(struct core *c, struct buf *b, char x, int mark)
{
    buf_bytes(c, b, &x, 1, mark);
}
/* One code point as UTF-8. */
void buf_point(struct core *c, struct buf *b, uint32_t point, int mark);
/* b stays as it is from now on. */
struct str buf_str(const struct buf *b);

/* The code point at s[0..), which is UTF-8; *len: its bytes. */
uint32_t point_at(const char *s, size_t *len);
size_t str_points(struct str x);
/* Python's str.isspace(). */
int is_space(uint32_t point);
