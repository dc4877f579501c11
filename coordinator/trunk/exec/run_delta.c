/* Recurrent layers: short convolutions and the delta rule. Tokens of a sequence one after the other;
 * channels and heads are independent, and are what threads share. */
#include "coordinator/trunk/exec/run.h"
#include "kernels/conv/conv.h"
#include "kernels/delta/delta.h"
#include "kernels/func/func.h"

#define MOST_TAPS 16

void run_conv(struct exec *x, const struct op *op, struct part p)
{
    const float *taps = vector_of(x, op->w), *rows = x->buf[op->in[0]].data, *window[MOST_TAPS];
    uint32_t a, b, n_runs, K = op->n[0], gap = op->n[1], width = width_of(x, op->in[0]);
    const struct run *run = states_runs(x->states, &n_runs);

    cut(width, p, 16, &a, &b);
    if (a == b)
        return;
    for (const struct run *r = run; r < run + n_runs; r++) {
        for (uint32_t t = 0; t < r->n; t++) {
            float *y = row_f32(x, op->out, r->first + t) + a;
            for (uint32_t j = 0; j < K; j++) {
                int64_t back = (int64_t)t - (int64_t)(K - 1 - j) * gap; /* in the run */
                window[j] = back >= 0 ? rows + (size_t)(r->first + back) * width
                                      : states_tail_row(x->states, op->state, r, (int64_t)r->pos + back);
                if (window[j])
                    window[j] += a;
            }
            short_conv(window, taps + (size_t)a * K, NULL, K, b - a, y);
            vec_silu(y, y, b - a);
        }
        states_tail_write(x->states, op->state, r, a, b, rows + a, width);
    }
}

void run_decay(struct exec *x, const struct op *op, struct part p)
{
    const float *A = vector_of(x, op->w), *dt = vector_of(x, op->n[2]);
    uint32_t a, b, heads = op->n[0], each = width_of(x, op->in[0]) / heads;

    cut(x->s->n_tokens, p, 1, &a, &b);
    for (uint32_t t = a; t < b; t++) {
        const float *in = row_f32(x, op->in[0], t);
        float *out = row_f32(x, op->out, t);
        for (uint32_t h = 0; h < heads; h++) {
            float *y = out + h * each;
            for (uint32_t i = 0; i < each; i++)
                y[i] = in[h * each + i] + dt[h * each + i];
            if (!op->n[1]) {
                vec_softplus(y, y, each);
                for (uint32_t i = 0; i < each; i++)
                    y[i] = A[h] * y[i];
                continue;
            }
            for (uint32_t i = 0; i < each; i++)
                y[i] = -A[h] * y[i];
            vec_sigmoid(y, y, each);
            for (uint32_t i = 0; i < each; i++)
                y[i] = op->f[0] * y[i];
        }
    }
}

/* the outputs of tokens that are made again */
size_t delta_scratch_bytes(const struct program *p)
{
    size_t most = 0;

    for (uint32_t i = 0; i < p->n_states; i++) {
        size_t n = p->state[i].kind == STATE_MATRIX ? p->state[i].v_width : 0;
        most = n > most ? n : most;
    }
    return most * sizeof(float);
}

/* One head of one run. */
static void head_of_run(struct exec *x, const struct op *op, const struct run *r, uint32_t h, float *nobody)
{
    const struct prog_state *st = &x->c.prog->state[op->state];
    uint32_t K = st->k_width, V = st->v_width, D = st->decay, kh = h % st->k_heads;
    float *from = states_matrix(x->states, op->state, r->seq, r->from, h);
    float *older = states_matrix(x->states, op->state, r->seq, r->from ^ 1, h), *to = older;

    if (r->zero)
        memset(from, 0, (size_t)K * V * sizeof *from);
    for (uint32_t i = 0; i < r->redo; i++) { /* version n + 1 with the accepted tokens alone */
        struct kept k = states_kept(x->states, op->state, r->seq, i, h);
        delta_rule(i ? from : older, from, V, k.decay, D == 1, k.k, k.k, k.v, *k.beta, K, V, nobody);
    }
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t t = r->first + i;
        const float *k = row_f32(x, op->in[1], t) + kh * K, *v = row_f32(x, op->n[0], t) + h * V;
        const float *decay = row_f32(x, op->n[1], t) + h * D;
        float beta = row_f32(x, op->n[2], t)[h];
        delta_rule(i ? to : from, to, V, decay, D == 1, row_f32(x, op->in[0], t) + kh * K, k, v, beta, K, V,
                   row_f32(x, op->out, t) + h * V);
        if (run_keeps(x->c.prog, r)) {
            struct kept keep = states_kept(x->states, op->state, r->seq, i, h);
            memcpy(keep.k, k, K * sizeof *k);
            memcpy(keep.v, v, V * sizeof *v);
            memcpy(keep.decay, decay, D * sizeof *decay);
            *keep.beta = beta;
        }
    }
}

void run_delta(struct exec *x, const struct op *op, struct part p)
{
    uint32_t a, b, n_runs, heads = x->c.prog->state[op->state].heads;
    const struct run *run = states_runs(x->states, &n_runs);

    cut(heads * n_runs, p, 1, &a, &b);
    for (uint32_t i = a; i < b; i++)
        head_of_run(x, op, &run[i / heads], i % heads, (float *)scratch_of(x, p));
}
