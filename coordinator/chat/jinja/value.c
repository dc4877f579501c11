/* What values are: truth, equality, order, arithmetic, as Python has them. */
#include "coordinator/chat/jinja/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 2000 };

void enter(struct run *r)
{
    if (++r->depth > DEPTH_MAX)
        fail(&r->c, JINJA_LIMIT, "nests too deeply");
    step(&r->c);
}

const char *kind_name(struct value v)
{
    static const char *const forms[] = {"a list", "a tuple", "a range", "a view of a map", "a lazy list"};

    switch (v.kind) {
    case V_UNDEFINED:
        return "undefined";
    case V_NONE:
        return "none";
    case V_BOOL:
        return "true or false";
    case V_INT:
    case V_BIG:
        return "a whole number";
    case V_FLOAT:
        return "a number";
    case V_STR:
        return "a string";
    case V_SEQ:
        return forms[v.seq->form];
    case V_MAP:
        return "a map";
    case V_NAMESPACE:
        return "a namespace";
    case V_MACRO:
        return "a macro";
    case V_LOOP:
        return "the loop";
    case V_FUNC:
        return "a function";
    case V_METHOD:
        return "a method";
    }
    return "a value";
}

void need_defined(struct run *r, struct value v)
{
    if (v.kind == V_UNDEFINED)
        fail(&r->c, JINJA_UNDEFINED, "'%.*s' is undefined", v.s.n > 60 ? 60 : (int)v.s.n, v.s.s);
}

void fail_type(struct run *r, const char *what, struct value v)
{
    need_defined(r, v);
    fail(&r->c, JINJA_TYPE, "%s: not with %s", what, kind_name(v));
}

/* ---- containers ---- */

struct seq *seq_new(struct run *r, enum seq_form form)
{
    struct seq *q = take(&r->c, sizeof *q);

    q->form = form;
    return q;
}

void seq_add(struct run *r, struct seq *q, struct value v)
{
    step(&r->c);
    q->items = grow(&r->c, q->items, q->n, &q->cap, sizeof *q->items);
    q->items[q->n++] = v;
}

struct map *map_new(struct run *r)
{
    return take(&r->c, sizeof(struct map));
}

/* Python's hash(): what may be a key. */
static void need_key(struct run *r, struct value k)
{
    if (k.kind == V_SEQ && k.seq->form == SEQ_TUPLE) {
        enter(r);
        for (size_t i = 0; i < k.seq->n; i++)
            need_key(r, k.seq->items[i]);
        leave_(r);
    } else if (k.kind == V_SEQ || k.kind == V_MAP) {
        fail_type(r, "a key of a map", k);
    }
}

struct value *map_find(struct run *r, const struct map *m, struct value key)
{
    need_key(r, key);
    work(&r->c, 8 * m->n);
    for (size_t i = 0; i < m->n; i++) {
        struct value *k = &m->items[i].key;

        if (key.kind == V_STR ? k->kind == V_STR && str_eq(k->s, key.s) : equal(r, *k, key))
            return &m->items[i].value;
    }
    return NULL;
}

struct value *map_find_str(struct run *r, const struct map *m, const char *key)
{
    return map_find(r, m, v_str((struct str){key, strlen(key), NULL}));
}

static void map_append(struct run *r, struct map *m, struct value key, struct value v)
{
    step(&r->c);
    m->items = grow(&r->c, m->items, m->n, &m->cap, sizeof *m->items);
    m->items[m->n++] = (struct entry){key, v};
}

void map_put(struct run *r, struct map *m, struct value key, struct value v)
{
    struct value *there = map_find(r, m, key);

    if (there)
        *there = v;
    else
        map_append(r, m, key, v);
}

void map_remove(struct run *r, struct map *m, const struct value *found)
{
    size_t i = 0;

    while (&m->items[i].value != found)
        i++;
    work(&r->c, 32 * (m->n - i));
    memmove(&m->items[i], &m->items[i + 1], (--m->n - i) * sizeof *m->items);
}

/* ---- questions ---- */

