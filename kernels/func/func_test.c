/* Rules 17 to 20 and 23: check values, forms against each other, error bounds.
 * CONCLAVE_LONG=1: the forms on every one of the 2^32 floats, the errors on every 31st (10
 * minutes). */
#include "kernels/cpu.h"
#include "kernels/func/func.h"
#include "kernels/func/hostmath.h"
#include "kernels/func/nasty.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>

typedef float scalar_fn(float);
typedef void vec_fn(const float *, float *, size_t);

static const struct {
    const char *name;
    scalar_fn *scalar;
    vec_fn *ref, *avx2, *avx512; /* avx512: NULL, there is none */
} fn[] = {
    {"exp", f_exp, vec_exp_ref, vec_exp_avx2, vec_exp_avx512},
    {"sigmoid", f_sigmoid, vec_sigmoid_ref, vec_sigmoid_avx2, NULL},
    {"silu", f_silu, vec_silu_ref, vec_silu_avx2, NULL},
    {"softplus", f_softplus, vec_softplus_ref, vec_softplus_avx2, NULL},
    {"tanh", f_tanh, vec_tanh_ref, vec_tanh_avx2, NULL},
};
enum { EXP, SIGMOID, SILU, SOFTPLUS, TANH, FUNCTIONS };

static void check_values(void) /* ARITHMETIC.md section F */
{
    static const struct {
        float x;
        uint32_t want[FUNCTIONS];
    } row[] = {
        {1, {0x402df854, 0x3f3b26a8, 0x3f3b26a8, 0x3fa818f6, 0x3f42f7d6}},
        {-1, {0x3ebc5ab2, 0x3e89b2b1, 0xbe89b2b1, 0x3ea063d6, 0xbf42f7d6}},
        {0.1f, {0x3f8d763e, 0x3f066509, 0x3d57080f, 0x3f3e90c8, 0x3dcc1ebc}},
        {-0.3f, {0x3f3da643, 0x3ed9e2ab, 0xbe02bb34, 0x3f0dea3a, 0xbe9526ee}},
        {-10, {0x383e6bce, 0x383e6997, 0xb9ee03fe, 0x383e6ab3, 0xbf800000}},
        {88.5f, {0x7f4cdcc4, 0x3f800000, 0x42b10000, 0x42b10000, 0x3f800000}},
        {-103.5f, {0x00000001, 0x00000001, 0x80000068, 0x00000001, 0xbf800000}},
    };

    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int f = 0; f < FUNCTIONS; f++) {
            uint32_t got = f32_bits(fn[f].scalar(row[i].x));
            CHECK(got == row[i].want[f], "%s(%g) is %08x, wanted %08x", fn[f].name, row[i].x, got,
                  row[i].want[f]);
        }
    CHECK(f_exp(0.0f) == 1.0f && f_exp(-0.0f) == 1.0f);
    CHECK(f32_bits(f_exp(-104.5f)) == 0 && isinf(f_exp(89.5f)) && isinf(f_exp(INFINITY)));
    CHECK(f32_bits(f_silu(-INFINITY)) == F32_NAN_BITS);
    CHECK(f32_bits(f_tanh(-0.0f)) == 0 && f_tanh(0.0f) == 0); /* fma(x*z, p, x): +0 + -0 */
    CHECK(f32_bits(f_clamp(f32_from_bits(0xFFC00001), -1, 1)) == F32_NAN_BITS);
    CHECK(f_clamp(-INFINITY, -2, 1) == -2 && f_clamp(3, -2, 1) == 1 &&
          f_clamp(0.5f, -2, 1) == 0.5f);
    CHECK(f32_bits(f_relu(-0.0f)) == 0x80000000 && f_relu(-1) == 0 && isnan(f_relu(NAN)));
}

