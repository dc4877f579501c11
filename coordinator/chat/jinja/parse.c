/* Tokens to a tree, with Jinja's own precedences (spec: low to high: if-else, or, and, not, comparisons,
 * + -, ~, * / // %, **, unary, filters and tests, postfix). Unknown tags, filters and tests are refused
 * here, with their line; inside an if a filter or test may be unknown until it is reached. */
#include <stdlib.h>
#include <string.h>

#include "coordinator/chat/jinja/tree.h"

enum { HEIGHT_MAX = 500 }; /* of an expression: a.b.c..., x | f | g ... */

struct parser {
    struct core *c;
    struct jinja *t;
    const struct token *k;
    size_t nesting, soft, loops, macros; /* soft: inside an if */
    size_t names_cap;
};

static struct expr *expression(struct parser *p);
static struct expr *condition(struct parser *p, int with_cond);
static struct expr *unary(struct parser *p, int with_filter);
static struct stmt *block(struct parser *p, const char *const *ends);

/* ---- tokens ---- */

static void nest(struct parser *p)
{
    if (++p->nesting > JINJA_NESTING_MAX)
        fail(p->c, JINJA_LIMIT, "nests more than %d deep", JINJA_NESTING_MAX);
}

static const struct token *next(struct parser *p)
{
    const struct token *k = p->k;

    if (k->kind != T_END)
        p->k++;
    p->c->line = p->k->line;
    return k;
}

static int is_op(const struct parser *p, int op)
{
    return p->k->kind == T_OP && p->k->op == op;
}

static int is_word(const struct parser *p, const char *word)
{
    return p->k->kind == T_NAME && str_is(p->k->s, word);
}

static int skip_op(struct parser *p, int op)
{
    return is_op(p, op) ? next(p), 1 : 0;
}

static int skip_word(struct parser *p, const char *word)
{
    return is_word(p, word) ? next(p), 1 : 0;
}

static _Noreturn void unexpected(struct parser *p, const char *wanted)
{
    const struct token *k = p->k;

    p->c->line = k->line;
    switch (k->kind) {
    case T_NAME:
    case T_INT:
    case T_FLOAT:
    case T_OP:
        fail(p->c, JINJA_SYNTAX, "'%.*s' where %s is wanted", k->s.n > 60 ? 60 : (int)k->s.n, k->s.s, wanted);
    case T_STRING:
        fail(p->c, JINJA_SYNTAX, "a string where %s is wanted", wanted);
    case T_END:
        fail(p->c, JINJA_SYNTAX, "the template ends where %s is wanted", wanted);
    default:
        fail(p->c, JINJA_SYNTAX, "the tag ends where %s is wanted", wanted);
    }
}

static void want_op(struct parser *p, int op, const char *name)
{
    if (!skip_op(p, op))
        unexpected(p, name);
}

/* The one pointer that stands for a name. */
static const char *intern(struct parser *p, struct str s)
{
    struct jinja *t = p->t;
    size_t lo = 0, hi = t->n_names;
    char *copy;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int d = str_cmp((struct str){t->names[mid], strlen(t->names[mid]), NULL}, s);

        if (!d)
            return t->names[mid];
        if (d < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (s.n > 200)
        fail(p->c, JINJA_LIMIT, "a name of %zu letters", s.n);
    copy = take(p->c, s.n + 1);
    memcpy(copy, s.s, s.n);
    t->names = grow(p->c, t->names, t->n_names, &p->names_cap, sizeof *t->names);
    memmove(t->names + lo + 1, t->names + lo, (t->n_names - lo) * sizeof *t->names);
    work(p->c, t->n_names - lo);
    t->n_names++;
    return t->names[lo] = copy;
}

static const char *want_name(struct parser *p, const char *wanted)
{
    if (p->k->kind != T_NAME)
        unexpected(p, wanted);
    return intern(p, next(p)->s);
}

/* ---- nodes ---- */

static struct expr *node(struct parser *p, enum expr_type type)
{
    struct expr *x = take(p->c, sizeof *x);

    x->type = type;
    x->line = p->k->line;
    x->height = 1;
    return x;
}

static struct expr *kid(struct parser *p, struct expr *x, struct expr *k)
{
    x->kid = grow(p->c, x->kid, x->n, &x->cap, sizeof *x->kid);
    x->kid[x->n++] = k;
    if (k && k->height >= x->height)
        x->height = k->height + 1;
    if (x->height > HEIGHT_MAX)
        fail(p->c, JINJA_LIMIT, "an expression of more than %d parts within parts", HEIGHT_MAX);
    return x;
}

static void op(struct parser *p, struct expr *x, int o)
{
    x->op = grow(p->c, x->op, x->n - 1, &x->op_cap, sizeof *x->op);
    x->op[x->n - 1] = o;
}

static struct expr *constant(struct parser *p, struct value v)
{
    struct expr *x = node(p, E_CONST);

    x->value = v;
    return x;
}

static struct str without_underscores(struct parser *p, struct str s)
{
    char *d = take(p->c, s.n + 1);
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++)
        if (s.s[i] != '_')
            d[n++] = s.s[i];
    return (struct str){d, n, NULL};
}

