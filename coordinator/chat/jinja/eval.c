/* Walks the tree. Scopes are chains of names: a loop's round and a macro's call have one of their own, an
 * if has not; a macro keeps the scope that it was defined in. */
#include <stdlib.h>
#include <string.h>

#include "coordinator/chat/jinja/tree.h"

struct macro {
    const struct stmt *def;
    struct scope *scope;
};

enum flow { GO_ON, BREAK, CONTINUE };

static struct value eval(struct run *r, struct scope *s, const struct expr *x);
static enum flow run_all(struct run *r, struct scope *s, const struct stmt *first);

/* ---- names ---- */

static struct scope *scope_new(struct run *r, struct scope *up)
{
    struct scope *s = take(&r->c, sizeof *s);

    s->up = up;
    return s;
}

static void set(struct run *r, struct scope *s, const char *name, struct value v)
{
    struct var *x;

    for (x = s->vars; x; x = x->next) {
        step(&r->c);
        if (x->name == name) {
            x->value = v;
            return;
        }
    }
    x = take(&r->c, sizeof *x);
    *x = (struct var){name, v, s->vars};
    s->vars = x;
}

static struct value get(struct run *r, const struct scope *s, const char *name)
{
    const struct builtin *b;

    for (; s; s = s->up)
        for (const struct var *x = s->vars; x; x = x->next) {
            r->c.steps++;
            if (x->name == name)
                return x->value;
        }
    if ((b = find_function(name)))
        return (struct value){.kind = V_FUNC, .func = b};
    return v_undefined((struct str){name, strlen(name), NULL});
}

/* ---- calls ---- */

static void arguments(struct run *r, struct scope *s, const struct expr *x, struct args *a)
{
    a->n_pos = x->n - 1;
    a->pos = take_array(&r->c, a->n_pos, sizeof *a->pos);
    for (size_t i = 0; i < a->n_pos; i++)
        a->pos[i] = eval(r, s, x->kid[i + 1]);
    a->n_kw = x->n_kw;
    a->kw = take_array(&r->c, a->n_kw, sizeof *a->kw);
    for (size_t i = 0; i < a->n_kw; i++)
        a->kw[i] = (struct named){x->kw[i].name, eval(r, s, x->kw[i].value)};
    r->c.line = x->line;
}

/* The body's text. */
static struct value captured(struct run *r, struct scope *s, const struct stmt *body)
{
    struct buf b = {0}, *out = r->out;

    r->out = &b;
    run_all(r, s, body);
    r->out = out;
    return v_buf(&b);
}

static struct value call_macro(struct run *r, const struct macro *m, const struct args *a)
{
    const struct stmt *d = m->def;
    struct scope *s = scope_new(r, m->scope);
    char *given = take(&r->c, d->n_target);
    size_t used = 0;
    struct value v;
    unsigned line = r->c.line;

    if (++r->macros > JINJA_NESTING_MAX)
        fail(&r->c, JINJA_LIMIT, "macros call each other more than %d deep", JINJA_NESTING_MAX);
    if (a->n_pos > d->n_target)
        fail(&r->c, JINJA_TYPE, "the macro '%s' takes %zu arguments, not %zu", d->name, d->n_target, a->n_pos);
    for (size_t i = 0; i < d->n_target; i++) {
        given[i] = i < a->n_pos;
        v = given[i] ? a->pos[i] : v_undefined((struct str){d->target[i], strlen(d->target[i]), NULL});
        for (size_t k = 0; k < a->n_kw; k++)
            if (a->kw[k].name == d->target[i]) {
                if (given[i])
                    fail(&r->c, JINJA_TYPE, "the macro '%s' gets '%s' twice", d->name, d->target[i]);
                v = a->kw[k].value;
                given[i] = 1;
                used++;
            }
        set(r, s, d->target[i], v);
    }
    for (size_t i = 0; i < d->n_target; i++) /* a default sees the other parameters */
        if (!given[i] && d->deflt[i])
            set(r, s, d->target[i], eval(r, s, d->deflt[i]));
    if (used < a->n_kw)
        fail(&r->c, JINJA_TYPE, "the macro '%s' gets an argument whose name it does not know", d->name);
    v = captured(r, s, d->branch[0].body);
    r->macros--;
    r->c.line = line;
    return v;
}

