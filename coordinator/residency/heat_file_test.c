/* Heat files: there and back, and every way in which one can be wrong. */
#define _GNU_SOURCE
#include "coordinator/residency/heat_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/model/gguf.h"
#include "tests/test.h"

enum { LAYERS = 5, EXPERTS = 400, N = LAYERS * EXPERTS };
#define MODEL "tests/demo/story-moe-q4_k_m.gguf"

static char dir[] = "/tmp/heat_file_test.XXXXXX", path[256];
static float uses[N], got[N];
static const struct heat_id id = {{11, 22}, 33}, other = {{11, 23}, 33};

static int load(const struct heat_id *who, uint32_t layers, uint32_t experts, double *tokens,
                struct err *e)
{
    *e = (struct err){0};
    memset(got, 0x55, sizeof got);
    return heat_load(path, who, layers, experts, got, tokens, e);
}

/* It must be ignored with this line, and nothing come of it. */
static void ignored(const struct heat_id *who, uint32_t experts, const char *why)
{
    double tokens = 5;
    struct err e;
    int not_zero = 0, rc = load(who, LAYERS, experts, &tokens, &e);

    CHECK(rc < 0 && strstr(e.msg, why) && strstr(e.msg, path) && strstr(e.msg, "ignored"),
          "%d '%s', wanted %s", rc, e.msg, why);
    CHECK(tokens == 0);
    for (uint32_t i = 0; i < LAYERS * experts; i++)
        not_zero += got[i] != 0;
    CHECK_EQ(not_zero, 0);
}

static void save(void)
{
    struct err e = {0};

    CHECK(!heat_save(path, &id, LAYERS, EXPERTS, uses, 321.5, &e), "%s", e.msg);
}

static void poke(off_t at, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY);

    CHECK(fd >= 0 && pwrite(fd, bytes, n, at) == (ssize_t)n);
    close(fd);
}

static int files_in(const char *where)
{
    DIR *d = opendir(where);
    int n = 0;

    for (struct dirent *f; d && (f = readdir(d));)
        n += *f->d_name != '.';
    if (d)
        closedir(d);
    return n;
}

static void test_there_and_back(void)
{
    double tokens;
    struct err e;

    CHECK_EQ(load(&id, LAYERS, EXPERTS, &tokens, &e), 1); /* none yet: no line */
    CHECK(!e.code && got[0] == 0);
    for (int i = 0; i < N; i++)
        uses[i] = (float)(i % 97) / 3;
    save(); /* makes the folders */
    save();
    CHECK(!load(&id, LAYERS, EXPERTS, &tokens, &e), "%s", e.msg);
    CHECK(!memcmp(uses, got, sizeof got) && tokens == 321.5);
}

static void test_faults(void)
{
    static const char junk[] = "x";
    float bad = -1;
    struct err e = {0};
    double tokens;
    int fd;

    ignored(&other, EXPERTS, "of another model");
    ignored(&id, EXPERTS - 1, "of another model");
    for (off_t size = 0; size < (off_t)(64 + sizeof uses); size += size < 70 ? 1 : 997) {
        save();
        CHECK(!truncate(path, size));
        ignored(&id, EXPERTS, "cut off");
    }
    for (off_t at = 0; at < (off_t)(64 + sizeof uses);
         at += at < 70 ? 1 : 501) { /* a flipped byte anywhere */
        char byte = 0;
        save();
        fd = open(path, O_RDONLY);
        CHECK(pread(fd, &byte, 1, at) == 1);
        close(fd);
        byte ^= 0x40;
        poke(at, &byte, 1);
        ignored(&id, EXPERTS, ":");
    }
    save();
    poke(64 + sizeof uses, junk, 1);
    ignored(&id, EXPERTS, "too long");
    uses[7] = bad; /* a right check sum does not make it right */
    save();
    ignored(&id, EXPERTS, "damaged");
    uses[7] = NAN;
    save();
    ignored(&id, EXPERTS, "damaged");
    uses[7] = 1;
    CHECK(!heat_save(path, &id, LAYERS, EXPERTS, uses, INFINITY, &e), "%s", e.msg);
    ignored(&id, EXPERTS, "damaged");
    save();
    poke(0, "GGUF", 4);
    ignored(&id, EXPERTS, "no heat file");
    CHECK(!unlink(path) && !mkfifo(path, 0600)); /* must not wait for a writer */
    ignored(&id, EXPERTS, "no regular file");
    CHECK(!unlink(path) && !mkdir(path, 0700));
    ignored(&id, EXPERTS, "no regular file");
    CHECK(heat_save(path, &id, LAYERS, EXPERTS, uses, 1, &e) < 0 && strstr(e.msg, path), "%s",
          e.msg);
    CHECK(!rmdir(path));
    save();
    CHECK(!load(&id, LAYERS, EXPERTS, &tokens, &e), "%s", e.msg);
}

