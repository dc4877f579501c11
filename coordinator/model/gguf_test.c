/* The GGUF reader against tests/golden/gguf, against files made here with one fault each, against
 * every truncation of a real file, and split models. */
#define _GNU_SOURCE
#pragma GCC diagnostic ignored "-Wformat-zero-length" /* a CHECK without a message */
#include "coordinator/model/gguf.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yajl/yajl_tree.h>

#include "coordinator/model/gguf_build.h"
#include "tests/test.h"

#define GOLDEN "tests/golden/gguf"

static unsigned char *read_file(const char *path, size_t *n)
{
    struct stat st;
    int fd = open(path, O_RDONLY);
    unsigned char *p = NULL;

    *n = 0;
    if (fd < 0 || fstat(fd, &st)) {
        CHECK(0, "%s: %s", path, strerror(errno));
        return calloc(1, 1);
    }
    p = malloc((size_t)st.st_size + 1);
    while (p && *n < (size_t)st.st_size) {
        ssize_t k = read(fd, p + *n, (size_t)st.st_size - *n);
        if (k <= 0)
            break;
        *n += (size_t)k;
    }
    CHECK_EQ(*n, st.st_size);
    close(fd);
    if (p)
        p[*n] = 0;
    return p;
}

/* --- golden ------------------------------------------------------------------------------------
 */

/* What the golden text says beyond the name of the thing, which it writes in two ways. */
static const char *about_tail(const char *about)
{
    const char *p = strstr(about, "': ");

    return p ? p + 3 : about;
}

static void check_golden(const char *file, yajl_val want)
{
    const char *accept_path[] = {"accept", NULL}, *byte_path[] = {"byte", NULL},
               *about_path[] = {"about", NULL};
    yajl_val accept = yajl_tree_get(want, accept_path, yajl_t_any);
    yajl_val byte = yajl_tree_get(want, byte_path, yajl_t_number);
    yajl_val about = yajl_tree_get(want, about_path, yajl_t_string);
    char path[512], prefix[600];
    struct gguf *g = NULL;
    struct err e = {0};
    int rc;

    snprintf(path, sizeof path, GOLDEN "/%s", file);
    rc = gguf_open(path, &g, &e);
    if (YAJL_IS_TRUE(accept)) {
        CHECK(rc == 0, "%s: %s", file, e.msg);
        gguf_close(g);
        return;
    }
    CHECK(YAJL_IS_FALSE(accept) && byte && about, "%s: unreadable expectation", file);
    CHECK(rc < 0 && rc == e.code && !g, "%s: accepted", file);
    snprintf(prefix, sizeof prefix, "%s: byte %lld: ", path, byte ? YAJL_GET_INTEGER(byte) : -1);
    CHECK(!strncmp(e.msg, prefix, strlen(prefix)), "'%s' wanted '%s'", e.msg, prefix);
    CHECK(about && strstr(e.msg, about_tail(YAJL_GET_STRING(about))), "'%s' wanted '%s'", e.msg,
          about ? YAJL_GET_STRING(about) : "");
    CHECK(!strchr(e.msg, '\n'), "%s", e.msg);
}

static void test_golden(void)
{
    size_t n;
    char why[200];
    char *text = (char *)read_file(GOLDEN "/expected.json", &n);
    yajl_val all = yajl_tree_parse(text, why, sizeof why);

    CHECK(all && YAJL_IS_OBJECT(all) && YAJL_GET_OBJECT(all)->len >= 28, "expected.json: %s", why);
    for (size_t i = 0; all && i < YAJL_GET_OBJECT(all)->len; i++)
        check_golden(YAJL_GET_OBJECT(all)->keys[i], YAJL_GET_OBJECT(all)->values[i]);
    yajl_tree_free(all);
    free(text);
}

/* --- faults made here --------------------------------------------------------------------------
 */

