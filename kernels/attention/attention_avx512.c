/* Attention for AVX-512. LANE8 is half a register, so a register holds two keys' lanes: a tile is
 * 1, 2 or 4 queries by as many pairs of keys as make eight accumulators. Values go sixteen channels
 * a register. */
#include "kernels/attention/attention_row.h"
#include "kernels/func/func_avx512.h"
#include "kernels/softmax/softmax_avx2.h"

enum { ACC = 8 }; /* accumulators of a tile of scores */

/* sixteen stored values at i */
INLINE __m512 load16(enum kv_type type, const char *row, size_t i)
{
    const char *at = row + i * (type == KV_F32 ? 4 : 2);

    if (type == KV_F16)
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at));
    if (type == KV_BF16)
        return _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at)), 16));
    return _mm512_loadu_ps(at);
}

/* the first n < 16 of them, the rest 0; no byte behind is touched */
INLINE __m512 load16_part(enum kv_type type, const char *row, size_t i, __mmask16 part)
{
    const char *at = row + i * (type == KV_F32 ? 4 : 2);

    if (type == KV_F16)
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(part, at));
    if (type == KV_BF16)
        return _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(part, at)), 16));
    return _mm512_maskz_loadu_ps(part, at);
}

/* eight values at i of row a, then eight of row b */
INLINE __m512 load_pair(enum kv_type type, const char *a, const char *b, size_t i)
{
    if (type == KV_F32)
        return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps((const float *)a + i)),
                                  _mm256_loadu_ps((const float *)b + i), 1);
    __m256i h = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(a + 2 * i))),
        _mm_loadu_si128((const __m128i *)(b + 2 * i)), 1);
    if (type == KV_F16)
        return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

INLINE __m512 load_pair_part(enum kv_type type, const char *a, const char *b, size_t i,
                             __mmask8 part)
{
    if (type == KV_F32)
        return _mm512_insertf32x8(
            _mm512_castps256_ps512(_mm256_maskz_loadu_ps(part, (const float *)a + i)),
            _mm256_maskz_loadu_ps(part, (const float *)b + i), 1);
    __m256i h =
        _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_maskz_loadu_epi16(part, a + 2 * i)),
                                _mm_maskz_loadu_epi16(part, b + 2 * i), 1);
    if (type == KV_F16)
        return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* The folds (LANE8) of both halves of eight registers: quarter 0 has the lower halves of a[0 ...
 * 3], quarter 1 their upper halves, quarters 2 and 3 those of a[4 ... 7]. */
INLINE __m512 fold8x16(const __m512 a[8])
{
    __m512 q[4], h[2];

    for (int i = 0; i < 4; i++) /* lanes l + l+4 */
        q[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a[i], a[i + 4], 0x88),
                             _mm512_shuffle_f32x4(a[i], a[i + 4], 0xDD));
    for (int i = 0; i < 2; i++) /* (0+4)+(2+6), (1+5)+(3+7) of two registers */
        h[i] = _mm512_add_ps(_mm512_shuffle_ps(q[2 * i], q[2 * i + 1], 0x44),
                             _mm512_shuffle_ps(q[2 * i], q[2 * i + 1], 0xEE));
    return _mm512_add_ps(_mm512_shuffle_ps(h[0], h[1], 0x88), _mm512_shuffle_ps(h[0], h[1], 0xDD));
}

/* s[query][j] = score of key first + j, j < count; up to 16/Q - 1 more entries are overwritten.
 * Pair x holds keys lower(x) and lower(x) + apart: chosen so that a fold's quarter is a run of
 * keys. */
INLINE void scores(enum kv_type type, const int Q, const struct attention_keys *a,
                   const float *const *q, size_t first, size_t count, float (*s)[ATTENTION_CHUNK])
{
    const int P = ACC / Q, K = 2 * P, apart = Q == 4 ? 2 : 4;
    const size_t hd = a->hd;

    for (size_t j = 0; j < count; j += (size_t)K) {
        const char *k[16];
        __m512 acc[ACC], r;
        size_t i = 0;

        for (int x = 0; x < K; x++) { /* past the end: the last key again */
            size_t at = j + (size_t)x < count ? j + (size_t)x : count - 1;
            k[x] = row_at(a->list, a->k, a->k_stride, first + at);
        }
        for (int x = 0; x < ACC; x++)
            acc[x] = _mm512_setzero_ps();
        for (; i + 8 <= hd; i += 8)
            for (int x = 0; x < P; x++) {
                const int lower = x < 4 ? x : x + 4;
                __m512 keys = load_pair(type, k[lower], k[lower + apart], i);
                for (int y = 0; y < Q; y++)
                    acc[y * P + x] = _mm512_fmadd_ps(
                        _mm512_broadcast_f32x8(_mm256_loadu_ps(q[y] + i)), keys, acc[y * P + x]);
            }
        if (i < hd) { /* lanes without a term keep their value */
            __mmask8 part = (__mmask8)((1u << (hd - i)) - 1);
            __mmask16 both = (__mmask16)(part | part << 8);

            for (int x = 0; x < P; x++) {
                const int lower = x < 4 ? x : x + 4;
                __m512 keys = load_pair_part(type, k[lower], k[lower + apart], i, part);
                for (int y = 0; y < Q; y++) {
                    __m512 in = _mm512_broadcast_f32x8(_mm256_maskz_loadu_ps(part, q[y] + i));
                    acc[y * P + x] = _mm512_mask3_fmadd_ps(in, keys, acc[y * P + x], both);
                }
            }
        }
        r = _mm512_mul_ps(fold8x16(acc), _mm512_set1_ps(a->scale));
        if (Q == 1) {
            _mm512_storeu_ps(&s[0][j], r);
        } else if (Q == 2) {
            _mm256_storeu_ps(&s[0][j], _mm512_castps512_ps256(r));
            _mm256_storeu_ps(&s[1][j], _mm512_extractf32x8_ps(r, 1));
        } else { /* quarters: (q0, q1) keys 0 1, keys 2 3, (q2, q3) likewise */
            __m128 part[4] = {_mm512_castps512_ps128(r), _mm512_extractf32x4_ps(r, 1),
                              _mm512_extractf32x4_ps(r, 2), _mm512_extractf32x4_ps(r, 3)};
            for (int y = 0; y < 4; y += 2) {
                _mm_storeu_ps(&s[y][j], _mm_movelh_ps(part[y], part[y + 1]));
                _mm_storeu_ps(&s[y + 1][j], _mm_movehl_ps(part[y + 1], part[y]));
            }
        }
    }
}

