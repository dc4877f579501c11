/* The product of one weight row and one vector, for every weight type (ARITHMETIC.md rules 9 to 13
 * and 15, block layouts as in the type's own file).
 *
 * Every type has one file here, <type>.c, that says what a unit's bytes mean as integers: that and
 * dot.c are the definition. The AVX forms, <type>_avx2.c, _avx512.c and _vbmi.c, compute many rows and
 * vectors in one call and give the same bits. Who multiplies calls kernels/matmul/matmul.h. */
#pragma once
#include "kernels/cpu.h"
#include "kernels/type/type.h"
#include <stddef.h>
#include <stdint.h>

/* One unit (rule 9) as numbers: value i is d * w[i] + m * mn[i], the sign of m by the type. */
struct unit {
    float d, m;
    int16_t w[256];
    uint8_t mn[256];
};
/* unit u of a row; writes mn and m only where the type has them */
typedef void unit_fn(const uint8_t *row, size_t u, struct unit *out);
/* value i of a float row, exact */
typedef float widen_fn(const uint8_t *row, size_t i);

/* y[i * ldy + r] = row r of w times vector idx ? idx[i] : i, for r < n_rows, i < n_tok.
 * Vectors: prepared in the type's form, a_stride bytes apart. Rows: row_bytes apart, unaligned. */
struct dot_job {
    const uint8_t *w;
    size_t row_bytes, n_cols, n_rows;
    const uint8_t *acts;
    size_t a_stride;
    const uint32_t *idx;
    size_t n_tok;
    float *y;
    size_t ldy;
    /* NULL, or rows of another matrix for the same vectors, which are turned once for both: all but w
     * and y as here; looked at by forms of CPU_VBMI alone */
    const struct dot_job *also;
};
typedef void dot_form(const struct dot_job *job);

struct dot_type {
    unsigned unit_values; /* 256, 32, 16; 1: a float type */
    int m_sign;           /* -1: rule 11's P - Q; +1: rule 12's P + Q; 0: no m */
    unit_fn *unit;        /* integer types */
    widen_fn *widen;      /* float types */
    dot_form *avx2, *avx512;
    dot_form *vbmi; /* few vectors; NULL: avx512 serves */
};

/* the form of that very level; NULL: the type has none */
static inline dot_form *dot_form_at(const struct dot_type *t, enum cpu_level level)
{
    return level == CPU_VBMI ? t->vbmi : level == CPU_AVX512 ? t->avx512 : level == CPU_AVX2 ? t->avx2 : NULL;
}

/* NULL: no kernels for this id (type_info(id)->built is 0) */
const struct dot_type *dot_type(uint32_t id);

/* the definition: one row of n_cols values, one prepared vector */
float dot_row(const struct dot_type *t, const uint8_t *row, size_t n_cols, const void *act);
/* rule 38 */
void dot_widen_row(const struct dot_type *t, const uint8_t *row, size_t n_cols, float *out);
/* the definition over a job */
void dot_reference(const struct dot_type *t, const struct dot_job *job);

static inline const uint8_t *job_act(const struct dot_job *job, size_t i)
{
    return job->acts + job->a_stride * (job->idx ? job->idx[i] : i);
}

unit_fn unit_q4_0, unit_q4_1, unit_q5_0, unit_q5_1, unit_q8_0, unit_iq4_nl, unit_mxfp4, unit_nvfp4;
unit_fn unit_q2_k, unit_q3_k, unit_q4_k, unit_q5_k, unit_q6_k, unit_iq1_s, unit_iq1_m, unit_iq2_xxs;
unit_fn unit_iq2_xs, unit_iq2_s, unit_iq3_xxs, unit_iq3_s, unit_iq4_xs;
widen_fn widen_f32, widen_f16, widen_bf16;

dot_form dot_f32_avx2, dot_f16_avx2, dot_bf16_avx2, dot_q4_0_avx2, dot_q4_1_avx2, dot_q5_0_avx2;
dot_form dot_q5_1_avx2, dot_q8_0_avx2, dot_iq4_nl_avx2, dot_mxfp4_avx2, dot_nvfp4_avx2;
dot_form dot_q2_k_avx2, dot_q3_k_avx2, dot_q4_k_avx2, dot_q5_k_avx2, dot_q6_k_avx2, dot_iq1_s_avx2;
dot_form dot_iq1_m_avx2, dot_iq2_xxs_avx2, dot_iq2_xs_avx2, dot_iq2_s_avx2, dot_iq3_xxs_avx2;
dot_form dot_iq3_s_avx2, dot_iq4_xs_avx2;

dot_form dot_q4_0_avx512, dot_q4_1_avx512, dot_q5_0_avx512, dot_q5_1_avx512, dot_q8_0_avx512;
dot_form dot_iq4_nl_avx512, dot_mxfp4_avx512, dot_q2_k_avx512, dot_q3_k_avx512, dot_q4_k_avx512;
dot_form dot_q5_k_avx512, dot_q6_k_avx512, dot_iq1_s_avx512, dot_iq1_m_avx512, dot_iq2_xxs_avx512;
dot_form dot_iq2_xs_avx512, dot_iq2_s_avx512, dot_iq3_xxs_avx512, dot_iq3_s_avx512;
dot_form dot_iq4_xs_avx512, dot_f32_avx512, dot_f16_avx512, dot_bf16_avx512;

dot_form dot_iq2_xxs_vbmi, dot_iq2_xs_vbmi, dot_iq2_s_vbmi, dot_iq3_xxs_vbmi, dot_iq3_s_vbmi;
