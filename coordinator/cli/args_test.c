/* The parser over a small table: spellings, ranges, defaults in help, llama.cpp's names. */
#define _GNU_SOURCE
#include "coordinator/cli/args.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "coordinator/cli/escape.h"
#include "coordinator/cli/foreign.h"
#include "coordinator/cli/nearest.h"
#include "coordinator/cli/value.h"
#include "tests/test.h"

struct values {
    const char *text, *file;
    int on, count, kv;
    uint32_t batch;
    int64_t n;
    uint64_t seed, ram;
    double temp;
};
#define AT(x) offsetof(struct values, x)
static const struct flag table[] = {
    {.name = "prompt",
     .letter = 'p',
     .arg = "TEXT",
     .kind = FLAG_STRING,
     .at = AT(text),
     .help = "text"},
    {.name = "echo-it", .kind = FLAG_ON, .at = AT(on), .help = "on"},
    {.name = "verbose", .letter = 'v', .kind = FLAG_COUNT, .at = AT(count), .help = "more"},
    {.name = "kv",
     .arg = "TYPE",
     .kind = FLAG_CHOICE,
     .at = AT(kv),
     .choices = "f32|f16|bf16",
     .help = "type"},
    {.name = "batch",
     .arg = "N",
     .kind = FLAG_U32,
     .at = AT(batch),
     .min = 1,
     .max = 4096,
     .help = "most"},
    {.name = "predict|n-predict",
     .letter = 'n',
     .arg = "N",
     .kind = FLAG_I64,
     .at = AT(n),
     .min = -1,
     .max = 1000,
     .help = "tokens"},
    {.name = "seed", .arg = "N", .kind = FLAG_BITS64, .at = AT(seed), .help = "seed"},
    {.name = "ram", .arg = "BYTES", .kind = FLAG_SIZE, .at = AT(ram), .min = 1, .help = "memory"},
    {.name = "temp",
     .arg = "T",
     .kind = FLAG_F64,
     .at = AT(temp),
     .low = -10,
     .high = 10,
     .help = "temperature"},
    {.arg = "FILE", .kind = FLAG_STRING, .at = AT(file)},
    {.kind = 0},
};

static char said[1 << 16]; /* what the last parse wrote, on standard output and error together */

static struct values parse(int *status, int foreign, const char *line)
{
    struct values v = {.batch = 512, .n = -1, .temp = 0.8, .kv = 1};
    struct args a = {.verb = "test",
                     .about = "about",
                     .usage = "usage",
                     .foreign = foreign,
                     .part = {{table, &v}}};
    char copy[1024], *argv[64] = {(char *)"test"}, *save = NULL;
    int argc = 1, out = dup(1), err = dup(2);
    FILE *f = tmpfile();

    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    fflush(stdout);
    dup2(fileno(f), 1);
    dup2(fileno(f), 2);
    args_parse(&a, argc, argv, status);
    fflush(stdout);
    dup2(out, 1);
    dup2(err, 2);
    close(out);
    close(err);
    rewind(f);
    said[fread(said, 1, sizeof said - 1, f)] = 0;
    fclose(f);
    return v;
}

static void refused(int foreign, const char *line, const char *with)
{
    int status;

    parse(&status, foreign, line);
    CHECK(status == 2, "%s: status %d", line, status);
    CHECK(strstr(said, with) != NULL, "%s: said '%s', wanted '%s' in it", line, said, with);
    CHECK(strchr(said, '\n') && !strchr(said, '\n')[1], "%s: not one line: %s", line, said);
}

