/* conclave plan: what `run` with the same flags would do with this machine's memory, and how fast it
 * would be, without doing it. Rates are measured now, with the model's own kernels, shapes and file. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/cli/args.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/common.h"
#include "coordinator/cli/plan_cards.h"
#include "coordinator/residency/card_plan.h"
#include "coordinator/residency/heat_file.h"
#include "coordinator/residency/plan.h"
#include "coordinator/residency/replay.h"
#include "coordinator/serve/jobs.h"
#include "shm/memory.h"
#include "shm/size.h"

enum { TRUNK_MS = 400, LAYER_MS = 900, DISK_MS = 200, DISK_DEPTH = 8 };
#define MEASURE_TRUNK (384ull << 20) /* bytes of made-up weights; more where that would lie in cache, and never more */
#define MEASURE_EXPERTS (128ull << 20) /* than a quarter of what is left */
#define OUT_OF_CACHE 3 /* times the last cache: what is read again was pushed out since */

struct options {
    struct engine_flags engine; /* those that say how it is run */
    const char *routes;
    uint32_t n_ctx, parallel;
    int json, no_measure, no_heat;
};

#define AT(x) offsetof(struct options, x)
static const struct flag table[] = {
    {.name = "ctx-size",
     .letter = 'c',
     .arg = "N",
     .group = "what is expected",
     .kind = FLAG_U32,
     .at = AT(n_ctx),
     .max = 1 << 30,
     .shown = "the model's maximum, or what fits",
     .help = "tokens of the context"},
    {.name = "parallel",
     .arg = "N",
     .kind = FLAG_U32,
     .at = AT(parallel),
     .min = 1,
     .max = JOBS_SLOTS_MOST,
     .help = "contexts of that size, as conclave serve has them for answers beside each other"},
    {.name = "routes",
     .arg = "FILE",
     .kind = FLAG_STRING,
     .at = AT(routes),
     .help = "a recorded trace (.npy, run --record-routes): the hit rate is that of the policy on it"},
    {.name = "no-heat",
     .kind = FLAG_ON,
     .at = AT(no_heat),
     .help = "don't take the hit rate from the uses that earlier runs of this model left behind"},
    {.name = "no-measure",
     .kind = FLAG_ON,
     .at = AT(no_measure),
     .help = "sizes only, at once: nothing is measured, no speed is expected"},
    {.name = "json", .group = "report", .kind = FLAG_ON, .at = AT(json), .help = "write JSON"},
    {.kind = 0},
};

/* ---- the hit rate ---- */

static uint64_t slots_of(const struct plan *p)
{
    uint64_t n = 0;

    for (uint32_t s = 0; s < p->slabs.pools.n; s++)
        n += p->slabs.pools.places[s];
    return n ? n : 1; /* one slab in all */
}

/* The policy on the trace, with as large a part of its experts at hand as n of the plan's are. */
static int from_routes(const char *path, struct plan_report *r, uint64_t n, double *hit, struct err *e)
{
    struct trace t = {0};
    struct replay got;
    uint32_t places;
    int rc = trace_read(path, 0, &t, e);

    if (rc)
        return rc;
    if (t.n_experts < r->look->m->n_experts && t.n_layers == r->expert_layers) { /* its largest id says less */
        trace_free(&t);
        t = (struct trace){0};
        rc = trace_read(path, r->look->m->n_experts, &t, e);
        if (rc)
            return rc;
    }
    places = (uint32_t)((double)n / (double)r->experts * trace_pairs(&t));
    rc = replay_policy(&t, places ? places : 1, POLICY_HEAT, &got, e);
    if (!rc) {
        *hit = (double)got.hits / (double)trace_accesses(&t);
        snprintf(r->why, sizeof r->why, "the policy on %s, %u tokens, from empty, %u of %u experts at hand", path,
                 t.n_tokens, places, trace_pairs(&t));
    }
    trace_free(&t);
    return rc;
}