static int parse(const struct build *w, struct gguf **g, struct err *e)
{
    *e = (struct err){0};
    *g = NULL;
    return gguf_parse("m.gguf", w->b, w->n, w->n, g, e);
}

/* The whole file is refused with exactly this line. */
static void refused(struct build *w, const char *line)
{
    struct gguf *g;
    struct err e;

    CHECK(parse(w, &g, &e) < 0, "accepted, wanted: %s", line);
    CHECK_STR(e.msg, line);
    gguf_close(g);
    build_free(w);
}

static const uint64_t row64[] = {64}, mat[] = {64, 3};

static void test_header(void)
{
    struct build w;
    struct gguf *g;
    struct err e;

    build_begin(&w, 0x03000000);
    build_end(&w);
    refused(&w, "m.gguf: byte 4: big-endian GGUF is not supported");
    build_begin(&w, 0x02000000);
    build_end(&w);
    refused(&w, "m.gguf: byte 4: big-endian GGUF is not supported");
    build_begin(&w, 4);
    build_end(&w);
    refused(&w, "m.gguf: byte 4: GGUF version 4 is not supported (2 or 3)");
    build_begin(&w, 3);
    w.n = 0;
    refused(&w, "m.gguf: byte 0: the file is empty (a GGUF file is needed)");
    build_begin(&w, 3);
    w.n = 3;
    refused(&w, "m.gguf: byte 0: file ends inside the header: 3 bytes remain (4 needed)");
    build_begin(&w, 3);
    w.n = 23;
    refused(&w, "m.gguf: byte 16: file ends inside the header: 7 bytes remain (8 needed)");
    build_begin(&w, 3);
    memcpy(w.b,
           "\x7f"
           "ELF",
           4);
    build_end(&w);
    refused(&w, "m.gguf: byte 0: not a GGUF file: it begins with '\\x7FELF' ('GGUF')");
    for (uint32_t v = 2; v <= 3; v++) { /* nothing in it: well-formed */
        build_begin(&w, v);
        build_end(&w);
        CHECK(!parse(&w, &g, &e), "%s", e.msg);
        CHECK_EQ(gguf_n_keys(g), 0);
        CHECK_EQ(gguf_n_tensors(g), 0);
        CHECK(gguf_tensor(g, "x") == NULL);
        CHECK_EQ(gguf_version(g), v);
        gguf_close(g);
        build_free(&w);
    }
}

static void test_keys(void)
{
    struct build w;

    build_begin(&w, 3);
    build_u32(&w, "", 1);
    build_bytes(&w, NULL, 8);
    build_end(&w);
    refused(&w, "m.gguf: byte 24: key 0: bad key: empty");
    build_begin(&w, 3);
    build_u32(&w, "a\tb", 1);
    build_end(&w);
    refused(&w, "m.gguf: byte 24: key 0: bad key: 'a\\x09b' (printable ASCII)");
    build_begin(&w, 3);
    build_u32(&w, "a", 1);
    build_u32(&w, "b", 1);
    build_string(&w, "a", "1");
    build_end(&w);
    refused(&w, "m.gguf: byte 58: key 2 'a': key is there twice");
    build_begin(&w, 3);
    build_array(&w, "a", GGUF_ARRAY, 1);
    build_bytes(&w, NULL, 64);
    build_end(&w);
    refused(&w, "m.gguf: byte 37: key 0 'a': array of arrays is not supported");
    build_begin(&w, 3);
    build_array(&w, "a", 13, 1);
    build_bytes(&w, NULL, 64);
    build_end(&w);
    refused(&w, "m.gguf: byte 37: key 0 'a': array element type 13 unknown (0 to 12)");
    build_begin(&w, 3);
    build_array(&w, "a", GGUF_BOOL, 3);
    build_bytes(&w, "\0\1\2", 3);
    build_end(&w);
    refused(&w, "m.gguf: byte 51: key 0 'a': bool byte 2 (0 or 1)");
    build_begin(&w, 3);
    build_array(&w, "a", GGUF_STRING, 2);
    build_str(&w, "xy");
    build_int(&w, 5, 8);
    build_end(&w);
    refused(&w, "m.gguf: byte 59: key 0 'a': string of 5 bytes, but 0 bytes remain in the file");
    build_begin(&w, 3);
    build_array(&w, "a", GGUF_U64, 3);
    build_bytes(&w, NULL, 23);
    build_end(&w);
    refused(&w, "m.gguf: byte 37: key 0 'a': array of 3 elements does not fit: 23 bytes remain in "
                "the file");
    build_begin(&w, 3);
    build_key(&w, "general.alignment", GGUF_U16);
    build_int(&w, 32, 2);
    build_end(&w);
    refused(&w, "m.gguf: byte 53: general.alignment is u16 (u32)");
    build_begin(&w, 3);
    build_u32(&w, "general.alignment", 0);
    build_end(&w);
    refused(&w, "m.gguf: byte 57: general.alignment 0 (a power of two up to 65536)");
}

