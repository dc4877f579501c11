/* Reader of glm5next, also spelled glm5-next: delta-rule layers and latent attention over selected
 * pools, four residual streams, sigmoid routing, dense first layers, a NextN block. Both spellings'
 * keys and names are taken; what is computed with them: coordinator/trunk/arch/glm5next.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/model/model.h"

enum { MAX_WIDTH = 1 << 20, MAX_HEADS = 1 << 12, MAX_HEAD_DIM = 1 << 12, MAX_POOL = 256, MAX_STREAMS = 16 };

/* One key, or where it is absent the name that early files have for it. */
static int key_or(const struct model *m, const char *key, const char *early, uint32_t min, uint32_t max,
                  uint32_t *out, struct err *e)
{
    uint32_t found = 0;

    if (model_key_u32(m, key, 1, min, max, &found, e) || (!found && model_key_u32(m, early, 1, min, max, &found, e)))
        return -EINVAL;
    if (!found) /* the line names the present key */
        return model_key_u32(m, key, 0, min, max, out, e);
    *out = found;
    return 0;
}

static int read_delta(struct model *m, struct err *e)
{
    float none = 1, bound = none;

    m->delta.heads = m->delta.k_heads = m->n_head;
    if (key_or(m, "kda.head_dim", "ssm.state_size", 1, MAX_HEAD_DIM, &m->delta.dim, e) ||
        model_key_u32(m, "ssm.conv_kernel", 0, 1, 16, &m->delta.taps, e) ||
        model_key_f32(m, "kda.gate_lower_bound", 1, &bound, e))
        return -EINVAL;
    m->delta.bounded = bound != none;
    m->delta.bound = m->delta.bounded ? bound : 0;
    if (m->delta.bounded && !(bound < 0))
        return err_set(e, -EINVAL, "%s: %s.kda.gate_lower_bound: %g (below 0)", m->path, model_arch_name(m),
                       (double)bound);
    return 0;
}

static int read_latent(struct model *m, struct err *e)
{
    uint32_t width, positions;
    int tail = 1;

    m->latent.norm_eps = 0;
    if (model_key_u32(m, "attention.q_lora_rank", 0, 1, MAX_WIDTH, &m->latent.q_rank, e) ||
        model_key_u32(m, "attention.kv_lora_rank", 0, 1, MAX_WIDTH, &m->latent.rank, e) ||
        model_key_u32(m, "attention.key_length_mla", 0, 1, MAX_HEAD_DIM, &m->latent.k, e) ||
        model_key_u32(m, "attention.value_length_mla", 0, 1, MAX_HEAD_DIM, &m->latent.v, e) ||
        model_key_u32(m, "attention.indexer.head_count", 0, 1, MAX_HEADS, &m->latent.index_heads, e) ||
        model_key_u32(m, "attention.indexer.key_length", 0, 1, MAX_HEAD_DIM, &m->latent.index_size, e) ||
        key_or(m, "attention.indexer.kpool", "attention.indexer.block_size", 1, MAX_POOL, &m->latent.pool, e) ||
        model_key_u32(m, "attention.indexer.top_k", 0, m->latent.pool, 1 << 20, &positions, e) ||
        model_key_bool(m, "attention.indexer.kpool_select_tail", 1, &tail, e) ||
        model_key_f32(m, "attention.layer_norm_epsilon", 1, &m->latent.norm_eps, e))
        return -EINVAL;
    m->latent.most = positions / m->latent.pool;
    if (m->latent.norm_eps == 0)
        m->latent.norm_eps = 1e-6f;
    width = m->latent.rank; /* of what is kept, by two more names */
    if (model_key_u32(m, "attention.key_length", 1, width, width, &width, e) ||
        model_key_u32(m, "attention.value_length", 1, width, width, &width, e))
        return -EINVAL;
    if (!tail)
        return err_set(e, -EINVAL, "%s: %s.attention.indexer.kpool_select_tail: false (true: the open pool is always "
                                   "attended to)", m->path, model_arch_name(m));
    return 0;
}

