/* Readers of olmoe and qwen3moe: one forward pass, told apart by the q/k norms (over the whole
 * vector or over each head), by where the experts' width is written, and by whether the router's
 * weights are normalised. What is computed with it: coordinator/trunk/arch/. */
#include <stdlib.h>

#include "coordinator/model/model.h"

enum { MAX_WIDTH = 1 << 20, MAX_HEADS = 1 << 12, MAX_HEAD_DIM = 1 << 12 };

/* Keys that would change the output and that neither definition has. */
static int refuse_foreign(const struct model *m, struct err *e)
{
    static const struct {
        const char *key;
        double harmless;
    } foreign[] = {
        {"leading_dense_block_count", 0},
        {"nextn_predict_layers", 0},
        {"expert_shared_count", 0},
        {"expert_group_count", 1},
        {"expert_gating_func", 1},
        {"attention.sliding_window", 0},
        {"attention.clamp_kqv", 0},
        {"swiglu_clamp_exp", 0},
        {"logit_scale", 1},
    };

    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (model_key_refuse(m, foreign[i].key, foreign[i].harmless, e))
            return -EINVAL;
    return 0;
}

static int bad_size(const struct model *m, const char *what, uint32_t found, const char *wanted,
                    struct err *e)
{
    return err_set(e, -EINVAL, "%s: %s: %u (%s)", m->path, what, found, wanted);
}

static int read_heads(struct model *m, struct err *e)
{
    uint32_t value_dim;

    if (model_key_u32(m, "attention.head_count", 0, 1, MAX_HEADS, &m->n_head, e))
        return -EINVAL;
    m->n_head_kv = m->n_head;
    if (model_key_u32(m, "attention.head_count_kv", 1, 1, m->n_head, &m->n_head_kv, e))
        return -EINVAL;
    if (m->n_head % m->n_head_kv)
        return bad_size(m, "attention.head_count_kv", m->n_head_kv,
                        "a divisor of attention.head_count", e);
    m->head_dim = m->n_embd / m->n_head;
    if (model_key_u32(m, "attention.key_length", 1, 2, MAX_HEAD_DIM, &m->head_dim, e))
        return -EINVAL;
    value_dim = m->head_dim;
    if (model_key_u32(m, "attention.value_length", 1, 2, MAX_HEAD_DIM, &value_dim, e))
        return -EINVAL;
    if (value_dim != m->head_dim)
        return bad_size(m, "attention.value_length", value_dim, "the same as attention.key_length",
                        e);
    if (m->head_dim == 0 || m->head_dim > MAX_HEAD_DIM)
        return bad_size(m, "size of a head", m->head_dim,
                        "embedding_length / head_count, 2 to 4096", e);
    m->n_rot = m->head_dim;
    if (model_key_u32(m, "rope.dimension_count", 1, 2, m->head_dim, &m->n_rot, e))
        return -EINVAL;
    if (m->n_rot % 2)
        return bad_size(m, "rope.dimension_count", m->n_rot, "an even number", e);
    return 0;
}

static int read_router(struct model *m, int normalise, struct err *e)
{
    int norm = normalise;

    if (model_key_u32(m, "expert_count", 0, 1, MODEL_MAX_EXPERTS, &m->n_experts, e) ||
        model_key_u32(m, "expert_used_count", 0, 1, m->n_experts, &m->top_k, e) ||
        model_key_bool(m, "expert_weights_norm", 1, &norm, e))
        return -EINVAL;
    if (norm != normalise)
        return err_set(
            e, -EINVAL, "%s: %s.expert_weights_norm: %s (%s, as the architecture defines it)",
            m->path, m->arch->name, norm ? "true" : "false", normalise ? "true" : "false");
    m->router_normalise = normalise;
    m->router_floor = 6.103515625e-5f; /* 2^-14, rule 26's constant of qwen3moe */
    m->router_scale = 1;
    if (model_key_f32(m, "expert_weights_scale", 1, &m->router_scale, e))
        return -EINVAL;
    if (m->router_scale == 0) /* what files write that have none */
        m->router_scale = 1;
    return 0;
}

static int read_sizes(struct model *m, int normalise, struct err *e)
{
    m->rope_base = 10000;
    if (model_key_u32(m, "block_count", 0, 1, MODEL_MAX_LAYERS, &m->n_layers, e) ||
        model_key_u32(m, "context_length", 0, 1, INT32_MAX, &m->n_ctx_train, e) ||
        model_key_u32(m, "embedding_length", 0, 1, MAX_WIDTH, &m->n_embd, e) || read_heads(m, e) ||
        model_key_f32(m, "rope.freq_base", 1, &m->rope_base, e) ||
        model_key_f32(m, "attention.layer_norm_rms_epsilon", 0, &m->rms_eps, e) ||
        read_router(m, normalise, e) || refuse_foreign(m, e))
        return -EINVAL;
    if (!(m->rope_base > 0))
        return err_set(e, -EINVAL, "%s: %s.rope.freq_base: %g (above 0)", m->path, m->arch->name,
                       (double)m->rope_base);
    if (!(m->rms_eps >= 0))
        return err_set(e, -EINVAL, "%s: %s.attention.layer_norm_rms_epsilon: %g (0 or more)",
                       m->path, m->arch->name, (double)m->rms_eps);
    return 0;
}