static struct value whole_number(struct parser *p, struct str s)
{
    struct str d = without_underscores(p, s);
    int base = 10;
    char *end;
    long long v;

    if (d.n > 1 && d.s[0] == '0' && !(d.s[1] >= '0' && d.s[1] <= '9')) {
        base = (d.s[1] | 0x20) == 'x' ? 16 : (d.s[1] | 0x20) == 'o' ? 8 : 2;
        d = str_slice(d, 2, d.n);
    }
    errno = 0;
    v = strtoll(d.s, &end, base);
    if (end != d.s + d.n || !d.n)
        fail(p->c, JINJA_SYNTAX, "'%.*s' is no number", s.n > 60 ? 60 : (int)s.n, s.s);
    if (errno)
        fail(p->c, JINJA_SYNTAX, "%.*s does not fit into 64 bits", s.n > 60 ? 60 : (int)s.n, s.s);
    return v_int(v);
}

static int is_constant_name(struct str s, struct value *v)
{
    static const char *const names[] = {"true", "True", "false", "False", "none", "None"};

    for (int i = 0; i < 6; i++)
        if (str_is(s, names[i])) {
            *v = i < 2 ? v_bool(1) : i < 4 ? v_bool(0) : v_none();
            return 1;
        }
    return 0;
}

/* ---- calls ---- */

/* The arguments up to ')', as further kids. */
static void arguments(struct parser *p, struct expr *x)
{
    for (int first = 1; !skip_op(p, ')'); first = 0) {
        if (!first) {
            want_op(p, ',', "',' or ')'");
            if (skip_op(p, ')'))
                return;
        }
        if (is_op(p, '*') || is_op(p, OP2('*', '*')))
            fail(p->c, JINJA_SYNTAX, "arguments with * are not supported");
        if (p->k->kind == T_NAME && p->k[1].kind == T_OP && p->k[1].op == '=') {
            struct kw *w;

            x->kw = grow(p->c, x->kw, x->n_kw, &x->kw_cap, sizeof *x->kw);
            w = &x->kw[x->n_kw];
            w->name = intern(p, next(p)->s);
            for (size_t i = 0; i < x->n_kw; i++)
                if (x->kw[i].name == w->name)
                    fail(p->c, JINJA_SYNTAX, "the argument '%s' twice", w->name);
            work(p->c, 64 * x->n_kw);
            next(p);
            w->value = expression(p);
            x->kw[x->n_kw++] = *w;
            if (w->value->height >= x->height)
                x->height = w->value->height + 1;
        } else if (x->n_kw) {
            fail(p->c, JINJA_SYNTAX, "an argument without a name behind one with a name");
        } else {
            kid(p, x, expression(p));
        }
    }
}

static struct expr *subscript(struct parser *p, struct expr *of)
{
    struct expr *part[3] = {NULL}, *x, *tuple = NULL;
    int colons = 0;

