/* Finds the other files of a split model by the name of one, and checks that they belong together.
 * Knows file names and the split.* keys only. */
#include "coordinator/model/gguf_split.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char pattern[] = "-00001-of-00001.gguf"; /* five digits each */
enum { PATTERN = sizeof pattern - 1, NO_AT = 1, TOTAL_AT = 10, DIGITS = 5, MAX_SHARDS = 99999 };

int split_name(const char *path, unsigned *no, unsigned *total)
{
    size_t n = strlen(path);
    const char *p = path + n - PATTERN;

    if (n < PATTERN)
        return 0;
    *no = *total = 0;
    for (int i = 0; i < PATTERN; i++) {
        if (pattern[i] != '0' && pattern[i] != '1') {
            if (p[i] != pattern[i])
                return 0;
            continue;
        }
        if (p[i] < '0' || p[i] > '9')
            return 0;
        if (i < NO_AT + DIGITS)
            *no = *no * 10 + (unsigned)(p[i] - '0');
        else
            *total = *total * 10 + (unsigned)(p[i] - '0');
    }
    return 1;
}

char *split_sibling(const char *path, unsigned no)
{
    char *s = strdup(path), digits[DIGITS + 1];

    if (!s)
        return NULL;
    snprintf(digits, sizeof digits, "%05u", no % (MAX_SHARDS + 1));
    memcpy(s + strlen(s) - PATTERN + NO_AT, digits, DIGITS);
    return s;
}

/* A split key of shard f, `absent` if it is not there. */
static int split_key(const struct front *f, const char *key, uint64_t absent, uint64_t *out,
                     struct err *e)
{
    const struct front_kv *kv = front_find(f, key);
    char path[FRONT_SHOWN * 3];

    *out = absent;
    if (!kv)
        return 0;
    if (front_u64(f, key, out))
        return err_set(e, -EINVAL, "%s: byte %u: %s is %s (an integer, 0 or more)",
                       front_show_path(path, f->path), kv->value_at, key,
                       front_kind_name(kv->kind));
    return 0;
}

static unsigned byte_of(const struct front *f, const char *key)
{
    const struct front_kv *kv = front_find(f, key);

    return kv ? kv->value_at : 0;
}

/* Keys against the file's name: shard no (from 1) of total. */
static int check_shard(const struct front *f, unsigned no, unsigned total, struct err *e)
{
    char path[FRONT_SHOWN * 3];
    uint64_t count, i;

    if (split_key(f, "split.count", 1, &count, e) || split_key(f, "split.no", 0, &i, e))
        return -EINVAL;
    front_show_path(path, f->path);
    if (!front_find(f, "split.count") && total > 1)
        return err_set(
            e, -EINVAL,
            "%s: no split.count in it, but the name says part %u of %u (rename the file)", path, no,
            total);
    if (count != total)
        return err_set(e, -EINVAL, "%s: byte %u: split.count %llu, but the file's name says %u",
                       path, byte_of(f, "split.count"), (unsigned long long)count, total);
    if (i >= count)
        return err_set(e, -EINVAL, "%s: byte %u: split.no %llu (below split.count, %llu)", path,
                       byte_of(f, "split.no"), (unsigned long long)i, (unsigned long long)count);
    if (i + 1 != no)
        return err_set(
            e, -EINVAL,
            "%s: byte %u: split.no %llu, but the file's name says %u (split.no counts from 0)",
            path, byte_of(f, "split.no"), (unsigned long long)i, no);
    return 0;
}

/* split.tensors.count, wherever it is given, against what the shards hold together. */
static int check_counts(const struct front *s, size_t n, struct err *e)
{
    char path[FRONT_SHOWN * 3];
    uint64_t sum = 0, want;

    for (size_t i = 0; i < n; i++)
        sum += s[i].n_tensors;
    for (size_t i = 0; i < n; i++) {
        if (split_key(&s[i], "split.tensors.count", sum, &want, e))
            return -EINVAL;
        if (want != sum)
            return err_set(
                e, -EINVAL,
                "%s: byte %u: split.tensors.count %llu, but the %zu files hold %llu tensors",
                front_show_path(path, s[i].path), byte_of(&s[i], "split.tensors.count"),
                (unsigned long long)want, n, (unsigned long long)sum);
    }
    return 0;
}

static int open_others(struct front *s, unsigned given, unsigned total, struct err *e)
{
    char shown[FRONT_SHOWN * 3];

    for (unsigned i = 0; i < total; i++) {
        char *path;
        int rc;

        if (i != given) {
            path = split_sibling(s[given].path, i + 1);
            if (!path)
                return err_set(e, -ENOMEM, "no memory for the name of shard %u", i + 1);
            if (access(path, F_OK) && errno == ENOENT)
                rc = err_set(e, -ENOENT, "%s: missing: it is part %u of %u of this model",
                             front_show_path(shown, path), i + 1, total);
            else
                rc = front_open(&s[i], path, e);
            free(path);
            if (rc)
                return rc;
        }
        if (check_shard(&s[i], i + 1, total, e))
            return -EINVAL;
    }
    return check_counts(s, total, e);
}

int split_open(struct front *one, struct front **shards, size_t *n, struct err *e)
{
    char path[FRONT_SHOWN * 3];
    struct front *s = NULL;
    uint64_t count;
    unsigned no = 1, total = 1;
    int named, rc = -EINVAL;

    if (split_key(one, "split.count", 1, &count, e))
        goto fail;
    if (count == 0)
        count = 1;
    named = split_name(one->path, &no, &total);
    if (!named && count > 1) {
        err_set(
            e, -EINVAL,
            "%s: byte %u: split.count %llu, but the file is not named NAME-00001-of-%05llu.gguf, "
            "so the other parts cannot be found (give it its name back)",
            front_show_path(path, one->path), byte_of(one, "split.count"),
            (unsigned long long)count, (unsigned long long)count);
        goto fail;
    }
    if (count == 1 && total <= 1)
        total = no = 1;
    else if (no < 1 || no > total) {
        err_set(e, -EINVAL, "%s: part %u of %u: there is no such part",
                front_show_path(path, one->path), no, total);
        goto fail;
    } else if (check_shard(one, no, total, e))
        goto fail;
    s = malloc(total * sizeof *s);
    if (!s) {
        rc = err_set(e, -ENOMEM, "no memory for %u shards", total);
        goto fail;
    }
    for (unsigned i = 0; i < total; i++)
        s[i] = (struct front){.fd = -1};
    s[no - 1] = *one;
    *one = (struct front){.fd = -1};
    rc = total > 1 ? open_others(s, no - 1, total, e) : 0;
    if (rc) {
        for (unsigned i = 0; i < total; i++)
            front_close(&s[i]);
        free(s);
        return rc;
    }
    *shards = s;
    *n = total;
    return 0;
fail:
    front_close(one);
    return rc;
}
