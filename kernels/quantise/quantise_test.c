/* Rule 8: the AVX2 form against the definition, the properties that other kernels lean on, and the
 * check value of ARITHMETIC.md section F. */
#include "kernels/cpu.h"
#include "kernels/dot/rows.h"
#include "kernels/num.h"
#include "kernels/quantise/quantise.h"
#include "tests/test.h"
#include <math.h>

static void compare(const float *x, size_t n, const char *what)
{
    int8_t q[256], q2[256];
    int16_t sum[16], sum2[16];
    float d, d2;
    size_t bad = 0;

    memset(q2, 77, sizeof q2);
    quantise_unit(x, n, q, &d, sum);
    for (size_t i = 0; i < n; i += 16) {
        int s = 0;
        for (size_t j = i; j < i + 16; j++) {
            s += q[j];
            bad += q[j] == -128;
        }
        bad += s != sum[i / 16];
    }
    CHECK(!bad, "%s: q -128 or a wrong sum", what);
    if (cpu_has() < CPU_AVX2)
        return;
    quantise_unit_avx2(x, n, q2, &d2, sum2);
    CHECK(f32_bits(d) == f32_bits(d2) && !memcmp(q, q2, n) && !memcmp(sum, sum2, n / 16 * 2),
          "%s, n %zu: avx2 differs (d %a, %a)", what, n, d, d2);
}

static void random_units(void)
{
    static const uint32_t special[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0xFF800001, 0x80000000,
                                       1,          0x7F7FFFFF, 0x0D800000, 0x0D7FFFFF};
    struct rng g = {8};
    float x[256];

    for (int t = 0; t < 20000; t++) {
        size_t n = t & 1 ? 256 : 32;
        int exp = (int)(rng_u32(&g) % 253) - 126;

        for (size_t i = 0; i < n; i++)
            x[i] = t % 5 == 0   ? f32_from_bits(rng_u32(&g) & 0xFEFFFFFF) /* any finite exponent */
                   : t % 5 == 1 ? (float)((int)(rng_u32(&g) % 255) - 127) * 0.5f /* ties */
                                : ldexpf(rng_gauss(&g), exp);
        if (t % 7 == 0)
            x[rng_u32(&g) % n] = f32_from_bits(special[rng_u32(&g) % 9]);
        compare(x, n, "random unit");
    }
}

static void one_unit(float m, float d, int q0)
{
    float x[32] = {m}, got;
    int8_t q[32];
    int16_t sum[2];

    quantise_unit(x, 32, q, &got, sum);
    CHECK(f32_bits(got) == f32_bits(d) && q[0] == q0, "x %a: d %a q %d, wanted %a %d", m, got, q[0],
          d, q0);
}

static void prepared(void)
{
    static const int8_t first[] = {-127, -33, 61, -102, -8, 86, -76, 18};
    float x[512];
    _Alignas(64) unsigned char a[2048], b[2048];
    struct act v;
    int bad = 0;

    for (int i = 0; i < 512; i++)
        x[i] = (float)((37 * i) % 101 - 50) / 16;
    CHECK_EQ(act_stride(ACT_A256, 512), 512 + 64 + 64);
    CHECK_EQ(act_stride(ACT_A32, 512), 512 + 64 + 64);
    CHECK_EQ(act_stride(ACT_F32, 100), 448);
    act_prepare(ACT_A256, x, 512, a);
    v = act_parts(ACT_A256, a, 512);
    CHECK(!memcmp(v.q, first, 8), "A256 unit 0 of section F");
    CHECK_EQ(f32_bits(v.d[0]), 0x3cc99326);
    CHECK_EQ(((const int16_t *)v.sum)[0], -246);
    act_prepare(ACT_A32, x, 512, a);
    v = act_parts(ACT_A32, a, 512);
    for (int u = 0; u < 16; u++) {
        int8_t q[32];
        int16_t sum[2];
        float d;

        quantise_unit(x + 32 * u, 32, q, &d, sum);
        bad += memcmp(q, v.q + 32 * u, 32) || d != v.d[u] ||
               ((const int32_t *)v.sum)[u] != sum[0] + sum[1];
    }
    CHECK(!bad, "%d A32 units differ from the definition", bad);
    act_prepare(ACT_F32, x, 512, b);
    CHECK(!memcmp(b, x, sizeof x), "ACT_F32 is a copy");
}

int main(void)
{
    cpu_float_state();
    one_unit(0x1p-100f, 0x1p-100f / 127, 127);
    one_unit(0x1.fffffep-101f, 0, 0);
    one_unit(-0x1.fffffep127f, 0x1.fffffep127f / 127, -127);
    one_unit(INFINITY, f32_from_bits(F32_NAN_BITS), 0);
    one_unit(-NAN, f32_from_bits(F32_NAN_BITS), 0);
    one_unit(-0.0f, 0, 0);
    random_units();
    prepared();
    return test_end();
}
