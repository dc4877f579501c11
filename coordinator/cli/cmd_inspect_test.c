/* conclave inspect as a user sees it: what it prints, where, and with which status. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yajl/yajl_tree.h>

#include "coordinator/model/gguf_build.h"
#include "tests/test.h"

int cmd_inspect(int argc, char **argv);

#define DEMO "tests/demo/story-moe-q4_k_m.gguf"

static char out[1 << 16], err[1 << 16]; /* of the last run */

static void slurp(FILE *f, char *to, size_t cap)
{
    rewind(f);
    to[fread(to, 1, cap - 1, f)] = 0;
    fclose(f);
}

/* Runs the command with standard output and error caught. */
static int inspect(const char *a, const char *b, const char *c)
{
    char *argv[5] = {(char *)"inspect", (char *)a, (char *)b, (char *)c, NULL};
    FILE *o = tmpfile(), *e = tmpfile();
    int argc = 1, status, old_out, old_err;

    assert(o && e);
    while (argv[argc])
        argc++;
    fflush(stdout);
    old_out = dup(1);
    old_err = dup(2);
    assert(old_out >= 0 && old_err >= 0 && dup2(fileno(o), 1) == 1 && dup2(fileno(e), 2) == 2);
    status = cmd_inspect(argc, argv);
    fflush(stdout);
    assert(dup2(old_out, 1) == 1 && dup2(old_err, 2) == 2);
    close(old_out);
    close(old_err);
    slurp(o, out, sizeof out);
    slurp(e, err, sizeof err);
    return status;
}

static void has(const char *line)
{
    CHECK(strstr(out, line), "'%s' is not in:\n%s", line, out);
}

static void test_table(void)
{
    CHECK_EQ(inspect(DEMO, NULL, NULL), 0);
    CHECK_STR(err, "");
    has("architecture      qwen3moe\n");
    has("layers            4, width 256\n");
    has("attention         4 query heads, 2 key/value heads, 64 values each\n");
    has("rotation          64 values of a head, base 1000000\n");
    has("vocabulary        2,048 tokens, head of its own\n");
    has("tokenizer         gpt2, words split as qwen2\n");
    has("context           1,024 tokens\n");
    has("KV of a token     f16 2.00 KiB (2,048 bytes), f32 4.00 KiB (4,096 bytes)\n");
    has("experts           12 a layer, 3 used for a token; 48 in all, width 256\n");
    has("one expert        from 108 KiB (110,592 bytes) to 124 KiB (127,488 bytes)\n");
    has("gate Q4_K, up Q4_K, down Q4_K, layers 0-1\n");
    has("gate Q4_K, up Q4_K, down Q6_K, layers 2-3\n");
    has("  experts           5.45 MiB           5,713,920   82.1 %\n");
    has("  Q6_K              1.69 MiB           1,774,080   25.5 %  5 tensors\n");
    has(DEMO ": 6.70 MiB (7,022,496 bytes)\n");
}

/* The number at a path of keys, -1: none. */
static long long number(yajl_val v, const char *a, const char *b)
{
    const char *path[] = {a, b, NULL};
    yajl_val n = yajl_tree_get(v, path, yajl_t_number);

    return n && YAJL_IS_INTEGER(n) ? YAJL_GET_INTEGER(n) : -1;
}

