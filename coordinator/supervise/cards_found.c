/* A child that may do anything: it is given a pipe for each of its streams, a time limit, and its text is
 * judged by the JSON reader. */
#define _GNU_SOURCE
#include "coordinator/supervise/cards_found.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "coordinator/json/json.h"
#include "coordinator/supervise/spawn.h"

#define ASK_MS 30000     /* a driver that wakes eight cards takes seconds */
#define MEASURE_MS 60000
#define REAP_MS 2000
#define TEXT_MOST (256u << 10)
#define LINE_MOST 300u   /* of its stderr, kept */

/* ---- its text ---- */

static int text_of(const struct json *j, const char *key, char *to, size_t n)
{
    const struct json *v = json_get(j, key);

    *to = 0;
    if (v && v->kind == JSON_NULL)
        return 0;
    if (!v || v->kind != JSON_STRING)
        return -1;
    for (size_t i = 0; i < v->n && i + 1 < n; i++) { /* it ends up in one line of ours */
        to[i] = (unsigned char)v->text[i] < 32 ? '?' : v->text[i];
        to[i + 1] = 0;
    }
    return 0;
}
static int number_of(const struct json *j, const char *key, uint64_t most, uint64_t *out)
{
    return json_u64(json_get(j, key), out) || *out > most ? -1 : 0;
}
static int u32_of(const struct json *j, const char *key, uint32_t most, uint32_t *out)
{
    uint64_t v;

    if (number_of(j, key, most, &v))
        return -1;
    *out = (uint32_t)v;
    return 0;
}
static int truth_of(const struct json *j, const char *key, int *out)
{
    const struct json *v = json_get(j, key);

    if (!v || v->kind != JSON_BOOL)
        return -1;
    *out = v->truth;
    return 0;
}
/* null and what is missing: 0 */
static int rate_of(const struct json *j, const char *key, double *out)
{
    const struct json *v = json_get(j, key);

    *out = 0;
    if (!v || v->kind == JSON_NULL)
        return 0;
    return json_f64(v, out) || !(*out >= 0 && *out < 1e18) ? -1 : 0;
}

static int read_measured(const struct json *j, struct card_found *c)
{
    const struct json *h = json_get(j, "handoff");
    int bad = 0;

    if (!j)
        return 0;
    bad |= rate_of(j, "upload_bytes_per_s", &c->upload);
    bad |= rate_of(j, "upload_pageable_bytes_per_s", &c->upload_pageable);
    bad |= rate_of(j, "memory_bytes_per_s", &c->memory);
    bad |= rate_of(j, "round_trip_us", &c->round_trip);
    for (size_t i = 0; h && h->kind == JSON_ARRAY && i < h->n; i++) {
        uint32_t to = 0;
        double mapped, peer;
        bad |= u32_of(json_at(h, i), "card", MAX_CARDS - 1, &to) | rate_of(json_at(h, i), "mapped_us", &mapped) |
               rate_of(json_at(h, i), "peer_us", &peer);
        if (bad)
            break;
        c->handoff[to] = mapped;
        c->handoff_peer[to] = peer;
    }
    return bad;
}

static int read_card(const struct json *j, uint32_t number, struct card_found *c)
{
    const struct json *peers = json_get(j, "peers");
    uint32_t major = 0, minor = 0;
    int64_t numa = -1;
    int bad = 0;

    bad |= u32_of(j, "number", MAX_CARDS - 1, &c->number) || c->number != number;
    bad |= text_of(j, "name", c->name, sizeof c->name);
    bad |= text_of(j, "pci", c->pci, sizeof c->pci);
    bad |= text_of(j, "problem", c->problem, sizeof c->problem);
    bad |= u32_of(j, "major", 1000, &major) | u32_of(j, "minor", 9, &minor);
    bad |= u32_of(j, "multiprocessors", 1u << 20, &c->multiprocessors);
    bad |= json_i64(json_get(j, "numa"), &numa) || numa < -1 || numa > 4096;
    bad |= number_of(j, "total_bytes", 1ull << 46, &c->total) | number_of(j, "free_bytes", 1ull << 46, &c->free);
    bad |= truth_of(j, "runs", &c->runs) | truth_of(j, "registers", &c->registers) |
           truth_of(j, "registers_read_only", &c->registers_read_only);
    bad |= !peers || peers->kind != JSON_ARRAY;
    for (size_t i = 0; !bad && i < peers->n; i++) {
        uint64_t k = 0;
        bad |= json_u64(&peers->items[i], &k) || k >= MAX_CARDS;
        c->peers |= bad ? 0 : 1u << k;
    }
    bad |= read_measured(json_get(j, "measured"), c);
    c->compute = 10 * major + minor;
    c->numa = (int)numa;
    return bad;
}

int cards_read(const char *text, size_t n, struct cards_found *out, struct err *e)
{
    static const struct json_limits limits = {TEXT_MOST, 8};
    const struct json *root, *cards;
    struct json_doc *doc = NULL;
    int bad = 0, rc;

    memset(out, 0, sizeof *out);
    rc = json_parse("its text", text, n, &limits, &doc, e);
    if (rc)
        return rc;
    root = json_root(doc);
    cards = json_get(root, "cards");
    bad |= text_of(root, "archs", out->archs, sizeof out->archs);
    bad |= text_of(root, "problem", out->problem, sizeof out->problem);
    bad |= u32_of(root, "driver", 1u << 20, &out->driver) | u32_of(root, "runtime", 1u << 20, &out->runtime);
    bad |= !cards || cards->kind != JSON_ARRAY || cards->n > MAX_CARDS;
    for (uint32_t i = 0; !bad && i < cards->n; i++)
        bad |= read_card(&cards->items[i], i, &out->card[i]);
    if (bad)
        rc = err_set(e, -EPROTO, "its text has not the members that it should have");
    else if (!cards->n && !*out->problem)
        rc = err_set(e, -EPROTO, "its text names no card and no problem");
    else
        out->n = (uint32_t)cards->n;
    json_free(doc);
    if (rc)
        memset(out, 0, sizeof *out);
    return rc;
}

