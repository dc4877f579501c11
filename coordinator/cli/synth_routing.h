/* How a synthetic model comes to choose its experts: numbers that synth_file.c puts into the
 * weights, so that any program that runs the file sees the same statistics.
 *
 * The residual's first columns are set apart ("const", then "slow"); no expert writes there.
 * - const: the same in every token's embedding. The router's weights on it are one bias an expert
 * and layer: skew. The rows of q and k read it alone but for a little noise, so before RoPE every
 * token has nearly the same query and key; the weights of the q and k norms keep three frequencies
 * of RoPE, whose sum of cosines falls with the distance: attention is a running mean of the last
 *   tokens, whatever they are.
 * - slow: zero in the embedding; layer 0's attention writes its running mean of the tokens' own
 * parts there. The router reads it: the same experts again, a while.
 * - the rest: random in every embedding, a token's own part; attention and experts write there,
 * little against what the embedding put in, so that layer 40 chooses as layer 0 does. The choice of
 * experts does not depend on the residual's length, so RMS norms alter nothing of it. */
#pragma once
#include <stdint.h>

#include "shm/err.h"

#define SYNTH_PRESETS "flat|local|skewed"
enum synth_preset { SYNTH_FLAT, SYNTH_LOCAL, SYNTH_SKEWED };
const char *synth_preset_name(enum synth_preset p);
enum { SYNTH_PAIRS = 3 };

struct synth_routing {
    uint32_t n_const, n_slow; /* columns; flat: none */
    double slow, bias;        /* of a router's score, standard deviations; a token's own part: 1 */
    uint32_t pair[SYNTH_PAIRS]; /* of RoPE: values pair and pair + head_dim / 2 of a head */
    double gain[SYNTH_PAIRS];   /* q and k norm there */
    double gain_rest;           /* and elsewhere */
    double mean_rms;            /* running mean of independent numbers of deviation 1 */
};

/* block: columns are set apart in whole blocks of the trunk's type. -EINVAL: the model is too
 * narrow. */
int synth_routing(enum synth_preset p, uint32_t embd, uint32_t head_dim, double rope_base,
                  uint32_t experts, uint32_t used, uint32_t block, struct synth_routing *r,
                  struct err *e);

/* The biases' deviation with which the `part` of the experts chosen most takes `share` of the
 * calls, where a score's other parts have deviation 1. */
double synth_bias(double part, double share, uint32_t experts, uint32_t used);