/* 1: there is a heat file and it says something. */
static int from_heat(struct plan_report *r, uint64_t n, double *hit)
{
    const struct model *m = r->look->m;
    uint64_t all = (uint64_t)m->n_layers * m->n_experts;
    char path[4096];
    struct heat_id id;
    double tokens = 0;
    float *uses = calloc(all + 1, sizeof *uses);
    struct err e = {0};
    int ok = uses && !heat_identify(m->g, &id, &e) && !heat_path(&id, path, sizeof path, &e) &&
             !heat_load(path, &id, m->n_layers, m->n_experts, uses, &tokens, &e);

    *hit = ok ? predict_hottest(uses, all, n) : 0;
    if (*hit > 0)
        snprintf(r->why, sizeof r->why, "from the uses of earlier runs (%.0f tokens), if the next are like them", tokens);
    free(uses);
    return *hit > 0;
}

/* Part of the uses that n experts at hand can have, and why that is thought. */
static int part_of_uses(const struct options *o, struct plan_report *r, uint64_t n, double *hit, struct err *e)
{
    if (n >= r->experts) {
        *hit = 1;
        snprintf(r->why, sizeof r->why, "all experts are in memory or on cards");
        return 0;
    }
    if (o->routes)
        return from_routes(o->routes, r, n, hit, e);
    if (!o->no_heat && from_heat(r, n, hit))
        return 0;
    *hit = (double)n / (double)r->experts;
    snprintf(r->why, sizeof r->why, "assumed: uniform routing; a trace (--routes) or earlier runs would tell");
    return 0;
}

/* What cards hold is what is used most; without room for all in memory they have it alone. */
static int hit_rate(const struct options *o, struct plan_report *r, struct err *e)
{
    uint32_t slots = r->look->cards->n_slots;
    int rc = slots ? part_of_uses(o, r, slots, &r->card_hit, e) : 0;

    if (rc)
        return rc;
    if (!r->look->plan->slabs.resident)
        return part_of_uses(o, r, r->places + slots, &r->hit, e);
    r->hit = 1;
    if (!slots)
        snprintf(r->why, sizeof r->why, "all experts are in memory");
    return 0;
}

/* ---- rates ---- */

/* The layer that stands for all: the one whose size most layers have. */
static uint32_t usual_layer(const struct engine_look *l)
{
    uint32_t best = 0, most = 0;

    for (uint32_t i = 0; i < l->m->n_layers; i++) {
        uint32_t n = 0;
        for (uint32_t k = 0; l->layer[i].n_experts && k < l->m->n_layers; k++)
            n += l->m->layer[k].expert_bytes == l->m->layer[i].expert_bytes;
        if (n > most) {
            most = n;
            best = i;
        }
    }
    return best;
}

static int disk_alone(struct plan_report *r, uint32_t at, struct err *e)
{
    const struct expert_matrix *m = &r->look->layer[at].m[MAT_GATE];
    const struct gguf *g = r->look->m->g;
    const char *path = gguf_shard_path(g, m->shard);
    const struct expert_layer *x = &r->look->layer[at];
    uint64_t bytes = x->packed ? slab_bytes(x, 0, r->look->n_nodes)
                               : round_up((uint64_t)m->rows * m->row_bytes / r->look->n_nodes, 4096);
    uint64_t file = gguf_shard_bytes(g, m->shard);
    int rc, fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);

    if (fd < 0)
        fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, -errno, "%s: cannot open: %s", path, strerror(errno));
    r->disk_read = bytes < file ? bytes : file / 4096 * 4096;
    r->disk_depth = DISK_DEPTH;
    rc = disk_rate(fd, path, file, r->disk_read, r->disk_depth, DISK_MS, &r->disk, e);
    close(fd);
    return rc;
}

static uint64_t measured_bytes(uint64_t least, uint64_t room)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    uint64_t n = cache > 0 ? OUT_OF_CACHE * (uint64_t)cache : 0;

    n = n > least ? n : least;
    return n < room ? n : room;
}