static struct value call(struct run *r, struct scope *s, const struct expr *x)
{
    struct value f = eval(r, s, x->kid[0]);
    struct args a = {0};

    arguments(r, s, x, &a);
    switch (f.kind) {
    case V_MACRO:
        return call_macro(r, f.macro, &a);
    case V_FUNC:
        return call_builtin(r, f.func, v_none(), &a);
    case V_METHOD:
        return call_builtin(r, f.method->what, f.method->self, &a);
    default:
        fail_type(r, "a call", f);
    }
}

static struct value filtered(struct run *r, struct scope *s, const struct expr *x, struct value v)
{
    struct args a = {0};

    if (!x->builtin)
        fail(&r->c, JINJA_SYNTAX, "the %s '%s' is not known", x->type == E_FILTER ? "filter" : "test", x->name);
    arguments(r, s, x, &a);
    return call_builtin(r, x->builtin, v, &a);
}

/* ---- expressions ---- */

static struct value list(struct run *r, struct scope *s, const struct expr *x)
{
    struct seq *q = seq_new(r, x->type == E_TUPLE ? SEQ_TUPLE : SEQ_LIST);

    for (size_t i = 0; i < x->n; i++)
        seq_add(r, q, eval(r, s, x->kid[i]));
    return v_seq(q);
}

static struct value map(struct run *r, struct scope *s, const struct expr *x)
{
    struct map *m = map_new(r);

    for (size_t i = 0; i + 1 < x->n; i += 2) {
        struct value k = eval(r, s, x->kid[i]), v = eval(r, s, x->kid[i + 1]);

        map_put(r, m, k, v);
    }
    return v_map(m);
}

static struct value slice(struct run *r, struct scope *s, const struct expr *x)
{
    struct value v = eval(r, s, x->kid[0]), part[3];
    int given[3];

    for (int i = 0; i < 3; i++) {
        part[i] = x->kid[i + 1] ? eval(r, s, x->kid[i + 1]) : v_none();
        given[i] = part[i].kind != V_NONE;
    }
    return get_slice(r, v, part, given);
}

/* From left to right; texts that follow each other are put together once and not at each +. */
static struct value binary(struct run *r, struct scope *s, const struct expr *x)
{
    struct value v = eval(r, s, x->kid[0]);
    struct buf b = {0};
    int joining = 0;

    for (size_t i = 1; i < x->n; i++) {
        struct value w = eval(r, s, x->kid[i]);
        int op = x->op[i - 1];

        r->c.line = x->line;
        if (op == '+' && v.kind == V_STR && w.kind == V_STR) {
            if (!joining)
                buf_add(&r->c, &b, v.s);
            joining = 1;
            buf_add(&r->c, &b, w.s);
            continue;
        }
        if (joining)
            v = v_buf(&b);
        joining = 0;
        b = (struct buf){0};
        v = arith(r, op, v, w);
    }
    return joining ? v_buf(&b) : v;
}

static struct value concat(struct run *r, struct scope *s, const struct expr *x)
{
    struct buf b = {0};

    for (size_t i = 0; i < x->n; i++)
        print(r, &b, eval(r, s, x->kid[i]));
    return v_buf(&b);
}

static int holds(struct run *r, int op, struct value a, struct value b)
{
    int d;

    switch (op) {
    case OP_IN:
        return contains(r, b, a);
    case OP_NOT_IN:
        return !contains(r, b, a);
    case OP2('=', '='):
        return equal(r, a, b);
    case OP2('!', '='):
        return !equal(r, a, b);
    }
    d = compare(r, a, b);
    if (d == 2 && a.kind != V_STR && a.kind != V_SEQ) /* NaN */
        return 0;
    return op == '<' ? d < 0 : op == '>' ? d > 0 : op == OP2('<', '=') ? d <= 0 : d >= 0;
}

static struct value comparison(struct run *r, struct scope *s, const struct expr *x)
{
    struct value a = eval(r, s, x->kid[0]);

