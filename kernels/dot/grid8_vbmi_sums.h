/* The sums of grid8_vbmi.h, included after a type's definitions. */
#include "kernels/dot/grid8_vbmi.h"

/* a unit of a vector */
struct turned {
    int8_t q[8][64];
    union {
        int16_t sum[32];   /* SUB_BLOCK 16: of two entries */
        int32_t minus[16]; /* 32: of four entries, times -OFFSET */
    };
};

/* Levels 8, 25, 43 with a sign, OFFSET added, for an index of six bits. Values 0 and 1 of four: their
 * levels in bits 0..3, their signs in 4 and 5; values 2 and 3: levels in 2..5, signs in 0 and 1. */
enum { OFFSET = 43 };
#define SIZE(level) ((level) == 0 ? 8 : (level) == 1 ? 25 : (level) == 2 ? 43 : 0)
#define VALUE(level, sign) (OFFSET + ((sign) & 1 ? -SIZE((level) & 3) : SIZE((level) & 3)))
#define VALUE_0(i) VALUE((i), (i) >> 4)
#define VALUE_1(i) VALUE((i) >> 2, (i) >> 5)
#define VALUE_2(i) VALUE((i) >> 2, (i))
#define VALUE_3(i) VALUE((i) >> 4, (i) >> 1)
static const _Alignas(64) uint8_t value_of[4][64] = {
    {SIXTY_FOUR(VALUE_0)}, {SIXTY_FOUR(VALUE_1)}, {SIXTY_FOUR(VALUE_2)}, {SIXTY_FOUR(VALUE_3)}};

INLINE void turn(const struct act *act, size_t u, struct turned *t)
{
    const __m512i by_value = _mm512_set_epi64(
        0x3F372F271F170F07, 0x3E362E261E160E06, 0x3D352D251D150D05, 0x3C342C241C140C04,
        0x3B332B231B130B03, 0x3A322A221A120A02, 0x3931292119110901, 0x3830282018100800);
    const __m512i twice = _mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3);
    __m256i sum = load256((const int16_t *)act->sum + 16 * u);
    __m512i v[2][4]; /* [h][i] part j: value 2j + h of entries 8i.., twice */

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512i x = _mm512_permutexvar_epi8(by_value, load512(act->q + 256 * u + 64 * i));

        v[0][i] = _mm512_unpacklo_epi64(x, x);
        v[1][i] = _mm512_unpackhi_epi64(x, x);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        __m512i a = _mm512_shuffle_i32x4(v[h][0], v[h][1], 0x44);
        __m512i b = _mm512_shuffle_i32x4(v[h][2], v[h][3], 0x44);
        __m512i c = _mm512_shuffle_i32x4(v[h][0], v[h][1], 0xEE);
        __m512i d = _mm512_shuffle_i32x4(v[h][2], v[h][3], 0xEE);

        _mm512_store_si512(t->q[h], _mm512_shuffle_i32x4(a, b, 0x88));
        _mm512_store_si512(t->q[2 + h], _mm512_shuffle_i32x4(a, b, 0xDD));
        _mm512_store_si512(t->q[4 + h], _mm512_shuffle_i32x4(c, d, 0x88));
        _mm512_store_si512(t->q[6 + h], _mm512_shuffle_i32x4(c, d, 0xDD));
    }
    if (SUB_BLOCK == 32)
        sum = _mm256_madd_epi16(sum, _mm256_set1_epi16(-OFFSET));
    _mm512_store_si512(t->sum, _mm512_permutexvar_epi64(twice, _mm512_castsi256_si512(sum)));
}

/* S of x's rows and n_tok vectors: four numbers a row to be added, the first row's in the low half
 * of every part. Opens what comes next meanwhile. */
INLINE void sums(const struct opened *x, struct opened *next, const struct turned *const t[],
                 const int n_tok, __m512i *acc)
{
    __m512i minus = _mm512_mullo_epi16(x->scale, _mm512_set1_epi16(-OFFSET));
    __m512i signs = _mm512_setzero_si512();

    for (int k = 0; k < n_tok; k++)
        acc[k] = SUB_BLOCK == 32 ? load512(t[k]->minus)
                                 : _mm512_madd_epi16(minus, load512(t[k]->sum));
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        __m512i v = x->levels[j / 2];

        if (j % 2 == 0) { /* signs of four values to bits 4, 5, 0, 1: byte 7 - i of the matrix makes bit i */
            const __m512i matrix = _mm512_set1_epi64(
                (long long)((uint64_t)sign_rule(2 * j) << 24 | (uint64_t)sign_rule(2 * j + 1) << 16 |
                            (uint64_t)sign_rule(2 * j + 2) << 56 | (uint64_t)sign_rule(2 * j + 3) << 48));

            signs = _mm512_gf2p8affine_epi64_epi8(x->signs, matrix, 0);
        }
        v = j % 2 ? one_or_other(_mm512_srli_epi16(v, 2), signs, _mm512_set1_epi8(0x3C))
                  : one_or_other(v, signs, _mm512_set1_epi8(0x0F));
        open_part(next, j);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            __m512i w = _mm512_permutexvar_epi8(v, load512(value_of[j % 2 * 2 + i]));

            for (int k = 0; k < n_tok; k++) {
                __m512i q = load512(t[k]->q[2 * j + i]);

                acc[k] = SUB_BLOCK == 32
                             ? _mm512_dpbusd_epi32(acc[k], w, q)
                             : _mm512_dpwssd_epi32(acc[k], _mm512_maddubs_epi16(w, q), x->scale);
            }
        }
    }
    for (int k = 0; k < n_tok && SUB_BLOCK == 32; k++)
        acc[k] = _mm512_mullo_epi32(acc[k], x->scale);
}

/* the sums of sixteen rows, in order */
INLINE __m512i fold16(const __m512i acc[8])
{
    __m512i v[4];

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512 a = _mm512_castsi512_ps(acc[2 * i]), b = _mm512_castsi512_ps(acc[2 * i + 1]);

        v[i] = _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88)),
                                _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xDD)));
    }
    return sum_parts(v[0], v[1], v[2], v[3]);
}
