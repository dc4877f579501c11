/* Synthetic models: read back by the model's own reader, values by the kernels' dequantiser, bytes
 * a function of the options. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/cli/synth_file.h"
#include "coordinator/cli/synth_fill.h"
#include "coordinator/model/model.h"
#include "coordinator/model/tokenizer.h"
#include "kernels/matmul/matmul.h"
#include "kernels/type/type.h"
#include "tests/test.h"

int cmd_synth(int argc, char **argv);

static char dir[512];

static const char *in_dir(const char *name)
{
    static char path[4][600];
    static int k;

    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s/synth-test-%ld-%s", dir, (long)getpid(), name);
    return path[k];
}

static int synth(const char *out, const char *more)
{
    static const char small[] =
        "synth --layers 2 --embd 256 --ff 256 --experts 4 --used 2 --heads 4 "
        "--kv-heads 2 --head-dim 64 --ctx 128";
    char line[2048], *argv[64], *save;
    int argc = 0;

    snprintf(line, sizeof line, "%s -o %s %s", small, out, more);
    for (char *w = strtok_r(line, " ", &save); w && argc < 63; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    argv[argc] = NULL;
    return cmd_synth(argc, argv);
}

static void test_values(uint32_t type)
{
    enum { N = 256 * 64 };
    struct synth_fill f;
    struct err e = {0};
    uint64_t bytes;
    double sum = 0, squares = 0;
    uint8_t *raw;
    float *x;
    int finite = 1;

    CHECK_EQ(synth_fill_begin(&f, type, 1 / sqrt(2048), 5, &e), 0);
    CHECK_EQ(type_row_bytes(type, N, &bytes), 0);
    raw = malloc(bytes);
    x = malloc(N * sizeof *x);
    synth_fill_blocks(&f, raw, bytes);
    dequant_row(type, raw, N, x);
    for (int i = 0; i < N; i++) {
        finite &= isfinite(x[i]) != 0;
        sum += x[i];
        squares += (double)x[i] * x[i];
    }
    CHECK(finite, "%s", type_info(type)->name);
    CHECK(fabs(sum / N) < 0.05 / sqrt(2048), "%s: mean %g", type_info(type)->name, sum / N);
    CHECK(fabs(squares / N * 2048 - 1) < 0.1, "%s: variance times n is %g", type_info(type)->name,
          squares / N * 2048);
    free(raw);
    free(x);
}

static void test_same(uint32_t type)
{
    static const double values[] = {0, 2, -0.25};
    struct synth_fill f;
    struct err e = {0};
    uint64_t bytes;
    uint8_t raw[4096];
    float x[512];

    CHECK_EQ(type_row_bytes(type, 512, &bytes), 0);
    for (int k = 0; k < 3; k++) {
        CHECK_EQ(synth_fill_same(&f, type, values[k], &e), 0);
        synth_fill_blocks(&f, raw, bytes);
        dequant_row(type, raw, 512, x);
        for (int i = 0; i < 512; i++)
            if (!(fabs(x[i] - values[k]) <= 1e-3 * fabs(values[k]))) {
                CHECK(0, "%s: value %d is %g, wanted %g", type_info(type)->name, i, x[i],
                      values[k]);
                return;
            }
    }
}

/* What a preset asks for is what its numbers say. */
static void test_routing(void)
{
    struct synth_routing r;
    struct err e = {0};

    CHECK_EQ(synth_routing(SYNTH_FLAT, 2048, 128, 1e6, 128, 8, 32, &r, &e), 0);
    CHECK(r.n_const + r.n_slow == 0 && r.bias == 0 && r.slow == 0, "flat is not flat");
    CHECK_EQ(synth_routing(SYNTH_LOCAL, 2048, 128, 1e6, 128, 8, 256, &r, &e), 0);
    CHECK_EQ(r.n_const, 256);
    CHECK_EQ(r.n_slow, 256);
    CHECK(r.bias == 0 && r.slow > 1, "local: bias %g, slow %g", r.bias, r.slow);
    for (uint32_t dim = 32; dim <= 256; dim *= 2) {
        CHECK_EQ(synth_routing(SYNTH_SKEWED, 2048, dim, 1e6, 288, 8, 32, &r, &e), 0);
        CHECK(fabs(r.mean_rms * r.mean_rms * 28 - 1) < 0.02,
              "heads of %u: a running mean of %g tokens", dim, 1 / (r.mean_rms * r.mean_rms));
        CHECK(r.pair[0] < r.pair[1] && r.pair[1] < r.pair[2] && r.pair[2] < dim / 2, "pairs");
    }
    CHECK(synth_bias(0.25, 0.25, 128, 8) < 1e-6, "no skew asked for, some given");
    CHECK(synth_bias(0.25, 0.5, 128, 8) < synth_bias(0.25, 0.75, 128, 8), "more skew, less bias");
    CHECK_EQ(synth_routing(SYNTH_LOCAL, 512, 128, 1e6, 128, 8, 256, &r, &e), -EINVAL);
    CHECK_EQ(synth_routing(SYNTH_LOCAL, 512, 8, 1e6, 128, 8, 32, &r, &e), -EINVAL);
}

