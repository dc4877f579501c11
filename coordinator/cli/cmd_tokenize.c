/* conclave tokenize: the ids of a text, for people and for scripts. Needs a file's metadata only.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/cli/args.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/common.h"
#include "coordinator/cli/output.h"
#include "coordinator/model/gguf.h"
#include "coordinator/model/tokenizer.h"

struct options {
    const char *model, *prompt, *file, *pre;
    int no_bos, no_special;
};

#define AT(member) offsetof(struct options, member)
static const struct flag table[] = {
    {.name = "model",
     .letter = 'm',
     .arg = "FILE",
     .group = "text",
     .kind = FLAG_STRING,
     .at = AT(model),
     .required = 1,
     .help = "GGUF file; a vocabulary without tensors will do"},
    {.name = "prompt",
     .letter = 'p',
     .arg = "TEXT",
     .kind = FLAG_STRING,
     .at = AT(prompt),
     .help = "the text"},
    {.name = "file",
     .letter = 'f',
     .arg = "FILE",
     .kind = FLAG_STRING,
     .at = AT(file),
     .help = "read the text from FILE (- or nothing: standard input)"},
    {.name = "no-bos",
     .group = "reading",
     .kind = FLAG_ON,
     .at = AT(no_bos),
     .help = "do not begin with BOS, nor end with EOS"},
    {.name = "no-special",
     .kind = FLAG_ON,
     .at = AT(no_special),
     .help = "<|name|> in the text is text, not a control token"},
    {.name = "pre",
     .arg = "NAME",
     .kind = FLAG_STRING,
     .at = AT(pre),
     .help = "split words by this rule instead of the file's tokenizer.ggml.pre"},
    {.kind = 0},
};

static int print_ids(const struct token_list *list, struct err *e)
{
    enum { ID_BYTES = 11 }; /* "4294967295 " */
    char *line = malloc(list->n * ID_BYTES + 1);
    size_t n = 0;
    int rc;

    if (!line)
        return err_set(e, -ENOMEM, "no memory for %zu tokens as text", list->n);
    for (size_t i = 0; i < list->n; i++) {
        char digits[ID_BYTES];
        uint32_t id = list->ids[i];
        size_t k = sizeof digits;

        do
            digits[--k] = (char)('0' + id % 10);
        while (id /= 10);
        if (i)
            line[n++] = ' ';
        memcpy(line + n, digits + k, sizeof digits - k);
        n += sizeof digits - k;
    }
    line[n++] = '\n';
    rc = output_bytes(1, "standard output", line, n, e);
    free(line);
    return rc;
}

int cmd_tokenize(int argc, char **argv)
{
    struct options o = {0};
    const struct args a = {
        .verb = "tokenize",
        .about = "print the token ids of a text, on one line",
        .usage = "-m MODEL (-p TEXT | -f FILE | < TEXT) [flags]",
        .notes = "The text is taken byte by byte as it is: a newline at its end is part of it.\n",
        .foreign = 0,
        .part = {{table, &o}},
    };
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct token_list list = {0};
    struct err e = {0};
    char *text = NULL;
    const char *s;
    size_t n;
    int status;

    if (args_parse(&a, argc, argv, &status))
        return status;
    if (o.prompt && o.file)
        return args_usage(a.verb, "-p and -f exclude each other; give one of them");
    status = 1;
    if (gguf_open(o.model, &g, &e) < 0 || tokenizer_open(g, o.pre, &t, &e) < 0)
        goto done;
    if (!o.prompt && input_text(o.file, &text, &n, &e) < 0)
        goto done;
    s = o.prompt ? o.prompt : text;
    if (o.prompt)
        n = strlen(s);
    if (tokenize(t, s, n, !o.no_bos, !o.no_special, &list, &e) < 0 || print_ids(&list, &e) < 0)
        goto done;
    status = 0;
done:
    if (status)
        report_error(&e);
    free(list.ids);
    free(text);
    tokenizer_close(t);
    gguf_close(g);
    return status;
}
