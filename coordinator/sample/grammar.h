/* Texts that an answer may have: a grammar (GBNF, llama.cpp's dialect) or a JSON schema, compiled to one
 * automaton over bytes. For each token of an answer it gives the set of tokens that may come.
 *
 *   struct grammar *g;
 *   grammar_open(vocab, &source, &g, e);
 *   while (...) {
 *       sample_token(..., grammar_allowed(g, e), ...);   NULL: an error
 *       grammar_accept(g, id, e);
 *   }
 *
 * What is allowed depends on the text so far and never on how it was cut into tokens: a token may come if
 * its bytes go on towards a text of the grammar; one that ends the answer, exactly where the text so far is
 * one. Control tokens never come, but for <think> and </think>, where a vocabulary has these as such. A token of part
 * of a character may come where the character may.
 *
 * Grammars are foreign input. Refused with a line that names the place: what is unknown, rules that begin
 * with themselves, rules that can never end, and whatever exceeds the limits below. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "coordinator/json/json.h"
#include "coordinator/model/tokenizer.h"
#include "shm/err.h"

enum {
    GRAMMAR_TEXT_MAX = 1 << 20, /* bytes of a grammar */
    GRAMMAR_NESTING_MAX = 200,  /* groups, schemas in schemas */
    GRAMMAR_REPEAT_MAX = 5000,  /* the m and n of {m,n} */
    GRAMMAR_SIZE_MAX = 1 << 18, /* states of the automaton, of all rules together */
    GRAMMAR_DEPTH_MAX = 500,    /* rules inside each other in a text: what would go deeper may not come */
    GRAMMAR_WAYS_MAX = 1000,    /* ways to read one text at a time; more are an error of the answer */
};

/* The vocabulary as a trie of the tokens' bytes: made once, then only read, by any number of threads. */
struct grammar_vocab;
/* n_vocab: tokens of the model, at least those of the tokenizer; the others never come. Keeps nothing of t.
 * Hands over *out. */
int grammar_vocab_new(const struct tokenizer *t, uint32_t n_vocab, struct grammar_vocab **out, struct err *e);
void grammar_vocab_free(struct grammar_vocab *v); /* after its grammars; NULL is allowed */

struct grammar_source { /* borrowed while it is read; one of gbnf, schema, any_object */
    const char *gbnf; /* text with the rule "root" */
    size_t n;
    const struct json *schema; /* a JSON schema: an object, or true */
    int any_object;            /* any JSON object */
    /* A thought before it is free: up to and with the first `think_end` ("</think>") and white space behind it.
     * NULL: none. think_begin NULL: the prompt has opened it; else the answer may begin with it, and need not. */
    const char *think_begin, *think_end;
};

/* One answer's place in its grammar. A thread at a time; clones may be used by others beside it. */
struct grammar;
/* Messages begin with "grammar: line N: " or "schema: #/path: ". Borrows v. Hands over *out. */
int grammar_open(const struct grammar_vocab *v, const struct grammar_source *s, struct grammar **out, struct err *e);
/* The same place, from where each goes its own way: for further answers, or tokens that are only guessed. Both
 * share the automaton and the sets it has made so far: keep a fresh one and clone it for each request. */
int grammar_clone(const struct grammar *g, struct grammar **out, struct err *e);
void grammar_close(struct grammar *g); /* NULL is allowed */

/* Bit t of word t / 64: may token t come now? (n_vocab + 63) / 64 words, valid until the next call with g. NULL:
 * an error (memory, GRAMMAR_WAYS_MAX). All bits 0: no token of the vocabulary can go on. */
const uint64_t *grammar_allowed(struct grammar *g, struct err *e);
/* The next token of the answer. One that ends it leaves the place as it is. -EINVAL: it was not allowed, and the
 * place is the same as before. */
int grammar_accept(struct grammar *g, uint32_t id, struct err *e);
/* The same for a piece of text. */
int grammar_accept_text(struct grammar *g, const char *text, size_t n, struct err *e);
/* Is the text so far one of the grammar? */
int grammar_may_end(const struct grammar *g);
/* Is it one, to which nothing can be added? Then the answer is over, with a token that ends it or without. */
int grammar_ended(const struct grammar *g);
/* Where an answer that was led forward for guesses goes back: *to becomes what *from is; clones of each other. */
void grammar_set(struct grammar *to, const struct grammar *from);
