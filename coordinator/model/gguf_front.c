/* Reads the front part of one GGUF file: header, metadata, tensor infos. The file is hostile until
 * the last line of front_read has passed: no number of it is used before it was compared with what
 * remains of the file, and memory grows with the bytes really read, never with a count. Knows the
 * container, not what any key means (general.alignment excepted, the layout depends on it). */
#define _GNU_SOURCE /* qsort_r */
#include "coordinator/model/gguf_front.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/model/utf8.h"
#include "kernels/type/type.h"
#include "shm/size.h"

enum {
    FIRST_READ = 256 << 10,
    READAHEAD = 2 << 20, /* at most so much the kernel reads behind what was asked for */
    KEY_MAX = 65535,
    NAME_MAX_BYTES = 63,
    KEYS_MAX = 1 << 20,
    TENSORS_MAX = 1 << 20,
    SMALLEST_PAIR = 14, /* bytes: empty-ish key 8 + 1, type 4, value 1 */
    SMALLEST_INFO = 33, /* bytes: name 8 + 1, n_dims 4, one dim 8, type 4, offset 8 */
    NAME_AT = 8,        /* a tensor's name lies this far behind the start of its info */
};

/* The reader's place, and what it is reading, for messages. */
struct rd {
    struct front *f;
    struct err *e;
    uint64_t at;
    size_t have, cap; /* bytes of f->buf that are read, allocated (one more for a NUL) */
    const char *what; /* "", "key" or "tensor" */
    size_t i;         /* which one */
    uint64_t name_at, name_n;
};

const char *front_show(char out[FRONT_SHOWN], const void *s, size_t n)
{
    const unsigned char *p = s;
    size_t o = 0;

    for (size_t i = 0; i < n; i++) {
        if (o > FRONT_SHOWN - 9) { /* room for one \xNN, "..." and the NUL */
            memcpy(out + o, "...", 3);
            o += 3;
            break;
        }
        if (p[i] >= 32 && p[i] < 127)
            out[o++] = (char)p[i];
        else
            o += (size_t)sprintf(out + o, "\\x%02X", p[i]);
    }
    out[o] = 0;
    return out;
}

const char *front_show_path(char out[FRONT_SHOWN * 3], const char *path)
{
    size_t n = strlen(path), room = FRONT_SHOWN * 3 - 4;

    if (n <= room)
        return strcpy(out, path);
    sprintf(out, "...%s", path + n - room);
    return out;
}

static __attribute__((format(printf, 3, 4))) int bad(struct rd *r, uint64_t at, const char *fmt,
                                                     ...)
{
    char text[512], who[FRONT_SHOWN + 48] = "", name[FRONT_SHOWN], path[FRONT_SHOWN * 3];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (*r->what && r->name_n)
        snprintf(who, sizeof who, "%s %zu '%s': ", r->what, r->i,
                 front_show(name, r->f->buf + r->name_at, r->name_n));
    else if (*r->what)
        snprintf(who, sizeof who, "%s %zu: ", r->what, r->i);
    return err_set(r->e, -EINVAL, "%s: byte %llu: %s%s", front_show_path(path, r->f->path),
                   (unsigned long long)at, who, text);
}

/* --- bytes -------------------------------------------------------------------------------------
 */