static int read_layer(struct model *m, uint32_t il, struct err *e)
{
    struct model_layer *l = &m->layer[il];
    uint64_t d = m->n_embd, q = (uint64_t)m->n_head * m->head_dim,
             kv = (uint64_t)m->n_head_kv * m->head_dim;
    uint64_t q_norm = m->qk_norm_whole ? q : m->head_dim,
             k_norm = m->qk_norm_whole ? kv : m->head_dim;

    l->router_bias = l->shared_gate.w = MODEL_NONE;
    if (model_tensor(m, MODEL_NORM, 0, d, 1, &l->attn_norm, e, "blk.%u.attn_norm.weight", il) ||
        model_weight(m, MODEL_ATTENTION, 0, d, q, &l->attn_q, e, "blk.%u.attn_q", il) ||
        model_weight(m, MODEL_ATTENTION, 0, d, kv, &l->attn_k, e, "blk.%u.attn_k", il) ||
        model_weight(m, MODEL_ATTENTION, 0, d, kv, &l->attn_v, e, "blk.%u.attn_v", il) ||
        model_tensor(m, MODEL_NORM, 0, q_norm, 1, &l->attn_q_norm, e, "blk.%u.attn_q_norm.weight",
                     il) ||
        model_tensor(m, MODEL_NORM, 0, k_norm, 1, &l->attn_k_norm, e, "blk.%u.attn_k_norm.weight",
                     il) ||
        model_weight(m, MODEL_ATTENTION, 0, q, d, &l->attn_output, e, "blk.%u.attn_output", il) ||
        model_tensor(m, MODEL_NORM, 0, d, 1, &l->ffn_norm, e, "blk.%u.ffn_norm.weight", il) ||
        model_weight(m, MODEL_ROUTER, 0, d, m->n_experts, &l->ffn_gate_inp, e,
                     "blk.%u.ffn_gate_inp", il))
        return -EINVAL;
    return model_experts(m, il, l, e);
}

static int read_tensors(struct model *m, struct err *e)
{
    const struct gguf_tensor *embd = gguf_tensor(m->g, "token_embd.weight");

    /* the one size that only a tensor says */
    if (embd && embd->dims[1] > INT32_MAX)
        return err_set(
            e, -EINVAL, "%s: byte %u: tensor 'token_embd.weight': %llu rows are too many",
            gguf_shard_path(m->g, embd->shard), embd->info_at, (unsigned long long)embd->dims[1]);
    m->n_vocab = embd ? (uint32_t)embd->dims[1] : 1;
    m->layer = calloc(m->n_layers, sizeof *m->layer);
    if (!m->layer)
        return err_set(e, -ENOMEM, "%s: no memory for %u layers", m->path, m->n_layers);
    if (model_tensor(m, MODEL_EMBEDDING, 0, m->n_embd, m->n_vocab, &m->token_embd, e,
                     "token_embd.weight"))
        return -EINVAL;
    for (uint32_t il = 0; il < m->n_layers; il++)
        if (read_layer(m, il, e))
            return -EINVAL;
    if (model_tensor(m, MODEL_NORM, 0, m->n_embd, 1, &m->output_norm, e, "output_norm.weight") ||
        model_weight(m, MODEL_HEAD, 1, m->n_embd, m->n_vocab, &m->output, e, "output"))
        return -EINVAL;
    if (m->output.w == MODEL_NONE)
        m->output.w = m->token_embd; /* tied */
    return 0;
}

static int read_olmoe(struct model *m, struct err *e)
{
    m->qk_norm_whole = 1;
    if (read_sizes(m, 0, e) ||
        model_key_u32(m, "feed_forward_length", 0, 1, MAX_WIDTH, &m->n_ff, e))
        return -EINVAL;
    return read_tensors(m, e);
}

static int read_qwen3moe(struct model *m, struct err *e)
{
    uint32_t dense = 0;

    if (read_sizes(m, 1, e) ||
        model_key_u32(m, "expert_feed_forward_length", 1, 1, MAX_WIDTH, &m->n_ff, e))
        return -EINVAL;
    if (!m->n_ff) {
        if (model_key_u32(m, "feed_forward_length", 0, m->top_k, MAX_WIDTH, &dense, e))
            return -EINVAL;
        m->n_ff = dense / m->top_k;
    }
    return read_tensors(m, e);
}

const struct model_arch model_archs[] = {
    {"olmoe", read_olmoe},
    {"qwen3moe", read_qwen3moe},
    {"qwen35moe", model_read_qwen35moe},
    {"qwen4exp", model_read_qwen4exp},
    {"glm5next", model_read_glm5next},
    {"glm5-next", model_read_glm5next},
    {NULL, NULL},
};
