/* Rules 21 and 22: check values, forms against each other, in place. */
#include "kernels/cpu.h"
#include "kernels/func/nasty.h"
#include "kernels/norm/norm.h"
#include "tests/test.h"

#include <math.h>

enum { MAX = 300, ROOM = MAX + 8 };

static void check_values(void) /* section F */
{
    float v[100], one[100], y[100];

    for (int i = 0; i < 100; i++)
        v[i] = (float)((i % 17) - 8) * 0.3f, one[i] = 1;
    rms_norm_ref(v, one, y, 100, 1e-6f);
    CHECK(f32_bits(y[0]) == 0xbfd3e994 && f32_bits(y[1]) == 0xbfb96c62, "%08x %08x", f32_bits(y[0]),
          f32_bits(y[1]));
    l2_norm_ref(v, y, 100, 0);
    CHECK(fabs(y[0] - -2.4 / sqrt(210.15)) < 1e-6, "%g", y[0]);
    layer_norm_ref(v, one, v, y, 100, 0); /* mean -0.045, of squares 2.1015 */
    CHECK(fabs(y[0] - (-2.4 + (-2.4 + 0.045) / sqrt(2.1015 - 0.045 * 0.045))) < 1e-6, "%.9g", y[0]);
}

#define BOTH(call, ...)                                                                            \
    do {                                                                                           \
        memset(y, 0x55, sizeof y);                                                                 \
        memset(z, 0x55, sizeof z);                                                                 \
        call(_ref, y);                                                                             \
        call(_avx2, z);                                                                            \
        CHECK(!memcmp(y, z, sizeof y), __VA_ARGS__);                                               \
        memcpy(z, x, sizeof z); /* in place */                                                     \
        memset(z + n, 0x55, (ROOM - n) * sizeof *z);                                               \
        memcpy(x2, x, sizeof x2);                                                                  \
        from = z;                                                                                  \
        call(_avx2, z);                                                                            \
        CHECK(!memcmp(y, z, sizeof y), "in place: " __VA_ARGS__);                                  \
        from = x;                                                                                  \
    } while (0)
#define RMS(form, to) rms_norm##form(from, w, to, n, 1e-6f)
#define PLAIN(form, to) rms_norm##form(from, NULL, to, n, 1e-5f)
#define GATED(form, to) rms_norm_gated##form(from, w, b, to, n, 1e-6f)
#define L2(form, to) l2_norm##form(from, to, n, 1e-6f)
#define LAYER(form, to) layer_norm##form(from, w, b, to, n, 1e-6f)

int main(void)
{
    struct nasty r = {3};
    float x[ROOM], x2[ROOM], w[ROOM], b[ROOM], y[ROOM], z[ROOM];
    const float *from = x;

    check_values();
    if (cpu_has() < CPU_AVX2) {
        SKIP("AVX2 forms: not on this processor");
        return test_end();
    }
    for (int kind = 0; kind < 4; kind++)
        for (size_t n = 1; n <= MAX; n++) {
            nasty_fill(&r, kind, x, ROOM);
            nasty_fill(&r, kind, w, ROOM);
            nasty_fill(&r, kind, b, ROOM);
            BOTH(RMS, "rms, n %zu, kind %d", n, kind);
            BOTH(PLAIN, "rms without weight, n %zu, kind %d", n, kind);
            BOTH(GATED, "gated, n %zu, kind %d", n, kind);
            BOTH(L2, "l2, n %zu, kind %d", n, kind);
            BOTH(LAYER, "layer, n %zu, kind %d", n, kind);
        }
    return test_end();
}