static void test_reads_back(const char *type)
{
    char more[128];
    const char *path = in_dir("a.gguf");
    struct model *m = NULL;
    struct err e = {0};

    snprintf(more, sizeof more, "--vocab 300 --type %s --trunk-type %s", type, type);
    CHECK_EQ(synth(path, more), 0);
    CHECK_EQ(model_open(path, 0, &m, &e), 0);
    CHECK(m != NULL, "%s", e.msg);
    if (m) {
        CHECK_EQ(m->n_layers, 2);
        CHECK_EQ(m->n_experts, 4);
        CHECK_EQ(m->top_k, 2);
        CHECK_EQ(m->n_ff, 256);
        CHECK_EQ(m->n_vocab, 300);
        CHECK_EQ(m->n_warnings, 0);
        CHECK_EQ(m->n_unused, 0);
        CHECK_EQ(gguf_warning(m->g, 0) != NULL, 0);
    }
    model_close(m);
    unlink(path);
}

static uint8_t *contents(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    uint8_t *b;

    *n = 0;
    if (!f || fstat(fileno(f), &st))
        return NULL;
    b = malloc((size_t)st.st_size);
    *n = fread(b, 1, (size_t)st.st_size, f);
    fclose(f);
    return b;
}

static void test_seed(void)
{
    const char *path[3] = {in_dir("1.gguf"), in_dir("2.gguf"), in_dir("3.gguf")};
    uint8_t *b[3];
    size_t n[3];

    CHECK_EQ(synth(path[0], "--vocab 257 --seed 9"), 0);
    CHECK_EQ(synth(path[1], "--vocab 257 --seed 9"), 0);
    CHECK_EQ(synth(path[2], "--vocab 257 --seed 8"), 0);
    for (int i = 0; i < 3; i++)
        b[i] = contents(path[i], &n[i]);
    CHECK(n[0] > 1 << 20 && n[0] == n[1] && !memcmp(b[0], b[1], n[0]), "same seed, other bytes");
    CHECK(n[0] == n[2] && memcmp(b[0] + n[0] / 2, b[2] + n[0] / 2, n[0] / 2),
          "other seed, same bytes");
    for (int i = 0; i < 3; i++) {
        free(b[i]);
        unlink(path[i]);
    }
}

