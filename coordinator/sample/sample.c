/* Rule 37, step by step, without a sort of the vocabulary: sums go by ascending id, and of the
 * order only a first part is ever made. The step numbers in the comments are the rule's. */
#include "coordinator/sample/sample.h"

#include "coordinator/sample/philox.h"
#include "kernels/func/func.h"
#include "kernels/topk/topk.h"
#include "shm/size.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void sample_defaults(struct sample_settings *s)
{
    *s = (struct sample_settings){
        .temp = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05, .repeat = 1, .last_n = 64};
}

int sample_check(const struct sample_settings *s, struct err *e)
{
    float temp = (float)s->temp, repeat = (float)s->repeat;

    if (!isfinite(temp))
        return err_set(e, -EINVAL, "temperature must be a finite number, not %g", s->temp);
    if (!(s->top_p >= 0))
        return err_set(e, -EINVAL, "top-p must be 0 or more (1 turns it off), not %g", s->top_p);
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return err_set(e, -EINVAL, "min-p must be from 0 (off) to 1, not %g", s->min_p);
    if (!(repeat > 0 && isfinite(repeat)))
        return err_set(e, -EINVAL,
                       "repeat penalty must be above 0 and finite (1 turns it off), "
                       "not %g",
                       s->repeat);
    if (!isfinite((float)s->frequency))
        return err_set(e, -EINVAL, "frequency penalty must be a finite number, not %g",
                       s->frequency);
    if (!isfinite((float)s->presence))
        return err_set(e, -EINVAL, "presence penalty must be a finite number, not %g", s->presence);
    if (s->last_n < -1)
        return err_set(e, -EINVAL,
                       "the penalties' window must be -1 (all tokens), 0 (off) or a "
                       "number of tokens, not %d",
                       s->last_n);
    for (size_t i = 0; i < s->n_bias; i++)
        if (isnan(s->bias[i].value))
            return err_set(e, -EINVAL, "the bias of token %u is not a number", s->bias[i].token);
    return 0;
}

int sample_scratch_init(struct sample_scratch *scratch, size_t n_vocab, struct err *e)
{
    enum { ARRAYS = 10 };
    size_t row = round_up(n_vocab, 16) * 4, bits = round_up(n_vocab, 64) / 8, bytes;
    uint32_t **const ints[] = {&scratch->id,     &scratch->near,  &scratch->order, &scratch->key[0],
                               &scratch->key[1], &scratch->other, &scratch->count};
    char *at;

    memset(scratch, 0, sizeof *scratch);
    if (n_vocab > UINT32_MAX / 4 || size_mul(row, ARRAYS, &bytes) || size_add(bytes, bits, &bytes))
        return err_set(e, -EOVERFLOW, "a vocabulary of %zu tokens is too large", n_vocab);
    at = scratch->memory = calloc(1, bytes);
    if (!at)
        return err_set(e, -ENOMEM, "no memory to sample from %zu tokens", n_vocab);
    scratch->n_vocab = n_vocab;
    scratch->logit = (float *)(void *)at;
    scratch->value = (float *)(void *)(at + row);
    scratch->weight = (float *)(void *)(at + 2 * row);
    for (size_t i = 0; i < ARRAYS - 3; i++)
        *ints[i] = (uint32_t *)(void *)(at + (3 + i) * row);
    scratch->member = (uint64_t *)(void *)(at + ARRAYS * row);
    return 0;
}

void sample_scratch_free(struct sample_scratch *scratch)
{
    free(scratch->memory);
    memset(scratch, 0, sizeof *scratch);
}

/* 1 */
static int add_bias(const struct sample_settings *s, float *l, size_t n, struct err *e)
{
    for (size_t i = 0; i < s->n_bias; i++) {
        uint32_t t = s->bias[i].token;

        if (t >= n)
            return err_set(e, -EINVAL, "a bias names token %u, the vocabulary has %zu tokens", t,
                           n);
        l[t] += (float)s->bias[i].value;
    }
    return 0;
}

/* 2 */
static void remove_forbidden(const uint64_t *allowed, float *l, size_t n)
{
    for (size_t base = 0; base < n; base += 64) {
        uint64_t gone = ~allowed[base / 64];

        for (; gone && base + (size_t)__builtin_ctzll(gone) < n; gone &= gone - 1)
            l[base + (size_t)__builtin_ctzll(gone)] = NAN;
    }
}

static int penalties_on(const struct sample_settings *s)
{
    return s->last_n != 0 &&
           ((float)s->repeat != 1 || (float)s->frequency != 0 || (float)s->presence != 0);
}

/* 3; before: the window's n tokens, all inside the vocabulary */
static void penalise(const struct sample_settings *s, const uint32_t *before, size_t n,
                     uint32_t *count, float *l)
{
    float r = (float)s->repeat, f = (float)s->frequency, p = (float)s->presence;

    for (size_t i = 0; i < n; i++)
        count[before[i]]++;
    for (size_t i = 0; i < n; i++) {
        uint32_t t = before[i];
        float part;

        if (!count[t])
            continue; /* done at an earlier place */
        part = (float)count[t] * f;
        l[t] = l[t] <= 0.0f ? l[t] * r : l[t] / r;
        l[t] = l[t] - (part + p);
        count[t] = 0;
    }
}

