/* Rule 7: check values, the written-out trees, forms against each other. */
#include "kernels/cpu.h"
#include "kernels/func/nasty.h"
#include "kernels/sum/sum.h"
#include "tests/test.h"

#define SAME(a, b, ...)                                                                            \
    do {                                                                                           \
        uint32_t a_ = f32_bits(a), b_ = f32_bits(b);                                               \
        CHECK(a_ == b_, __VA_ARGS__);                                                              \
    } while (0)

int main(void)
{
    struct nasty r = {2};
    float v[100], w[64], x[64], a[303], b[303];

    for (int i = 0; i < 100; i++) /* section F */
        v[i] = (float)((i % 17) - 8) * 0.3f;
    for (int i = 0; i < 64; i++) {
        w[i] = (float)((13 * i % 31) - 15) * 0.3f;
        x[i] = (float)((11 * i % 29) - 14) * 0.3f;
    }
    SAME(sum32_ref(v, 100), f32_from_bits(0xc08fffff), "SUM32");
    SAME(dot32_ref(v, v, 100), f32_from_bits(0x43522668), "SUM32 of squares");
    SAME(dot32_ref(w, x, 64) + 0.0f, f32_from_bits(0x4229eb86), "F32 row");

    a[0] = 0x1p24f, a[1] = 1, a[2] = -0x1p24f, a[3] = 1; /* the order shows */
    b[0] = b[1] = b[2] = b[3] = 1;
    SAME(dot4(a, b, 4), 2.0f, "LANE4: (l0 + l2) + (l1 + l3)");
    SAME(sum_chain(a, 4), 1.0f, "CHAIN: 2^24 + 1 is 2^24");
    SAME(sum32(a, 0), 0.0f, "no terms");
    a[0] = 0x1p-100f, b[0] = -0x1p-100f;     /* a lane of -0 that padding would turn into +0 */
    CHECK(f32_bits(dot8_ref(a, b, 1)) == 0); /* the other lanes are +0 */

    for (int kind = 0; kind < 4; kind++)
        for (size_t n = 0; n <= 300; n++) {
            nasty_fill(&r, kind, a, 303);
            nasty_fill(&r, kind, b, 303);
            if (kind == 1) /* products that underflow: lanes of -0 */
                for (size_t i = 0; i < 303; i++)
                    a[i] = 0x1p-100f, b[i] = -0x1p-100f;
            if (cpu_has() >= CPU_AVX2)
                for (size_t at = 0; at < 3; at++) { /* any alignment */
                    SAME(sum32_ref(a + at, n), sum32_avx2(a + at, n), "sum32, n %zu", n);
                    SAME(dot32_ref(a + at, b, n), dot32_avx2(a + at, b, n), "dot32, n %zu", n);
                    SAME(dot8_ref(a + at, b, n), dot8_avx2(a + at, b, n), "dot8, n %zu", n);
                }
            SAME(sum32(a, n), sum32_ref(a, n), "chosen sum32");
            SAME(dot32(a, b, n), dot32_ref(a, b, n), "chosen dot32");
            SAME(dot8(a, b, n), dot8_ref(a, b, n), "chosen dot8");
        }
    if (cpu_has() < CPU_AVX2)
        SKIP("AVX2 forms: not on this processor");
    return test_end();
}
