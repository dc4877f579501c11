/* The probe's text is judged by the JSON reader and member by member: nothing of a text that is wrong
 * anywhere is used. */
#define _GNU_SOURCE
#include "coordinator/supervise/cards_found.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/json/json.h"
#include "coordinator/supervise/ask.h"
#include "coordinator/supervise/spawn.h"

#define ASK_MS 30000     /* a driver that wakes eight cards takes seconds */
#define MEASURE_MS 60000
#define TEXT_MOST (256u << 10)

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
    bad |= rate_of(j, "experts_bytes_per_s", &c->experts);
    bad |= rate_of(j, "experts_layer_us", &c->experts_layer);
    bad |= rate_of(j, "node_us", &c->node);
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
    static const struct json_limits limits = {.bytes = TEXT_MOST, .depth = 8};
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

/* ---- asking ---- */

int cards_ask(const char *path, int measure, const char *shape, int limit_ms, struct cards_found *out, struct err *e)
{
    char *argv[] = {(char *)path, measure ? "--probe=measure" : "--probe", (char *)shape, NULL};
    char *text = NULL;
    size_t n;
    int rc = ask(argv, TEXT_MOST, limit_ms, &text, &n, e);

    if (!rc)
        rc = cards_read(text, n, out, e);
    free(text);
    return rc;
}

static void find(int measure, const char *shape, struct cards_found *out)
{
    const char *other = getenv("CONCLAVE_PROBE");
    char path[4096];
    struct err e = {0};

    memset(out, 0, sizeof *out);
    if (other && *other)
        snprintf(path, sizeof path, "%s", other);
    else if (spawn_beside_us("conclave-gpu", path, sizeof path, &e))
        *path = 0;
    if (*path && !cards_ask(path, measure, shape, measure ? MEASURE_MS : ASK_MS, out, &e))
        return;
    snprintf(out->problem, sizeof out->problem, "cards cannot be asked for, %.150s --probe: %.200s", path, e.msg);
}

void cards_find(int measure, struct cards_found *out)
{
    find(measure, NULL, out);
}
void cards_measure(const char *shape, struct cards_found *out)
{
    find(1, shape, out);
}