    for (;;) {
        if (skip_op(p, ':')) {
            if (++colons > 2)
                unexpected(p, "']'");
        } else if (skip_op(p, ']')) {
            break;
        } else if (!colons && part[0] && skip_op(p, ',')) {
            if (!tuple)
                tuple = kid(p, node(p, E_TUPLE), part[0]);
            if (!is_op(p, ']'))
                kid(p, tuple, expression(p));
        } else if (part[colons] || tuple) {
            unexpected(p, "']'");
        } else {
            part[colons] = expression(p);
        }
    }
    if (!colons) {
        if (!part[0])
            fail(p->c, JINJA_SYNTAX, "[] without an index");
        return kid(p, kid(p, node(p, E_ITEM), of), tuple ? tuple : part[0]);
    }
    if (tuple)
        fail(p->c, JINJA_SYNTAX, "slices with commas are not supported");
    x = kid(p, node(p, E_SLICE), of);
    for (int i = 0; i < 3; i++)
        kid(p, x, part[i]);
    return x;
}

static struct expr *postfix(struct parser *p, struct expr *x)
{
    for (;;) {
        struct expr *of = x;

        if (skip_op(p, '.')) {
            if (p->k->kind == T_INT) {
                x = kid(p, node(p, E_ITEM), of);
                x = kid(p, x, constant(p, whole_number(p, next(p)->s)));
                continue;
            }
            x = kid(p, node(p, E_ATTR), of);
            x->name = want_name(p, "the name of an attribute");
            if (x->name[0] == '_' && x->name[1] == '_')
                fail(p->c, JINJA_SYNTAX, "attributes that begin with two underscores ('%s') are refused",
                     x->name);
        } else if (skip_op(p, '[')) {
            nest(p);
            x = subscript(p, of);
            p->nesting--;
        } else if (skip_op(p, '(')) {
            x = kid(p, node(p, E_CALL), of);
            nest(p);
            arguments(p, x);
            p->nesting--;
        } else {
            return x;
        }
    }
}

/* ---- primaries ---- */

static struct expr *list_literal(struct parser *p)
{
    struct expr *x = node(p, E_LIST);

    while (!skip_op(p, ']')) {
        if (x->n) {
            want_op(p, ',', "',' or ']'");
            if (skip_op(p, ']'))
                break;
        }
        kid(p, x, expression(p));
    }
    return x;
}

static struct expr *map_literal(struct parser *p)
{
    struct expr *x = node(p, E_MAP);

    while (!skip_op(p, '}')) {
        if (x->n) {
            want_op(p, ',', "',' or '}'");
            if (skip_op(p, '}'))
                break;
        }
        kid(p, x, expression(p));
        want_op(p, ':', "':'");
        kid(p, x, expression(p));
    }
    return x;
}

/* Where an item list without brackets may end. */
static int tuple_end(const struct parser *p)
{
    return p->k->kind == T_PRINT_END || p->k->kind == T_BLOCK_END || p->k->kind == T_END || is_op(p, ')');
}

/* One expression, or several with commas: a tuple. */
static struct expr *tuple(struct parser *p, int with_cond, int brackets)
{
    struct expr *x = NULL, *first = NULL;

    if (brackets && is_op(p, ')'))
        return node(p, E_TUPLE);
    first = condition(p, with_cond);
    while (skip_op(p, ',')) {
        if (!x)
            x = kid(p, node(p, E_TUPLE), first);
        if (tuple_end(p))
            break;
        kid(p, x, condition(p, with_cond));
    }
    return x ? x : first;
}

static struct expr *strings(struct parser *p)
{
    struct expr *x;
    struct buf b = {0};
    struct str first = next(p)->s;

    if (p->k->kind != T_STRING)
        return constant(p, v_str(first));
    buf_add(p->c, &b, first);
    while (p->k->kind == T_STRING)
        buf_add(p->c, &b, next(p)->s);
    x = constant(p, v_buf(&b));
    return x;
}

static struct expr *primary(struct parser *p)
{
    struct expr *x;
    struct value v;

