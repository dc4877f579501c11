#include "coordinator/draft/decode.h"

#include <assert.h>
#include <stdlib.h>

#include "shm/bell.h" /* now_ns */

int decode_open(struct decode *d, struct engine *en, const struct sample_settings *s, struct decode_options o,
                uint32_t *ids, size_t n_prompt, struct err *e)
{
    uint32_t most = engine_max_tokens(en) < engine_max_out(en) ? engine_max_tokens(en) : engine_max_out(en);

    *d = (struct decode){.en = en, .settings = s, .o = o, .ids = ids, .n = n_prompt, .given = n_prompt};
    if (d->o.drafts > engine_drafts(en))
        d->o.drafts = engine_drafts(en);
    if (d->o.drafts > DRAFT_PLACES)
        d->o.drafts = DRAFT_PLACES;
    if (d->o.drafts > most - 1) /* a step is a pass */
        d->o.drafts = most - 1;
    draft_pays_init(&d->pays, d->o.drafts);
    d->pass = malloc(engine_max_tokens(en) * sizeof *d->pass);
    d->rows = malloc(engine_max_tokens(en) * sizeof *d->rows);
    if (!d->pass || !d->rows)
        return err_set(e, -ENOMEM, "no memory for a pass of %u tokens", engine_max_tokens(en));
    for (uint32_t i = 0; i < engine_max_tokens(en); i++)
        d->rows[i] = i;
    return sample_scratch_init(&d->scratch, engine_model(en)->n_vocab, e);
}

void decode_close(struct decode *d)
{
    sample_scratch_free(&d->scratch);
    free(d->pass);
    free(d->rows);
    *d = (struct decode){0};
}

/* ---- the NextN block ---- */

static const float *draft_rows(struct decode *d, size_t from, uint32_t n, int wanted, enum step_pass pass,
                               const uint32_t *ids)
{
    uint32_t last = n - 1;
    struct step s = {.n_tokens = n, .n_out = wanted, .token = d->pass, .out = &last, .pass = pass};

    for (uint32_t i = 0; i < n; i++)
        d->pass[i] = (struct step_token){ids[i], (uint32_t)(from + i - d->base), 0};
    return engine_draft(d->en, &s);
}

/* The rows behind the trunk's last pass, as far as the tokens after them are known; and `wanted` drafts. */
static void make_drafts(struct decode *d, uint32_t wanted)
{
    size_t n_vocab = engine_model(d->en)->n_vocab, at = d->left_at, n_ctx = engine_n_ctx(d->en);
    size_t room = d->n < n_ctx ? n_ctx - d->n - 1 : 0; /* a step yields one token more than drafts */
    struct err none = {0};
    const float *logits;

    d->n_drafts = 0;
    if (!d->left)
        return;
    if (!d->rows_there) {
        d->rows_there = 1;
        d->base = at; /* of what was before nothing is left: a beginning */
    }
    if (wanted > room)
        wanted = (uint32_t)room;
    logits = draft_rows(d, at, d->left, wanted > 0, STEP_DRAFT, d->ids + at + 1);
    at += d->left;
    d->left = 0;
    while (d->n_drafts < wanted) {
        uint32_t *next = &d->ids[d->n + d->n_drafts]; /* beyond the known ones: a guess */
        if (sample_token(d->settings, logits, n_vocab, d->ids, d->n + d->n_drafts, NULL, &d->scratch, next, &none))
            break; /* no token is likely: no draft */
        d->draft[d->n_drafts++] = *next;
        if (d->n_drafts < wanted)
            logits = draft_rows(d, at++, 1, 1, STEP_CHAIN, next);
    }
}

/* Drafts for the next step, once all of this one is known. While the choice is between drafting and not, the
 * block keeps up with its rows; that time is no draft's. */
static void prepare_drafts(struct decode *d)
{
    int was_off = !d->rows_there, off;
    uint64_t start = now_ns();
    uint32_t wanted;
    double s;

    d->n_drafts = 0;
    if (!d->o.drafts)
        return;
    wanted = d->o.fixed ? d->o.drafts : draft_pays_next(&d->pays);
    off = !d->o.fixed && draft_pays_off(&d->pays);
    if (off)
        d->rows_there = 0;
    else
        make_drafts(d, wanted);
    s = (double)(now_ns() - start) * 1e-9;
    d->count.draft_s += s;
    d->count.went_off += off && !was_off;
    d->count.went_on += !off && was_off;
    if (!off && d->n_drafts == wanted)
        draft_pays_made(&d->pays, wanted, s);
}

