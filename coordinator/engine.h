/* The engine as the commands see it: one model, its worker processes, one team of threads for the
 * trunk. engine_run opens everything, runs the body as the team's leader (on the calling, main
 * thread), and takes everything down again, whatever happened.
 *
 *   int body(struct engine *en, void *arg, struct err *e) { engine_step(...); ... return status; }
 *
 * A card's worker that dies is replaced, and the text is the same; any other's death ends the program: one line,
 * status 1, nothing left behind. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "coordinator/model/model.h"
#include "coordinator/residency/policy.h"
#include "coordinator/residency/prefetch.h"
#include "coordinator/supervise/cards_choose.h"
#include "coordinator/supervise/tracer.h"
#include "coordinator/trunk/exec/step.h"
#include "kernels/attention/attention.h"
#include "shm/err.h"
#include "shm/layout.h"

struct engine;
struct dump;
struct expert_layer;

enum { DRAFTS_MOST = 4 }; /* for one step, unless asked for */
struct engine_options {
    const char *model_path;
    uint32_t n_ctx;    /* 0: the model's maximum, or what fits (said in a line) */
    uint32_t n_seqs;   /* sequences, each with so large a context; 0: one */
    enum kv_type kv;
    uint32_t threads;  /* 0: physical cores */
    uint32_t nodes;    /* 0: the machine's NUMA nodes; more than it has: simulated */
    uint64_t ram;      /* bytes of slabs for routed experts, all nodes together; 0: all that fit */
    uint64_t table_ram; /* bytes for look-up tables, rows beyond which are read as needed; a token table of its own that
                         * is larger is one of them then; 0: n-gram tables alone, whole where there is room */
    struct cards_wanted want; /* --cards and --trunk */
    const char *trunk_here; /* the flag that reads the trunk's buffers, which are in this process then; NULL: none */
    uint32_t batch;    /* most tokens of a trunk pass; 0: 512 */
    uint32_t drafts;   /* most tokens that are drafted for a step, where the file has a NextN block; 0: none */
    uint32_t n_saved;  /* slots for saved states: engine_save */
    int drafts_asked;  /* 1: say so where nothing can be drafted */
    int every_row;     /* 1: logits of every token may be asked for (eval, perplexity) */
    enum policy_kind policy; /* which experts stay at hand where not all fit */
    enum prefetch_mode prefetch; /* are the next layer's likely experts read before they are called? */
    int heat;          /* 1: begin with the experts that earlier runs used most, remember this run's */
    int warm_first;    /* 1: these are read before the first token; 0: beside it, behind what is demanded */
    const char *record_routes; /* trunk/routes.h; NULL: no */
    struct lights *lights;     /* lights.h: which experts are used, for who watches; borrowed; NULL: nobody */
    tracer_write *trace; /* --trace: where the timeline's text goes; NULL: nothing is traced */
    void *trace_to;
    int verify;        /* 1: a pack is read as a whole and checked first */
    int verbose;       /* 1: what was decided and why; 2: more */
    int progress;      /* 1: a progress bar on stderr while loading */
};

/* Status of the body, or 1 with *e set. Fails before any process is started where it can. */
int engine_run(const struct engine_options *o, int (*body)(struct engine *en, void *arg, struct err *e),
               void *arg, struct err *e);

/* ---- the same decisions without a run ---- */
struct card_plan;
struct machine;
struct memory;
struct plan;
struct program;
struct engine_look { /* borrowed, valid while `look` runs */
    const struct model *m;
    const struct program *prog;
    const struct machine *machine;
    const struct plan *plan;
    const struct expert_layer *layer; /* m->n_layers */
    const struct memory *memory;      /* as it was before the plan was made */
    const struct card_plan *cards;    /* n_cards 0: none are used */
    const struct cards_chosen *real;  /* n: of these, cards of the driver; else emulated; why none */
    int trunk_card;                   /* index of the one that computes the trunk; -1: the CPU does */
    uint64_t trunk_bytes;
    uint64_t table_bytes, table_row; /* of look-up tables by rows, whole; a row of theirs in the cache */
    uint32_t threads, n_nodes;
};
/* What engine_run would do with these options, shown to `look` instead of done: nothing is made, no
 * process started, no weight read. Status of look, or 1 with *e set. */
