/* Rule 25: check values, forms against each other, what is not finite. */
#include "kernels/cpu.h"
#include "kernels/func/nasty.h"
#include "kernels/softmax/softmax.h"
#include "kernels/sum/sum.h"
#include "kernels/func/func.h"
#include "tests/test.h"

#include <math.h>

enum { MAX = 600, ROOM = MAX + 8 };

int main(void)
{
    struct nasty r = {4};
    float x[ROOM], p[ROOM], q[ROOM];

    for (int i = 0; i < 300; i++) /* section F */
        x[i] = (float)((37 * i % 101) - 50) * 0.3f;
    softmax_ref(x, p, 300);
    CHECK(f32_bits(p[0]) == 0x28127c89, "%08x", f32_bits(p[0]));
    CHECK(f32_bits(p[299]) == 0x33bd87bf, "%08x", f32_bits(p[299]));
    for (int i = 0; i < 300; i++) /* the sum by itself; the largest x is 50 * 0.3 */
        q[i] = f_exp(x[i] - 50 * 0.3f);
    CHECK(f32_bits(sum32(q, 300)) == 0x41381f5f, "l is %08x", f32_bits(sum32(q, 300)));

    x[0] = -INFINITY, x[1] = 1, x[2] = -INFINITY;
    softmax(x, p, 3);
    CHECK(p[0] == 0 && p[1] == 1 && p[2] == 0);
    softmax(x, p, 1); /* nothing but -inf */
    CHECK(f32_bits(p[0]) == F32_NAN_BITS);
    x[0] = NAN;
    softmax(x, p, 3);
    for (int i = 0; i < 3; i++)
        CHECK(f32_bits(p[i]) == F32_NAN_BITS);

    if (cpu_has() < CPU_AVX2) {
        SKIP("AVX2 form: not on this processor");
        return test_end();
    }
    for (int kind = 0; kind < 4; kind++)
        for (size_t n = 1; n <= MAX; n++) {
            nasty_fill(&r, kind, x, ROOM);
            if (n % 3 == 0)
                x[n / 2] *= 20;
            memset(p, 0x55, sizeof p);
            memset(q, 0x55, sizeof q);
            softmax_ref(x, p, n);
            softmax_avx2(x, q, n);
            CHECK(!memcmp(p, q, sizeof p), "n %zu, kind %d", n, kind);
            memcpy(q, x, n * sizeof *q);
            softmax_avx2(q, q, n);
            CHECK(!memcmp(p, q, sizeof p), "in place, n %zu, kind %d", n, kind);
        }
    return test_end();
}
