/* F32, F16 and BF16 rows with AVX-512 (ARITHMETIC.md rule 13), for more than one vector: the 32
 * lanes of SUM32 are two registers. One vector is a matter of memory speed, where the AVX2 form is
 * as good. */
#include "kernels/dot/avx512.h"

typedef __m512 load16_fn(const uint8_t *row, size_t i);

enum { ROWS = 3, VECTORS = 4 }; /* 24 registers of sums */

INLINE __m512 load16_f32(const uint8_t *row, size_t i)
{
    return _mm512_loadu_ps(row + 4 * i);
}
INLINE __m512 load16_f16(const uint8_t *row, size_t i)
{
    return _mm512_cvtph_ps(load256(row + 2 * i));
}
INLINE __m512 load16_bf16(const uint8_t *row, size_t i)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load256(row + 2 * i)), 16));
}

/* halving tree from 32 to one */
INLINE float fold32(__m512 low, __m512 high)
{
    __m512 v = _mm512_add_ps(low, high);
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

struct lanes {
    __m512 v[ROWS][VECTORS][2];
};

INLINE void step(load16_fn *load16, const uint8_t *const row[ROWS], const float *const x[VECTORS],
                 size_t i, struct lanes *l)
{
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        __m512 w[ROWS];

#pragma GCC unroll 3
        for (int r = 0; r < ROWS; r++)
            w[r] = load16(row[r], i + 16 * (size_t)h);
#pragma GCC unroll 4
        for (int k = 0; k < VECTORS; k++) {
            __m512 v = _mm512_loadu_ps(x[k] + i + 16 * (size_t)h);

#pragma GCC unroll 3
            for (int r = 0; r < ROWS; r++)
                l->v[r][k][h] = _mm512_fmadd_ps(w[r], v, l->v[r][k][h]);
        }
    }
}

/* three rows times four vectors; the tail is padded with zeros on both sides (rule 4) */
INLINE void tile(load16_fn *load16, const size_t bytes, const uint8_t *const row[ROWS], size_t n,
                 const float *const x[VECTORS], float y[ROWS][VECTORS])
{
    struct lanes l;
    size_t i = 0;

#pragma GCC unroll 3
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
        for (int k = 0; k < VECTORS; k++)
            l.v[r][k][0] = l.v[r][k][1] = _mm512_setzero_ps();
    for (; i + 32 <= n; i += 32)
        step(load16, row, x, i, &l);
    if (i < n) {
        uint8_t wt[ROWS][32 * 4] = {{0}};
        float xt[VECTORS][32] = {{0}};
        const uint8_t *rows[ROWS] = {wt[0], wt[1], wt[2]};
        const float *vectors[VECTORS] = {xt[0], xt[1], xt[2], xt[3]};

        for (int r = 0; r < ROWS; r++)
            memcpy(wt[r], row[r] + bytes * i, bytes * (n - i));
        for (int k = 0; k < VECTORS; k++)
            memcpy(xt[k], x[k] + i, sizeof **x * (n - i));
        step(load16, rows, vectors, 0, &l);
    }
#pragma GCC unroll 3
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
        for (int k = 0; k < VECTORS; k++)
            y[r][k] = f32_canon(fold32(l.v[r][k][0], l.v[r][k][1]) + 0.0f);
}

/* missing rows and vectors: the last one again, results dropped */
INLINE void job_float(const struct dot_job *job, load16_fn *load16, const size_t bytes)
{
    for (size_t i0 = 0; i0 < job->n_tok; i0 += TOKENS_CACHED) {
        size_t i1 = i0 + TOKENS_CACHED < job->n_tok ? i0 + TOKENS_CACHED : job->n_tok;

        for (size_t r = 0; r < job->n_rows; r += ROWS)
            for (size_t i = i0; i < i1; i += VECTORS) {
                size_t rows = job->n_rows - r < ROWS ? job->n_rows - r : ROWS;
                size_t n = i1 - i < VECTORS ? i1 - i : VECTORS;
                const uint8_t *row[ROWS];
                const float *x[VECTORS];
                float y[ROWS][VECTORS];

                for (size_t k = 0; k < ROWS; k++)
                    row[k] = job->w + (r + (k < rows ? k : rows - 1)) * job->row_bytes;
                for (size_t k = 0; k < VECTORS; k++)
                    x[k] = (const float *)job_act(job, i + (k < n ? k : n - 1));
                tile(load16, bytes, row, job->n_cols, x, y);
                for (size_t k = 0; k < n; k++)
                    for (size_t j = 0; j < rows; j++)
                        job->y[(i + k) * job->ldy + r + j] = y[j][k];
            }
    }
}

void dot_f32_avx512(const struct dot_job *job)
{
    if (job->n_tok == 1)
        dot_f32_avx2(job);
    else
        job_float(job, load16_f32, 4);
}
void dot_f16_avx512(const struct dot_job *job)
{
    if (job->n_tok == 1)
        dot_f16_avx2(job);
    else
        job_float(job, load16_f16, 2);
}
void dot_bf16_avx512(const struct dot_job *job)
{
    if (job->n_tok == 1)
        dot_bf16_avx2(job);
    else
        job_float(job, load16_bf16, 2);
}
