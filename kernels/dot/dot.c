/* The definition of the products, written to be read: rules 10 to 13, 38 and the NaN of rule 14.
 * Nothing here may be reordered or contracted; speed is the AVX files' business. */
#include "kernels/dot/dot.h"
#include "kernels/num.h"
#include "kernels/quantise/quantise.h"
#include <math.h>

static const struct dot_type table[] = {
    [W_F32] = {1, 0, NULL, widen_f32, dot_f32_avx2, dot_f32_avx512},
    [W_F16] = {1, 0, NULL, widen_f16, dot_f16_avx2, dot_f16_avx512},
    [W_BF16] = {1, 0, NULL, widen_bf16, dot_bf16_avx2, dot_bf16_avx512},
    [W_Q4_0] = {32, 0, unit_q4_0, NULL, dot_q4_0_avx2, dot_q4_0_avx512},
    [W_Q4_1] = {32, 1, unit_q4_1, NULL, dot_q4_1_avx2, dot_q4_1_avx512},
    [W_Q5_0] = {32, 0, unit_q5_0, NULL, dot_q5_0_avx2, dot_q5_0_avx512},
    [W_Q5_1] = {32, 1, unit_q5_1, NULL, dot_q5_1_avx2, dot_q5_1_avx512},
    [W_Q8_0] = {32, 0, unit_q8_0, NULL, dot_q8_0_avx2, dot_q8_0_avx512},
    [W_Q2_K] = {256, -1, unit_q2_k, NULL, dot_q2_k_avx2, dot_q2_k_avx512},
    [W_Q3_K] = {256, 0, unit_q3_k, NULL, dot_q3_k_avx2, dot_q3_k_avx512},
    [W_Q4_K] = {256, -1, unit_q4_k, NULL, dot_q4_k_avx2, dot_q4_k_avx512},
    [W_Q5_K] = {256, -1, unit_q5_k, NULL, dot_q5_k_avx2, dot_q5_k_avx512},
    [W_Q6_K] = {256, 0, unit_q6_k, NULL, dot_q6_k_avx2, dot_q6_k_avx512},
    [W_IQ2_XXS] = {256, 0, unit_iq2_xxs, NULL, dot_iq2_xxs_avx2, dot_iq2_xxs_avx512,
                    dot_iq2_xxs_vbmi},
    [W_IQ2_XS] = {256, 0, unit_iq2_xs, NULL, dot_iq2_xs_avx2, dot_iq2_xs_avx512,
                   dot_iq2_xs_vbmi},
    [W_IQ3_XXS] = {256, 0, unit_iq3_xxs, NULL, dot_iq3_xxs_avx2, dot_iq3_xxs_avx512,
                    dot_iq3_xxs_vbmi},
    [W_IQ1_S] = {256, 0, unit_iq1_s, NULL, dot_iq1_s_avx2, dot_iq1_s_avx512},
    [W_IQ4_NL] = {32, 0, unit_iq4_nl, NULL, dot_iq4_nl_avx2, dot_iq4_nl_avx512},
    [W_IQ3_S] = {256, 0, unit_iq3_s, NULL, dot_iq3_s_avx2, dot_iq3_s_avx512,
                  dot_iq3_s_vbmi},
    [W_IQ2_S] = {256, 0, unit_iq2_s, NULL, dot_iq2_s_avx2, dot_iq2_s_avx512,
                  dot_iq2_s_vbmi},
    [W_IQ4_XS] = {256, 0, unit_iq4_xs, NULL, dot_iq4_xs_avx2, dot_iq4_xs_avx512},
    [W_IQ1_M] = {256, 0, unit_iq1_m, NULL, dot_iq1_m_avx2, dot_iq1_m_avx512},
    [W_MXFP4] = {32, 0, unit_mxfp4, NULL, dot_mxfp4_avx2, dot_mxfp4_avx512},
    [W_NVFP4] = {16, 0, unit_nvfp4, NULL, dot_nvfp4_avx2, NULL},
};

const struct dot_type *dot_type(uint32_t id)
{
    return id < sizeof table / sizeof *table && table[id].unit_values ? &table[id] : NULL;
}

/* SUM32 with fma (rules 7 and 13) */
static float dot_float(const struct dot_type *t, const uint8_t *row, size_t n, const float *x)
{
    float lane[32] = {0};

    for (size_t i = 0; i < n; i++)
        lane[i % 32] = fmaf(t->widen(row, i), x[i], lane[i % 32]);
    for (size_t h = 16; h; h /= 2)
        for (size_t j = 0; j < h; j++)
            lane[j] += lane[j + h];
    return lane[0] + 0.0f;
}

static float fold(const float lane[4])
{
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

/* Units of 256 form one chain (rule 11), smaller ones four lanes (rule 12). */
static float dot_units(const struct dot_type *t, const uint8_t *row, size_t n, const struct act *a)
{
    size_t len = t->unit_values, lanes = len == 256 ? 1 : 4;
    size_t per_d = len == 16 ? 2 : 1; /* NVFP4: two units in one unit of the vector */
    float p[4] = {0}, q[4] = {0}, sum;
    struct unit x;

    for (size_t u = 0; u < n / len; u++) {
        const int8_t *act = a->q + u * len;
        float d = a->d[u / per_d];
        int32_t s = 0, mins = 0; /* S and T of rule 10, exact */

        t->unit(row, u, &x);
        for (size_t i = 0; i < len; i++)
            s += x.w[i] * act[i];
        p[u % lanes] = fmaf(x.d * d, (float)s, p[u % lanes]);
        if (!t->m_sign)
            continue;
        for (size_t i = 0; i < len; i++)
            mins += x.mn[i] * act[i];
        q[u % lanes] = fmaf(x.m * d, (float)mins, q[u % lanes]);
    }
    sum = lanes == 1 ? p[0] : fold(p);
    if (t->m_sign < 0)
        sum -= q[0];
    else if (t->m_sign > 0)
        sum += fold(q);
    return sum + 0.0f; /* -0 becomes +0 */
}

float dot_row(const struct dot_type *t, const uint8_t *row, size_t n_cols, const void *act)
{
    float y;

    if (t->widen) {
        y = dot_float(t, row, n_cols, act);
    } else {
        struct act a = act_parts(t->unit_values == 256 ? ACT_A256 : ACT_A32, act, n_cols);
        y = dot_units(t, row, n_cols, &a);
    }
    return f32_canon(y);
}

void dot_widen_row(const struct dot_type *t, const uint8_t *row, size_t n_cols, float *out)
{
    size_t len = t->unit_values;
    struct unit x;

    if (t->widen) {
        for (size_t i = 0; i < n_cols; i++)
            out[i] = t->widen(row, i);
        return;
    }
    for (size_t u = 0; u < n_cols / len; u++) {
        t->unit(row, u, &x);
        for (size_t i = 0; i < len; i++) {
            float v = x.d * (float)x.w[i]; /* exact */

            if (t->m_sign < 0)
                v -= x.m * (float)x.mn[i];
            else if (t->m_sign > 0)
                v += x.m * (float)x.mn[i];
            out[u * len + i] = f32_canon(v + 0.0f);
        }
    }
}

void dot_reference(const struct dot_type *t, const struct dot_job *job)
{
    for (size_t r = 0; r < job->n_rows; r++)
        for (size_t i = 0; i < job->n_tok; i++)
            job->y[i * job->ldy + r] =
                dot_row(t, job->w + r * job->row_bytes, job->n_cols, job_act(job, i));
}
