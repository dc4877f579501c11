/* Reader of qwen35moe: delta net and gated attention in turns, a gated shared expert, in some files a NextN
 * block. What is computed with it: coordinator/trunk/arch/qwen35moe.c. */
#include "coordinator/model/arch_qwen35.h"

#include <stdlib.h>

enum { MAX_WIDTH = 1 << 20, MAX_HEADS = 1 << 12, MAX_HEAD_DIM = 1 << 12 };

static int bad(const struct model *m, const char *key, uint32_t found, const char *wanted, struct err *e)
{
    return err_set(e, -EINVAL, "%s: %s.%s: %u (%s)", m->path, model_arch_name(m), key, found, wanted);
}

/* Text has one position for all three groups of pairs; a pair in none of them would not be rotated. */
static int read_sections(const struct model *m, struct err *e)
{
    uint32_t s[4] = {m->n_rot / 2, m->n_rot / 2, m->n_rot / 2, 0};

    for (uint32_t i = 0; i < 4; i++)
        if (model_key_u32_of(m, "rope.dimension_sections", 1, i, 0, MAX_HEAD_DIM, &s[i], e))
            return -EINVAL;
    for (uint32_t i = 0; i < m->n_rot / 2; i++)
        if (i >= 3 * s[i % 3])
            return bad(m, "rope.dimension_sections", s[i % 3], "so many that every pair of values is in one of the "
                                                              "first three", e);
    return 0;
}

static int read_heads(struct model *m, struct err *e)
{
    uint32_t value_dim;

    if (model_key_u32(m, "attention.head_count", 0, 1, MAX_HEADS, &m->n_head, e) ||
        model_key_u32(m, "attention.head_count_kv", 0, 1, m->n_head, &m->n_head_kv, e) ||
        model_key_u32(m, "attention.key_length", 0, 2, MAX_HEAD_DIM, &m->head_dim, e))
        return -EINVAL;
    value_dim = m->head_dim;
    m->n_rot = m->head_dim;
    m->rope_base = 10000;
    if (model_key_u32(m, "attention.value_length", 1, 2, MAX_HEAD_DIM, &value_dim, e) ||
        model_key_u32(m, "rope.dimension_count", 1, 2, m->head_dim, &m->n_rot, e) ||
        model_key_f32(m, "rope.freq_base", 1, &m->rope_base, e))
        return -EINVAL;
    if (value_dim != m->head_dim)
        return bad(m, "attention.value_length", value_dim, "the same as attention.key_length", e);
    if (m->n_head % m->n_head_kv)
        return bad(m, "attention.head_count_kv", m->n_head_kv, "a divisor of attention.head_count", e);
    if (m->n_rot % 2)
        return bad(m, "rope.dimension_count", m->n_rot, "an even number", e);
    if (!(m->rope_base > 0))
        return err_set(e, -EINVAL, "%s: %s.rope.freq_base: %g (above 0)", m->path, model_arch_name(m),
                       (double)m->rope_base);
    m->attn_gated = 1;
    return read_sections(m, e);
}

static int read_delta(struct model *m, struct err *e)
{
    uint32_t inner;

    m->delta.by_head = 1;
    if (model_key_u32(m, "ssm.conv_kernel", 0, 1, 16, &m->delta.taps, e) ||
        model_key_u32(m, "ssm.state_size", 0, 1, MAX_HEAD_DIM, &m->delta.dim, e) ||
        model_key_u32(m, "ssm.group_count", 0, 1, MAX_HEADS, &m->delta.k_heads, e) ||
        model_key_u32(m, "ssm.time_step_rank", 0, m->delta.k_heads, MAX_HEADS, &m->delta.heads, e))
        return -EINVAL;
    inner = m->delta.heads * m->delta.dim;
    if (model_key_u32(m, "ssm.inner_size", 1, inner, inner, &inner, e))
        return -EINVAL;
    return m->delta.heads % m->delta.k_heads
               ? bad(m, "ssm.time_step_rank", m->delta.heads, "a multiple of ssm.group_count", e)
               : 0;
}

static int read_router(struct model *m, struct err *e)
{
    m->router_normalise = 1;
    m->router_floor = 6.103515625e-5f; /* 2^-14 */
    m->router_scale = 1;
    return model_key_u32(m, "expert_count", 0, 1, MODEL_MAX_EXPERTS, &m->n_experts, e) ||
                   model_key_u32(m, "expert_used_count", 0, 1, m->n_experts, &m->top_k, e) ||
                   model_key_u32(m, "expert_feed_forward_length", 0, 1, MAX_WIDTH, &m->n_ff, e) ||
                   model_key_refuse(m, "expert_gating_func", 1, e) || model_key_refuse(m, "expert_group_count", 1, e) ||
                   model_key_refuse(m, "expert_weights_scale", 1, e) ||
                   model_key_refuse(m, "leading_dense_block_count", 0, e)
               ? -EINVAL
               : 0;
}

