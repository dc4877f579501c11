/* Few places among many values: eight values at a time against the worst of the list. A row that
 * keeps improving the list (an ascending one) is left to selection by digits. */
#include "kernels/topk/topk.h"
#include "kernels/topk/topk_list.h"

#include <immintrin.h>

/* order_key of eight values */
static inline __m256i key8(__m256 v)
{
    __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    __m256i b = _mm256_castps_si256(_mm256_add_ps(v, _mm256_setzero_ps()));
    __m256i neg = _mm256_srai_epi32(b, 31);

    b = _mm256_xor_si256(b, _mm256_and_si256(neg, _mm256_set1_epi32(0x7FFFFFFF)));
    return _mm256_blendv_epi8(b, _mm256_set1_epi32(INT32_MIN), _mm256_castps_si256(nan));
}

void order_topk_avx2(const float *v, uint32_t n, uint32_t k, uint32_t *idx)
{
    uint32_t i = k, inserts_left = 16 * k; /* a random order of 10^6 values needs 11 k */
    int32_t worst;

    if (!k)
        return;
    order_topk_few(v, k, k, idx);
    worst = order_key(v[idx[k - 1]]);
    for (; n - i >= 8; i += 8) {
        __m256i better = _mm256_cmpgt_epi32(key8(_mm256_loadu_ps(v + i)), _mm256_set1_epi32(worst));
        unsigned mask = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(better));

        for (; mask; mask &= mask - 1) {
            uint32_t at = i + (uint32_t)__builtin_ctz(mask);

            if (order_key(v[at]) <= worst)
                continue; /* the list has become better since */
            if (!inserts_left--) {
                order_topk_many(v, n, k, idx);
                return;
            }
            list_insert(v, at, idx, k - 1);
            worst = order_key(v[idx[k - 1]]);
        }
    }
    for (; i < n; i++)
        if (order_key(v[i]) > order_key(v[idx[k - 1]]))
            list_insert(v, i, idx, k - 1);
}
