/* Lays out passes and cuts them. */
#include "cpu-worker/job.h"

#include <stdlib.h>
#include <string.h>

int cut_jobs_init(struct jobs *js, const struct geometry *g, struct err *e)
{
    memset(js, 0, sizeof *js);
    js->job = calloc((size_t)g->max_items * g->n_nodes, sizeof *js->job);
    js->token = calloc((size_t)g->max_pairs * g->n_nodes, sizeof *js->token);
    return js->job && js->token
               ? 0
               : err_set(e, -ENOMEM, "no memory for %u items a pass", g->max_items);
}

void cut_jobs_drop(struct jobs *js)
{
    free(js->job);
    free(js->token);
    memset(js, 0, sizeof *js);
}

static void set_parts(struct job *j, const struct maps *m, const struct layer *l,
                      const struct call *c, const struct pass_item *it)
{
    uint32_t expert = c->items[it->item].expert;
    const float *scale = table_scale(m->tables, &m->g, c->head.layer, expert);

    for (int mat = 0; mat < N_MATS; mat++)
        j->part[mat] = (struct expert_part){.type = l->m[mat].type,
                                            .w = maps_rows(m, l, it->share, it->place, expert, mat),
                                            .row_bytes = l->m[mat].row_bytes,
                                            .scale = l->has_scale ? scale[mat] : 1};
}

static void set_stage(struct jobs *js, struct job *j, enum stage stage, const struct cut *cut,
                      uint64_t row_bytes)
{
    j->r0[stage] = cut->r0;
    j->n_rows[stage] = cut->n_rows;
    j->units[stage] = (cut->n_rows + ROW_UNIT - 1) / ROW_UNIT;
    j->unit_cost[stage] = ROW_UNIT * row_bytes * (1 + (uint64_t)j->n_pairs);
    j->before[stage] = js->cost[stage];
    js->cost[stage] += j->units[stage] * j->unit_cost[stage];
}

static void set_pairs(struct jobs *js, struct job *j, const struct call *c, uint32_t item)
{
    uint32_t *token = js->token + js->n_pairs;

    j->pair = c->pairs + c->items[item].pair0;
    j->n_pairs = c->items[item].n_pairs;
    j->pair0 = js->n_pairs;
    j->token = token;
    for (uint32_t p = 0; p < j->n_pairs; p++)
        token[p] = j->pair[p].token;
    js->n_pairs += j->n_pairs;
    if (j->n_pairs > js->most_pairs)
        js->most_pairs = j->n_pairs;
}

void cut_jobs_lay_out(struct jobs *js, const struct maps *m, const struct pass *p)
{
    const struct call *c = p->call;
    const struct layer *l = &m->layer[c->head.layer];

    js->n = p->n;
    js->n_pairs = js->most_pairs = 0;
    js->cost[STAGE_ONE] = js->cost[STAGE_TWO] = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct pass_item *it = &p->item[i];
        struct job *j = &js->job[i];
        set_parts(j, m, l, c, it);
        set_pairs(js, j, c, it->item);
        if (p->stage_one)
            set_stage(js, j, STAGE_ONE, &l->m[MAT_GATE].cut[it->share],
                      l->m[MAT_GATE].row_bytes + l->m[MAT_UP].row_bytes);
        if (p->stage_two)
            set_stage(js, j, STAGE_TWO, &l->m[MAT_DOWN].cut[it->share], l->m[MAT_DOWN].row_bytes);
        if (p->stage_one) /* one node: the whole intermediate is ours */
            j->inter[0] = outbox_inter(&m->g, m->out, c->head.seq);
        else
            memcpy(j->inter, it->inter, sizeof j->inter);
    }
}

/* The first unit of the job that begins at that cost or after. Both neighbours of a cut compute the
 * same number. */
static uint32_t unit_at(const struct job *j, enum stage stage, uint64_t cost)
{
    uint64_t u;

    if (cost <= j->before[stage])
        return 0;
    u = (cost - j->before[stage] + j->unit_cost[stage] - 1) / j->unit_cost[stage];
    return u < j->units[stage] ? (uint32_t)u : j->units[stage];
}

int job_rows(const struct job *j, enum stage stage, uint64_t from, uint64_t to, uint32_t *r0, uint32_t *r1)
{
    if (!j->units[stage] || j->before[stage] >= to ||
        j->before[stage] + j->units[stage] * j->unit_cost[stage] <= from)
        return 0;
    *r0 = unit_at(j, stage, from) * ROW_UNIT;
    *r1 = unit_at(j, stage, to) * ROW_UNIT;
    if (*r1 > j->n_rows[stage])
        *r1 = j->n_rows[stage];
    return *r0 < *r1;
}
