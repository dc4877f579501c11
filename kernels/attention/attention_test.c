/* Rules 29 and 35: check values, an independent computation in doubles, forms and groupings
 * against single queries of the reference. */
#include "kernels/attention/attention.h"
#include "kernels/cpu.h"
#include "kernels/func/nasty.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>

enum { KEYS = 700, HD = 80, WIDTH = HD + 5, QUERIES = 9 };

static float k32[KEYS * WIDTH], v32[KEYS * WIDTH];
static char k[KEYS * WIDTH * 4], v[KEYS * WIDTH * 4];
static float q[QUERIES][HD], out[QUERIES][HD + 8], want[QUERIES][HD + 8];
static uint32_t list[KEYS];
static _Alignas(64) char scratch[1 << 16];

static void check_values(void) /* section F */
{
    static const uint32_t bits[2][3] = {{0xbb640ceb, 0xbc25d880, 0x3d1f3b13},
                                        {0xbc17752d, 0xbafd4110, 0x3c829e47}};
    static float kk[300 * 64], vv[300 * 64];
    float w[64], o[64];

    for (int i = 0; i < 64; i++)
        w[i] = (float)((13 * i % 31) - 15) * 0.3f;
    for (int j = 0; j < 300; j++)
        for (int i = 0; i < 64; i++) {
            kk[64 * j + i] = (float)((7 * i + 11 * j) % 29 - 14) / 16;
            vv[64 * j + i] = (float)((5 * i + 3 * j) % 23 - 11) / 8;
        }
    CHECK(attention_scratch(64) <= sizeof scratch);
    for (int t = 0; t < 2; t++) {
        struct attention_keys a = {KV_F32, kk, vv, 256, 256, NULL, 64, 64, 0.125f};
        struct attention_query one = {w, o, t ? 300 : 256};

        attention_group_ref(&a, &one, 1, scratch);
        CHECK(f32_bits(o[0]) == bits[t][0] && f32_bits(o[1]) == bits[t][1] &&
                  f32_bits(o[63]) == bits[t][2],
              "%zu keys: %08x %08x %08x", one.n, f32_bits(o[0]), f32_bits(o[1]), f32_bits(o[63]));
        memset(o, 0, sizeof o);
        attention(KV_F32, w, kk, vv, 256, 256, one.n, 64, 64, 0.125f, o, scratch);
        CHECK(f32_bits(o[0]) == bits[t][0] && f32_bits(o[63]) == bits[t][2]);
    }
}

static void fill(struct nasty *r, int kind, enum kv_type type)
{
    size_t row = kv_bytes(type, WIDTH);

    nasty_fill(r, kind, k32, KEYS * WIDTH);
    nasty_fill(r, kind, v32, KEYS * WIDTH);
    for (size_t j = 0; j < KEYS; j++) {
        kv_store(type, k32 + j * WIDTH, WIDTH, k + j * row);
        kv_store(type, v32 + j * WIDTH, WIDTH, v + j * row);
        list[j] = nasty_u32(r) % KEYS;
    }
    for (int i = 0; i < QUERIES; i++)
        nasty_fill(r, kind == 2 ? 0 : kind, q[i], HD);
}

/* the definition as mathematics: one softmax over all keys */
static void in_doubles(const struct attention_keys *a, const struct attention_query *one, double *o)
{
    static float row[WIDTH];
    static double s[KEYS];
    double top = -INFINITY, sum = 0;

    memset(o, 0, a->dv * sizeof *o);
    for (size_t j = 0; j < one->n; j++) {
        kv_load(a->type, (const char *)a->k + (a->list ? a->list[j] : j) * a->k_stride, a->hd, row);
        s[j] = 0;
        for (size_t i = 0; i < a->hd; i++)
            s[j] += (double)one->q[i] * row[i];
        s[j] *= a->scale;
        top = s[j] > top ? s[j] : top;
    }
    for (size_t j = 0; j < one->n; j++) {
        double p = exp(s[j] - top);

        kv_load(a->type, (const char *)a->v + (a->list ? a->list[j] : j) * a->v_stride, a->dv, row);
        sum += p;
        for (size_t i = 0; i < a->dv; i++)
            o[i] += p * row[i];
    }
    for (size_t i = 0; i < a->dv; i++)
        o[i] /= sum;
}

static void meaning(enum kv_type type)
{
    struct nasty r = {10};
    double o[HD];

    fill(&r, 0, type);
    for (int t = 0; t < 40; t++) {
        size_t row = kv_bytes(type, WIDTH);
        struct attention_keys a = {type, k, v, row, row, t % 2 ? list : NULL, 64, HD, 0.01f};
        struct attention_query one = {q[0], out[0], 1 + nasty_u32(&r) % KEYS};

        attention_group_ref(&a, &one, 1, scratch);
        in_doubles(&a, &one, o);
        for (size_t i = 0; i < HD; i++)
            CHECK(fabs(out[0][i] - o[i]) < 1e-5, "type %d, %zu keys, channel %zu", type, one.n, i);
    }
}

static void (*const run[])(const struct attention_keys *, const struct attention_query *, size_t,
                           void *) = {attention_group, attention_group_ref, attention_group_avx2,
                                      attention_group_avx512};
