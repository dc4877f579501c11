/* What the commands that run a model have in common: the flags that say how it is run, none of
 * which but --kv touches a result, and the statistics of a run. */
#pragma once
#include <stdint.h>

#include "coordinator/cli/args.h"
#include "coordinator/cli/output.h"
#include "coordinator/engine.h"
#include "coordinator/json/json_write.h"
#include "coordinator/supervise/cards_choose.h"

struct engine_flags {
    const char *model, *stats, *trace;
    struct output stats_file, trace_file; /* of engine_flags_open */
    uint32_t threads, nodes, batch;
    uint64_t ram, table_ram;
    const char *record_routes;
    struct cards_wanted cards;
    int kv, policy, prefetch, verbose, processes, verify;
};
/* Two parts over one struct engine_flags: what decides where things go (conclave plan has it too), and what
 * else a run can be told. */
extern const struct flag engine_flag_table[], engine_run_table[];
extern const char engine_flags_notes[]; /* for help */
void engine_flags_init(struct engine_flags *f);
/* Everything but n_ctx and every_row. */
void engine_flags_options(struct engine_flags *f, struct engine_options *o);
/* Opens --stats and --trace. No two results go into one file: these, --record-routes, and those that the
 * command has opened itself (path NULL: none; own NULL: no such). */
int engine_flags_open(struct engine_flags *f, const struct result own[2], struct err *e);
/* Also after an error. */
int engine_flags_close(struct engine_flags *f, struct err *e);
const char *kv_name(int kv);

/* A stretch of a run between two readings of the counters. Seconds. */
struct phase {
    double wall;    /* all of it */
    double experts; /* the busiest CPU worker computed */
    double calling; /* the leader made, awaited and summed the experts' calls */
    double trunk;   /* passes of the trunk without waiting */
    double waiting; /* the trunk waited and no CPU worker computed: hand-over, disk */
    double rest;    /* not in a pass: sampling, text */
    uint64_t steps, calls, items, disk_items, expert_reads, bytes_read, weight_bytes, moves;
    uint64_t major_faults; /* of all processes: waits for pages that memory had no room for */
};
struct phase phase_between(const struct engine_stats *a, const struct engine_stats *b, double wall);
double seconds_now(void);

/* Members of the object that is open in j. n_tokens: of the phase. */
void stats_put_phase(struct json_out *j, const char *key, const struct phase *p, uint64_t n_tokens);
void stats_put_engine(struct json_out *j, const struct engine_flags *f, const struct model *m,
                      uint32_t n_ctx, const struct engine_stats *s);

/* After the work: --processes, or -v. */
void engine_flags_processes(const struct engine_flags *f, const struct engine *en);

/* "conclave: " and the message; returns 1. Nothing if no error is set. */
int report_error(const struct err *e);
/* 1: lines on stderr may be coloured. */
int stderr_colour(void);
