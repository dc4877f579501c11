/* Decimal numbers between two bounds, digit by digit: as long as all digits so far are a bound's, the next one may
 * not go beyond that bound's; after the first that differs, the rest is free. */
#include <stdio.h>
#include <string.h>

#include "coordinator/sample/grammar.h"
#include "coordinator/sample/grammar/front.h"

enum { IMPOSSIBLE = RULES_NONE };

struct decimal { /* without zeros in front of the whole part and behind the rest */
    int there, open, negative;
    unsigned n_int, n_frac; /* zero: n_int 1 */
    char digit[2 * NUMBER_DIGITS + 2]; /* both parts, values */
};
struct span { /* of numbers that are not negative */
    struct rules *r;
    struct decimal lo, hi;
    int whole;
    unsigned len; /* digits of the whole part of those that are built */
};

/* "-12.50e1" */
static int decimal_read(const char *text, struct decimal *d)
{
    char digit[64];
    int n = 0, point = -1, exponent = 0, first = 0;
    const char *p = text + (*text == '-');

    *d = (struct decimal){.there = 1, .negative = *text == '-'};
    for (; *p && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.')
            point = n;
        else if (n < (int)sizeof digit)
            digit[n++] = (char)(*p - '0');
        else
            return -1;
    }
    if (point < 0)
        point = n;
    if (*p && (sscanf(p + 1, "%d", &exponent) != 1 || exponent > 1000 || exponent < -1000))
        return -1;
    point += exponent;
    while (first < n && !digit[first])
        first++;
    while (n > first && !digit[n - 1])
        n--;
    if (first == n) { /* zero */
        d->negative = 0;
        d->n_int = 1;
        return 0;
    }
    d->n_int = point > first ? (unsigned)(point - first) : 1;
    d->n_frac = n > point ? (unsigned)(n - point) : 0;
    if (d->n_int > NUMBER_DIGITS || d->n_frac > NUMBER_DIGITS)
        return -1;
    for (int i = 0; i < (int)(d->n_int + d->n_frac); i++) {
        int at = (point > first ? first : point - 1) + i;
        d->digit[i] = at >= first && at < n ? digit[at] : 0;
    }
    return 0;
}

