/* An item is one thread's from its first row to its last: nobody meets, and an expert is read once for up to
 * CHUNK tokens. Which thread makes it, and with which other tokens, changes no bit (rule 16). */
#include "gpu-worker/own.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/expert/expert.h"

#define CHUNK 16u /* vectors that go through an expert together */
#define N_FORMS 3

struct own_scratch {            /* of a thread */
    uint8_t *x[N_FORMS], *mid;  /* CHUNK prepared vectors each */
    float *tmp, *inter, *rows;  /* (2, CHUNK, n_ff), (CHUNK, n_ff), (CHUNK, n_embd) */
};
struct own {
    const struct maps *m;
    const struct hits *hits;
    _Atomic uint32_t *uses;
    int n_threads;
    uint32_t delay_us;
    struct own_scratch *of;
};

static void *array(size_t bytes)
{
    return aligned_alloc(64, (bytes + 127) & ~(size_t)63); /* a kernel may read a little behind */
}

int own_open(const struct maps *m, const struct hits *hits, struct answers *answers, int n_threads,
             uint32_t delay_us, struct own **out, struct err *e)
{
    struct own *o = calloc(1, sizeof *o);
    size_t x[N_FORMS] = {0}, mid = 0;

    if (!o)
        return err_set(e, -ENOMEM, "no memory");
    *out = o;
    *o = (struct own){m, hits, answer_uses(&m->g, answers), n_threads, delay_us, NULL};
    for (uint32_t i = 0; i < m->g.n_layers; i++)
        for (int k = 0; m->layer[i].n_experts && k < N_MATS; k++) {
            enum act_form f = m->layer[i].m[k].act;
            size_t s = act_stride(f, m->layer[i].m[k].cols), *most = k == MAT_DOWN ? &mid : &x[f];
            *most = s > *most ? s : *most;
        }
    o->of = calloc((size_t)n_threads, sizeof *o->of);
    for (int t = 0; o->of && t < n_threads; t++) {
        struct own_scratch *s = &o->of[t];
        for (int f = 0; f < N_FORMS; f++)
            s->x[f] = array(CHUNK * x[f]);
        s->mid = array(CHUNK * mid);
        s->tmp = array(2 * CHUNK * m->g.n_ff * sizeof(float));
        s->inter = array(CHUNK * m->g.n_ff * sizeof(float));
        s->rows = array((size_t)CHUNK * m->g.n_embd * sizeof(float));
        if (!s->x[0] || !s->x[1] || !s->x[2] || !s->mid || !s->tmp || !s->inter || !s->rows)
            return err_set(e, -ENOMEM, "no memory for the experts' work arrays of %d threads", n_threads);
    }
    return o->of ? 0 : err_set(e, -ENOMEM, "no memory");
}

void own_close(struct own *o)
{
    if (!o)
        return;
    for (int t = 0; o->of && t < o->n_threads; t++) {
        struct own_scratch *s = &o->of[t];
        for (int f = 0; f < N_FORMS; f++)
            free(s->x[f]);
        free(s->mid);
        free(s->tmp);
        free(s->inter);
        free(s->rows);
    }
    free(o->of);
    free(o);
}

static uint32_t hit(void *arg, uint32_t layer, uint32_t expert, uint32_t n_tokens)
{
    struct own *o = arg;
    uint64_t entry = hits_entry(o->hits, layer, expert);
    _Atomic uint32_t *uses = &o->uses[(size_t)layer * o->m->g.n_experts + expert];

    if (!entry || !maps_has_place(o->m, ENTRY_PLACE(entry)))
        return PLACE_NONE;
    atomic_store_explicit(uses, atomic_load_explicit(uses, memory_order_relaxed) + n_tokens, memory_order_relaxed);
    return ENTRY_PLACE(entry);
}

static struct expert_part part(const struct own *o, uint32_t layer, const struct call_item *it, int mat)
{
    const struct layer *l = &o->m->layer[layer];

    return (struct expert_part){
        .type = l->m[mat].type,
        .w = maps_rows(o->m, l, 0, it->place, it->expert, mat), /* share 0 begins the whole matrix */
        .row_bytes = l->m[mat].row_bytes,
        .scale = l->has_scale ? table_scale(o->m->tables, &o->m->g, layer, it->expert)[mat] : 1};
}

/* Pairs p0 .. p0+n-1 of the item. */
static void chunk(const struct own *o, struct own_scratch *s, const struct moe_own_call *c, const struct call_item *it,
                  uint32_t p0, uint32_t n)
{
    const struct layer *l = &o->m->layer[c->layer];
    const struct call_pair *pair = c->pair + it->pair0 + p0;
    struct expert_part gate = part(o, c->layer, it, MAT_GATE), up = part(o, c->layer, it, MAT_UP),
                       down = part(o, c->layer, it, MAT_DOWN);
    enum act_form a = l->m[MAT_GATE].act, b = l->m[MAT_UP].act, d = l->m[MAT_DOWN].act;
    size_t a_stride = act_stride(a, l->n_embd), b_stride = act_stride(b, l->n_embd), d_stride = act_stride(d, l->n_ff);

    for (uint32_t i = 0; i < n; i++) {
        const float *x = c->x + (size_t)pair[i].token * l->n_embd;
        act_prepare(a, x, l->n_embd, s->x[a] + i * a_stride);
        if (b != a)
            act_prepare(b, x, l->n_embd, s->x[b] + i * b_stride);
    }
    expert_gate_up(&gate, &up, l->n_embd, 0, l->n_ff, s->x[a], a_stride, s->x[b], b_stride, NULL, n, l->limit, s->tmp,
                   s->inter, l->n_ff);
    for (uint32_t i = 0; i < n; i++)
        act_prepare(d, s->inter + (size_t)i * l->n_ff, l->n_ff, s->mid + i * d_stride);
    expert_down(&down, l->n_ff, 0, l->n_embd, s->mid, d_stride, n, s->rows, l->n_embd);
    for (uint32_t i = 0; i < n; i++)
        memcpy(c->rows + ((size_t)pair[i].token * c->used + pair[i].rank) * l->n_embd, s->rows + (size_t)i * l->n_embd,
               l->n_embd * sizeof(float));
}

static void compute(void *arg, const struct moe_own_call *c, int thread, int n_threads)
{
    const struct own *o = arg;

    for (uint32_t i = (uint32_t)thread; i < c->n_items; i += (uint32_t)n_threads) {
        const struct call_item *it = &c->item[i];
        if (o->delay_us)
            nanosleep(&(struct timespec){.tv_sec = o->delay_us / 1000000, .tv_nsec = o->delay_us % 1000000 * 1000L}, NULL);
        for (uint32_t p = 0; p < it->n_pairs; p += CHUNK)
            chunk(o, &o->of[thread], c, it, p, it->n_pairs - p < CHUNK ? it->n_pairs - p : CHUNK);
    }
}

struct moe_own own_of(struct own *o)
{
    return (struct moe_own){hit, compute, o};
}
