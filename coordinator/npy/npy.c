/* Reading .npy. The header is the text of a Python dict literal: exactly the three keys that NumPy
 * writes, in any order, and no more of Python than that. */
#include "coordinator/npy/npy.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/size.h"

struct scan {
    const char *name;
    const unsigned char *s; /* the whole file, for offsets in messages */
    size_t at, end;         /* the header's text */
    int little;             /* byte order of descr is fine */
    int have_descr, have_order, have_shape;
};

static int bad(const struct scan *p, struct err *e, const char *what)
{
    return err_set(e, -EINVAL, "%s: byte %zu: %s (wanted a .npy file of small unsigned integers)",
                   p->name, p->at, what);
}

static void blanks(struct scan *p)
{
    while (p->at < p->end && strchr(" \t\r\n", p->s[p->at]) && p->s[p->at])
        p->at++;
}

static int next_is(struct scan *p, char c)
{
    blanks(p);
    if (p->at == p->end || p->s[p->at] != (unsigned char)c)
        return 0;
    p->at++;
    return 1;
}

/* A quoted word of at most 15 plain characters. */
static int quoted(struct scan *p, char out[16], struct err *e)
{
    size_t n = 0;
    char quote;

    blanks(p);
    if (p->at == p->end || (p->s[p->at] != '\'' && p->s[p->at] != '"'))
        return bad(p, e, "no quoted word here");
    quote = (char)p->s[p->at++];
    while (p->at < p->end && p->s[p->at] != (unsigned char)quote) {
        unsigned char c = p->s[p->at];
        if (n == 15 || c < 32 || c > 126 || c == '\\')
            return bad(p, e, "a word that no .npy header holds");
        out[n++] = (char)c;
        p->at++;
    }
    out[n] = 0;
    if (p->at == p->end)
        return bad(p, e, "the header ends inside a word");
    p->at++;
    return 0;
}

static int word(struct scan *p, const char *w)
{
    size_t n = strlen(w);

    blanks(p);
    if (p->end - p->at < n || memcmp(p->s + p->at, w, n))
        return 0;
    p->at += n;
    return 1;
}

static int descr(struct scan *p, struct npy *a, struct err *e)
{
    char d[16];

    if (quoted(p, d, e))
        return -EINVAL;
    if (strlen(d) != 3 || !strchr("<|=", d[0]) || d[1] != 'u' || !strchr("124", d[2]) ||
        (d[0] == '|' && d[2] != '1'))
        return err_set(e, -EINVAL, "%s: holds values of type '%s' (wanted |u1, <u2 or <u4)",
                       p->name, d);
    a->width = (uint32_t)(d[2] - '0');
    return 0;
}

static int number(struct scan *p, uint64_t *out, struct err *e)
{
    uint64_t v = 0;
    size_t from;

    blanks(p);
    for (from = p->at; p->at < p->end && p->s[p->at] >= '0' && p->s[p->at] <= '9'; p->at++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, p->s[p->at] - '0', &v))
            return bad(p, e, "a dimension too large");
    if (p->at == from)
        return bad(p, e, "no number here");
    *out = v;
    return 0;
}

/* "(a, b, c)", "(a,)", "()" */
static int shape(struct scan *p, struct npy *a, struct err *e)
{
    int comma = 1;

    if (!next_is(p, '('))
        return bad(p, e, "the shape is no tuple");
    while (!next_is(p, ')')) {
        if (!comma)
            return bad(p, e, "no comma between two dimensions");
        if (a->n_dims == NPY_DIMS)
            return bad(p, e, "more than 8 dimensions");
        if (number(p, &a->shape[a->n_dims], e))
            return -EINVAL;
        a->n_dims++;
        comma = next_is(p, ',');
    }
    if (a->n_dims == 1 && !comma)
        return bad(p, e, "a shape without a comma is no tuple");
    return 0;
}

static int entry(struct scan *p, struct npy *a, struct err *e)
{
    char key[16];
    int *have;

    if (quoted(p, key, e))
        return -EINVAL;
    have = !strcmp(key, "descr")           ? &p->have_descr
           : !strcmp(key, "fortran_order") ? &p->have_order
           : !strcmp(key, "shape")         ? &p->have_shape
                                           : NULL;
    if (!have)
        return bad(p, e, "a key that no .npy header has");
    if ((*have)++)
        return bad(p, e, "the same key twice");
    if (!next_is(p, ':'))
        return bad(p, e, "no colon after a key");
    if (have == &p->have_descr)
        return descr(p, a, e);
    if (have == &p->have_shape)
        return shape(p, a, e);
    if (word(p, "True"))
        return err_set(e, -EINVAL, "%s: is in Fortran order (wanted C order)", p->name);
    return word(p, "False") ? 0 : bad(p, e, "fortran_order is neither True nor False");
}

