/* Building a program: each call appends one operation. Architectures (arch/) use nothing else. The
 * builder inserts OP_PREPARE where a product needs its vector in a form that is not there yet.
 *
 * Memory running out is remembered; ops_end reports it. */
#pragma once
#include "coordinator/model/model.h"
#include "coordinator/trunk/exec/program.h"

struct ops;
struct ops *ops_begin(const struct model *m); /* NULL: no memory */
/* Hands over the program, frees the builder. */
int ops_end(struct ops *o, struct program **out, struct err *e);

uint32_t ops_buffer(struct ops *o, uint32_t width, enum buf_type type, int output_rows);
/* What a sequence keeps (program.h, enum state_kind); in the NextN block's part: of its rows. */
uint32_t ops_state(struct ops *o, uint32_t kv_heads, uint32_t head_values);
uint32_t ops_state_latent(struct ops *o, uint32_t values);
uint32_t ops_state_pools(struct ops *o, uint32_t values, uint32_t positions);
uint32_t ops_state_tail(struct ops *o, uint32_t values, uint32_t rows);
uint32_t ops_state_matrix(struct ops *o, uint32_t heads, uint32_t k_heads, uint32_t k, uint32_t v, uint32_t decay);
/* names the result of the operation appended last, as `eval --dump` writes it */
void ops_name(struct ops *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ops_name_heads(struct ops *o, uint32_t heads, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A sequence can be taken back by so many tokens. */
void ops_rollback(struct ops *o, uint32_t tokens);
/* What follows is the NextN block's pass, whose answer is logits. */
void ops_draft(struct ops *o, uint32_t logits);

void ops_rope_table(struct ops *o, uint32_t n_rot, double base);
void ops_embed(struct ops *o, uint32_t out, uint32_t tensor);
void ops_matmul(struct ops *o, uint32_t out, const struct model_weight *w, uint32_t in);
/* parts vectors beside each other in a row of `in`, each a product of its own with as many rows of w */
void ops_matmul_parts(struct ops *o, uint32_t out, const struct model_weight *w, uint32_t in, uint32_t parts);
/* whole: one piece a token; else `pieces` of `width` values with one weight vector for all. tensor
 * MODEL_NONE: without weight */
void ops_rms_norm(struct ops *o, uint32_t out, uint32_t in, uint32_t tensor, uint32_t width,
                  uint32_t pieces, float eps);
/* the same into the values of `out` from `first` on */
void ops_rms_norm_at(struct ops *o, uint32_t out, uint32_t first, uint32_t in, uint32_t tensor, uint32_t width,
                     float eps);
/* pieces with weights of their own: tensor has `pieces` times `width` values */
void ops_rms_norm_each(struct ops *o, uint32_t out, uint32_t in, uint32_t tensor, uint32_t width, uint32_t pieces,
                       float eps);
void ops_l2_norm(struct ops *o, uint32_t out, uint32_t in, uint32_t width, uint32_t pieces, float eps, float scale);
void ops_layer_norm(struct ops *o, uint32_t out, uint32_t in, uint32_t tensor, uint32_t bias, float eps);
void ops_gated_norm(struct ops *o, uint32_t out, uint32_t in, uint32_t gate, uint32_t tensor, uint32_t width,
                    uint32_t pieces, float eps);
void ops_func(struct ops *o, uint32_t out, uint32_t in, enum op_func func);
void ops_scale(struct ops *o, uint32_t buf, float scale);
void ops_divide(struct ops *o, uint32_t buf, float by);
void ops_swiglu(struct ops *o, uint32_t out, uint32_t gate, uint32_t up, float limit);
void ops_repeat(struct ops *o, uint32_t out, uint32_t in, uint32_t copies);
/* ahead 1: as the position after the token's (the NextN block's rows) */
void ops_rope(struct ops *o, uint32_t buf, uint32_t heads, uint32_t head_values, uint32_t n_rot, uint32_t ahead);
/* out = `values` values from `first` on of each of `groups` groups of `stride` values */
void ops_slice(struct ops *o, uint32_t out, uint32_t in, uint32_t groups, uint32_t values, uint32_t first,
               uint32_t stride);
void ops_mul(struct ops *o, uint32_t acc, uint32_t in);
void ops_add_times(struct ops *o, uint32_t acc, uint32_t in, uint32_t factor);
/* the same to each of `vectors` vectors of acc, with as many factors */
void ops_add_times_each(struct ops *o, uint32_t acc, uint32_t in, uint32_t factors, uint32_t vectors);
void ops_kv_append(struct ops *o, uint32_t state, uint32_t k, uint32_t v); /* v PROG_NONE: a latent */
/* list PROG_NONE: every position up to the own */
void ops_attention(struct ops *o, uint32_t out, uint32_t q, uint32_t list, uint32_t state, uint32_t heads,
                   uint32_t kv_heads, uint32_t head_values, float scale);
void ops_add(struct ops *o, uint32_t acc, uint32_t in);
void ops_add_two(struct ops *o, uint32_t acc, uint32_t a, uint32_t b); /* (acc + a) + b */
/* bias: for the choice alone, a tensor or MODEL_NONE; flags: ROUTER_ */
void ops_router(struct ops *o, uint32_t probs, uint32_t ids, uint32_t weights, uint32_t logits, uint32_t bias,
                uint32_t n_experts, uint32_t used, uint32_t flags, float floor, float scale);
void ops_moe_call(struct ops *o, uint32_t vectors, uint32_t ids, uint32_t layer, uint32_t used);
void ops_moe_sum(struct ops *o, uint32_t out, uint32_t weights);
void ops_pick(struct ops *o, uint32_t out, uint32_t in);
void ops_logits(struct ops *o, uint32_t buf); /* the program's answer */

/* recurrent layers [31, 32] */
/* gap: positions from tap to tap; the tail has (n_taps - 1) * gap rows */
void ops_conv(struct ops *o, uint32_t out, uint32_t in, uint32_t taps, uint32_t n_taps, uint32_t gap, uint32_t tail);
void ops_decay(struct ops *o, uint32_t out, uint32_t in, uint32_t a, uint32_t dt, uint32_t heads, int bounded,
               float bound);
void ops_delta(struct ops *o, uint32_t out, uint32_t q, uint32_t k, uint32_t v, uint32_t decay, uint32_t beta,
               uint32_t matrix);
/* selected attention [30] */
void ops_pool(struct ops *o, uint32_t keys, uint32_t gates, uint32_t bias, uint32_t pools, uint32_t tail);
/* gateless: their mean, normed by `norm`, the first n_rot values rotated; the tail has keys alone */
void ops_pool_mean(struct ops *o, uint32_t keys, uint32_t norm, float eps, uint32_t n_rot, uint32_t pools,
                   uint32_t tail);
/* weights PROG_NONE: heads count alike */
void ops_select(struct ops *o, uint32_t list, uint32_t heads_buf, uint32_t weights, uint32_t pools, uint32_t heads,
                uint32_t most, float scale);
/* hyper-connections [33] */
void ops_hyper_mix(struct ops *o, uint32_t out, uint32_t in, uint32_t scale, uint32_t base, uint32_t streams,
                   uint32_t iterations, float eps);
void ops_hyper_collapse(struct ops *o, uint32_t out, uint32_t streams_buf, uint32_t mix, uint32_t streams);
void ops_hyper_expand(struct ops *o, uint32_t streams_buf, uint32_t y, uint32_t mix, uint32_t streams);
void ops_hyper_mean(struct ops *o, uint32_t out, uint32_t streams_buf, uint32_t streams);
/* gates */
void ops_branch_mean(struct ops *o, uint32_t out, uint32_t gates, uint32_t streams_buf, uint32_t streams);
void ops_branch_gate(struct ops *o, uint32_t out, uint32_t keys, uint32_t streams_buf, uint32_t value, uint32_t streams,
                     float scale);
/* out = `rows` rows of a table that is handed over by rows (model_tensor.by_rows), side by side */
void ops_rows(struct ops *o, uint32_t out, uint32_t tensor, uint32_t rows);
/* drafts */
void ops_carry(struct ops *o, uint32_t out, uint32_t in);
