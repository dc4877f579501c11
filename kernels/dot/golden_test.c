/* Golden rows (tests/golden/quants) and the check values of ARITHMETIC.md section F: values,
 * integer sums and products of every type, by the definition and by every form that this processor
 * runs. */
#include "kernels/cpu.h"
#include "kernels/dot/dot.h"
#include "kernels/dot/rows.h"
#include "kernels/matmul/matmul.h"
#include "kernels/num.h"
#include "kernels/quantise/quantise.h"
#include "tests/test.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>

enum { N = 512, K = 8, HEADER = 64 };

static uint8_t *read_file(const char *name, size_t *bytes)
{
    char command[128];
    FILE *f;
    uint8_t *data = malloc(1 << 20);
    int status;

    snprintf(command, sizeof command, "xz -dc tests/golden/quants/%s.bin.xz", name);
    for (char *c = command; *c; c++)
        *c = (char)tolower(*c);
    f = popen(command, "r");
    *bytes = f ? fread(data, 1, 1 << 20, f) : 0;
    status = f ? pclose(f) : -1;
    CHECK(!status, "%s: status %d (tests start in the repository's root)", command, status);
    if (status)
        exit(test_end());
    return data;
}

/* vector k of act.bin in the form of ggml's act_type, as our prepared vector */
static void load_vector(const uint8_t *file, uint32_t act_type, int k, void *out)
{
    const size_t x = HEADER, q80 = x + 4 * N * K, q80c = q80 + 34 * 16 * K,
                 q81 = q80c + 34 * 16 * K;
    const size_t q8k = q81 + 2 * 36 * 16 * K, f16 = q8k + 292 * 2 * K, bf16 = f16 + 2 * N * K;
    int a256 = act_type == 15;
    int8_t *q = out;
    float *f = out, *d = (float *)((char *)out + act_d_at(N));
    char *sums = (char *)out + act_sum_at(a256 ? ACT_A256 : ACT_A32, N);

    for (int i = 0; i < N; i++) {
        const uint8_t *b;

        if (act_type == W_F32)
            f[i] = load_f32(file + x + 4 * (size_t)(N * k + i));
        else if (act_type == W_F16)
            f[i] = f16_to_f32(load_u16(file + f16 + 2 * (size_t)(N * k + i)));
        else if (act_type == W_BF16)
            f[i] = bf16_to_f32(load_u16(file + bf16 + 2 * (size_t)(N * k + i)));
        if (act_type == W_F32 || act_type == W_F16 || act_type == W_BF16)
            continue;
        if (act_type == 15) {
            b = file + q8k + 292 * (size_t)(2 * k + i / 256);
            d[i / 256] = load_f32(b);
            q[i] = (int8_t)b[4 + i % 256];
        } else {
            size_t bytes = act_type == 9 ? 36 : 34;
            b = file + (act_type == 9 ? q81 : q80) + bytes * (size_t)(16 * k + i / 32);
            d[i / 32] = f16_to_f32(load_u16(b));
            q[i] = (int8_t)b[bytes - 32 + (size_t)i % 32];
        }
    }
    for (int i = 0; act_type == 15 && i < N / 16; i++) {
        int16_t s = 0;
        for (int j = 0; j < 16; j++)
            s = (int16_t)(s + q[16 * i + j]);
        memcpy(sums + 2 * i, &s, 2);
    }
    for (int i = 0; (act_type == 8 || act_type == 9) && i < N / 32; i++) {
        int32_t s = 0;
        for (int j = 0; j < 32; j++)
            s += q[32 * i + j];
        memcpy(sums + 4 * i, &s, 4);
    }
}

struct golden {
    const struct type_info *info;
    const struct dot_type *dot;
    uint32_t rows, act_type, seg, n_seg, has_s2;
    const uint8_t *w, *deq, *dot64, *mag, *s1, *s2;
    size_t row_bytes;
};

static double load_f64(const uint8_t *p)
{
    double d;
    memcpy(&d, p, 8);
    return d;
}