static const enum cpu_level level[] = {CPU_GENERIC, CPU_GENERIC, CPU_AVX2, CPU_AVX512};

/* one group of random shape: all forms give what single queries of the reference give */
static void group(struct nasty *r, int kind, enum kv_type type)
{
    size_t hd = 1 + nasty_u32(r) % HD, dv = 1 + nasty_u32(r) % HD, row = kv_bytes(type, WIDTH);
    size_t n_queries = 1 + nasty_u32(r) % QUERIES, base = 1 + nasty_u32(r) % (KEYS - 20);
    size_t heads = 1 + nasty_u32(r) % 4;
    struct attention_query query[QUERIES];
    struct attention_keys a = {type, k, v, row, row, NULL, hd, dv, 0.3f};

    if (nasty_u32(r) % 2)
        hd = a.hd = 64, dv = a.dv = 64;
    if (nasty_u32(r) % 3 == 0)
        a.list = list;
    for (size_t i = 0; i < n_queries; i++) {
        size_t n = base + i / heads; /* heads of neighbouring tokens */

        if (nasty_u32(r) % 16 == 0)
            n = 1 + nasty_u32(r) % KEYS;
        query[i] = (struct attention_query){q[i], want[i], n};
        attention_group_ref(&a, &query[i], 1, scratch);
    }
    CHECK(attention_group_scratch(n_queries, dv) <= sizeof scratch);
    for (int form = 0; form < 4; form++) {
        if (level[form] > cpu_has())
            continue;
        memset(out, 0x55, sizeof out);
        for (size_t i = 0; i < n_queries; i++)
            query[i].out = out[i];
        run[form](&a, query, n_queries, scratch);
        for (size_t i = 0; i < n_queries; i++) {
            CHECK(!memcmp(out[i], want[i], dv * sizeof(float)),
                  "form %d, kind %d, type %d, hd %zu, dv %zu, query %zu of %zu, %zu keys", form,
                  kind, type, hd, dv, i, n_queries, query[i].n);
            CHECK(f32_bits(out[i][dv]) == 0x55555555, "written past the end");
        }
    }
}

/* Rows from a query's n on may hold anything: here NaN, in a group with a longer query. */
static void rows_behind(void)
{
    struct nasty r = {11};
    size_t row = kv_bytes(KV_F32, WIDTH);
    struct attention_keys a = {KV_F32, k, v, row, row, NULL, 64, 64, 0.1f};
    struct attention_query query[2] = {{q[0], out[0], 290}, {q[1], out[1], 300}};
    struct attention_query alone = {q[0], want[0], 290};

    fill(&r, 0, KV_F32);
    attention_group_ref(&a, &alone, 1, scratch);
    memset(k + 290 * row, 0xFF, 10 * row);
    memset(v + 290 * row, 0xFF, 10 * row);
    attention_group(&a, query, 2, scratch);
    CHECK(!memcmp(out[0], want[0], 64 * sizeof(float)));
    CHECK(f32_bits(out[1][0]) == F32_NAN_BITS);
}

static void stores(void)
{
    struct nasty r = {12};
    float x[40], y[40];
    char a[160], b[160];

    for (int type = 0; type < 3; type++)
        for (int kind = 0; kind < 4; kind++)
            for (size_t n = 0; n <= 40; n++) {
                nasty_fill(&r, kind, x, 40);
                memset(a, 0x55, sizeof a);
                memset(b, 0x55, sizeof b);
                kv_store_ref((enum kv_type)type, x, n, a);
                if (cpu_has() >= CPU_AVX2)
                    kv_store_avx2((enum kv_type)type, x, n, b);
                else
                    kv_store((enum kv_type)type, x, n, b);
                CHECK(!memcmp(a, b, sizeof a), "type %d, n %zu", type, n);
                kv_load((enum kv_type)type, a, n, y);
                kv_store((enum kv_type)type, y, n, b);
                CHECK(!memcmp(a, b, sizeof a), "type %d, n %zu: read back", type, n);
            }
    x[0] = 65520, x[1] = 0x1p-25f, x[2] = 0x1.8p-24f;
    kv_store(KV_F16, x, 3, a);
    kv_load(KV_F16, a, 3, y);
    CHECK(isinf(y[0]) && y[1] == 0 && y[2] == 0x1p-23f);
}

int main(void)
{
    struct nasty r = {13};
    const char *all = getenv("CONCLAVE_LONG");
    int rounds = all && *all && strcmp(all, "0") ? 1000 : 25;

    check_values();
    stores();
    for (int type = 0; type < 3; type++) {
        meaning((enum kv_type)type);
        for (int kind = 0; kind < 4; kind++)
            for (int i = 0; i < rounds; i++) {
                if (i % 25 == 0)
                    fill(&r, kind, (enum kv_type)type);
                group(&r, kind, (enum kv_type)type);
            }
    }
    rows_behind();
    if (cpu_has() < CPU_AVX2)
        SKIP("AVX2 form: not on this processor");
    if (cpu_has() < CPU_AVX512)
        SKIP("AVX-512 form: not on this processor");
    return test_end();
}
