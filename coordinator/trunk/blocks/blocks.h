/* Parts that several architectures share, each a few operations. The buffers belong to the caller.
 * Names of what they make (for `eval --dump`) begin with a prefix, "L3." or "N.". */
#pragma once
#include "coordinator/trunk/ops.h"

/* Work buffers of a layer; made once, used by every layer. */
struct block_buffers {
    uint32_t x;       /* residual (n_embd) */
    uint32_t h;       /* normed (n_embd) */
    uint32_t y;       /* what a block adds (n_embd) */
    uint32_t q, k, v; /* heads */
    uint32_t o;       /* heads' outputs */
    uint32_t u, gate; /* gated: the product, its gates (heads) */
    uint32_t iq, ik, list; /* where a layer selects: index heads, index key, key list */
};
void block_buffers(struct ops *o, const struct model *m, struct block_buffers *b);

/* y = attention of h with q/k norms and rotation, its heads gated where the model has gates, over all positions or,
 * where the layer has an index, over the pools that it chooses; state: this layer's keys and values. ahead: as in
 * ops_rope. (spec: qwen3moe, olmoe, qwen35moe and qwen4exp, section "In the engine's arithmetic") */
void block_attention(struct ops *o, const struct model *m, uint32_t layer, const char *prefix, uint32_t state,
                     uint32_t ahead, const struct block_buffers *b);

/* ---- feed-forward parts (feed.c) ---- */
struct feed_buffers {
    uint32_t logits, probs, ids, weights; /* router */
    uint32_t dense[2], shared[2];         /* gate and up of such a part; all layers' are of one width */
    uint32_t z, f;                        /* the shared expert's output (n_embd), its gate (1) */
};
void feed_buffers(struct ops *o, const struct model *m, struct feed_buffers *b);
/* y = feed-forward part of h: dense, or routed experts with the shared one where the layer has it */
void block_feed(struct ops *o, const struct model *m, uint32_t layer, const char *prefix, uint32_t h, uint32_t y,
                const struct feed_buffers *b);

/* ---- delta rule with short convolutions (delta.c) ---- */
struct delta_buffers {
    uint32_t raw, q, k, v; /* (heads * dim); raw: a projection before its convolution */
    uint32_t all;          /* by_head: q, k and v side by side, after it */
    uint32_t low;          /* (dim) */
    uint32_t decay, gate, o, beta;
};
void delta_buffers(struct ops *o, const struct model *m, struct delta_buffers *b);
/* y = delta rule of h, decay for each key channel or for each head; makes the layer's states */
void block_delta(struct ops *o, const struct model *m, uint32_t layer, const char *prefix, uint32_t h, uint32_t y,
                 const struct delta_buffers *b);

/* ---- latent attention over selected pools (latent.c) ---- */
struct latent_buffers {
    uint32_t qr, q, c;      /* query's residual, heads, latent */
    uint32_t absorbed, z;   /* (heads * rank) */
    uint32_t o;             /* (heads * v) */
    uint32_t ik, ig, iq, iw, list; /* index key, gate, heads, weights; key list */
};
void latent_buffers(struct ops *o, const struct model *m, struct latent_buffers *b);
/* y = latent attention of h in the absorbed form; makes the layer's states. A layer without an index of
 * its own reads the list of the one before. */
void block_latent(struct ops *o, const struct model *m, uint32_t layer, const char *prefix, uint32_t h, uint32_t y,
                  const struct latent_buffers *b);

/* ---- hyper-connections (streams.c) ---- */
struct streams_buffers {
    uint32_t X;   /* the streams (n * n_embd) */
    uint32_t z;   /* normed, all of them */
    uint32_t m;   /* projection, (2 + n) * n */
    uint32_t mix; /* pre, post, C */
};
void streams_buffers(struct ops *o, const struct model *m, struct streams_buffers *b);
/* x = what part (0 attention, 1 feed-forward) of a layer reads; its coefficients stay in b->mix */
void block_streams_in(struct ops *o, const struct model *m, uint32_t layer, int part, const char *prefix,
                      const struct streams_buffers *b, uint32_t x);
/* the streams with the part's result y */
void block_streams_out(struct ops *o, const struct model *m, const struct streams_buffers *b, uint32_t y);

/* ---- streams that gates of low rank mix (branches.c) ---- */
struct branch_buffers {
    uint32_t X, n;    /* the streams, normed (n * n_embd) */
    uint32_t low, g;  /* (rank); gates (n * n_embd) */
    uint32_t v;       /* (n): how much of a part's result each stream takes */
    uint32_t e, k, value, u, q; /* the n-gram rows (n_embd); keys, value, gated values, convolution */
};
void branch_buffers(struct ops *o, const struct model *m, struct branch_buffers *b);
/* x = what part (0 attention, 1 feed-forward) of a layer reads; its factors stay in b->v. layer MODEL_NONE: what the
 * head reads */
void block_branch_in(struct ops *o, const struct model *m, uint32_t layer, int part, const char *prefix,
                     const struct branch_buffers *b, uint32_t x);
/* the streams with the part's result y */
void block_branch_out(struct ops *o, const struct model *m, const struct branch_buffers *b, uint32_t y);
/* the streams with the rows of the n-gram table; makes the layer's state */
void block_ngram(struct ops *o, const struct model *m, const char *prefix, const struct branch_buffers *b);