int truth(struct run *r, struct value v)
{
    (void)r;
    switch (v.kind) {
    case V_UNDEFINED:
    case V_NONE:
        return 0;
    case V_BOOL:
    case V_INT:
        return v.i != 0;
    case V_FLOAT:
        return v.f != 0;
    case V_STR:
        return v.s.n != 0;
    case V_SEQ:
        return v.seq->n != 0 || v.seq->form == SEQ_LAZY;
    case V_MAP:
        return v.map->n != 0;
    default:
        return 1;
    }
}

static int is_number(struct value v)
{
    return v.kind == V_BOOL || v.kind == V_INT || v.kind == V_FLOAT || v.kind == V_BIG;
}

static double as_double(struct value v)
{
    char digits[400];

    if (v.kind == V_FLOAT)
        return v.f;
    if (v.kind != V_BIG)
        return (double)v.i;
    if (v.s.n >= sizeof digits)
        return v.s.s[0] == '-' ? -HUGE_VAL : HUGE_VAL;
    memcpy(digits, v.s.s, v.s.n);
    digits[v.s.n] = 0;
    return strtod(digits, NULL);
}

/* Of two big numbers, or a big one and a small one. */
static int big_cmp(struct value a, struct value b)
{
    int na = a.kind == V_BIG && a.s.s[0] == '-', nb = b.kind == V_BIG && b.s.s[0] == '-', d;

    if (a.kind != V_BIG)
        return nb ? 1 : -1;
    if (b.kind != V_BIG)
        return na ? -1 : 1;
    if (na != nb)
        return na ? -1 : 1;
    d = a.s.n != b.s.n ? (a.s.n > b.s.n ? 1 : -1) : str_cmp(a.s, b.s);
    return na ? -d : d;
}

/* Exact, also between a whole number and a float. 2: NaN. */
static int number_cmp(struct value a, struct value b)
{
    if (a.kind != V_FLOAT && b.kind != V_FLOAT) {
        if (a.kind == V_BIG || b.kind == V_BIG)
            return big_cmp(a, b);
        return (a.i > b.i) - (a.i < b.i);
    }
    if (b.kind == V_FLOAT && a.kind != V_FLOAT) {
        int d = number_cmp(b, a);

        return d == 2 ? 2 : -d;
    }
    if (isnan(a.f) || (b.kind == V_FLOAT && isnan(b.f)))
        return 2;
    if (b.kind == V_FLOAT || b.kind == V_BIG || fabs(a.f) >= 0x1p63) {
        double y = as_double(b);

        return (a.f > y) - (a.f < y);
    }
    if ((int64_t)a.f != b.i)
        return (int64_t)a.f > b.i ? 1 : -1;
    return (a.f > trunc(a.f)) - (a.f < trunc(a.f));
}

static int equal_maps(struct run *r, const struct map *a, const struct map *b)
{
    if (a->n != b->n)
        return 0;
    for (size_t i = 0; i < a->n; i++) {
        const struct value *v = map_find(r, b, a->items[i].key);

        if (!v || !equal(r, a->items[i].value, *v))
            return 0;
    }
    return 1;
}

static int equal_deep(struct run *r, struct value a, struct value b)
{
    if (is_number(a) && is_number(b))
        return number_cmp(a, b) == 0;
    if (a.kind != b.kind)
        return 0;
    switch (a.kind) {
    case V_UNDEFINED:
    case V_NONE:
        return 1;
    case V_STR:
        work(&r->c, a.s.n == b.s.n ? a.s.n : 0);
        return str_eq(a.s, b.s);
    case V_SEQ:
        if (a.seq == b.seq)
            return 1;
        if (a.seq->form != b.seq->form || a.seq->n != b.seq->n || a.seq->form == SEQ_LAZY)
            return 0;
        for (size_t i = 0; i < a.seq->n; i++)
            if (!equal(r, a.seq->items[i], b.seq->items[i]))
                return 0;
        return 1;
    case V_MAP:
        return a.map == b.map || equal_maps(r, a.map, b.map);
    case V_NAMESPACE:
        return a.map == b.map;
    case V_MACRO:
        return a.macro == b.macro;
    case V_LOOP:
        return a.loop == b.loop;
    case V_FUNC:
        return a.func == b.func;
    case V_METHOD:
        return a.method == b.method;
    default:
        return 0;
    }
}

