/* The parser of every command line. It knows tables, not commands; what a value means together with
 * others is the command's to check. Every mistake is one line that names the flag. */
#include "coordinator/cli/args.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/cli/foreign.h"
#include "coordinator/cli/nearest.h"
#include "coordinator/cli/value.h"
#include "coordinator/cli/version.h"
#include "shm/seg.h"

enum { PARTS_FLAGS_MAX = 64 };

struct parser {
    const struct args *a;
    int argc, at; /* at: the word after the one being looked at */
    char **argv;
    unsigned char seen[ARGS_PARTS][PARTS_FLAGS_MAX];
    const char *alike_value; /* see struct foreign */
    int operands_only;
};

int args_usage(const char *verb, const char *fmt, ...)
{
    va_list ap;
    char text[1024];

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *c = text; *c; c++) /* a word of the command line may hold anything; the line stays one */
        if ((unsigned char)*c < 32 || *c == 127)
            *c = '?';
    fprintf(stderr, "conclave: %s: %s\n", verb, text);
    return 2;
}

int args_flush_stdout(void)
{
    if (!fflush(stdout) && !ferror(stdout))
        return 0;
    fprintf(stderr, "conclave: cannot write to standard output: %s\n", strerror(errno));
    return 1;
}

int args_version(void)
{
    printf("conclave %s (build %s, compiled by "
#ifdef __clang__
           "clang " __clang_version__
#else
           "gcc " __VERSION__
#endif
           ")\n",
           CONCLAVE_VERSION, build_id());
    return args_flush_stdout();
}

/* "16 to 4096" */
static void range_text(const struct flag *f, char *text, size_t n)
{
    if (f->range)
        snprintf(text, n, "%s", f->range);
    else if (f->kind == FLAG_F64)
        snprintf(text, n, "%g to %g", f->low, f->high);
    else
        snprintf(text, n, "%" PRId64 " to %" PRId64, f->min, f->max);
}

/* Index in "a|b|c", or -1. */
static int choice_of(const char *choices, const char *value)
{
    for (int i = 0;; i++) {
        size_t len = strcspn(choices, "|");

        if (strlen(value) == len && !strncmp(choices, value, len))
            return i;
        if (!choices[len])
            return -1;
        choices += len + 1;
    }
}

/* Stores value (NULL: the flag takes none). `as`: how it was typed, for messages. 0, or 2. */
static int store(struct parser *p, const struct flag *f, void *into, const char *as, int as_n,
                 const char *value)
{
    void *to = (char *)into + f->at;
    const char *verb = p->a->verb;
    char range[128];
    int64_t whole;
    double real;
    int choice;

    range_text(f, range, sizeof range);
    switch (f->kind) {
    case FLAG_ON:
        *(int *)to = 1;
        return 0;
    case FLAG_COUNT:
        ++*(int *)to;
        return 0;
    case FLAG_STRING:
        *(const char **)to = value;
        return 0;
    case FLAG_U32:
    case FLAG_I64:
        if (value_i64(value, &whole) || whole < f->min || whole > f->max)
            return args_usage(verb, "%.*s %s: wanted a whole number, %s", as_n, as, value, range);
        if (f->kind == FLAG_U32)
            *(uint32_t *)to = (uint32_t)whole;
        else
            *(int64_t *)to = whole;
        return 0;
    case FLAG_BITS64:
        if (value_bits64(value, to))
            return args_usage(verb, "%.*s %s: wanted a whole number of at most 64 bits", as_n, as,
                              value);
        return 0;
    case FLAG_F64:
        if (value_f64(value, &real) || real < f->low || real > f->high)
            return args_usage(verb, "%.*s %s: wanted a number, %s", as_n, as, value, range);
        *(double *)to = real;
        return 0;
    case FLAG_SIZE:
        if (value_size(value, to) || *(uint64_t *)to < (uint64_t)f->min)
            return args_usage(verb,
                              "%.*s %s: wanted a size in bytes, like 800M or 1.5G (K, M, G, T)",
                              as_n, as, value);
        return 0;
    case FLAG_CHOICE:
        choice = choice_of(f->choices, value);
        if (choice < 0)
            return args_usage(verb, "%.*s %s: wanted one of %s", as_n, as, value, f->choices);
        *(int *)to = choice;
        return 0;
    case FLAG_TAKE:
        if (f->take(value, to, range, sizeof range))
            return args_usage(verb, "%.*s %s: wanted %s", as_n, as, value, range);
        return 0;
    }
    return 2;
}