int qwen35_read_sizes(struct model *m, struct err *e)
{
    if (model_key_u32(m, "block_count", 0, 1, MODEL_MAX_LAYERS, &m->n_layers, e) ||
        model_key_u32(m, "nextn_predict_layers", 1, 0, 1, &m->n_nextn, e) ||
        model_key_u32(m, "context_length", 0, 1, INT32_MAX, &m->n_ctx_train, e) ||
        model_key_u32(m, "embedding_length", 0, 1, MAX_WIDTH, &m->n_embd, e) ||
        model_key_f32(m, "attention.layer_norm_rms_epsilon", 0, &m->rms_eps, e) || read_heads(m, e) ||
        read_delta(m, e) || read_router(m, e))
        return -EINVAL;
    if (m->n_nextn >= m->n_layers)
        return bad(m, "nextn_predict_layers", m->n_nextn, "fewer than block_count", e);
    if (m->n_nextn && !model_has(m, "blk.%u.nextn.eh_proj.weight", m->n_layers - 1)) {
        m->n_nextn = 0; /* a file from which the block was taken: the trunk is whole without it */
        m->n_layers--;
    }
    return !(m->rms_eps >= 0) ? err_set(e, -EINVAL, "%s: %s.attention.layer_norm_rms_epsilon: %g (0 or more)", m->path,
                                        model_arch_name(m), (double)m->rms_eps)
                              : 0;
}

/* ---- tensors ---- */

static int read_delta_layer(struct model *m, struct model_layer *l, uint32_t il, struct err *e)
{
    uint64_t d = m->n_embd, width = (uint64_t)m->delta.heads * m->delta.dim;
    uint64_t all = 2ull * m->delta.k_heads * m->delta.dim + width;
    struct model_delta *k = &l->delta;

    return model_weight(m, MODEL_ATTENTION, 0, d, all, &k->qkv, e, "blk.%u.attn_qkv", il) ||
                   model_weight(m, MODEL_ATTENTION, 0, d, width, &k->gate[0], e, "blk.%u.attn_gate", il) ||
                   model_values(m, MODEL_ATTENTION, (const uint64_t[4]){m->delta.taps, all, 1, 1}, &k->conv[0], e,
                                "blk.%u.ssm_conv1d.weight", il) ||
                   model_weight(m, MODEL_ATTENTION, 0, d, m->delta.heads, &k->decay[0], e, "blk.%u.ssm_alpha", il) ||
                   model_weight(m, MODEL_ATTENTION, 0, d, m->delta.heads, &k->beta, e, "blk.%u.ssm_beta", il) ||
                   model_values(m, MODEL_ATTENTION, (const uint64_t[4]){m->delta.heads, 1, 1, 1}, &k->dt, e,
                                "blk.%u.ssm_dt.bias", il) ||
                   model_values(m, MODEL_ATTENTION, (const uint64_t[4]){m->delta.heads, 1, 1, 1}, &k->a, e,
                                "blk.%u.ssm_a", il) ||
                   model_tensor(m, MODEL_NORM, 0, m->delta.dim, 1, &k->norm, e, "blk.%u.ssm_norm.weight", il) ||
                   model_weight(m, MODEL_ATTENTION, 0, width, d, &l->attn_output, e, "blk.%u.ssm_out", il)
               ? -EINVAL
               : 0;
}

static int read_attention_layer(struct model *m, struct model_layer *l, uint32_t il, struct err *e)
{
    uint64_t d = m->n_embd, q = (uint64_t)m->n_head * m->head_dim, kv = (uint64_t)m->n_head_kv * m->head_dim;

    return model_weight(m, MODEL_ATTENTION, 0, d, 2 * q, &l->attn_q, e, "blk.%u.attn_q", il) ||
                   model_weight(m, MODEL_ATTENTION, 0, d, kv, &l->attn_k, e, "blk.%u.attn_k", il) ||
                   model_weight(m, MODEL_ATTENTION, 0, d, kv, &l->attn_v, e, "blk.%u.attn_v", il) ||
                   model_tensor(m, MODEL_NORM, 0, m->head_dim, 1, &l->attn_q_norm, e, "blk.%u.attn_q_norm.weight", il) ||
                   model_tensor(m, MODEL_NORM, 0, m->head_dim, 1, &l->attn_k_norm, e, "blk.%u.attn_k_norm.weight", il) ||
                   model_weight(m, MODEL_ATTENTION, 0, q, d, &l->attn_output, e, "blk.%u.attn_output", il)
               ? -EINVAL
               : 0;
}