int equal(struct run *r, struct value a, struct value b)
{
    int same;

    enter(r);
    same = equal_deep(r, a, b);
    leave_(r);
    return same;
}

int compare(struct run *r, struct value a, struct value b)
{
    int d = 0;

    if (is_number(a) && is_number(b))
        return number_cmp(a, b);
    if (a.kind == V_STR && b.kind == V_STR) {
        work(&r->c, a.s.n < b.s.n ? a.s.n : b.s.n);
        return str_cmp(a.s, b.s);
    }
    need_defined(r, a);
    need_defined(r, b);
    if (a.kind != V_SEQ || b.kind != V_SEQ || a.seq->form != b.seq->form || a.seq->form > SEQ_TUPLE)
        fail(&r->c, JINJA_TYPE, "no order between %s and %s", kind_name(a), kind_name(b));
    enter(r);
    for (size_t i = 0; i < a.seq->n && i < b.seq->n && !d; i++)
        if (!equal(r, a.seq->items[i], b.seq->items[i]))
            d = compare(r, a.seq->items[i], b.seq->items[i]);
    leave_(r);
    return d ? d : (a.seq->n > b.seq->n) - (a.seq->n < b.seq->n);
}

int contains(struct run *r, struct value in, struct value x)
{
    switch (in.kind) {
    case V_UNDEFINED:
        return 0;
    case V_STR:
        if (x.kind != V_STR)
            fail_type(r, "'in' of a string", x);
        work(&r->c, in.s.n);
        return find(in.s, x.s, 0) >= 0;
    case V_MAP:
        return map_find(r, in.map, x) != NULL;
    case V_SEQ:
        for (size_t i = 0; i < in.seq->n; i++)
            if (equal(r, in.seq->items[i], x))
                return 1;
        return 0;
    default:
        fail_type(r, "'in'", in);
    }
}

struct seq *iterate(struct run *r, struct value v)
{
    struct seq *q;
    size_t len;

    switch (v.kind) {
    case V_SEQ:
        return v.seq;
    case V_UNDEFINED:
        return seq_new(r, SEQ_LIST);
    case V_STR:
        q = seq_new(r, SEQ_LIST);
        for (size_t p = 0; p < v.s.n; p += len) {
            point_at(v.s.s + p, &len);
            seq_add(r, q, v_str(str_slice(v.s, p, p + len)));
        }
        return q;
    case V_MAP:
        q = seq_new(r, SEQ_LIST);
        for (size_t i = 0; i < v.map->n; i++)
            seq_add(r, q, v.map->items[i].key);
        return q;
    default:
        fail_type(r, "going through its items", v);
    }
}

int64_t length(struct run *r, struct value v)
{
    switch (v.kind) {
    case V_UNDEFINED:
        return 0;
    case V_STR:
        work(&r->c, v.s.n);
        return (int64_t)str_points(v.s);
    case V_MAP:
        return (int64_t)v.map->n;
    case V_SEQ:
        if (v.seq->form != SEQ_LAZY)
            return (int64_t)v.seq->n;
        /* fall through */
    default:
        fail_type(r, "length", v);
    }
}

/* ---- from JSON ---- */

static struct value number(const struct json *j, const unsigned char *m)
{
    struct str s = {j->text, j->n, m};
    long long i;

    if (strpbrk(j->text, ".eE"))
        return v_float(strtod(j->text, NULL));
    errno = 0;
    i = strtoll(j->text, NULL, 10);
    return errno ? (struct value){.kind = V_BIG, .s = s} : v_int(i);
}

struct by_key {
    struct str key;
    size_t at;
};

static int by_key(const void *pa, const void *pb)
{
    const struct by_key *a = pa, *b = pb;
    int d = str_cmp(a->key, b->key);

    return d ? d : (a->at > b->at) - (a->at < b->at);
}

/* As in Python a key that comes again keeps its place and takes the later value. Sorted, so that an
 * object of many keys costs n log n. */
static struct value object(struct run *r, const struct json *j, const unsigned char *m, int ours)
{
    struct map *map = map_new(r);
    struct by_key *k = take_array(&r->c, j->n, sizeof *k);