static void test_infos(void)
{
    static const uint64_t zero[] = {64, 0}, wide[] = {1ull << 40, 1ull << 40};
    char name[80];
    struct build w;

    build_begin(&w, 3);
    memset(name, 'n', sizeof name);
    name[64] = 0;
    build_tensor(&w, name, 0, 1, row64, 256);
    build_end(&w);
    refused(&w, "m.gguf: byte 24: tensor 0: bad name: 64 bytes (1 to 63)");
    for (size_t i = 0; i < 6;
         i++) { /* stray byte, overlong, surrogate, beyond, control, C1 control */
        static const char *const bad[] = {"a\x80", "\xC1\xBF", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                          "a\n",   "\xC2\x80"};
        static const char *const shown[] = {"a\\x80",          "\\xC1\\xBF",
                                            "\\xED\\xA0\\x80", "\\xF4\\x90\\x80\\x80",
                                            "a\\x0A",          "\\xC2\\x80"};
        char line[200];

        build_begin(&w, 3);
        build_tensor(&w, bad[i], 0, 1, row64, 256);
        build_end(&w);
        snprintf(line, sizeof line,
                 "m.gguf: byte 24: tensor 0: bad name: '%s' (UTF-8 without control characters)",
                 shown[i]);
        refused(&w, line);
    }
    build_begin(&w, 3);
    build_tensor(&w, "a", 0, 1, row64, 256);
    build_tensor(&w, "b", 0, 1, row64, 256);
    build_tensor(&w, "a", 0, 1, row64, 256);
    build_end(&w);
    refused(&w, "m.gguf: byte 90: tensor 2 'a': name is there twice (also at byte 24)");
    build_begin(&w, 3);
    build_tensor(&w, "a", 0, 0, row64, 4);
    build_bytes(&w, NULL, 8);
    build_end(&w);
    refused(&w, "m.gguf: byte 33: tensor 0 'a': 0 dimensions (1 to 4)");
    build_begin(&w, 3);
    build_tensor(&w, "a", 0, 2, zero, 4);
    build_end(&w);
    refused(&w, "m.gguf: byte 45: tensor 0 'a': dimension 1 is 0 (1 or more)");
    build_begin(&w, 3);
    build_tensor(&w, "a", 0, 2, wide, 4);
    build_end(&w);
    refused(&w, "m.gguf: byte 37: tensor 0 'a': size overflows: 1099511627776 x 1099511627776 x 1 "
                "x 1 values");
    build_begin(&w, 3);
    build_tensor(&w, "a", 0, 1, (const uint64_t[]){1ull << 61}, 4);
    build_end(&w);
    refused(&w, "m.gguf: byte 45: tensor 0 'a': size overflows: 2305843009213693952 x 1 x 1 x 1 "
                "values of F32");
    build_begin(&w, 3);
    build_tensor(&w, "blk.3.ffn_up_exps.weight", 8, 1, (const uint64_t[]){48}, 4);
    build_end(&w);
    refused(&w, "m.gguf: byte 68: tensor 0 'blk.3.ffn_up_exps.weight': row of 48 values is not a "
                "multiple of 32 (Q8_0)");
    for (uint32_t type = 0; type < 45; type++) { /* removed and unknown ones */
        char line[100];
        if (!strchr("\4\5\37\40\41\44\45\46\53\54", (int)type) || !type)
            continue;
        build_begin(&w, 3);
        build_tensor(&w, "a", type, 1, row64, 256);
        build_end(&w);
        snprintf(line, sizeof line, "m.gguf: byte 45: tensor 0 'a': type %u not supported", type);
        refused(&w, line);
    }
    build_begin(&w, 3); /* overlap: the second where the first still is */
    build_tensor(&w, "a", 0, 2, mat, 32);
    build_tensor(&w, "b", 0, 1, row64, 256);
    build_end(&w);
    refused(&w, "m.gguf: byte 90: tensor 1 'b': offset 32, expected 768");
    build_begin(&w, 3);
    build_tensor(&w, "a", 0, 1, row64, 256);
    build_tensor(&w, "output.weight", 0, 2, mat, 768);
    build_end(&w);
    w.n -= 1;
    refused(&w, "m.gguf: file ends at byte 1151, tensor 'output.weight' needs byte 1152");
}