    switch (p->k->kind) {
    case T_NAME:
        if (is_constant_name(p->k->s, &v)) {
            next(p);
            return constant(p, v);
        }
        x = node(p, E_NAME);
        x->name = intern(p, next(p)->s);
        if (p->macros && (!strcmp(x->name, "varargs") || !strcmp(x->name, "kwargs") || !strcmp(x->name, "caller")))
            fail(p->c, JINJA_SYNTAX, "'%s' in a macro is not supported", x->name);
        return x;
    case T_STRING:
        return strings(p);
    case T_INT:
        return constant(p, whole_number(p, next(p)->s));
    case T_FLOAT:
        return constant(p, v_float(strtod(without_underscores(p, next(p)->s).s, NULL)));
    default:
        break;
    }
    nest(p);
    if (skip_op(p, '(')) {
        x = tuple(p, 1, 1);
        want_op(p, ')', "')'");
    } else if (skip_op(p, '[')) {
        x = list_literal(p);
    } else if (skip_op(p, '{')) {
        x = map_literal(p);
    } else {
        unexpected(p, "a value");
    }
    p->nesting--;
    return x;
}

/* ---- filters and tests ---- */

static struct expr *filter(struct parser *p, struct expr *of)
{
    struct expr *x = kid(p, node(p, E_FILTER), of);

    x->name = want_name(p, "the name of a filter");
    x->builtin = find_filter(x->name);
    if (!x->builtin && !p->soft)
        fail(p->c, JINJA_SYNTAX, "the filter '%s' is not known", x->name);
    if (skip_op(p, '(')) {
        nest(p);
        arguments(p, x);
        p->nesting--;
    }
    return x;
}

static struct expr *test(struct parser *p, struct expr *of)
{
    int no = skip_word(p, "not");
    struct expr *x = kid(p, node(p, E_TEST), of), *n;
    enum token_kind k;

    x->name = want_name(p, "the name of a test");
    x->builtin = find_test(x->name);
    if (!x->builtin && !p->soft)
        fail(p->c, JINJA_SYNTAX, "the test '%s' is not known", x->name);
    k = p->k->kind;
    if (skip_op(p, '(')) {
        nest(p);
        arguments(p, x);
        p->nesting--;
    } else if ((k == T_NAME && !is_word(p, "else") && !is_word(p, "or") && !is_word(p, "and")) ||
               k == T_STRING || k == T_INT || k == T_FLOAT || is_op(p, '[') || is_op(p, '{')) {
        if (is_word(p, "is"))
            fail(p->c, JINJA_SYNTAX, "a test behind a test needs brackets");
        kid(p, x, postfix(p, primary(p)));
    }
    if (!no)
        return x;
    n = node(p, E_NOT);
    return kid(p, n, x);
}

static struct expr *filters(struct parser *p, struct expr *x)
{
    for (;;) {
        if (skip_op(p, '|')) {
            x = filter(p, x);
        } else if (skip_word(p, "is")) {
            x = test(p, x);
        } else if (is_op(p, '(')) {
            x = postfix(p, x); /* a call of what a filter gave */
        } else {
            return x;
        }
    }
}

/* ---- operators, from the tightest on ---- */

static struct expr *unary(struct parser *p, int with_filter)
{
    struct expr *x;

    if (is_op(p, '-') || is_op(p, '+')) {
        x = node(p, is_op(p, '-') ? E_NEG : E_POS);
        next(p);
        nest(p);
        kid(p, x, unary(p, 0));
        p->nesting--;
    } else {
        x = primary(p);
    }
    x = postfix(p, x);
    return with_filter ? filters(p, x) : x;
}

static struct expr *power(struct parser *p)
{
    struct expr *x = unary(p, 1), *b;

    if (!is_op(p, OP2('*', '*')))
        return x;
    for (b = kid(p, node(p, E_BINARY), x); skip_op(p, OP2('*', '*'));) {
        op(p, b, OP2('*', '*'));
        kid(p, b, unary(p, 1));
    }
    return b;
}

static struct expr *product(struct parser *p)
{
    struct expr *x = power(p), *b = NULL;

    while (is_op(p, '*') || is_op(p, '/') || is_op(p, '%') || is_op(p, OP2('/', '/'))) {
        if (!b)
            b = kid(p, node(p, E_BINARY), x);
        op(p, b, next(p)->op);
        kid(p, b, power(p));
    }
    return b ? b : x;
}

static struct expr *concat(struct parser *p)
{
    struct expr *x = product(p), *b = NULL;

    while (skip_op(p, '~')) {
        if (!b)
            b = kid(p, node(p, E_CONCAT), x);
        kid(p, b, product(p));
    }
    return b ? b : x;
}

