#include "coordinator/draft/pays.h"


static void add(struct draft_mean *m, double x)
{
    static const double keep = 0.97857206208770013; /* 2^(-1/DRAFT_HALF) */

    m->sum = m->sum * keep + x;
    m->weight = m->weight * keep + 1;
    m->n += m->n < UINT32_MAX;
}

static double mean(const struct draft_mean *m)
{
    return m->weight > 0 ? m->sum / m->weight : 0;
}

void draft_pays_init(struct draft_pays *p, uint32_t most)
{
    *p = (struct draft_pays){.most = most < DRAFT_PLACES ? most : DRAFT_PLACES, .review = DRAFT_REVIEW};
    p->now = p->most ? 1 : 0;
}

void draft_pays_made(struct draft_pays *p, uint32_t k, double seconds)
{
    if (k <= DRAFT_PLACES)
        add(&p->draft[k], seconds);
}

void draft_pays_note(struct draft_pays *p, uint32_t k, uint32_t accepted, double seconds)
{
    if (k > DRAFT_PLACES)
        return;
    add(&p->step[k + 1], seconds);
    for (uint32_t j = 1; j <= k && j <= accepted + 1; j++) /* behind the first wrong one nobody looked */
        add(&p->right[j], j <= accepted);
    p->since++;
    if (p->trial_left)
        p->trial_left--;
}

double draft_pays_tokens(const struct draft_pays *p, uint32_t k)
{
    double all = 1, path = 1;

    for (uint32_t j = 1; j <= k; j++)
        all += path *= mean(&p->right[j]);
    return all;
}

static int known(const struct draft_pays *p, uint32_t k)
{
    return p->step[k + 1].n >= DRAFT_LEAST && (!k || p->draft[k].n >= DRAFT_LEAST);
}

double draft_pays_rate(const struct draft_pays *p, uint32_t k)
{
    double s = mean(&p->step[k + 1]) + (k ? mean(&p->draft[k]) : 0);

    return known(p, k) && s > 0 ? draft_pays_tokens(p, k) / s : 0;
}

/* From here on k's times are those of the trial: what was measured before is of another mix. */
static uint32_t try(struct draft_pays *p, uint32_t k)
{
    if (k != p->now) {
        p->step[k + 1] = (struct draft_mean){0};
        p->draft[k] = (struct draft_mean){0};
    }
    p->trial = k;
    p->trial_left = DRAFT_LEAST;
    return k;
}

/* The best of those that are known, if it is better by the margin. */
static void settle(struct draft_pays *p)
{
    uint32_t best = p->now;

    for (uint32_t k = 0; k <= p->most; k++)
        if (draft_pays_rate(p, k) > draft_pays_rate(p, best))
            best = k;
    if (draft_pays_rate(p, best) <= DRAFT_MARGIN * draft_pays_rate(p, p->now))
        return;
    p->now = best;
    p->review = DRAFT_REVIEW;
    p->since = 0;
}

uint32_t draft_pays_next(struct draft_pays *p)
{
    if (!p->most)
        return 0;
    if (p->trial_left)
        return p->trial;
    if (!known(p, 1))
        return try(p, 1);
    if (!known(p, 0))
        return try(p, 0);
    settle(p);
    if (p->now && p->now < p->most && !known(p, p->now + 1))
        return try(p, p->now + 1);
    if (p->since < p->review)
        return p->now;
    p->since = 0;
    if (p->review < DRAFT_REVIEW_MOST)
        p->review *= 2;
    p->upward = !p->upward;
    if (!p->now || (p->upward && p->now < p->most))
        return try(p, p->now + 1);
    return try(p, p->now - 1);
}

int draft_pays_off(const struct draft_pays *p)
{
    return !p->now && !p->trial_left && known(p, 0);
}
