/* Numbers only, no weights: what the presets mean is decided here, so that tests can ask. */
#include "coordinator/cli/synth_routing.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* Found by simulation, confirmed by runs (docs/MEASUREMENTS.md): a running mean that is worth 28
 * independent tokens, and how much the router heeds it. */
#define MEAN_OF 28.0
static const struct {
    const char *name;
    double slow, hot_share;
} presets[] = {
    [SYNTH_FLAT] = {"flat", 0, 0},
    [SYNTH_LOCAL] = {"local", 2.2, 0},
    [SYNTH_SKEWED] = {"skewed", 0.6, 0.43},
};
#define HOT_PART (1.0 / 7)

const char *synth_preset_name(enum synth_preset p)
{
    return presets[p].name;
}

enum { FAR = 4096 }; /* tokens back at which the running mean's weights are looked at */

static double above(double x) /* P(normal > x) */
{
    return erfc(x / sqrt(2)) / 2;
}

static double quantile(double tail) /* above(quantile(p)) == p */
{
    double lo = -9, hi = 9;

    for (int i = 0; i < 60; i++) {
        double mid = (lo + hi) / 2;
        if (above(mid) > tail)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* Experts whose bias is b z, z normal: chosen where b z + noise passes the threshold that `used` of
 * `experts` pass. */
static double hot_share(double b, double part, double chosen)
{
    double threshold = sqrt(1 + b * b) * quantile(chosen), least = quantile(part);
    double sum = 0, step = 1.0 / 256;

    for (double z = least + step / 2; z < 9; z += step)
        sum += exp(-z * z / 2) * above(threshold - b * z) * step;
    return sum / sqrt(2 * M_PI) / chosen;
}

double synth_bias(double part, double share, uint32_t experts, uint32_t used)
{
    double lo = 0, hi = 8;

    for (int i = 0; i < 50; i++) {
        double mid = (lo + hi) / 2;
        if (hot_share(mid, part, (double)used / experts) < share)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* Sum of the squared weights of softmax(score by distance): 1 / (independent tokens the mean is
 * worth). */
static double squares(const struct synth_routing *r, uint32_t head_dim, double rope_base)
{
    double score[FAR] = {0}, sum = 0, sq = 0;

    for (uint32_t i = 0; i < head_dim / 2; i++) {
        double turn = pow(rope_base, -2.0 * i / head_dim), gain = r->gain_rest, a;
        for (int p = 0; p < SYNTH_PAIRS; p++)
            gain = r->pair[p] == i ? r->gain[p] : gain;
        a = 2 * gain * gain / sqrt(head_dim);
        for (int d = 0; d < FAR; d++)
            score[d] += a * (cos(turn * d) - 1);
    }
    for (int d = 0; d < FAR; d++) {
        double w = exp(score[d]);
        sum += w;
        sq += w * w;
    }
    return sq / (sum * sum);
}

/* The pair of RoPE that turns nearest to `turn` a token, slower than pair `after`. */
static uint32_t pair_near(double turn, uint32_t head_dim, double rope_base, uint32_t after)
{
    uint32_t best = after;
    double least = INFINITY;

    for (uint32_t i = after; i < head_dim / 2; i++) {
        double off = fabs(log(turn) + 2.0 * i / head_dim * log(rope_base));
        if (off < least) {
            least = off;
            best = i;
        }
    }
    return best;
}

/* Attention's score is sum of a_p (cos(turn_p d) - 1): the fastest pair makes the width, the slower
 * ones, a quarter as fast each, keep it from coming back after a full turn. a = 10 leaves e^-10 far
 * away. */
static void running_mean(struct synth_routing *r, uint32_t head_dim, double rope_base)
{
    double width =
        MEAN_OF / sqrt(M_PI); /* deviation of the normal curve that the weights are half of */
    double depth = 10, turn = 1 / (width * sqrt(depth)), lo = 0.1, hi = 100;

    for (int p = 0; p < SYNTH_PAIRS; p++, turn /= 4) {
        r->pair[p] = pair_near(turn, head_dim, rope_base, p ? r->pair[p - 1] + 1 : 0);
        r->gain[p] = sqrt(depth * sqrt(head_dim) / 2);
    }
    r->gain_rest = 0.3;
    for (int i = 0; i < 40; i++) {
        double mid = (lo + hi) / 2;
        r->gain[0] = sqrt(mid * sqrt(head_dim) / 2);
        if (squares(r, head_dim, rope_base) < 1 / MEAN_OF)
            lo = mid;
        else
            hi = mid;
    }
    r->mean_rms = sqrt(squares(r, head_dim, rope_base));
}

int synth_routing(enum synth_preset p, uint32_t embd, uint32_t head_dim, double rope_base,
                  uint32_t experts, uint32_t used, uint32_t block, struct synth_routing *r,
                  struct err *e)
{
    memset(r, 0, sizeof *r);
    r->mean_rms = 1;
    r->gain_rest = 1;
    if (p == SYNTH_FLAT)
        return 0;
    r->n_const = block;
    r->n_slow = embd / 8 / block * block;
    r->n_slow = r->n_slow < 64 ? (64 + block - 1) / block * block : r->n_slow;
    if (embd < 2 * (r->n_const + r->n_slow))
        return err_set(e, -EINVAL,
                       "a width of %u is too small for this preset: %u values are needed with this "
                       "type of trunk",
                       embd, 2 * (r->n_const + r->n_slow));
    if (head_dim / 2 < 2 * SYNTH_PAIRS)
        return err_set(e, -EINVAL,
                       "heads of %u values are too small for this preset: 12 are needed", head_dim);
    r->slow = presets[p].slow;
    if (presets[p].hot_share > 0)
        r->bias =
            synth_bias(HOT_PART, presets[p].hot_share, experts, used) * sqrt(1 + r->slow * r->slow);
    running_mean(r, head_dim, rope_base);
    return 0;
}
