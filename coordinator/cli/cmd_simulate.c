/* conclave simulate: what a cache of experts would have hit on a recorded routing trace, by each
 * policy, without a model. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/cli/args.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/common.h"
#include "coordinator/cli/value.h"
#include "coordinator/json/json_write.h"
#include "coordinator/residency/replay.h"

int cmd_simulate(int argc, char **argv);

struct options {
    const char *routes, *ram;
    uint32_t experts;
    uint64_t expert_bytes;
    int policy, json;
};

/* The rows of the answer. The first N_CHOICES are what --cache-policy can name; LRU and the optimum
 * are always there: between them lies the gap. */
enum { HEAT, LRU, LFU, WINDOW, DECAY, FIXED, N_CHOICES, OPTIMUM = N_CHOICES, N_ROWS };
#define NAMES "heat|lru|lfu|window|decay|fixed|all"
static const char *const row_name[] = {"heat", "lru", "lfu", "window", "decay", "fixed", "optimum"};
static const int order[] = {LRU, LFU, WINDOW, DECAY, FIXED, HEAT, OPTIMUM};

static const struct flag table[] = {
    {.name = "routes",
     .arg = "FILE",
     .group = "trace",
     .kind = FLAG_STRING,
     .at = offsetof(struct options, routes),
     .required = 1,
     .help = ".npy file [tokens, layers, experts used] of small unsigned integers"},
    {.name = "experts",
     .arg = "N",
     .kind = FLAG_U32,
     .at = offsetof(struct options, experts),
     .min = 1,
     .max = 65536,
     .shown = "",
     .help = "experts of a layer (default: the largest number in the trace + 1)"},
    {.name = "ram",
     .arg = "SIZE",
     .group = "cache",
     .kind = FLAG_STRING,
     .at = offsetof(struct options, ram),
     .help =
         "how many experts it holds, of all layers together: a count, or a part of all like 25%"},
    {.name = "cache-policy",
     .arg = "NAME",
     .kind = FLAG_CHOICE,
     .at = offsetof(struct options, policy),
     .choices = NAMES,
     .help = "one policy, besides lru and the optimum, or all: " NAMES},
    {.name = "expert-bytes",
     .arg = "SIZE",
     .kind = FLAG_SIZE,
     .at = offsetof(struct options, expert_bytes),
     .min = 1,
     .shown = "",
     .help = "bytes of one expert: adds what is read from disk for a token"},
    {.name = "json",
     .group = "output",
     .kind = FLAG_ON,
     .at = offsetof(struct options, json),
     .help = "one JSON object in place of the table"},
    {.kind = 0},
};

static const char notes[] =
    "heat: the engine's own, by a value learned from heat and time since the last use; a move has a price "
    "here, and none in the engine, which reads what is missed in any case: it admits more.\n"
    "lru, lfu: every missed expert is admitted; the one that leaves was used longest ago, or least "
    "(uses count half after 64 tokens).\n"
    "window: uses in the last 64 tokens; admitted with two of them and above the coldest.\n"
    "decay: uses that count half after 32 tokens; admitted above the coldest.\n"
    "fixed: the experts used most in the whole trace, known in advance.\n"
    "optimum: the most hits that any cache could have had (Belady's, free to leave one out).\n"
    "\n"
    "The cache is empty at the start. A move is an expert that enters it. Gap: the part of the way "
    "from lru to the optimum. Every missed expert is read, admitted or not.\n";

struct answer {
    struct trace trace;
    uint32_t places;
    int shown[N_ROWS];
    struct replay row[N_ROWS];
};

/* "25%" or "512" -> places. 0, or 2 with a line. */
static int take_ram(const char *text, uint32_t pairs, uint32_t *places)
{
    size_t n = strlen(text);
    char number[64];
    double part;
    int64_t count;

    if (n && n < sizeof number && text[n - 1] == '%') {
        memcpy(number, text, n);
        number[n - 1] = 0;
        if (!value_f64(number, &part) && part > 0 && part <= 100) {
            *places = (uint32_t)(part / 100 * pairs);
            if (!*places)
                return args_usage("simulate", "--ram %s: less than one of %u experts", text, pairs);
            return 0;
        }
    } else if (!value_i64(text, &count) && count >= 1 && count <= pairs) {
        *places = (uint32_t)count;
        return 0;
    }
    return args_usage("simulate",
                      "--ram %s: wanted a number of experts, 1 to %u, or a part like 25%%", text,
                      pairs);
}

static int replay_row(struct answer *a, int row, struct err *e)
{
    struct replay *r = &a->row[row];

    switch (row) {
    case HEAT:
        return replay_policy(&a->trace, a->places, POLICY_HEAT, r, e);
    case LRU:
        return replay_policy(&a->trace, a->places, POLICY_LRU, r, e);
    case LFU:
        return replay_policy(&a->trace, a->places, POLICY_LFU, r, e);
    case WINDOW:
        return replay_window(&a->trace, a->places, r, e);
    case DECAY:
        return replay_decay(&a->trace, a->places, 32, 0, r, e);
    case FIXED:
        return replay_fixed(&a->trace, a->places, r, e);
    default:
        return replay_optimum(&a->trace, a->places, r, e);
    }
}

