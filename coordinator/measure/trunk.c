/* The weights are made up: a product takes as long whatever its numbers are. The experts' calls are left
 * out of the program; layer.c measures them. */
#include "coordinator/measure/trunk.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/measure/measure.h"
#include "coordinator/trunk/exec/exec.h"
#include "kernels/type/type.h"
#include "shm/bell.h"
#include "shm/size.h"
#include "shm/team.h"

#define TOKENS_LEAST 3
#define COPIES_MOST 8
#define OUT_OF_CACHE (128ull << 20) /* a small trunk is there more than once: in a run experts push it out */
#define POSITIONS 256u

struct job {
    struct exec *x[COPIES_MOST];
    uint32_t n, ms;
    uint64_t ns, tokens;
};

static int is_vector(const struct model *m, const struct prog_weight *w)
{
    return m->tensor[w->tensor].n_dims == 1; /* read as F32, whatever the file says (rule 38) */
}

static uint64_t bytes_of(const struct model *m, const struct prog_weight *w)
{
    return is_vector(m, w) ? w->cols * sizeof(float) : (uint64_t)w->rows * w->row_bytes;
}

/* Every weight's place: its own while memory lasts, then in turn those of earlier ones of its shape. */
static uint64_t places(const struct model *m, const struct program *p, uint64_t memory, uint64_t *at)
{
    uint64_t used = 0;
    uint32_t from = 0;

    for (uint32_t i = 0; i < p->n_weights; i++) {
        const struct prog_weight *w = &p->weight[i];
        uint64_t bytes = bytes_of(m, w);
        uint32_t tries = 0;

        for (; used + bytes > memory && tries < i; tries++) {
            from = (from + 1) % i;
            if (p->weight[from].type == w->type && bytes_of(m, &p->weight[from]) == bytes)
                break;
        }
        if (used + bytes > memory && tries < i) {
            at[i] = at[from];
            continue;
        }
        at[i] = used;
        used += round_up(bytes, 64);
    }
    return used;
}

/* The program without the experts: their sums stay as they are, zero. */
static int without_experts(const struct program *p, struct program *out)
{
    *out = *p;
    out->op = malloc(p->n_ops * sizeof *out->op);
    out->n_ops = 0;
    for (uint32_t i = 0; out->op && i < p->draft_at; i++)
        if (p->op[i].kind != OP_MOE_CALL && p->op[i].kind != OP_MOE_SUM)
            out->op[out->n_ops++] = p->op[i];
    out->draft_at = out->n_ops;
    return out->op ? 0 : -1;
}

static int lead(void *arg, struct team *t)
{
    struct job *j = arg;
    uint64_t start = 0;
    uint32_t zero = 0;

    for (uint32_t i = 0; i < POSITIONS; i++) {
        struct step_token token = {(i * 40503u) % 256, i / j->n, 0};
        struct step s = {.n_tokens = 1, .n_out = 1, .token = &token, .out = &zero};
        if (i == j->n) /* the first of each copy warms up */
            start = now_ns();
        exec_step(j->x[i % j->n], t, &s);
        j->ns = now_ns() - start;
        if (i >= j->n) {
            j->tokens++;
            if (j->tokens >= TOKENS_LEAST && j->ns > (uint64_t)j->ms * 1000000)
                break;
        }
    }
    return 0;
}

/* One copy of the weights at seg, and who executes over it. */
static int open_copy(const struct model *m, const struct program *prog, struct exec_config c, const uint64_t *at,
                     uint8_t *seg, const uint8_t **weight, struct exec **x, struct err *e)
{
    for (uint32_t i = 0; i < prog->n_weights; i++) {
        const struct prog_weight *w = &prog->weight[i];
        measure_fill(is_vector(m, w) ? W_F32 : w->type, seg + at[i], bytes_of(m, w));
        weight[i] = seg + at[i];
    }
    c.weight = weight;
    return exec_open(&c, x, e);
}

/* Looked-up rows: zeros, at hand. */
static void no_rows(void *arg, const struct step *s, struct step_rows *out)
{
    (void)s;
    *out = (struct step_rows){.bytes = arg};
}

int measure_trunk(const struct model *m, const struct program *prog, const struct machine *machine,
                  uint32_t threads, enum kv_type kv, uint64_t memory, uint32_t ms, struct trunk_time *out,
                  struct err *e)
{
    const uint8_t **weight = calloc(COPIES_MOST * (size_t)(prog->n_weights + 1), sizeof *weight);
    uint64_t *at = calloc(prog->n_weights + 1, sizeof *at), one = 0, copies = 1;
    struct program p = {0};
    struct exec_config c = {.prog = &p, .max_tokens = 1, .max_out = 1, .n_ctx = POSITIONS, .n_seqs = 1, .kv = kv,
                            .rows = no_rows, .rows_arg = calloc(1, prog->token_bytes + 1)};
    struct job j = {.ms = ms};
    uint8_t *seg = NULL;
    int cpus[MACHINE_MAX_CPUS], rc = -1;

    *out = (struct trunk_time){0};
    if (!weight || !at || !c.rows_arg || without_experts(prog, &p)) {
        rc = err_set(e, -ENOMEM, "no memory to measure the trunk");
        goto done;
    }
    one = round_up(places(m, prog, memory, at) + 64, 4096);
    while (copies < COPIES_MOST && copies * one < OUT_OF_CACHE && (copies + 1) * one <= memory)
        copies++;
    seg = measure_segment(copies * one, e);
    rc = seg ? 0 : -ENOMEM;
    for (uint64_t i = 0; !rc && i < copies; i++, j.n += !rc)
        rc = open_copy(m, prog, c, at, seg + i * one, weight + i * (prog->n_weights + 1), &j.x[i], e);
    if (rc)
        goto done;
    for (uint32_t i = 0; i < prog->n_weights; i++) {
        const struct prog_weight *w = &prog->weight[i];
        if (!is_vector(m, w) && i != prog->op[0].w) /* of the embedding one row */
            out->bytes += bytes_of(m, w);
    }
    for (uint32_t i = 0; i < threads && i < MACHINE_MAX_CPUS; i++)
        cpus[i] = machine->cpu[i % machine->n_cpus];
    team_run((int)threads, cpus, 1, lead, &j);
    out->seconds = (double)j.ns * 1e-9 / (double)j.tokens;
done:
    for (uint32_t i = 0; i < COPIES_MOST; i++)
        exec_close(j.x[i]);
    measure_segment_free(seg, copies * one);
    free(p.op);
    free(c.rows_arg);
    free(weight);
    free(at);
    return rc;
}