/* ---- prompt ---- */

int decode_prompt(struct decode *d, int (*stop)(void), struct err *e)
{
    uint32_t most = engine_max_tokens(d->en);

    (void)e;
    if (d->o.kept >= d->n)
        d->o.kept = d->n ? d->n - 1 : 0;
    d->rows_there = d->o.drafts > 0 && !d->o.kept;
    for (size_t at = d->o.kept; at < d->n;) {
        struct step s = {.token = d->pass};
        uint32_t last;
        if (stop && stop())
            return 1;
        d->left_at = at;
        for (; s.n_tokens < most && at < d->n; at++)
            d->pass[s.n_tokens++] = (struct step_token){d->ids[at], (uint32_t)at, 0};
        last = s.n_tokens - 1;
        s.n_out = at == d->n;
        s.out = &last;
        s.best_only = sample_is_first(d->settings);
        d->waiting = engine_step(d->en, &s);
        d->left = s.n_tokens;
        if (at < d->n && d->o.drafts) /* the last pass's rows wait for the token after it */
            make_drafts(d, 0);
    }
    return 0;
}

/* ---- the answer ---- */

/* Of row `row` of the last step. */
static int sample(struct decode *d, const float *logits, uint32_t row, uint32_t *id, struct err *e)
{
    uint32_t first;

    if (engine_best(d->en, row, &first) && sample_keeps_first(d->settings, first)) {
        *id = first;
        return first == TOKEN_NONE ? sample_none(d->n, e) : 0;
    }
    logits += row * (size_t)engine_model(d->en)->n_vocab;
    return sample_token(d->settings, logits, engine_model(d->en)->n_vocab, d->ids, d->n, NULL, &d->scratch, id, e);
}

/* The token after the prompt. */
static int first(struct decode *d, struct err *e)
{
    uint32_t id;
    int rc = sample(d, d->waiting, 0, &id, e);

    if (rc)
        return rc;
    d->waiting = NULL;
    d->ids[d->n++] = id;
    prepare_drafts(d);
    return 0;
}

static int step(struct decode *d, struct err *e)
{
    size_t at = d->n - 1;
    uint32_t k = d->n_drafts, right = 0, id;
    struct step s = {.n_tokens = k + 1, .n_out = k + 1, .token = d->pass, .out = d->rows,
                     .best_only = sample_is_first(d->settings)};
    uint64_t start = now_ns();
    const float *logits;
    double seconds;

    d->pass[0] = (struct step_token){d->ids[at], (uint32_t)at, 0};
    for (uint32_t i = 0; i < k; i++)
        d->pass[1 + i] = (struct step_token){d->draft[i], (uint32_t)(at + 1 + i), 0};
    logits = engine_step(d->en, &s);
    seconds = (double)(now_ns() - start) * 1e-9;
    for (;; right++) {
        int rc = sample(d, logits, right, &id, e);
        if (rc && !right)
            return rc;
        if (rc) { /* what is known stands; the same error comes when this token is asked for */
            *e = (struct err){0};
            break;
        }
        d->ids[d->n++] = id;
        if (right == k || id != d->draft[right])
            break;
    }
    d->left_at = at;
    d->left = (uint32_t)(d->n - 1 - at);
    d->count.steps++;
    d->count.tokens += d->left;
    d->count.step_s += seconds;
    for (uint32_t j = 0; j < k && j <= right; j++) {
        d->count.drafted[j]++;
        d->count.right[j] += j < right;
    }
    draft_pays_note(&d->pays, k, right, seconds);
    prepare_drafts(d);
    return 0;
}

int decode_next(struct decode *d, uint32_t *id, struct err *e)
{
    int rc = 0;

    assert(d->given < engine_n_ctx(d->en));
    if (d->given == d->n)
        rc = d->waiting ? first(d, e) : step(d, e);
    if (!rc)
        *id = d->ids[d->given++];
    return rc;
}

double decode_yield(const struct decode *d)
{
    return d->count.steps ? (double)d->count.tokens / (double)d->count.steps : 0;
}

double decode_gain(const struct decode *d)
{
    const struct draft_mean *one = &d->pays.step[1];
    double all = d->count.step_s + d->count.draft_s;

    return d->count.drafted[0] && one->n && all > 0 ? (double)d->count.tokens / all * (one->sum / one->weight) : 0;
}
