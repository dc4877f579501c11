/* .npy: what NumPy writes, what it does not, and files that we write. */
#define _GNU_SOURCE
#include "coordinator/npy/npy.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/test.h"

static char file[1 << 17];

/* A file of a header text and data; major: format. Returns its length. */
static size_t make(int major, const char *text, const char *data, size_t n)
{
    size_t len = strlen(text), at = 8;

    memcpy(file, "\x93NUMPY", 6);
    file[6] = (char)major;
    file[7] = 0;
    for (int i = 0; i < (major == 1 ? 2 : 4); i++)
        file[at++] = (char)(len >> 8 * i);
    memcpy(file + at, text, len);
    memcpy(file + at + len, data, n);
    return at + len + n;
}

static void test_reads(void)
{
    static const char data[] = "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\xff";
    struct npy a;
    struct err e = {0};
    size_t n;

    n = make(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2, 2), }      \n", data, 12);
    CHECK(!npy_parse("f", file, n, &a, &e), "%s", e.msg);
    CHECK(a.width == 1 && a.n_dims == 3 && a.shape[0] == 3 && a.shape[2] == 2 && a.n == 12);
    CHECK_EQ(npy_at(&a, 0), 1);
    CHECK_EQ(npy_at(&a, 11), 255);
    n = make(2, "{\"shape\": (2, 3), \"descr\": '<u2', 'fortran_order' :False}", data, 12);
    CHECK(!npy_parse("f", file, n, &a, &e), "%s", e.msg);
    CHECK_EQ(npy_at(&a, 5), 0xff0b);
    n = make(3, "{'descr':'<u4','fortran_order':False,'shape':(3,)}", data, 12);
    CHECK(!npy_parse("f", file, n, &a, &e), "%s", e.msg);
    CHECK_EQ(npy_at(&a, 2), 0xff0b0a09);
    n = make(1, "{'descr':'|u1','fortran_order':False,'shape':()}", data, 1);
    CHECK(!npy_parse("f", file, n, &a, &e) && a.n == 1 && a.n_dims == 0);
    n = make(1, "{'descr':'|u1','fortran_order':False,'shape':(0, 18446744073709551615,)}", data,
             0);
    CHECK(!npy_parse("f", file, n, &a, &e) && a.n == 0);
}

static void refused(int major, const char *text, size_t n_data, const char *why)
{
    static const char data[64];
    size_t n = make(major, text, data, n_data);
    struct err e = {0};
    struct npy a;

    CHECK(npy_parse("f", file, n, &a, &e) < 0 && strstr(e.msg, why) && !a.data, "%s: '%s'", text,
          e.msg);
}

static void test_refuses(void)
{
    static const char ok[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2), }";
    struct err e = {0};
    struct npy a;
    size_t n;

    refused(1, ok, 5, "needs 6 bytes of data, the file has 5");
    refused(1, ok, 7, "1 bytes after the data");
    refused(4, ok, 6, "format 4.0");
    refused(1, "{'descr': '<i4', 'fortran_order': False, 'shape': (1,)}", 4, "type '<i4'");
    refused(1, "{'descr': '>u2', 'fortran_order': False, 'shape': (1,)}", 2, "type '>u2'");
    refused(1, "{'descr': '|u2', 'fortran_order': False, 'shape': (1,)}", 2, "type '|u2'");
    refused(1, "{'descr': '<u8', 'fortran_order': False, 'shape': (1,)}", 8, "type '<u8'");
    refused(1, "{'descr': '|u1', 'fortran_order': True, 'shape': (1,)}", 1, "Fortran order");
    refused(1, "{'descr': '|u1', 'fortran_order': 0, 'shape': (1,)}", 1, "neither True nor False");
    refused(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1)}", 1, "without a comma");
    refused(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1 1)}", 1,
            "no comma between two dim");
    refused(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (-1,)}", 1, "no number");
    refused(1, "{'descr': '|u1', 'fortran_order': False, 'shape': 1}", 1, "no tuple");
    refused(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 1,
            "more than 8");
    refused(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", 1,
            "too large");
    refused(1, "{'descr': '<u4', 'fortran_order': False, 'shape': (4611686018427387904,)}", 1,
            "too large");
    refused(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (18446744073709551616,)}", 1,
            "too large");
    refused(1, "{'descr': '|u1', 'fortran_order': False}", 1, "lacks one of");
    refused(1, "{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': ()}", 1, "twice");
    refused(1, "{'descr': '|u1', 'extra': 1, 'fortran_order': False, 'shape': ()}", 1,
            "a key that");
    refused(1, "{'descr': '|u1' 'fortran_order': False, 'shape': ()}", 1,
            "no comma between two keys");
    refused(1, "{'descr': '|u1', 'fortran_order': False, 'shape': ()} x", 1, "something follows");
    refused(1, "{'descr", 0, "ends inside a word");
    refused(1, "{'descr\n': 1}", 0, "a word that");
    refused(1, "{'descr' '|u1'}", 0, "no colon");
    refused(1, "{", 0, "no quoted word");
    refused(1, "[]", 0, "no dict");
    refused(1, "", 0, "no dict");
    n = make(1, ok, "123456", 6);
    for (size_t i = 0; i < n; i++) { /* cut anywhere */
        e = (struct err){0};
        CHECK(npy_parse("f", file, i, &a, &e) < 0 && e.msg[0], "%zu bytes", i);
    }
    file[8] = (char)0xff; /* a header longer than the file */
    file[9] = (char)0xff;
    e = (struct err){0};
    CHECK(npy_parse("f", file, n, &a, &e) < 0 && strstr(e.msg, "cut off in its header"), "%s",
          e.msg);
    n = make(2, ok, "123456", 6);
    memset(file + 8, 0xff, 4);
    e = (struct err){0};
    CHECK(npy_parse("f", file, n, &a, &e) < 0 && strstr(e.msg, "at most 65536"), "%s", e.msg);
    e = (struct err){0};
    CHECK(npy_read("/nowhere/x.npy", &a, &e) < 0 && strstr(e.msg, "/nowhere/x.npy: cannot read"),
          "%s", e.msg);
    e = (struct err){0};
    CHECK(npy_read("/", &a, &e) < 0 && strstr(e.msg, "no regular file"), "%s", e.msg);
}