int engine_plan(const struct engine_options *o, int (*look)(const struct engine_look *l, void *arg, struct err *e),
                void *arg, struct err *e);

/* ---- inside the body ---- */
const struct model *engine_model(const struct engine *en);
uint32_t engine_n_ctx(const struct engine *en);
uint32_t engine_n_seqs(const struct engine *en);
/* Most tokens, and most output rows, of one step. */
uint32_t engine_max_tokens(const struct engine *en);
uint32_t engine_max_out(const struct engine *en);
/* One pass of the trunk. Logits (n_out, n_vocab), valid until the next step. Token ids, positions, sequences and
 * rows must be in range (asserted); a sequence's tokens lie together. */
const float *engine_step(struct engine *en, const struct step *s);
/* 1: *id is the first token in the order of row `row` (of those that the last step wanted), TOKEN_NONE: it has none. 0:
 * its executor does not tell, look at the logits. After a step with best_only the logits mean something only then. */
int engine_best(const struct engine *en, uint32_t row, uint32_t *id);
/* Most tokens that can be drafted for a step, 0: none. engine_draft: a pass of the NextN block (step.h) over
 * rows of the trunk's last step; logits (n_out, n_vocab), valid until the next step of either. NULL: the executor that
 * had the block's rows is gone; they begin anew with a pass from position 0. */
uint32_t engine_drafts(const struct engine *en);
const float *engine_draft(struct engine *en, const struct step *s);
/* Prompt reuse where layers are recurrent. engine_save: what they keep of a sequence before position pos is copied to
 * one of n_saved slots; pos is where its last step ended, or, where that had drafts, behind one of its tokens, and
 * where its next one begins. engine_restore: the slot's sequence is before that position again (returned), provided
 * that its tokens before it are still those; may be repeated. engine_saved_bytes 0: nothing has to be saved, a step may
 * begin at any position whose tokens before it stand. */
void engine_save(struct engine *en, uint32_t seq, uint32_t pos, uint32_t slot);
uint32_t engine_restore(struct engine *en, uint32_t slot);
uint64_t engine_saved_bytes(const struct engine *en); /* of a slot */
uint32_t engine_n_saved(const struct engine *en); /* slots */
/* Tokens ids[0..n) are those of sequence slot seq, and from `from` on they are going to be read: what they look up in
 * tables can be on its way. */
void engine_foresee(struct engine *en, const uint32_t *ids, size_t n, size_t from, uint32_t seq);
void engine_dump(struct engine *en, struct dump *d, uint32_t positions); /* trunk/dump.h; NULL ends it */

