/* Rule 30: pooled keys and scores by hand and against doubles, forms against each other. */
#include "kernels/cpu.h"
#include "kernels/func/nasty.h"
#include "kernels/index/index.h"
#include "tests/test.h"

#include <math.h>

enum { D = 70, HEADS = 9, POOLS = 12, MEMBERS = 5 };

static void pools(void)
{
    float a[2] = {1, 4}, b[2] = {2, 6}, g[2] = {0, 1}, g2[2] = {0, 3}, pk[2];
    float bias[4] = {1, 2, 1, 0};
    const float *key[2] = {a, b}, *gate[2] = {g, g2};

    pool_mean(key, 2, 2, pk);
    CHECK(pk[0] == 1.5f && pk[1] == 5);
    pool_gated(key, gate, NULL, 2, 2, pk); /* equal gates; gates 1 and 3 */
    CHECK(pk[0] == 1.5f);
    CHECK(fabs(pk[1] - (4 + 6 * exp(2)) / (1 + exp(2))) < 1e-6, "%g", pk[1]);
    pool_gated(key, gate, bias, 2, 2, pk); /* the bias evens them out */
    CHECK(pk[0] == 1.5f && pk[1] == 5);
    g2[1] = NAN;
    pool_gated(key, gate, bias, 2, 2, pk);
    CHECK(pk[0] == 1.5f && f32_bits(pk[1]) == F32_NAN_BITS);
}

static void order_of_members(void)
{
    float x[3][1] = {{0x1p24f}, {1}, {-0x1p24f}}, pk;
    const float *key[3] = {x[0], x[1], x[2]}, *other[3] = {x[0], x[2], x[1]};

    pool_mean(key, 3, 1, &pk);
    CHECK(pk == 0);
    pool_mean(other, 3, 1, &pk);
    CHECK(pk == 1.0f / 3);
}

int main(void)
{
    static float q[HEADS * D], pk[POOLS * (D + 3)], w[HEADS], s[POOLS + 4], t[POOLS + 4];
    struct nasty r = {33};

    pools();
    order_of_members();
    for (int i = 0; i < 3000; i++) {
        size_t d = 1 + nasty_u32(&r) % D, stride = d + nasty_u32(&r) % 4;
        size_t n_pools = nasty_u32(&r) % (POOLS + 1), n_heads = 1 + nasty_u32(&r) % HEADS;
        const float *weight = nasty_u32(&r) % 3 ? w : NULL;
        int kind = i % 4;

        nasty_fill(&r, kind, q, HEADS * D);
        nasty_fill(&r, kind, pk, POOLS * (D + 3));
        nasty_fill(&r, kind, w, HEADS);
        memset(s, 0x55, sizeof s);
        memset(t, 0x55, sizeof t);
        index_scores_ref(q, weight, pk, stride, n_pools, n_heads, d, 0.3f, s);
        index_scores(q, weight, pk, stride, n_pools, n_heads, d, 0.3f, t);
        CHECK(!memcmp(s, t, sizeof s), "chosen form");
        if (cpu_has() >= CPU_AVX2) {
            memset(t, 0x55, sizeof t);
            index_scores_avx2(q, weight, pk, stride, n_pools, n_heads, d, 0.3f, t);
            CHECK(!memcmp(s, t, sizeof s), "%zu pools, %zu heads, d %zu, kind %d", n_pools, n_heads,
                  d, kind);
        }
        for (size_t b = 0; kind == 0 && b < n_pools; b++) {
            double sum = 0;

            for (size_t h = 0; h < n_heads; h++) {
                double dot = 0;

                for (size_t j = 0; j < d; j++)
                    dot += (double)q[h * d + j] * pk[b * stride + j];
                sum += dot < 0 ? 0 : dot * 0.3 * (weight ? w[h] : 1);
            }
            CHECK(fabs(s[b] - sum) < 0.05, "score %g, wanted %g", s[b], sum);
        }
    }
    if (cpu_has() < CPU_AVX2)
        SKIP("AVX2 form: not on this processor");
    return test_end();
}
