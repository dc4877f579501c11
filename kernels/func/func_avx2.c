/* The functions eight at a time; a tail goes through the same lanes under a mask. */
#include "kernels/func/func_avx2.h"
#include "kernels/func/func.h"

#define VEC(name, lanes)                                                                           \
    void name(const float *x, float *y, size_t n)                                                  \
    {                                                                                              \
        size_t i = 0;                                                                              \
                                                                                                   \
        for (; i + 8 <= n; i += 8)                                                                 \
            _mm256_storeu_ps(y + i, canon8(lanes(_mm256_loadu_ps(x + i))));                        \
        if (i < n) {                                                                               \
            __m256i tail = first8(n - i);                                                          \
            _mm256_maskstore_ps(y + i, tail, canon8(lanes(_mm256_maskload_ps(x + i, tail))));      \
        }                                                                                          \
    }

VEC(vec_exp_avx2, exp8)
VEC(vec_softplus_avx2, softplus8)
VEC(vec_sigmoid_avx2, sigmoid8)
VEC(vec_silu_avx2, silu8)
VEC(vec_tanh_avx2, tanh8)

static inline __m256 swiglu8(__m256 g, __m256 u)
{
    return canon8(_mm256_mul_ps(silu8(g), u));
}

static void swiglu(const float *g, const float *u, float *h, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(h + i, swiglu8(_mm256_loadu_ps(g + i), _mm256_loadu_ps(u + i)));
    if (i < n) {
        __m256i tail = first8(n - i);
        _mm256_maskstore_ps(
            h + i, tail, swiglu8(_mm256_maskload_ps(g + i, tail), _mm256_maskload_ps(u + i, tail)));
    }
}

void clamp_swiglu_avx2(const float *g, const float *u, float limit, float *h, size_t n)
{
    __m256 hi = _mm256_set1_ps(limit), lo = _mm256_set1_ps(-limit);
    size_t i = 0;

    if (!(limit > 0.0f)) {
        swiglu(g, u, h, n);
        return;
    }
    for (; i < n; i += 8) {
        __m256i part = first8(n - i);
        __m256 a = _mm256_min_ps(hi, _mm256_maskload_ps(g + i, part));
        __m256 b = clamp8(_mm256_maskload_ps(u + i, part), lo, hi);

        _mm256_maskstore_ps(h + i, part, swiglu8(a, b));
    }
}
