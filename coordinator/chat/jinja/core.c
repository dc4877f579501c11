/* Memory, errors and marked text of the template engine. */
#include "coordinator/chat/jinja/core.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined __has_feature
#if __has_feature(address_sanitizer)
#define ONE_BLOCK_EACH 1
#endif
#endif
#if defined __SANITIZE_ADDRESS__
#define ONE_BLOCK_EACH 1
#endif
#ifdef ONE_BLOCK_EACH /* so that the sanitizer sees the ends of every array */
enum { CHUNK_BYTES = 0 };
#else
enum { CHUNK_BYTES = 1 << 15 };
#endif

struct chunk {
    struct chunk *next;
    size_t used, cap;
    _Alignas(16) char data[];
};

const unsigned char mark_all_[1] = {1};

int core_errno(enum jinja_kind kind)
{
    switch (kind) {
    case JINJA_OK:
        return 0;
    case JINJA_LIMIT:
        return -E2BIG;
    case JINJA_MEMORY:
        return -ENOMEM;
    default:
        return -EINVAL;
    }
}

/* Texts of templates may hold anything; a message is one line. */
static void one_line(char *out, size_t cap, const char *text, size_t n)
{
    size_t k = n < cap ? n : cap - 1;

    for (size_t i = 0; i < k; i++)
        out[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7F ? ' ' : text[i];
    out[k] = 0;
}

static _Noreturn void leave(struct core *c, enum jinja_kind kind, const char *text, size_t n)
{
    char shown[900];

    if (c->fault) {
        size_t k = n < sizeof c->fault->text ? n : sizeof c->fault->text - 1;

        while (k && k < n && ((unsigned char)text[k] & 0xC0) == 0x80)
            k--; /* not within a character */
        c->fault->kind = kind;
        c->fault->line = c->line;
        memcpy(c->fault->text, text, k);
        c->fault->text[k] = 0;
    }
    one_line(shown, sizeof shown, text, n);
    if (kind == JINJA_RAISED)
        err_set(c->e, core_errno(kind), "%.100s: line %u: the template refuses: %s", c->name, c->line, shown);
    else
        err_set(c->e, core_errno(kind), "%.100s: line %u: %s", c->name, c->line, shown);
    longjmp(c->out, (int)kind);
}

void fail(struct core *c, enum jinja_kind kind, const char *fmt, ...)
{
    char text[900];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    leave(c, kind, text, strlen(text));
}

void fail_raised(struct core *c, const char *text, size_t n)
{
    leave(c, JINJA_RAISED, text, n);
}

void *take(struct core *c, size_t n)
{
    struct chunk *k = c->chunks;
    void *p;

    if (n > c->memory_max || c->used > c->memory_max - n)
        fail(c, JINJA_LIMIT, "needs more than %zu MiB of memory", c->memory_max >> 20);
    n = (n + 15) & ~(size_t)15;
    c->used += n;
    if (!k || k->cap - k->used < n) {
        size_t cap = n > CHUNK_BYTES / 4 ? n : CHUNK_BYTES;

        if (!(k = calloc(1, sizeof *k + cap)))
            fail(c, JINJA_MEMORY, "no memory for %zu bytes", n);
        k->cap = cap;
        if (c->chunks && cap == n) { /* a block of its own: the open chunk stays open */
            k->next = c->chunks->next;
            c->chunks->next = k;
        } else {
            k->next = c->chunks;
            c->chunks = k;
        }
    }
    p = k->data + k->used;
    k->used += n;
    return p;
}

void *take_array(struct core *c, size_t n, size_t size)
{
    if (n > c->memory_max / size)
        fail(c, JINJA_LIMIT, "needs more than %zu MiB of memory", c->memory_max >> 20);
    return take(c, n * size);
}

void *grow(struct core *c, void *array, size_t n, size_t *cap, size_t size)
{
    size_t more = *cap ? 2 * *cap : 4;
    void *p;

    if (n < *cap)
        return array;
    p = take_array(c, more, size);
    if (n)
        memcpy(p, array, n * size);
    *cap = more;
    return p;
}

void core_free(struct core *c)
{
    for (struct chunk *k = c->chunks, *next; k; k = next) {
        next = k->next;
        free(k);
    }
    c->chunks = NULL;
}

void step(struct core *c)
{
    if (++c->steps > c->steps_max)
        fail(c, JINJA_LIMIT, "takes more than %llu steps", (unsigned long long)c->steps_max);
}

void work(struct core *c, size_t n)
{
    c->steps += n / 64;
    step(c);
}

int str_eq(struct str a, struct str b)
{
    return a.n == b.n && (!a.n || !memcmp(a.s, b.s, a.n));
}

int str_is(struct str a, const char *b)
{
    return a.n == strlen(b) && !memcmp(a.s, b, a.n);
}

int str_cmp(struct str a, struct str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int d = n ? memcmp(a.s, b.s, n) : 0;

    return d ? d : (a.n > b.n) - (a.n < b.n);
}

/* Room for n more bytes, and for their marks if there are any. */
static void buf_room(struct core *c, struct buf *b, size_t n)
{
    if (n > c->output_max || b->n > c->output_max - n)
        fail(c, JINJA_LIMIT, "makes more than %zu bytes of text", c->output_max);
    if (b->n + n > b->cap) {
        size_t cap = b->cap ? 2 * b->cap : 64;
        char *s;

        if (cap < b->n + n)
            cap = b->n + n;
        s = take(c, cap);
        if (b->n)
            memcpy(s, b->s, b->n);
        b->s = s;
        b->cap = cap;
    }
    if (b->m && b->m_cap < b->cap) {
        unsigned char *m = take(c, b->cap);

        memcpy(m, b->m, b->n);
        b->m = m;
        b->m_cap = b->cap;
    }
}

void buf_add(struct core *c, struct buf *b, struct str x)
{
    int mixed = x.m && x.m != MARK_ALL, mark = x.m == MARK_ALL;

    if (!x.n)
        return;
    work(c, x.n);
    if (!b->n)
        b->mark = mark;
    buf_room(c, b, x.n);
    if (!b->m && (mixed || mark != b->mark)) {
        b->m = take(c, b->cap);
        b->m_cap = b->cap;
        memset(b->m, b->mark, b->n);
    }
    memcpy(b->s + b->n, x.s, x.n);
    if (mixed)
        memcpy(b->m + b->n, x.m, x.n);
    else if (b->m)
        memset(b->m + b->n, mark, x.n);
    b->n += x.n;
}

void buf_bytes(struct core *c, struct buf *b, const char *s, size_t n, int mark)
{
    buf_add(c, b, (struct str){s, n, mark ? MARK_ALL : NULL});
}

void buf_point(struct core *c, struct buf *b, uint32_t p, int mark)
{
    char s[4];
    size_t n = p < 0x80 ? 1 : p < 0x800 ? 2 : p < 0x10000 ? 3 : 4;

    if (n == 1) {
        s[0] = (char)p;
    } else {
        for (size_t i = n; --i; p >>= 6)
            s[i] = (char)(0x80 | (p & 0x3F));
        s[0] = (char)((0xF00 >> n & 0xFF) | p);
    }
    buf_bytes(c, b, s, n, mark);
}

struct str buf_str(const struct buf *b)
{
    return (struct str){b->s ? b->s : "", b->n, b->m ? b->m : b->mark && b->n ? MARK_ALL : NULL};
}

uint32_t point_at(const char *s, size_t *len)
{
    unsigned char b = (unsigned char)s[0];
    size_t n = b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
    uint32_t p = n == 1 ? b : b & (0x7Fu >> n);

    for (size_t i = 1; i < n; i++)
        p = p << 6 | ((unsigned char)s[i] & 0x3F);
    *len = n;
    return p;
}

size_t str_points(struct str x)
{
    size_t n = 0;

    for (size_t i = 0; i < x.n; i++)
        n += ((unsigned char)x.s[i] & 0xC0) != 0x80;
    return n;
}

int is_space(uint32_t p)
{
    return (p >= 9 && p <= 13) || (p >= 0x1C && p <= 0x20) || p == 0x85 || p == 0xA0 || p == 0x1680 ||
           (p >= 0x2000 && p <= 0x200A) || p == 0x2028 || p == 0x2029 || p == 0x202F ||
           p == 0x205F || p == 0x3000;
}
