/* Flags and reports that run, eval and perplexity share, so that one name means one thing. */
#define _GNU_SOURCE
#include "coordinator/cli/common.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "coordinator/cli/cards_flag.h"
#include "coordinator/cli/value.h"
#include "coordinator/cli/version.h"
#include "coordinator/model/utf8.h"
#include "shm/layout.h"
#include "shm/seg.h"

_Static_assert(KV_F32 == 0 && KV_F16 == 1 && KV_BF16 == 2, "the choices of --kv are in this order");
static const char kv_choices[] = "f32|f16|bf16";

_Static_assert(POLICY_HEAT == 0 && POLICY_LRU == 1 && POLICY_LFU == 2, "the choices are in this order");
static const char policy_choices[] = "heat|lru|lfu";

_Static_assert(PREFETCH_AUTO == 0 && PREFETCH_ON == 1 && PREFETCH_OFF == 2, "the choices are in this order");
static const char prefetch_choices[] = "auto|on|off";

#define AT(x) offsetof(struct engine_flags, x)
const struct flag engine_flag_table[] = {
    {.name = "model",
     .letter = 'm',
     .arg = "FILE",
     .group = "model",
     .kind = FLAG_STRING,
     .at = AT(model),
     .required = 1,
     .help = "GGUF file, any part of a split one, or a folder made by conclave pack"},
    {.name = "kv",
     .arg = "TYPE",
     .kind = FLAG_CHOICE,
     .at = AT(kv),
     .choices = kv_choices,
     .help = "type in which keys and values are kept: f32, f16 or bf16; changes the answer, as the "
             "model does"},
    {.name = "threads",
     .letter = 't',
     .arg = "N",
     .group = "machine",
     .kind = FLAG_U32,
     .at = AT(threads),
     .min = 1,
     .max = 256,
     .shown = "the physical cores",
     .help = "threads of the trunk, and as many again for the expert workers together; they take "
             "turns"},
    {.name = "ram",
     .arg = "BYTES",
     .kind = FLAG_SIZE,
     .at = AT(ram),
     .min = 1,
     .shown = "all that fits",
     .help = "memory for routed experts, with a suffix K, M, G or T; with less than all of them "
             "the rest is "
             "read from the file when needed"},
    {.name = "table-ram",
     .arg = "BYTES",
     .kind = FLAG_SIZE,
     .at = AT(table_ram),
     .min = 1,
     .shown = "an n-gram table whole where there is room beside all experts, else rows of it in 1/32 of what is left",
     .help = "memory for look-up tables (hashed n-grams, or a token table of its own): one that takes more stays in "
             "the file, its rows are read as they are needed and so many bytes of them are kept"},
    {.name = "nodes",
     .arg = "N",
     .kind = FLAG_U32,
     .at = AT(nodes),
     .min = 1,
     .max = MAX_NODES,
     .shown = "the machine's NUMA nodes",
     .help = "expert workers, one a NUMA node; more than the machine has are simulated"},
    {.name = "cards",
     .arg = "CARDS",
     .kind = FLAG_TAKE,
     .at = AT(cards),
     .take = take_cards,
     .shown = "all that can be used, none for a model too small to gain by them",
     .help = "cards that compute: none, all, or their numbers, as in 0,1, or with the most memory for experts on each, as "
             "in 0:20G,1:8G; emu:N or emu:N:BYTES: N worker processes "
             "that stand for cards and compute with the CPU's kernels, each with BYTES of memory for experts "
             "(emu:2:BYTES,BYTES: sizes of their own); for tests, not for speed"},
    {.name = "trunk",
     .arg = "WHERE",
     .kind = FLAG_TAKE,
     .at = AT(cards.trunk),
     .take = take_trunk,
     .shown = "auto",
     .help = "where the trunk is computed: auto, cpu, or the place of a card in the list of --cards, from 0 on"},
    {.name = "batch",
     .arg = "N",
     .kind = FLAG_U32,
     .at = AT(batch),
     .min = 1,
     .max = 65536,
     .shown = "512",
     .help = "most tokens of one pass of the trunk"},
    {.kind = 0},
};