    for (size_t i = 1; i < x->n; i++) {
        struct value b = eval(r, s, x->kid[i]);

        r->c.line = x->line;
        if (!holds(r, x->op[i - 1], a, b))
            return v_bool(0);
        a = b;
    }
    return v_bool(1);
}

/* and, or: the operand that decides. */
static struct value chain(struct run *r, struct scope *s, const struct expr *x, int stop)
{
    struct value v = eval(r, s, x->kid[0]);

    for (size_t i = 1; i < x->n && truth(r, v) != stop; i++)
        v = eval(r, s, x->kid[i]);
    return v;
}

static struct value condition(struct run *r, struct scope *s, const struct expr *x)
{
    if (truth(r, eval(r, s, x->kid[1])))
        return eval(r, s, x->kid[0]);
    return x->kid[2] ? eval(r, s, x->kid[2]) : v_undefined(STR("an if without else"));
}

static struct value dispatch(struct run *r, struct scope *s, const struct expr *x)
{
    struct value v;

    switch (x->type) {
    case E_CONST:
        return x->value;
    case E_NAME:
        return get(r, s, x->name);
    case E_LIST:
    case E_TUPLE:
        return list(r, s, x);
    case E_MAP:
        return map(r, s, x);
    case E_ATTR:
        v = eval(r, s, x->kid[0]);
        r->c.line = x->line;
        return get_attr(r, v, (struct str){x->name, strlen(x->name), NULL});
    case E_ITEM:
        v = eval(r, s, x->kid[0]);
        {
            struct value k = eval(r, s, x->kid[1]);

            r->c.line = x->line;
            return get_item(r, v, k);
        }
    case E_SLICE:
        return slice(r, s, x);
    case E_CALL:
        return call(r, s, x);
    case E_FILTER:
        return filtered(r, s, x, eval(r, s, x->kid[0]));
    case E_TEST:
        return filtered(r, s, x, eval(r, s, x->kid[0]));
    case E_NOT:
        return v_bool(!truth(r, eval(r, s, x->kid[0])));
    case E_NEG:
        return negate(r, eval(r, s, x->kid[0]));
    case E_POS:
        v = eval(r, s, x->kid[0]);
        if (v.kind != V_INT && v.kind != V_FLOAT && v.kind != V_BOOL && v.kind != V_BIG)
            fail_type(r, "+", v);
        return v.kind == V_BOOL ? v_int(v.i) : v;
    case E_BINARY:
        return binary(r, s, x);
    case E_CONCAT:
        return concat(r, s, x);
    case E_AND:
        return chain(r, s, x, 0);
    case E_OR:
        return chain(r, s, x, 1);
    case E_COMPARE:
        return comparison(r, s, x);
    case E_COND:
        return condition(r, s, x);
    }
    return v_none();
}

static struct value eval(struct run *r, struct scope *s, const struct expr *x)
{
    struct value v;

    enter(r);
    r->c.line = x->line;
    v = dispatch(r, s, x);
    leave_(r);
    return v;
}

/* A filter whose innermost input is a text that is there already. */
static struct value through(struct run *r, struct scope *s, const struct expr *x, struct value text)
{
    struct value v;

    if (!x)
        return text;
    enter(r);
    v = through(r, s, x->kid[0], text);
    r->c.line = x->line;
    v = filtered(r, s, x, v);
    leave_(r);
    return v;
}

/* ---- statements ---- */

static void assign(struct run *r, struct scope *s, const struct stmt *t, struct value v)
{
    struct seq *q;

    if (t->n_target == 1 && !t->unpack) {
        set(r, s, t->target[0], v);
        return;
    }
    q = iterate(r, v);
    if (q->n != t->n_target)
        fail(&r->c, JINJA_TYPE, "%zu values for %zu names", q->n, t->n_target);
    for (size_t i = 0; i < t->n_target; i++)
        set(r, s, t->target[i], q->items[i]);
}

static void set_attr(struct run *r, struct scope *s, const struct stmt *t)
{
    struct value v = eval(r, s, t->expr), to = get(r, s, t->target[0]);

    r->c.line = t->line;
    if (to.kind != V_NAMESPACE)
        fail(&r->c, JINJA_RUNTIME, "%s.%s cannot be set: %s is %s, no namespace", t->target[0], t->name,
             t->target[0], kind_name(to));
    map_put(r, to.map, v_str((struct str){t->name, strlen(t->name), NULL}), v);
}

