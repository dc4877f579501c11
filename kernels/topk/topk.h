/* The order of ARITHMETIC.md rule 26 and the router's weights.
 *
 * Order: the larger value first; equal values, -0 and +0 too, lower index first; NaN after
 * everything else, lower index first. */
#pragma once
#include <stdint.h>

/* idx[0 ... k-1] = the first k indices of the order of v[0 ... n-1]. k <= n. Allocates nothing; a
 * few passes over v for any k, one for k <= 128. */
void order_topk(const float *v, uint32_t n, uint32_t k, uint32_t *idx);

/* One token's routing from its n logits: probs (n floats, may be logits) = softmax over all (rule
 * 25); idx, w (k each) = the first k of the order and their probabilities. normalise: t = CHAIN of
 * the w by place, then w = w / max(t, floor). scale: w = w * scale, last, unless 0 or 1. k <= n. */
void router_softmax(const float *logits, uint32_t n, uint32_t k, int normalise, float floor,
                    float scale, float *probs, uint32_t *idx, float *w);

/* The same with scores s = sigmoid(logit): idx = the first k of the order of select = s + bias (fl;
 * bias NULL: of s), w = their s without bias. scores, select: n floats each; neither is logits. */
void router_sigmoid(const float *logits, const float *bias, uint32_t n, uint32_t k, int normalise,
                    float floor, float scale, float *scores, float *select, uint32_t *idx,
                    float *w);

/* The weights alone, where scores and choice are made in another way: w holds k scores by place.
 * t = max(t, floor), then t = t + plus where plus is not 0. */
void router_weights(float *w, uint32_t k, int normalise, float floor, float plus, float scale);

/* A float as an integer of the same order: NaN lowest, -0 as +0. */
int32_t order_key(float v);

void order_topk_ref(const float *v, uint32_t n, uint32_t k, uint32_t *idx);
void order_topk_few(const float *v, uint32_t n, uint32_t k, uint32_t *idx);  /* best for small k */
void order_topk_many(const float *v, uint32_t n, uint32_t k, uint32_t *idx); /* any k */
void order_topk_avx2(const float *v, uint32_t n, uint32_t k, uint32_t *idx); /* as few */