const struct flag engine_run_table[] = {
    {.name = "cache-policy",
     .arg = "NAME",
     .kind = FLAG_CHOICE,
     .at = AT(policy),
     .choices = policy_choices,
     .help = "with --ram: which experts stay in memory: heat (learned from use), lru (used last) or "
             "lfu (used most)"},
    {.name = "prefetch",
     .arg = "MODE",
     .kind = FLAG_CHOICE,
     .at = AT(prefetch),
     .choices = prefetch_choices,
     .help = "with --ram: read the next layer's likely experts while this layer is computed: on, off, or "
             "auto (where it is measured to save time in this run); not with --cards"},
    {.name = "verify",
     .kind = FLAG_ON,
     .at = AT(verify),
     .help = "of a pack: check all of it before the work begins, not only what is read (which always is)"},
    {.name = "verbose",
     .letter = 'v',
     .group = "reports",
     .kind = FLAG_COUNT,
     .at = AT(verbose),
     .help = "say what was decided; twice: more"},
    {.name = "processes",
     .kind = FLAG_ON,
     .at = AT(processes),
     .help = "say at the end which processes ran and what each did (-v does too)"},
    {.name = "record-routes",
     .arg = "FILE",
     .kind = FLAG_STRING,
     .at = AT(record_routes),
     .help = "write the experts that the router chose to FILE (.npy), for conclave simulate"},
    {.name = "stats",
     .arg = "FILE",
     .kind = FLAG_STRING,
     .at = AT(stats),
     .help = "write times and counters, those of every worker process too, to FILE as JSON"},
    {.name = "trace",
     .arg = "FILE",
     .kind = FLAG_STRING,
     .at = AT(trace),
     .help = "write a timeline of steps, calls, uploads and reads of every process to FILE, for chrome://tracing or "
             "ui.perfetto.dev"},
    {.kind = 0},
};
const char engine_flags_notes[] =
    "-t, --ram, --table-ram, --cache-policy, --prefetch, --nodes, --cards, --trunk and --batch change speed and memory, never a bit of the result: the bytes "
    "depend "
    "on the model file, the tokens, --kv and the sampling settings alone.\n"
    "Sizes: 800M, 1.5G; K, M, G, T are powers of 1024.";

void engine_flags_init(struct engine_flags *f)
{
    *f = (struct engine_flags){.kv = KV_F16, .cards = {.trunk = TRUNK_AUTO},
                               .stats_file = {.fd = -1},
                               .trace_file = {.fd = -1}};
}

int engine_flags_open(struct engine_flags *f, const struct result own[2], struct err *e)
{
    struct result r[] = {{"--stats", f->stats}, {"--trace", f->trace}, {"--record-routes", f->record_routes},
                         {NULL, NULL}, {NULL, NULL}};
    int rc = 0;

    for (int i = 0; own && i < 2; i++)
        r[3 + i] = own[i];

    if ((f->stats && (rc = output_open(&f->stats_file, f->stats, e))) ||
        (f->trace && (rc = output_open(&f->trace_file, f->trace, e))))
        return rc;
    return results_differ(r, sizeof r / sizeof *r, e);
}

int engine_flags_close(struct engine_flags *f, struct err *e)
{
    int stats = output_close(&f->stats_file, e), trace = output_close(&f->trace_file, e);

    return stats ? stats : trace;
}

static int trace_out(void *to, const void *data, size_t n, struct err *e)
{
    return output_write(to, data, n, e);
}

void engine_flags_options(struct engine_flags *f, struct engine_options *o)
{
    o->model_path = f->model;
    o->kv = (enum kv_type)f->kv;
    o->threads = f->threads;
    o->nodes = f->nodes;
    o->ram = f->ram;
    o->table_ram = f->table_ram;
    o->batch = f->batch;
    o->want = f->cards;
    o->policy = (enum policy_kind)f->policy;
    o->prefetch = (enum prefetch_mode)f->prefetch;
    o->record_routes = f->record_routes;
    o->trace = f->trace ? trace_out : NULL;
    o->trace_to = &f->trace_file;
    o->verbose = f->verbose;
    o->verify = f->verify;
    o->progress = isatty(2);
}