/* Section F, rule 39: constants are made in double and rounded once. */
static void check_constants(void)
{
    static const struct {
        int n;
        uint32_t bits;
    } want[] = {{32, 0x3e3504f3},  {64, 0x3e000000},  {80, 0x3de4f92e},  {96, 0x3dd105ec}, {128, 0x3db504f3},
                {192, 0x3d93cd3a}, {256, 0x3d800000}, {512, 0x3d3504f3}, {2560, 0x3ca1e89b}};

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        float f = (float)(1.0 / sqrt((double)want[i].n));
        CHECK(f32_bits(f) == want[i].bits, "1/sqrt(%d) is %08x", want[i].n, f32_bits(f));
    }
    CHECK(f32_bits((float)1e-6) == 0x358637bd && f32_bits((float)1e-5) == 0x3727c5ac, "epsilons");
}

static void host_math(void) /* section F, rule 23 */
{
    double s, c;

    CHECK(h_ln(1e6) == 0x1.ba18a998fffap+3, "%a", h_ln(1e6));
    CHECK(h_exp(-1) == 0x1.78b56362cef38p-2, "%a", h_exp(-1));
    h_sincos(1, &s, &c);
    CHECK(s == 0x1.aed548f090ceep-1, "%a", s);
    CHECK(h_exp(-(2.0 / 128 * h_ln(1e6))) == 0x1.9c9758e458666p-1, "inverse frequency");
    check_constants();
    for (int i = 0; i < 20000; i++) { /* as f32 the libm's */
        double x = i * 52.428 + i * 0x1p-20;

        h_sincos(x, &s, &c);
        CHECK(fabs(s - sin(x)) < 2e-15 && fabs(c - cos(x)) < 2e-15, "angle %a", x);
        CHECK(fabs(h_exp(-x * 6e-4) / exp(-x * 6e-4) - 1) < 1e-15, "exp(%a)", -x * 6e-4);
        CHECK(fabs(h_ln(x + 1e-3) - log(x + 1e-3)) < 1e-14, "ln(%a)", x + 1e-3);
    }
}

static long double exact(int f, long double x)
{
    switch (f) {
    case EXP:
        return expl(x);
    case SIGMOID:
        return x >= 0 ? 1 / (1 + expl(-x)) : expl(x) / (1 + expl(x));
    case SILU:
        return x >= 0 ? x / (1 + expl(-x)) : x * (expl(x) / (1 + expl(x)));
    case SOFTPLUS:
        return (x > 0 ? x : 0) + log1pl(expl(-fabsl(x)));
    default:
        return tanhl(x);
    }
}

/* the spacing of f32 at v: subnormals have that of the smallest normal */
static long double ulp(long double v)
{
    int e;

    v = fabsl(v);
    if (v < 0x1p-126L)
        return 0x1p-149L;
    frexpl(v, &e);
    return ldexpl(1, e - 24);
}

/* Below -87 silu's error is |x| * 2^-149 and more: exp may be 0.79 of 2^-149 away, and the product
 * with x rounds once more. 340 floats from -87.66 on exceed it, at most by a factor of 1.1335 (all
 * of them tried; the definition itself, in exact arithmetic). */
static const double bound[FUNCTIONS] = {1, 2.5, 3.5, 2, 2}; /* section G, ulp */

/* the error of got = f(x) in parts of what section G allows */
static double error_of(int f, float x, float got)
{
    long double want = exact(f, x), diff = fabsl((long double)got - want);

    if (want > 0x1.ffffffp+127L) /* rounds to infinity: exp alone */
        return isinf(got) ? 0 : 2;
    if (f == SIGMOID && x <= -87)
        return (double)(diff / 0x1p-149L);
    if (f == SILU && x <= -87)
        return (double)(diff / (1.14L * fabsl(x) * 0x1p-149L));
    return (double)(diff / ulp(want) / bound[f]);
}