/* Steps 1 to 3. *row = the logits, as they are or in the scratch. */
static int adjust(const struct sample_settings *s, const float *logits, size_t n,
                  const uint32_t *before, size_t n_before, const uint64_t *allowed,
                  struct sample_scratch *scratch, const float **row, struct err *e)
{
    size_t window = s->last_n < 0 || (size_t)s->last_n > n_before ? n_before : (size_t)s->last_n;
    int rc;

    *row = logits;
    if (!s->n_bias && !allowed && !penalties_on(s))
        return 0;
    *row = scratch->logit;
    memcpy(scratch->logit, logits, n * sizeof *logits);
    if ((rc = add_bias(s, scratch->logit, n, e)) < 0)
        return rc;
    if (allowed)
        remove_forbidden(allowed, scratch->logit, n);
    if (!penalties_on(s))
        return 0;
    before += n_before - window;
    for (size_t i = 0; i < window; i++)
        if (before[i] >= n)
            return err_set(e, -EINVAL, "token %u was read, the vocabulary has %zu tokens",
                           before[i], n);
    penalise(s, before, window, scratch->count, scratch->logit);
    return 0;
}

/* order = positions of value[0 ... n-1] in the order of rule 26, by three stable passes of 11 bits
 */
static void sort_order(struct sample_scratch *c, const float *value, size_t n)
{
    enum { DIGIT = 11, SIZE = 1 << DIGIT };
    uint32_t *key = c->key[0], *key2 = c->key[1], *pos = c->other, *pos2 = c->order, *t;

    if (n <= 64) {
        order_topk(value, (uint32_t)n, (uint32_t)n, c->order);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        key[i] = ~((uint32_t)order_key(value[i]) ^ 0x80000000u); /* ascending: largest first */
        pos[i] = (uint32_t)i;
    }
    for (int shift = 0; shift < 32; shift += DIGIT) { /* the result ends in order: 3 passes */
        uint32_t at[SIZE] = {0}, sum = 0;

        for (size_t i = 0; i < n; i++)
            at[key[i] >> shift & (SIZE - 1)]++;
        for (size_t d = 0; d < SIZE; d++) {
            uint32_t here = at[d];

            at[d] = sum;
            sum += here;
        }
        for (size_t i = 0; i < n; i++) {
            uint32_t to = at[key[i] >> shift & (SIZE - 1)]++;

            key2[to] = key[i];
            pos2[to] = pos[i];
        }
        t = key, key = key2, key2 = t;
        t = pos, pos = pos2, pos2 = t;
    }
}

/* id = the ids of order[0 ... n-1], ascending */
static void by_id(struct sample_scratch *c, const uint32_t *order, size_t n)
{
    size_t found = 0, words = (c->n_vocab + 63) / 64;

    for (size_t i = 0; i < n; i++)
        c->member[order[i] / 64] |= (uint64_t)1 << order[i] % 64;
    for (size_t w = 0; w < words && found < n; w++) {
        for (uint64_t bits = c->member[w]; bits; bits &= bits - 1)
            c->id[found++] = (uint32_t)(64 * w) + (uint32_t)__builtin_ctzll(bits);
        c->member[w] = 0;
    }
}

/* 6: value = d of the n ids, 0 for the largest even where it is infinite */
static void differences(const float *l, float m, const uint32_t *id, size_t n, float *value)
{
    for (size_t i = 0; i < n; i++)
        value[i] = l[id[i]] == m ? 0.0f : l[id[i]] - m;
}

static double chain(const float *w, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)w[i];
    return sum;
}

/* How many of the order's first n stay: up to the first whose partial sum reaches enough. n + 1:
 * none does. */
static size_t reach(const float *w, size_t n, double enough)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += (double)w[i];
        if (sum >= enough)
            return i + 1;
    }
    return n + 1;
}

/* 8 where step 7 made an order: c->order holds n ids of it. Returns how many stay. */
static size_t top_p_ordered(struct sample_scratch *c, const float *l, float m, float p, size_t n)
{
    double enough;
    size_t stay;

    by_id(c, c->order, n);
    differences(l, m, c->id, n, c->value);
    vec_exp(c->value, c->weight, n);
    enough = (double)p * chain(c->weight, n);
    differences(l, m, c->order, n, c->value);
    vec_exp(c->value, c->weight, n);
    stay = reach(c->weight, n, enough);
    return stay > n ? n : stay;
}

/* 8 without an order: c->id holds the n ids left. The order is made of the ids whose d is at least
 * -depth, which are its first part, and of more of them until the sum is reached. Returns how many
 * stay; where that is fewer than n, c->order holds them. */