const char *kv_name(int kv)
{
    static const char *const name[] = {"f32", "f16", "bf16"};

    return name[kv];
}

static const char *policy_name(int kind)
{
    static const char *const name[] = {"heat", "lru", "lfu"};

    return name[kind];
}

double seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct phase phase_between(const struct engine_stats *a, const struct engine_stats *b, double wall)
{
    struct phase p = {.wall = wall};
    double step = 1e-9 * (double)(b->step_ns - a->step_ns + b->draft_ns - a->draft_ns),
           wait = 1e-9 * (double)(b->wait_ns - a->wait_ns);

    for (uint32_t i = 0; i < b->n_workers; i++) {
        double work = 1e-9 * (double)(b->worker[i].work_ns - a->worker[i].work_ns);

        if (work > p.experts)
            p.experts = work;
        p.major_faults += b->worker[i].major_faults - a->worker[i].major_faults;
        p.weight_bytes += b->worker[i].weight_bytes - a->worker[i].weight_bytes;
    }
    if (p.experts > wait) /* workers also compute while the trunk does */
        p.experts = wait;
    p.trunk = step - wait;
    p.waiting = wait - p.experts;
    p.rest = wall > step ? wall - step : 0;
    p.major_faults += b->major_faults - a->major_faults;
    p.steps = b->steps - a->steps;
    p.calls = b->calls - a->calls;
    p.items = b->items - a->items;
    p.calling = 1e-9 * (double)(b->call_ns - a->call_ns);
    p.disk_items = b->disk_items - a->disk_items;
    p.expert_reads = b->expert_reads - a->expert_reads;
    p.bytes_read = b->bytes_read - a->bytes_read;
    p.moves = b->moves - a->moves;
    return p;
}

static void put_u64(struct json_out *j, const char *key, uint64_t v)
{
    json_key(j, key);
    json_put_u64(j, v);
}

static void put_ms(struct json_out *j, const char *key, double seconds)
{
    json_key(j, key);
    json_put_f64(j, 1e3 * seconds);
}

static void put_str(struct json_out *j, const char *key, const char *s)
{
    json_key(j, key);
    json_put_str(j, s);
}

/* A path is bytes; JSON is UTF-8. */
static void put_path(struct json_out *j, const char *key, const char *path)
{
    size_t n = strlen(path), len;
    char *copy = strdup(path);

    json_key(j, key);
    if (!copy) {
        json_put_null(j);
        return;
    }
    for (size_t i = 0; i < n; i += len)
        if (utf8_next(copy + i, n - i, &len) != UTF8_OK)
            memset(copy + i, '?', len);
    json_put_strn(j, copy, n);
    free(copy);
}

static void put_per(struct json_out *j, const char *key, uint64_t bytes, uint64_t n)
{
    json_key(j, key);
    json_put_f64(j, n ? (double)bytes / (double)n : 0);
}

void stats_put_phase(struct json_out *j, const char *key, const struct phase *p, uint64_t n_tokens)
{
    json_key(j, key);
    json_open_object(j);
    put_ms(j, "wall_ms", p->wall);
    put_ms(j, "experts_ms", p->experts);
    put_ms(j, "calls_ms", p->calling);
    put_ms(j, "trunk_ms", p->trunk);
    put_ms(j, "waiting_ms", p->waiting);
    put_ms(j, "rest_ms", p->rest);
    put_u64(j, "steps", p->steps);
    put_u64(j, "calls", p->calls);
    put_u64(j, "items", p->items);
    put_u64(j, "disk_items", p->disk_items);
    put_u64(j, "expert_reads", p->expert_reads);
    put_u64(j, "bytes_read", p->bytes_read);
    put_u64(j, "weight_bytes", p->weight_bytes);
    put_u64(j, "major_faults", p->major_faults);
    put_u64(j, "hits", p->items - p->disk_items);
    put_u64(j, "misses", p->disk_items);
    put_u64(j, "moves", p->moves);
    json_key(j, "bytes_per_token"); /* by where the weights came from */
    json_open_object(j);
    put_per(j, "ram", p->weight_bytes, n_tokens);
    put_per(j, "disk", p->bytes_read, n_tokens);
    json_close_object(j);
    json_close_object(j);
}

