/* The flags that say which texts an answer may have. */
#pragma once
#include "coordinator/cli/args.h"
#include "coordinator/sample/grammar.h"

struct grammar_flags { /* as typed; one of them at most */
    const char *text, *file, *schema, *schema_file;
};
extern const struct flag grammar_flag_table[];
/* Two of them: a usage error was written, 2. */
int grammar_flags_check(const struct grammar_flags *f, const char *verb);
int grammar_flags_given(const struct grammar_flags *f);
/* The grammar that was asked for, over a model's tokens. Hands over both; the vocabulary is to be freed last. */
int grammar_flags_open(const struct grammar_flags *f, const struct tokenizer *t, uint32_t n_vocab,
                       struct grammar_vocab **v, struct grammar **g, struct err *e);
