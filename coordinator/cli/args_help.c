/* Help for people, made from the table, so that it cannot forget a flag or lie about a default. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/cli/args.h"
#include "coordinator/cli/value.h"

enum { HELP_AT = 28, WIDTH = 96, TEXT_MAX = 1024 };

/* Writes text from column `column` on, wrapped, later lines indented to `indent`; ends the line. */
static void wrapped(const char *text, size_t column, size_t indent)
{
    while (*text) {
        size_t word = strcspn(text, " ");

        if (column > indent && column + 1 + word > WIDTH) {
            printf("\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        printf("%.*s", (int)word, text);
        column += word;
        text += word;
        text += strspn(text, " ");
    }
    putchar('\n');
}

/* The default as the struct holds it now; "" where there is none to speak of. */
static void default_text(const struct flag *f, const void *into, char *text, size_t n)
{
    const void *at = (const char *)into + f->at;

    *text = 0;
    if (f->shown) {
        snprintf(text, n, "%s", f->shown);
        return;
    }
    switch (f->kind) {
    case FLAG_STRING:
        if (*(const char *const *)at)
            snprintf(text, n, "%s", *(const char *const *)at);
        break;
    case FLAG_U32:
        snprintf(text, n, "%" PRIu32, *(const uint32_t *)at);
        break;
    case FLAG_I64:
        snprintf(text, n, "%" PRId64, *(const int64_t *)at);
        break;
    case FLAG_F64:
        snprintf(text, n, "%g", *(const double *)at);
        break;
    case FLAG_TAKE: /* its default has no other form than .shown */
        *text = 0;
        break;
    case FLAG_SIZE:
        value_show_size(*(const uint64_t *)at, text);
        break;
    case FLAG_CHOICE: {
        const char *c = f->choices;

        for (int i = *(const int *)at; i > 0; i--)
            c = strchr(c, '|') + 1;
        snprintf(text, n, "%.*s", (int)strcspn(c, "|"), c);
        break;
    }
    case FLAG_BITS64:
    case FLAG_ON:
    case FLAG_COUNT:
        break;
    }
}

static void help_flag(const struct flag *f, const void *into)
{
    char left[128], text[TEXT_MAX], preset[128];
    size_t n;

    snprintf(left, sizeof left, "  %c%c%s --%.*s%s%s", f->letter ? '-' : ' ',
             f->letter ? f->letter : ' ', f->letter ? "," : " ", (int)strcspn(f->name, "|"),
             f->name, f->arg ? " " : "", f->arg ? f->arg : "");
    default_text(f, into, preset, sizeof preset);
    n = (size_t)snprintf(text, sizeof text, "%s", f->help);
    if (n < sizeof text && *preset)
        snprintf(text + n, sizeof text - n, " (default: %s)", preset);
    if (strlen(left) + 2 > HELP_AT)
        printf("%s\n%*s", left, HELP_AT, "");
    else
        printf("%-*s", HELP_AT, left);
    wrapped(text, HELP_AT, HELP_AT);
}

void args_help(const struct args *a)
{
    printf("conclave %s: %s\n\nusage: conclave %s %s\n", a->verb, a->about, a->verb, a->usage);
    for (int k = 0; k < ARGS_PARTS && a->part[k].flags; k++)
        for (const struct flag *f = a->part[k].flags; f->kind; f++) {
            if (f->group)
                printf("\n%s:\n", f->group);
            if (f->name)
                help_flag(f, a->part[k].into);
        }
    printf("\nabout:\n%-*sthis text\n%-*srelease, build and compiler\n", HELP_AT, "  -h, --help",
           HELP_AT, "      --version");
    if (a->notes) {
        putchar('\n');
        for (const char *at = a->notes; *at;) {
            size_t n = strcspn(at, "\n");
            char line[TEXT_MAX];

            snprintf(line, sizeof line, "%.*s", (int)n, at);
            wrapped(line, 0, 0);
            at += n + (at[n] == '\n');
        }
    }
    if (a->foreign)
        printf("\nllama.cpp's names of flags are understood where they have a meaning here; each "
               "that is\n"
               "translated, accepted or refused says so in one line.\n");
}
