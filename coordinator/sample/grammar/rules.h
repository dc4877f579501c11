/* Rules of a grammar while they are read, and the automaton over bytes that they become. Both front ends
 * (gbnf.c, schema.c) build expressions here; grammar.c walks the automaton.
 *
 * Building: the first error stays in r->e, later calls do nothing and return an expression that may be passed
 * on, so that calls need not be checked one by one; rules_compile reports it. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/err.h"

enum { RULES_NONE = UINT32_MAX, REPEAT_ANY = UINT32_MAX };

struct code_range { /* of characters, both ends included */
    uint32_t lo, hi;
};
struct rules;

/* what: begins messages ("grammar", "schema"). Hands over *out. */
int rules_new(const char *what, struct rules **out, struct err *e);
void rules_free(struct rules *r); /* NULL is allowed */
int rules_failed(const struct rules *r);
/* Sets the error, unless there is one. Returns an expression. */
uint32_t rules_fail(struct rules *r, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The rule of that name, made if there is none. line: where it is spoken of, for messages; 0: none. */
uint32_t rules_rule(struct rules *r, const char *name, size_t n, unsigned line);
/* One that no text names; `name` is for messages. */
uint32_t rules_rule_new(struct rules *r, const char *name);
int rules_defined(const struct rules *r, uint32_t rule);
void rules_define(struct rules *r, uint32_t rule, uint32_t expr);
const char *rules_name(const struct rules *r, uint32_t rule);

/* Expressions. Items are copied. */
uint32_t rules_text(struct rules *r, const char *bytes, size_t n); /* n 0: the empty text */
/* One character of n ranges, or with `not` none of them; surrogates are no characters. No character: an error. */
uint32_t rules_class(struct rules *r, const struct code_range *range, size_t n, int not);
uint32_t rules_seq(struct rules *r, const uint32_t *item, size_t n);
uint32_t rules_alt(struct rules *r, const uint32_t *item, size_t n); /* n >= 1 */
uint32_t rules_repeat(struct rules *r, uint32_t x, uint32_t min, uint32_t max); /* max REPEAT_ANY: no end */
uint32_t rules_ref(struct rules *r, uint32_t rule);
/* Any bytes up to and with the first occurrence of a text (n >= 1). */
uint32_t rules_until(struct rules *r, const char *bytes, size_t n);

/* The automaton: each rule is a net of states from `start` to a state without edges that is its end; an edge is
 * taken with a byte, with nothing, or by going through another rule. */
enum edge_kind { EDGE_BYTE, EDGE_FREE, EDGE_RULE };
struct edge {
    uint32_t to;
    uint32_t rule;        /* EDGE_RULE */
    uint8_t kind, lo, hi; /* EDGE_BYTE: lo <= byte <= hi */
};
struct net_state {
    uint32_t edge, n_edges;
};
struct net {
    struct net_state *state;
    struct edge *edge;
    uint32_t *start; /* a rule */
    size_t n_states, n_edges, n_rules;
    uint32_t root;          /* rule */
    uint8_t class_of[256];  /* bytes that no edge tells apart share a class */
    uint8_t byte_of[256];   /* one of each class */
    unsigned n_classes;
};
/* Refuses rules without a definition, that begin with themselves, or never end. *out is the caller's, to be freed
 * by net_free. */
int rules_compile(struct rules *r, uint32_t root, struct net *out, struct err *e);
void net_free(struct net *n);
static inline int net_is_end(const struct net *n, uint32_t state)
{
    return !n->state[state].n_edges;
}