static void test_values(void)
{
    struct build w;
    struct gguf *g;
    struct gguf_str s;
    struct gguf_array a;
    struct err e;
    uint64_t u;
    int64_t i;
    float f;
    int b;

    build_begin(&w, 2);
    build_key(&w, "u8", GGUF_U8), build_int(&w, 250, 1);
    build_key(&w, "i8", GGUF_I8), build_int(&w, 0x80, 1);
    build_u16(&w, "u16", 65535);
    build_key(&w, "i16", GGUF_I16), build_int(&w, 0x7FFF, 2);
    build_u32(&w, "u32", 4000000000u);
    build_i32(&w, "i32", -7);
    build_key(&w, "u64", GGUF_U64), build_int(&w, UINT64_MAX, 8);
    build_key(&w, "i64", GGUF_I64), build_int(&w, INT64_MAX, 8);
    build_f32(&w, "f32", 1e-5f);
    build_key(&w, "f64", GGUF_F64), build_bytes(&w, &(double){0.1}, 8);
    build_bool(&w, "yes", 1);
    build_key(&w, "str", GGUF_STRING), build_int(&w, 3, 8), build_bytes(&w, "a\0b", 3);
    build_array(&w, "names", GGUF_STRING, 4);
    build_str(&w, "one"), build_str(&w, ""), build_str(&w, "\xFF"), build_str(&w, "four");
    build_array(&w, "none", GGUF_STRING, 0);
    build_array(&w, "ints", GGUF_I32, 2), build_int(&w, 5, 4), build_int(&w, 0xFFFFFFFF, 4);
    build_array(&w, "floats", GGUF_F32, 2), build_bytes(&w, (const float[]){0.5f, -2}, 8);
    build_array(&w, "bools", GGUF_BOOL, 2), build_bytes(&w, "\0\1", 2);
    build_tensor(&w, "t", 8, 2, mat, 204);
    build_end(&w);
    CHECK(!parse(&w, &g, &e), "%s", e.msg);
    if (e.code)
        return;

    CHECK(!gguf_u64(g, "u8", &u) && u == 250);
    CHECK(gguf_u64(g, "i8", &u) == -EINVAL);
    CHECK(!gguf_u64(g, "u16", &u) && u == 65535);
    CHECK(!gguf_u64(g, "i16", &u) && u == 32767);
    CHECK(!gguf_u64(g, "u32", &u) && u == 4000000000u);
    CHECK(gguf_u64(g, "i32", &u) == -EINVAL);
    CHECK(!gguf_u64(g, "u64", &u) && u == UINT64_MAX);
    CHECK(!gguf_u64(g, "i64", &u) && u == INT64_MAX);
    CHECK(gguf_u64(g, "f32", &u) == -EINVAL);
    CHECK(gguf_u64(g, "absent", &u) == 1);
    CHECK(gguf_u64(g, "names", &u) == -EINVAL);
    CHECK(!gguf_f32(g, "f32", &f) && f == 1e-5f);
    CHECK(!gguf_f32(g, "f64", &f) && f == 0.1f);
    CHECK(!gguf_f32(g, "i8", &f) && f == -128);
    CHECK(gguf_f32(g, "str", &f) == -EINVAL);
    CHECK(!gguf_bool(g, "yes", &b) && b == 1);
    CHECK(gguf_bool(g, "u8", &b) == -EINVAL && gguf_bool(g, "absent", &b) == 1);
    CHECK(!gguf_string(g, "str", &s) && s.n == 3 && !memcmp(s.s, "a\0b", 4));
    CHECK(gguf_string(g, "yes", &s) == -EINVAL);

    CHECK(!gguf_array(g, "names", &a) && a.n == 4 && a.kind == GGUF_STRING);
    CHECK_STR(gguf_array_str(&a, 0).s, "one");
    CHECK(gguf_array_str(&a, 1).n == 0 && !*gguf_array_str(&a, 1).s);
    CHECK(gguf_array_str(&a, 2).n == 1 && !strcmp(gguf_array_str(&a, 2).s, "\xFF"));
    CHECK(gguf_array_str(&a, 3).n == 4 && !strcmp(gguf_array_str(&a, 3).s, "four"));
    CHECK(gguf_array_u64(&a, 0, &u) == -EINVAL);
    CHECK(!gguf_array(g, "none", &a) && a.n == 0);
    CHECK(!gguf_array(g, "ints", &a) && !gguf_array_u64(&a, 0, &u) && u == 5);
    CHECK(gguf_array_u64(&a, 1, &u) == -EINVAL && !gguf_array_i64(&a, 1, &i) && i == -1);
    CHECK(gguf_array_str(&a, 0).n == 0);
    CHECK(!gguf_array(g, "floats", &a) && !gguf_array_f32(&a, 1, &f) && f == -2);
    CHECK(!gguf_array(g, "bools", &a) && !gguf_array_bool(&a, 1, &b) && b == 1);
    CHECK(gguf_array(g, "u8", &a) == -EINVAL && gguf_array(g, "absent", &a) == 1);
    CHECK(gguf_kind(g, "f64") == GGUF_F64 && gguf_kind(g, "absent") == -1);

    gguf_why(g, "i32", "an integer, 1 or more", &e);
    CHECK_STR(e.msg, "m.gguf: byte 122: key 'i32': -7 (an integer, 1 or more)");
    e.code = 0;
    gguf_why(g, "gone", "an integer", &e);
    CHECK_STR(e.msg, "m.gguf: key 'gone' is missing (an integer)");
    e.code = 0;
    gguf_why(g, "str", "true or false", &e);
    CHECK(strstr(e.msg, ": key 'str': 'a\\x00b' (true or false)"), "%s", e.msg);

    CHECK(gguf_n_tensors(g) == 1 && gguf_tensor(g, "t") == gguf_tensor_at(g, 0));
    CHECK_STR(gguf_tensor(g, "t")->name.s, "t");
    CHECK_EQ(gguf_tensor(g, "t")->row_bytes, 68);
    CHECK_EQ(gguf_tensor(g, "t")->bytes, 204);
    CHECK_EQ(gguf_tensor(g, "t")->dims[3], 1);
    CHECK_EQ(gguf_tensor(g, "t")->file_offset, w.data_start);
    CHECK(gguf_warning(g, 0) == NULL && gguf_warning(g, 5) == NULL);
    gguf_close(g);

    build_bytes(&w, NULL, 100); /* 20 bytes of padding are there already */
    CHECK(!parse(&w, &g, &e), "%s", e.msg);
    CHECK(gguf_warning(g, 0) && strstr(gguf_warning(g, 0), ": 120 bytes after the last tensor"),
          "%s", gguf_warning(g, 0));
    CHECK(gguf_warning(g, 1) == NULL);
    gguf_close(g);
    build_free(&w);
}