static int read_feed(struct model *m, struct model_layer *l, uint32_t il, struct err *e)
{
    uint64_t d = m->n_embd;
    uint32_t n = m->n_ff;

    if (model_key_u32(m, "expert_shared_feed_forward_length", 1, 1, MAX_WIDTH, &n, e) ||
        model_weight(m, MODEL_ROUTER, 0, d, m->n_experts, &l->ffn_gate_inp, e, "blk.%u.ffn_gate_inp", il) ||
        model_weight(m, MODEL_DENSE, 0, d, n, &l->shared.gate, e, "blk.%u.ffn_gate_shexp", il) ||
        model_weight(m, MODEL_DENSE, 0, d, n, &l->shared.up, e, "blk.%u.ffn_up_shexp", il) ||
        model_weight(m, MODEL_DENSE, 0, n, d, &l->shared.down, e, "blk.%u.ffn_down_shexp", il) ||
        model_weight(m, MODEL_DENSE, 0, d, 1, &l->shared_gate, e, "blk.%u.ffn_gate_inp_shexp", il))
        return -EINVAL;
    l->shared.n = n;
    return model_experts(m, il, l, e);
}

int qwen35_read_layer(struct model *m, uint32_t il, uint32_t interval, struct err *e)
{
    struct model_layer *l = &m->layer[il];
    int recurrent = (il + 1) % interval != 0;

    l->router_bias = MODEL_NONE;
    for (int k = 0; k < EXPERT_MATRICES; k++)
        l->expert[k].scale = MODEL_NONE;
    if (model_key_bool_of(m, "attention.recurrent_layers", il, &recurrent, e))
        return -EINVAL;
    l->mixer = recurrent && il < m->n_layers - m->n_nextn ? MIX_DELTA : MIX_ATTENTION;
    if (l->mixer == MIX_DELTA ? read_delta_layer(m, l, il, e) : read_attention_layer(m, l, il, e))
        return -EINVAL;
    return read_feed(m, l, il, e);
}

int qwen35_read_tables(struct model *m, uint32_t *interval, struct err *e)
{
    const struct gguf_tensor *embd = gguf_tensor(m->g, "token_embd.weight");

    *interval = 4;
    if (model_key_u32(m, "full_attention_interval", 1, 1, MODEL_MAX_LAYERS, interval, e))
        return -EINVAL;
    if (embd && embd->dims[1] > INT32_MAX)
        return err_set(e, -EINVAL, "%s: byte %u: tensor 'token_embd.weight': %llu rows are too many",
                       gguf_shard_path(m->g, embd->shard), embd->info_at, (unsigned long long)embd->dims[1]);
    m->n_vocab = embd ? (uint32_t)embd->dims[1] : 1;
    m->layer = calloc(m->n_layers, sizeof *m->layer);
    if (!m->layer)
        return err_set(e, -ENOMEM, "%s: no memory for %u layers", m->path, m->n_layers);
    if (model_tensor(m, MODEL_EMBEDDING, 0, m->n_embd, m->n_vocab, &m->token_embd, e, "token_embd.weight") ||
        model_weight(m, MODEL_HEAD, 1, m->n_embd, m->n_vocab, &m->output, e, "output"))
        return -EINVAL;
    if (m->output.w == MODEL_NONE)
        m->output.w = m->token_embd; /* tied */
    return 0;
}

static int read_layer(struct model *m, uint32_t il, uint32_t interval, struct err *e)
{
    struct model_layer *l = &m->layer[il];

    return model_tensor(m, MODEL_NORM, 0, m->n_embd, 1, &l->attn_norm, e, "blk.%u.attn_norm.weight", il) ||
                   model_tensor(m, MODEL_NORM, 0, m->n_embd, 1, &l->ffn_norm, e,
                                "blk.%u.post_attention_norm.weight", il) ||
                   qwen35_read_layer(m, il, interval, e)
               ? -EINVAL
               : 0;
}

int model_read_qwen35moe(struct model *m, struct err *e)
{
    uint32_t interval;

    if (qwen35_read_sizes(m, e) || qwen35_read_tables(m, &interval, e) ||
        model_tensor(m, MODEL_NORM, 0, m->n_embd, 1, &m->output_norm, e, "output_norm.weight"))
        return -EINVAL;
    for (uint32_t il = 0; il < m->n_layers; il++)
        if (read_layer(m, il, interval, e))
            return -EINVAL;
    return m->n_nextn ? model_read_nextn(m, e) : 0;
}
