/* Test help: where the vocabularies, the chat templates and their vectors lie, and how their JSON is
 * read. Header only; for *_test.c. */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/json/json.h"
#include "tests/test.h"

/* Path of a file of golden/FOLDER. NULL: there is no such folder here (skipped; failed in CI). */
static inline const char *golden_path(const char *folder, const char *file)
{
    static char path[4096];
    const char *shared = getenv("CONCLAVE_SHARED"), *ci = getenv("CI");

    if (!shared)
        shared = "../shared";
    snprintf(path, sizeof path, "%s/golden/%s", shared, folder);
    if (access(path, R_OK)) {
        if (ci && !strcmp(ci, "true"))
            CHECK(0, "%s is missing", path);
        else
            SKIP("%s (no %s; CONCLAVE_SHARED names the folder)", file, path);
        return NULL;
    }
    snprintf(path, sizeof path, "%s/golden/%s/%s", shared, folder, file);
    return path;
}

static inline const char *vector_path(const char *file)
{
    return golden_path("vocab", file);
}

/* NULL after a failed check or a skip. */
static inline struct json_doc *golden_json(const char *folder, const char *file)
{
    const char *path = golden_path(folder, file);
    struct json_doc *d = NULL;
    struct err e = {0};

    if (path)
        CHECK(json_load(path, NULL, &d, &e) == 0, "%s", e.msg);
    return d;
}

static inline struct json_doc *vector_json(const char *file)
{
    return golden_json("vocab", file);
}

struct bytes {
    char *s;
    size_t n, cap;
};

static inline void bytes_add(struct bytes *b, const void *s, size_t n)
{
    if (b->n + n >= b->cap) { /* so that there is always a block */
        b->cap = 2 * (b->n + n) + 64;
        b->s = realloc(b->s, b->cap);
        if (!b->s)
            abort();
    }
    memcpy(b->s + b->n, s, n);
    b->n += n;
}

/* A whole file, a NUL behind it. */
static inline struct bytes golden_file(const char *folder, const char *file)
{
    const char *path = golden_path(folder, file);
    FILE *f = path ? fopen(path, "rb") : NULL;
    struct bytes b = {0};
    char buf[4096];
    size_t n;

    CHECK(f, "%s cannot be read", file);
    while (f && (n = fread(buf, 1, sizeof buf, f)) > 0)
        bytes_add(&b, buf, n);
    if (f)
        fclose(f);
    bytes_add(&b, "", 1);
    b.n--;
    return b;
}

/* An xz file, unpacked by xz; s NULL: not here. */
static inline struct bytes golden_xz(const char *folder, const char *file)
{
    const char *path = golden_path(folder, file);
    char command[5000], buf[65536];
    struct bytes b = {0};
    size_t n;
    FILE *f;

    if (!path)
        return b;
    snprintf(command, sizeof command, "xz -dc '%s'", path);
    f = popen(command, "r");
    while (f && (n = fread(buf, 1, sizeof buf, f)) > 0)
        bytes_add(&b, buf, n);
    CHECK(f && pclose(f) == 0, "%s failed; the tests need xz-utils", command);
    return b;
}

/* Appends what a string in base64 stands for. */
static inline void bytes_add_base64(struct bytes *b, const struct json *j)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned v = 0, bits = 0;

    bytes_add(b, "", 0);
    for (size_t i = 0; j && i < j->n && j->text[i] != '='; i++) {
        const char *d = strchr(digits, j->text[i]);

        if (!d || !*d) {
            CHECK(0, "bad base64: %s", j->text);
            return;
        }
        v = v << 6 | (unsigned)(d - digits);
        bits += 6;
        if (bits >= 8) {
            char c = (char)(v >> (bits -= 8));

            bytes_add(b, &c, 1);
        }
    }
}

/* The input of a case: all of it, or a unit many times and a tail. */
static inline struct bytes vector_input(const struct json *c)
{
    struct bytes b = {0};
    uint64_t times;

    bytes_add_base64(&b, json_get(c, "input"));
    if (!json_u64(json_get(c, "times"), &times))
        while (times--)
            bytes_add_base64(&b, json_get(c, "unit"));
    bytes_add_base64(&b, json_get(c, "tail"));
    return b;
}
