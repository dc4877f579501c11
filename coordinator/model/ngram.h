/* Which rows of a table of hashed n-grams a token looks up: a function of its id and those before it. */
#pragma once
#include "coordinator/model/model.h"

/* Rows of the token ids[at], of which ids[0 .. at) are the tokens before it in its sequence: g->heads numbers below
 * the table's rows. A token that ends a text cuts itself and everything before it off, as does the beginning. */
void ngram_rows(const struct model_ngram *g, const uint32_t *ids, uint32_t at, uint32_t *row);
