/* Rule 37: Philox's known answers, the whole draws of ARITHMETIC.md section F, and thousands of
 * random draws against a second program that sorts the whole vocabulary. */
#include "coordinator/sample/philox.h"
#include "coordinator/sample/sample.h"
#include "kernels/func/func.h"
#include "kernels/func/nasty.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>

enum { MAX = 3000 };

static void philox(void)
{
    static const uint32_t known[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1}};

    for (int i = 0; i < 3; i++) {
        uint32_t out[4];

        philox4x32_10(known[i], known[i] + 4, out);
        CHECK(!memcmp(out, known[i] + 6, sizeof out), "answer %d: %08x %08x", i, out[0], out[1]);
    }
}

/* --- the second program: rule 37 read again, without speed */

static int ref_before(float a, uint32_t i, float b, uint32_t j)
{
    return a > b || (a == b && i < j);
}

static const float *ref_row;

static int ref_compare(const void *x, const void *y)
{
    uint32_t i = *(const uint32_t *)x, j = *(const uint32_t *)y;

    return ref_before(ref_row[i], i, ref_row[j], j) ? -1 : 1;
}

static int ref_token(const struct sample_settings *s, const float *logits, size_t n,
                     const uint32_t *before, size_t n_before, const uint64_t *allowed,
                     struct sample_trace *t, uint32_t *token)
{
    static float l[MAX], d[MAX];
    static uint32_t order[MAX];
    static char in[MAX];
    float r = (float)s->repeat, f = (float)s->frequency, p = (float)s->presence, m, temp, top_p,
          min_p;
    size_t left = 0;
    double S = 0, c = 0, x;

    memset(t, 0, sizeof *t);
    memcpy(l, logits, n * sizeof *l);
    for (size_t i = 0; i < s->n_bias; i++) /* 1 */
        l[s->bias[i].token] += (float)s->bias[i].value;
    for (size_t i = 0; i < n; i++) /* 2 */
        in[i] = !allowed || allowed[i / 64] >> i % 64 & 1;
    if (r != 1 || f != 0 || p != 0) /* 3 */
        for (size_t i = 0; i < n; i++) {
            int count = 0;

            for (size_t b = 0; b < n_before; b++)
                if (s->last_n == -1 || n_before - b <= (size_t)s->last_n)
                    count += before[b] == i;
            if (count) {
                l[i] = l[i] <= 0 ? l[i] * r : l[i] / r;
                l[i] = l[i] - ((float)count * f + p);
            }
        }
    for (size_t i = 0; i < n; i++) { /* 4 */
        in[i] = in[i] && !isnan(l[i]) && l[i] != -INFINITY;
        if (in[i])
            order[left++] = (uint32_t)i;
    }
    if (!left)
        return -1;
    ref_row = l;
    qsort(order, left, sizeof *order, ref_compare);
    m = l[order[0]];
    t->left[0] = left;
    temp = (float)s->temp, top_p = (float)s->top_p, min_p = (float)s->min_p;
    *token = order[0];
    if (temp <= 0) /* 5 */
        return 0;
    for (size_t i = 0; i < n; i++) /* 6 */
        d[i] = l[i] == m ? 0 : l[i] - m;
    if (s->top_k > 0 && left > (size_t)s->top_k) /* 7 */
        for (; left > (size_t)s->top_k; left--)
            in[order[left - 1]] = 0;
    t->left[1] = left;
    if (top_p < 1) { /* 8 */
        size_t stay = 0;

        for (size_t i = 0; i < n; i++)
            S += in[i] ? (double)f_exp(d[i]) : 0.0;
        while (stay < left) {
            c += (double)f_exp(d[order[stay++]]);
            if (c >= (double)top_p * S)
                break;
        }
        for (; left > stay; left--)
            in[order[left - 1]] = 0;
    }
    t->left[2] = left;
    if (min_p > 0) /* 9 */
        for (size_t i = 0; i < n; i++)
            if (in[i] && !(f_exp(d[i]) >= min_p))
                in[i] = 0, left--;
    t->left[3] = left;
    S = 0;
    for (size_t i = 0; i < n; i++) /* 10, 11 */
        S += in[i] ? (double)f_exp(d[i] / temp) : 0.0;
    t->sum = S;
    t->u = philox_uniform(s->seed, n_before, s->choice);
    x = t->u * S, c = 0;
    for (size_t i = 0; i < n; i++) {
        c += in[i] ? (double)f_exp(d[i] / temp) : 0.0;
        if (in[i] && c > x) {
            *token = (uint32_t)i;
            return 0;
        }
    }
    return -2;
}

