/* a.b, a['b'], a[1:2]: as Jinja looks things up. */
#include <string.h>

#include "coordinator/chat/jinja/value.h"

static struct value bound(struct run *r, struct value self, const struct builtin *b)
{
    struct method *m = take(&r->c, sizeof *m);

    *m = (struct method){self, b};
    return (struct value){.kind = V_METHOD, .method = m};
}

static struct value loop_attr(struct run *r, struct value v, struct str name)
{
    const struct loop *l = v.loop;
    int64_t at = (int64_t)l->at, n = (int64_t)l->n;
    const struct builtin *b;

    if (str_is(name, "index"))
        return v_int(at + 1);
    if (str_is(name, "index0"))
        return v_int(at);
    if (str_is(name, "revindex"))
        return v_int(n - at);
    if (str_is(name, "revindex0"))
        return v_int(n - at - 1);
    if (str_is(name, "first"))
        return v_bool(!at);
    if (str_is(name, "last"))
        return v_bool(at == n - 1);
    if (str_is(name, "length"))
        return v_int(n);
    if (str_is(name, "previtem"))
        return at ? l->items[at - 1] : v_undefined(STR("loop.previtem"));
    if (str_is(name, "nextitem"))
        return at + 1 < n ? l->items[at + 1] : v_undefined(STR("loop.nextitem"));
    if ((b = find_method(v, name)))
        return bound(r, v, b);
    if (str_is(name, "depth") || str_is(name, "depth0"))
        fail(&r->c, JINJA_SYNTAX, "loop.depth is not supported");
    return v_undefined(name);
}

/* What obj[name] gives where obj is a map or a namespace; NULL: nothing. */
static const struct value *member(struct run *r, struct value v, struct str name)
{
    return v.kind == V_MAP || v.kind == V_NAMESPACE ? map_find(r, v.map, v_str(name)) : NULL;
}

struct value get_attr(struct run *r, struct value v, struct str name)
{
    const struct builtin *b;
    const struct value *found;

    need_defined(r, v);
    if (v.kind == V_LOOP)
        return loop_attr(r, v, name);
    if ((b = find_method(v, name)))
        return bound(r, v, b);
    found = member(r, v, name);
    return found ? *found : v_undefined(name);
}

/* The byte where code point i begins; the text's end if there are fewer. */
static size_t byte_of(struct str s, int64_t i)
{
    size_t p = 0;

    for (; p < s.n; p++)
        if (((unsigned char)s.s[p] & 0xC0) != 0x80 && i-- == 0)
            break;
    return p;
}

static struct value get_index(struct run *r, struct value v, int64_t i)
{
    int64_t n;
    struct str none = STR("an index out of range");

    if (v.kind == V_SEQ && v.seq->form >= SEQ_VIEW)
        return v_undefined(none);
    n = length(r, v);
    if (i < 0)
        i += n;
    if (i < 0 || i >= n)
        return v_undefined(none);
    if (v.kind == V_STR) {
        size_t p = byte_of(v.s, i), len;

        point_at(v.s.s + p, &len);
        return v_str(str_slice(v.s, p, p + len));
    }
    return v.seq->items[i];
}

struct value get_item(struct run *r, struct value v, struct value key)
{
    const struct value *found;

    need_defined(r, v);
    if (v.kind == V_MAP) {
        if (key.kind == V_SEQ || key.kind == V_MAP) /* not a key: as if it were missing */
            return v_undefined(STR("a key"));
        if ((found = map_find(r, v.map, key)))
            return *found;
        if (key.kind == V_STR) { /* Jinja's last resort */
            const struct builtin *b = find_method(v, key.s);

            return b ? bound(r, v, b) : v_undefined(key.s);
        }
        return v_undefined(STR("a key"));
    }
    if ((key.kind == V_INT || key.kind == V_BOOL) && (v.kind == V_STR || v.kind == V_SEQ))
        return get_index(r, v, key.i);
    if (key.kind == V_STR)
        return get_attr(r, v, key.s);
    return v_undefined(STR("an index"));
}

#define STEP_MAX ((int64_t)1 << 60)

/* Python's rules for where a slice begins, ends and how it steps. */
static void bounds(struct run *r, int64_t n, const struct value part[3], const int given[3], int64_t *from,
                   int64_t *to, int64_t *by)
{
    *by = given[2] ? need_int(r, part[2], "the step of a slice") : 1;
    if (!*by)
        fail(&r->c, JINJA_RUNTIME, "a slice with step 0");
    if (*by < -STEP_MAX) /* no text is longer; so that a sum does not overflow */
        *by = -STEP_MAX;
    if (*by > STEP_MAX)
        *by = STEP_MAX;
    *from = *by > 0 ? 0 : n - 1;
    *to = *by > 0 ? n : -1;
    for (int i = 0; i < 2; i++) {
        int64_t k, low = *by > 0 ? 0 : -1, high = *by > 0 ? n : n - 1;

        if (!given[i])
            continue;
        k = need_int(r, part[i], "the bound of a slice");
        if (k < 0)
            k = k < -n ? low : k + n;
        k = k < low ? low : k > high ? high : k;
        *(i ? to : from) = k;
    }
}

struct value get_slice(struct run *r, struct value v, const struct value part[3], const int given[3])
{
    int64_t n, from, to, by;
    struct seq *q;
    struct buf b = {0};

    need_defined(r, v);
    if (v.kind != V_STR && !(v.kind == V_SEQ && v.seq->form <= SEQ_RANGE))
        fail_type(r, "a slice", v);
    n = length(r, v);
    bounds(r, n, part, given, &from, &to, &by);
    if (v.kind == V_STR && by == 1) {
        size_t p = byte_of(v.s, from), q1 = to > from ? byte_of(v.s, to) : p;

        return v_str(str_slice(v.s, p, q1));
    }
    if (v.kind == V_STR) { /* by characters */
        struct seq *chars = iterate(r, v);

        for (; by > 0 ? from < to : from > to; from += by)
            buf_add(&r->c, &b, chars->items[from].s);
        return v_buf(&b);
    }
    q = seq_new(r, v.seq->form == SEQ_TUPLE ? SEQ_TUPLE : SEQ_LIST);
    for (; by > 0 ? from < to : from > to; from += by)
        seq_add(r, q, v.seq->items[from]);
    return v_seq(q);
}