static void test_show(void)
{
    char out[64];

    CHECK_STR(gguf_show(out, sizeof out, "Qwen \xC3\xA9\n\xFF\xC2\x85\x7F", 12),
              "Qwen \xC3\xA9\\x0A\\xFF\\xC2\\x85\\x7F");
    CHECK_STR(gguf_show(out, 12, "12345678901234567890", 20), "12345...");
    CHECK_STR(gguf_show(out, 8, "\xF0\x9F\x98\x80\xF0\x9F\x98\x80", 8), "\xF0\x9F\x98\x80...");
    CHECK_STR(gguf_show(out, 8, "", 0), "");
}

/* --- a real file, damaged ----------------------------------------------------------------------
 */

static void refuse_beginnings(const unsigned char *p, size_t to, size_t step)
{
    size_t accepted = 0, odd = 0;

    for (size_t n = 0; n < to; n += step) {
        struct gguf *g = NULL;
        struct err e = {0};

        if (!gguf_parse("m.gguf", p, n, n, &g, &e)) {
            accepted++;
            gguf_close(g);
        } else if (strncmp(e.msg, "m.gguf: byte ", 13) &&
                   strncmp(e.msg, "m.gguf: file ends at byte ", 26)) {
            odd++;
        }
    }
    CHECK_EQ(accepted, 0);
    CHECK_EQ(odd, 0);
}

