/* The inside of rules.h: rules.c builds it, net.c makes it an automaton. */
#pragma once
#include "coordinator/sample/grammar/rules.h"

enum { CODE_MAX = 0x10FFFF, SURROGATE_LO = 0xD800, SURROGATE_HI = 0xDFFF };

enum expr_kind { EXPR_TEXT, EXPR_UNTIL, EXPR_CLASS, EXPR_SEQ, EXPR_ALT, EXPR_REPEAT, EXPR_RULE };
struct expr {
    uint8_t kind;
    uint32_t a;     /* first of text, range or item; the expression that is repeated; the rule */
    uint32_t n;     /* how many of those; least repetitions */
    uint32_t max;   /* most */
    uint32_t depth; /* of parts in parts: what recursion costs */
};
struct rule {
    size_t name, name_n; /* in text, a NUL follows */
    uint32_t expr;       /* RULES_NONE: not defined */
    unsigned line;
    int named;
};
struct rules {
    const char *what;
    struct err e;
    struct expr *expr;
    uint32_t *item;
    struct code_range *range; /* of a class: sorted, apart, no surrogates */
    char *text;
    struct rule *rule;
    size_t n_exprs, exprs_cap, n_items, items_cap, n_ranges, ranges_cap, n_text, text_cap, n_rules, rules_cap;
    uint32_t *name_slot; /* hash of names: rule + 1; 0: empty */
    size_t name_mask;
};
