/* Rule 32: order, the sequence's start, forms against each other. */
#include "kernels/conv/conv.h"
#include "kernels/cpu.h"
#include "kernels/func/nasty.h"
#include "tests/test.h"

#include <math.h>

enum { MAX = 100, WIDTH = 6 };

int main(void)
{
    static float rows[WIDTH][MAX], w[MAX * WIDTH], bias[MAX], y[MAX + 8], z[MAX + 8];
    struct nasty r = {31};
    const float *x[WIDTH];

    rows[0][0] = 0x1p24f, rows[1][0] = 1, rows[2][0] = -0x1p24f; /* oldest first shows */
    for (int j = 0; j < WIDTH; j++)
        x[j] = rows[j], w[j] = 1;
    short_conv(x, w, NULL, 3, 1, y);
    CHECK(y[0] == 0);
    bias[0] = 5;
    x[0] = x[2] = NULL;
    short_conv(x, w, bias, 3, 1, y);
    CHECK(y[0] == 6);
    w[0] = INFINITY; /* a tap before the start is multiplied: inf * 0 */
    short_conv(x, w, bias, 3, 1, y);
    CHECK(f32_bits(y[0]) == F32_NAN_BITS);

    if (cpu_has() < CPU_AVX2) {
        SKIP("AVX2 form: not on this processor");
        return test_end();
    }
    for (int kind = 0; kind < 4; kind++)
        for (size_t n = 0; n <= MAX; n++)
            for (size_t width = 1; width <= WIDTH; width++) {
                for (size_t j = 0; j < WIDTH; j++) {
                    nasty_fill(&r, kind, rows[j], MAX);
                    x[j] = nasty_u32(&r) % 4 ? rows[j] : NULL;
                }
                nasty_fill(&r, kind, w, MAX * WIDTH);
                nasty_fill(&r, kind, bias, MAX);
                memset(y, 0x55, sizeof y);
                memset(z, 0x55, sizeof z);
                short_conv_ref(x, w, n % 2 ? bias : NULL, width, n, y);
                short_conv_avx2(x, w, n % 2 ? bias : NULL, width, n, z);
                CHECK(!memcmp(y, z, sizeof y), "n %zu, width %zu, kind %d", n, width, kind);
            }
    return test_end();
}