/* The items that the loop goes through: all, or those that its if lets pass. */
static struct seq *loop_items(struct run *r, struct scope *s, const struct stmt *t)
{
    struct seq *all = iterate(r, eval(r, s, t->expr)), *some;

    if (!t->filter)
        return all;
    some = seq_new(r, SEQ_LIST);
    for (size_t i = 0; i < all->n; i++) {
        struct scope *round = scope_new(r, s);

        assign(r, round, t, all->items[i]);
        if (truth(r, eval(r, round, t->filter)))
            seq_add(r, some, all->items[i]);
    }
    return some;
}

static enum flow run_for(struct run *r, struct scope *s, const struct stmt *t, const char *loop_name)
{
    struct seq *q = loop_items(r, s, t);
    struct loop *l = take(&r->c, sizeof *l);
    size_t whole = 0;

    *l = (struct loop){.items = q->items, .n = q->n};
    for (; l->at < l->n; l->at++) {
        struct scope *round = scope_new(r, s);
        enum flow f;

        r->c.line = t->line;
        step(&r->c);
        if (loop_name)
            set(r, round, loop_name, (struct value){.kind = V_LOOP, .loop = l});
        assign(r, round, t, l->items[l->at]);
        f = run_all(r, round, t->branch[0].body);
        whole += f == GO_ON;
        if (f == BREAK)
            break;
    }
    if (!whole && t->n_branch > 1) /* as Jinja has it: also if every round was left early */
        return run_all(r, scope_new(r, s), t->branch[1].body);
    return GO_ON;
}

static enum flow run_if(struct run *r, struct scope *s, const struct stmt *t)
{
    for (size_t i = 0; i < t->n_branch; i++)
        if (!t->branch[i].test || truth(r, eval(r, s, t->branch[i].test)))
            return run_all(r, s, t->branch[i].body);
    return GO_ON;
}

static void define(struct run *r, struct scope *s, const struct stmt *t)
{
    struct macro *m = take(&r->c, sizeof *m);

    *m = (struct macro){t, s};
    set(r, s, t->name, (struct value){.kind = V_MACRO, .macro = m});
}

static const char *loop_name(const struct run *r)
{
    size_t lo = 0, hi = r->t->n_names;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int d = strcmp(r->t->names[mid], "loop");

        if (!d)
            return r->t->names[mid];
        if (d < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL; /* nobody asks for it */
}

static enum flow run_one(struct run *r, struct scope *s, const struct stmt *t)
{
    switch (t->type) {
    case S_TEXT:
        buf_add(&r->c, r->out, t->text);
        break;
    case S_PRINT:
        print(r, r->out, eval(r, s, t->expr));
        break;
    case S_IF:
        return run_if(r, s, t);
    case S_FOR:
        return run_for(r, s, t, loop_name(r));
    case S_SET:
        assign(r, s, t, eval(r, s, t->expr));
        break;
    case S_SET_ATTR:
        set_attr(r, s, t);
        break;
    case S_SET_BLOCK:
        set(r, s, t->target[0], through(r, s, t->expr, captured(r, scope_new(r, s), t->branch[0].body)));
        break;
    case S_MACRO:
        define(r, s, t);
        break;
    case S_FILTER:
        print(r, r->out, through(r, s, t->expr, captured(r, scope_new(r, s), t->branch[0].body)));
        break;
    case S_SCOPE:
        return run_all(r, scope_new(r, s), t->branch[0].body);
    case S_BREAK:
        return BREAK;
    case S_CONTINUE:
        return CONTINUE;
    }
    return GO_ON;
}

static enum flow run_all(struct run *r, struct scope *s, const struct stmt *first)
{
    enum flow f = GO_ON;

    enter(r);
    for (const struct stmt *t = first; t && f == GO_ON; t = t->next) {
        step(&r->c);
        r->c.line = t->line;
        f = run_one(r, s, t);
    }
    leave_(r);
    return f;
}

/* ---- the ways in ---- */

int jinja_parse(const char *name, const char *source, size_t n, struct jinja **out, struct jinja_fault *f,
                struct err *e)
{
    struct jinja *t = calloc(1, sizeof *t);
    size_t n_tokens;
    int kind;

    if (f)
        *f = (struct jinja_fault){0};
    if (t)
        t->name = strdup(name);
    if (!t || !t->name) {
        free(t);
        return err_set(e, -ENOMEM, "%s: no memory", name);
    }
    t->core = (struct core){.name = t->name, .fault = f, .e = e, .memory_max = 256 << 20,
                            .output_max = JINJA_SOURCE_MAX, .steps_max = JINJA_STEPS_MAX};
    if ((kind = setjmp(t->core.out))) {
        jinja_free(t);
        return core_errno((enum jinja_kind)kind);
    }
    if (n > JINJA_SOURCE_MAX)
        fail(&t->core, JINJA_LIMIT, "a source of %zu bytes, at most %d work", n, JINJA_SOURCE_MAX);
    parse(t, lex(&t->core, source, n, &n_tokens));
    t->core.fault = NULL;
    t->core.e = NULL;
    *out = t;
    return 0;
}

void jinja_free(struct jinja *t)
{
    if (!t)
        return;
    core_free(&t->core);
    free(t->name);
    free(t);
}

/* The inputs that the template names, in the outermost scope. */
static void take_inputs(struct run *r, const struct jinja_var *vars, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *const *found = NULL;

        for (size_t k = 0; k < r->t->n_names && !found; k++)
            if (!strcmp(r->t->names[k], vars[i].name))
                found = &r->t->names[k];
        if (found && vars[i].value)
            set(r, r->top, *found, from_json(r, vars[i].value, vars[i].ours));
    }
}

