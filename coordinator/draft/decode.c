#include "coordinator/draft/decode.h"

#include <assert.h>
#include <stdlib.h>

#include "shm/bell.h" /* now_ns */

int decode_open(struct decode *d, struct engine *en, const struct sample_settings *s, struct decode_options o,
                uint32_t *ids, size_t n_prompt, struct err *e)
{
    *d = (struct decode){.en = en};
    d->pass = malloc(engine_max_tokens(en) * sizeof *d->pass);
    d->rows = malloc(engine_max_tokens(en) * sizeof *d->rows);
    if (!d->pass || !d->rows)
        return err_set(e, -ENOMEM, "no memory for a pass of %u tokens", engine_max_tokens(en));
    d->pays = o.pays ? o.pays : &d->own_pays;
    decode_begin(d, s, o, ids, n_prompt);
    if (!o.pays)
        draft_pays_init(d->pays, d->o.drafts);
    d->scratch = o.scratch ? o.scratch : &d->own_scratch;
    return o.scratch ? 0 : sample_scratch_init(d->scratch, engine_model(en)->n_vocab, e);
}

uint32_t decode_most_drafts(const struct engine *en, uint32_t wanted)
{
    uint32_t most = engine_max_tokens(en) < engine_max_out(en) ? engine_max_tokens(en) : engine_max_out(en);

    if (wanted > engine_drafts(en))
        wanted = engine_drafts(en);
    if (wanted > DRAFT_PLACES)
        wanted = DRAFT_PLACES;
    return wanted > most - 1 ? most - 1 : wanted; /* a step is a pass */
}

void decode_begin(struct decode *d, const struct sample_settings *s, struct decode_options o, uint32_t *ids,
                  size_t n_prompt)
{
    d->settings = s;
    d->o = o;
    d->o.drafts = decode_most_drafts(d->en, o.drafts);
    d->ids = ids;
    d->n = d->given = d->n_prompt = n_prompt;
    d->fed = o.kept < n_prompt ? o.kept : n_prompt ? n_prompt - 1 : 0;
    d->ended = 0;
    grammar_close(d->guess);
    d->guess = NULL;
    d->waiting = NULL;
    d->n_drafts = d->left = 0;
    d->rows_there = d->o.drafts > 0 && !d->fed;
    d->base = 0;
    d->count = (struct decode_count){0};
    engine_foresee(d->en, ids, n_prompt, d->fed, o.seq);
}

void decode_close(struct decode *d)
{
    grammar_close(d->guess);
    sample_scratch_free(&d->own_scratch);
    free(d->pass);
    free(d->rows);
    *d = (struct decode){0};
}

/* ---- the NextN block ---- */

static const float *draft_rows(struct decode *d, size_t from, uint32_t n, int wanted, enum step_pass pass,
                               const uint32_t *ids)
{
    uint32_t last = n - 1;
    struct step s = {.n_tokens = n, .n_out = wanted, .token = d->pass, .out = &last, .pass = pass,
                     .best_only = sample_is_first(d->settings) && !d->o.grammar};

    for (uint32_t i = 0; i < n; i++)
        d->pass[i] = (struct step_token){ids[i], (uint32_t)(from + i - d->base), d->o.seq};
    return engine_draft(d->en, &s);
}

/* A guess for the token after n known and guessed ones, by the rules of tokens that are not guesses. 1: there is none. */
static int guess(struct decode *d, const float *logits, size_t n)
{
    const uint64_t *allowed = NULL;
    struct err none = {0};

    if (!d->o.grammar && engine_best(d->en, 0, &d->ids[n]) && sample_keeps_first(d->settings, d->ids[n]))
        return d->ids[n] == TOKEN_NONE;
    if (d->guess && !(allowed = grammar_allowed(d->guess, &none)))
        return 1;
    if (sample_token(d->settings, logits, engine_model(d->en)->n_vocab, d->ids, n, allowed, d->scratch, &d->ids[n], &none))
        return 1;
    return d->guess && grammar_accept(d->guess, d->ids[n], &none);
}