/* Makes the file's bytes up to `end` (<= file_bytes) be in the buffer. */
static int fill(struct rd *r, uint64_t end)
{
    struct front *f = r->f;
    char path[FRONT_SHOWN * 3];
    uint64_t want = end;

    if (end <= r->have)
        return 0;
    if (end > GGUF_FRONT_MAX)
        return bad(r, r->at, "metadata of more than %d bytes (is this a model file?)",
                   GGUF_FRONT_MAX);
    if (f->fd < 0)
        return bad(r, r->at, "the bytes given end at %zu", r->have);
    if (want < FIRST_READ)
        want = FIRST_READ;
    if (want < 2 * (uint64_t)r->have)
        want = 2 * (uint64_t)r->have;
    if (want > GGUF_FRONT_MAX)
        want = GGUF_FRONT_MAX;
    if (want > f->file_bytes)
        want = f->file_bytes;
    if (want > r->cap) {
        unsigned char *p = realloc(f->buf, want + 1);
        if (!p)
            return err_set(r->e, -ENOMEM, "%s: no memory for %llu bytes of metadata",
                           front_show_path(path, f->path), (unsigned long long)want);
        f->buf = p;
        r->cap = want;
    }
    while (r->have < want) {
        ssize_t n = pread(f->fd, f->buf + r->have, want - r->have, (off_t)r->have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(r->e, -errno, "%s: byte %zu: cannot read: %s",
                           front_show_path(path, f->path), r->have, strerror(errno));
        if (n == 0)
            return err_set(
                r->e, -EIO, "%s: byte %zu: the file ends here, but had %llu bytes (it shrank)",
                front_show_path(path, f->path), r->have, (unsigned long long)f->file_bytes);
        r->have += (size_t)n;
    }
    return 0;
}

static uint64_t remaining(const struct rd *r)
{
    return r->f->file_bytes - r->at;
}

/* The next n bytes, valid until the next take; NULL: refused. `field` names them. */
static const unsigned char *take(struct rd *r, uint64_t n, const char *field)
{
    uint64_t at = r->at;

    if (n > remaining(r)) {
        bad(r, at, "file ends inside %s: %llu bytes remain (%llu needed)", field,
            (unsigned long long)remaining(r), (unsigned long long)n);
        return NULL;
    }
    if (fill(r, at + n))
        return NULL;
    r->at += n;
    return r->f->buf + at;
}

static uint32_t get32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static uint64_t get64(const unsigned char *p)
{
    return get32(p) | (uint64_t)get32(p + 4) << 32;
}

static int take32(struct rd *r, uint32_t *out, const char *field)
{
    const unsigned char *p = take(r, 4, field);

    if (!p)
        return -EINVAL;
    *out = get32(p);
    return 0;
}
static int take64(struct rd *r, uint64_t *out, const char *field)
{
    const unsigned char *p = take(r, 8, field);

    if (!p)
        return -EINVAL;
    *out = get64(p);
    return 0;
}

/* Length and bytes of a string; *at: where its bytes lie. */
static int take_string(struct rd *r, uint64_t *at, uint64_t *n, const char *field)
{
    uint64_t start = r->at;

    if (take64(r, n, field))
        return -EINVAL;
    if (*n > remaining(r))
        return bad(r, start, "string of %llu bytes, but %llu bytes remain in the file",
                   (unsigned long long)*n, (unsigned long long)remaining(r));
    if (*n > GGUF_STRING_MAX)
        return bad(r, start, "string of %llu bytes (at most %d)", (unsigned long long)*n,
                   GGUF_STRING_MAX);
    *at = r->at;
    return take(r, *n, field) ? 0 : -EINVAL;
}

/* --- names -------------------------------------------------------------------------------------
 */

int front_name_cmp(const void *a, size_t a_n, const void *b, size_t b_n)
{
    if (a_n != b_n)
        return a_n < b_n ? -1 : 1;
    return memcmp(a, b, a_n);
}

static int printable_ascii(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] < 32 || p[i] > 126)
            return 0;
    return 1;
}

/* Bytes of the character at s[0 .. n), n > 0; 0: not UTF-8, or a control character. */
static size_t shown_char(const unsigned char *s, size_t n)
{
    size_t len;

    if (s[0] < 32 || s[0] == 127 || utf8_next((const char *)s, n, &len) != UTF8_OK)
        return 0;
    return s[0] == 0xC2 && s[1] < 0xA0 ? 0 : len; /* U+0080 ... U+009F: controls of terminals */
}

