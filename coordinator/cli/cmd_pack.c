/* conclave pack: a model file as a folder whose experts are one read each; and checking such a folder. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/cli/args.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/common.h"
#include "coordinator/cli/stop.h"
#include "coordinator/machine.h"
#include "coordinator/model/model.h"
#include "coordinator/pack/pack.h"
#include "coordinator/pack/verify.h"
#include "coordinator/pack/write.h"

struct options {
    const char *model, *dir, *verify;
    uint32_t nodes;
};

static const struct flag table[] = {
    {.name = "model",
     .letter = 'm',
     .arg = "FILE",
     .group = "packing",
     .kind = FLAG_STRING,
     .at = offsetof(struct options, model),
     .help = "GGUF file, or any part of a split one"},
    {.name = "output",
     .letter = 'o',
     .arg = "DIR",
     .kind = FLAG_STRING,
     .at = offsetof(struct options, dir),
     .help = "folder to write, made if it is not there"},
    {.name = "nodes",
     .arg = "N",
     .kind = FLAG_U32,
     .at = offsetof(struct options, nodes),
     .min = 1,
     .max = MAX_NODES,
     .shown = "this machine's NUMA nodes",
     .help = "nodes that the experts' rows are cut for; a run with another number reads more pieces and "
             "says the same"},
    {.name = "verify",
     .arg = "DIR",
     .group = "checking",
     .kind = FLAG_STRING,
     .at = offsetof(struct options, verify),
     .help = "read the whole pack in DIR and compare its checksums; status 1 if anything is damaged"},
    {.kind = 0},
};

/* ---- the bar ---- */

enum { BAR = 30, BAD_SHOWN = 20 };
struct bar {
    const char *what;
    int on; /* stderr is a terminal */
    double start;
    uint64_t n_bad;
};

static void progress(void *arg, uint64_t done, uint64_t total, int last)
{
    const struct bar *b = arg;
    double part = total ? (double)done / (double)total : 1, s = seconds_now() - b->start;
    double rate = s > 0 ? (double)done / s : 0;
    int full = (int)(part * BAR);

    if (!b->on)
        return;
    fprintf(stderr, "\r%s [%.*s%*s] %3.0f%%  %.2f GB/s  %.0f s left   ", b->what, full,
            "##############################", BAR - full, "", 100 * part, rate * 1e-9,
            rate > 0 ? (double)(total - done) / rate : 0.0);
    if (last)
        fprintf(stderr, "\r\033[K");
}

static void bad(void *arg, const char *line)
{
    struct bar *b = arg;

    if (b->n_bad++ == BAD_SHOWN)
        fprintf(stderr, "%sconclave: ... and more\n", b->on ? "\r\033[K" : "");
    else if (b->n_bad <= BAD_SHOWN)
        fprintf(stderr, "%sconclave: %s\n", b->on ? "\r\033[K" : "", line);
}

/* ---- the two works ---- */

static int stopped(const char *what)
{
    fprintf(stderr, "conclave: %s\n", what);
    return stop_asked();
}

static int verify(const char *dir, struct err *e)
{
    struct bar b = {.what = "checking", .on = isatty(2), .start = seconds_now()};
    struct pack_verify v = {.progress = progress, .stop = stop_asked, .bad = bad, .arg = &b};
    struct gguf *g = NULL;
    int rc = gguf_open(dir, &g, e);
    double s;

    if (!rc && !gguf_pack(g))
        rc = err_set(e, -EINVAL, "%s: is no pack: a GGUF file has no checksums", dir);
    v.g = g;
    if (!rc)
        rc = pack_verify(&v, e);
    s = seconds_now() - b.start;
    gguf_close(g);
    if (rc)
        return rc == 1 ? stopped("stopped") : 1;
    if (v.n_bad) {
        err_set(e, -EIO, "%s: %llu of its parts are damaged; remove it and pack the model again", dir,
                (unsigned long long)v.n_bad);
        return 1;
    }
    printf("%s: all checksums are right: %.2f GB in %.1f s (%.2f GB/s)\n", dir, (double)v.bytes * 1e-9, s,
           (double)v.bytes * 1e-9 / (s > 0 ? s : 1));
    return args_flush_stdout();
}

static uint32_t machine_nodes(void)
{
    struct machine m;

    machine_look(&m);
    return m.n_nodes < MAX_NODES ? m.n_nodes : MAX_NODES;
}

static int pack(const struct options *o, struct err *e)
{
    struct bar b = {.what = "packing", .on = isatty(2), .start = seconds_now()};
    struct pack_options p = {.dir = o->dir, .progress = progress, .stop = stop_asked, .arg = &b};
    struct pack_report r;
    struct model *m = NULL;
    double s;
    int rc = model_open(o->model, MODEL_ANY_TYPE, &m, e);

    p.m = m;
    p.n_nodes = o->nodes ? o->nodes : machine_nodes();
    if (!rc)
        rc = pack_write(&p, &r, e);
    model_close(m);
    s = seconds_now() - b.start;
    if (rc)
        return rc == 1 ? stopped("stopped; the same command goes on from here") : 1;
    if (r.was_there)
        printf("%s: is there already; conclave pack --verify %s checks it\n", o->dir, o->dir);
    else
        printf("%s: %.2f GB, %llu blocks for %u node%s, in %.1f s (%.2f GB/s)\n", o->dir,
               (double)r.bytes * 1e-9, (unsigned long long)r.n_blocks, r.n_nodes, r.n_nodes > 1 ? "s" : "",
               s, (double)(r.bytes - r.kept) * 1e-9 / (s > 0 ? s : 1));
    if (r.kept)
        printf("of these %.2f GB were there from an interrupted run, and were checked\n",
               (double)r.kept * 1e-9);
    return args_flush_stdout();
}

int cmd_pack(int argc, char **argv)
{
    struct options o = {0};
    const struct args a = {
        .verb = "pack",
        .about = "write a model as a folder whose experts are one read each",
        .usage = "-m MODEL -o DIR [--nodes N] | --verify DIR",
        .notes = "DIR/dense.gguf holds the metadata and every tensor that is no routed expert, "
                 "DIR/experts.pack the experts: each one's rows side by side, with a checksum that every "
                 "read is compared with. -m DIR runs it. The model's files are not touched; as long as "
                 "they stay, a damaged block is read from them.\n"
                 "Interrupted, the same command goes on and checks what is there.\n",
        .part = {{table, &o}},
    };
    struct err e = {0};
    int status;

    if (args_parse(&a, argc, argv, &status))
        return status;
    if (o.verify && (o.model || o.dir || o.nodes))
        return args_usage(a.verb, "--verify DIR goes without -m, -o and --nodes");
    if (!o.verify && (!o.model || !o.dir))
        return args_usage(a.verb, "%s is missing; see conclave pack --help", o.model ? "-o DIR" : "-m FILE");
    stop_may_ask(1);
    status = o.verify ? verify(o.verify, &e) : pack(&o, &e);
    stop_may_ask(0);
    if (status == 1 && e.code)
        report_error(&e);
    return status;
}
