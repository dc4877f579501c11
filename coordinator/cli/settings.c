/* Settings become words of a command line, so that there is one parser, one set of limits and one wording of
 * refusals. What is checked here is that the name exists, since a line of a file should name itself. */
#define _GNU_SOURCE
#include "coordinator/cli/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/cli/foreign.h"
#include "coordinator/cli/output.h"

enum { SETTINGS_MAX = 256 };

static int add(struct settings *s, const char *fmt, const char *text, struct err *e)
{
    char *word = NULL;

    if (s->argc >= SETTINGS_MAX)
        return err_set(e, -E2BIG, "more than %d settings", SETTINGS_MAX);
    if (asprintf(&word, fmt, text) < 0)
        return err_set(e, -ENOMEM, "no memory for the settings");
    s->argv[s->argc++] = word;
    return 0;
}

static const struct flag *find(const struct args *a, const char *name)
{
    for (int k = 0; k < ARGS_PARTS && a->part[k].flags; k++)
        for (const struct flag *f = a->part[k].flags; f->kind; f++)
            if (f->name && word_in(f->name, name, strlen(name)))
                return f;
    return NULL;
}

/* where: for messages. */
static int add_setting(const struct args *a, struct settings *s, const char *where, const char *name, const char *value,
                       struct err *e)
{
    const struct flag *f = find(a, name);
    int rc;

    if (!f)
        return err_set(e, -EINVAL, "%s: there is no setting '%s'; conclave %s --help names them", where, name, a->verb);
    if (f->kind == FLAG_ON || f->kind == FLAG_COUNT) {
        if (!strcmp(value, "false") || !strcmp(value, "0"))
            return 0;
        if (strcmp(value, "true") && strcmp(value, "1"))
            return err_set(e, -EINVAL, "%s: %s = %s: true or false is wanted", where, name, value);
        return add(s, "--%s", name, e);
    }
    rc = add(s, "--%s", name, e);
    return rc ? rc : add(s, "%s", value, e);
}

/* ---- the file ---- */

static char *trim(char *s)
{
    size_t n;

    while (isspace((unsigned char)*s))
        s++;
    n = strlen(s);
    while (n && isspace((unsigned char)s[n - 1]))
        s[--n] = 0;
    return s;
}

/* A quoted text at *p, written to `to`; *p goes behind it. 0, or -1: it does not end. */
static int quoted(char **p, char **to)
{
    char q = **p, *s = *p + 1, *t = *to;

    for (; *s && *s != q; s++) {
        if (*s == '\\' && q == '"' && s[1]) {
            s++;
            *t++ = *s == 'n' ? '\n' : *s == 't' ? '\t' : *s;
        } else {
            *t++ = *s;
        }
    }
    if (!*s)
        return -1;
    *p = s + 1;
    *to = t;
    return 0;
}

/* A value in place: without quotes, a list's parts with commas between. 0, or -1: badly formed. */
static int unwrap(char *v)
{
    char *p = v, *to = v;
    int list = *p == '[', first = 1;

    if (!list && *p != '"' && *p != '\'') { /* as it is, without a comment behind it */
        for (; *p; p++)
            if ((*p == '#' || *p == ';') && p > v && isspace((unsigned char)p[-1])) {
                *p = 0;
                break;
            }
        trim(v);
        return 0;
    }
    p += list;
    for (;;) {
        p += strspn(p, " \t");
        if (list && *p == ']')
            break;
        if (!first)
            *to++ = ',';
        first = 0;
        if (*p == '"' || *p == '\'') {
            if (quoted(&p, &to))
                return -1;
        } else {
            while (*p && !strchr(",] \t", *p))
                *to++ = *p++;
        }
        if (!list)
            break;
        p += strspn(p, " \t");
        if (*p == ',')
            p++;
        else if (*p != ']')
            return -1;
    }
    p += list;
    p += strspn(p, " \t");
    if (*p && *p != '#' && *p != ';')
        return -1;
    *to = 0;
    return 0;
}

static int read_line(const struct args *a, struct settings *s, const char *where, char *line, int *ours, struct err *e)
{
    char *name = trim(line), *value, *end;

    if (!*name || *name == '#' || *name == ';')
        return 0;
    if (*name == '[') {
        end = strchr(name, ']');
        if (!end)
            return err_set(e, -EINVAL, "%s: a part begins with [name]", where);
        *end = 0;
        *ours = !strcmp(trim(name + 1), a->verb);
        return 0;
    }
    value = strchr(name, '=');
    if (!value)
        return err_set(e, -EINVAL, "%s: name = value is wanted", where);
    *value = 0;
    name = trim(name);
    value = trim(value + 1);
    if (unwrap(value))
        return err_set(e, -EINVAL, "%s: %s: the value's quotes or brackets do not end as they should", where, name);
    return *ours ? add_setting(a, s, where, name, value, e) : 0;
}

static int read_file(const struct args *a, const char *path, struct settings *s, struct err *e)
{
    char *text = NULL, *line, *next, where[600];
    int ours = 1, number = 1, rc;
    size_t n;

    if ((rc = input_text(path, &text, &n, e)))
        return rc;
    line = realloc(text, n + 1);
    if (!line) {
        free(text);
        return err_set(e, -ENOMEM, "%s: no memory", path);
    }
    text = line;
    text[n] = 0;
    if (memchr(text, 0, n))
        rc = err_set(e, -EINVAL, "%s: is no text", path);
    for (; !rc && line; line = next, number++) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        snprintf(where, sizeof where, "%s: line %d", path, number);
        rc = read_line(a, s, where, line, &ours, e);
    }
    free(text);
    return rc;
}

/* ---- the environment ---- */

static int read_environment(const struct args *a, struct settings *s, struct err *e)
{
    int rc = 0;

    for (int k = 0; k < ARGS_PARTS && a->part[k].flags; k++)
        for (const struct flag *f = a->part[k].flags; f->kind && !rc; f++) {
            char name[80] = "CONCLAVE_ARG_", key[64];
            const char *value;
            size_t n = f->name ? strcspn(f->name, "|") : 0;

            if (!n || n >= sizeof key)
                continue;
            snprintf(key, sizeof key, "%.*s", (int)n, f->name);
            for (size_t i = 0; i <= n; i++)
                name[13 + i] = key[i] == '-' ? '_' : (char)toupper((unsigned char)key[i]);
            value = getenv(name);
            if (value)
                rc = add_setting(a, s, name, key, value, e);
        }
    return rc;
}

int settings_read(const struct args *a, const char *path, int argc, char **argv, struct settings *out, struct err *e)
{
    int rc;

    *out = (struct settings){.argv = calloc((size_t)SETTINGS_MAX + 2 + (size_t)argc, sizeof *out->argv)};
    if (!out->argv)
        return err_set(e, -ENOMEM, "no memory for the settings");
    rc = add(out, "%s", argv[0], e);
    if (!rc && path)
        rc = read_file(a, path, out, e);
    if (!rc)
        rc = read_environment(a, out, e);
    for (int i = 1; i < argc && !rc; i++) {
        out->argv[out->argc] = strdup(argv[i]);
        if (!out->argv[out->argc++])
            rc = err_set(e, -ENOMEM, "no memory for the settings");
    }
    if (rc)
        settings_free(out);
    return rc;
}

void settings_free(struct settings *s)
{
    for (int i = 0; s->argv && i < s->argc; i++)
        free(s->argv[i]);
    free(s->argv);
    *s = (struct settings){0};
}