/* ---- what it did; counters since the start, so that two readings can be subtracted ---- */
struct engine_stats {
    uint64_t steps, step_ns;        /* trunk passes, and time in them */
    uint64_t draft_ns;              /* time in passes of the NextN block */
    uint64_t expert_layers, experts; /* layers that have some, and all of theirs; of those that are used */
    uint64_t call_ns;               /* of that: making, awaiting and summing the experts' calls */
    uint64_t wait_ns;               /* of that: the trunk waited for experts */
    uint64_t calls, items;          /* published */
    uint64_t disk_items;            /* of these: the expert was not at hand */
    uint64_t card_items;            /* of these: the expert lay on a card */
    uint64_t gap_ns, gaps;          /* between the graphs of steps of one token, on a real card */
    uint64_t gap_asked_ns, gap_launch_ns; /* of that: until the next record was there; from then to the launch */
    uint64_t chosen_ns, chosen;     /* between an answer and the next record here: sampling, text */
    uint64_t own_items;             /* not published: it lay on the card whose worker executes the trunk */
    uint32_t n_cards, card_slots;   /* slots of all cards */
    uint64_t card_bytes;            /* of a card's pool */
    uint32_t card_deaths, card_successors, cards_out; /* cards' workers that ended; that followed; cards left out */
    uint64_t lost_items;            /* of those workers, in open calls: others were given them */
    uint32_t host_successors;       /* of the trunk's host */
    uint64_t retired_calls, replayed_tokens; /* its open calls at its death; tokens played again */
    uint64_t uploads, upload_bytes; /* experts sent to cards */
    uint64_t card_moves, copies_down; /* that left cards; of these, copied to RAM, which did not have them */
    uint64_t demand_reads;          /* experts read because a call waited for them */
    uint64_t moves;                 /* experts that the policy took in */
    uint64_t warm_reads, warm_bytes, warm_raised; /* experts read by heat; of these, waited for */
    uint64_t ahead_used, ahead_late; /* read ahead and called for: there in time, on the way */
    uint64_t ahead_wasted, ahead_dropped; /* and not called for: read, not begun */
    uint64_t ahead_steps;           /* passes with reading ahead */
    uint32_t ahead_trials;          /* decisions of --prefetch auto */
    int ahead_on;                   /* at the end */
    double ahead_gain;              /* part of a pass's time that the last trial saved */
    uint64_t lost_uses;             /* uses that the policy was not told of */
    uint64_t read_again;            /* damaged parts of a pack, read from its original instead */
    uint32_t most_open;             /* demanded reads open at a time */
    uint32_t places, spare, residents; /* slabs of the policy, others; experts of the policy */
    int resident;                   /* every expert has its slab: no policy */
    uint64_t amendments, declined;
    uint64_t expert_reads, bytes_read; /* by the pager, loading included */
    uint32_t pager_read_bytes, pager_depth; /* its reads' size and the number of them out at most, now */
    const char *pager_how; /* static; why these: "default", "measured", "fixed" */
    uint64_t load_ns, loaded_bytes;
    uint64_t trunk_bytes, slab_bytes, kv_bytes; /* sizes */
    uint64_t expert_bytes, expert_one_bytes; /* slabs that hold all experts, the largest one */
    uint64_t table_bytes;           /* of look-up tables by rows, whole; 0: none */
    int tables_whole;
    uint64_t table_rows, table_hits, table_reads, table_read_bytes; /* paged ones: rows that steps needed; of these, at
                                     * hand; rows read, bytes of their blocks */
    uint64_t table_wait_ns, table_cached; /* steps waited for them; rows that are kept at most */
    uint64_t net_finds;             /* work found by a time-out alone; 0 unless something is wrong */
    uint32_t threads, nodes, n_slabs;
    uint64_t major_faults;          /* pages that the coordinator had to wait for the disk for */
    struct engine_worker {
        char name[48];
        int pid;
        uint64_t major_faults;
        uint64_t calls, items, rows, weight_bytes, work_ns, sleeps, declined, amended;
        int card;       /* number of the card; -1: none */
        int trunk;      /* 1: it executes the trunk too; its own hits are among its items */
        uint64_t came;  /* experts that ever arrived there */
        uint64_t held;  /* that lie there now */
    } worker[MAX_CARDS + MAX_NODES + 1];
    uint32_t n_workers;
};
void engine_stats(const struct engine *en, struct engine_stats *s);
/* The same for who watches (engine_options.lights); nobody: nothing. Steps do it a few times a second: where none
 * comes for a while, this is for the last ones. */
void engine_show(struct engine *en);
/* Of these the few that are cheap enough for every step; items with own_items, card_items too. */
struct engine_count {
    uint64_t items, card_items, disk_items, wait_ns, bytes_read;
};
void engine_counts(const struct engine *en, struct engine_count *c);
/* The process table for people: "pid 123  cpu worker 0 ..."; lines to stderr. */
void engine_print_processes(const struct engine *en);
