/* The fused expert against the rules written out, and against itself with the rows cut. */
#include "kernels/cpu.h"
#include "kernels/dot/dot.h"
#include "kernels/dot/rows.h"
#include "kernels/expert/expert.h"
#include "kernels/func/func.h"
#include "kernels/num.h"
#include "kernels/quantise/quantise.h"
#include "tests/test.h"
#include <stdlib.h>

enum { COLS = 256, ROWS = 64, TOKENS = 5 };

static struct expert_part make_part(struct rng *g, uint32_t type, size_t rows, size_t cols,
                                    float scale)
{
    const struct type_info *t = type_info(type);
    size_t bytes = cols / t->block_values * t->block_bytes;
    uint8_t *w = malloc(rows * bytes);

    for (size_t i = 0; i < rows * bytes; i++)
        w[i] = (uint8_t)rng_u32(g);
    for (size_t b = 0; t->block_values > 1 && b < rows * bytes / t->block_bytes; b++)
        block_set_scale(type, w + b * t->block_bytes, 0x1400, 0x1500);
    for (size_t i = 0; type == W_F16 && i < rows * bytes; i += 2)
        w[i + 1] = (uint8_t)((w[i + 1] & 0x83) | 0x28);
    return (struct expert_part){type, w, bytes, scale};
}

static float clamp_low(float x, float hi)
{
    return x > hi ? hi : x;
}

static void check(uint32_t gate_type, uint32_t up_type, float gate_scale, float limit,
                  struct rng *g)
{
    struct expert_part gate = make_part(g, gate_type, ROWS, COLS, gate_scale);
    struct expert_part up = make_part(g, up_type, ROWS, COLS, 1);
    enum act_form fg = type_info(gate_type)->act, fu = type_info(up_type)->act;
    size_t sg = act_stride(fg, COLS), su = act_stride(fu, COLS), bad = 0, cut_bad = 0;
    unsigned char *ag = aligned_alloc(64, TOKENS * sg), *au = aligned_alloc(64, TOKENS * su);
    float tmp[2 * TOKENS * ROWS], h[TOKENS * (ROWS + 1)], cut[TOKENS * ROWS], x[COLS];
    uint32_t idx[TOKENS] = {4, 0, 2, 2, 1};

    for (size_t i = 0; i < TOKENS; i++) {
        for (size_t j = 0; j < COLS; j++)
            x[j] = i == 1 && j == 3 ? f32_from_bits(0x7F800000) : rng_gauss(g);
        act_prepare(fg, x, COLS, ag + i * sg);
        act_prepare(fu, x, COLS, au + i * su);
    }
    const unsigned char *for_up = fu == fg ? ag : au; /* one pointer, as a caller with one form has it */

    expert_gate_up(&gate, &up, COLS, 0, ROWS, ag, sg, for_up, su, idx, TOKENS, limit, tmp, h, ROWS + 1);
    for (size_t i = 0; i < TOKENS; i++)
        for (size_t r = 0; r < ROWS; r++) {
            float a = dot_row(dot_type(gate_type), (const uint8_t *)gate.w + r * gate.row_bytes,
                              COLS, ag + idx[i] * sg);
            float b = dot_row(dot_type(up_type), (const uint8_t *)up.w + r * up.row_bytes, COLS,
                              au + idx[i] * su);
            float want;

            a *= gate_scale;
            if (limit > 0) {
                a = clamp_low(a, limit);
                b = clamp_low(b < -limit ? -limit : b, limit);
            }
            want = f_silu(a) * b;
            bad += f32_bits(f32_canon(h[i * (ROWS + 1) + r])) != f32_bits(f32_canon(want));
        }
    CHECK(!bad, "%s/%s, limit %g: %zu values differ", type_info(gate_type)->name,
          type_info(up_type)->name, limit, bad);
    for (size_t r = 0; r < ROWS; r += 13) { /* uneven pieces */
        size_t end = r + 13 < ROWS ? r + 13 : ROWS;

        expert_gate_up(&gate, &up, COLS, r, end, ag, sg, for_up, su, idx, TOKENS, limit, tmp, cut,
                       end - r);
        for (size_t i = 0; i < TOKENS; i++)
            cut_bad += memcmp(cut + i * (end - r), h + i * (ROWS + 1) + r, (end - r) * 4) != 0;
    }
    CHECK(!cut_bad, "rows cut: %zu pieces differ", cut_bad);
    free(ag);
    free(au);
    free((void *)gate.w);
    free((void *)up.w);
}

static void check_down(uint32_t type, float scale, struct rng *g)
{
    struct expert_part down = make_part(g, type, ROWS, COLS, scale);
    enum act_form form = type_info(type)->act;
    size_t stride = act_stride(form, COLS), bad = 0;
    unsigned char *acts = aligned_alloc(64, TOKENS * stride);
    float y[TOKENS * ROWS], x[COLS];

    for (size_t i = 0; i < TOKENS; i++) {
        for (size_t j = 0; j < COLS; j++)
            x[j] = rng_gauss(g);
        act_prepare(form, x, COLS, acts + i * stride);
    }
    expert_down(&down, COLS, 5, ROWS, acts, stride, TOKENS, y, ROWS);
    for (size_t i = 0; i < TOKENS; i++)
        for (size_t r = 5; r < ROWS; r++) {
            float want = dot_row(dot_type(type), (const uint8_t *)down.w + r * down.row_bytes, COLS,
                                 acts + i * stride);
            bad += f32_bits(y[i * ROWS + r - 5]) != f32_bits(f32_canon(want * scale));
        }
    CHECK(!bad, "down %s, scale %g: %zu values differ", type_info(type)->name, scale, bad);
    free(acts);
    free((void *)down.w);
}

int main(void)
{
    struct rng g = {19};

    cpu_float_state();
    check(W_Q4_K, W_Q4_K, 1, 0, &g);
    check(W_Q4_K, W_Q6_K, 0.3f, 0.5f, &g);
    check(W_Q8_0, W_Q5_K, -2, 7, &g);
    check(W_F16, W_Q8_0, 1, 1, &g);
    check(W_IQ2_XS, W_IQ2_XS, 0.5f, 7, &g);
    check(W_IQ3_S, W_IQ3_S, 1, 0, &g);
    check_down(W_Q6_K, 1, &g);
    check_down(W_Q8_0, 0.7f, &g);
    check_down(W_F16, f32_from_bits(0x7FC00001), &g);
    return test_end();
}