static void test_truncated(void)
{
    struct gguf *g = NULL;
    struct err e = {0};
    size_t n, last;
    unsigned char *p = read_file("tests/golden/tiny/olmoe/model.gguf", &n);

    CHECK(!gguf_parse("m.gguf", p, n, n, &g, &e), "%s", e.msg);
    if (g) {
        const struct gguf_tensor *t = gguf_tensor_at(g, gguf_n_tensors(g) - 1);
        size_t front = gguf_tensor_at(g, 0)->file_offset;

        last = t->file_offset + t->bytes;
        gguf_close(g);
        refuse_beginnings(p, front + 2, 1);
        refuse_beginnings(p + 0, last, 997);
        g = NULL;
        CHECK(!gguf_parse("m.gguf", p, last, last, &g, &e), "without the last padding: %s", e.msg);
        gguf_close(g);
        /* all of the front part, of a file whose size says that the data is there */
        g = NULL;
        CHECK(!gguf_parse("m.gguf", p, front, n, &g, &e), "front alone: %s", e.msg);
        gguf_close(g);
        CHECK(gguf_parse("m.gguf", p, front - 200, n, &g, &e) < 0);
        CHECK(strstr(e.msg, "the bytes given end at"), "%s", e.msg);
    }
    free(p);
}

static void test_flipped(void)
{
    static const unsigned char to[] = {0, 1, 0x7F, 0x80, 0xFF};
    size_t n, m;
    unsigned char *p = read_file(GOLDEN "/valid.gguf", &n), *q = malloc(n);

    m = n < 400 ? n : 400;
    for (size_t i = 0; q && i < m; i++)
        for (size_t k = 0; k < sizeof to; k++) {
            struct gguf *g = NULL;
            struct err e = {0};

            memcpy(q, p, n);
            q[i] = to[k];
            if (gguf_parse("m.gguf", q, n, n, &g, &e))
                CHECK(e.msg[0] && !g);
            else
                for (size_t t = 0; t < gguf_n_tensors(g); t++)
                    CHECK(gguf_tensor_at(g, t)->file_offset + gguf_tensor_at(g, t)->bytes <= n);
            gguf_close(g);
        }
    free(q);
    free(p);
}