/* V registers of channels from `at` on (last: the mask of the last one): o[query][i] = CHAIN over
 * the keys from ... to-1 of this chunk; from > 0 goes on with what o holds. */
INLINE void band(enum kv_type type, const int Q, const int V, const struct attention_keys *a,
                 size_t first, size_t from, size_t to, float *const p[], float *const o[],
                 size_t at, int whole, __mmask16 last)
{
    __m512 acc[16];

    for (int y = 0; y < Q; y++)
        for (int x = 0; x < V; x++) {
            const float *old = o[y] + at + 16 * (size_t)x;
            acc[y * V + x] = !from   ? _mm512_setzero_ps()
                             : whole ? _mm512_loadu_ps(old)
                                     : _mm512_maskz_loadu_ps(last, old);
        }
    for (size_t j = from; j < to; j++) {
        const char *v = row_at(a->list, a->v, a->v_stride, first + j);

        for (int x = 0; x < V; x++) {
            __m512 value = whole ? load16(type, v, at + 16 * (size_t)x)
                                 : load16_part(type, v, at + 16 * (size_t)x, last);
            for (int y = 0; y < Q; y++)
                acc[y * V + x] = _mm512_fmadd_ps(_mm512_set1_ps(p[y][j]), value, acc[y * V + x]);
        }
    }
    for (int y = 0; y < Q; y++)
        for (int x = 0; x < V; x++) {
            if (whole)
                _mm512_storeu_ps(o[y] + at + 16 * (size_t)x, acc[y * V + x]);
            else
                _mm512_mask_storeu_ps(o[y] + at + 16 * (size_t)x, last, acc[y * V + x]);
        }
}

/* All channels: wide bands, then narrower ones. */
INLINE void values(enum kv_type type, const int Q, const struct attention_keys *a, size_t first,
                   size_t from, size_t to, float *const p[], float *const o[])
{
    const int V = Q == 1 ? 8 : 4;
    size_t dv = a->dv, i = 0;

    for (; i + 16 * (size_t)V <= dv; i += 16 * (size_t)V)
        band(type, Q, V, a, first, from, to, p, o, i, 1, 0);
    if (V > 4 && i + 64 <= dv) {
        band(type, Q, 4, a, first, from, to, p, o, i, 1, 0);
        i += 64;
    }
    if (i + 32 <= dv) {
        band(type, Q, 2, a, first, from, to, p, o, i, 1, 0);
        i += 32;
    }
    if (i + 16 <= dv) {
        band(type, Q, 1, a, first, from, to, p, o, i, 1, 0);
        i += 16;
    }
    if (i < dv)
        band(type, Q, 1, a, first, from, to, p, o, i, 0, (__mmask16)((1u << (dv - i)) - 1));
}

/* p_i = exp(x_i - m) and their SUM32: lanes 0 ... 15 and 16 ... 31 */
static inline float exps(const float *x, float m, float *p, size_t n)
{
    __m512 l[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()}, big = _mm512_set1_ps(m), sum;

    for (size_t i = 0; i < n; i += 16) {
        __mmask16 part = (__mmask16)(n - i < 16 ? (1u << (n - i)) - 1 : 0xFFFF);
        __m512 e = exp16(_mm512_sub_ps(_mm512_maskz_loadu_ps(part, x + i), big));

        _mm512_mask_storeu_ps(p + i, part, e);
        l[i / 16 % 2] = _mm512_mask_add_ps(l[i / 16 % 2], part, l[i / 16 % 2], e);
    }
    sum = _mm512_add_ps(l[0], l[1]);
    return fold8(_mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1)));
}

#define FORM attention_group_avx512
#define LARGEST max_avx2
#define EXPS exps
#include "kernels/attention/attention_walk.h"
