/* Rule 33: check values, what the mixing matrix must be, forms against each other. */
#include "kernels/cpu.h"
#include "kernels/func/func.h"
#include "kernels/func/nasty.h"
#include "kernels/hyper/hyper.h"
#include "tests/test.h"

#include <math.h>

enum { D = 45, N = HYPER_STREAMS };

int main(void)
{
    static float X[N * D], Y[N * D], Z[N * D], C[N * N], y[D], x[D + 8], z[D + 8];
    float m[24], scale[3] = {0.5f, 2, 0.25f}, base[24], pre[N], post[N];
    struct nasty r = {32};

    for (int i = 0; i < 4; i++) /* section F */
        for (int j = 0; j < 4; j++)
            C[4 * i + j] = (float)((5 * i + 3 * j) % 7 - 3) * 0.3f;
    hyper_sinkhorn(C, 4, 1e-6f, 20);
    CHECK(f32_bits(C[0]) == 0x3ddfee72 && f32_bits(C[7]) == 0x3ddfee74 &&
              f32_bits(C[14]) == 0x3ddfee61,
          "%08x %08x %08x", f32_bits(C[0]), f32_bits(C[7]), f32_bits(C[14]));

    nasty_fill(&r, 0, m, 24);
    nasty_fill(&r, 0, base, 24);
    hyper_mix(m, scale, base, 4, 1e-6f, 20, pre, post, C);
    for (int s = 0; s < 4; s++) {
        float row = 0, column = 0;

        CHECK(f32_bits(pre[s]) == f32_bits(f_sigmoid(fmaf(m[s], 0.5f, base[s])) + 1e-6f));
        CHECK(f32_bits(post[s]) == f32_bits(2 * f_sigmoid(fmaf(m[4 + s], 2, base[4 + s]))));
        for (int i = 0; i < 4; i++)
            row += C[4 * s + i], column += C[4 * i + s];
        CHECK(fabsf(row - 1) < 0.05f && fabsf(column - 1) < 1e-4f, "sums %g, %g", row, column);
    }
    X[0] = 1, X[1] = 10, C[0] = 2, C[1] = 3, C[2] = 5, C[3] = 7; /* one element, two streams */
    y[0] = 100, post[0] = 1, post[1] = 2;
    hyper_expand(post, C, y, X, 2, 1);
    CHECK(X[0] == 100 + 2 * 1 + 5 * 10 && X[1] == 200 + 3 * 1 + 7 * 10); /* first index summed */

    if (cpu_has() < CPU_AVX2) {
        SKIP("AVX2 forms: not on this processor");
        return test_end();
    }
    for (int kind = 0; kind < 4; kind++)
        for (size_t n = 1; n <= N; n++)
            for (size_t d = 0; d <= D; d++) {
                nasty_fill(&r, kind, X, N * D);
                nasty_fill(&r, kind, C, N * N);
                nasty_fill(&r, kind, post, N);
                nasty_fill(&r, kind, y, D);
                memcpy(Y, X, sizeof X);
                memcpy(Z, X, sizeof X);
                hyper_expand_ref(post, C, y, Y, n, d);
                hyper_expand_avx2(post, C, y, Z, n, d);
                CHECK(!memcmp(Y, Z, sizeof Y), "expand, %zu x %zu, kind %d", n, d, kind);
                memset(x, 0x55, sizeof x);
                memset(z, 0x55, sizeof z);
                hyper_collapse_ref(post, X, n, d, x);
                hyper_collapse_avx2(post, X, n, d, z);
                CHECK(!memcmp(x, z, sizeof x), "collapse, %zu x %zu, kind %d", n, d, kind);
                hyper_mean_ref(X, n, d, x);
                hyper_mean_avx2(X, n, d, z);
                CHECK(!memcmp(x, z, sizeof x), "mean, %zu x %zu, kind %d", n, d, kind);
            }
    return test_end();
}