static int open_golden(uint32_t type, const uint8_t *file, size_t bytes, struct golden *g)
{
    size_t r = load_u32(file + 12), end;

    g->info = type_info(type);
    g->dot = dot_type(type);
    g->rows = (uint32_t)r;
    g->act_type = load_u32(file + 28);
    g->seg = load_u32(file + 36);
    g->n_seg = load_u32(file + 40);
    g->has_s2 = load_u32(file + 44);
    g->row_bytes = N / g->info->block_values * g->info->block_bytes;
    g->w = file + HEADER;
    g->deq = g->w + r * g->row_bytes;
    g->dot64 = g->deq + 4 * r * N + 2 * 4 * r * K;
    g->mag = g->dot64 + 8 * r * K;
    g->s1 = g->mag + 8 * r * K;
    g->s2 = g->s1 + 4 * r * K * g->n_seg;
    end = (size_t)(g->s2 - file) + (g->has_s2 ? 4 * r * K * g->n_seg : 0);
    return !memcmp(file, "CQGW", 4) && load_u32(file + 8) == type && load_u32(file + 16) == N &&
           end == bytes;
}

/* all integer sums of row r and vector k; also returns sum |S1| */
static double check_sums(const struct golden *g, size_t r, size_t k, const int8_t *q)
{
    size_t bad = 0;
    double total = 0;
    struct unit x;

    for (size_t u = 0; u < g->n_seg; u++) {
        int32_t s = 0, t = 0;

        g->dot->unit(g->w + r * g->row_bytes, u, &x);
        for (size_t i = 0; i < g->seg; i++) {
            s += x.w[i] * q[u * g->seg + i];
            if (g->has_s2)
                t += x.mn[i] * q[u * g->seg + i];
        }
        total += abs(s);
        bad += (uint32_t)s != load_u32(g->s1 + 4 * ((r * K + k) * g->n_seg + u));
        if (g->has_s2)
            bad += (uint32_t)t != load_u32(g->s2 + 4 * ((r * K + k) * g->n_seg + u));
    }
    CHECK(!bad, "%s row %zu, vector %zu: %zu integer sums differ", g->info->name, r, k, bad);
    return total;
}

static void check_products(const struct golden *g, const uint8_t *act_file)
{
    size_t stride = act_stride(g->info->act, N);
    unsigned char *acts = aligned_alloc(64, K * stride);
    float *ref = malloc(4 * K * g->rows), *y = malloc(4 * K * g->rows);
    struct dot_job job = {g->w, g->row_bytes, N, g->rows, acts, stride, NULL, K, ref, g->rows, NULL};

    for (int k = 0; k < K; k++)
        load_vector(act_file, g->act_type, k, acts + (size_t)k * stride);
    dot_reference(g->dot, &job);
    for (size_t k = 0; k < K; k++)
        for (size_t r = 0; r < g->rows; r++) {
            double want = load_f64(g->dot64 + 8 * (r * K + k));
            double mag = load_f64(g->mag + 8 * (r * K + k));
            double n = g->n_seg ? g->n_seg : 1, got = ref[k * g->rows + r];
            /* a subnormal product or factor is off by up to 2^-150, times S */
            double tiny = g->n_seg
                              ? check_sums(g, r, k, (const int8_t *)(acts + k * stride)) * 0x1p-149
                              : N * 0x1p-149;
            double bound = 2 * (n + 4) * 0x1p-24 * mag + tiny;

            CHECK(fabs(got - want) <= bound, "%s row %zu, vector %zu: %g, wanted %g +- %g",
                  g->info->name, r, k, got, want, bound);
        }
    job.y = y;
    for (enum cpu_level f = CPU_AVX2; f <= cpu_has(); f++) {
        dot_form *form = dot_form_at(g->dot, f);

        if (!form)
            continue;
        form(&job);
        CHECK(!memcmp(y, ref, 4 * K * g->rows), "%s, %s: golden rows", g->info->name,
              cpu_level_name(f));
    }
    free(y);
    free(ref);
    free(acts);
}

static void check_golden(uint32_t type, const uint8_t *act_file)
{
    size_t bytes, bad = 0;
    struct golden g;
    float v[N];
    uint8_t *file = read_file(type_info(type)->name, &bytes);

    if (!open_golden(type, file, bytes, &g)) {
        CHECK(0, "%s: not the golden file that its README describes", type_info(type)->name);
        free(file);
        return;
    }
    for (size_t r = 0; r < g.rows; r++) {
        dequant_row(type, g.w + r * g.row_bytes, N, v);
        for (size_t i = 0; i < N; i++)
            bad += v[i] != load_f32(g.deq + 4 * (r * N + i));
    }
    CHECK(!bad, "%s: %zu dequantised values differ", g.info->name, bad);
    check_products(&g, act_file);
    free(file);
}