/* Rows written, whole at any moment between, are what is read. */
static void test_writes(const char *path, uint32_t width, uint32_t rows)
{
    uint32_t shape[] = {7, 3}, row[21], top = width == 4 ? UINT32_MAX : (1u << 8 * width) - 1;
    struct npy_writer *w = NULL;
    struct err e = {0};
    struct npy a;
    size_t wrong = 0;

    CHECK(!npy_create(path, width, 2, shape, &w, &e), "%s", e.msg);
    for (uint32_t t = 0; t < rows; t++) {
        for (uint32_t i = 0; i < 21; i++)
            row[i] = (t * 21 + i) * 2654435761u & top;
        CHECK(!npy_write(w, row, &e), "%s", e.msg);
        if (t == 9000 / width) { /* as if the writer had died here */
            CHECK(!npy_read(path, &a, &e), "%s", e.msg);
            CHECK(a.shape[0] > 0 && a.shape[0] <= t + 1 && a.shape[0] + 65536 / (21 * width) > t);
            npy_free(&a);
        }
    }
    CHECK_EQ(npy_rows(w), rows);
    if (width < 4) {
        row[20] = top + 1;
        CHECK_EQ(npy_write(w, row, &e), -ERANGE);
        CHECK_EQ(npy_rows(w), rows);
        e = (struct err){0};
    }
    CHECK(!npy_close(w, &e), "%s", e.msg);
    CHECK(!npy_read(path, &a, &e), "%s", e.msg);
    CHECK(a.width == width && a.n_dims == 3 && a.shape[0] == rows && a.shape[1] == 7 &&
          a.shape[2] == 3);
    for (size_t i = 0; i < a.n; i++)
        wrong += npy_at(&a, i) != ((uint32_t)i * 2654435761u & top);
    CHECK_EQ(wrong, 0);
    npy_free(&a);
}

static void test_write_faults(const char *path)
{
    struct rlimit old, small = {100000, 0};
    uint32_t big[] = {4294967295u, 4294967295u, 1}, one[] = {1}, three[] = {1, 1, 1, 1}, v = 5;
    struct npy_writer *w = NULL;
    struct err e = {0};
    struct npy a;
    char other[128];
    int rc = 0;

    CHECK(npy_create("/nowhere/x.npy", 1, 1, one, &w, &e) < 0 && strstr(e.msg, "/nowhere/x.npy"),
          "%s", e.msg);
    e = (struct err){0};
    CHECK(npy_create("/dev/null", 1, 1, one, &w, &e) < 0 && strstr(e.msg, "no regular file"), "%s", e.msg);
    e = (struct err){0};
    CHECK(npy_create(path, 1, 3, big, &w, &e) < 0, "%s", e.msg);
    CHECK(npy_create(path, 3, 1, one, &w, &e) < 0);
    CHECK(npy_create(path, 1, 4, three, &w, &e) < 0);
    e = (struct err){0};
    /* what is there stays until the first row */
    CHECK(!npy_create(path, 1, 1, one, &w, &e), "%s", e.msg);
    CHECK(!npy_read(path, &a, &e) && a.n > 1, "%s", e.msg);
    npy_free(&a);
    npy_drop(w);
    CHECK(!npy_read(path, &a, &e) && a.n > 1, "%s", e.msg);
    npy_free(&a);
    snprintf(other, sizeof other, "%s.new", path);
    CHECK(!npy_create(other, 1, 1, one, &w, &e), "%s", e.msg);
    CHECK(!access(other, F_OK));
    npy_drop(w);
    CHECK(access(other, F_OK), "an empty file is left");
    CHECK(!npy_create(path, 1, 1, one, &w, &e), "%s", e.msg);
    CHECK(!npy_close(w, &e), "%s", e.msg); /* no rows: an empty array */
    CHECK(!npy_read(path, &a, &e) && a.n == 0 && a.n_dims == 2, "%s", e.msg);
    npy_free(&a);
    /* a full disk is an error, and the file that is left can be read */
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(!npy_create(path, 4, 1, one, &w, &e), "%s", e.msg);
    setrlimit(RLIMIT_FSIZE, &small);
    for (int i = 0; i < 1 << 17 && !rc; i++)
        rc = npy_write(w, &v, &e);
    CHECK(rc < 0 && strstr(e.msg, "cannot write"), "%d %s", rc, e.msg);
    npy_close(w, NULL);
    setrlimit(RLIMIT_FSIZE, &old);
    e = (struct err){0};
    CHECK(!npy_read(path, &a, &e), "%s", e.msg);
    npy_free(&a);
}

int main(void)
{
    char dir[] = "/tmp/npy_test.XXXXXX", path[64];

    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/x.npy", dir);
    test_reads();
    test_refuses();
    test_writes(path, 1, 10000);
    test_writes(path, 2, 7000);
    test_writes(path, 4, 3000);
    test_writes(path, 1, 3);
    test_write_faults(path);
    unlink(path);
    rmdir(dir);
    return test_end();
}