static void spellings(void)
{
    struct values v;
    int status;

    v = parse(&status, 0,
              "-n 5 --batch=7 --kv bf16 --seed -2 --ram 1.5K --temp -0.5 -v -p x --echo_it FILE");
    CHECK_EQ(status, 0);
    CHECK_EQ(v.n, 5);
    CHECK_EQ(v.batch, 7);
    CHECK_EQ(v.kv, 2);
    CHECK(v.seed == UINT64_MAX - 1, "%llu", (unsigned long long)v.seed);
    CHECK_EQ(v.ram, 1536);
    CHECK(v.temp == -0.5, "%g", v.temp);
    CHECK_EQ(v.count, 1);
    CHECK_EQ(v.on, 1);
    CHECK_STR(v.text, "x");
    CHECK_STR(v.file, "FILE");
    CHECK_STR(said, "");

    v = parse(&status, 0, "-n5 -n=6 -vv -v --n-predict 8 -- -odd");
    CHECK(status == 0 && v.n == 8 && v.count == 3, "%d %lld %d", status, (long long)v.n, v.count);
    CHECK_STR(v.file, "-odd");
    v = parse(&status, 0, "-n-1 -p --batch");
    CHECK(status == 0 && v.n == -1, "%d", status);
    CHECK_STR(v.text, "--batch");
    v = parse(&status, 0, "");
    CHECK(status == 0 && v.batch == 512 && v.n == -1 && v.kv == 1 && !v.text, "defaults stay");
}

static void mistakes(void)
{
    int status;

    refused(0, "-n -5", "-n -5: wanted a whole number, -1 to 1000");
    refused(0, "-n-5", "-1 to 1000");
    refused(0, "-n 5x", "wanted a whole number");
    refused(0, "-n 0x5", "wanted a whole number");
    refused(0, "-n 99999999999999999999", "wanted a whole number");
    refused(0, "--batch 0", "--batch 0: wanted a whole number, 1 to 4096");
    refused(0, "--batch", "--batch needs a value");
    refused(0, "--batch=", "--batch : wanted");
    refused(0, "--echo-it=1", "--echo-it takes no value");
    refused(0, "--kv q8", "--kv q8: wanted one of f32|f16|bf16");
    refused(0, "--ram 5X", "wanted a size");
    refused(0, "--ram 0", "wanted a size");
    refused(0, "--ram -1", "wanted a size");
    refused(0, "--temp nan", "wanted a number");
    refused(0, "--temp inf", "wanted a number");
    refused(0, "--seed x", "wanted a whole number");
    refused(0, "--bacth 5", "no option --bacth; did you mean --batch?");
    refused(0, "-temp 5", "no option -temp; did you mean --temp?");
    refused(0, "--n-pred 5", "did you mean --n-predict?");
    refused(0, "--xyzzyx", "no option --xyzzyx; see conclave test --help");
    refused(0, "-x", "no option -x; see");
    refused(0, "a b", "what is 'b'?");
    refused(0, "-ngl 0", "no option -ngl"); /* no foreign names unless the command wants them */

    parse(&status, 0, "--nonsense --help");
    CHECK_EQ(status, 0);
    CHECK(strstr(said, "--batch N") && strstr(said, "(default: 512)") &&
              strstr(said, "(default: f16)"),
          "%s", said);
    parse(&status, 0, "--version");
    CHECK(status == 0 && !strncmp(said, "conclave ", 9) && strstr(said, "build "), "%s", said);
}