static int clean_utf8(const unsigned char *s, size_t n)
{
    size_t len;

    for (size_t i = 0; i < n; i += len) {
        len = shown_char(s + i, n - i);
        if (!len)
            return 0;
    }
    return 1;
}

const char *gguf_show(char *out, size_t cap, const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t o = 0, len;

    for (size_t i = 0; i < n; i += len ? len : 1) {
        len = shown_char(p + i, n - i);
        if (o + 8 > cap) { /* room for a character or \xNN, "..." and the NUL */
            o += (size_t)snprintf(out + o, cap - o, "...");
            break;
        }
        if (len) {
            memcpy(out + o, p + i, len);
            o += len;
        } else {
            o += (size_t)sprintf(out + o, "\\x%02X", p[i]);
        }
    }
    out[o] = 0;
    return out;
}

/* --- kinds of values ---------------------------------------------------------------------------
 */

static const struct {
    const char *name;
    size_t bytes;
} kinds[] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

const char *front_kind_name(uint32_t kind)
{
    return kind < N_KINDS ? kinds[kind].name : "unknown";
}
size_t front_kind_bytes(uint32_t kind)
{
    return kind < N_KINDS ? kinds[kind].bytes : 0;
}

int front_number_i64(uint32_t kind, const unsigned char *p, int64_t *out)
{
    switch (kind) {
    case GGUF_U8:
        *out = p[0];
        return 0;
    case GGUF_I8:
        *out = (int8_t)p[0];
        return 0;
    case GGUF_U16:
        *out = (uint16_t)(p[0] | p[1] << 8);
        return 0;
    case GGUF_I16:
        *out = (int16_t)(p[0] | p[1] << 8);
        return 0;
    case GGUF_U32:
        *out = get32(p);
        return 0;
    case GGUF_I32:
        *out = (int32_t)get32(p);
        return 0;
    case GGUF_I64:
        *out = (int64_t)get64(p);
        return 0;
    case GGUF_U64:
        *out = (int64_t)get64(p);
        return *out < 0 ? -EINVAL : 0;
    default:
        return -EINVAL;
    }
}

int front_number_u64(uint32_t kind, const unsigned char *p, uint64_t *out)
{
    int64_t i;

    if (kind == GGUF_U64) {
        *out = get64(p);
        return 0;
    }
    if (front_number_i64(kind, p, &i) || i < 0)
        return -EINVAL;
    *out = (uint64_t)i;
    return 0;
}

int front_number_f32(uint32_t kind, const unsigned char *p, float *out)
{
    uint32_t b;
    uint64_t d, u;
    int64_t i;
    double x;

    switch (kind) {
    case GGUF_F32:
        b = get32(p);
        memcpy(out, &b, sizeof *out);
        return 0;
    case GGUF_F64:
        d = get64(p);
        memcpy(&x, &d, sizeof x);
        *out = (float)x;
        return 0;
    case GGUF_U64:
        front_number_u64(kind, p, &u);
        *out = (float)u;
        return 0;
    default:
        if (front_number_i64(kind, p, &i))
            return -EINVAL;
        *out = (float)i;
        return 0;
    }
}

/* --- metadata ----------------------------------------------------------------------------------
 */

static int read_bool_bytes(struct rd *r, uint64_t at, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (r->f->buf[at + i] > 1)
            return bad(r, at + i, "bool byte %u (0 or 1)", r->f->buf[at + i]);
    return 0;
}

/* The lengths are walked once, into an index: a vocabulary is looked at by element. */
static int read_strings(struct rd *r, struct front_kv *kv)
{
    kv->index = malloc((kv->n + 1) * sizeof *kv->index); /* n <= file bytes / 8, all below 2^30 */
    if (!kv->index)
        return err_set(r->e, -ENOMEM, "no memory for the places of %zu strings", kv->n);
    for (size_t i = 0; i < kv->n; i++) {
        uint64_t at, n;

        if (take_string(r, &at, &n, "a string of the array"))
            return -EINVAL;
        kv->index[i] = (uint32_t)(at - kv->value_at);
        kv->index[i + 1] = (uint32_t)(at - kv->value_at + n + 8);
    }
    return 0;
}

