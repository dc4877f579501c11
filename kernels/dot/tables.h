/* Tables that belong to the quantised formats (tables.c, made by make_tables). */
#pragma once
#include <stdint.h>

/* grid entries: eight (or four) bytes, value 0 lowest; iq1s: signed */
extern const uint64_t iq2xxs_grid[256], iq2xs_grid[512], iq2s_grid[1024], iq1s_grid[2048];
extern const uint32_t iq3xxs_grid[256], iq3s_grid[512];
/* levels of the eight-valued ones (their values are 8, 25, 43), two bits each: a byte an entry for
 * values 0..3, then a byte an entry for values 4..7 */
extern const uint64_t iq2xxs_planes[64], iq2xs_planes[128], iq2s_planes[256];
/* of the four-valued ones: a byte an entry for values 0 and 1, then for 2 and 3; iq3s: (15 + value) / 2
 * as nibbles, turned left by one bit; iq3xxs: levels, three bits each */
extern const uint64_t iq3s_planes[128], iq3xxs_planes[64];
/* the same as four nibbles: of iq3s the values, of iq3xxs an index of iq3xxs_levels */
extern const uint16_t iq3s_codes[512], iq3xxs_codes[256];
extern const int8_t iq3xxs_levels[16];
/* the seven stored sign bits of eight values and their parity as the eighth */
extern const uint8_t sign_masks[128];
extern const int8_t iq4_values[16];  /* IQ4_NL, IQ4_XS */
extern const int8_t e2m1_values[16]; /* MXFP4, NVFP4: twice the four-bit float */
/* f32 bits of half of the value that a scale byte stands for */
extern const uint32_t e8m0_half_bits[256], ue4m3_half_bits[256];

static inline int grid_byte(uint64_t entry, int j)
{
    return (int)(entry >> 8 * j & 255);
}
