/* Rules 23 and 24: check values, the table against libm, forms against each other. */
#include "kernels/cpu.h"
#include "kernels/func/nasty.h"
#include "kernels/rope/rope.h"
#include "tests/test.h"

#include <math.h>

int main(void)
{
    struct nasty r = {5};
    float c[128], s[128], x[264], y[264];
    int differs = 0;

    rope_row_ref(1e6, 128, 1000, c, s); /* section F */
    CHECK(c[1] == -0x1.83cec6p-6f && s[1] == 0x1.ffdb48p-1f, "%a %a", c[1], s[1]);
    rope_row(1e4, 64, 0, c, s);
    for (int i = 0; i < 32; i++)
        CHECK(c[i] == 1 && s[i] == 0);
    for (uint64_t at = 1; at < 1000000; at = at * 3 + 1) {
        rope_row_ref(1e6, 128, at, c, s);
        for (int i = 0; i < 64; i++) {
            double angle = (double)at * exp(-(2.0 * i / 128 * log(1e6)));
            differs += c[i] != (float)cos(angle) || s[i] != (float)sin(angle);
        }
    }
    CHECK(differs <= 2, "%d table entries are not libm's", differs);

    x[0] = 3, x[1] = 5, x[2] = 7, x[3] = 11, x[4] = 13; /* pairs (0, 2), (1, 3); 4 stays */
    c[0] = 0.5f, s[0] = 0.25f, c[1] = 0, s[1] = 1;
    rope_neox(x, 4, c, s);
    CHECK(x[0] == 3 * 0.5f - 7 * 0.25f && x[2] == 3 * 0.25f + 7 * 0.5f);
    CHECK(x[1] == -11 && x[3] == 5 && x[4] == 13);

    if (cpu_has() < CPU_AVX2) {
        SKIP("AVX2 form: not on this processor");
        return test_end();
    }
    for (int i = 0; i < 4000; i++) {
        uint32_t n = 2 + 2 * (nasty_u32(&r) % 128);
        uint64_t at = nasty_u32(&r) >> (11 + nasty_u32(&r) % 21);
        float c2[128], s2[128];

        memset(c, 0, sizeof c);
        memset(s, 0, sizeof s);
        memset(c2, 0, sizeof c2);
        memset(s2, 0, sizeof s2);
        rope_row_ref(i % 2 ? 1e6 : 10000, n, at, c, s);
        rope_row_avx2(i % 2 ? 1e6 : 10000, n, at, c2, s2);
        CHECK(!memcmp(c, c2, sizeof c) && !memcmp(s, s2, sizeof s), "row %llu of %u dimensions",
              (unsigned long long)at, n);
    }
    for (int kind = 0; kind < 4; kind++)
        for (uint32_t n = 2; n <= 256; n += 2) {
            nasty_fill(&r, kind, x, 264);
            nasty_fill(&r, kind, c, 128);
            nasty_fill(&r, kind, s, 128);
            memcpy(y, x, sizeof y);
            rope_neox_ref(x, n, c, s);
            rope_neox_avx2(y, n, c, s);
            CHECK(!memcmp(x, y, sizeof x), "n %u, kind %d", n, kind);
        }
    return test_end();
}
