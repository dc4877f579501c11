/* A probe that tells the truth, and probes that crash, hang, talk nonsense or too much. */
#define _GNU_SOURCE
#include "coordinator/supervise/cards_found.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu-worker/probe.h"
#include "tests/test.h"

static char dir[] = "/tmp/cards_found_test.XXXXXX", path[64];
enum { LIMIT_MS = 20000, SHORT_MS = 300 };

static void write_probe(const char *script)
{
    FILE *f = fopen(path, "w");

    CHECK(f != NULL);
    if (!f)
        return;
    fprintf(f, "#!/bin/sh\n%s\n", script);
    fclose(f);
    chmod(path, 0700);
}

static int open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

/* What is said of such a probe; nothing of it is taken, and nothing is left. */
static void bad(const char *script, int limit_ms, const char *word)
{
    static struct cards_found f;
    struct err e = {0};
    int before = open_files();

    write_probe(script);
    CHECK(cards_ask(path, 0, NULL, limit_ms, &f, &e) < 0, "%s: accepted", script);
    CHECK(strstr(e.msg, word) && !strchr(e.msg, '\n'), "%s: '%s', wanted '%s'", script, e.msg, word);
    CHECK(!f.n && !*f.archs, "%s: something of it was taken", script);
    CHECK_EQ(open_files(), before);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1, "%s: a child is left", script);
}

static void children(void)
{
    bad("exit 3", LIMIT_MS, "ended with status 3");
    bad("echo 'error while loading shared libraries: libnuma.so.1: missing' >&2; echo more >&2; exit 127", LIMIT_MS,
        "status 127: error while loading shared libraries: libnuma.so.1: missing");
    bad("kill -SEGV $$", LIMIT_MS, "signal 11");
    bad("exit 0", LIMIT_MS, "its text");
    bad("echo hello", LIMIT_MS, "its text");
    bad("echo '{}'", LIMIT_MS, "members");
    bad("echo '[]'", LIMIT_MS, "members");
    bad("echo '{\"archs\":\"90\",\"driver\":1,\"runtime\":1,\"problem\":null,\"cards\":[]}'", LIMIT_MS, "no card and no problem");
    bad("echo '{\"archs\":\"90\",\"driver\":-1,\"runtime\":1,\"problem\":null,\"cards\":[]}'", LIMIT_MS, "members");
    bad("echo '{\"archs\":\"90\",\"driver\":1,\"runtime\":1,\"problem\":null,\"cards\":[{\"number\":0}]}'", LIMIT_MS, "members");
    bad("head -c 1000000 /dev/zero | tr '\\0' ' '", LIMIT_MS, "too much");
    bad("exec sleep 1000", SHORT_MS, "no answer");
    bad("exec >&- 2>&-; exit 1", LIMIT_MS, "status 1");
    unlink(path);
    {
        static struct cards_found f;
        struct err e = {0};
        CHECK(cards_ask(path, 0, NULL, LIMIT_MS, &f, &e) < 0 && strstr(e.msg, "cannot start"), "%s", e.msg);
    }
}

