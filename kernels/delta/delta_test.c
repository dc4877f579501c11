/* Rule 31: check values, forms against each other, in place and into another version. */
#include "kernels/cpu.h"
#include "kernels/delta/delta.h"
#include "kernels/func/func.h"
#include "kernels/func/nasty.h"
#include "tests/test.h"

#include <math.h>

enum { MAX = 40, PITCH = MAX + 3 };

static void check_values(void) /* section F */
{
    float S[16] = {0}, key[8], q[8], a[8], value[2], o[2];

    for (int t = 0; t < 3; t++) {
        for (int k = 0; k < 8; k++) {
            key[k] = (float)((5 * k + 3 * t) % 11 - 5) * 0.3f;
            q[k] = (float)((7 * k + t) % 13 - 6) * 0.3f;
            a[k] = f_exp(-f_softplus((float)k * 0.3f - 1));
        }
        for (int v = 0; v < 2; v++)
            value[v] = (float)((v + 1) * (t - 1)) / 2 + 0.25f;
        delta_rule_ref(S, S, 2, a, 0, q, key, value, f_sigmoid((float)t - 0.5f), 8, 2, o);
    }
    CHECK(f32_bits(o[0]) == 0x4017b962 && f32_bits(o[1]) == 0x404a99e8, "%08x %08x", f32_bits(o[0]),
          f32_bits(o[1]));
    CHECK(f32_bits(S[0]) == 0x3e58d46f && f32_bits(S[15]) == 0x3f4d8548, "%08x %08x",
          f32_bits(S[0]), f32_bits(S[15]));
}

int main(void)
{
    static float S[MAX * PITCH], want[MAX * PITCH], got[MAX * PITCH];
    float a[MAX], q[MAX], key[MAX], value[MAX], o[MAX + 8], o2[MAX + 8];
    struct nasty r = {30};

    check_values();
    for (int i = 0; i < 2000; i++) {
        size_t n_k = 1 + nasty_u32(&r) % MAX, n_v = 1 + nasty_u32(&r) % MAX;
        int kind = i % 4, one = (int)(nasty_u32(&r) & 1);
        float beta = f_sigmoid(nasty_plain(&r));

        nasty_fill(&r, kind, S, MAX * PITCH);
        nasty_fill(&r, kind, a, MAX);
        nasty_fill(&r, kind, q, MAX);
        nasty_fill(&r, kind, key, MAX);
        nasty_fill(&r, kind, value, MAX);
        memset(o, 0x55, sizeof o);
        memcpy(want, S, sizeof S);
        delta_rule_ref(want, want, PITCH, a, one, q, key, value, beta, n_k, n_v, o);
        for (int form = 0; form < 4; form++) { /* chosen, AVX2; in place, two versions */
            int in_place = form & 1;

            if (form >= 2 && cpu_has() < CPU_AVX2)
                continue;
            memset(o2, 0x55, sizeof o2);
            memcpy(got, S, sizeof S);
            (form >= 2 ? delta_rule_avx2 : delta_rule)(in_place ? got : S, got, PITCH, a, one, q,
                                                       key, value, beta, n_k, n_v, o2);
            CHECK(!memcmp(want, got, sizeof got), "form %d, state, %zu x %zu, kind %d", form, n_k,
                  n_v, kind);
            CHECK(!memcmp(o, o2, sizeof o), "form %d, %zu x %zu, kind %d", form, n_k, n_v, kind);
        }
    }
    if (cpu_has() < CPU_AVX2)
        SKIP("AVX2 form: not on this processor");
    return test_end();
}
