/* Rule 34: against libm, forms against each other, rows without an answer. */
#include "kernels/cpu.h"
#include "kernels/func/nasty.h"
#include "kernels/logprob/logprob.h"
#include "tests/test.h"

#include <math.h>

int main(void)
{
    static float l[5003];
    static double a[5003], b[5003];
    struct nasty r = {9};
    float m;

    for (int kind = 0; kind < 2; kind++)
        for (size_t n = 1; n <= 5000; n = n * 3 + 1) {
            double sum = 0, top = -INFINITY;

            nasty_fill(&r, kind, l, n);
            for (size_t i = 0; i < n; i++)
                top = l[i] > top ? l[i] : top;
            for (size_t i = 0; i < n; i++)
                sum += exp(l[i] - top);
            for (uint32_t t = 0; t < n; t += 7) {
                double got = logprob(l, n, t), want = l[t] - top - log(sum);
                CHECK(fabs(got - want) < 1e-12 * (1 + fabs(want)), "%.17g, wanted %.17g", got,
                      want);
            }
        }

    l[0] = 1, l[1] = NAN, l[2] = 3, l[3] = -INFINITY, l[4] = -697, l[5] = -696.99994f;
    CHECK(logprob_sum(l, 2, &m) == 1 && m == 1);
    CHECK(logprob_sum(l, 4, &m) > 1 && m == 3);
    CHECK(isnan(logprob(l, 4, 1)) && logprob(l, 4, 3) == -INFINITY);
    logprob_exps_ref(l, 6, 3, a);
    CHECK(a[1] == 0 && a[2] == 1 && a[3] == 0 && a[4] == 0 && a[5] > 0); /* -700 itself is out */
    l[2] = INFINITY;
    CHECK(isnan(logprob_sum(l, 4, &m)) && isnan(logprob(l, 4, 0)));
    l[0] = l[2] = NAN; /* NaN and -inf */
    CHECK(isnan(logprob(l, 4, 3)));

    if (cpu_has() < CPU_AVX2) {
        SKIP("AVX2 form: not on this processor");
        return test_end();
    }
    for (int kind = 0; kind < 4; kind++)
        for (size_t n = 0; n <= 300; n++) {
            nasty_fill(&r, kind, l, n);
            m = 0x1p-149f;
            for (size_t i = 0; i < n; i++) { /* logits: large steps down, some past -700 */
                l[i] *= n % 3 ? 1 : 120;
                m = l[i] > m && l[i] < INFINITY ? l[i] : m;
                l[i] = l[i] < INFINITY ? l[i] : NAN;
            }
            memset(a, 0, sizeof a);
            memset(b, 0, sizeof b);
            logprob_exps_ref(l, n, m, a);
            logprob_exps_avx2(l, n, m, b);
            CHECK(!memcmp(a, b, sizeof a), "n %zu, kind %d", n, kind);
        }
    return test_end();
}
