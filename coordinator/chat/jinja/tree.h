/* A parsed template: statements and expressions, made by parse.c, walked by eval.c. Names are interned:
 * two equal names are one pointer. */
#pragma once
#include "coordinator/chat/jinja/core.h"
#include "coordinator/chat/jinja/value.h"

enum { OP_IN = 1, OP_NOT_IN = 2 }; /* beside the characters of operators */

enum expr_type {
    E_CONST,   /* value */
    E_NAME,    /* name */
    E_LIST,    /* kid */
    E_TUPLE,   /* kid */
    E_MAP,     /* kid: key, value, key, value, ... */
    E_ATTR,    /* kid[0].name */
    E_ITEM,    /* kid[0][kid[1]] */
    E_SLICE,   /* kid[0][kid[1]:kid[2]:kid[3]], each may be NULL */
    E_CALL,    /* kid[0](kid[1], ..., kw) */
    E_FILTER,  /* kid[0] (NULL: the body of a filter block) | name(kid[1], ..., kw) */
    E_TEST,    /* kid[0] is name(kid[1], ...) */
    E_NOT, E_NEG, E_POS,
    E_BINARY,  /* kid[0] op[0] kid[1] op[1] kid[2] ..., from left to right */
    E_CONCAT,  /* kid[0] ~ kid[1] ~ ... */
    E_AND, E_OR,
    E_COMPARE, /* kid[0] op[0] kid[1] and kid[1] op[1] kid[2] ... */
    E_COND,    /* kid[0] if kid[1] else kid[2] (may be NULL) */
};

struct expr {
    enum expr_type type;
    unsigned line, height;
    const char *name;
    const struct builtin *builtin; /* E_FILTER, E_TEST; NULL: not known, an error when it is reached */
    struct value value;
    struct expr **kid;
    size_t n, cap;
    int *op;
    size_t op_cap;
    struct kw {
        const char *name;
        struct expr *value;
    } *kw;
    size_t n_kw, kw_cap;
};

enum stmt_type {
    S_TEXT,      /* text */
    S_PRINT,     /* expr */
    S_IF,        /* branch: the first whose test (NULL: else) is true */
    S_FOR,       /* target in expr if filter; branch[0].body, branch[1].body: nothing was there */
    S_SET,       /* target = expr */
    S_SET_ATTR,  /* target[0].name = expr */
    S_SET_BLOCK, /* target[0] = the text of branch[0].body, through expr if there is one */
    S_MACRO,     /* name; target: parameters, with expr in deflt; branch[0].body */
    S_FILTER,    /* branch[0].body through expr */
    S_SCOPE,     /* branch[0].body with names of its own */
    S_BREAK, S_CONTINUE,
};

struct stmt {
    enum stmt_type type;
    unsigned line;
    struct stmt *next;
    struct str text;
    const char *name;
    struct expr *expr, *filter;
    const char **target;
    struct expr **deflt;
    size_t n_target, target_cap, deflt_cap;
    int unpack; /* S_FOR, S_SET: more than one name, or a tuple of one */
    struct branch {
        struct expr *test;
        struct stmt *body;
    } *branch;
    size_t n_branch, branch_cap;
};

struct jinja {
    struct core core; /* the memory of all of it */
    char *name;
    struct stmt *body;
    const char **names; /* interned, sorted */
    size_t n_names;
};

/* ---- lexer ---- */
enum token_kind {
    T_TEXT, T_PRINT_BEGIN, T_PRINT_END, T_BLOCK_BEGIN, T_BLOCK_END,
    T_NAME, T_STRING, T_INT, T_FLOAT, T_OP, T_END,
};
struct token {
    enum token_kind kind;
    unsigned line;
    int op;
    struct str s; /* T_TEXT, T_STRING: what it stands for; else as written */
};
/* All tokens of a source, T_END last, in c's memory. */
struct token *lex(struct core *c, const char *source, size_t n, size_t *n_tokens);
/* Fills t->body and t->names. */
void parse(struct jinja *t, const struct token *tokens);