static int read_router(struct model *m, struct err *e)
{
    uint32_t gating = 2;

    m->router_normalise = 1;
    m->router_floor = 6.103515625e-5f; /* 2^-14 */
    m->router_scale = 1;
    if (model_key_u32(m, "expert_count", 0, 1, MODEL_MAX_EXPERTS, &m->n_experts, e) ||
        model_key_u32(m, "expert_used_count", 0, 1, m->n_experts, &m->top_k, e) ||
        model_key_bool(m, "expert_weights_norm", 1, &m->router_normalise, e) ||
        model_key_f32(m, "expert_weights_scale", 1, &m->router_scale, e) ||
        model_key_u32(m, "expert_gating_func", 1, 2, 2, &gating, e) ||
        model_key_refuse(m, "expert_group_count", 1, e))
        return -EINVAL;
    m->router_sigmoid = 1;
    if (m->router_scale == 0)
        m->router_scale = 1;
    return 0;
}

static int read_sizes(struct model *m, struct err *e)
{
    m->streams.eps = 1e-6f;
    m->streams.iterations = 20;
    if (model_key_u32(m, "block_count", 0, 1, MODEL_MAX_LAYERS, &m->n_layers, e) ||
        model_key_u32(m, "nextn_predict_layers", 1, 0, 1, &m->n_nextn, e) ||
        model_key_u32(m, "context_length", 0, 1, INT32_MAX, &m->n_ctx_train, e) ||
        model_key_u32(m, "embedding_length", 0, 1, MAX_WIDTH, &m->n_embd, e) ||
        model_key_u32(m, "attention.head_count", 0, 1, MAX_HEADS, &m->n_head, e) ||
        model_key_f32(m, "attention.layer_norm_rms_epsilon", 0, &m->rms_eps, e) ||
        model_key_refuse(m, "rope.dimension_count", 0, e) ||
        model_key_u32(m, "hyper_connection.count", 0, 1, MAX_STREAMS, &m->streams.n, e) ||
        model_key_u32(m, "hyper_connection.sinkhorn_iterations", 1, 1, 1000, &m->streams.iterations, e) ||
        model_key_f32(m, "hyper_connection.epsilon", 1, &m->streams.eps, e) || read_delta(m, e) ||
        read_latent(m, e) || read_router(m, e))
        return -EINVAL;
    m->n_head_kv = 1;
    m->head_dim = m->latent.rank;
    if (m->n_nextn >= m->n_layers)
        return err_set(e, -EINVAL, "%s: %s.nextn_predict_layers: %u of %u blocks (fewer)", m->path,
                       model_arch_name(m), m->n_nextn, m->n_layers);
    if (m->n_nextn && !model_has(m, "blk.%u.nextn.eh_proj.weight", m->n_layers - 1)) {
        m->n_nextn = 0; /* a file from which the block was taken: the trunk is whole without it */
        m->n_layers--;
    }
    if (!(m->rms_eps >= 0) || !(m->latent.norm_eps > 0))
        return err_set(e, -EINVAL, "%s: %s.attention.layer_norm_rms_epsilon: %g, layer_norm_epsilon: %g (0 or more)",
                       m->path, model_arch_name(m), (double)m->rms_eps, (double)m->latent.norm_eps);
    return 0;
}

/* ---- tensors ---- */

static int read_mlp(struct model *m, struct model_mlp *p, uint32_t n, const char *end, uint32_t il, struct err *e)
{
    p->n = n;
    return model_weight(m, MODEL_DENSE, 0, m->n_embd, n, &p->gate, e, "blk.%u.ffn_gate%s", il, end) ||
                   model_weight(m, MODEL_DENSE, 0, m->n_embd, n, &p->up, e, "blk.%u.ffn_up%s", il, end) ||
                   model_weight(m, MODEL_DENSE, 0, n, m->n_embd, &p->down, e, "blk.%u.ffn_down%s", il, end)
               ? -EINVAL
               : 0;
}