/* ---- the child ---- */

struct probe_child {
    pid_t pid;
    int out, err;      /* our ends; -1: at its end */
    char *text;        /* TEXT_MOST + 1 */
    size_t n;
    char line[LINE_MOST + 1]; /* the end of its stderr */
    size_t line_n;
};

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int start(const char *path, int measure, struct probe_child *c, struct err *e)
{
    char *argv[] = {(char *)path, measure ? "--probe=measure" : "--probe", NULL};
    int out[2] = {-1, -1}, err[2] = {-1, -1}, rc;
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t none;

    if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) {
        rc = err_set(e, -errno, "no pipe: %s", strerror(errno));
        goto done;
    }
    posix_spawn_file_actions_init(&fa);
    posix_spawnattr_init(&attr);
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&fa, out[1], 1);
    posix_spawn_file_actions_adddup2(&fa, err[1], 2);
    posix_spawn_file_actions_addclosefrom_np(&fa, 3);
    rc = posix_spawn(&c->pid, path, &fa, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&attr);
    if (rc) {
        c->pid = 0;
        rc = err_set(e, -rc, "cannot start: %s", strerror(rc));
    } else {
        c->out = out[0];
        c->err = err[0];
        out[0] = err[0] = -1;
    }
done:
    for (int i = 0; i < 2; i++) {
        if (out[i] >= 0)
            close(out[i]);
        if (err[i] >= 0)
            close(err[i]);
    }
    return rc;
}

/* 1: read something; 0: its end, the descriptor is closed. */
static int take(int *fd, char *to, size_t room, size_t *n)
{
    char lost[4096];
    ssize_t got = *n < room ? read(*fd, to + *n, room - *n) : read(*fd, lost, sizeof lost);

    if (got < 0 && errno == EINTR)
        return 1;
    if (got > 0) {
        *n += *n < room ? (size_t)got : 0;
        return 1;
    }
    close(*fd);
    *fd = -1;
    return 0;
}

/* Until both streams end. -ETIMEDOUT. */
static int listen_to(struct probe_child *c, int ms, struct err *e)
{
    int64_t end = now_ms() + ms;

    while (c->out >= 0 || c->err >= 0) {
        struct pollfd p[2] = {{.fd = c->out, .events = POLLIN}, {.fd = c->err, .events = POLLIN}};
        int64_t left = end - now_ms();
        if (left <= 0)
            return err_set(e, -ETIMEDOUT, "no answer within %d s", ms / 1000);
        if (poll(p, 2, (int)left) <= 0)
            continue;
        if (p[0].revents)
            take(&c->out, c->text, TEXT_MOST, &c->n);
        if (p[1].revents)
            take(&c->err, c->line, LINE_MOST, &c->line_n);
    }
    return 0;
}

/* How it ended; it is killed if it has not. Gives the end of what it said on stderr. */
static int reap(struct probe_child *c, int kill_it, struct err *e)
{
    char how[80], *line_end;
    int status = 0;
    pid_t got = 0;

    if (kill_it)
        kill(c->pid, SIGKILL);
    /* a driver that hangs does not let go of a process either: then it is left to the end of this one */
    for (int64_t end = now_ms() + REAP_MS; (got = waitpid(c->pid, &status, kill_it ? WNOHANG : 0)) <= 0;) {
        if ((got < 0 && errno != EINTR) || (kill_it && now_ms() > end))
            break;
        poll(NULL, 0, 1);
    }
    if (got == c->pid)
        c->pid = 0;
    if (kill_it || !status)
        return 0;
    spawn_how_it_ended(status, how, sizeof how);
    c->line[c->line_n] = 0;
    line_end = strchr(c->line, '\n'); /* the loader's line on a library that is missing, for one */
    if (line_end)
        *line_end = 0;
    for (char *x = c->line; *x; x++)
        if ((unsigned char)*x < 32)
            *x = '?';
    return err_set(e, -ECHILD, "it %s%s%s", how, *c->line ? ": " : "", c->line);
}

int cards_ask(const char *path, int measure, int limit_ms, struct cards_found *out, struct err *e)
{
    struct probe_child c = {.out = -1, .err = -1};
    int rc;

    c.text = malloc(TEXT_MOST + 1);
    if (!c.text)
        return err_set(e, -ENOMEM, "no memory");
    rc = start(path, measure, &c, e);
    if (!rc) {
        int late = listen_to(&c, limit_ms, e);
        rc = reap(&c, late != 0, e);
        rc = late ? late : rc;
    }
    if (!rc && c.n == TEXT_MOST)
        rc = err_set(e, -EPROTO, "it says too much");
    if (!rc)
        rc = cards_read(c.text, c.n, out, e);
    if (c.out >= 0)
        close(c.out);
    if (c.err >= 0)
        close(c.err);
    free(c.text);
    return rc;
}

void cards_find(int measure, struct cards_found *out)
{
    const char *other = getenv("CONCLAVE_PROBE");
    char path[4096];
    struct err e = {0};

    memset(out, 0, sizeof *out);
    if (other && *other)
        snprintf(path, sizeof path, "%s", other);
    else if (spawn_beside_us("conclave-gpu", path, sizeof path, &e))
        *path = 0;
    if (*path && !cards_ask(path, measure, measure ? MEASURE_MS : ASK_MS, out, &e))
        return;
    snprintf(out->problem, sizeof out->problem, "cards cannot be asked for, %.150s --probe: %.200s", path, e.msg);
}