static void both(const struct sample_settings *s, const float *l, size_t n, const uint32_t *before,
                 size_t n_before, const uint64_t *allowed, struct sample_scratch *c,
                 const char *what)
{
    struct sample_trace want, got = {0};
    uint32_t token = 0, ref = 0;
    struct err e = {0};
    int rc_ref = ref_token(s, l, n, before, n_before, allowed, &want, &ref), rc;

    c->trace = &got;
    rc = sample_token(s, l, n, before, n_before, allowed, c, &token, &e);
    c->trace = NULL;
    CHECK((rc < 0) == (rc_ref < 0), "%s: %d, wanted %d", what, rc, rc_ref);
    if (rc < 0 || rc_ref < 0)
        return;
    CHECK(token == ref, "%s: token %u, wanted %u (n %zu, T %g, k %d, p %g, q %g)", what, token, ref,
          n, s->temp, s->top_k, s->top_p, s->min_p);
    CHECK(!memcmp(&want, &got, sizeof got),
          "%s: left %zu %zu %zu %zu of %zu %zu %zu %zu, S %a of %a", what, got.left[0], got.left[1],
          got.left[2], got.left[3], want.left[0], want.left[1], want.left[2], want.left[3], got.sum,
          want.sum);
}

/* --- section F */

static void check_draw(const char *name, const struct sample_settings *s, const float *l,
                       const uint32_t *before, size_t n_before, const uint64_t *allowed,
                       struct sample_scratch *c, const struct sample_trace *want, uint32_t token)
{
    struct sample_trace got = {0};
    struct err e = {0};
    uint32_t t = 0;

    c->trace = &got;
    CHECK_EQ(sample_token(s, l, 300, before, n_before, allowed, c, &t, &e), 0);
    c->trace = NULL;
    CHECK(t == token, "%s: token %u, wanted %u", name, t, token);
    CHECK(!want || !memcmp(&got, want, sizeof got), "%s: left %zu %zu %zu %zu, S %a, u %a", name,
          got.left[0], got.left[1], got.left[2], got.left[3], got.sum, got.u);
}

static void whole_draws(struct sample_scratch *c)
{
    static const uint32_t a[] = {3, 141, 59, 26, 53}, b[] = {30, 131, 30, 232, 30, 131, 10, 11, 30};
    static const struct sample_bias bias[] = {{131, 0.7}, {5, -INFINITY}};
    static const struct sample_trace want_a = {{300, 40, 27, 27},
                                               0x1.287cf966p+3,
                                               0x1.426760252c82cp-2},
                                     want_b = {{299, 299, 25, 25},
                                               0x1.b5ddfffp+3,
                                               0x1.bdb8b54568b9ep-1},
                                     want_c = {{148, 148, 148, 148}, 2, 0x1.ed945b2dc7c06p-2};
    struct sample_settings s;
    uint64_t even[5];
    float l[300];

    for (int t = 0; t < 300; t++)
        l[t] = (float)((37 * t % 101) - 50) * 0.3f;
    sample_defaults(&s);
    s.seed = 42;
    check_draw("A", &s, l, a, 5, NULL, c, &want_a, 90);
    s = (struct sample_settings){1.5, 0, 0.9, 0, 1.1, 0.2, 0.5, 8, 0xDEADBEEF01234567, 1, bias, 2};
    check_draw("B", &s, l, b, 9, NULL, c, &want_b, 262);
    s.temp = 0;
    check_draw("B at 0", &s, l, b, 9, NULL, c, NULL, 60);
    l[0] = NAN, l[2] = l[4] = INFINITY, l[6] = -INFINITY;
    memset(even, 0x55, sizeof even);
    s = (struct sample_settings){1, 0, 1, 0, 1, 0, 0, 64, (uint64_t)-2, 0, NULL, 0};
    check_draw("C", &s, l, b, 9, even, c, &want_c, 2);
    s.temp = 0;
    check_draw("C at 0", &s, l, b, 9, even, c, NULL, 2);
}

