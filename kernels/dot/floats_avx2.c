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

/* n_rows rows times one vector; the tail is padded with zeros on both sides (rule 4). next: how far
 * the rows that follow are, 0: none. */
INLINE void tile(load8_fn *load8, const size_t bytes, const uint8_t *row, size_t row_bytes,
                 const int n_rows, size_t n, const float *x, size_t next, float *y)
{
    __m256 l[3][4];
    size_t i = 0;

    for (int r = 0; r < n_rows; r++)
        for (int j = 0; j < 4; j++)
            l[r][j] = _mm256_setzero_ps();
    for (; i + 32 <= n; i += 32)
        for (int r = 0; r < n_rows; r++) {
            const uint8_t *p = row + (size_t)r * row_bytes;

            if (next)
                for (size_t o = 0; o < 32 * bytes; o += 64)
                    _mm_prefetch((const char *)p + bytes * i + next + o, _MM_HINT_T1);
            for (size_t j = 0; j < 4; j++)
                l[r][j] =
                    _mm256_fmadd_ps(load8(p, i + 8 * j), _mm256_loadu_ps(x + i + 8 * j), l[r][j]);
        }
    if (i < n) {
        float xt[32] = {0};

        memcpy(xt, x + i, (n - i) * sizeof *xt);
        for (int r = 0; r < n_rows; r++) {
            uint8_t wt[32 * 4] = {0};

            memcpy(wt, row + (size_t)r * row_bytes + bytes * i, bytes * (n - i));
            for (size_t j = 0; j < 4; j++)
                l[r][j] = _mm256_fmadd_ps(load8(wt, 8 * j), _mm256_loadu_ps(xt + 8 * j), l[r][j]);
        }
    }
    for (int r = 0; r < n_rows; r++)
        y[r] = f32_canon(fold32(l[r]) + 0.0f);
}

/* Three rows go together, whose sums fill twelve registers: vectors come from the second cache
 * level, so that each of their loads should serve several rows, while the rows stay in the first.
 */
INLINE void job_float(const struct dot_job *job, load8_fn *load8, const size_t bytes)
{
    for (size_t i0 = 0; i0 < job->n_tok; i0 += TOKENS_CACHED) {
        size_t i1 = i0 + TOKENS_CACHED < job->n_tok ? i0 + TOKENS_CACHED : job->n_tok;

        for (size_t r = 0; r < job->n_rows;) {
            const uint8_t *row = job->w + r * job->row_bytes;
            size_t left = job->n_rows - r, next = left >= 6 ? 3 * job->row_bytes : 0;

            for (size_t i = i0; i < i1; i++) {
                const float *x = (const float *)job_act(job, i);
                float *y = job->y + i * job->ldy + r;

                if (left >= 3)
                    tile(load8, bytes, row, job->row_bytes, 3, job->n_cols, x, i == i0 ? next : 0,
                         y);
                else if (left == 2)
                    tile(load8, bytes, row, job->row_bytes, 2, job->n_cols, x, i == i0 ? next : 0,
                         y);
                else
                    tile(load8, bytes, row, job->row_bytes, 1, job->n_cols, x, i == i0 ? next : 0,
                         y);
            }
            r += left < 3 ? left : 3;
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
