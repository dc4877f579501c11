/* Rule 8 in plain C, and the layout of prepared vectors. */
#include "kernels/quantise/quantise.h"
#include "kernels/cpu.h"
#include "kernels/num.h"
#include <assert.h>

/* nearest even of |v| < 2^22, without a cast (rule 6) */
static int32_t to_int(float v)
{
    return (int32_t)(f32_bits(v + 0x1.8p23f) & 0x7FFFFF) - 0x400000;
}

void quantise_unit(const float *x, size_t n, int8_t *q, float *d, int16_t *sum16)
{
    uint32_t max_bits = 0;
    float m, r;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits = f32_bits(x[i]) & 0x7FFFFFFFu;
        max_bits = bits > max_bits ? bits : max_bits;
    }
    m = f32_from_bits(max_bits);
    if (max_bits >= 0x7F800000u || m < 0x1p-100f) { /* not finite: d shows it; nearly zero: zero */
        *d = max_bits >= 0x7F800000u ? f32_from_bits(F32_NAN_BITS) : 0.0f;
        memset(q, 0, n);
        memset(sum16, 0, n / 16 * sizeof *sum16);
        return;
    }
    *d = m / 127.0f;
    r = 127.0f / m;
    for (size_t i = 0; i < n; i += 16) {
        int sum = 0;

        for (size_t j = i; j < i + 16; j++) {
            q[j] = (int8_t)to_int(x[j] * r);
            sum += q[j];
        }
        sum16[i / 16] = (int16_t)sum;
    }
}

size_t act_stride(enum act_form form, size_t n)
{
    if (form == ACT_F32)
        return act_pad(n * sizeof(float));
    return act_sum_at(form, n) + act_pad(form == ACT_A32 ? n / 32 * 4 : n / 16 * 2);
}

void act_prepare(enum act_form form, const float *x, size_t n, void *out)
{
    quantise_unit_fn *unit = cpu_level() >= CPU_AVX2 ? quantise_unit_avx2 : quantise_unit;

    if (form == ACT_F32) {
        memcpy(out, x, n * sizeof *x);
        return;
    }
    char *p = out;
    int8_t *q = out;
    float *d = (float *)(p + act_d_at(n));

    assert(n % (form == ACT_A32 ? 32 : 256) == 0);
    if (form == ACT_A32) {
        int32_t *sum = (int32_t *)(p + act_sum_at(form, n));

        for (size_t u = 0; u < n / 32; u++) {
            int16_t half[2];
            unit(x + 32 * u, 32, q + 32 * u, d + u, half);
            sum[u] = half[0] + half[1];
        }
    } else {
        int16_t *sum = (int16_t *)(p + act_sum_at(form, n));

        for (size_t u = 0; u < n / 256; u++)
            unit(x + 256 * u, 256, q + 256 * u, d + u, sum + 16 * u);
    }
}