/* A full disk leaves the old file and nothing else. */
static void test_full_disk(const char *folder)
{
    struct rlimit old, small = {1000, 0};
    struct err e = {0};
    double tokens;

    CHECK_EQ(files_in(folder), 1);
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    CHECK(heat_save(path, &id, LAYERS, EXPERTS, uses, 1, &e) < 0 && strstr(e.msg, "cannot write"),
          "%s", e.msg);
    setrlimit(RLIMIT_FSIZE, &old);
    CHECK_EQ(files_in(folder), 1);
    CHECK(!load(&id, LAYERS, EXPERTS, &tokens, &e) && tokens == 321.5, "%s", e.msg);
}

static void test_path(void)
{
    struct heat_id who = {{0x123, 0x456}, 7};
    char out[256];
    struct err e = {0};

    setenv("XDG_CACHE_HOME", "/x/y", 1);
    setenv("HOME", "/h", 1);
    CHECK(!heat_path(&who, out, sizeof out, &e), "%s", e.msg);
    CHECK_STR(out, "/x/y/conclave/00000000000001230000000000000456.heat");
    setenv("XDG_CACHE_HOME", "relative", 1);
    CHECK(!heat_path(&who, out, sizeof out, &e), "%s", e.msg);
    CHECK_STR(out, "/h/.cache/conclave/00000000000001230000000000000456.heat");
    CHECK(heat_path(&who, out, 20, &e) == -ENAMETOOLONG);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    e = (struct err){0};
    CHECK(heat_path(&who, out, sizeof out, &e) == -ENOENT && e.msg[0], "%s", e.msg);
}

static int copy(const char *to, off_t flip)
{
    FILE *in = fopen(MODEL, "rb"), *out = fopen(to, "wb");
    int c;

    if (!in || !out)
        return -1;
    for (off_t at = 0; (c = getc(in)) != EOF; at++)
        putc(at == flip ? c ^ 1 : c, out);
    fclose(in);
    return fclose(out);
}

static struct heat_id identify(const char *model)
{
    struct gguf *g = NULL;
    struct heat_id out = {0};
    struct err e = {0};

    CHECK(!gguf_open(model, &g, &e), "%s", e.msg);
    CHECK(!heat_identify(g, &out, &e), "%s", e.msg);
    gguf_close(g);
    return out;
}

/* The same model is known again under another name; other metadata or another size is another
 * model. */
static void test_identity(void)
{
    struct heat_id a = identify(MODEL), b;
    char to[300];

    snprintf(to, sizeof to, "%s/m.gguf", dir);
    CHECK(!copy(to, -1));
    b = identify(to);
    CHECK(!memcmp(&a, &b, sizeof a) && a.bytes == 7022496);
    CHECK(!copy(to, 120)); /* inside a metadata value: general.* */
    b = identify(to);
    CHECK(memcmp(&a, &b, sizeof a));
    CHECK(!copy(to, -1) && !truncate(to, 7022496 + 32));
    b = identify(to);
    CHECK(memcmp(&a, &b, sizeof a));
    unlink(to);
}

int main(void)
{
    char folder[200];

    if (!mkdtemp(dir))
        return 1;
    test_identity();
    snprintf(folder, sizeof folder, "%s/a/b", dir);
    snprintf(path, sizeof path, "%s/x.heat", folder);
    test_there_and_back();
    test_faults();
    test_full_disk(folder);
    test_path();
    unlink(path);
    rmdir(folder);
    snprintf(folder, sizeof folder, "%s/a", dir);
    rmdir(folder);
    CHECK(!rmdir(dir));
    return test_end();
}
