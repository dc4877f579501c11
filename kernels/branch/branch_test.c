/* The branches' gates: by hand, edges of the gate, forms against each other. */
#include "kernels/branch/branch.h"
#include "kernels/cpu.h"
#include "kernels/func/func.h"
#include "kernels/func/nasty.h"
#include "tests/test.h"

#include <math.h>

enum { D = 45, N = 5 };

static void by_hand(void)
{
    float g[4] = {1, 0.5f, 2, 4}, x[4] = {3, 8, 5, 0.25f}, m[2], u[2];
    float k[2] = {3, 4}, q[2] = {2, -1}, v[2] = {10, -0.0f};

    branch_mean(g, x, 2, 2, m);
    CHECK(m[0] == (3 + 10) / 2.0f && m[1] == (4 + 1) / 2.0f);
    branch_gate(k, q, v, 0.5f, 1, 2, u); /* a = (6 - 4) / 2 = 1 */
    CHECK(u[0] == f_sigmoid(1) * 10 && f32_bits(u[1]) == f32_bits(-0.0f));
}

static void edges(void)
{
    CHECK(branch_gate_of(0, 1) == 0.5f && branch_gate_of(-0.0f, 1) == 0.5f); /* sign(0) = 0 */
    CHECK(branch_gate_of(4, 1) == f_sigmoid(2) && branch_gate_of(-4, 1) == f_sigmoid(-2));
    CHECK(branch_gate_of(1e-9f, 1) == f_sigmoid(sqrtf(1e-6f)) && branch_gate_of(-1e-9f, 1) == f_sigmoid(-sqrtf(1e-6f)));
    CHECK(f32_bits(branch_gate_of(NAN, 1)) == F32_NAN_BITS);
    CHECK(branch_gate_of(INFINITY, 1) == 1 && branch_gate_of(-INFINITY, 1) == 0);
}

int main(void)
{
    static float g[N * D], x[N * D], v[D], a[N * D + 8], b[N * D + 8];
    struct nasty r = {41};

    by_hand();
    edges();
    if (cpu_has() < CPU_AVX2) {
        SKIP("AVX2 forms: not on this processor");
        return test_end();
    }
    for (int kind = 0; kind < 4; kind++)
        for (size_t n = 1; n <= N; n++)
            for (size_t d = 1; d <= D; d++) {
                nasty_fill(&r, kind, g, N * D);
                nasty_fill(&r, kind, x, N * D);
                nasty_fill(&r, kind, v, D);
                memset(a, 0x55, sizeof a);
                memset(b, 0x55, sizeof b);
                branch_mean_ref(g, x, n, d, a);
                branch_mean_avx2(g, x, n, d, b);
                CHECK(!memcmp(a, b, sizeof a), "mean, %zu x %zu, kind %d", n, d, kind);
                branch_gate_ref(g, x, v, 0.3f, n, d, a);
                branch_gate_avx2(g, x, v, 0.3f, n, d, b);
                CHECK(!memcmp(a, b, sizeof a), "gate, %zu x %zu, kind %d", n, d, kind);
            }
    return test_end();
}