static int read_array(struct rd *r, struct front_kv *kv)
{
    uint64_t start = r->at, n, smallest;

    if (take32(r, &kv->elem, "an array's element type") || take64(r, &n, "an array's length"))
        return -EINVAL;
    if (kv->elem == GGUF_ARRAY)
        return bad(r, start, "array of arrays is not supported");
    if (kv->elem >= N_KINDS)
        return bad(r, start, "array element type %u unknown (0 to 12)", kv->elem);
    smallest = kv->elem == GGUF_STRING ? 8 : kinds[kv->elem].bytes;
    if (n > remaining(r) / smallest)
        return bad(r, start, "array of %llu elements does not fit: %llu bytes remain in the file",
                   (unsigned long long)n, (unsigned long long)remaining(r));
    if (n > GGUF_FRONT_MAX / smallest)
        return bad(r, start, "array of %llu elements is too large", (unsigned long long)n);
    kv->n = n;
    kv->value_at = (uint32_t)r->at;
    if (kv->elem == GGUF_STRING)
        return read_strings(r, kv);
    if (!take(r, n * smallest, "an array"))
        return -EINVAL;
    return kv->elem == GGUF_BOOL ? read_bool_bytes(r, kv->value_at, n) : 0;
}

static int read_value(struct rd *r, struct front_kv *kv)
{
    uint64_t at, n, start = r->at;

    if (kv->kind >= N_KINDS)
        return bad(r, start, "value type %u unknown (0 to 12)", kv->kind);
    if (kv->kind == GGUF_ARRAY)
        return read_array(r, kv);
    if (kv->kind == GGUF_STRING) {
        if (take_string(r, &at, &n, "a string"))
            return -EINVAL;
        kv->value_at = (uint32_t)at;
        kv->n = n;
        return 0;
    }
    kv->value_at = (uint32_t)start;
    if (!take(r, kinds[kv->kind].bytes, "a value"))
        return -EINVAL;
    return kv->kind == GGUF_BOOL ? read_bool_bytes(r, start, 1) : 0;
}

static int read_pair(struct rd *r, struct front_kv *kv)
{
    uint64_t start = r->at, at, n;

    if (take_string(r, &at, &n, "a key"))
        return -EINVAL;
    if (n == 0)
        return bad(r, start, "bad key: empty");
    if (n > KEY_MAX)
        return bad(r, start, "bad key: %llu bytes (at most %d)", (unsigned long long)n, KEY_MAX);
    if (!printable_ascii(r->f->buf + at, n)) {
        char shown[FRONT_SHOWN];
        return bad(r, start, "bad key: '%s' (printable ASCII)",
                   front_show(shown, r->f->buf + at, n));
    }
    kv->key_at = (uint32_t)at;
    kv->key_n = (uint32_t)n;
    r->name_at = at;
    r->name_n = n;
    if (take32(r, &kv->kind, "a value's type"))
        return -EINVAL;
    return read_value(r, kv);
}

static int cmp_kv(const void *a, const void *b, void *ctx)
{
    const struct front *f = ctx;
    const struct front_kv *x = &f->kv[*(const uint32_t *)a], *y = &f->kv[*(const uint32_t *)b];

    return front_name_cmp(f->buf + x->key_at, x->key_n, f->buf + y->key_at, y->key_n);
}

