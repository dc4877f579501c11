/* llama.cpp's names for the same. A grammar that cannot be had is told before a weight is read. */
#include "coordinator/cli/grammar_flags.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/cli/output.h"

#define AT(x) offsetof(struct grammar_flags, x)
const struct flag grammar_flag_table[] = {
    {.name = "grammar",
     .arg = "TEXT",
     .group = "what may come",
     .kind = FLAG_STRING,
     .at = AT(text),
     .help = "the answer is a text of this grammar (GBNF), which begins with its rule root"},
    {.name = "grammar-file",
     .arg = "FILE",
     .kind = FLAG_STRING,
     .at = AT(file),
     .help = "the same from a file"},
    {.name = "json-schema",
     .letter = 'j',
     .arg = "JSON",
     .kind = FLAG_STRING,
     .at = AT(schema),
     .help = "the answer is JSON that this schema describes; {}: any JSON. What of a schema is not supported is "
             "refused by name"},
    {.name = "json-schema-file",
     .arg = "FILE",
     .kind = FLAG_STRING,
     .at = AT(schema_file),
     .help = "the same from a file"},
    {.kind = 0},
};

int grammar_flags_given(const struct grammar_flags *f)
{
    return !!f->text + !!f->file + !!f->schema + !!f->schema_file;
}

int grammar_flags_check(const struct grammar_flags *f, const char *verb)
{
    return grammar_flags_given(f) > 1
               ? args_usage(verb, "--grammar, --grammar-file, --json-schema and --json-schema-file exclude each other; "
                                  "give one of them")
               : 0;
}

int grammar_flags_open(const struct grammar_flags *f, const struct tokenizer *t, uint32_t n_vocab,
                       struct grammar_vocab **v, struct grammar **g, struct err *e)
{
    struct grammar_source s = {0};
    struct json_doc *d = NULL;
    char *text = NULL;
    size_t n = 0;
    int rc = grammar_vocab_new(t, n_vocab, v, e);

    if (rc)
        return rc;
    if (f->file && (rc = input_text(f->file, &text, &n, e)))
        goto done;
    if (f->schema)
        rc = json_parse("--json-schema", f->schema, strlen(f->schema), NULL, &d, e);
    else if (f->schema_file)
        rc = json_load(f->schema_file, NULL, &d, e);
    if (rc)
        goto done;
    s.gbnf = f->file ? text : f->text;
    s.n = f->file ? n : f->text ? strlen(f->text) : 0;
    s.schema = d ? json_root(d) : NULL;
    rc = grammar_open(*v, &s, g, e);
done:
    json_free(d);
    free(text);
    return rc;
}
