/* conclave tokenize as a user sees it: what it prints, where, and with which status. */
#define _GNU_SOURCE
#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "coordinator/cli/commands.h"
#include "coordinator/model/gguf_build.h"
#include "tests/test.h"

#define DEMO "tests/demo/story-moe-q4_k_m.gguf"

static char out[1 << 16], err[1 << 16]; /* of the last run */

static void slurp(FILE *f, char *to, size_t cap)
{
    rewind(f);
    to[fread(to, 1, cap - 1, f)] = 0;
    fclose(f);
}

/* Runs the command with input on standard input, output and error caught. */
static int run(const char *input, size_t n, const char *const *words)
{
    FILE *in = tmpfile(), *o = tmpfile(), *e = tmpfile();
    int argc = 1, status, old[3];
    char *argv[16] = {(char *)"tokenize"};

    assert(in && o && e);
    while (words[argc - 1]) {
        argv[argc] = (char *)words[argc - 1];
        argc++;
    }
    fwrite(input, 1, n, in);
    rewind(in);
    fflush(stdout);
    for (int fd = 0; fd < 3; fd++)
        old[fd] = dup(fd);
    assert(dup2(fileno(in), 0) == 0 && dup2(fileno(o), 1) == 1 && dup2(fileno(e), 2) == 2);
    status = cmd_tokenize(argc, argv);
    fflush(stdout);
    for (int fd = 0; fd < 3; fd++) {
        assert(dup2(old[fd], fd) == fd);
        close(old[fd]);
    }
    fclose(in);
    slurp(o, out, sizeof out);
    slurp(e, err, sizeof err);
    return status;
}
#define RUN(input, ...)                                                                            \
    run(input, sizeof input - 1, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static void good(int status, const char *ids)
{
    CHECK(status == 0, "status %d: %s", status, err);
    CHECK_STR(err, "");
    CHECK_STR(out, ids);
}

/* One line on standard error, nothing on standard output. */
static void bad(int status, int wanted, const char *about)
{
    CHECK(status == wanted, "status %d: %s", status, err);
    CHECK_STR(out, "");
    CHECK(!strncmp(err, "conclave: ", 10) && strstr(err, about) &&
              strchr(err, '\n') == err + strlen(err) - 1,
          "'%s', wanted one line with '%s'", err, about);
}

static void test_ids(const char *vocab)
{
    char path[] = "/tmp/cmd_tokenize_test.XXXXXX";
    int fd = mkstemp(path);

    good(RUN("", "-m", DEMO, "-p", "Once upon a time"), "990 1762 258 511\n");
    good(RUN("Once upon a time", "-m", DEMO), "990 1762 258 511\n");
    good(RUN("Once upon a time", "-m", DEMO, "-f", "-"), "990 1762 258 511\n");
    good(RUN("", "-m", DEMO), "\n");
    good(RUN("", "-m", DEMO, "-p", ""), "\n");
    assert(fd >= 0 && write(fd, "Once\0upon\n", 10) == 10);
    close(fd);
    good(RUN("", "--model", DEMO, "--file", path), "990 188 84 79 350 198\n");
    unlink(path);
    /* a vocabulary without tensors, with BOS and EOS */
    good(RUN("", "-m", vocab, "-p", "a<c>"), "1 0 3 2\n");
    good(RUN("", "-m", vocab, "-p", "a<c>", "--no-bos"), "0 3\n");
    good(RUN("", "-m", vocab, "-p", "aa<c>", "--no-special"), "1 0 0 2\n");
    good(RUN("", "-m", vocab, "-p", "a", "--no-special", "--no-bos", "--pre", "gpt-2"), "0\n");
}

static void test_help(void)
{
    CHECK_EQ(RUN("", "--help"), 0);
    CHECK(strstr(out, "--no-special") && strstr(out, "--pre NAME"), "help: %s", out);
    CHECK_STR(err, "");
}

static void test_mistakes(const char *vocab)
{
    bad(RUN("", "-p", "x"), 2, "-m FILE is missing");
    bad(RUN("", "-m", DEMO, "-p", "x", "-f", "y"), 2, "-p and -f exclude each other; give one of them");
    bad(RUN("", "-m", DEMO, "--no-spcial"), 2, "--no-special");
    bad(RUN("", "-m", DEMO, "--no-bos=1"), 2, "--no-bos");
    bad(RUN("", "-m", DEMO, "text"), 2, "text");
    bad(RUN("", "-m"), 2, "-m");
    bad(RUN("", "-m", "/nowhere/model.gguf", "-p", "x"), 1, "/nowhere/model.gguf");
    bad(RUN("", "-m", "tests", "-p", "x"), 1, "tests");
    bad(RUN("", "-m", DEMO, "-f", "/nowhere/text"), 1, "/nowhere/text");
    bad(RUN("", "-m", DEMO, "-f", "tests"), 1, "tests: cannot read");
    bad(RUN("", "-m", vocab, "-p", "x", "--pre", "qwen"), 1, "known are: gpt-2, olmo, qwen2");
    bad(RUN("", "-m", "tests/golden/gguf/bad-magic.gguf", "-p", "x"), 1, "bad-magic.gguf");
}

/* `conclave tokenize ... | true` */
static void test_closed_output(void)
{
    int ends[2], old = dup(1), old_err = dup(2), status;
    char *argv[] = {(char *)"tokenize", (char *)"-m", (char *)DEMO,
                    (char *)"-p",       (char *)"x",  NULL};
    FILE *e = tmpfile();

    fflush(stdout);
    signal(SIGPIPE, SIG_IGN); /* as the program does */
    assert(e && old >= 0 && old_err >= 0 && !pipe(ends) && dup2(ends[1], 1) == 1 &&
           dup2(fileno(e), 2) == 2);
    close(ends[0]);
    close(ends[1]);
    status = cmd_tokenize(5, argv);
    assert(dup2(old, 1) == 1 && dup2(old_err, 2) == 2);
    close(old);
    close(old_err);
    slurp(e, err, sizeof err);
    out[0] = 0;
    bad(status, 1, "standard output");
}

int main(void)
{
    char vocab[] = "/tmp/cmd_tokenize_test.XXXXXX";
    static const char *const texts[] = {"a", "<s>", "</s>", "<c>"};
    struct build b;

    assert(close(mkstemp(vocab)) == 0);
    build_begin(&b, 3);
    build_string(&b, "tokenizer.ggml.model", "gpt2");
    build_string(&b, "tokenizer.ggml.pre", "llama-bpe");
    build_array(&b, "tokenizer.ggml.tokens", 8, 4);
    for (int i = 0; i < 4; i++)
        build_str(&b, texts[i]);
    build_array(&b, "tokenizer.ggml.token_type", 5, 4);
    for (int i = 0; i < 4; i++)
        build_int(&b, i ? 3 : 1, 4);
    build_array(&b, "tokenizer.ggml.merges", 8, 0);
    build_u32(&b, "tokenizer.ggml.bos_token_id", 1);
    build_u32(&b, "tokenizer.ggml.eos_token_id", 2);
    build_bool(&b, "tokenizer.ggml.add_eos_token", 1);
    build_end(&b);
    build_write(&b, vocab);
    build_free(&b);
    test_ids(vocab);
    test_help();
    test_mistakes(vocab);
    test_closed_output();
    unlink(vocab);
    return test_end();
}