    map->frozen = 1;
    map->items = take_array(&r->c, j->n, sizeof *map->items);
    work(&r->c, 64 * j->n);
    for (size_t i = 0; i < j->n; i++)
        k[i] = (struct by_key){{j->items[i].key, j->items[i].key_n, m}, i};
    if (j->n)
        qsort(k, j->n, sizeof *k, by_key);
    for (size_t i = 0, end; i < j->n; i = end) { /* the first of equal keys gets the last one's value */
        for (end = i + 1; end < j->n && str_eq(k[i].key, k[end].key); end++)
            ;
        map->items[k[i].at].key = v_str(k[i].key);
        map->items[k[i].at].value = from_json(r, &j->items[k[end - 1].at], ours);
    }
    for (size_t i = 0; i < j->n; i++) /* a place without a key is V_UNDEFINED: all zeros */
        if (map->items[i].key.kind == V_STR)
            map->items[map->n++] = map->items[i];
    map->cap = j->n;
    return v_map(map);
}

struct value from_json(struct run *r, const struct json *j, int ours)
{
    const unsigned char *m = ours ? NULL : MARK_ALL;
    struct value v = v_none();

    enter(r);
    switch (j->kind) {
    case JSON_NULL:
        break;
    case JSON_BOOL:
        v = v_bool(j->truth);
        break;
    case JSON_NUMBER:
        v = number(j, m);
        break;
    case JSON_STRING:
        v = v_str((struct str){j->text, j->n, m});
        break;
    case JSON_ARRAY:
        v = v_seq(seq_new(r, SEQ_LIST));
        for (size_t i = 0; i < j->n; i++)
            seq_add(r, v.seq, from_json(r, &j->items[i], ours));
        v.seq->frozen = 1;
        break;
    case JSON_OBJECT:
        v = object(r, j, m, ours);
        break;
    }
    leave_(r);
    return v;
}

/* ---- arithmetic ---- */

static _Noreturn void beyond(struct run *r)
{
    fail(&r->c, JINJA_RUNTIME, "a whole number beyond 64 bits");
}

static struct value power(struct run *r, int64_t a, int64_t b)
{
    int64_t v = 1;

    if (b < 0)
        return v_float(pow((double)a, (double)b));
    if (a == 0 || a == 1 || a == -1)
        return v_int(b == 0 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : a);
    for (; b; b--)
        if (__builtin_mul_overflow(v, a, &v))
            beyond(r);
    return v_int(v);
}

static struct value arith_int(struct run *r, int op, int64_t a, int64_t b)
{
    int64_t v = 0;
    int over = 0;

    if ((op == '/' || op == '%' || op == OP2('/', '/')) && !b)
        fail(&r->c, JINJA_RUNTIME, "division by zero");
    switch (op) {
    case '+':
        over = __builtin_add_overflow(a, b, &v);
        break;
    case '-':
        over = __builtin_sub_overflow(a, b, &v);
        break;
    case '*':
        over = __builtin_mul_overflow(a, b, &v);
        break;
    case '/':
        return v_float((double)a / (double)b);
    case '%': /* the sign of b */
        v = b == -1 ? 0 : a % b;
        v += v && (v < 0) != (b < 0) ? b : 0;
        break;
    case OP2('/', '/'):
        if (b == -1)
            over = __builtin_sub_overflow(0, a, &v);
        else
            v = a / b - (a % b && (a < 0) != (b < 0));
        break;
    case OP2('*', '*'):
        return power(r, a, b);
    }
    if (over)
        beyond(r);
    return v_int(v);
}

static double float_mod(double a, double b)
{
    double m = fmod(a, b);

    if (m != 0)
        return (m < 0) != (b < 0) ? m + b : m;
    return copysign(0.0, b);
}

static struct value arith_float(struct run *r, int op, double a, double b)
{
    double m;