/* A made tokenizer takes any text; a copied one is the original. */
static void test_tokenizers(void)
{
    static const char text[] = "a \xC3\xA9\n<|endoftext|>";
    static const char golden[] = "tests/golden/models/qwen3moe-q4_k_m/model.gguf";
    const char *path = in_dir("t.gguf");
    struct token_list a = {0}, b = {0};
    struct tokenizer *t = NULL;
    struct gguf *g = NULL;
    struct err e = {0};
    char more[600];

    CHECK_EQ(synth(path, "--vocab 257"), 0);
    CHECK_EQ(gguf_open(path, &g, &e), 0);
    CHECK_EQ(tokenizer_open(g, NULL, &t, &e), 0);
    CHECK(t && !tokenize(t, text, sizeof text - 1, 1, 1, &a, &e), "%s", e.msg);
    CHECK_EQ(a.n, 6);
    CHECK(a.n == 6 && a.ids[0] == 'a' && a.ids[2] == 0xC3 && a.ids[5] == 256, "wrong ids");
    tokenizer_close(t);
    gguf_close(g);
    free(a.ids);
    if (access(golden, R_OK)) {
        SKIP("%s is not here (tests are started in the root of the repository)", golden);
        return;
    }
    a = (struct token_list){0};
    for (int k = 0; k < 2; k++) {
        snprintf(more, sizeof more, "--tokenizer %s", k ? path : golden); /* of a copy too */
        CHECK_EQ(synth(k ? in_dir("t2.gguf") : path, more), 0);
    }
    for (int k = 0; k < 2; k++) {
        t = NULL;
        CHECK_EQ(gguf_open(k ? in_dir("t2.gguf") : golden, &g, &e), 0);
        CHECK_EQ(tokenizer_open(g, NULL, &t, &e), 0);
        CHECK(t && !tokenize(t, text, sizeof text - 1, 1, 1, k ? &b : &a, &e), "%s", e.msg);
        tokenizer_close(t);
        gguf_close(g);
    }
    CHECK(a.n && a.n == b.n && !memcmp(a.ids, b.ids, a.n * sizeof *a.ids), "the copy differs");
    snprintf(more, sizeof more, "--tokenizer %s --vocab 999", golden);
    CHECK_EQ(synth(path, more), 1);
    free(a.ids);
    free(b.ids);
    unlink(path);
    unlink(in_dir("t2.gguf"));
}

static void test_refusals(void)
{
    const char *path = in_dir("r.gguf");
    struct stat st;

    CHECK_EQ(synth(path, "--used 5"), 2);
    CHECK_EQ(synth(path, "--kv-heads 3"), 2);
    CHECK_EQ(synth(path, "--head-dim 33"), 2);
    CHECK_EQ(synth(path, "--type q9"), 2);
    CHECK_EQ(synth(path, "--layers 0"), 2);
    CHECK_EQ(synth(path, "--ff 100 --type q4_k"), 1);
    CHECK_EQ(synth(path, "--preset local --trunk-type q4_k"), 1);
    CHECK_EQ(synth(path, "--preset global"), 2);
    CHECK_EQ(synth(path, "--tokenizer /dev/null"), 1);
    CHECK_EQ(synth("/nowhere/x.gguf", ""), 1);
    CHECK(access(path, F_OK) && access(in_dir("r.gguf.part"), F_OK), "something was left behind");
    CHECK(!mkfifo(path, 0600) && !stat(path, &st) && S_ISFIFO(st.st_mode)); /* stands for a device */
    CHECK_EQ(synth(path, ""), 1);
    CHECK(!stat(path, &st) && S_ISFIFO(st.st_mode), "a pipe was replaced");
    unlink(path);
}

int main(void)
{
    static const uint32_t types[] = {W_Q8_0, W_Q4_K, W_Q6_K, W_IQ4_NL, W_F16, W_BF16, W_F32};
    static const uint32_t grids[] = {W_IQ2_XXS, W_IQ2_XS, W_IQ3_XXS, W_IQ3_S, W_IQ4_XS};
    const char *d = getenv("TMPDIR");

    mkdir("build", 0777);
    mkdir("build/tmp", 0777);
    snprintf(dir, sizeof dir, "%s", d ? d : "build/tmp");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        test_values(types[i]);
        test_same(types[i]);
    }
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++)
        test_values(grids[i]);
    test_routing();
    test_reads_back("q8_0");
    test_reads_back("q4_k");
    test_reads_back("q6_k");
    test_reads_back("f16");
    test_seed();
    test_tokenizers();
    test_refusals();
    return test_end();
}