/* x of some bits: forms agree, and the error where the function has one to measure */
static void sweep(uint32_t start, uint32_t step, int errors)
{
    enum { BATCH = 4096 };
    static float x[BATCH], ref[BATCH], fast[BATCH];
    double worst[FUNCTIONS] = {0};
    uint64_t bits = start;
    int has_avx2 = cpu_has() >= CPU_AVX2, has_avx512 = cpu_has() >= CPU_AVX512;

    while (bits < (uint64_t)1 << 32) {
        size_t n = 0;

        for (; n < BATCH && bits < (uint64_t)1 << 32; bits += step)
            x[n++] = f32_from_bits((uint32_t)bits);
        for (int f = 0; f < FUNCTIONS; f++) {
            fn[f].ref(x, ref, n);
            if (has_avx2) {
                fn[f].avx2(x, fast, n);
                CHECK(!memcmp(ref, fast, n * sizeof *ref), "%s near %a", fn[f].name, x[0]);
            }
            if (has_avx512 && fn[f].avx512) {
                fn[f].avx512(x, fast, n);
                CHECK(!memcmp(ref, fast, n * sizeof *ref), "%s, AVX-512, near %a", fn[f].name,
                      x[0]);
            }
            for (size_t i = 0; errors && i < n; i++)
                if (fabsf(x[i]) < 105) {
                    double e = error_of(f, x[i], ref[i]);
                    worst[f] = e > worst[f] ? e : worst[f];
                }
        }
    }
    for (int f = 0; errors && f < FUNCTIONS; f++)
        CHECK(worst[f] <= 1, "%s: %.3f of the allowed error", fn[f].name, worst[f]);
}

static void forms(void) /* lengths, tails, nothing written past the end */
{
    struct nasty r = {1};
    float g[304], u[304], ref[304], fast[304];

    if (cpu_has() < CPU_AVX2) {
        SKIP("AVX2 forms: not on this processor");
        return;
    }
    for (int kind = 0; kind < 4; kind++)
        for (size_t n = 0; n <= 300; n++) {
            nasty_fill(&r, kind, g, n);
            nasty_fill(&r, kind, u, n);
            for (int f = 0; f < FUNCTIONS; f++) {
                memset(ref, 0x55, sizeof ref);
                memset(fast, 0x55, sizeof fast);
                fn[f].ref(g, ref, n);
                fn[f].avx2(g, fast, n);
                CHECK(!memcmp(ref, fast, sizeof ref), "%s, n %zu, kind %d", fn[f].name, n, kind);
                if (!fn[f].avx512 || cpu_has() < CPU_AVX512)
                    continue;
                memset(fast, 0x55, sizeof fast);
                fn[f].avx512(g, fast, n);
                CHECK(!memcmp(ref, fast, sizeof ref), "%s, AVX-512, n %zu", fn[f].name, n);
            }
            for (int i = 0; i < 3; i++) {
                float limit = i == 0 ? 0.0f : i == 1 ? 7.0f : 0.75f;

                memset(ref, 0x55, sizeof ref);
                memset(fast, 0x55, sizeof fast);
                clamp_swiglu_ref(g, u, limit, ref, n);
                clamp_swiglu_avx2(g, u, limit, fast, n);
                CHECK(!memcmp(ref, fast, sizeof ref), "swiglu, n %zu, kind %d", n, kind);
            }
        }
    g[0] = 2, u[0] = -3;
    silu_mul(g, u, ref, 1);
    CHECK(f32_bits(ref[0]) == f32_bits(f_silu(2.0f) * -3.0f));
    clamp_swiglu(g, u, 1.0f, ref, 1);
    CHECK(f32_bits(ref[0]) == f32_bits(f_silu(1.0f) * -1.0f));
}

int main(void)
{
    const char *all = getenv("CONCLAVE_LONG");

    check_values();
    host_math();
    forms();
    sweep(1021, 4096, 1);
    if (all && *all && strcmp(all, "0")) {
        sweep(0, 1, 0);
        sweep(3, 31, 1);
    }
    return test_end();
}
