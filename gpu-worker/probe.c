/* The part of the probe that needs no CUDA: the text, and what is wrong where there is no driver. The
 * driver's library is looked for by name first, since the runtime says "insufficient driver" for a
 * missing one, too. */
#define _GNU_SOURCE
#include "gpu-worker/probe.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <yajl/yajl_gen.h>

#define DRIVER_LIBRARY "libcuda.so.1"
#define DRIVER_LOADED "/proc/driver/nvidia/version"

int probe_runs(const char *archs, int major, int minor)
{
    int of_card = 10 * major + minor;

    for (const char *at = archs; *at;) {
        char *end;
        int a = (int)strtol(at, &end, 10);

        if (end == at)
            return 0;
        if (!strncmp(end, "+ptx", 4)) {
            if (a <= of_card)
                return 1;
            end += 4;
        } else if (a / 10 == major && a <= of_card) {
            return 1;
        }
        at = end + strspn(end, " ");
    }
    return 0;
}

int probe_shape_read(const char *text, struct probe_shape *out)
{
    uint32_t *const to[] = {&out->type[0], &out->type[1], &out->type[2], &out->n_ff, &out->n_embd, &out->used};
    static const uint32_t most[] = {1000, 1000, 1000, 1u << 20, 1u << 20, 256};

    for (size_t i = 0; i < 6; i++) {
        char *end;
        unsigned long v = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : ULONG_MAX;

        if (v > most[i] || (i > 2 && !v) || *end != (i < 5 ? ':' : 0))
            return -1;
        *to[i] = (uint32_t)v;
        text = end + 1;
    }
    return 0;
}

/* ---- the text ---- */

static void key(yajl_gen g, const char *name)
{
    yajl_gen_string(g, (const unsigned char *)name, strlen(name));
}
static void put_text(yajl_gen g, const char *name, const char *text)
{
    key(g, name);
    yajl_gen_string(g, (const unsigned char *)text, strlen(text));
}
static void put_problem(yajl_gen g, const char *text)
{
    key(g, "problem");
    if (*text)
        yajl_gen_string(g, (const unsigned char *)text, strlen(text));
    else
        yajl_gen_null(g);
}
static void put_int(yajl_gen g, const char *name, long long v)
{
    key(g, name);
    yajl_gen_integer(g, v);
}
static void put_bool(yajl_gen g, const char *name, int v)
{
    key(g, name);
    yajl_gen_bool(g, v);
}
/* null: not measured */
static void put_rate(yajl_gen g, const char *name, double v)
{
    key(g, name);
    if (v > 0 && isfinite(v))
        yajl_gen_double(g, v);
    else
        yajl_gen_null(g);
}

static void put_measured(yajl_gen g, const struct probe *p, const struct probe_card *c)
{
    key(g, "measured");
    yajl_gen_map_open(g);
    put_rate(g, "upload_bytes_per_s", c->upload);
    put_rate(g, "upload_pageable_bytes_per_s", c->upload_pageable);
    put_rate(g, "memory_bytes_per_s", c->memory);
    put_rate(g, "experts_bytes_per_s", c->experts);
    put_rate(g, "experts_layer_us", c->experts_layer);
    put_rate(g, "node_us", c->node);
    put_rate(g, "round_trip_us", c->round_trip);
    key(g, "handoff");
    yajl_gen_array_open(g);
    for (uint32_t k = 0; k < p->n_cards; k++) {
        if (!(c->handoff[k] > 0))
            continue;
        yajl_gen_map_open(g);
        put_int(g, "card", k);
        put_rate(g, "mapped_us", c->handoff[k]);
        put_rate(g, "peer_us", c->handoff_peer[k]);
        yajl_gen_map_close(g);
    }
    yajl_gen_array_close(g);
    yajl_gen_map_close(g);
}

static void put_card(yajl_gen g, const struct probe *p, uint32_t number, int measured)
{
    const struct probe_card *c = &p->card[number];

    yajl_gen_map_open(g);
    put_int(g, "number", number);
    put_text(g, "name", c->name);
    put_int(g, "major", c->major);
    put_int(g, "minor", c->minor);
    put_text(g, "pci", c->pci);
    put_int(g, "numa", c->numa);
    put_int(g, "multiprocessors", c->multiprocessors);
    put_int(g, "total_bytes", (long long)c->total);
    put_int(g, "free_bytes", (long long)c->free);
    put_bool(g, "runs", c->runs);
    put_bool(g, "registers", c->registers);
    put_bool(g, "registers_read_only", c->registers_read_only);
    key(g, "peers");
    yajl_gen_array_open(g);
    for (uint32_t k = 0; k < p->n_cards; k++)
        if (c->peer[k])
            yajl_gen_integer(g, k);
    yajl_gen_array_close(g);
    put_problem(g, c->problem);
    if (measured)
        put_measured(g, p, c);
    yajl_gen_map_close(g);
}

char *probe_text(const struct probe *p, int measured)
{
    yajl_gen g = yajl_gen_alloc(NULL);
    const unsigned char *text;
    char *copy = NULL;
    size_t n;

    if (!g)
        return NULL;
    yajl_gen_map_open(g);
    put_text(g, "build", p->archs ? "cuda" : "cpu");
    put_text(g, "archs", p->archs ? p->archs : "");
    put_int(g, "driver", p->driver);
    put_int(g, "runtime", p->runtime);
    put_problem(g, p->problem);
    key(g, "cards");
    yajl_gen_array_open(g);
    for (uint32_t k = 0; k < p->n_cards; k++)
        put_card(g, p, k, measured);
    yajl_gen_array_close(g);
    yajl_gen_map_close(g);
    if (yajl_gen_get_buf(g, &text, &n) == yajl_gen_status_ok && asprintf(&copy, "%.*s\n", (int)n, text) < 0)
        copy = NULL;
    yajl_gen_free(g);
    return copy;
}

/* ---- what is there ---- */

/* 1: the driver's library can be loaded. */
static int driver_there(struct probe *p)
{
    void *so = dlopen(DRIVER_LIBRARY, RTLD_NOW);

    if (so) {
        dlclose(so);
        return 1;
    }
    if (access(DRIVER_LOADED, F_OK))
        snprintf(p->problem, sizeof p->problem, "no NVIDIA driver is installed: install one to use cards");
    else
        snprintf(p->problem, sizeof p->problem,
                 "an NVIDIA driver is loaded, but its library is missing (%.200s): install it, or let the container "
                 "have it",
                 dlerror());
    return 0;
}

int probe_main(int measure, const struct probe_shape *shape)
{
    struct probe *p = calloc(1, sizeof *p);
    char *text = NULL;
    int bad = 1;

    if (!p)
        return 1;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    probe_cuda(p, measure, shape); /* says what it was built for, whatever else is wrong */
    if (p->archs && *p->problem && !p->driver)
        driver_there(p);
    text = probe_text(p, measure);
    if (text)
        bad = fputs(text, stdout) < 0 || fflush(stdout);
    free(text);
    free(p);
    return bad;
}
