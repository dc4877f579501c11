/* conclave tokenize: the ids of a text, for people and for scripts. Needs a file's metadata only.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/model/gguf.h"
#include "coordinator/model/tokenizer.h"

static const char help[] =
    "conclave tokenize: print the token ids of a text, on one line\n"
    "\n"
    "usage: conclave tokenize -m MODEL (-p TEXT | -f FILE | < TEXT)\n"
    "\n"
    "  -m, --model FILE    GGUF file; a vocabulary without tensors will do\n"
    "  -p, --prompt TEXT   the text\n"
    "  -f, --file FILE     read the text from FILE (- or nothing: standard input)\n"
    "      --no-bos        do not begin with BOS, nor end with EOS\n"
    "      --no-special    <|name|> in the text is text, not a control token\n"
    "      --pre NAME      split words by this rule instead of the file's tokenizer.ggml.pre\n"
    "  -h, --help          this text\n"
    "\n"
    "The text is taken byte by byte as it is: a newline at its end is part of it.\n";

int cmd_tokenize(int argc, char **argv);

struct options {
    const char *model, *prompt, *file, *pre;
    int no_bos, no_special;
};

static const struct option names[] = {
    {"model", required_argument, NULL, 'm'}, {"prompt", required_argument, NULL, 'p'},
    {"file", required_argument, NULL, 'f'},  {"no-bos", no_argument, NULL, 'B'},
    {"no-special", no_argument, NULL, 'S'},  {"pre", required_argument, NULL, 'P'},
    {"help", no_argument, NULL, 'h'},        {0},
};

enum { NAME_MAX_BYTES = 32 };

/* Changes that turn a into b (insert, delete, replace). */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_MAX_BYTES + 1], n = strlen(b);

    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            size_t best = diagonal + (a[i] != b[j]);

            diagonal = row[j + 1];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (diagonal + 1 < best)
                best = diagonal + 1;
            row[j + 1] = best;
        }
    }
    return row[n];
}

static int usage_error(const char *arg)
{
    const char *near = NULL;
    size_t best = NAME_MAX_BYTES, len = strcspn(arg, "=");
    char word[NAME_MAX_BYTES + 1] = "";

    if (!strncmp(arg, "--", 2) && len - 2 <= NAME_MAX_BYTES) {
        memcpy(word, arg + 2, len - 2);
        for (const struct option *o = names; o->name; o++) {
            size_t d = distance(word, o->name);

            if (d < best) {
                best = d;
                near = o->name;
            }
        }
    }
    if (near)
        fprintf(stderr, "conclave: tokenize: no option %.*s; do you mean --%s?\n", (int)len, arg,
                near);
    else
        fprintf(stderr, "conclave: tokenize: no option %.*s; see conclave tokenize --help\n",
                (int)len, arg);
    return 2;
}

/* 0: go on; otherwise *status is the exit status. */
static int parse(int argc, char **argv, struct options *o, int *status)
{
    int c;

    optind = 0; /* a command may be called after another scan of argv */
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":m:p:f:h", names, NULL)) != -1) {
        const char *arg = argv[optind - 1];

        switch (c) {
        case 'm':
            o->model = optarg;
            break;
        case 'p':
            o->prompt = optarg;
            break;
        case 'f':
            o->file = optarg;
            break;
        case 'P':
            o->pre = optarg;
            break;
        case 'B':
            o->no_bos = 1;
            break;
        case 'S':
            o->no_special = 1;
            break;
        case 'h':
            fputs(help, stdout);
            *status = fflush(stdout) ? 1 : 0;
            return 1;
        case ':':
            fprintf(stderr, "conclave: tokenize: %s needs a value\n", arg);
            *status = 2;
            return 1;
        default:
            if (optopt == 'B' || optopt == 'S' || (optopt == 'h' && arg[1] == '-')) {
                fprintf(stderr, "conclave: tokenize: %s: this option takes no value\n", arg);
                *status = 2;
            } else {
                char letter[3] = {'-', (char)optopt};

                *status = usage_error(optopt ? letter : arg);
            }
            return 1;
        }
    }
    *status = 2;
    if (optind < argc) {
        fprintf(stderr, "conclave: tokenize: what is '%s'? A text goes after -p\n", argv[optind]);
        return 1;
    }
    if (!o->model || (o->prompt && o->file)) {
        fprintf(stderr, "conclave: tokenize: %s; see conclave tokenize --help\n",
                o->model ? "-p and -f exclude each other" : "-m MODEL is missing");
        return 1;
    }
    return 0;
}

/* The whole of a file or of standard input. Hands over *text. */
static int read_text(const char *path, char **text, size_t *n, struct err *e)
{
    int from_stdin = !path || !strcmp(path, "-");
    FILE *f = from_stdin ? stdin : fopen(path, "rb");
    char *buf = NULL, *more;
    size_t cap = 0, got;
    int rc = 0;

    if (from_stdin)
        path = "standard input";
    *n = 0;
    if (!f)
        return err_set(e, -errno, "%s: cannot open: %s", path, strerror(errno));
    do {
        if (cap - *n < 4096) {
            cap = cap ? 2 * cap : 1 << 16;
            if (cap > 2 * (size_t)TOKENIZE_TEXT_MAX || !(more = realloc(buf, cap))) {
                rc = err_set(e, -ENOMEM, "%s: too long, at most %d bytes work", path,
                             TOKENIZE_TEXT_MAX);
                goto done;
            }
            buf = more;
        }
        got = fread(buf + *n, 1, cap - *n, f);
        *n += got;
    } while (got);
    if (ferror(f)) {
        rc = err_set(e, -EIO, "%s: cannot read: %s", path, strerror(errno));
        goto done;
    }
    *text = buf;
    buf = NULL; /* handed over */
done:
    if (!from_stdin)
        fclose(f);
    free(buf);
    return rc;
}

static int print_ids(const struct token_list *list, struct err *e)
{
    for (size_t i = 0; i < list->n; i++)
        printf(i ? " %u" : "%u", list->ids[i]);
    putchar('\n');
    if (fflush(stdout) || ferror(stdout))
        return err_set(e, -EIO, "cannot write to standard output: %s", strerror(errno));
    return 0;
}

int cmd_tokenize(int argc, char **argv)
{
    struct options o = {0};
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct token_list list = {0};
    struct err e = {0};
    char *text = NULL;
    const char *s;
    size_t n;
    int status;

    if (parse(argc, argv, &o, &status))
        return status;
    status = 1;
    if (gguf_open(o.model, &g, &e) < 0 || tokenizer_open(g, o.pre, &t, &e) < 0)
        goto done;
    if (o.prompt) {
        s = o.prompt;
        n = strlen(s);
    } else {
        if (read_text(o.file, &text, &n, &e) < 0)
            goto done;
        s = text;
    }
    if (tokenize(t, s, n, !o.no_bos, !o.no_special, &list, &e) < 0 || print_ids(&list, &e) < 0)
        goto done;
    status = 0;
done:
    if (status)
        fprintf(stderr, "conclave: %s\n", e.msg);
    free(list.ids);
    free(text);
    tokenizer_close(t);
    gguf_close(g);
    return status;
}