static int measure(struct plan_report *r, struct err *e)
{
    const struct engine_look *l = r->look;
    double start = seconds_now();
    uint64_t room = memory_left() / 4;
    uint32_t at = usual_layer(l);
    struct layer_config c = {
        .m = l->m,
        .layer = l->layer,
        .machine = l->machine,
        .at = at,
        .threads = l->threads,
        .n_nodes = l->n_nodes,
        .memory = measured_bytes(MEASURE_EXPERTS, room),
        .ms = LAYER_MS,
        .reads = !l->plan->slabs.resident,
    };
    int rc = measure_trunk(l->m, l->prog, l->machine, l->threads, (enum kv_type)r->kv,
                           measured_bytes(MEASURE_TRUNK, room), TRUNK_MS, &r->trunk, e);

    if (!rc)
        rc = measure_layer(&c, &r->layer, e);
    if (!rc)
        rc = disk_alone(r, at, e);
    if (rc)
        return rc;
    r->in = (struct predict_in){.hit = r->hit,
                                .trunk_seconds = r->trunk.seconds,
                                .used = r->layer.used,
                                .seconds = r->layer.seconds};
    if ((rc = plan_cards_measure(r, at, e)))
        return rc;
    r->in.cards = r->cards.n ? &r->cards : NULL;
    for (uint32_t i = 0; i < l->m->n_layers; i++) {
        uint64_t one = l->layer[i].n_experts ? l->m->layer[i].expert_bytes : 0;
        r->in.layers += (double)one / (double)l->m->layer[at].expert_bytes;
        r->in.expert_bytes += one * l->layer[i].top_k;
        r->in.read_bytes += (one ? (uint64_t)((double)one / (double)r->layer.expert_bytes * (double)r->layer.read_bytes) : 0) *
                            l->layer[i].top_k;
    }
    r->out = predict(&r->in);
    r->measured = 1;
    r->measure_seconds = seconds_now() - start;
    return 0;
}

static int look(const struct engine_look *l, void *arg, struct err *e)
{
    const struct options *o = arg;
    struct plan_report *r = calloc(1, sizeof *r);
    int rc;

    if (!r)
        return err_set(e, -ENOMEM, "no memory"), 1;
    r->look = l;
    r->kv = o->engine.kv;
    r->expert_bytes = model_experts_bytes(l->m);
    for (uint32_t i = 0; i < l->m->n_layers; i++) {
        r->expert_layers += l->layer[i].n_experts != 0;
        r->experts += l->layer[i].n_experts;
    }
    r->places = l->plan->slabs.resident ? r->experts : slots_of(l->plan);
    rc = hit_rate(o, r, e);
    if (!rc && !o->no_measure)
        rc = measure(r, e);
    if (!rc && o->json)
        rc = plan_report_json(r, e);
    else if (!rc)
        plan_report_print(r);
    free(r->found);
    free(r);
    return rc ? 1 : args_flush_stdout();
}

int cmd_plan(int argc, char **argv)
{
    struct options o = {0};
    struct args a = {
        .verb = "plan",
        .about = "what a run would put where, and how fast it would be",
        .usage = "-m MODEL [flags]",
        .notes = "Nothing is run and no weight is loaded; what the machine can do is measured for two seconds, "
                 "beside whatever else it does now: the trunk and a layer of experts with the model's own "
                 "kernels and shapes, and reads of its file, both at once.\n"
                 "The flags mean what they mean to run, and the plan is the one that run would make now, with its "
                 "default --cache-policy.",
        .part = {{engine_flag_table, &o.engine}, {table, &o}},
    };
    struct engine_options eo = {0};
    enum disk_io io;
    struct err e = {0};
    int status;

    engine_flags_init(&o.engine);
    o.parallel = 1;
    if (args_parse(&a, argc, argv, &status))
        return status;
    if (disk_io(&io, &e)) /* as a run would refuse it */
        return report_error(&e);
    engine_flags_options(&o.engine, &eo);
    eo.n_ctx = o.n_ctx;
    eo.n_seqs = o.parallel;
    eo.n_saved = o.parallel > 1 ? JOBS_SAVED * o.parallel : 0;
    status = engine_plan(&eo, look, &o, &e);
    if (status == 1)
        report_error(&e);
    return status;
}