static int takes_value(const struct flag *f)
{
    return f->kind != FLAG_ON && f->kind != FLAG_COUNT;
}

/* The flag with this long name (n bytes), or with this letter if name is NULL. */
static const struct flag *find(const struct args *a, const char *name, size_t n, char letter,
                               int *part, int *index)
{
    for (*part = 0; *part < ARGS_PARTS && a->part[*part].flags; ++*part)
        for (*index = 0; a->part[*part].flags[*index].kind; ++*index) {
            const struct flag *f = &a->part[*part].flags[*index];

            if (name ? f->name && word_in(f->name, name, n) : f->letter && f->letter == letter)
                return f;
        }
    return NULL;
}

static int unknown(const struct parser *p, const char *word, size_t n)
{
    struct nearest s;
    size_t dashes = strspn(word, "-");

    if (n == 2) /* one letter is near to every other */
        return args_usage(p->a->verb, "no option %.*s; see conclave %s --help", (int)n, word,
                          p->a->verb);
    nearest_begin(&s, word + dashes, n - dashes);
    for (int k = 0; k < ARGS_PARTS && p->a->part[k].flags; k++)
        for (const struct flag *f = p->a->part[k].flags; f->kind; f++)
            if (f->name)
                nearest_try(&s, f->name);
    nearest_try(&s, "help|version");
    if (s.near)
        return args_usage(p->a->verb, "no option %.*s; did you mean --%.*s?", (int)n, word,
                          (int)s.near_n, s.near);
    return args_usage(p->a->verb, "no option %.*s; see conclave %s --help", (int)n, word,
                      p->a->verb);
}

/* The value after a flag: behind "=", or the next word. 0, or 2 with a line. */
static int value_of(struct parser *p, const char *word, size_t n, const char **value)
{
    if (word[n] == '=') {
        *value = word + n + 1;
        return 0;
    }
    if (p->at == p->argc)
        return args_usage(p->a->verb, "%s needs a value", word);
    *value = p->argv[p->at++];
    return 0;
}

static int native(struct parser *p, const struct flag *f, int part, int index, const char *word,
                  size_t n)
{
    const char *value = NULL;

    p->seen[part][index] = 1;
    if (!takes_value(f)) {
        if (word[n])
            return args_usage(p->a->verb, "%.*s takes no value", (int)n, word);
    } else if (value_of(p, word, n, &value)) {
        return 2;
    }
    return store(p, f, p->a->part[part].into, word, (int)n, value);
}

/* llama.cpp's spelling; see foreign.h. */
static int foreign(struct parser *p, const struct foreign *x, const char *word, size_t n)
{
    const char *value = NULL, *verb = p->a->verb;
    const struct flag *f;
    int part, index, accepted = 1;

    if (x->values && *x->values == '?') {
        if (word[n] == '=')
            value = word + n + 1;
        else if (p->at < p->argc && word_in(x->values + 1, p->argv[p->at], strlen(p->argv[p->at])))
            value = p->argv[p->at++];
        accepted = !value || word_in(x->values + 1, value, strlen(value));
    } else if (x->values) {
        if (value_of(p, word, n, &value))
            return 2;
        accepted = *x->values == '*' || word_in(x->values, value, strlen(value));
    } else if (word[n]) {
        return args_usage(verb, "%.*s takes no value", (int)n, word);
    }
    if (x->rule == FOREIGN_REFUSED || !accepted)
        return args_usage(verb, "%.*s%s%s: %s", (int)n, word, value ? " " : "", value ? value : "",
                          x->why);
    if (!x->to) {
        fprintf(stderr, "conclave: %.*s%s%s: accepted; %s\n", (int)n, word, value ? " " : "",
                value ? value : "", x->why);
        return 0;
    }
    f = find(p->a, x->to, strlen(x->to), 0, &part, &index);
    if (!f)
        return unknown(p, word, n);
    if (x->rule == FOREIGN_ALIKE && p->alike_value && strcmp(p->alike_value, value))
        return args_usage(verb, "%.*s %s, but %s before: %s (--%s)", (int)n, word, value,
                          p->alike_value, x->why, x->to);
    if (x->rule == FOREIGN_ALIKE)
        p->alike_value = value;
    p->seen[part][index] = 1;
    if (store(p, f, p->a->part[part].into, word, (int)n, value))
        return 2;
    fprintf(stderr, "conclave: %.*s %s: taken as --%s %s; %s\n", (int)n, word, value, x->to, value,
            x->why);
    return 0;
}

