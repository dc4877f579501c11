/* Weights for models that exist only to be measured. Not a quantiser: no values are made first. */
#include "coordinator/cli/synth_fill.h"

#include <math.h>
#include <string.h>

#include "kernels/matmul/matmul.h"
#include "kernels/num.h"
#include "kernels/type/type.h"

/* splitmix64: spreads a seed over the state */
static uint64_t spread(uint64_t *s)
{
    uint64_t z = *s += 0x9E3779B97F4A7C15ull;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

static uint64_t rotl(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

/* xoshiro256**, which passes what tests there are at 8 bytes in about a nanosecond */
static uint64_t next(uint64_t s[4])
{
    uint64_t r = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return r;
}

static void random_bytes(uint64_t s[4], uint8_t *out, size_t n)
{
    uint64_t r;
    size_t i;

    for (i = 0; i + 8 <= n; i += 8) {
        r = next(s);
        memcpy(out + i, &r, 8);
    }
    if (i < n) {
        r = next(s);
        memcpy(out + i, &r, n - i);
    }
}

static double uniform(uint64_t s[4]) /* [0, 1) */
{
    return (double)(next(s) >> 11) * 0x1p-53;
}

/* Eight scales of 32..63, each min equal to its scale: with dmin = 7.5 d every sub-block's mean is
 * 0. */
static void pack_q4_k(struct synth_fill *f)
{
    for (int k = 0; k < 64; k++) {
        uint8_t sc[8], *p = f->packed[k];
        random_bytes(f->state, sc, sizeof sc);
        for (int j = 0; j < 8; j++)
            sc[j] = 32 | (sc[j] & 31);
        for (int j = 0; j < 4; j++) {
            p[j] = p[j + 4] = (uint8_t)(sc[j] | (sc[j + 4] >> 4) << 6);
            p[j + 8] = (uint8_t)((sc[j + 4] & 15) * 17);
        }
    }
}

/* What the block's numbers, scales included, have as root mean square before d. */
static double numbers_rms(uint32_t type)
{
    switch (type) {
    case W_Q8_0: /* -127..127, -127 twice */
        return sqrt((127.0 * 128 * 255 / 3 + 127 * 127) / 256);
    case W_Q4_K: /* q - 7.5 of 0..15, times 32..63 */
        return sqrt(255.0 / 12) * sqrt(2341.5);
    case W_Q6_K: /* -32..31, times 64..127 */
        return sqrt((64.0 * 64 - 1) / 12 + 0.25) * sqrt(9461.5);
    case W_IQ4_NL: /* its table's values, all alike likely */
        return sqrt(4548);
    default: /* uniform in -sqrt(3)..sqrt(3) */
        return 1;
    }
}

/* The types whose blocks are looked up in grids, and IQ4_XS: an f16 first, and any bytes behind it are numbers and
 * scales, either sign as likely. */
static int any_bytes(uint32_t type)
{
    return type == W_IQ2_XXS || type == W_IQ2_XS || type == W_IQ3_XXS || type == W_IQ3_S || type == W_IQ4_XS;
}

/* Of a few such blocks, as they decode with 1 for that f16. */
static double decoded_rms(uint32_t type, size_t block_bytes)
{
    uint64_t s[4] = {1, 2, 3, 4};
    uint8_t block[256];
    float x[256];
    double sum = 0;

    for (int k = 0; k < 64; k++) {
        random_bytes(s, block, block_bytes);
        memcpy(block, &(uint16_t){0x3C00}, 2);
        dequant_row(type, block, 256, x);
        for (int i = 0; i < 256; i++)
            sum += (double)x[i] * x[i];
    }
    return sqrt(sum / (64 * 256));
}

static int begin(struct synth_fill *f, uint32_t type, struct err *e)
{
    const struct type_info *t = type_info(type);

    if (type != W_F32 && type != W_F16 && type != W_BF16 && type != W_Q8_0 && type != W_Q4_K &&
        type != W_Q6_K && type != W_IQ4_NL && !any_bytes(type))
        return err_set(e, -EINVAL, "no random weights of type %s", t ? t->name : "unknown");
    memset(f, 0, sizeof *f);
    f->type = type;
    f->block_bytes = t->block_bytes;
    return 0;
}

int synth_fill_same(struct synth_fill *f, uint32_t type, double value, struct err *e)
{
    static const uint8_t q4_k_ones[12] = {1, 1, 1, 1, 0, 0,
                                          0, 0, 1, 1, 1, 1}; /* scales 1, mins 0 */
    int rc = begin(f, type, e);
    float v = (float)value;
    uint16_t half;

    if (rc)
        return rc;
    f->same = 1;
    half = type == W_F16 ? f32_to_f16(v) : type == W_BF16 ? f32_to_bf16(v) : 0;
    if (type == W_F32) {
        memcpy(f->block, &v, 4);
    } else if (half || type == W_F16 || type == W_BF16) {
        memcpy(f->block, &half, 2);
    } else if (type == W_Q8_0) {
        half = f32_to_f16(v / 127);
        memcpy(f->block, &half, 2);
        memset(f->block + 2, 127, 32);
    } else if (type == W_IQ4_NL) {
        half = f32_to_f16(v / 113);
        memcpy(f->block, &half, 2);
        memset(f->block + 2, 0xFF, 16);
    } else if (any_bytes(type)) {
        return value == 0 ? 0 : err_set(e, -EINVAL, "no blocks of one value of type %s", type_info(type)->name);
    } else if (type == W_Q4_K) {
        half = f32_to_f16(v / 15);
        memcpy(f->block, &half, 2);
        memcpy(f->block + 4, q4_k_ones, 12);
        memset(f->block + 16, 0xFF, 128);
    } else { /* W_Q6_K: all ones are 31 */
        half = f32_to_f16(v / 31);
        memset(f->block, 0xFF, 192);
        memset(f->block + 192, 1, 16);
        memcpy(f->block + 208, &half, 2);
    }
    return 0;
}

int synth_fill_begin(struct synth_fill *f, uint32_t type, double sd, uint64_t seed, struct err *e)
{
    double spread_rms = sqrt(1 + 0.25 * 0.25 / 3), rms; /* of the factors 0.75..1.25 below; of a block's numbers */
    int rc = begin(f, type, e);

    if (rc)
        return rc;
    if (!(sd > 0))
        return synth_fill_same(f, type, 0, e);
    f->sd = (float)sd;
    rms = any_bytes(type) ? decoded_rms(type, f->block_bytes) : numbers_rms(type);
    for (int i = 0; i < 4; i++)
        f->state[i] = spread(&seed);
    for (size_t i = 0; i < sizeof f->half / sizeof *f->half; i++) {
        double u = uniform(f->state);
        float value = (float)(sd * sqrt(3) * (2 * u - 1));
        float scale = (float)(sd / rms / spread_rms * (0.75 + 0.5 * u));
        f->half[i] = type == W_F16    ? f32_to_f16(value)
                     : type == W_BF16 ? f32_to_bf16(value)
                                      : f32_to_f16(scale);
    }
    pack_q4_k(f);
    return 0;
}

static void put_half(struct synth_fill *f, uint8_t *at, uint64_t r)
{
    memcpy(at, &f->half[r % 4096], 2);
}

/* f16 d, 32 int8: @0, @2 */
static void block_q8_0(struct synth_fill *f, uint8_t *b)
{
    random_bytes(f->state, b + 2, 32);
    for (int i = 2; i < 34; i++)
        b[i] = b[i] == 0x80 ? 0x81 : b[i]; /* -128 is not written by quantisers */
    put_half(f, b, next(f->state));
}

/* f16 d, f16 dmin, 12 bytes of scales and mins, 128 bytes of nibbles: @0, @2, @4, @16 */
static void block_q4_k(struct synth_fill *f, uint8_t *b)
{
    uint64_t r = next(f->state);
    uint16_t dmin;

    random_bytes(f->state, b + 16, 128);
    put_half(f, b, r);
    dmin = f32_to_f16(7.5f * f16_to_f32(load_u16(b)));
    memcpy(b + 2, &dmin, 2);
    memcpy(b + 4, f->packed[r >> 58], 12);
}

/* 128 + 64 bytes of numbers, 16 int8 scales, f16 d: @0, @128, @192, @208. Scales
 * -127..-64, 64..127: the numbers' mean of -0.5 vanishes by the signs. */
static void block_q6_k(struct synth_fill *f, uint8_t *b)
{
    random_bytes(f->state, b, 208);
    for (int i = 192; i < 208; i++)
        b[i] = b[i] & 0x80 ? (uint8_t) - (64 | (b[i] & 63)) : (uint8_t)(64 | (b[i] & 63));
    put_half(f, b + 208, next(f->state));
}

/* f16 d, 16 bytes of nibbles: @0, @2. The table's mean is not 0: d has either sign. */
static void block_iq4_nl(struct synth_fill *f, uint8_t *b)
{
    uint64_t r = next(f->state);

    random_bytes(f->state, b + 2, 16);
    put_half(f, b, r);
    b[1] ^= (uint8_t)(r >> 63 << 7);
}

static void block_of_any_bytes(struct synth_fill *f, uint8_t *b)
{
    random_bytes(f->state, b + 2, f->block_bytes - 2);
    put_half(f, b, next(f->state) >> 20);
}

static void floats(struct synth_fill *f, uint8_t *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 4) {
        float v = f->sd * 1.7320508f * ((float)(next(f->state) >> 40) * 0x1p-23f - 1);
        memcpy(out + i, &v, 4);
    }
}

static void halves(struct synth_fill *f, uint8_t *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 2)
        put_half(f, out + i, next(f->state) >> 20);
}

void synth_fill_blocks(struct synth_fill *f, void *out, size_t bytes)
{
    uint8_t *p = out;

    if (f->same) {
        for (size_t i = 0; i + f->block_bytes <= bytes; i += f->block_bytes)
            memcpy(p + i, f->block, f->block_bytes);
    } else if (f->type == W_F32) {
        floats(f, p, bytes);
    } else if (f->type == W_F16 || f->type == W_BF16) {
        halves(f, p, bytes);
    } else {
        for (size_t i = 0; i + f->block_bytes <= bytes; i += f->block_bytes) {
            if (f->type == W_Q8_0)
                block_q8_0(f, p + i);
            else if (f->type == W_Q4_K)
                block_q4_k(f, p + i);
            else if (f->type == W_IQ4_NL)
                block_iq4_nl(f, p + i);
            else if (any_bytes(f->type))
                block_of_any_bytes(f, p + i);
            else
                block_q6_k(f, p + i);
        }
    }
}