static void foreign(void)
{
    struct values v;
    int status;

    v = parse(&status, 1, "-ctk f32 -ctv f32 -ub 64");
    CHECK(status == 0 && v.kv == 0 && v.batch == 64, "%d %d %u", status, v.kv, v.batch);
    CHECK(strstr(said, "-ctk f32: taken as --kv f32"), "%s", said);
    CHECK(strstr(said, "-ub 64: taken as --batch 64"), "%s", said);
    v = parse(&status, 1, "-ngl 0 --mlock -fa on -fa --no_mmap -cmoe -n 3");
    CHECK(status == 0 && v.n == 3, "%d", status);
    CHECK(strstr(said, "-ngl 0: accepted") && strstr(said, "--mlock: accepted"), "%s", said);
    v = parse(&status, 1, "-fa -n 4"); /* its value may be missing */
    CHECK(status == 0 && v.n == 4, "%d", status);
    refused(1, "-ctk q4_0", "-ctk q4_0: wanted one of");
    refused(1, "-hf user/model:q4", "-hf user/model:q4: nothing is downloaded");
    refused(1, "-ngl 99", "-ngl 99: what is computed on cards and what on the CPU");
    refused(1, "-hf", "-hf needs a value");
    refused(1, "--jinja", "--jinja: run goes on from raw text");
    parse(&status, 1, "-ctk f32 -ctv f16");
    CHECK(status == 2 && strstr(said, "keys and values have one type"), "%d %s", status, said);

    /* every entry has its sentence, is found by all its names, and is no name of another */
    CHECK(foreign_find("--no-mmap", 9, 0) != NULL, "--no-mmap");
    CHECK(foreign_find("--no-mma", 8, 0) == NULL, "a part of a name");
    CHECK(foreign_find("-hfr", 4, 0) == foreign_find("--hf-repo", 9, 0), "names of one entry");
}

static void numbers(void)
{
    uint64_t u = 7;
    int64_t i = 7;
    double d = 7;
    char text[32];

    CHECK(!value_size("0", &u) && u == 0, "0");
    CHECK(!value_size("4k", &u) && u == 4096, "4k");
    CHECK(!value_size("1GiB", &u) && u == 1ull << 30, "1GiB");
    CHECK(!value_size("0.5MB", &u) && u == 1ull << 19, "0.5MB");
    CHECK(!value_size("18446744073709551615", &u) && u == UINT64_MAX, "all bits");
    CHECK(!value_size("3T", &u) && u == 3ull << 40, "3T");
    CHECK(value_size("16384P", &u) && value_size("18446744073709551616", &u), "2^64 does not fit");
    CHECK(value_size("1.5", &u) && value_size("G", &u) && value_size("", &u) &&
              value_size("1GG", &u) && value_size(" 1", &u) && value_size("1 G", &u),
          "odd sizes");
    CHECK(u == 3ull << 40, "a refused number leaves the value alone");
    CHECK(!value_i64("-9223372036854775808", &i) && i == INT64_MIN, "least");
    CHECK(value_i64("-9223372036854775809", &i) && value_i64("-", &i) && value_i64("", &i) &&
              value_i64(" 1", &i),
          "odd whole numbers");
    CHECK(!value_bits64("-1", &u) && u == UINT64_MAX, "-1");
    CHECK(!value_f64("1e-3", &d) && d == 1e-3, "1e-3");
    CHECK(!value_f64(".5", &d) && d == 0.5 && !value_f64("5.", &d) && d == 5, "dots");
    CHECK(value_f64("1e999", &d) && value_f64("1e", &d) && value_f64("0x1p3", &d) &&
              value_f64(".", &d),
          "odd numbers");
    CHECK_STR(value_show_size(512, text), "512 B");
    CHECK_STR(value_show_size(1536, text), "1.50 KiB");
    CHECK_STR(value_show_size(300ull << 30, text), "300 GiB");
}

static const char *near_to(const char *word)
{
    static char text[64];
    struct nearest s;

    nearest_begin(&s, word, strlen(word));
    nearest_try(&s, "run|eval|perplexity");
    nearest_try(&s, "tokenize");
    snprintf(text, sizeof text, "%.*s", (int)s.near_n, s.near ? s.near : "");
    return text;
}

static void escapes(void)
{
    char text[] = "a\\nb\\\\n\\x41\\q\\x4\\";

    CHECK_EQ(unescape(text, strlen(text)), 12);
    CHECK(!memcmp(text, "a\nb\\nA\\q\\x4\\", 12), "%.12s", text);
}

int main(void)
{
    spellings();
    mistakes();
    foreign();
    numbers();
    escapes();
    CHECK_STR(near_to("rnu"), "run");
    CHECK_STR(near_to("evla"), "eval");
    CHECK_STR(near_to("tokenise"), "tokenize");
    CHECK_STR(near_to("serve"), "");
    return test_end();
}