static int header(struct scan *p, struct npy *a, struct err *e)
{
    int comma = 1;

    if (!next_is(p, '{'))
        return bad(p, e, "the header is no dict");
    while (!next_is(p, '}')) {
        if (!comma)
            return bad(p, e, "no comma between two keys");
        if (entry(p, a, e))
            return -EINVAL;
        comma = next_is(p, ',');
    }
    blanks(p);
    if (p->at != p->end)
        return bad(p, e, "something follows the header's dict");
    if (!p->have_descr || !p->have_order || !p->have_shape)
        return bad(p, e, "the header lacks one of descr, fortran_order, shape");
    return 0;
}

/* How many values, and whether the file has them. rest: its bytes after the header. */
static int extent(const char *name, struct npy *a, size_t rest, struct err *e)
{
    size_t bytes;

    a->n = 1;
    for (uint32_t i = 0; i < a->n_dims; i++)
        if (a->shape[i] > SIZE_MAX || size_mul(a->n, (size_t)a->shape[i], &a->n))
            return err_set(e, -EOVERFLOW, "%s: its shape is too large", name);
    if (size_mul(a->n, a->width, &bytes))
        return err_set(e, -EOVERFLOW, "%s: its shape is too large", name);
    if (bytes > rest)
        return err_set(e, -EINVAL,
                       "%s: its shape needs %zu bytes of data, the file has %zu (cut off?)", name,
                       bytes, rest);
    if (bytes < rest)
        return err_set(e, -EINVAL, "%s: %zu bytes after the data that its shape needs", name,
                       rest - bytes);
    return 0;
}

int npy_parse(const char *name, const void *bytes, size_t n, struct npy *a, struct err *e)
{
    struct scan p = {.name = name, .s = bytes};
    size_t len, before;

    *a = (struct npy){0};
    if (n < 10 || memcmp(bytes, "\x93NUMPY", 6))
        return err_set(e, -EINVAL, "%s: no .npy file", name);
    if (p.s[6] < 1 || p.s[6] > 3 || p.s[7])
        return err_set(e, -EINVAL, "%s: .npy format %u.%u (known: 1.0 to 3.0)", name, p.s[6],
                       p.s[7]);
    before = p.s[6] == 1 ? 10 : 12;
    if (n < before)
        return err_set(e, -EINVAL, "%s: cut off in its first %zu bytes", name, before);
    len = (size_t)p.s[8] | (size_t)p.s[9] << 8;
    if (before == 12)
        len |= (size_t)p.s[10] << 16 | (size_t)p.s[11] << 24;
    if (len > NPY_HEADER)
        return err_set(e, -EINVAL, "%s: a header of %zu bytes (at most %d)", name, len, NPY_HEADER);
    if (len > n - before)
        return err_set(e, -EINVAL, "%s: cut off in its header", name);
    p.at = before;
    p.end = before + len;
    if (header(&p, a, e) || extent(name, a, n - p.end, e)) {
        *a = (struct npy){0};
        return -EINVAL;
    }
    a->data = p.s + p.end;
    return 0;
}

uint32_t npy_at(const struct npy *a, size_t i)
{
    const unsigned char *v = a->data + i * a->width;

    if (a->width == 1)
        return v[0];
    if (a->width == 2)
        return v[0] | (uint32_t)v[1] << 8;
    return v[0] | (uint32_t)v[1] << 8 | (uint32_t)v[2] << 16 | (uint32_t)v[3] << 24;
}

int npy_read(const char *path, struct npy *a, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = -1;
    unsigned char *bytes = NULL;
    struct stat st;
    size_t n = 0;

    *a = (struct npy){0};
    if (fd < 0 || fstat(fd, &st)) {
        rc = err_set(e, -errno, "%s: cannot read: %s", path, strerror(errno));
        goto done;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = err_set(e, -EINVAL, "%s: no regular file", path);
        goto done;
    }
    bytes = malloc((size_t)st.st_size + 1);
    if (!bytes) {
        rc = err_set(e, -ENOMEM, "no memory for the %lld bytes of %s", (long long)st.st_size, path);
        goto done;
    }
    while (n < (size_t)st.st_size) {
        ssize_t k = read(fd, bytes + n, (size_t)st.st_size - n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            rc = err_set(e, k ? -errno : -EIO, "%s: cannot read: %s", path,
                         k ? strerror(errno) : "it became shorter");
            goto done;
        }
        n += (size_t)k;
    }
    rc = npy_parse(path, bytes, n, a, e);
    if (!rc) {
        a->owned = bytes;
        bytes = NULL; /* handed over */
    }
done:
    if (fd >= 0)
        close(fd);
    free(bytes);
    return rc;
}

void npy_free(struct npy *a)
{
    free(a->owned);
    *a = (struct npy){0};
}
