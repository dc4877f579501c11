/* Values of a running template, and the tables of what can be done with them. */
#pragma once
#include "coordinator/chat/jinja/core.h"

#define OP2(a, b) ((a) | (b) << 8) /* an operator of two characters */

enum vkind {
    V_UNDEFINED, /* s: the name that was looked for, for messages */
    V_NONE,
    V_BOOL,
    V_INT,
    V_BIG,   /* s: a whole number beyond 64 bits, as its digits: passed through, compared, printed */
    V_FLOAT,
    V_STR,
    V_SEQ,
    V_MAP,
    V_NAMESPACE, /* map */
    V_MACRO,
    V_LOOP,
    V_FUNC,   /* builtin */
    V_METHOD, /* of a value */
};

struct value {
    enum vkind kind;
    union {
        int64_t i; /* V_INT, V_BOOL */
        double f;
        struct str s;
        struct seq *seq;
        struct map *map;
        struct macro *macro;
        struct loop *loop;
        const struct builtin *func;
        struct method *method;
    };
};

/* VIEW: keys(), values(), items(). LAZY: what Jinja makes a generator of (map, select, reverse, ...). */
enum seq_form { SEQ_LIST, SEQ_TUPLE, SEQ_RANGE, SEQ_VIEW, SEQ_LAZY };
struct seq {
    enum seq_form form;
    int frozen; /* an input: must not change */
    struct value *items;
    size_t n, cap;
    int64_t range[3]; /* SEQ_RANGE: as called, for printing */
};
struct entry {
    struct value key, value;
};
struct map {
    struct entry *items;
    size_t n, cap;
    int frozen;
};
struct method {
    struct value self;
    const struct builtin *what;
};
struct loop {
    struct value *items;
    size_t n, at;
    struct seq *changed; /* the arguments of the last call; NULL: none */
};

/* Arguments of a call. After binding: p[i] is the i-th parameter, V_UNDEFINED with given[i] 0 where
 * it is absent. */
enum { PARAMS_MAX = 6 };
struct args {
    struct value *pos;
    size_t n_pos;
    struct named {
        const char *name;
        struct value value;
    } *kw;
    size_t n_kw;
    struct value p[PARAMS_MAX];
    int given[PARAMS_MAX];
};

struct run;
/* params: names with commas; a trailing "*" takes what it gets (args->pos, args->kw unbound). The
 * part before '!' is needed. NULL fn: known to Python, not to us; an error when called. */
struct builtin {
    const char *name, *params;
    struct value (*fn)(struct run *r, struct value self, struct args *a);
};

static inline struct value v_none(void)
{
    return (struct value){.kind = V_NONE};
}
static inline struct value v_bool(int truth)
{
    return (struct value){.kind = V_BOOL, .i = truth != 0};
}
static inline struct value v_int(int64_t i)
{
    return (struct value){.kind = V_INT, .i = i};
}
static inline struct value v_float(double f)
{
    return (struct value){.kind = V_FLOAT, .f = f};
}
static inline struct value v_str(struct str s)
{
    return (struct value){.kind = V_STR, .s = s};
}
static inline struct value v_undefined(struct str name)
{
    return (struct value){.kind = V_UNDEFINED, .s = name};
}
static inline struct value v_seq(struct seq *q)
{
    return (struct value){.kind = V_SEQ, .seq = q};
}
static inline struct value v_map(struct map *m)
{
    return (struct value){.kind = V_MAP, .map = m};
}
static inline struct value v_buf(const struct buf *b)
{
    return v_str(buf_str(b));
}

/* ---- the running template ---- */
struct var {
    const char *name; /* interned */
    struct value value;
    struct var *next;
};
struct scope {
    struct var *vars;
    struct scope *up;
};
struct run {
    struct core c;
    const struct jinja *t;
    const struct tm *now;
    struct scope *top;
    struct buf *out;       /* where text goes now */
    size_t depth;          /* of C calls on data and nodes */
    size_t macros;         /* open */
    struct kept { /* documents that values borrow strings from */
        struct json_doc *doc;
        struct kept *next;
    } *kept;
};
/* Around every function that calls itself on nodes or data. */
void enter(struct run *r);
static inline void leave_(struct run *r)
{
    r->depth--;
}

/* value.c */
const char *kind_name(struct value v);
_Noreturn void fail_type(struct run *r, const char *what, struct value v);
/* Ends with an error if v is undefined. */
void need_defined(struct run *r, struct value v);
struct seq *seq_new(struct run *r, enum seq_form form);
void seq_add(struct run *r, struct seq *q, struct value v);
struct map *map_new(struct run *r);
/* NULL: none. */
struct value *map_find(struct run *r, const struct map *m, struct value key);
struct value *map_find_str(struct run *r, const struct map *m, const char *key);
void map_put(struct run *r, struct map *m, struct value key, struct value v);
void map_remove(struct run *r, struct map *m, const struct value *found);
int truth(struct run *r, struct value v);
int equal(struct run *r, struct value a, struct value b);
/* < 0, 0, > 0; an error where there is no order. */
int compare(struct run *r, struct value a, struct value b);
int contains(struct run *r, struct value in, struct value x);
/* The values that a for loop takes from v; what: for the message. */
struct seq *iterate(struct run *r, struct value v);
int64_t length(struct run *r, struct value v);
struct value from_json(struct run *r, const struct json *j, int ours);
/* op: '+' '-' '*' '/' '%', OP2('/', '/'), OP2('*', '*') */
struct value arith(struct run *r, int op, struct value a, struct value b);
struct value negate(struct run *r, struct value v);

/* access.c */
struct value get_attr(struct run *r, struct value v, struct str name);
struct value get_item(struct run *r, struct value v, struct value key);
struct value get_slice(struct run *r, struct value v, const struct value part[3], const int given[3]);

/* print.c */
void print(struct run *r, struct buf *b, struct value v);      /* str() */
void print_repr(struct run *r, struct buf *b, struct value v); /* repr() */
struct str to_str(struct run *r, struct value v);
struct value filter_tojson(struct run *r, struct value v, struct args *a);

/* text.c */
enum side { LEFT = 1, RIGHT = 2 };
struct str strip(struct run *r, struct str s, const struct str *chars, int sides);
struct seq *split(struct run *r, struct str s, const struct str *sep, int64_t most, int from_right);
struct str replace(struct run *r, struct str s, struct str old, struct str new, int64_t most);
struct seq *split_lines(struct run *r, struct str s, int keep_ends);
enum letters { UPPER, LOWER, TITLE, CAPITALIZE };
struct str change_case(struct run *r, struct str s, enum letters how);
/* Byte offset of needle in s[from..), or -1. */
ptrdiff_t find(struct str s, struct str needle, size_t from);
struct str format_percent(struct run *r, struct str f, struct value *args, size_t n, const struct map *named);
struct str format_braces(struct run *r, struct str f, struct args *a);
struct str format_time(struct run *r, struct str f);

/* call.c */
void bind_args(struct run *r, const struct builtin *b, struct args *a);
struct value call_builtin(struct run *r, const struct builtin *b, struct value self, struct args *a);
const struct builtin *find_filter(const char *name);
const struct builtin *find_test(const char *name);
const struct builtin *find_function(const char *name);
const struct builtin *find_method(struct value v, struct str name);
/* A whole number, or an error that names `what`. */
int64_t need_int(struct run *r, struct value v, const char *what);
struct str need_str(struct run *r, struct value v, const char *what);