static int read_delta_layer(struct model *m, struct model_layer *l, uint32_t il, struct err *e)
{
    static const char *const conv[] = {"q", "k", "v"}, *const first[] = {"a", "b"};
    uint64_t d = m->n_embd, dim = m->delta.dim, width = m->delta.heads * dim;
    struct model_delta *k = &l->delta;

    if (model_weight(m, MODEL_ATTENTION, 0, d, width, &l->attn_q, e, "blk.%u.attn_q", il) ||
        model_weight(m, MODEL_ATTENTION, 0, d, width, &l->attn_k, e, "blk.%u.attn_k", il) ||
        model_weight(m, MODEL_ATTENTION, 0, d, width, &l->attn_v, e, "blk.%u.attn_v", il) ||
        model_weight(m, MODEL_ATTENTION, 0, width, d, &l->attn_output, e, "blk.%u.attn_output", il) ||
        model_weight(m, MODEL_ATTENTION, 0, d, m->delta.heads, &k->beta, e, "blk.%u.ssm_beta", il) ||
        model_values(m, MODEL_ATTENTION, (const uint64_t[4]){m->delta.heads, 1, 1, 1}, &k->a, e, "blk.%u.ssm_a", il) ||
        model_values(m, MODEL_ATTENTION, (const uint64_t[4]){width, 1, 1, 1}, &k->dt, e, "blk.%u.ssm_dt.bias", il) ||
        model_tensor(m, MODEL_NORM, 0, dim, 1, &k->norm, e, "blk.%u.ssm_norm.weight", il))
        return -EINVAL;
    for (int i = 0; i < 3; i++)
        if (model_values(m, MODEL_ATTENTION, (const uint64_t[4]){m->delta.taps, 1, width, 1}, &k->conv[i], e,
                         "blk.%u.ssm_conv1d_%s.weight", il, conv[i]))
            return -EINVAL;
    for (int i = 0; i < 2; i++) {
        uint64_t in = i ? dim : d, out = i ? width : dim;
        if (model_weight(m, MODEL_ATTENTION, 0, in, out, &k->decay[i], e, "blk.%u.ssm_f_%s", il, first[i]) ||
            model_weight(m, MODEL_ATTENTION, 0, in, out, &k->gate[i], e, "blk.%u.ssm_g_%s", il, first[i]))
            return -EINVAL;
    }
    return 0;
}

static int read_index(struct model *m, struct model_latent *a, uint32_t il, struct err *e)
{
    uint64_t d = m->n_embd, size = m->latent.index_size;

    a->own_index = 1;
    if (model_key_bool_of(m, "attention.indexer.types", il, &a->own_index, e))
        return -EINVAL;
    if (!a->own_index)
        return 0;
    return model_weight(m, MODEL_ATTENTION, 0, m->latent.q_rank, m->latent.index_heads * size, &a->index_q, e,
                        "blk.%u.indexer.attn_q_b", il) ||
                   model_weight(m, MODEL_ATTENTION, 0, d, size, &a->index_k, e, "blk.%u.indexer.attn_k", il) ||
                   model_tensor(m, MODEL_NORM, 0, size, 1, &a->index_norm, e, "blk.%u.indexer.k_norm.weight", il) ||
                   model_tensor(m, MODEL_NORM, 0, size, 1, &a->index_bias, e, "blk.%u.indexer.k_norm.bias", il) ||
                   model_weight(m, MODEL_ATTENTION, 0, d, m->latent.index_heads, &a->index_w, e,
                                "blk.%u.indexer.proj", il) ||
                   model_weight(m, MODEL_ATTENTION, 0, d, size, &a->index_gate, e, "blk.%u.indexer_compressor_gate",
                                il) ||
                   model_values(m, MODEL_ATTENTION, (const uint64_t[4]){size, m->latent.pool, 1, 1}, &a->index_ape, e,
                                "blk.%u.indexer_compressor_ape.weight", il)
               ? -EINVAL
               : 0;
}