static size_t top_p_search(struct sample_scratch *c, const float *l, float m, float p, size_t n)
{
    const float all = 104; /* beyond it a weight is 0 and cannot help to reach the sum */
    double enough;

    differences(l, m, c->id, n, c->value);
    vec_exp(c->value, c->weight, n);
    enough = (double)p * chain(c->weight, n);
    for (float depth = 4;; depth *= 2) {
        size_t near = 0, stay;

        differences(l, m, c->id, n, c->weight);
        for (size_t i = 0; i < n; i++)
            if (c->weight[i] >= -depth) {
                c->value[near] = l[c->id[i]];
                c->near[near++] = c->id[i];
            }
        sort_order(c, c->value, near);
        for (size_t i = 0; i < near; i++)
            c->order[i] = c->near[c->order[i]];
        differences(l, m, c->order, near, c->value);
        vec_exp(c->value, c->weight, near);
        stay = reach(c->weight, near, enough);
        if (stay <= near)
            return stay;
        if (depth > all)
            return n;
    }
}

/* 9: drops ids whose weight is below q */
static size_t min_p(struct sample_scratch *c, float q, size_t n)
{
    size_t stay = 0;

    vec_exp(c->value, c->weight, n);
    for (size_t i = 0; i < n; i++)
        if (c->weight[i] >= q) {
            c->id[stay] = c->id[i];
            c->value[stay++] = c->value[i];
        }
    return stay;
}

/* 10 and 11: c->id holds n ids, ascending, c->value their d */
static uint32_t draw(struct sample_scratch *c, float temp, double u, size_t n, double *sum)
{
    double x, part = 0;

    for (size_t i = 0; i < n; i++)
        c->value[i] /= temp;
    vec_exp(c->value, c->weight, n);
    *sum = chain(c->weight, n);
    x = u * *sum;
    for (size_t i = 0; i < n; i++) {
        part += (double)c->weight[i];
        if (part > x)
            return c->id[i];
    }
    assert(!"u < 1, so a partial sum exceeds u * S");
    return c->id[n - 1];
}

/* 4: c->id = the ids that are neither NaN nor -inf, or their number alone */
static size_t list_left(const float *l, size_t n, uint32_t *id)
{
    size_t left = 0;

    for (size_t i = 0; i < n; i++)
        if (l[i] > -INFINITY) {
            if (id)
                id[left] = (uint32_t)i;
            left++;
        }
    return left;
}

int sample_is_first(const struct sample_settings *s)
{
    return s->temp <= 0 && !s->n_bias && !penalties_on(s);
}

int sample_keeps_first(const struct sample_settings *s, uint32_t first)
{
    if (s->temp > 0 || penalties_on(s))
        return 0;
    for (size_t i = 0; i < s->n_bias; i++)
        if (!(s->bias[i].value <= 0) || s->bias[i].token == first)
            return 0;
    return 1;
}

int sample_none(size_t n_before, struct err *e)
{
    return err_set(e, -EDOM,
                   "no token is left to choose at position %zu: every logit is NaN, "
                   "-inf or forbidden",
                   n_before);
}

int sample_token(const struct sample_settings *s, const float *logits, size_t n_vocab,
                 const uint32_t *before, size_t n_before, const uint64_t *allowed_bits,
                 struct sample_scratch *c, uint32_t *token, struct err *e)
{
    float temp = (float)s->temp, p = (float)s->top_p, q = (float)s->min_p, m;
    int draws = temp > 0, ordered = draws && s->top_k > 0 && (size_t)s->top_k < n_vocab;
    struct sample_trace trace = {0};
    size_t left, stay;
    const float *l;
    int rc;

    assert(n_vocab <= c->n_vocab);
    if ((rc = adjust(s, logits, n_vocab, before, n_before, allowed_bits, c, &l, e)) < 0)
        return rc;
    left = ordered ? (size_t)s->top_k : n_vocab > 0;
    order_topk(l, (uint32_t)n_vocab, (uint32_t)left, c->order);
    while (left && !(l[c->order[left - 1]] > -INFINITY))
        left--;
    if (!left)
        return sample_none(n_before, e);
    m = l[c->order[0]];
    if (c->trace)
        trace.left[0] = list_left(l, n_vocab, NULL);
    *token = c->order[0]; /* 5 */
    if (draws) {
        if (!ordered) /* 7 */
            left = list_left(l, n_vocab, c->id);
        trace.left[1] = stay = left;
        if (p < 1) /* 8 */
            stay = ordered ? top_p_ordered(c, l, m, p, left) : top_p_search(c, l, m, p, left);
        trace.left[2] = stay;
        if (ordered || stay < left)
            by_id(c, c->order, stay);
        differences(l, m, c->id, stay, c->value);
        if (q > 0)
            stay = min_p(c, q, stay);
        trace.left[3] = stay;
        trace.u = philox_uniform(s->seed, n_before, s->choice);
        *token = draw(c, temp, trace.u, stay, &trace.sum);
    }
    if (c->trace)
        *c->trace = trace;
    return 0;
}