/* --- files -------------------------------------------------------------------------------------
 */

static char dir[] = "/tmp/gguf_test_XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[2][400];
    static int i;

    i = !i;
    snprintf(path[i], sizeof path[i], "%s/%s", dir, name);
    return path[i];
}

static void open_refused(const char *path, const char *line_end)
{
    struct gguf *g = NULL;
    struct err e = {0};

    CHECK(gguf_open(path, &g, &e) < 0 && !g, "%s: accepted", path);
    CHECK(strstr(e.msg, line_end), "'%s' wanted '%s'", e.msg, line_end);
    CHECK(!strncmp(e.msg, dir, strlen(dir)) || !strncmp(e.msg, "...", 3), "%s", e.msg);
    gguf_close(g);
}

static void test_no_file(void)
{
    char longer[3000];

    open_refused(dir, ": is a directory (name a GGUF file in it)");
    open_refused(in_dir("nothing.gguf"), "/nothing.gguf: cannot open: No such file or directory");
    CHECK(!mkfifo(in_dir("fifo"), 0600));
    open_refused(in_dir("fifo"), "/fifo: is not a regular file");
    unlink(in_dir("fifo"));
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    open_refused(longer, ": cannot open: ");
}

struct shard {
    int no, count, total; /* < 0: key left out */
    const char *tensor[3];
};

static void write_shard(const char *name, struct shard s)
{
    struct build w;

    build_begin(&w, 3);
    if (s.no == 0)
        build_string(&w, "general.architecture", "olmoe");
    if (s.no >= 0)
        build_u16(&w, "split.no", (uint16_t)s.no);
    if (s.count >= 0)
        build_u16(&w, "split.count", (uint16_t)s.count);
    if (s.total >= 0)
        build_i32(&w, "split.tensors.count", s.total);
    for (int i = 0; i < 3 && s.tensor[i]; i++)
        build_tensor(&w, s.tensor[i], 0, 2, mat, 768);
    build_end(&w);
    build_write(&w, in_dir(name));
    build_free(&w);
}

#define S1 "m-00001-of-00003.gguf"
#define S2 "m-00002-of-00003.gguf"
#define S3 "m-00003-of-00003.gguf"

/* Three good shards: none, two and one tensor. */
static void write_split(void)
{
    write_shard(S1, (struct shard){0, 3, 3, {NULL}});
    write_shard(S2, (struct shard){1, 3, 3, {"a", "b"}});
    write_shard(S3, (struct shard){2, 3, 3, {"c"}});
}

