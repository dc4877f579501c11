/* Q3_K, blocked, with AVX-512; the block is described in kernels/dot/q3_k.c. */
#include "kernels/gemm/gemm.h"

enum { BLOCK_BYTES = 110, SUB_BLOCK = 16, WITH_MINS = 0, VALUES_SHIFT = 4 };

#include "kernels/gemm/a256_avx512_form.h"

static void open_unit(const struct rows *b, struct panel *x)
{
    __m512i s[4], high[16], c[16];

    turn16(b, 94, s); /* the last sixteen bytes */
    _mm512_store_ps(x->d, high_f16(s[3]));
    turn16(b, 92, s); /* in s[1..3]: eight bytes of low nibbles, four of high pairs */
    for (int i = 0; i < 4; i++) {
        __m512i pairs = i < 2 ? bits_left(s[3], 4 - 2 * i, 0x30) : bits_right(s[3], 2 * i - 4, 0x30);
        __m512i scale = or512(bits_right(s[1 + i % 2], 4 * (i / 2), 15), pairs);

        panel_scales(x, 4 * i, _mm512_sub_epi8(scale, _mm512_set1_epi8(32)));
    }
    turn64(b, 0, high); /* 32 bytes of third bits */
    turn64(b, 32, c);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 4; j++) {
            int bit = i / 8 * 4 + j; /* goes to bit 2 */
            __m512i third = bit < 2 ? bits_left(high[i % 8], 2 - bit, 4)
                                    : bits_right(high[i % 8], bit - 2, 4);

            panel_values(x, i / 8 * 32 + 8 * j + i % 8, or512(bits_right(c[i], 2 * j, 3), third));
        }
}

void gemm_q3_k_avx512(const struct dot_job *job)
{
    gemm_a256(job);
}