/* --- random settings and rows */

static double pick(struct nasty *r, const double *from, int n)
{
    return from[nasty_u32(r) % (uint32_t)n];
}

static void random_draws(struct sample_scratch *c)
{
    static const double temps[] = {0, -1, 0.8, 1, 1.5, 0.1, 30, 1e-30};
    static const double ks[] = {0, -3, 1, 2, 40, 64, 200, 1 << 20};
    static const double ps[] = {1, 2, 0, 0.1, 0.5, 0.9, 0.95, 0.999, 0.99999999};
    static const double qs[] = {0, 0.05, 0.3, 1};
    static const double rs[] = {1, 1, 1.1, 0.5, 30}, fs[] = {0, 0, 0.2, -0.7};
    static float l[MAX];
    static uint64_t allowed[MAX / 64 + 1];
    struct nasty r = {20};

    for (int i = 0; i < 6000; i++) {
        size_t n = 1 + nasty_u32(&r) % (i % 10 == 0 ? MAX : 300), n_before = nasty_u32(&r) % 100;
        float wide = (float)pick(&r, (double[]){1, 0.01, 0.3, 3, 40}, 5);
        struct sample_bias bias[3];
        uint32_t before[100];
        struct sample_settings s = {.temp = pick(&r, temps, 8),
                                    .top_k = (int)pick(&r, ks, 8),
                                    .top_p = pick(&r, ps, 9),
                                    .min_p = pick(&r, qs, 4),
                                    .repeat = pick(&r, rs, 5),
                                    .frequency = pick(&r, fs, 4),
                                    .presence = pick(&r, fs, 4),
                                    .last_n = (int)pick(&r, (double[]){64, 0, -1, 3}, 4),
                                    .seed = (uint64_t)nasty_u32(&r) << 32 | nasty_u32(&r),
                                    .choice = nasty_u32(&r) % 3,
                                    .bias = bias,
                                    .n_bias = nasty_u32(&r) % 4};

        nasty_fill(&r, (int)(nasty_u32(&r) % 4), l, n);
        for (size_t t = 0; t < n; t++)
            l[t] = i % 3 ? l[t] * wide : rintf(l[t]) * wide; /* every third row has ties */
        for (size_t b = 0; b < n_before; b++)
            before[b] = nasty_u32(&r) % (n > 20 && b % 2 ? 20 : (uint32_t)n);
        for (size_t b = 0; b < 3; b++)
            bias[b] = (struct sample_bias){nasty_u32(&r) % (uint32_t)n,
                                           b == 1 ? -INFINITY : nasty_plain(&r)};
        for (size_t w = 0; w <= n / 64; w++)
            allowed[w] = (uint64_t)nasty_u32(&r) << 32 | nasty_u32(&r);
        both(&s, l, n, before, n_before, i % 4 ? NULL : allowed, c, "random");
    }
}

