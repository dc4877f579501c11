/* What can be read next, after some text: a set of stacks, each a state of the net and the states that wait behind
 * the rules around it. Sets are made when a text first leads there, and numbered: the same set has the same number,
 * and where it goes with a byte, and which tokens may come, is found out once.
 *
 * A set's number is good until sets_trim, which forgets sets; it then says what the kept ones' new numbers are. */
#pragma once
#include "coordinator/sample/grammar/rules.h"
#include "coordinator/sample/grammar/trie.h"
#include "shm/err.h"

enum { SET_DEAD = 0 }; /* nothing goes on from there */

struct set {
    uint32_t *next;       /* a class of bytes each: a set, or SET_NOT_KNOWN */
    uint64_t *allowed;    /* of the vocabulary; NULL: not known yet */
    uint32_t first, n;    /* stacks, in sets.member, sorted */
    uint8_t may_end;
    uint8_t plain;        /* so many plain characters may come, whichever they are ... */
    uint8_t not_plain;    /* ... but not so many; 0: not known */
};
struct stack { /* hashed: the same stack has the same number */
    uint32_t state, below, depth; /* below: another stack; 0: none */
    uint32_t seen;                /* the last closure that came here */
};
struct sets {
    struct net net;
    const struct grammar_vocab *v;
    struct stack *stack; /* 0: the empty one, the end of the text */
    uint32_t *stack_slot, *set_slot;
    struct set *set;
    uint32_t *member;
    size_t n_stacks, stacks_cap, stack_mask, n_sets, sets_cap, set_mask, n_members, members_cap;
    size_t bytes;        /* of rows and masks */
    uint64_t work, work_end; /* stacks looked at; the bound of the call that runs */
    uint32_t closure;
    unsigned plain_steps; /* left for looking for plain text */
    uint32_t *todo, *found, *path;
    size_t todo_cap, found_cap, n_found;
    uint32_t start;
};
/* Takes net over, also after an error. */
int sets_init(struct sets *s, struct net *net, const struct grammar_vocab *v, struct err *e);
void sets_free(struct sets *s);
/* The set after some bytes; SET_DEAD. 0, or an error. */
int sets_walk(struct sets *s, uint32_t from, const char *bytes, size_t n, uint32_t *to, struct err *e);
/* The tokens that may come: s->v->n_words words, valid until sets_trim. */
int sets_allowed(struct sets *s, uint32_t from, const uint64_t **bits, struct err *e);
/* Is there more than is wanted? Then: forgets all sets but keep[0 .. n), which get their new numbers. After an
 * error these are SET_DEAD. */
int sets_full(const struct sets *s);
int sets_trim(struct sets *s, uint32_t *const *keep, size_t n, struct err *e);
