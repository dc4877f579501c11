/* F32, F16 and BF16 rows with AVX2 (ARITHMETIC.md rule 13): the 32 lanes of SUM32 are four
 * registers, lane i of the definition in part i % 8 of register i / 8. */
#include "kernels/dot/avx2.h"

typedef __m256 load8_fn(const uint8_t *row, size_t i);

INLINE __m256 load8_f32(const uint8_t *row, size_t i)
{
    return _mm256_loadu_ps((const float *)(row + 4 * i));
}
INLINE __m256 load8_f16(const uint8_t *row, size_t i)
{
    return _mm256_cvtph_ps(load128(row + 2 * i));
}
INLINE __m256 load8_bf16(const uint8_t *row, size_t i)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(row + 2 * i)), 16));
}

/* halving tree from 32 to one */
INLINE float fold32(const __m256 l[4])
{
    __m256 v = _mm256_add_ps(_mm256_add_ps(l[0], l[2]), _mm256_add_ps(l[1], l[3]));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

/* n_rows rows times n_tok vectors; the tail is padded with zeros on both sides (rule 4) */
INLINE void tile(load8_fn *load8, const size_t bytes, const uint8_t *row, size_t row_bytes,
                 const int n_rows, size_t n, const float *const *x, const int n_tok, float *y)
{
    __m256 l[4][4];
    size_t i = 0;

    for (int k = 0; k < n_rows * n_tok; k++)
        for (int j = 0; j < 4; j++)
            l[k][j] = _mm256_setzero_ps();
    for (; i + 32 <= n; i += 32) {
        for (int r = 0; r < n_rows; r++) {
            const uint8_t *p = row + (size_t)r * row_bytes;

            for (size_t o = 0; o < 32 * bytes; o += 64)
                _mm_prefetch((const char *)p + bytes * i + PREFETCH_AHEAD + o, _MM_HINT_T0);
            for (int j = 0; j < 4; j++) {
                __m256 w = load8(p, i + 8 * (size_t)j);

                for (int k = 0; k < n_tok; k++)
                    l[r * n_tok + k][j] =
                        _mm256_fmadd_ps(w, _mm256_loadu_ps(x[k] + i + 8 * (size_t)j),
                                        l[r * n_tok + k][j]);
            }
        }
    }
    if (i < n) {
        for (int r = 0; r < n_rows; r++) {
            uint8_t wt[32 * 4] = {0};

            memcpy(wt, row + (size_t)r * row_bytes + bytes * i, bytes * (n - i));
            for (int k = 0; k < n_tok; k++) {
                float xt[32] = {0};

                memcpy(xt, x[k] + i, (n - i) * sizeof *xt);
                for (int j = 0; j < 4; j++)
                    l[r * n_tok + k][j] = _mm256_fmadd_ps(
                        load8(wt, 8 * (size_t)j), _mm256_loadu_ps(xt + 8 * j), l[r * n_tok + k][j]);
            }
        }
    }
    for (int k = 0; k < n_rows * n_tok; k++)
        y[k] = f32_canon(fold32(l[k]) + 0.0f);
}

/* tiles of two rows and one vector, or of one row and two vectors */
INLINE void job_float(const struct dot_job *job, load8_fn *load8, const size_t bytes)
{
    for (size_t i0 = 0; i0 < job->n_tok; i0 += TOKENS_CACHED) {
        size_t i1 = i0 + TOKENS_CACHED < job->n_tok ? i0 + TOKENS_CACHED : job->n_tok;
        size_t step = i1 - i0 == 1 ? 2 : 1;

        for (size_t r = 0; r < job->n_rows; r += step) {
            const uint8_t *row = job->w + r * job->row_bytes;
            size_t i = i0;

            for (; i + 2 <= i1; i += 2) {
                const float *x[2] = {(const float *)job_act(job, i),
                                     (const float *)job_act(job, i + 1)};
                float y[2];

                tile(load8, bytes, row, job->row_bytes, 1, job->n_cols, x, 2, y);
                job->y[i * job->ldy + r] = y[0];
                job->y[(i + 1) * job->ldy + r] = y[1];
            }
            if (i < i1) {
                const float *x = (const float *)job_act(job, i);
                float *y = job->y + i * job->ldy + r;

                if (step == 2 && r + 1 < job->n_rows)
                    tile(load8, bytes, row, job->row_bytes, 2, job->n_cols, &x, 1, y);
                else
                    tile(load8, bytes, row, job->row_bytes, 1, job->n_cols, &x, 1, y);
            }
        }
    }
}

void dot_f32_avx2(const struct dot_job *job)
{
    job_float(job, load8_f32, 4);
}
void dot_f16_avx2(const struct dot_job *job)
{
    job_float(job, load8_f16, 2);
}
void dot_bf16_avx2(const struct dot_job *job)
{
    job_float(job, load8_bf16, 2);
}
