/* Grammars that were asked for lately: who asks again gets a clone, which knows the sets that the others made. One
 * thread opens; what it opens may be used by any, as clones may. */
#pragma once
#include "coordinator/sample/grammar.h"

enum { GRAMMARS_KEPT = 8 };
struct grammar_keep;
/* Borrows v. Hands over *out. */
int grammar_keep_new(const struct grammar_vocab *v, struct grammar_keep **out, struct err *e);
/* Clones may live on. NULL is allowed. */
void grammar_keep_free(struct grammar_keep *k);
/* As grammar_open. Only what is refused is made anew each time. */
int grammar_keep_open(struct grammar_keep *k, const struct grammar_source *s, struct grammar **out, struct err *e);