static int read_latent_layer(struct model *m, struct model_layer *l, uint32_t il, struct err *e)
{
    uint64_t d = m->n_embd, rank = m->latent.rank, heads = m->n_head, k = m->latent.k, v = m->latent.v;
    struct model_latent *a = &l->latent;

    if (model_weight(m, MODEL_ATTENTION, 0, d, m->latent.q_rank, &a->q_a, e, "blk.%u.attn_q_a", il) ||
        model_tensor(m, MODEL_NORM, 0, m->latent.q_rank, 1, &a->q_norm, e, "blk.%u.attn_q_a_norm.weight", il) ||
        model_weight(m, MODEL_ATTENTION, 0, m->latent.q_rank, heads * k, &a->q_b, e, "blk.%u.attn_q_b", il) ||
        model_weight(m, MODEL_ATTENTION, 0, d, rank, &a->kv_a, e, "blk.%u.attn_kv_a_mqa", il) ||
        model_tensor(m, MODEL_NORM, 0, rank, 1, &a->kv_norm, e, "blk.%u.attn_kv_a_norm.weight", il) ||
        model_weights(m, MODEL_ATTENTION, k, rank, heads, &a->k_b, e, "blk.%u.attn_k_b", il) ||
        model_weights(m, MODEL_ATTENTION, rank, v, heads, &a->v_b, e, "blk.%u.attn_v_b", il) ||
        model_weight(m, MODEL_ATTENTION, 0, heads * v, d, &l->attn_output, e, "blk.%u.attn_output", il))
        return -EINVAL;
    return read_index(m, a, il, e);
}

static int read_streams(struct model *m, struct model_streams *s, const char *part, uint32_t il, struct err *e)
{
    uint64_t n = m->streams.n, mix = (2 + n) * n;

    return model_weight(m, MODEL_STREAMS, 0, n * m->n_embd, mix, &s->fn, e, "blk.%u.hc_%s_fn", il, part) ||
                   model_values(m, MODEL_STREAMS, (const uint64_t[4]){mix, 1, 1, 1}, &s->base, e,
                                "blk.%u.hc_%s_base.weight", il, part) ||
                   model_values(m, MODEL_STREAMS, (const uint64_t[4]){3, 1, 1, 1}, &s->scale, e,
                                "blk.%u.hc_%s_scale.weight", il, part)
               ? -EINVAL
               : 0;
}

static int read_experts(struct model *m, struct model_layer *l, uint32_t il, struct err *e)
{
    uint32_t n_shared = 1, n = 0;

    if (model_key_u32(m, "expert_shared_count", 1, 0, 64, &n_shared, e))
        return -EINVAL;
    n = m->n_ff * n_shared;
    if (model_key_u32(m, "expert_shared_feed_forward_length", 1, 0, MAX_WIDTH, &n, e) ||
        model_key_f32_of(m, "swiglu_clamp_exp", 1, il, &l->limit, e) ||
        model_weight(m, MODEL_ROUTER, 0, m->n_embd, m->n_experts, &l->ffn_gate_inp, e, "blk.%u.ffn_gate_inp", il) ||
        model_tensor(m, MODEL_ROUTER, 1, m->n_experts, 1, &l->router_bias, e, "blk.%u.exp_probs_b.bias", il) ||
        (n_shared && n && read_mlp(m, &l->shared, n, "_shexp", il, e)))
        return -EINVAL;
    return model_experts(m, il, l, e);
}