/* Sorted and not hashed: a hostile file cannot make it slow. */
static int order_keys(struct rd *r)
{
    struct front *f = r->f;
    uint32_t twice = UINT32_MAX;

    f->kv_order = malloc((f->n_kv + 1) * sizeof *f->kv_order);
    if (!f->kv_order)
        return err_set(r->e, -ENOMEM, "no memory for %zu keys", f->n_kv);
    for (size_t i = 0; i < f->n_kv; i++)
        f->kv_order[i] = (uint32_t)i;
    qsort_r(f->kv_order, f->n_kv, sizeof *f->kv_order, cmp_kv, f);
    for (size_t i = 1; i < f->n_kv; i++) {
        uint32_t a = f->kv_order[i - 1], b = f->kv_order[i], later = a > b ? a : b;
        if (!cmp_kv(&a, &b, f) && later < twice)
            twice = later;
    }
    if (twice == UINT32_MAX)
        return 0;
    r->i = twice;
    r->name_at = f->kv[twice].key_at;
    r->name_n = f->kv[twice].key_n;
    return bad(r, f->kv[twice].key_at - 8, "key is there twice");
}

static int read_pairs(struct rd *r, uint64_t count)
{
    struct front *f = r->f;
    size_t cap = 0;

    r->what = "key";
    for (r->i = 0; r->i < count; r->i++) {
        if (f->n_kv == cap) {
            struct front_kv *p;
            cap = cap ? 2 * cap : 64;
            p = realloc(f->kv, cap * sizeof *p);
            if (!p)
                return err_set(r->e, -ENOMEM, "no memory for %zu keys", cap);
            f->kv = p;
        }
        r->name_n = 0;
        f->kv[f->n_kv] = (struct front_kv){0};
        f->n_kv++; /* before it is read: it may own an index when that fails */
        if (read_pair(r, &f->kv[f->n_kv - 1]))
            return -EINVAL;
    }
    return order_keys(r);
}

/* The one key whose meaning the layout needs. The offset given is where the reader stands then:
 * behind the value. */
static int find_alignment(struct rd *r)
{
    const struct front_kv *kv = front_find(r->f, "general.alignment");
    uint32_t a;

    r->f->alignment = 32;
    if (!kv)
        return 0;
    r->what = "";
    if (kv->kind != GGUF_U32)
        return bad(r, kv->value_at, "general.alignment is %s (u32)", front_kind_name(kv->kind));
    a = get32(r->f->buf + kv->value_at);
    if (a == 0 || (a & (a - 1)) || a > GGUF_ALIGN_MAX)
        return bad(r, (uint64_t)kv->value_at + 4, "general.alignment %u (a power of two up to %d)",
                   a, GGUF_ALIGN_MAX);
    r->f->alignment = a;
    return 0;
}

/* --- tensor infos ------------------------------------------------------------------------------
 */