static void put_workers(struct json_out *j, const struct engine_stats *s)
{
    json_key(j, "workers");
    json_open_array(j);
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const struct engine_worker *w = &s->worker[i];

        json_open_object(j);
        put_str(j, "name", w->name);
        put_u64(j, "pid", (uint64_t)w->pid);
        put_u64(j, "calls", w->calls);
        put_u64(j, "items", w->items);
        if (w->card >= 0) {
            put_u64(j, "card", (uint64_t)w->card);
            put_u64(j, "trunk", (uint64_t)w->trunk);
            put_u64(j, "came", w->came);
            put_u64(j, "held", w->held);
        }
        put_u64(j, "rows", w->rows);
        put_u64(j, "weight_bytes", w->weight_bytes);
        put_ms(j, "work_ms", 1e-9 * (double)w->work_ns);
        put_u64(j, "sleeps", w->sleeps);
        put_u64(j, "declined", w->declined);
        put_u64(j, "amended", w->amended);
        put_u64(j, "major_faults", w->major_faults);
        json_close_object(j);
    }
    json_close_array(j);
}

/* Experts read before a call named them, and whether one did. */
static void put_prefetch(struct json_out *j, const struct engine_stats *s)
{
    json_key(j, "prefetch");
    json_open_object(j);
    put_u64(j, "on", (uint64_t)s->ahead_on);
    put_u64(j, "steps", s->ahead_steps);
    put_u64(j, "trials", s->ahead_trials);
    json_key(j, "saved");
    json_put_f64(j, s->ahead_gain);
    put_u64(j, "in_time", s->ahead_used);
    put_u64(j, "late", s->ahead_late);
    put_u64(j, "wasted", s->ahead_wasted);
    put_u64(j, "dropped", s->ahead_dropped);
    json_close_object(j);
}

/* Where experts were found. Hits and misses count items: one expert of one call. */
static void put_residency(struct json_out *j, const struct engine_flags *f, const struct engine_stats *s)
{
    json_key(j, "residency");
    json_open_object(j);
    put_str(j, "policy", s->resident ? "all resident" : policy_name(f->policy));
    put_u64(j, "places", s->places);
    put_u64(j, "spare", s->spare);
    put_u64(j, "residents", s->residents);
    put_u64(j, "hits", s->items - s->disk_items);
    put_u64(j, "misses", s->disk_items);
    put_u64(j, "moves", s->moves);
    put_u64(j, "demand_reads", s->demand_reads);
    put_u64(j, "most_open_reads", s->most_open);
    put_u64(j, "warm_reads", s->warm_reads);
    put_u64(j, "warm_bytes", s->warm_bytes);
    put_u64(j, "warm_raised", s->warm_raised);
    put_u64(j, "lost_uses", s->lost_uses);
    put_u64(j, "read_again", s->read_again);
    put_prefetch(j, s);
    json_close_object(j);
}

/* Look-up tables by rows. */
static void put_tables(struct json_out *j, const struct engine_stats *s)
{
    if (!s->table_bytes)
        return;
    json_key(j, "tables");
    json_open_object(j);
    put_u64(j, "bytes", s->table_bytes);
    json_key(j, "whole");
    json_put_bool(j, s->tables_whole);
    put_u64(j, "rows_kept", s->table_cached);
    put_u64(j, "rows", s->table_rows);
    put_u64(j, "hits", s->table_hits);
    put_u64(j, "reads", s->table_reads);
    put_u64(j, "bytes_read", s->table_read_bytes);
    put_ms(j, "wait_ms", 1e-9 * (double)s->table_wait_ns);
    json_close_object(j);
}