/* What the worker's own writer writes comes back. */
static void there_and_back(void)
{
    static struct probe p = {.archs = "80 90 90+ptx", .driver = 13010, .runtime = 13000, .n_cards = 2};
    static struct cards_found f;
    struct err e = {0};
    char *text;

    p.card[0] = (struct probe_card){.name = "Card \"A\"", .pci = "0000:18:00.0", .major = 9, .minor = 0,
                                    .multiprocessors = 132, .numa = -1, .total = 150ull << 30, .free = 149ull << 30,
                                    .runs = 1, .registers = 1, .registers_read_only = 0, .peer = {0, 1},
                                    .upload = 5.2e10, .upload_pageable = 4e9, .memory = 4.1e12, .experts = 3.1e12, .experts_layer = 24.5, .node = 1.5, .round_trip = 2.4,
                                    .handoff = {0, 3.1}, .handoff_peer = {0, 1.2}};
    p.card[1] = (struct probe_card){.name = "B", .pci = "0000:2A:00.0", .problem = "cannot be opened: busy", .major = 6,
                                    .minor = 1, .numa = 1};
    for (int measured = 0; measured < 2; measured++) {
        text = probe_text(&p, measured);
        CHECK(text && !cards_read(text, strlen(text), &f, &e), "%s", e.msg);
        free(text);
        CHECK(f.n == 2 && f.driver == 13010 && f.runtime == 13000 && !*f.problem);
        CHECK_STR(f.archs, "80 90 90+ptx");
        CHECK_STR(f.card[0].name, "Card \"A\"");
        CHECK_STR(f.card[1].pci, "0000:2A:00.0");
        CHECK_STR(f.card[1].problem, "cannot be opened: busy");
        CHECK(f.card[0].compute == 90 && f.card[1].compute == 61 && f.card[0].numa == -1 && f.card[1].numa == 1);
        CHECK(f.card[0].total == 150ull << 30 && f.card[0].free == 149ull << 30 && f.card[0].multiprocessors == 132);
        CHECK(f.card[0].runs && !f.card[1].runs && f.card[0].registers && !f.card[0].registers_read_only);
        CHECK_EQ(f.card[0].peers, 2);
        CHECK(f.card[0].memory == (measured ? 4.1e12 : 0) && f.card[0].upload == (measured ? 5.2e10 : 0));
        CHECK(f.card[0].experts == (measured ? 3.1e12 : 0) && f.card[0].experts_layer == (measured ? 24.5 : 0) &&
              f.card[0].node == (measured ? 1.5 : 0));
        CHECK(f.card[0].handoff[1] == (measured ? 3.1 : 0) && f.card[0].handoff_peer[1] == (measured ? 1.2 : 0));
        CHECK(f.card[1].memory == 0 && f.card[0].round_trip == (measured ? 2.4 : 0));
    }
    snprintf(p.problem, sizeof p.problem, "no driver");
    p.n_cards = 0;
    p.archs = NULL;
    text = probe_text(&p, 0);
    CHECK(text && !cards_read(text, strlen(text), &f, &e) && !f.n, "%s", e.msg);
    CHECK_STR(f.problem, "no driver");
    CHECK_STR(f.archs, "");
    free(text);
}

static void which_run(void)
{
    CHECK(probe_runs("75 80 90", 7, 5) && probe_runs("75 80 90", 8, 6) && probe_runs("75 80 90", 9, 0));
    CHECK(!probe_runs("75 80 90", 7, 0) && !probe_runs("75 80 90", 6, 1) && !probe_runs("75 80 90", 10, 0));
    CHECK(probe_runs("75 90 90+ptx", 12, 0) && !probe_runs("75 90 90+ptx", 8, 9) && probe_runs("90 120", 12, 1));
    CHECK(!probe_runs("", 9, 0) && !probe_runs("junk", 9, 0));
}

static void shapes(void)
{
    static const char *const bad[] = {"", "1", "1:2:3:4:5", "1:2:3:4:5:6:7", "1:2:3:4:5:0", "1:2:3:0:5:6", "-1:2:3:4:5:6",
                                      "1:2:3:4:5:6 ", "1:2:3:4:5:257", "a:2:3:4:5:6", "1::3:4:5:6", "1001:2:3:4:5:6"};
    struct probe_shape s;

    CHECK(!probe_shape_read("12:0:14:2048:4096:8", &s) && s.type[0] == 12 && !s.type[1] && s.type[2] == 14 &&
          s.n_ff == 2048 && s.n_embd == 4096 && s.used == 8);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(probe_shape_read(bad[i], &s) == -1, "'%s' is taken", bad[i]);
}

/* The shape is passed on as it was given. */
static void measured(void)
{
    static struct cards_found f;

    write_probe("[ \"$1 $2 $#\" = '--probe=measure 1:2:3:4:5:6 2' ] && echo '{\"archs\":\"\",\"driver\":0,\"runtime\":0,"
                "\"problem\":\"asked\",\"cards\":[]}'");
    setenv("CONCLAVE_PROBE", path, 1);
    cards_measure("1:2:3:4:5:6", &f);
    CHECK_STR(f.problem, "asked");
}

/* The environment's word, and the line that comes of it. */
static void environment(void)
{
    static struct cards_found f;

    write_probe("exit 3");
    setenv("CONCLAVE_PROBE", path, 1);
    cards_find(0, &f);
    CHECK(!f.n && strstr(f.problem, path) && strstr(f.problem, "status 3"), "%s", f.problem);
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/probe", dir);
    children();
    there_and_back();
    which_run();
    shapes();
    measured();
    environment();
    unlink(path);
    rmdir(dir);
    return test_end();
}
