/* conclave simulate as a user sees it. */
#define _GNU_SOURCE
#include <assert.h>
#include <stdlib.h>
#include <unistd.h>
#include <yajl/yajl_tree.h>

#include "coordinator/cli/commands.h"
#include "coordinator/npy/npy.h"
#include "tests/test.h"

#define ROUTES "tests/demo/routes.npy"

static char out[1 << 14], err[1 << 14]; /* of the last run */

static void slurp(FILE *f, char *to, size_t cap)
{
    rewind(f);
    to[fread(to, 1, cap - 1, f)] = 0;
    fclose(f);
}

/* Runs the command with standard output and error caught. words: separated by blanks. */
static int simulate(const char *words)
{
    char *copy = strdup(words), *argv[16] = {(char *)"simulate"}, *save = NULL;
    FILE *o = tmpfile(), *e = tmpfile();
    int argc = 1, status, old_out, old_err;

    assert(copy && o && e);
    for (char *w = strtok_r(copy, " ", &save); w && argc < 15; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    fflush(stdout);
    old_out = dup(1);
    old_err = dup(2);
    assert(old_out >= 0 && old_err >= 0 && dup2(fileno(o), 1) == 1 && dup2(fileno(e), 2) == 2);
    status = cmd_simulate(argc, argv);
    fflush(stdout);
    assert(dup2(old_out, 1) == 1 && dup2(old_err, 2) == 2);
    close(old_out);
    close(old_err);
    slurp(o, out, sizeof out);
    slurp(e, err, sizeof err);
    free(copy);
    return status;
}

static void has(const char *line)
{
    CHECK(strstr(out, line), "'%s' is not in:\n%s", line, out);
}

static void test_table(void)
{
    CHECK_EQ(simulate("--routes " ROUTES " --expert-bytes 1M"), 0);
    CHECK_STR(err, "");
    has("4096 tokens, 16 layers of 128 experts, 8 used: 524288 uses, 128 a token\n");
    has("cache: 512 of 2048 experts (25.0 %)\n");
    has("\nlru            304754   58.13 %     0.0 %           53.6       53.60 MiB\n");
    has("\nlfu            335910   64.07 %    25.9 %           46.0");
    has("\nwindow         342034   65.24 %    30.9 %           10.1");
    has("\ndecay  ");
    has("\nfixed          296377   56.53 %    -7.0 %              -");
    has("\nheat  ");
    has("\noptimum        425234   81.11 %   100.0 %");
    CHECK_EQ(simulate("--routes " ROUTES " --ram 50% --cache-policy lru"), 0);
    has("\nlru            440739   84.06 %     0.0 %           20.4\n");
    has("\noptimum        492092   93.86 %");
    CHECK(!strstr(out, "heat") && !strstr(out, "lfu"));
    CHECK_EQ(simulate("--routes " ROUTES " --ram 1 --cache-policy heat"), 0);
    has("cache: 1 of 2048 experts");
    CHECK_EQ(simulate("--routes " ROUTES " --ram 100% --cache-policy heat"), 0); /* no gap at all */
    has("\nheat           522240   99.61 %     0.0 %            0.5\n");
    has("\noptimum        522240");
}

static yajl_val at(yajl_val v, const char *a, const char *b, const char *c)
{
    const char *path[] = {a, b, c, NULL};

    return yajl_tree_get(v, path, yajl_t_any);
}

static void test_json(void)
{
    char text[256];
    yajl_val v;

    CHECK_EQ(simulate("--routes " ROUTES " --ram 1024 --expert-bytes 100 --experts 200 --json"), 0);
    v = yajl_tree_parse(out, text, sizeof text);
    CHECK(v, "%s", text);
    CHECK_EQ(YAJL_GET_INTEGER(at(v, "places", NULL, NULL)), 1024);
    CHECK_EQ(YAJL_GET_INTEGER(at(v, "experts", NULL, NULL)), 200);
    CHECK_EQ(YAJL_GET_INTEGER(at(v, "policies", "lru", "hits")), 440739);
    CHECK_EQ(YAJL_GET_INTEGER(at(v, "policies", "optimum", "hits")), 492092);
    CHECK(at(v, "policies", "heat", "moves") && !at(v, "policies", "fixed", "moves"));
    CHECK(YAJL_GET_DOUBLE(at(v, "policies", "lru", "bytes_per_token")) ==
          (524288 - 440739) * 100 / 4096.0);
    CHECK(YAJL_GET_DOUBLE(at(v, "policies", "heat", "gap")) > 0.24);
    yajl_tree_free(v);
}

static void refused(const char *words, int status, const char *line)
{
    CHECK_EQ(simulate(words), status);
    CHECK_STR(out, "");
    CHECK(strstr(err, line) && strchr(err, '\n') == err + strlen(err) - 1, "%s: '%s', wanted '%s'",
          words, err, line);
}

static void test_refusals(const char *dir)
{
    char words[512], path[256];
    struct npy_writer *w = NULL;
    uint32_t shape[] = {2, 3};
    struct err e = {0};

    refused("", 2, "--routes FILE is missing");
    refused("--routes " ROUTES " --ram 0", 2, "--ram 0: wanted a number of experts, 1 to 2048");
    refused("--routes " ROUTES " --ram 2049", 2, "--ram 2049");
    refused("--routes " ROUTES " --ram 0%", 2, "--ram 0%");
    refused("--routes " ROUTES " --ram 100.1%", 2, "--ram 100.1%");
    refused("--routes " ROUTES " --ram 0.01%", 2, "less than one of 2048");
    refused("--routes " ROUTES " --ram %", 2, "--ram %");
    refused("--routes " ROUTES " --ram 1G", 2, "--ram 1G");
    refused("--routes " ROUTES " --cache-policy best", 2, "heat|lru|lfu|window|decay|fixed|all");
    refused("--routes " ROUTES " --experts 127", 1, "expert 127 at token");
    refused("--routes /nowhere.npy", 1, "/nowhere.npy: cannot read");
    refused("--routes tests/demo/heldout.txt", 1, "heldout.txt: no .npy file");
    refused("--routes tests/demo/story-moe-routing-tokens.npy", 1, "1 dimensions (wanted 3");
    snprintf(path, sizeof path, "%s/empty.npy", dir);
    CHECK(!npy_create(path, 1, 2, shape, &w, &e) && !npy_close(w, &e), "%s", e.msg);
    snprintf(words, sizeof words, "--routes %s", path);
    refused(words, 1, "an empty trace");
    unlink(path);
}

int main(void)
{
    char dir[] = "/tmp/cmd_simulate_test.XXXXXX";

    if (!mkdtemp(dir))
        return 1;
    test_table();
    test_json();
    test_refusals(dir);
    rmdir(dir);
    return test_end();
}