void stats_put_engine(struct json_out *j, const struct engine_flags *f, const struct model *m,
                      uint32_t n_ctx, const struct engine_stats *s)
{
    put_str(j, "version", CONCLAVE_VERSION);
    put_str(j, "build", build_id());
    put_path(j, "model", m->path);
    put_str(j, "architecture", model_arch_name(m));
    put_str(j, "kv", kv_name(f->kv));
    put_u64(j, "n_ctx", n_ctx);
    put_u64(j, "pid", (uint64_t)getpid());
    put_u64(j, "threads", s->threads);
    put_u64(j, "nodes", s->nodes);
    put_u64(j, "n_slabs", s->n_slabs);
    put_u64(j, "trunk_bytes", s->trunk_bytes);
    put_tables(j, s);
    put_u64(j, "layers", s->expert_layers);
    put_u64(j, "experts", s->experts);
    put_u64(j, "slab_bytes_all", s->expert_bytes);
    put_u64(j, "slab_bytes_one", s->expert_one_bytes);
    put_u64(j, "slab_bytes", s->slab_bytes);
    put_u64(j, "kv_bytes", s->kv_bytes);
    put_ms(j, "load_ms", 1e-9 * (double)s->load_ns);
    put_u64(j, "loaded_bytes", s->loaded_bytes);
    put_u64(j, "steps", s->steps);
    put_ms(j, "step_ms", 1e-9 * (double)s->step_ns);
    put_ms(j, "wait_ms", 1e-9 * (double)s->wait_ns);
    put_u64(j, "calls", s->calls);
    put_u64(j, "items", s->items);
    put_u64(j, "disk_items", s->disk_items);
    put_residency(j, f, s);
    put_u64(j, "card_items", s->card_items);
    put_u64(j, "own_items", s->own_items);
    if (s->gaps) {
        put_u64(j, "ns_between_graphs", s->gap_ns / s->gaps);
        put_u64(j, "ns_until_asked", s->gap_asked_ns / s->gaps); /* of these: until the next record was there */
        put_u64(j, "ns_to_choose", s->chosen ? s->chosen_ns / s->chosen : 0); /* of these: sampling, text */
        put_u64(j, "ns_to_launch", s->gap_launch_ns / s->gaps);
    }
    put_u64(j, "card_slots", s->card_slots);
    put_u64(j, "card_bytes", s->card_bytes);
    put_u64(j, "uploads", s->uploads);
    put_u64(j, "upload_bytes", s->upload_bytes);
    put_u64(j, "card_moves", s->card_moves);
    put_u64(j, "copies_down", s->copies_down);
    put_u64(j, "card_deaths", s->card_deaths);
    put_u64(j, "card_successors", s->card_successors);
    put_u64(j, "cards_out", s->cards_out);
    put_u64(j, "lost_items", s->lost_items);
    put_u64(j, "host_successors", s->host_successors);
    put_u64(j, "retired_calls", s->retired_calls);
    put_u64(j, "replayed_tokens", s->replayed_tokens);
    put_u64(j, "amendments", s->amendments);
    put_u64(j, "declined", s->declined);
    put_u64(j, "net_finds", s->net_finds);
    put_u64(j, "expert_reads", s->expert_reads);
    put_u64(j, "bytes_read", s->bytes_read);
    put_u64(j, "pager_read_bytes", s->pager_read_bytes);
    put_u64(j, "pager_depth", s->pager_depth);
    put_u64(j, "major_faults", s->major_faults);
    put_workers(j, s);
}

void engine_flags_processes(const struct engine_flags *f, const struct engine *en)
{
    if (f->processes || f->verbose)
        engine_print_processes(en);
}

int report_error(const struct err *e)
{
    if (*e->msg)
        fprintf(stderr, "conclave: %s\n", e->msg);
    return 1;
}

int stderr_colour(void)
{
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR");

    return isatty(2) && !(no && *no) && !(term && !strcmp(term, "dumb"));
}