static struct expr *sum(struct parser *p)
{
    struct expr *x = concat(p), *b = NULL;

    while (is_op(p, '+') || is_op(p, '-')) {
        if (!b)
            b = kid(p, node(p, E_BINARY), x);
        op(p, b, next(p)->op);
        kid(p, b, concat(p));
    }
    return b ? b : x;
}

static int comparison(struct parser *p)
{
    int o = p->k->op;

    if (p->k->kind == T_OP) {
        if (o != OP2('=', '=') && o != OP2('!', '=') && o != '<' && o != '>' && o != OP2('<', '=') &&
            o != OP2('>', '='))
            return 0;
        next(p);
        return o;
    }
    if (skip_word(p, "in"))
        return OP_IN;
    if (is_word(p, "not") && p->k[1].kind == T_NAME && str_is(p->k[1].s, "in")) {
        next(p);
        next(p);
        return OP_NOT_IN;
    }
    return 0;
}

static struct expr *compared(struct parser *p)
{
    struct expr *x = sum(p), *b = NULL;

    for (int o; (o = comparison(p));) {
        if (!b)
            b = kid(p, node(p, E_COMPARE), x);
        op(p, b, o);
        kid(p, b, sum(p));
    }
    return b ? b : x;
}

static struct expr *negated(struct parser *p)
{
    struct expr *x;

    if (!is_word(p, "not"))
        return compared(p);
    x = node(p, E_NOT);
    next(p);
    nest(p);
    kid(p, x, negated(p));
    p->nesting--;
    return x;
}

static struct expr *all_of(struct parser *p)
{
    struct expr *x = negated(p), *b = NULL;

    while (skip_word(p, "and")) {
        if (!b)
            b = kid(p, node(p, E_AND), x);
        kid(p, b, negated(p));
    }
    return b ? b : x;
}

static struct expr *any_of(struct parser *p)
{
    struct expr *x = all_of(p), *b = NULL;

    while (skip_word(p, "or")) {
        if (!b)
            b = kid(p, node(p, E_OR), x);
        kid(p, b, all_of(p));
    }
    return b ? b : x;
}

/* A filter that is not known may stand in an a if b else c, as in an if; but b is known only behind a, so
 * the whole expression that holds " if " counts. */
static int has_if(const struct parser *p)
{
    size_t depth = 0;

    for (const struct token *k = p->k;; k++) {
        if (k->kind == T_PRINT_END || k->kind == T_BLOCK_END || k->kind == T_END)
            return 0;
        if (k->kind == T_OP && (k->op == '(' || k->op == '[' || k->op == '{'))
            depth++;
        if (k->kind == T_OP && (k->op == ')' || k->op == ']' || k->op == '}') && depth-- == 0)
            return 0;
        if (!depth && k->kind == T_OP && (k->op == ',' || k->op == ':' || k->op == '='))
            return 0;
        if (!depth && k->kind == T_NAME && str_is(k->s, "if"))
            return 1;
    }
}

static struct expr *condition(struct parser *p, int with_cond)
{
    int soft;
    struct expr *x;

    if (!with_cond)
        return any_of(p);
    nest(p);
    work(p->c, 64);
    soft = !p->soft && has_if(p);
    p->soft += (size_t)soft;
    x = any_of(p);
    while (skip_word(p, "if")) {
        struct expr *c = kid(p, node(p, E_COND), x);

        kid(p, c, any_of(p));
        x = kid(p, c, skip_word(p, "else") ? condition(p, 1) : NULL);
    }
    p->soft -= (size_t)soft;
    p->nesting--;
    return x;
}

static struct expr *expression(struct parser *p)
{
    return condition(p, 1);
}

/* ---- statements ---- */

static struct stmt *statement(struct parser *p, enum stmt_type type)
{
    struct stmt *s = take(p->c, sizeof *s);

    s->type = type;
    s->line = p->k->line;
    return s;
}

static void end_tag(struct parser *p)
{
    if (p->k->kind != T_BLOCK_END)
        unexpected(p, "the end of the tag");
    next(p);
}