static int read_layer(struct model *m, uint32_t il, uint32_t n_dense, uint32_t dense, struct err *e)
{
    struct model_layer *l = &m->layer[il];
    int nextn = il >= m->n_layers - m->n_nextn;
    uint32_t kv = 1;

    l->router_bias = l->shared_gate.w = MODEL_NONE;
    for (int k = 0; k < EXPERT_MATRICES; k++)
        l->expert[k].scale = MODEL_NONE;
    if (model_key_u32_of(m, "attention.head_count_kv", 0, il, 0, 1, &kv, e) ||
        model_key_f32_of(m, "swiglu_clamp_shexp", 1, il, &l->shared_limit, e) ||
        model_tensor(m, MODEL_NORM, 0, m->n_embd, 1, &l->attn_norm, e, "blk.%u.attn_norm.weight", il) ||
        model_tensor(m, MODEL_NORM, 0, m->n_embd, 1, &l->ffn_norm, e, "blk.%u.ffn_norm.weight", il))
        return -EINVAL;
    l->mixer = kv || nextn ? MIX_LATENT : MIX_DELTA;
    if (!nextn && (read_streams(m, &l->streams[0], "attn", il, e) || read_streams(m, &l->streams[1], "ffn", il, e)))
        return -EINVAL;
    if (l->mixer == MIX_DELTA ? read_delta_layer(m, l, il, e) : read_latent_layer(m, l, il, e))
        return -EINVAL;
    return il < n_dense ? read_mlp(m, &l->dense, dense, "", il, e) : read_experts(m, l, il, e);
}

/* The experts' width: one number, or one a layer of which dense ones say nothing. */
static int read_widths(struct model *m, uint32_t *n_dense, uint32_t *dense, struct err *e)
{
    uint32_t n = 0, trunk = m->n_layers - m->n_nextn;

    *n_dense = *dense = 0;
    if (model_key_u32(m, "leading_dense_block_count", 1, 0, trunk, n_dense, e) ||
        (*n_dense && model_key_u32(m, "feed_forward_length", 0, 1, MAX_WIDTH, dense, e)))
        return -EINVAL;
    for (uint32_t il = *n_dense; il < m->n_layers; il++) {
        if (model_key_u32_of(m, "expert_feed_forward_length", 0, il, 1, MAX_WIDTH, &n, e))
            return -EINVAL;
        if (m->n_ff && n != m->n_ff)
            return err_set(e, -EINVAL, "%s: %s.expert_feed_forward_length: %u and %u (the same for all experts)",
                           m->path, model_arch_name(m), m->n_ff, n);
        m->n_ff = n;
    }
    if (*n_dense == m->n_layers)
        return err_set(e, -EINVAL, "%s: %s.leading_dense_block_count: %u of %u blocks (fewer)", m->path,
                       model_arch_name(m), *n_dense, m->n_layers);
    return 0;
}

int model_read_glm5next(struct model *m, struct err *e)
{
    const struct gguf_tensor *embd = gguf_tensor(m->g, "token_embd.weight");
    uint32_t n_dense, dense;

    if (read_sizes(m, e) || read_widths(m, &n_dense, &dense, e))
        return -EINVAL;
    if (embd && embd->dims[1] > INT32_MAX)
        return err_set(e, -EINVAL, "%s: byte %u: tensor 'token_embd.weight': %llu rows are too many",
                       gguf_shard_path(m->g, embd->shard), embd->info_at, (unsigned long long)embd->dims[1]);
    m->n_vocab = embd ? (uint32_t)embd->dims[1] : 1;
    m->layer = calloc(m->n_layers, sizeof *m->layer);
    if (!m->layer)
        return err_set(e, -ENOMEM, "%s: no memory for %u layers", m->path, m->n_layers);
    if (model_tensor(m, MODEL_EMBEDDING, 0, m->n_embd, m->n_vocab, &m->token_embd, e, "token_embd.weight") ||
        model_tensor(m, MODEL_NORM, 0, m->n_embd, 1, &m->output_norm, e, "output_norm.weight") ||
        model_weight(m, MODEL_HEAD, 1, m->n_embd, m->n_vocab, &m->output, e, "output"))
        return -EINVAL;
    if (m->output.w == MODEL_NONE)
        m->output.w = m->token_embd; /* tied */
    for (uint32_t il = 0; il < m->n_layers; il++)
        if (read_layer(m, il, n_dense, dense, e))
            return -EINVAL;
    return m->n_nextn ? model_read_nextn(m, e) : 0;
}
