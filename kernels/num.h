/* Number formats (ARITHMETIC.md rules 1, 4 and 6): exact widening, rounding to nearest even,
 * subnormals kept, every NaN canonical. Plain C: the definition that the AVX forms are held to. */
#pragma once
#include <stdint.h>
#include <string.h>

#define F32_NAN_BITS 0x7FC00000u

static inline float f32_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
static inline uint32_t f32_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}
/* a NaN as it is stored (rule 4); everything else unchanged */
static inline float f32_canon(float f)
{
    return f == f ? f : f32_from_bits(F32_NAN_BITS);
}

/* unaligned little-endian loads: blocks in a file are aligned to nothing */
static inline uint16_t load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint32_t load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint64_t load_u64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline float load_f32(const void *p)
{
    return f32_from_bits(load_u32(p));
}

static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = (h >> 10) & 31, man = h & 0x3FF;

    if (exp == 31)
        return f32_from_bits(man ? F32_NAN_BITS : sign | 0x7F800000u);
    if (exp == 0) { /* man * 2^-24, exact: both factors and the product are normal f32 or zero */
        float v = (float)man * 0x1p-24f;
        return f32_from_bits(sign | f32_bits(v));
    }
    return f32_from_bits(sign | (exp + 112) << 23 | man << 13);
}
static inline uint16_t f32_to_f16(float f)
{
    uint32_t bits = f32_bits(f), sign = (bits >> 16) & 0x8000, mag = bits & 0x7FFFFFFFu;

    if (mag > 0x7F800000u)
        return 0x7E00;
    if (mag >= 0x477FF000u) /* 65520 and above: rounds to 2^16, which f16 calls infinity */
        return (uint16_t)(sign | 0x7C00);
    if (mag < 0x38800000u) { /* below 2^-14: a multiple of 2^-24, rounded by the addition's ulp */
        uint32_t r = f32_bits(f32_from_bits(mag) + 0.5f) - 0x3F000000u;
        return (uint16_t)(sign | r);
    }
    mag += 0xFFF + ((mag >> 13) & 1); /* nearest even on the 13 bits that go; a carry is right */
    return (uint16_t)(sign | ((mag - 0x38000000u) >> 13));
}
static inline float bf16_to_f32(uint16_t b)
{
    return f32_canon(f32_from_bits((uint32_t)b << 16));
}
static inline uint16_t f32_to_bf16(float f)
{
    uint32_t bits = f32_bits(f);

    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return 0x7FC0;
    return (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