static struct branch *branch(struct parser *p, struct stmt *s)
{
    s->branch = grow(p->c, s->branch, s->n_branch, &s->branch_cap, sizeof *s->branch);
    s->branch[s->n_branch] = (struct branch){0};
    return &s->branch[s->n_branch++];
}

static void target(struct parser *p, struct stmt *s)
{
    struct value v;

    if (p->k->kind == T_NAME && is_constant_name(p->k->s, &v))
        fail(p->c, JINJA_SYNTAX, "'%.*s' cannot be set", (int)p->k->s.n, p->k->s.s);
    s->target = grow(p->c, s->target, s->n_target, &s->target_cap, sizeof *s->target);
    s->target[s->n_target++] = want_name(p, "a name");
}

/* a or a, b or (a, b) */
static void targets(struct parser *p, struct stmt *s)
{
    int brackets = skip_op(p, '(');

    target(p, s);
    while (skip_op(p, ',')) {
        s->unpack = 1;
        if (p->k->kind != T_NAME || is_word(p, "in"))
            break;
        target(p, s);
    }
    if (brackets)
        want_op(p, ')', "')'");
}

/* Behind a block: its end tag's name is skipped, and what ended it returned. */
static const char *end_name(struct parser *p, const char *const *ends)
{
    for (; *ends; ends++)
        if (skip_word(p, *ends))
            return *ends;
    unexpected(p, "the end of a block");
}

static struct stmt *if_tag(struct parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
    struct stmt *s = statement(p, S_IF);
    const char *end = "elif";

    p->soft++;
    while (end == ends[0]) {
        struct expr *x = tuple(p, 0, 0);
        struct stmt *body;
        struct branch *b;

        end_tag(p);
        body = block(p, ends);
        b = branch(p, s);
        b->test = x;
        b->body = body;
        end = end_name(p, ends);
    }
    if (end == ends[1]) {
        struct stmt *body;

        end_tag(p);
        body = block(p, last);
        branch(p, s)->body = body;
        end_name(p, last);
    }
    p->soft--;
    end_tag(p);
    return s;
}

static struct stmt *for_tag(struct parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
    struct stmt *s = statement(p, S_FOR), *body;

    targets(p, s);
    if (!skip_word(p, "in"))
        unexpected(p, "'in'");
    s->expr = tuple(p, 0, 0);
    if (skip_word(p, "if"))
        s->filter = expression(p);
    if (is_word(p, "recursive"))
        fail(p->c, JINJA_SYNTAX, "recursive loops are not supported");
    end_tag(p);
    p->loops++;
    body = block(p, ends);
    p->loops--;
    branch(p, s)->body = body;
    if (end_name(p, ends) == ends[0]) {
        end_tag(p);
        body = block(p, last);
        branch(p, s)->body = body;
        end_name(p, last);
    }
    end_tag(p);
    return s;
}

static struct stmt *set_tag(struct parser *p)
{
    static const char *const ends[] = {"endset", NULL};
    struct stmt *s = statement(p, S_SET), *body;

    targets(p, s);
    if (s->n_target == 1 && !s->unpack && skip_op(p, '.')) {
        s->type = S_SET_ATTR;
        s->name = want_name(p, "the name of an attribute");
    }
    if (skip_op(p, '=')) {
        s->expr = tuple(p, 1, 0);
        end_tag(p);
        return s;
    }
    if (s->type == S_SET_ATTR || s->unpack)
        unexpected(p, "'='");
    s->type = S_SET_BLOCK;
    while (skip_op(p, '|'))
        s->expr = filter(p, s->expr);
    end_tag(p);
    body = block(p, ends);
    branch(p, s)->body = body;
    end_name(p, ends);
    end_tag(p);
    return s;
}

static struct stmt *macro_tag(struct parser *p)
{
    static const char *const ends[] = {"endmacro", NULL};
    struct stmt *s = statement(p, S_MACRO), *body;
    size_t loops = p->loops;
    int has_default = 0;

