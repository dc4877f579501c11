/* The bytes of a vocabulary's tokens as tries, in the order of a walk: a node's subtree follows it. */
#pragma once
#include "coordinator/model/tokenizer.h"
#include "shm/err.h"

/* Plain text: characters of UTF-8 except controls (below 0x20, and 0x7F), '"' and '\'. In strings, where most of a
 * vocabulary may come, tokens of at most so many plain characters are told from the others: who knows that so many
 * may come, whichever they are, need not look at those tokens one by one. */
enum { PLAIN_CHARS = 16 };

struct trie_node {
    uint32_t after;         /* the first node that is not of its subtree */
    uint32_t token, n_tokens; /* those that end here: token[token ...] */
    uint16_t depth;         /* bytes before this one */
    uint8_t byte;
};
struct trie {
    struct trie_node *node;
    uint32_t *token;
    size_t n_nodes, n_tokens;
};
struct grammar_vocab {
    uint32_t n_vocab;
    size_t n_words;     /* of a set of tokens */
    size_t longest;     /* bytes of a token */
    struct trie all, rest; /* rest: without the plain tokens */
    uint64_t *plain;    /* set */
    uint64_t *ends;     /* set: tokens that end an answer */
    char *bytes;        /* of all tokens; piece[t] to piece[t + 1]; none: it never comes as text */
    uint32_t *piece;    /* n_vocab + 1 */
};