/* Where the first of the plain row is said to be kept, it is the token. */
static void first_kept(struct sample_scratch *c)
{
    static float l[MAX];
    struct nasty r = {21};
    int kept = 0, other = 0;

    for (int i = 0; i < 4000; i++) {
        static const double values[] = {-INFINITY, -1, -0.25, 0, 0.25};
        uint32_t n = 1 + nasty_u32(&r) % 40, plain, token;
        struct sample_bias bias[4];
        struct sample_settings s = {.repeat = 1, .top_p = 1, .bias = bias, .n_bias = nasty_u32(&r) % 5};
        struct sample_settings bare = {.repeat = 1, .top_p = 1};
        struct err e = {0};

        nasty_fill(&r, (int)(nasty_u32(&r) % 4), l, n);
        for (uint32_t t = 0; t < n && i % 2; t++)
            l[t] = rintf(l[t]); /* ties */
        for (int b = 0; b < 4; b++)
            bias[b] = (struct sample_bias){nasty_u32(&r) % n, pick(&r, values, i % 3 ? 4 : 5)};
        if (sample_token(&bare, l, n, NULL, 0, NULL, c, &plain, &e) < 0)
            plain = UINT32_MAX;
        if (!sample_keeps_first(&s, plain)) {
            other++;
            continue;
        }
        kept++;
        e.code = 0;
        if (sample_token(&s, l, n, NULL, 0, NULL, c, &token, &e) < 0)
            token = UINT32_MAX;
        CHECK(token == plain, "token %u, first %u", token, plain);
    }
    CHECK(kept > 1000 && other > 500, "%d kept, %d not", kept, other);
    CHECK(!sample_keeps_first(&(struct sample_settings){.temp = 1, .repeat = 1}, 0));
    CHECK(!sample_keeps_first(&(struct sample_settings){.repeat = 1.1, .last_n = 8}, 0));
}

static void check_settings(struct sample_scratch *c)
{
    static const float l[4] = {NAN, -INFINITY, NAN, -INFINITY};
    static const uint32_t outside[] = {1, 4};
    struct sample_bias bias = {4, 1};
    struct sample_settings good, s;
    struct err e = {0};
    uint32_t t;

    sample_defaults(&good);
    CHECK_EQ(sample_check(&good, &e), 0);
    CHECK(good.temp == 0.8 && good.top_k == 40 && good.top_p == 0.95 && good.min_p == 0.05 &&
          good.last_n == 64 && good.repeat == 1);
#define REFUSED(change, word)                                                                      \
    do {                                                                                           \
        s = good;                                                                                  \
        e.code = 0;                                                                                \
        change;                                                                                    \
        CHECK(sample_check(&s, &e) < 0 && strstr(e.msg, word), "%s: '%s'", #change, e.msg);        \
    } while (0)
    REFUSED(s.temp = NAN, "temperature");
    REFUSED(s.temp = INFINITY, "temperature");
    REFUSED(s.top_p = -0.1, "top-p");
    REFUSED(s.top_p = NAN, "top-p");
    REFUSED(s.min_p = 1.5, "min-p");
    REFUSED(s.min_p = -1, "min-p");
    REFUSED(s.repeat = 0, "repeat");
    REFUSED(s.repeat = INFINITY, "repeat");
    REFUSED(s.frequency = NAN, "frequency");
    REFUSED(s.presence = -INFINITY, "presence");
    REFUSED(s.last_n = -2, "window");
    bias.value = NAN;
    REFUSED((s.bias = &bias, s.n_bias = 1), "bias of token 4");
    bias.value = 1;
    s = good;
    s.top_k = -5, s.top_p = 7;
    CHECK_EQ(sample_check(&s, &e), 0);

    e.code = 0;
    CHECK(sample_token(&good, l, 4, NULL, 0, NULL, c, &t, &e) < 0 && strstr(e.msg, "no token"));
    e.code = 0, s = good, s.bias = &bias, s.n_bias = 1;
    CHECK(sample_token(&s, l, 4, NULL, 0, NULL, c, &t, &e) < 0 && strstr(e.msg, "token 4"));
    e.code = 0, s = good, s.repeat = 2;
    CHECK(sample_token(&s, l, 4, outside, 2, NULL, c, &t, &e) < 0 && strstr(e.msg, "token 4"));
}

int main(void)
{
    struct sample_scratch c;
    struct err e = {0};

    philox();
    CHECK_EQ(sample_scratch_init(&c, MAX, &e), 0);
    whole_draws(&c);
    random_draws(&c);
    first_kept(&c);
    check_settings(&c);
    for (size_t i = 0; i < MAX; i++)
        CHECK(c.count[i] == 0 && c.member[i / 64] == 0);
    sample_scratch_free(&c);
    CHECK(sample_scratch_init(&c, (size_t)1 << 40, &e) < 0);
    return test_end();
}
