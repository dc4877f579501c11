/* Turns a pass into kernel calls. Meetings of the threads: between the stages, if the pass has
 * both; and where there are many tokens, after the activations and after the intermediate were
 * prepared by all together. A token's decode has one. */
#include "cpu-worker/work.h"

#include <stdlib.h>
#include <string.h>

static void *array(size_t bytes) /* NULL: no memory */
{
    return aligned_alloc(64, (bytes + 64) & ~(size_t)63);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Which operand forms the layers want, and how large they are. */
static void measure(struct work *w)
{
    const struct maps *m = w->m;

    for (uint32_t i = 0; i < m->g.n_layers; i++) {
        const struct layer *l = &m->layer[i];
        if (!l->n_experts)
            continue;
        for (int j = 0; j < N_MATS; j++) {
            size_t *stride = j == MAT_DOWN ? w->mid_stride : w->x_stride;
            enum act_form f = l->m[j].act;
            stride[f] = larger(stride[f], act_stride(f, l->m[j].cols));
        }
    }
}

int work_init(struct work *w, const struct maps *m, int n_threads, struct err *e)
{
    const struct geometry *g = &m->g;
    size_t pairs = (size_t)g->max_pairs * g->n_nodes, mid = 0;
    int ok;

    memset(w, 0, sizeof *w);
    w->m = m;
    w->n_threads = n_threads;
    w->chunk = larger(larger(CHUNK_FLOATS, g->n_ff), (size_t)ROW_UNIT * g->max_tokens);
    measure(w);
    for (int f = 0; f < N_FORMS; f++)
        mid = larger(mid, w->mid_stride[f]);
    w->scratch = calloc((size_t)n_threads, sizeof *w->scratch);
    w->mid = array(pairs * mid);
    ok = !cut_jobs_init(&w->jobs, g, e) && w->scratch && w->mid;
    for (int i = 0; ok && i < N_STAGES; i++)
        ok = !runs_init(&w->runs[i], n_threads, e);
    for (int i = 0; ok && i < n_threads; i++) {
        struct scratch *s = &w->scratch[i];
        s->tmp = array(2 * w->chunk * sizeof(float));
        s->out = array(w->chunk * sizeof(float));
        s->row = array(g->n_ff * sizeof(float));
        s->mid = array(FEW_PAIRS * mid);
        ok = s->tmp && s->out && s->row && s->mid;
    }
    for (int half = 0; half < (int)CALLS_IN_FLIGHT; half++)
        for (int f = 0; ok && f < N_FORMS; f++)
            if (w->x_stride[f])
                ok = (w->x[half][f] = array(g->max_tokens * w->x_stride[f])) != NULL;
    return ok ? 0 : err_set(e, -ENOMEM, "no memory for the work arrays of %d threads", n_threads);
}

void work_drop(struct work *w)
{
    for (int i = 0; w->scratch && i < w->n_threads; i++) {
        free(w->scratch[i].tmp);
        free(w->scratch[i].out);
        free(w->scratch[i].row);
        free(w->scratch[i].mid);
    }
    for (int half = 0; half < (int)CALLS_IN_FLIGHT; half++)
        for (int f = 0; f < N_FORMS; f++)
            free(w->x[half][f]);
    free(w->scratch);
    free(w->mid);
    cut_jobs_drop(&w->jobs);
    for (int i = 0; i < N_STAGES; i++)
        runs_drop(&w->runs[i]);
    memset(w, 0, sizeof *w);
}

static void warm(void *arg, int thread, int n_threads)
{
    struct work *w = arg;
    struct scratch *s = &w->scratch[thread];

    (void)n_threads;
    memset(s->tmp, 0, 2 * w->chunk * sizeof(float));
    memset(s->out, 0, w->chunk * sizeof(float));
    memset(s->row, 0, w->m->g.n_ff * sizeof(float));
}
void work_warm(struct work *w, struct team *t)
{
    team_do(t, warm, w);
}

/* ---- what the threads do ---- */

static void beat(const struct work *w, int thread)
{
    if (!thread)
        counter_add(&w->m->out->heartbeat, 1);
}

static size_t row_index(const struct work *w, const struct call_pair *p)
{
    return (size_t)p->token * w->pass->call->head.top_k + p->rank;
}

/* The activations of tokens t0 .. t1-1 in every form the layer's gate and up want. */
static void prepare_x(struct work *w, uint32_t t0, uint32_t t1)
{
    const struct call_head *h = &w->pass->call->head;
    const struct layer *l = w->layer;
    const float *acts = (const float *)(w->m->acts + h->acts);
    enum act_form a = l->m[MAT_GATE].act, b = l->m[MAT_UP].act;
    uint8_t **to = w->x[h->seq % CALLS_IN_FLIGHT];

    for (uint32_t t = t0; t < t1; t++) {
        const float *x = acts + (size_t)t * w->m->g.n_embd;
        act_prepare(a, x, l->n_embd, to[a] + t * act_stride(a, l->n_embd));
        if (b != a)
            act_prepare(b, x, l->n_embd, to[b] + t * act_stride(b, l->n_embd));
    }
}

/* The intermediate of pair i of job j, gathered from whoever made its columns, as down's operand.
 */
static void prepare_mid(const struct work *w, const struct job *j, uint32_t i, float *row,
                        uint8_t *to)
{
    const struct mat *gate = &w->layer->m[MAT_GATE];
    uint32_t n_nodes = w->m->g.n_nodes;
    size_t at = row_index(w, &j->pair[i]) * w->m->g.n_ff;
    const float *from = row;

    if (n_nodes == 1)
        from = j->inter[0] + at;
    for (uint32_t k = 0; n_nodes > 1 && k < n_nodes; k++)
        memcpy(row + gate->cut[k].r0, j->inter[k] + at + gate->cut[k].r0,
               gate->cut[k].n_rows * sizeof(float));
    act_prepare(w->layer->m[MAT_DOWN].act, from, w->layer->n_ff, to);
}

/* Rows of one kernel call, so that its results fit into a chunk. */
static uint32_t chunk_rows(const struct work *w, const struct job *j)
{
    return (uint32_t)(w->chunk / j->n_pairs) & ~(ROW_UNIT - 1);
}

/* Results (n_pairs, rows) to where the pairs' rows lie, `stride` floats apart. */
static void scatter(const struct work *w, const struct job *j, const float *from, uint32_t rows,
                    float *to, size_t stride)
{
    for (uint32_t i = 0; i < j->n_pairs; i++)
        memcpy(to + row_index(w, &j->pair[i]) * stride, from + (size_t)i * rows,
               rows * sizeof(float));
}

/* Rows r0 .. r1-1 (of the share) of gate and up. */
static void gate_up(struct work *w, int thread, const struct job *j, uint32_t r0, uint32_t r1)
{
    const struct maps *m = w->m;
    const struct layer *l = w->layer;
    const struct call_head *h = &w->pass->call->head;
    struct scratch *s = &w->scratch[thread];
    enum act_form a = l->m[MAT_GATE].act, b = l->m[MAT_UP].act;
    uint8_t **x = w->x[h->seq % CALLS_IN_FLIGHT];
    float *inter = outbox_inter(&m->g, m->out, h->seq) + j->r0[STAGE_ONE];
    int direct = j->n_pairs == 1;

    for (uint32_t n, r = r0; r < r1; r += n) {
        float *out = s->out;
        n = chunk_rows(w, j);
        n = n < r1 - r ? n : r1 - r;
        if (direct)
            out = inter + row_index(w, j->pair) * m->g.n_ff + r;
        expert_gate_up(&j->part[MAT_GATE], &j->part[MAT_UP], l->n_embd, r, r + n, x[a],
                       act_stride(a, l->n_embd), x[b], act_stride(b, l->n_embd), j->token,
                       j->n_pairs, l->limit, s->tmp, out, n);
        if (!direct)
            scatter(w, j, out, n, inter + r, m->g.n_ff);
        beat(w, thread);
    }
}

/* Rows r0 .. r1-1 (of the share) of down. */
static void down(struct work *w, int thread, const struct job *j, uint32_t r0, uint32_t r1)
{
    const struct maps *m = w->m;
    const struct layer *l = w->layer;
    struct scratch *s = &w->scratch[thread];
    size_t stride = act_stride(l->m[MAT_DOWN].act, l->n_ff);
    const uint8_t *mid = w->mid + j->pair0 * stride;
    float *rows = outbox_rows(&m->g, m->out, w->pass->call->head.seq) + j->r0[STAGE_TWO];
    int direct = j->n_pairs == 1;

    if (!w->split_mid && j->n_pairs <= FEW_PAIRS) {
        for (uint32_t i = 0; s->mid_of != j && i < j->n_pairs; i++)
            prepare_mid(w, j, i, s->row, s->mid + i * stride);
        s->mid_of = j; /* the next piece is often the same job's */
        mid = s->mid;
    }
    for (uint32_t n, r = r0; r < r1; r += n) {
        float *out = s->out;
        n = chunk_rows(w, j);
        n = n < r1 - r ? n : r1 - r;
        if (direct)
            out = rows + row_index(w, j->pair) * m->g.n_embd + r;
        expert_down(&j->part[MAT_DOWN], l->n_ff, r, r + n, mid, stride, j->n_pairs, out, n);
        if (fault_due(FAULT_ROWS)) {
            memset(out + n / 2, 0xff, (n - n / 2) * sizeof *out);
            fault_die();
        }
        if (!direct)
            scatter(w, j, out, n, rows + r, m->g.n_embd);
        beat(w, thread);
    }
}

static void piece_rows(struct work *w, enum stage stage, int thread, uint64_t from, uint64_t to)
{
    uint32_t r0, r1;

    for (uint32_t i = 0; i < w->jobs.n; i++) {
        const struct job *j = &w->jobs.job[i];
        if (!job_rows(j, stage, from, to, &r0, &r1))
            continue;
        if (stage == STAGE_ONE)
            gate_up(w, thread, j, r0, r1);
        else
            down(w, thread, j, r0, r1);
    }
}

static void stage_rows(struct work *w, enum stage stage, int thread)
{
    uint64_t from, to;
    int of = thread;

    w->scratch[thread].mid_of = NULL;
    while (runs_take(&w->runs[stage], &of, thread, &from, &to))
        piece_rows(w, stage, thread, from, to);
}

/* An even part of all jobs' intermediates into w->mid. */
static void split_mid(struct work *w, int thread, int n_threads)
{
    uint32_t from = (uint32_t)((uint64_t)w->jobs.n_pairs * (uint32_t)thread / (uint32_t)n_threads);
    uint32_t to =
        (uint32_t)((uint64_t)w->jobs.n_pairs * ((uint32_t)thread + 1) / (uint32_t)n_threads);
    size_t stride = act_stride(w->layer->m[MAT_DOWN].act, w->layer->n_ff);

    for (uint32_t i = 0; i < w->jobs.n; i++) {
        const struct job *j = &w->jobs.job[i];
        uint32_t p = from > j->pair0 ? from - j->pair0 : 0;
        for (; p < j->n_pairs && j->pair0 + p < to; p++)
            prepare_mid(w, j, p, w->scratch[thread].row, w->mid + (j->pair0 + p) * stride);
    }
}

static void meet(struct work *w, int n_threads)
{
    if (n_threads > 1)
        team_meet(w->team);
}

static void pass_part(void *arg, int thread, int n_threads)
{
    struct work *w = arg;
    uint32_t n_tokens = w->pass->call->head.n_tokens;

    if (w->split_x) {
        prepare_x(w, (uint32_t)((uint64_t)n_tokens * (uint32_t)thread / (uint32_t)n_threads),
                  (uint32_t)((uint64_t)n_tokens * ((uint32_t)thread + 1) / (uint32_t)n_threads));
        meet(w, n_threads);
    }
    if (w->pass->stage_one)
        stage_rows(w, STAGE_ONE, thread);
    if (!w->pass->stage_two)
        return;
    if (w->pass->stage_one)
        meet(w, n_threads);
    if (w->split_mid) {
        split_mid(w, thread, n_threads);
        meet(w, n_threads);
    }
    stage_rows(w, STAGE_TWO, thread);
}

static void count_pass(const struct work *w)
{
    struct outbox_counters *count = &w->m->out->count;
    const struct mat *m = w->layer->m;
    uint64_t rows = 0, bytes = 0;

    for (uint32_t i = 0; i < w->jobs.n; i++) {
        const struct job *j = &w->jobs.job[i];
        if (w->pass->stage_one)
            bytes += j->n_rows[STAGE_ONE] * (m[MAT_GATE].row_bytes + m[MAT_UP].row_bytes);
        if (!w->pass->stage_two)
            continue;
        bytes += j->n_rows[STAGE_TWO] * m[MAT_DOWN].row_bytes;
        rows += (uint64_t)j->n_rows[STAGE_TWO] * j->n_pairs;
    }
    counter_add(&count->weight_bytes, bytes);
    counter_add(&count->rows, rows);
}

void work_pass(struct work *w, struct team *t, const struct pass *p)
{
    const struct call_head *h = &p->call->head;
    uint64_t *x_call = &w->x_call[h->seq % CALLS_IN_FLIGHT];
    int n;

    w->team = t;
    w->pass = p;
    w->layer = &w->m->layer[h->layer];
    w->split_x = 0;
    if (p->stage_one && *x_call != h->seq) {
        w->split_x = w->n_threads > 1 && h->n_tokens >= FEW_TOKENS;
        if (!w->split_x)
            prepare_x(w, 0, h->n_tokens);
        *x_call = h->seq;
    }
    cut_jobs_lay_out(&w->jobs, w->m, p);
    w->split_mid = w->jobs.most_pairs > FEW_PAIRS;
    n = w->jobs.cost[STAGE_ONE] + w->jobs.cost[STAGE_TWO] <= SOLO_COST ? 1 : team_size(t);
    for (int i = 0; i < N_STAGES; i++)
        runs_cut(&w->runs[i], n, w->jobs.cost[i]);
    if (n == 1)
        pass_part(w, 0, 1);
    else
        team_do(t, pass_part, w);
    count_pass(w);
}