static double rate(const struct answer *a, int row)
{
    return (double)a->row[row].hits / (double)trace_accesses(&a->trace);
}

/* Of the way from LRU to the optimum; 0 where there is none. */
static double gap(const struct answer *a, int row)
{
    double all = rate(a, OPTIMUM) - rate(a, LRU);

    return all > 0 ? (rate(a, row) - rate(a, LRU)) / all : 0;
}

static double a_token(const struct answer *a, uint64_t n)
{
    return (double)n / a->trace.n_tokens;
}

static double read_bytes(const struct answer *a, const struct options *o, int row)
{
    return a_token(a, trace_accesses(&a->trace) - a->row[row].hits) * (double)o->expert_bytes;
}

static void print_table(const struct answer *a, const struct options *o)
{
    const struct trace *t = &a->trace;
    char size[32];

    printf("%s: %u tokens, %u layers of %u experts, %u used: %zu uses, %u a token\n", o->routes,
           t->n_tokens, t->n_layers, t->n_experts, t->top_k, trace_accesses(t),
           t->n_layers * t->top_k);
    printf("cache: %u of %u experts (%.1f %%)\n\n", a->places, trace_pairs(t),
           100.0 * a->places / trace_pairs(t));
    printf("%-8s %12s %9s %9s %14s%s\n", "policy", "hits", "rate", "gap", "moves a token",
           o->expert_bytes ? "    read a token" : "");
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        int row = order[i];
        if (!a->shown[row])
            continue;
        printf("%-8s %12llu %7.2f %% %7.1f %%", row_name[row], (unsigned long long)a->row[row].hits,
               100 * rate(a, row), 100 * gap(a, row));
        if (row == FIXED) /* filled before it begins */
            printf(" %14s", "-");
        else
            printf(" %14.1f", a_token(a, a->row[row].moves));
        if (o->expert_bytes)
            printf("  %14s", value_show_size((uint64_t)read_bytes(a, o, row), size));
        printf("\n");
    }
}

static void put_u64(struct json_out *j, const char *key, uint64_t v)
{
    json_key(j, key);
    json_put_u64(j, v);
}

static void put_f64(struct json_out *j, const char *key, double v)
{
    json_key(j, key);
    json_put_f64(j, v);
}

static int print_json(const struct answer *a, const struct options *o, struct err *e)
{
    struct json_out *j = json_out_new(1);
    const char *text;
    size_t n;
    int rc;

    if (!j)
        return err_set(e, -ENOMEM, "no memory for the JSON text");
    json_open_object(j);
    put_u64(j, "tokens", a->trace.n_tokens);
    put_u64(j, "layers", a->trace.n_layers);
    put_u64(j, "experts", a->trace.n_experts);
    put_u64(j, "used", a->trace.top_k);
    put_u64(j, "uses", trace_accesses(&a->trace));
    put_u64(j, "places", a->places);
    json_key(j, "policies");
    json_open_object(j);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        int row = order[i];
        if (!a->shown[row])
            continue;
        json_key(j, row_name[row]);
        json_open_object(j);
        put_u64(j, "hits", a->row[row].hits);
        put_f64(j, "rate", rate(a, row));
        put_f64(j, "gap", gap(a, row));
        if (row != FIXED)
            put_u64(j, "moves", a->row[row].moves);
        if (o->expert_bytes)
            put_f64(j, "bytes_per_token", read_bytes(a, o, row));
        json_close_object(j);
    }
    json_close_object(j);
    json_close_object(j);
    rc = json_text(j, &text, &n, e);
    if (!rc)
        fwrite(text, 1, n, stdout);
    json_out_free(j);
    return rc;
}

int cmd_simulate(int argc, char **argv)
{
    struct options o = {.ram = "25%", .policy = N_CHOICES};
    const struct args args = {.verb = "simulate",
                              .about = "what a cache of experts would have hit on a recorded trace",
                              .usage = "--routes FILE [options]",
                              .notes = notes,
                              .part = {{table, &o}}};
    struct answer a = {0};
    struct err e = {0};
    int status;

    if (args_parse(&args, argc, argv, &status))
        return status;
    status = 1;
    if (trace_read(o.routes, o.experts, &a.trace, &e))
        goto done;
    status = take_ram(o.ram, trace_pairs(&a.trace), &a.places);
    if (status)
        goto done;
    status = 1;
    for (int row = 0; row < N_ROWS; row++) {
        a.shown[row] = o.policy == N_CHOICES || row == o.policy || row == LRU || row == OPTIMUM;
        if (a.shown[row] && replay_row(&a, row, &e))
            goto done;
    }
    if (!o.json)
        print_table(&a, &o);
    else if (print_json(&a, &o, &e))
        goto done;
    status = args_flush_stdout();
done:
    if (e.code)
        report_error(&e);
    trace_free(&a.trace);
    return status;
}