/* Guesses obey the grammar too, from where it is now. 0: they cannot. */
static int guess_begin(struct decode *d)
{
    struct err none = {0};

    if (!d->o.grammar)
        return 1;
    if (!d->guess && grammar_clone(d->o.grammar, &d->guess, &none))
        return 0;
    grammar_set(d->guess, d->o.grammar);
    return 1;
}

/* The rows behind the trunk's last pass, as far as the tokens after them are known; and `wanted` drafts. */
static void make_drafts(struct decode *d, uint32_t wanted)
{
    size_t at = d->left_at, n_ctx = engine_n_ctx(d->en);
    size_t room = d->n < n_ctx ? n_ctx - d->n - 1 : 0; /* a step yields one token more than drafts */
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
    if (wanted && !guess_begin(d))
        wanted = 0;
    logits = draft_rows(d, at, d->left, wanted > 0, STEP_DRAFT, d->ids + at + 1);
    at += d->left;
    d->left = 0;
    while (logits && d->n_drafts < wanted) {
        uint32_t *next = &d->ids[d->n + d->n_drafts]; /* beyond the known ones */
        if (guess(d, logits, d->n + d->n_drafts))
            break; /* no token is likely: no draft */
        d->draft[d->n_drafts++] = *next;
        if (d->n_drafts < wanted)
            logits = draft_rows(d, at++, 1, 1, STEP_CHAIN, next);
    }
    d->rows_there = logits != NULL; /* else they begin anew behind the next step */
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
    if (!d->o.drafts || d->ended)
        return;
    wanted = d->o.fixed ? d->o.drafts : draft_pays_next(d->pays);
    off = !d->o.fixed && draft_pays_off(d->pays);
    if (off)
        d->rows_there = 0;
    else
        make_drafts(d, wanted);
    s = (double)(now_ns() - start) * 1e-9;
    d->count.draft_s += s;
    d->count.went_off += off && !was_off;
    d->count.went_on += !off && was_off;
    if (!off && d->n_drafts == wanted)
        draft_pays_made(d->pays, wanted, s);
}

/* The trunk's pass over n tokens from position at. In a step that is shared the block cannot follow. */
static void note_left(struct decode *d, size_t at, size_t n, int alone)
{
    d->left_at = at;
    d->left = alone ? (uint32_t)n : 0;
    if (!alone) {
        d->rows_there = 0;
        d->n_drafts = 0;
    }
}

/* ---- one token ---- */

/* From row `row` of the last step. */
static int sample(struct decode *d, const float *logits, uint32_t row, uint32_t *id, struct err *e)
{
    const uint64_t *allowed = NULL;
    uint32_t first;

    if (d->o.grammar && !(allowed = grammar_allowed(d->o.grammar, e)))
        return e->code;
    if (!allowed && engine_best(d->en, row, &first) && sample_keeps_first(d->settings, first)) {
        *id = first;
        return first == TOKEN_NONE ? sample_none(d->n, e) : 0;
    }
    return sample_token(d->settings, logits, engine_model(d->en)->n_vocab, d->ids, d->n, allowed, d->scratch, id, e);
}

/* Appended, told. */
static int append(struct decode *d, const float *logits, uint32_t id, struct err *e)
{
    int rc = d->o.grammar ? grammar_accept(d->o.grammar, id, e) : 0;

    if (rc)
        return rc;
    d->ids[d->n++] = id;
    rc = d->o.chosen ? d->o.chosen(d->o.arg, id, logits, e) : 0;
    d->ended = rc > 0 || (d->o.grammar && grammar_ended(d->o.grammar));
    return rc < 0 ? rc : 0;
}

/* ---- a step ---- */

int decode_waits(const struct decode *d)
{
    return d->waiting != NULL;
}

size_t decode_prompt_left(const struct decode *d)
{
    return d->fed < d->n_prompt ? d->n_prompt - d->fed : 0;
}