static int compare(const struct decimal *a, const struct decimal *b) /* of their sizes, without sign */
{
    unsigned n = a->n_int + (a->n_frac > b->n_frac ? a->n_frac : b->n_frac);

    if (a->n_int != b->n_int)
        return a->n_int < b->n_int ? -1 : 1;
    for (unsigned i = 0; i < n; i++) {
        int x = i < a->n_int + a->n_frac ? a->digit[i] : 0, y = i < b->n_int + b->n_frac ? b->digit[i] : 0;
        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

static uint32_t digits(struct rules *r, int lo, int hi, unsigned min, unsigned max)
{
    uint32_t one;

    if (lo > hi)
        return IMPOSSIBLE;
    one = CLASS(r, {(uint32_t)('0' + lo), (uint32_t)('0' + hi)});
    return min == 1 && max == 1 ? one : rules_repeat(r, one, min, max);
}

/* a b, where one may be impossible. */
static uint32_t then(struct rules *r, uint32_t a, uint32_t b)
{
    return a == IMPOSSIBLE || b == IMPOSSIBLE ? (uint32_t)IMPOSSIBLE : SEQ(r, a, b);
}

static void put(uint32_t *item, size_t *n, uint32_t x)
{
    if (x != IMPOSSIBLE)
        item[(*n)++] = x;
}

static uint32_t any_of(struct rules *r, const uint32_t *item, size_t n)
{
    return n ? rules_alt(r, item, n) : (uint32_t)IMPOSSIBLE;
}

/* The number may end behind i digits of the fraction, all of them a bound's where it is tight. */
static int may_end(const struct span *s, unsigned i, int tight_lo, int tight_hi)
{
    if (tight_lo && (i < s->lo.n_frac || s->lo.open))
        return 0;
    return !tight_hi || i < s->hi.n_frac || !s->hi.open;
}

/* What may follow i digits of the fraction. Recursion: NUMBER_DIGITS. */
static uint32_t fraction(const struct span *s, unsigned i, int tight_lo, int tight_hi)
{
    int lo = tight_lo && i < s->lo.n_frac ? s->lo.digit[s->lo.n_int + i] : 0;
    int hi = !tight_hi ? 9 : i < s->hi.n_frac ? s->hi.digit[s->hi.n_int + i] : 0;
    uint32_t item[4];
    size_t n = 0;

    if (i && may_end(s, i, tight_lo, tight_hi))
        put(item, &n, TEXT(s->r, ""));
    if (i < NUMBER_DIGITS) {
        put(item, &n, then(s->r, digits(s->r, lo + tight_lo, hi - tight_hi, 1, 1), digits(s->r, 0, 9, 0, NUMBER_DIGITS - 1 - i)));
        if (tight_lo && lo <= hi)
            put(item, &n, then(s->r, digits(s->r, lo, lo, 1, 1), fraction(s, i + 1, 1, tight_hi && lo == hi)));
        if (tight_hi && hi >= lo && !(tight_lo && lo == hi))
            put(item, &n, then(s->r, digits(s->r, hi, hi, 1, 1), fraction(s, i + 1, 0, 1)));
    }
    return any_of(s->r, item, n);
}

/* What may follow the whole part. */
static uint32_t behind_point(const struct span *s, int tight_lo, int tight_hi)
{
    uint32_t item[2];
    size_t n = 0;

    if (may_end(s, 0, tight_lo, tight_hi))
        put(item, &n, TEXT(s->r, ""));
    if (!s->whole)
        put(item, &n, then(s->r, TEXT(s->r, "."), fraction(s, 0, tight_lo, tight_hi)));
    return any_of(s->r, item, n);
}

/* What may follow i digits of the s->len of the whole part. Recursion: NUMBER_DIGITS. */
static uint32_t whole_part(const struct span *s, unsigned i, int tight_lo, int tight_hi)
{
    int lo = tight_lo ? s->lo.digit[i] : !i && s->len > 1, hi = tight_hi ? s->hi.digit[i] : 9;
    uint32_t item[3], rest;
    size_t n = 0;

    if (i == s->len)
        return behind_point(s, tight_lo, tight_hi);
    rest = then(s->r, digits(s->r, 0, 9, s->len - 1 - i, s->len - 1 - i), behind_point(s, 0, 0));
    put(item, &n, then(s->r, digits(s->r, lo + tight_lo, hi - tight_hi, 1, 1), rest));
    if (tight_lo && lo <= hi)
        put(item, &n, then(s->r, digits(s->r, lo, lo, 1, 1), whole_part(s, i + 1, 1, tight_hi && lo == hi)));
    if (tight_hi && hi >= lo && !(tight_lo && lo == hi))
        put(item, &n, then(s->r, digits(s->r, hi, hi, 1, 1), whole_part(s, i + 1, 0, 1)));
    return any_of(s->r, item, n);
}

/* Numbers without a sign from lo to hi; hi.there 0: no end. */
static uint32_t sizes(struct rules *r, struct decimal lo, struct decimal hi, int whole)
{
    struct span s = {r, lo, hi, whole, 0};
    unsigned most = hi.there ? hi.n_int : NUMBER_DIGITS;
    uint32_t item[NUMBER_DIGITS];
    size_t n = 0;

    if (hi.there && compare(&lo, &hi) > 0)
        return IMPOSSIBLE;
    for (s.len = lo.n_int; s.len <= most; s.len++)
        put(item, &n, whole_part(&s, 0, s.len == lo.n_int, hi.there && s.len == hi.n_int));
    return any_of(r, item, n);
}

uint32_t number_read(struct rules *r, const struct number_bounds *b, const char *where)
{
    const struct decimal zero = {.there = 1, .n_int = 1};
    struct decimal lo = {0}, hi = {0};
    uint32_t item[2], x;
    size_t n = 0;

    if ((b->lo && decimal_read(b->lo, &lo)) || (b->hi && decimal_read(b->hi, &hi)))
        return rules_fail(r, -ENOTSUP, "%s: bounds of more than %d digits are not supported", where, NUMBER_DIGITS);
    lo.open = b->lo_open;
    hi.open = b->hi_open;
    if (!lo.there || lo.negative) { /* below zero: sizes from |hi| to |lo| */
        struct decimal least = hi.there && hi.negative ? hi : zero, most = lo;
        if (!(hi.there && hi.negative))
            least.open = 1; /* there is no -0 */
        put(item, &n, then(r, TEXT(r, "-"), sizes(r, least, most, b->whole)));
    }
    if (!hi.there || !hi.negative)
        put(item, &n, sizes(r, lo.there && !lo.negative ? lo : zero, hi, b->whole));
    x = any_of(r, item, n);
    if (x == IMPOSSIBLE)
        return rules_fail(r, -EINVAL, "%s: there is no number within these bounds", where);
    return x;
}
