/* Number formats: every f16 and bf16, their neighbours and halves on the way back, and the
 * processor's own conversions where it has them. */
#include "kernels/cpu.h"
#include "kernels/num.h"
#include "tests/test.h"
#include <math.h>

/* value of an f16 by its definition, in doubles */
static double f16_value(unsigned h)
{
    int exp = h >> 10 & 31, man = h & 1023;
    double v = exp ? ldexp(1024 + man, exp - 25) : ldexp(man, -24);

    return h & 0x8000 ? -v : v;
}

static void check_f16(void)
{
    size_t wide = 0, back = 0, halves = 0;

    for (unsigned h = 0; h < 0x10000; h++) {
        float f = f16_to_f32((uint16_t)h);

        if ((h & 0x7FFF) > 0x7C00) {
            wide += f32_bits(f) != F32_NAN_BITS;
            back += f32_to_f16(f) != 0x7E00;
            continue;
        }
        if ((h & 0x7FFF) == 0x7C00)
            wide += f32_bits(f) != (h & 0x8000 ? 0xFF800000 : 0x7F800000);
        else
            wide += f != f16_value(h) || !signbit(f) != !(h >> 15);
        back += f32_to_f16(f) != h;
        if ((h & 0x7FFF) >= 0x7BFF) /* no finite neighbour above */
            continue;
        float next = f16_to_f32((uint16_t)(h + 1)), mid = f + (next - f) / 2; /* exact */
        halves += f32_to_f16(mid) != h + (h & 1);
        halves += f32_to_f16(nextafterf(mid, f)) != h;
        halves += f32_to_f16(nextafterf(mid, next)) != h + 1;
    }
    CHECK(!wide, "%zu f16 widen wrongly", wide);
    CHECK(!back, "%zu f16 do not come back", back);
    CHECK(!halves, "%zu roundings at a half are wrong", halves);
    CHECK_EQ(f32_to_f16(65519.996f), 0x7BFF);
    CHECK_EQ(f32_to_f16(65520.0f), 0x7C00);
    CHECK_EQ(f32_to_f16(-1e30f), 0xFC00);
    CHECK_EQ(f32_to_f16(0x1p-25f), 0); /* half of the smallest, to even */
    CHECK_EQ(f32_to_f16(-0x1.8p-25f), 0x8001);
    CHECK_EQ(f32_to_f16(f32_from_bits(0xFF800001)), 0x7E00);
}

static void check_bf16(void)
{
    size_t bad = 0;

    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = bf16_to_f32((uint16_t)h);

        if ((h & 0x7FFF) > 0x7F80) {
            bad += f32_bits(f) != F32_NAN_BITS || f32_to_bf16(f) != 0x7FC0;
            continue;
        }
        bad += f32_bits(f) != h << 16 || f32_to_bf16(f) != h;
        if ((h & 0x7FFF) >= 0x7F80)
            continue;
        bad += f32_to_bf16(f32_from_bits(h << 16 | 0x7FFF)) != h;
        bad += f32_to_bf16(f32_from_bits(h << 16 | 0x8000)) != h + (h & 1);
        bad += f32_to_bf16(f32_from_bits(h << 16 | 0x8001)) != h + 1;
    }
    CHECK(!bad, "%zu bf16 conversions are wrong", bad);
}

int main(void)
{
    cpu_float_state();
    check_f16();
    check_bf16();
    CHECK_EQ(f32_bits(f32_canon(f32_from_bits(0xFFF00001))), F32_NAN_BITS);
    CHECK_EQ(f32_bits(f32_canon(-0.0f)), 0x80000000);
    CHECK(cpu_level() <= cpu_has(), "the environment raised the level");
    return test_end();
}