    if ((op == '/' || op == '%' || op == OP2('/', '/')) && b == 0)
        fail(&r->c, JINJA_RUNTIME, "division by zero");
    switch (op) {
    case '+':
        return v_float(a + b);
    case '-':
        return v_float(a - b);
    case '*':
        return v_float(a * b);
    case '/':
        return v_float(a / b);
    case '%':
        return v_float(float_mod(a, b));
    case OP2('/', '/'):
        m = float_mod(a, b);
        return v_float(floor((a - m) / b + 0.5));
    default:
        if (a == 0 && b < 0)
            fail(&r->c, JINJA_RUNTIME, "division by zero");
        if (a < 0 && b != floor(b) && isfinite(b))
            fail(&r->c, JINJA_RUNTIME, "a root of a negative number");
        return v_float(pow(a, b));
    }
}

static struct value repeat(struct run *r, struct value v, int64_t times)
{
    if (v.kind == V_STR) {
        struct buf b = {0};

        for (int64_t i = 0; v.s.n && i < times; i++)
            buf_add(&r->c, &b, v.s);
        return v_buf(&b);
    }
    {
        struct seq *q = seq_new(r, v.seq->form);

        for (int64_t i = 0; v.seq->n && i < times; i++)
            for (size_t k = 0; k < v.seq->n; k++)
                seq_add(r, q, v.seq->items[k]);
        return v_seq(q);
    }
}

static int is_sequence(struct value v)
{
    return v.kind == V_STR || (v.kind == V_SEQ && v.seq->form <= SEQ_TUPLE);
}

static int is_int(struct value v)
{
    return v.kind == V_INT || v.kind == V_BOOL;
}

static struct value add(struct run *r, struct value a, struct value b)
{
    if (a.kind == V_STR && b.kind == V_STR) {
        struct buf t = {0};

        buf_add(&r->c, &t, a.s);
        buf_add(&r->c, &t, b.s);
        return v_buf(&t);
    }
    if (a.kind == V_SEQ && b.kind == V_SEQ && a.seq->form == b.seq->form && a.seq->form <= SEQ_TUPLE) {
        struct seq *q = seq_new(r, a.seq->form);

        for (size_t i = 0; i < a.seq->n; i++)
            seq_add(r, q, a.seq->items[i]);
        for (size_t i = 0, n = b.seq->n; i < n; i++)
            seq_add(r, q, b.seq->items[i]);
        return v_seq(q);
    }
    fail(&r->c, JINJA_TYPE, "+ between %s and %s", kind_name(a), kind_name(b));
}

struct value arith(struct run *r, int op, struct value a, struct value b)
{
    char name[3] = {(char)(op & 0xFF), (char)(op >> 8), 0};

    if (op == '%' && a.kind == V_STR) {
        if (b.kind == V_MAP)
            return v_str(format_percent(r, a.s, &b, 1, b.map));
        if (b.kind == V_SEQ && b.seq->form == SEQ_LIST && (!a.s.n || !memchr(a.s.s, '%', a.s.n)))
            return a; /* Python takes a list for something that could have names */
        if (b.kind == V_SEQ && b.seq->form == SEQ_TUPLE)
            return v_str(format_percent(r, a.s, b.seq->items, b.seq->n, NULL));
        return v_str(format_percent(r, a.s, &b, 1, NULL));
    }
    need_defined(r, a);
    need_defined(r, b);
    if (is_int(a) && is_int(b))
        return arith_int(r, op, a.i, b.i);
    if (is_number(a) && is_number(b)) {
        if (a.kind != V_FLOAT && b.kind != V_FLOAT)
            beyond(r);
        return arith_float(r, op, as_double(a), as_double(b));
    }
    if (op == '*' && is_sequence(a) && is_int(b))
        return repeat(r, a, b.i);
    if (op == '*' && is_int(a) && is_sequence(b))
        return repeat(r, b, a.i);
    if (op == '+')
        return add(r, a, b);
    fail(&r->c, JINJA_TYPE, "%s between %s and %s", name, kind_name(a), kind_name(b));
}

struct value negate(struct run *r, struct value v)
{
    if (is_int(v))
        return arith_int(r, '-', 0, v.i);
    if (v.kind == V_FLOAT)
        return v_float(-v.f);
    if (v.kind == V_BIG)
        beyond(r);
    fail_type(r, "-", v);
}