    s->name = want_name(p, "the name of a macro");
    want_op(p, '(', "'('");
    while (!skip_op(p, ')')) {
        struct expr *d = NULL;

        if (s->n_target) {
            want_op(p, ',', "',' or ')'");
            if (skip_op(p, ')'))
                break;
        }
        target(p, s);
        if (skip_op(p, '='))
            d = expression(p);
        else if (has_default)
            fail(p->c, JINJA_SYNTAX, "a parameter without a default behind one with a default");
        has_default |= d != NULL;
        s->deflt = grow(p->c, s->deflt, s->n_target - 1, &s->deflt_cap, sizeof *s->deflt);
        s->deflt[s->n_target - 1] = d;
    }
    end_tag(p);
    p->loops = 0;
    p->macros++;
    body = block(p, ends);
    p->macros--;
    p->loops = loops;
    branch(p, s)->body = body;
    end_name(p, ends);
    end_tag(p);
    return s;
}

static struct stmt *filter_tag(struct parser *p)
{
    static const char *const ends[] = {"endfilter", NULL};
    struct stmt *s = statement(p, S_FILTER), *body;

    s->expr = filter(p, NULL);
    while (skip_op(p, '|'))
        s->expr = filter(p, s->expr);
    end_tag(p);
    body = block(p, ends);
    branch(p, s)->body = body;
    end_name(p, ends);
    end_tag(p);
    return s;
}

static struct stmt *generation_tag(struct parser *p)
{
    static const char *const ends[] = {"endgeneration", NULL};
    struct stmt *s = statement(p, S_SCOPE), *body;

    end_tag(p);
    body = block(p, ends);
    branch(p, s)->body = body;
    end_name(p, ends);
    end_tag(p);
    return s;
}

static struct stmt *jump_tag(struct parser *p, enum stmt_type type, const char *name)
{
    struct stmt *s = statement(p, type);

    if (!p->loops)
        fail(p->c, JINJA_SYNTAX, "{%% %s %%} outside a loop", name);
    end_tag(p);
    return s;
}

static struct stmt *tag(struct parser *p)
{
    const struct token *k = p->k;

    if (skip_word(p, "if"))
        return if_tag(p);
    if (skip_word(p, "for"))
        return for_tag(p);
    if (skip_word(p, "set"))
        return set_tag(p);
    if (skip_word(p, "macro"))
        return macro_tag(p);
    if (skip_word(p, "filter"))
        return filter_tag(p);
    if (skip_word(p, "generation"))
        return generation_tag(p);
    if (skip_word(p, "break"))
        return jump_tag(p, S_BREAK, "break");
    if (skip_word(p, "continue"))
        return jump_tag(p, S_CONTINUE, "continue");
    if (k->kind == T_NAME) {
        p->c->line = k->line;
        fail(p->c, JINJA_SYNTAX, "the tag {%% %.*s %%} is not known here", k->s.n > 60 ? 60 : (int)k->s.n, k->s.s);
    }
    unexpected(p, "a tag's name");
}

/* 1: a tag that is one of ends; its {% is skipped. */
static int at_end(struct parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (p->k[1].kind == T_NAME && str_is(p->k[1].s, *ends)) {
            next(p);
            return 1;
        }
    return 0;
}

/* Statements up to one of the end tags, of which the name is the next token. ends NULL: up to the end. */
static struct stmt *block(struct parser *p, const char *const *ends)
{
    struct stmt *first = NULL, **last = &first;

    nest(p);
    for (;;) {
        struct stmt *s;

        if (p->k->kind == T_END) {
            if (ends) {
                while (ends[1])
                    ends++;
                fail(p->c, JINJA_SYNTAX, "{%% %s %%} is missing", ends[0]);
            }
            break;
        }
        if (p->k->kind == T_TEXT) {
            s = statement(p, S_TEXT);
            s->text = next(p)->s;
        } else if (p->k->kind == T_PRINT_BEGIN) {
            next(p);
            s = statement(p, S_PRINT);
            s->expr = tuple(p, 1, 0);
            if (p->k->kind != T_PRINT_END)
                unexpected(p, "}}");
            next(p);
        } else {
            if (at_end(p, ends))
                break;
            next(p);
            s = tag(p);
        }
        *last = s;
        last = &s->next;
    }
    p->nesting--;
    return first;
}

void parse(struct jinja *t, const struct token *tokens)
{
    struct parser p = {.c = &t->core, .t = t, .k = tokens};

    t->body = block(&p, NULL);
}
