/* Rule 28: the chain by place, forms against each other. */
#include "kernels/cpu.h"
#include "kernels/func/nasty.h"
#include "kernels/moe/moe.h"
#include "tests/test.h"

enum { MAX = 300, ROOM = MAX + 8, K = 10 };

int main(void)
{
    struct nasty r = {8};
    float rows[K][ROOM], w[K], x[ROOM], y[ROOM], z[ROOM];
    const float *row[K];

    rows[0][0] = 0x1p24f, rows[1][0] = 1, rows[2][0] = -0x1p24f; /* the order shows */
    for (int p = 0; p < K; p++)
        row[p] = rows[p], w[p] = 1;
    moe_sum(w, row, 3, x, 1);
    CHECK(x[0] == 0);
    row[1] = rows[2], row[2] = rows[1];
    moe_sum(w, row, 3, x, 1);
    CHECK(x[0] == 1);
    row[1] = rows[1], row[2] = rows[2];
    moe_sum(w, row, 0, x, 1);
    CHECK(f32_bits(x[0]) == 0);

    if (cpu_has() < CPU_AVX2) {
        SKIP("AVX2 forms: not on this processor");
        return test_end();
    }
    for (int kind = 0; kind < 4; kind++)
        for (size_t n = 0; n <= MAX; n++) {
            uint32_t k = nasty_u32(&r) % (K + 1);

            for (int p = 0; p < K; p++)
                nasty_fill(&r, kind, rows[p], ROOM);
            nasty_fill(&r, kind, w, K);
            memset(x, 0x55, sizeof x);
            memset(y, 0x55, sizeof y);
            moe_sum_ref(w, row, k, x, n);
            moe_sum_avx2(w, row, k, y, n);
            CHECK(!memcmp(x, y, sizeof x), "sum, n %zu, k %u", n, k);
            for (int op = 0; op < 3; op++) {
                memcpy(x, rows[0], sizeof x);
                memcpy(y, rows[0], sizeof y);
                memcpy(z, rows[1], sizeof z);
                op == 0   ? vec_add_ref(x, z, n)
                : op == 1 ? vec_mul_ref(x, z, n)
                          : vec_fma1_ref(w[0], z, x, n);
                op == 0   ? vec_add_avx2(y, z, n)
                : op == 1 ? vec_mul_avx2(y, z, n)
                          : vec_fma1_avx2(w[0], z, y, n);
                CHECK(!memcmp(x, y, sizeof x), "op %d, n %zu", op, n);
            }
        }
    x[0] = 2, y[0] = 3;
    vec_fma1(0.5f, y, x, 1);
    CHECK(x[0] == 3.5f);
    return test_end();
}