/* section F: S_0, T_0, result */
static const struct {
    uint32_t type;
    int s0, t0;
    uint32_t bits;
} section_f[] = {
    {W_Q4_0, 544, 0, 0x3dba3422},       {W_Q4_1, -1898, -36, 0xbcc54efe},
    {W_Q5_0, -5113, 0, 0xbd4ca71b},     {W_Q5_1, 1103, -36, 0x3efbe148},
    {W_Q8_0, -28864, 0, 0xbf996116},    {W_IQ4_NL, 9199, 0, 0x3fcd3554},
    {W_MXFP4, 1147, 0, 0x3f7a5528},     {W_NVFP4, 322, 0, 0xc097f980},
    {W_Q2_K, -13829, -341, 0xbf06416f}, {W_Q3_K, -15995, 0, 0xbf4cd6cd},
    {W_Q4_K, 79177, -5131, 0x3e72aa67}, {W_Q5_K, 332745, -5131, 0x41a3ad1c},
    {W_Q6_K, 113654, 0, 0xc20ed896},    {W_IQ1_S, 41707, 0, 0x3eb5fcca},
    {W_IQ1_M, 35619, 0, 0x3e9f9ede},    {W_IQ2_XXS, -667937, 0, 0xc00d9998},
    {W_IQ2_XS, 484464, 0, 0x3fb1dbe6},  {W_IQ2_S, 262533, 0, 0xbf4db559},
    {W_IQ3_XXS, 126518, 0, 0xc089b128}, {W_IQ3_S, 229083, 0, 0x40b6f5a2},
    {W_IQ4_XS, 114974, 0, 0xc0e9bc65},
};

static void section_f_row(uint32_t type, uint8_t *row)
{
    const struct type_info *t = type_info(type);
    size_t blocks = N / t->block_values;

    for (size_t i = 0; i < blocks * t->block_bytes; i++)
        row[i] = (uint8_t)(7 * i + 3);
    for (size_t u = 0; u < blocks; u++) {
        unsigned k = u % 4;
        uint16_t bits = (uint16_t)(0x1234 + 0x100 * k);

        if (type == W_MXFP4)
            bits = (uint16_t)(120 + k);
        else if (type == W_NVFP4)
            bits = (uint16_t)(40 + 8 * k);
        block_set_scale(type, row + u * t->block_bytes, bits, 0x1678);
    }
}

static void check_section_f(size_t which)
{
    uint32_t type = section_f[which].type;
    const struct dot_type *t = dot_type(type);
    uint8_t row[N * 2];
    float x[N];
    _Alignas(64) unsigned char act[4 * N];
    struct unit first;
    int s = 0, m = 0;

    for (int i = 0; i < N; i++)
        x[i] = (float)((37 * i) % 101 - 50) / 16;
    act_prepare(type_info(type)->act, x, N, act);
    section_f_row(type, row);
    t->unit(row, 0, &first);
    for (size_t i = 0; i < t->unit_values; i++) {
        s += first.w[i] * (int8_t)act[i];
        m += t->m_sign ? first.mn[i] * (int8_t)act[i] : 0;
    }
    CHECK(s == section_f[which].s0 && m == section_f[which].t0, "%s: S_0 %d, T_0 %d",
          type_info(type)->name, s, m);
    CHECK(f32_bits(dot_row(t, row, N, act)) == section_f[which].bits, "%s: %08x",
          type_info(type)->name, f32_bits(dot_row(t, row, N, act)));
}

static void check_float_row(void)
{
    float w[64], x[64], y;

    for (int i = 0; i < 64; i++) {
        w[i] = (float)(13 * i % 31 - 15) * 0.3f;
        x[i] = (float)(11 * i % 29 - 14) * 0.3f;
    }
    CHECK_EQ(f32_bits(dot_row(dot_type(W_F32), (const uint8_t *)w, 64, x)), 0x4229eb86);
    matmul(W_F32, w, sizeof w, 64, 0, 1, x, 256, NULL, 1, &y, 1);
    CHECK_EQ(f32_bits(y), 0x4229eb86);
}

int main(void)
{
    size_t bytes;
    uint8_t *act_file = read_file("act", &bytes);

    cpu_float_state();
    CHECK_EQ(bytes, 55424);
    for (uint32_t type = 0; type < 64; type++)
        if (dot_type(type))
            check_golden(type, act_file);
    for (size_t i = 0; i < sizeof section_f / sizeof *section_f; i++)
        if (dot_type(section_f[i].type))
            check_section_f(i);
    check_float_row();
    free(act_file);
    return test_end();
}
