/* Rule 8 on a card against the definition, byte for byte: q, d and sums of both units, with ties,
 * every exponent, subnormals, zeros, NaN and infinities (rule 36). */
#include "tests/cuda.h"
extern "C" {
#include "kernels/cpu.h"
#include "kernels/dot/rows.h"
#include "kernels/num.h"
#include "kernels/quantise/quantise.h"
#include "kernels/quantise/quantise_cuda.h"
}
#include <math.h>

static void fill(struct rng *g, float *x, size_t n)
{
    static const uint32_t special[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0xFF800001, 0x80000000,
                                       1,          0x7F7FFFFF, 0x0D800000, 0x0D7FFFFF};

    for (size_t i = 0; i < n; i += 32) {
        int exp = (int)(rng_u32(g) % 253) - 126, kind = (int)(rng_u32(g) % 8);

        for (size_t j = i; j < i + 32; j++)
            x[j] = kind == 0   ? f32_from_bits(rng_u32(g) & 0xFEFFFFFF)
                   : kind == 1 ? (float)((int)(rng_u32(g) % 255) - 127) * 0.5f
                   : kind == 2 ? 0.0f
                               : ldexpf(rng_gauss(g), exp);
        if (rng_u32(g) % 24 == 0)
            x[i + rng_u32(g) % 32] = f32_from_bits(special[rng_u32(g) % 9]);
    }
}

/* padding bytes mean nothing: only the parts are compared */
static size_t differ(enum act_form form, const unsigned char *a, const unsigned char *b, size_t n)
{
    size_t unit = form == ACT_A32 ? 32 : 256, sums = form == ACT_A32 ? n / 32 * 4 : n / 16 * 2;

    if (form == ACT_F32)
        return memcmp(a, b, 4 * n) != 0;
    return (memcmp(a, b, n) != 0) + (memcmp(a + act_d_at(n), b + act_d_at(n), n / unit * 4) != 0) +
           (memcmp(a + act_sum_at(form, n), b + act_sum_at(form, n), sums) != 0);
}

static void check(enum act_form form, size_t n, size_t n_vec, size_t extra, struct rng *g)
{
    size_t stride = act_stride(form, n), ldx = n + extra, bad = 0;
    float *x = (float *)calloc(n_vec * ldx, sizeof *x), *dx;
    unsigned char *want = (unsigned char *)aligned_alloc(64, stride);
    unsigned char *got = (unsigned char *)malloc(n_vec * stride), *dout;

    for (size_t i = 0; i < n_vec; i++)
        fill(g, x + i * ldx, n / 32 * 32);
    dx = (float *)cuda_copy(x, n_vec * ldx * sizeof *x);
    dout = (unsigned char *)cuda_room(n_vec * stride);
    CUDA_OK(act_prepare_cuda(form, dx, ldx, n, n_vec, dout, stride, NULL));
    cuda_back(got, dout, n_vec * stride);
    for (size_t i = 0; i < n_vec; i++) {
        act_prepare(form, x + i * ldx, n, want);
        bad += differ(form, want, got + i * stride, n);
    }
    CHECK(!bad, "form %d, %zu values, %zu vectors: %zu parts differ", form, n, n_vec, bad);
    CUDA_OK(cudaFree(dx));
    CUDA_OK(cudaFree(dout));
    free(x);
    free(want);
    free(got);
}

int main(void)
{
    static const size_t units[] = {1, 2, 3, 4, 5, 7, 8, 19, 64};
    struct rng g = {8};

    if (!cuda_card())
        return test_end();
    cpu_float_state();
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        check(ACT_A256, 256 * units[i], 1 + i % 5, i % 3 ? 0 : 8, &g);
        check(ACT_A32, 32 * units[i], 1 + i % 4, i % 2 ? 0 : 4, &g);
        check(ACT_F32, 33 * units[i], 3, i, &g);
    }
    check(ACT_A256, 256 * 16, 500, 0, &g);
    check(ACT_A32, 4096, 500, 0, &g);
    return test_end();
}
