/* NVFP4 with AVX2; the block is described in nvfp4.c. The four units of one block are the four
 * lanes of rule 12; each register holds two units, one in each half. */
#include "kernels/dot/avx2.h"
#include "kernels/dot/tables.h"

enum { BLOCK_BYTES = 36 };

/* two units' values in order, from their 16 bytes */
INLINE __m256i two_units(const uint8_t *p)
{
    __m128i v = load128(p), mask = _mm_set1_epi8(15);
    __m128i low = _mm_and_si128(v, mask), high = _mm_and_si128(_mm_srli_epi16(v, 4), mask);
    __m256i both = _mm256_setr_m128i(_mm_unpacklo_epi64(low, high), _mm_unpackhi_epi64(low, high));

    return _mm256_shuffle_epi8(table16(e2m1_values), both);
}

INLINE __m256i pair_sums(__m256i w, __m256i mag, const int8_t *q)
{
    __m256i v = _mm256_maddubs_epi16(mag, _mm256_sign_epi8(load256(q), w));

    return _mm256_madd_epi16(v, _mm256_set1_epi16(1));
}

INLINE void tile(const uint8_t *row, size_t n_blocks, const struct act *act, const int n_tok,
                 float *y)
{
    const float *half = (const float *)ue4m3_half_bits;
    __m128 p[8];

    for (int i = 0; i < n_tok; i++)
        p[i] = _mm_setzero_ps();
    for (size_t k = 0; k < n_blocks; k++) {
        const uint8_t *b = row + k * BLOCK_BYTES;
        __m256i w0 = two_units(b + 4), w1 = two_units(b + 20);
        __m256i m0 = _mm256_abs_epi8(w0), m1 = _mm256_abs_epi8(w1);
        __m128 d = _mm_setr_ps(half[b[0]], half[b[1]], half[b[2]], half[b[3]]);

        _mm_prefetch((const char *)b + PREFETCH_AHEAD, _MM_HINT_T1);
        for (int i = 0; i < n_tok; i++) {
            __m256i a = pair_sums(w0, m0, act[i].q + 64 * k);
            __m256i c = pair_sums(w1, m1, act[i].q + 64 * k + 32);
            __m256i s = _mm256_hadd_epi32(a, c); /* units 0 0 2 2 | 1 1 3 3 */
            __m128 da = _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(act[i].d + 2 * k)));

            s = _mm256_hadd_epi32(s, s); /* 0 2 0 2 | 1 3 1 3 */
            p[i] = _mm_fmadd_ps(_mm_mul_ps(d, _mm_unpacklo_ps(da, da)),
                                _mm_cvtepi32_ps(_mm_unpacklo_epi32(_mm256_castsi256_si128(s),
                                                                   _mm256_extracti128_si256(s, 1))),
                                p[i]);
        }
    }
    for (int i = 0; i < n_tok; i++)
        y[i] = f32_canon(fold_lanes(p[i]) + 0.0f);
}

void dot_nvfp4_avx2(const struct dot_job *job)
{
    for (size_t i0 = 0; i0 < job->n_tok; i0 += TOKENS_CACHED) {
        size_t i1 = i0 + TOKENS_CACHED < job->n_tok ? i0 + TOKENS_CACHED : job->n_tok;

        for (size_t r = 0; r < job->n_rows; r++)
            for (size_t i = i0; i < i1;) {
                size_t real = i1 - i < 4 ? 1 : 4;
                struct act act[4];
                float y[4];

                for (size_t k = 0; k < real; k++)
                    act[k] = act_parts(ACT_A32, job_act(job, i + k), job->n_cols);
                if (real == 4)
                    tile(job->w + r * job->row_bytes, job->n_cols / 64, act, 4, y);
                else
                    tile(job->w + r * job->row_bytes, job->n_cols / 64, act, 1, y);
                for (size_t k = 0; k < real; k++)
                    job->y[(i + k) * job->ldy + r] = y[k];
                i += real;
            }
    }
}
