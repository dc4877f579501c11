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
uint32_t ops_state(struct ops *o, uint32_t kv_heads, uint32_t head_values);
/* names the result of the operation appended last, as `eval --dump` writes it */
void ops_name(struct ops *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void ops_rope_table(struct ops *o, uint32_t n_rot, double base);
void ops_embed(struct ops *o, uint32_t out, uint32_t tensor);
void ops_matmul(struct ops *o, uint32_t out, const struct model_weight *w, uint32_t in);
/* whole: one piece a token; else `pieces` of `width` values with one weight vector for all */
void ops_rms_norm(struct ops *o, uint32_t out, uint32_t in, uint32_t tensor, uint32_t width,
                  uint32_t pieces, float eps);
void ops_rope(struct ops *o, uint32_t buf, uint32_t heads, uint32_t head_values, uint32_t n_rot);
void ops_kv_append(struct ops *o, uint32_t state, uint32_t k, uint32_t v);
void ops_attention(struct ops *o, uint32_t out, uint32_t q, uint32_t state, uint32_t heads,
                   uint32_t kv_heads, uint32_t head_values, float scale);
void ops_add(struct ops *o, uint32_t acc, uint32_t in);
void ops_router(struct ops *o, uint32_t probs, uint32_t ids, uint32_t weights, uint32_t logits,
                uint32_t n_experts, uint32_t used, int normalise, float floor, float scale);
void ops_moe_call(struct ops *o, uint32_t vectors, uint32_t ids, uint32_t layer, uint32_t used);
void ops_moe_sum(struct ops *o, uint32_t out, uint32_t weights);
void ops_pick(struct ops *o, uint32_t out, uint32_t in);
void ops_logits(struct ops *o, uint32_t buf); /* the program's answer */