static int read_dims(struct rd *r, struct gguf_tensor *t)
{
    uint64_t start = r->at, product = 1;

    if (take32(r, &t->n_dims, "the number of dimensions"))
        return -EINVAL;
    if (t->n_dims < 1 || t->n_dims > 4)
        return bad(r, start, "%u dimensions (1 to 4)", t->n_dims);
    start = r->at;
    for (uint32_t d = 0; d < 4; d++) {
        uint64_t at = r->at;

        t->dims[d] = 1;
        if (d >= t->n_dims)
            continue;
        if (take64(r, &t->dims[d], "the dimensions"))
            return -EINVAL;
        if (t->dims[d] == 0)
            return bad(r, at, "dimension %u is 0 (1 or more)", d);
        if (t->dims[d] > INT64_MAX)
            return bad(r, at, "size overflows: dimension %u is %llu", d,
                       (unsigned long long)t->dims[d]);
        if (u64_mul(product, t->dims[d], &product) || product > INT64_MAX)
            return bad(r, start, "size overflows: %llu x %llu x %llu x %llu values",
                       (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                       (unsigned long long)(d > 1 ? t->dims[2] : 1),
                       (unsigned long long)(d > 2 ? t->dims[3] : 1));
    }
    return 0;
}

static int read_type(struct rd *r, struct gguf_tensor *t)
{
    uint64_t start = r->at;
    const struct type_info *ti;

    if (take32(r, &t->type, "the type"))
        return -EINVAL;
    ti = type_info(t->type);
    if (!ti || !ti->block_values || !ti->block_bytes)
        return bad(r, start, "type %u not supported", t->type);
    if (t->dims[0] % ti->block_values)
        return bad(r, start, "row of %llu values is not a multiple of %u (%s)",
                   (unsigned long long)t->dims[0], (unsigned)ti->block_values, ti->name);
    if (u64_mul(t->dims[0] / ti->block_values, ti->block_bytes, &t->row_bytes) ||
        u64_mul(t->row_bytes, t->dims[1], &t->bytes) || u64_mul(t->bytes, t->dims[2], &t->bytes) ||
        u64_mul(t->bytes, t->dims[3], &t->bytes) || t->bytes > INT64_MAX)
        return bad(r, start, "size overflows: %llu x %llu x %llu x %llu values of %s",
                   (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                   (unsigned long long)t->dims[2], (unsigned long long)t->dims[3], ti->name);
    return 0;
}

/* *next: the running sum, where this tensor has to lie in the data section. */
static int read_info(struct rd *r, struct gguf_tensor *t, uint64_t *next)
{
    uint64_t start = r->at, at, n, offset;

    t->info_at = (uint32_t)start;
    if (take_string(r, &at, &n, "a tensor's name"))
        return -EINVAL;
    if (n == 0 || n > NAME_MAX_BYTES)
        return bad(r, start, "bad name: %llu bytes (1 to %d)", (unsigned long long)n,
                   NAME_MAX_BYTES);
    if (!clean_utf8(r->f->buf + at, n)) {
        char shown[FRONT_SHOWN];
        return bad(r, start, "bad name: '%s' (UTF-8 without control characters)",
                   front_show(shown, r->f->buf + at, n));
    }
    t->name.n = n;
    r->name_at = at;
    r->name_n = n;
    if (read_dims(r, t) || read_type(r, t))
        return -EINVAL;
    start = r->at;
    if (take64(r, &offset, "the offset"))
        return -EINVAL;
    if (offset != *next)
        return bad(r, start, "offset %llu, expected %llu", (unsigned long long)offset,
                   (unsigned long long)*next);
    t->file_offset = offset; /* the data section's start is added when it is known */
    if (u64_add(offset, t->bytes, next) || *next > INT64_MAX - GGUF_ALIGN_MAX)
        return bad(r, start, "size overflows: %llu bytes at offset %llu",
                   (unsigned long long)t->bytes, (unsigned long long)offset);
    *next = round_up(*next, r->f->alignment);
    return 0;
}

static int read_infos(struct rd *r, uint64_t count)
{
    struct front *f = r->f;
    size_t cap = 0;
    uint64_t next = 0;

    r->what = "tensor";
    for (r->i = 0; r->i < count; r->i++) {
        if (f->n_tensors == cap) {
            struct gguf_tensor *p;
            cap = cap ? 2 * cap : 64;
            p = realloc(f->tensor, cap * sizeof *p);
            if (!p)
                return err_set(r->e, -ENOMEM, "no memory for %zu tensors", cap);
            f->tensor = p;
        }
        r->name_n = 0;
        f->tensor[f->n_tensors] = (struct gguf_tensor){0};
        if (read_info(r, &f->tensor[f->n_tensors], &next))
            return -EINVAL;
        f->n_tensors++;
    }
    return 0;
}

/* Does the data lie inside the file? From here on file_offset counts from the file's start. */
static int place_tensors(struct rd *r)
{
    struct front *f = r->f;
    char path[FRONT_SHOWN * 3], name[FRONT_SHOWN];

    r->what = "";
    f->data_start = round_up(r->at, f->alignment);
    f->data_end = f->data_start;
    if (f->n_tensors && f->data_start > f->file_bytes)
        return bad(r, f->file_bytes, "file ends before the data section (byte %llu)",
                   (unsigned long long)f->data_start);
    for (size_t i = 0; i < f->n_tensors; i++) {
        struct gguf_tensor *t = &f->tensor[i];

        t->file_offset += f->data_start; /* < 2^63 + 2^31 */
        f->data_end = t->file_offset + t->bytes;
        if (f->data_end > f->file_bytes)
            return err_set(r->e, -EINVAL, "%s: file ends at byte %llu, tensor '%s' needs byte %llu",
                           front_show_path(path, f->path), (unsigned long long)f->file_bytes,
                           front_show(name, f->buf + t->info_at + NAME_AT, t->name.n),
                           (unsigned long long)f->data_end);
    }
    return 0;
}

/* --- the whole ---------------------------------------------------------------------------------
 */

static int read_header(struct rd *r, uint64_t *n_tensors, uint64_t *n_kv)
{
    const unsigned char *p;
    struct front *f = r->f;

    if (f->file_bytes == 0)
        return bad(r, 0, "the file is empty (a GGUF file is needed)");
    if (f->file_bytes >= 4) {
        p = take(r, 4, "the magic");
        if (!p)
            return -EINVAL;
        if (memcmp(p, "GGUF", 4)) {
            char shown[FRONT_SHOWN];
            return bad(r, 0, "not a GGUF file: it begins with '%s' ('GGUF')",
                       front_show(shown, p, 4));
        }
    }
    if (take32(r, &f->version, "the header"))
        return -EINVAL;
    if ((f->version & 0xFFFF) == 0 && f->version)
        return bad(r, 4, "big-endian GGUF is not supported");
    if (f->version < 2 || f->version > 3)
        return bad(r, 4, "GGUF version %u is not supported (2 or 3)", f->version);
    if (take64(r, n_tensors, "the header") || take64(r, n_kv, "the header"))
        return -EINVAL;
    if (*n_tensors > remaining(r) / SMALLEST_INFO)
        return bad(r, 8, "tensor count %llu, but %llu bytes remain", (unsigned long long)*n_tensors,
                   (unsigned long long)remaining(r));
    if (*n_kv > remaining(r) / SMALLEST_PAIR)
        return bad(r, 16, "metadata count %llu, but %llu bytes remain", (unsigned long long)*n_kv,
                   (unsigned long long)remaining(r));
    if (*n_tensors > TENSORS_MAX)
        return bad(r, 8, "tensor count %llu (at most %d)", (unsigned long long)*n_tensors,
                   TENSORS_MAX);
    if (*n_kv > KEYS_MAX)
        return bad(r, 16, "metadata count %llu (at most %d)", (unsigned long long)*n_kv, KEYS_MAX);
    return 0;
}

/* Everything is parsed, so the byte behind each string (a length or a type, or nothing) is free:
 * it becomes the string's NUL. */
static void terminate_strings(struct front *f)
{
    for (size_t i = 0; i < f->n_kv; i++) {
        const struct front_kv *kv = &f->kv[i];

        f->buf[kv->key_at + kv->key_n] = 0;
        if (kv->kind == GGUF_STRING)
            f->buf[kv->value_at + kv->n] = 0;
        for (size_t j = 0; kv->index && j < kv->n; j++)
            f->buf[kv->value_at + kv->index[j + 1] - 8] = 0;
    }
    for (size_t i = 0; i < f->n_tensors; i++) {
        struct gguf_tensor *t = &f->tensor[i];

        t->name.s = (const char *)f->buf + t->info_at + NAME_AT;
        f->buf[t->info_at + NAME_AT + t->name.n] = 0;
    }
}

static int front_read(struct rd *r)
{
    uint64_t n_tensors, n_kv;
    unsigned char *p;

    if (read_header(r, &n_tensors, &n_kv) || read_pairs(r, n_kv) || find_alignment(r))
        return -EINVAL;
    r->f->kv_end = r->at;
    if (read_infos(r, n_tensors) || place_tensors(r))
        return -EINVAL;
    p = realloc(r->f->buf, r->at + 1); /* what was read ahead is the tensors' */
    if (p)
        r->f->buf = p;
    terminate_strings(r->f);
    return 0;
}

static int finish(struct rd *r)
{
    if (front_read(r)) {
        front_close(r->f);
        return r->e && r->e->code ? r->e->code : -EINVAL;
    }
    return 0;
}

int front_parse(struct front *f, const char *name, const void *data, size_t n, uint64_t file_bytes,
                struct err *e)
{
    struct rd r = {.f = f, .e = e, .what = ""};

    *f = (struct front){.fd = -1, .file_bytes = file_bytes};
    if (n > file_bytes || file_bytes > INT64_MAX)
        return err_set(e, -EINVAL, "%s: %zu bytes of a file of %llu", name, n,
                       (unsigned long long)file_bytes);
    f->path = strdup(name);
    r.have = r.cap = n < GGUF_FRONT_MAX ? n : GGUF_FRONT_MAX;
    f->buf = malloc(r.cap + 1);
    if (!f->path || !f->buf) {
        front_close(f);
        return err_set(e, -ENOMEM, "%s: no memory for %zu bytes", name, n);
    }
    if (n)
        memcpy(f->buf, data, r.have);
    return finish(&r);
}

int front_open(struct front *f, const char *path, struct err *e)
{
    struct rd r = {.f = f, .e = e, .what = ""};
    char shown[FRONT_SHOWN * 3];
    struct stat st;
    int rc;

    *f = (struct front){.fd = -1};
    front_show_path(shown, path);
    f->path = strdup(path);
    if (!f->path)
        return err_set(e, -ENOMEM, "%s: no memory", shown);
    /* not blocking: a FIFO by that name must not hang the program before fstat can tell */
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0) {
        rc = err_set(e, -errno, "%s: cannot open: %s", shown, strerror(errno));
        goto fail;
    }
    if (fstat(f->fd, &st)) {
        rc = err_set(e, -errno, "%s: cannot look at it: %s", shown, strerror(errno));
        goto fail;
    }
    if (S_ISDIR(st.st_mode)) {
        rc = err_set(e, -EISDIR, "%s: is a directory (name a GGUF file in it)", shown);
        goto fail;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = err_set(e, -EINVAL, "%s: is not a regular file (a GGUF file on a disk is needed)",
                     shown);
        goto fail;
    }
    /* later readers of this descriptor must wait for the disk, not get EAGAIN */
    if (fcntl(f->fd, F_SETFL, 0) < 0) {
        rc = err_set(e, -errno, "%s: cannot set its mode: %s", shown, strerror(errno));
        goto fail;
    }
    f->file_bytes = (uint64_t)st.st_size;
    rc = finish(&r);
    if (!rc) /* metadata is read once: in the page cache it would only take memory from experts */
        posix_fadvise(f->fd, 0, (off_t)(r.have + READAHEAD), POSIX_FADV_DONTNEED);
    return rc;
fail:
    front_close(f);
    return rc;
}

void front_close(struct front *f)
{
    for (size_t i = 0; i < f->n_kv; i++)
        free(f->kv[i].index);
    free(f->kv);
    free(f->kv_order);
    free(f->tensor);
    free(f->buf);
    free(f->path);
    if (f->fd >= 0)
        close(f->fd);
    *f = (struct front){.fd = -1};
}

const struct front_kv *front_find(const struct front *f, const char *key)
{
    size_t n = strlen(key), lo = 0, hi = f->n_kv;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct front_kv *kv = &f->kv[f->kv_order[mid]];
        int c = front_name_cmp(key, n, f->buf + kv->key_at, kv->key_n);

        if (c == 0)
            return kv;
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

int front_u64(const struct front *f, const char *key, uint64_t *out)
{
    const struct front_kv *kv = front_find(f, key);

    if (!kv)
        return 1;
    return front_number_u64(kv->kind, f->buf + kv->value_at, out);
}