static int operand(struct parser *p, const char *word)
{
    for (int k = 0; k < ARGS_PARTS && p->a->part[k].flags; k++)
        for (int i = 0; p->a->part[k].flags[i].kind; i++) {
            const struct flag *f = &p->a->part[k].flags[i];

            if (f->name || f->letter || p->seen[k][i])
                continue;
            p->seen[k][i] = 1;
            return store(p, f, p->a->part[k].into, f->arg, (int)strlen(f->arg), word);
        }
    return args_usage(p->a->verb, "what is '%s'? See conclave %s --help", word, p->a->verb);
}

/* A word that begins with a dash and is no lone dash. */
static int flag_word(struct parser *p, char *word)
{
    size_t n = strcspn(word, "=");
    const struct flag *f = NULL;
    const struct foreign *x;
    int part, index;

    if (word[1] == '-')
        f = find(p->a, word + 2, n - 2, 0, &part, &index);
    else if (n == 2)
        f = find(p->a, NULL, 0, word[1], &part, &index);
    if (f)
        return native(p, f, part, index, word, n);
    if (p->a->foreign && (x = foreign_find(word, n, p->a->foreign > 1)))
        return foreign(p, x, word, n);
    if (word[1] != '-' && (f = find(p->a, NULL, 0, word[1], &part, &index))) {
        size_t sign = word[2] == '-';

        if (takes_value(f) && word[2 + sign] >= '0' && word[2 + sign] <= '9') { /* -n5, -n-5 */
            p->seen[part][index] = 1;
            return store(p, f, p->a->part[part].into, word, 2, word + 2);
        }
        if (f->kind == FLAG_COUNT && strspn(word + 1, (char[2]){word[1], 0}) == n - 1 && !word[n]) {
            for (size_t i = 1; i < n; i++)
                store(p, f, p->a->part[part].into, word, 2, NULL);
            return 0;
        }
    }
    return unknown(p, word, n);
}

static int missing(const struct parser *p)
{
    for (int k = 0; k < ARGS_PARTS && p->a->part[k].flags; k++)
        for (int i = 0; p->a->part[k].flags[i].kind; i++) {
            const struct flag *f = &p->a->part[k].flags[i];

            if (!f->required || p->seen[k][i])
                continue;
            if (f->letter)
                return args_usage(p->a->verb, "-%c %s is missing; see conclave %s --help",
                                  f->letter, f->arg, p->a->verb);
            return args_usage(p->a->verb, "%s%s%s%s is missing; see conclave %s --help",
                              f->name ? "--" : "", f->name ? f->name : "", f->name ? " " : "",
                              f->arg, p->a->verb);
        }
    return 0;
}

int args_parse(const struct args *a, int argc, char **argv, int *status)
{
    struct parser p = {.a = a, .argc = argc, .argv = argv, .at = 1};

    /* help first: it must not depend on what else is on the line */
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            args_help(a);
            *status = args_flush_stdout();
            return 1;
        } else if (!strcmp(argv[i], "--version")) {
            *status = args_version();
            return 1;
        }
    *status = 0;
    while (!*status && p.at < argc) {
        char *word = argv[p.at++];

        if (p.operands_only || word[0] != '-' || !word[1])
            *status = operand(&p, word);
        else if (!strcmp(word, "--"))
            p.operands_only = 1;
        else
            *status = flag_word(&p, word);
    }
    if (!*status)
        *status = missing(&p);
    return *status != 0;
}