static void test_json(void)
{
    char why[200];
    const char *by_type_path[] = {"by_type", NULL}, *kinds_path[] = {"bytes_by_kind", NULL},
               *arch_path[] = {"architecture", NULL};
    yajl_val v, x;
    long long sum = 0;

    CHECK_EQ(inspect("--json", DEMO, NULL), 0);
    CHECK_STR(err, "");
    v = yajl_tree_parse(out, why, sizeof why);
    CHECK(v, "%s", why);
    if (!v)
        return;
    x = yajl_tree_get(v, arch_path, yajl_t_string);
    CHECK_STR(x ? YAJL_GET_STRING(x) : NULL, "qwen3moe");
    CHECK_EQ(number(v, "layers", NULL), 4);
    CHECK_EQ(number(v, "experts", "per_layer"), 12);
    CHECK_EQ(number(v, "experts", "used"), 3);
    CHECK_EQ(number(v, "experts", "smallest_bytes"), 110592);
    CHECK_EQ(number(v, "experts", "largest_bytes"), 127488);
    CHECK_EQ(number(v, "experts", "bytes"), 24ll * (110592 + 127488));
    CHECK_EQ(number(v, "attention", "rope_base"), 1000000);
    CHECK_EQ(number(v, "kv_bytes_per_token", "f16"), 2048);
    CHECK_EQ(number(v, "tokenizer", "tokens"), 2048);
    x = yajl_tree_get(v, kinds_path, yajl_t_object);
    CHECK(x, "no bytes_by_kind");
    for (size_t i = 0; x && i < YAJL_GET_OBJECT(x)->len; i++)
        sum += YAJL_GET_INTEGER(YAJL_GET_OBJECT(x)->values[i]);
    CHECK_EQ(sum, number(v, "bytes", NULL));
    CHECK_EQ(number(v, "bytes", NULL) - number(v, "experts", "bytes"),
             number(v, "trunk_bytes", NULL));
    x = yajl_tree_get(v, by_type_path, yajl_t_array);
    CHECK(x && YAJL_GET_ARRAY(x)->len == 3, "by_type");
    yajl_tree_free(v);
}

/* status, nothing on standard output, and one line that holds `text`. */
static void fails(int want, const char *text, const char *a, const char *b, const char *c)
{
    int status = inspect(a, b, c);
    const char *end = strchr(err, '\n');

    CHECK(status == want, "status %d: %s", status, err);
    CHECK_STR(out, "");
    CHECK(!strncmp(err, "conclave: ", 10) && end && !end[1], "%s", err);
    CHECK(strstr(err, text), "'%s' wanted '%s'", err, text);
}

static void test_failures(void)
{
    fails(2, "MODEL is missing", NULL, NULL, NULL);
    fails(2, "what is 'y'?", "x", "y", NULL);
    fails(2, "one model at a time, not y and also x", "-m", "x", "y");
    fails(2, "no option --jsno; did you mean --json?", "--jsno", DEMO, NULL);
    fails(2, "no option -q", "-q", DEMO, NULL);
    fails(2, "--json takes no value", "--json=1", DEMO, NULL);
    fails(2, "-m needs a value", DEMO, "-m", NULL);
    fails(1, "nothing.gguf: cannot open: No such file or directory", "tests/nothing.gguf", NULL,
          NULL);
    fails(1, "tests/golden: is a directory", "tests/golden", NULL, NULL);
    fails(1, "expected.json: byte 0: not a GGUF file", "tests/golden/gguf/expected.json", "--json",
          NULL);
    CHECK_EQ(inspect("--help", NULL, NULL), 0);
    has("usage: conclave inspect");
    CHECK_EQ(inspect("-m", DEMO, NULL), 0);
    has("architecture      qwen3moe\n");
}

/* A name in the file cannot write to the terminal. */
static void test_hostile_name(void)
{
    char path[] = "/tmp/inspect_test_XXXXXX";
    int fd = mkstemp(path);
    struct build w;

    CHECK(fd >= 0, "%s", path);
    close(fd);
    build_begin(&w, 3);
    build_string(&w, "general.architecture", "a\033[31mred\n");
    build_tensor(&w, "t", 0, 1, (const uint64_t[]){4}, 16);
    build_end(&w);
    build_write(&w, path);
    build_free(&w);
    fails(1, "'a\\x1B[31mred\\x0A'", path, NULL, NULL);
    unlink(path);
}

int main(void)
{
    test_table();
    test_json();
    test_failures();
    test_hostile_name();
    return test_end();
}