/* The text and its marked spans, out of the arena. */
static void hand_out(struct run *r, struct jinja_text *out)
{
    struct str s = buf_str(r->out);
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++)
        n += str_mark(s, i) && (!i || !str_mark(s, i - 1));
    out->s = malloc(s.n + 1);
    out->user = malloc((n + 1) * sizeof *out->user);
    if (!out->s || !out->user)
        fail(&r->c, JINJA_MEMORY, "no memory for %zu bytes", s.n);
    memcpy(out->s, s.s, s.n);
    out->s[s.n] = 0;
    out->n = s.n;
    for (size_t i = 0; i < s.n; i++) {
        if (!str_mark(s, i))
            continue;
        if (!i || !str_mark(s, i - 1))
            out->user[out->n_user++].begin = i;
        out->user[out->n_user - 1].end = i + 1;
    }
}

static int render(struct run *r, const struct jinja_var *vars, size_t n_vars, struct jinja_text *out)
{
    struct buf b = {0};
    int kind;

    if ((kind = setjmp(r->c.out)))
        return core_errno((enum jinja_kind)kind);
    r->top = scope_new(r, NULL);
    r->out = &b;
    take_inputs(r, vars, n_vars);
    run_all(r, scope_new(r, r->top), r->t->body);
    hand_out(r, out);
    return 0;
}

int jinja_render(const struct jinja *t, const struct jinja_var *vars, size_t n_vars, const struct tm *now,
                 const struct jinja_limits *limits, struct jinja_text *out, struct jinja_fault *f, struct err *e)
{
    struct run r = {.c = {.name = t->name, .fault = f, .e = e,
                          .memory_max = limits && limits->memory ? limits->memory : JINJA_MEMORY_MAX,
                          .output_max = limits && limits->output ? limits->output : JINJA_OUTPUT_MAX,
                          .steps_max = limits && limits->steps ? limits->steps : JINJA_STEPS_MAX},
                    .t = t,
                    .now = now};
    int rc;

    if (f)
        *f = (struct jinja_fault){0};
    *out = (struct jinja_text){0};
    rc = render(&r, vars, n_vars, out);
    if (rc)
        jinja_text_free(out);
    for (const struct kept *k = r.kept; k; k = k->next)
        json_free(k->doc);
    core_free(&r.c);
    return rc;
}

void jinja_text_free(struct jinja_text *text)
{
    free(text->s);
    free(text->user);
    *text = (struct jinja_text){0};
}
