/* F32, F16 and BF16 rows: plain arrays, widened exactly (ARITHMETIC.md rules 6 and 13). */
#include "kernels/dot/dot.h"
#include "kernels/num.h"

float widen_f32(const uint8_t *row, size_t i)
{
    return f32_canon(load_f32(row + 4 * i));
}

float widen_f16(const uint8_t *row, size_t i)
{
    return f16_to_f32(load_u16(row + 2 * i));
}

float widen_bf16(const uint8_t *row, size_t i)
{
    return bf16_to_f32(load_u16(row + 2 * i));
}