static void test_split(void)
{
    static const char *const names[] = {S1, S2, S3};
    struct gguf *g;
    struct err e;
    struct gguf_str s;

    write_split();
    for (int i = 0; i < 3; i++) { /* any name opens all */
        e = (struct err){0};
        g = NULL;
        CHECK(!gguf_open(in_dir(names[i]), &g, &e), "%s", e.msg);
        if (!g)
            return;
        CHECK_EQ(gguf_n_shards(g), 3);
        CHECK_EQ(gguf_n_tensors(g), 3);
        CHECK(!gguf_string(g, "general.architecture", &s) && !strcmp(s.s, "olmoe"));
        CHECK_EQ(gguf_tensor(g, "b")->shard, 1);
        CHECK_EQ(gguf_tensor(g, "c")->shard, 2);
        CHECK_EQ(gguf_tensor(g, "c")->bytes, 768);
        for (size_t k = 0; k < 3; k++) {
            CHECK_STR(gguf_shard_path(g, k), in_dir(names[k]));
            CHECK(fcntl(gguf_shard_fd(g, k), F_GETFD) == FD_CLOEXEC);
            CHECK(!(fcntl(gguf_shard_fd(g, k), F_GETFL) & O_NONBLOCK));
        }
        CHECK(gguf_tensor(g, "b")->file_offset + 768 == gguf_shard_bytes(g, 1));
        gguf_close(g);
    }
    unlink(in_dir(S2));
    open_refused(in_dir(S3), S2 ": missing: it is part 2 of 3 of this model");
    write_shard(S2, (struct shard){2, 3, 3, {"a", "b"}});
    open_refused(in_dir(S1),
                 S2 ": byte 44: split.no 2, but the file's name says 2 (split.no counts from 0)");
    open_refused(in_dir(S2), S2 ": byte 44: split.no 2, but");
    write_shard(S2, (struct shard){1, 4, 3, {"a", "b"}});
    open_refused(in_dir(S1), S2 ": byte 69: split.count 4, but the file's name says 3");
    write_shard(S2, (struct shard){3, 3, 3, {"a", "b"}});
    open_refused(in_dir(S1), S2 ": byte 44: split.no 3 (below split.count, 3)");
    write_shard(S2, (struct shard){1, -1, 3, {"a", "b"}});
    open_refused(in_dir(S1), S2 ": no split.count in it, but the name says part 2 of 3");
    write_shard(S2, (struct shard){1, 3, 3, {"a", "c"}});
    open_refused(in_dir(S1),
                 S3 ": byte 106: tensor 0 'c': name is there twice (also in part 2 of the model)");
    write_shard(S2, (struct shard){1, 3, 3, {"a"}});
    open_refused(in_dir(S2), ": split.tensors.count 3, but the 3 files hold 2 tensors");
    write_shard(S2, (struct shard){1, 3, -1, {"a", "b"}});
    e = (struct err){0};
    CHECK(!gguf_open(in_dir(S1), &g, &e), "a later shard without split.tensors.count: %s", e.msg);
    gguf_close(g);
    write_split();
    CHECK(!truncate(in_dir(S3), 500));
    open_refused(in_dir(S1), S3 ": file ends at byte 500, tensor 'c' needs byte ");

    write_split();
    CHECK(!rename(in_dir(S1), in_dir("renamed.gguf")));
    open_refused(in_dir("renamed.gguf"), "the file is not named NAME-00001-of-00003.gguf");
    open_refused(in_dir(S2), S1 ": missing: it is part 1 of 3");
    CHECK(!rename(in_dir("renamed.gguf"), in_dir("m-00004-of-00003.gguf")));
    open_refused(in_dir("m-00004-of-00003.gguf"), "part 4 of 3: there is no such part");
    unlink(in_dir("m-00004-of-00003.gguf"));
    write_shard("one-00001-of-00001.gguf", (struct shard){0, 1, 1, {"a"}});
    e = (struct err){0};
    CHECK(!gguf_open(in_dir("one-00001-of-00001.gguf"), &g, &e), "%s", e.msg);
    gguf_close(g);
    write_shard("one.gguf", (struct shard){0, 0, -1, {"a"}});
    e = (struct err){0};
    CHECK(!gguf_open(in_dir("one.gguf"), &g, &e), "%s", e.msg);
    gguf_close(g);
}

static void remove_dir(void)
{
    DIR *d = opendir(dir);
    struct dirent *f;

    while (d && (f = readdir(d)))
        if (f->d_name[0] != '.')
            unlink(in_dir(f->d_name));
    if (d)
        closedir(d);
    CHECK(!rmdir(dir), "%s: %s", dir, strerror(errno));
}

int main(void)
{
    CHECK(mkdtemp(dir), "%s: %s", dir, strerror(errno));
    test_golden();
    test_header();
    test_keys();
    test_infos();
    test_values();
    test_show();
    test_truncated();
    test_flipped();
    test_no_file();
    test_split();
    remove_dir();
    return test_end();
}