uint32_t decode_put(struct decode *d, struct decode_pass *p, uint32_t most, uint32_t drafts)
{
    size_t left = decode_prompt_left(d);
    uint32_t k = d->n_drafts < drafts ? d->n_drafts : drafts;

    d->row = p->n_out;
    d->put = left ? left < most ? (uint32_t)left : most : 1 + k;
    for (uint32_t i = 0; i < d->put; i++) {
        size_t at = d->fed + i;
        if (!left || at + 1 == d->n_prompt)
            p->out[p->n_out++] = p->n;
        p->token[p->n++] = (struct step_token){at < d->n ? d->ids[at] : d->draft[at - d->n], (uint32_t)at, d->o.seq};
    }
    if (p->n_out > d->row)
        p->best_only &= sample_is_first(d->settings) && !d->o.rows && !d->o.grammar;
    return d->put;
}

static void take_prompt(struct decode *d, const float *logits, int alone)
{
    note_left(d, d->fed, d->put, alone);
    d->fed += d->put;
    if (d->fed == d->n_prompt)
        d->waiting = logits;
    else if (alone && d->o.drafts) /* the last pass's rows wait for the token after it */
        make_drafts(d, 0);
}

static void count_step(struct decode *d, uint32_t k, uint32_t right, size_t tokens, double seconds, int alone)
{
    for (uint32_t j = 0; j < k && j <= right; j++) {
        d->count.drafted[j]++;
        d->count.right[j] += j < right;
    }
    d->count.steps++;
    d->count.tokens += tokens;
    d->count.step_s += seconds;
    if (alone && !d->ended)
        draft_pays_note(d->pays, k, right, seconds);
}

int decode_take(struct decode *d, const float *logits, double seconds, int alone, struct err *e)
{
    size_t at = d->fed;
    uint32_t k = d->put - 1, right = 0, id;

    logits += d->row * (size_t)engine_model(d->en)->n_vocab;
    if (decode_prompt_left(d)) {
        take_prompt(d, logits, alone);
        return 0;
    }
    for (;; right++) {
        const float *row = logits + right * (size_t)engine_model(d->en)->n_vocab;
        int rc = sample(d, row, d->row + right, &id, e);
        if (rc && !right)
            return rc;
        if (rc) { /* what is known stands; the same error comes when this token is asked for */
            *e = (struct err){0};
            break;
        }
        if ((rc = append(d, row, id, e)))
            return rc;
        if (d->ended || right == k || id != d->draft[right])
            break;
    }
    d->fed = d->n - 1;
    note_left(d, at, d->fed - at, alone);
    count_step(d, k, right, d->fed - at, seconds, alone);
    if (alone)
        prepare_drafts(d);
    return 0;
}

int decode_first(struct decode *d, int alone, struct err *e)
{
    uint32_t id;
    int rc = sample(d, d->waiting, d->row, &id, e);

    if (rc || (rc = append(d, d->waiting, id, e)))
        return rc;
    d->waiting = NULL;
    if (alone)
        prepare_drafts(d);
    return 0;
}

/* ---- alone ---- */

/* One step, of at most `most` tokens of a prompt. */
static int step(struct decode *d, uint32_t most, struct err *e)
{
    struct decode_pass p = {.token = d->pass, .out = d->rows, .best_only = 1};
    uint64_t start = now_ns();
    const float *logits;

    decode_put(d, &p, most, d->o.drafts);
    struct step s = {.n_tokens = p.n, .n_out = p.n_out, .token = p.token, .out = p.out, .best_only = p.best_only};
    logits = engine_step(d->en, &s);
    return decode_take(d, logits, (double)(now_ns() - start) * 1e-9, 1, e);
}

int decode_prompt(struct decode *d, int (*stop)(void), struct err *e)
{
    while (decode_prompt_left(d)) {
        int rc;
        if (stop && stop())
            return 1;
        if ((rc = step(d, engine_max_tokens(d->en), e)))
            return rc;
    }
    return 0;
}

int decode_next(struct decode *d, uint32_t *id, struct err *e)
{
    int rc = 0;

    assert(d->given < engine_n_ctx(d->en));
    if (d->given == d->n)
        rc = d->waiting ? decode_first(d, 1, e) : step(d, 0, e);
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
    const struct draft_mean *one = &d->pays->step[1];
    double all = d->count.step_s + d->count.draft_s;

    return d->count.drafted[0] && one->n && all > 0 ? (double)d->count.tokens / all * (one->sum / one->weight) : 0;
}
