/* GLM-5.3-Flash's layers with random weights, to measure with. The text counts: token t is followed by
 * t + 1, because row t of the embedding is row t + 1 of the head and everything between adds little to
 * it. So the NextN block, which hands the embedding on, drafts what the trunk says, and speculation can be
 * measured; the choice of experts is that of random routers. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "coordinator/cli/synth_parts.h"
#include "kernels/type/type.h"

enum { STREAMS = 4, TAPS = 4, POOL = 4, MIX = (2 + STREAMS) * STREAMS };
#define EMBEDDED 0.25 /* deviation of the embedding's and the head's values */
#define ADDED 0.3     /* what all layers add to it, as a part of it */
#define GATED 0.35    /* deviation of silu(g) u, and of gated heads, for g and u of deviation 1 */

struct widths { /* in the model's proportions */
    uint32_t d, heads, dim, wide; /* KDA: wide = heads * dim */
    uint32_t q_rank, rank, k, v, index_heads, index, dense;
};

static struct widths widths_of(const struct synth_shape *s)
{
    return (struct widths){.d = s->embd,
                           .heads = s->heads,
                           .dim = s->head_dim,
                           .wide = s->heads * s->head_dim,
                           .q_rank = s->embd * 3 / 8,
                           .rank = s->embd / 8,
                           .k = 2 * s->head_dim,
                           .v = 2 * s->head_dim,
                           .index_heads = s->heads > 1 ? s->heads / 2 : 1,
                           .index = s->head_dim,
                           .dense = 3 * s->embd};
}

static int latent(const struct synth_shape *s, uint32_t i)
{
    return i % 4 == 3 || i == s->layers; /* every fourth, and the NextN block */
}

/* ---- keys ---- */

static void key(struct front *f, const char *name, uint32_t v)
{
    char full[128];

    snprintf(full, sizeof full, "glm5next.%s", name);
    synth_key_u32(f, full, v);
}

static void key_f(struct front *f, const char *name, float v)
{
    char full[128];

    snprintf(full, sizeof full, "glm5next.%s", name);
    synth_key_f32(f, full, v);
}

void synth_glm_keys(struct front *f, const struct synth_shape *s)
{
    struct widths w = widths_of(s);
    char name[160];

    snprintf(name, sizeof name, "synthetic glm5next, %u layers of %u experts, seed %" PRIu64, s->layers, s->experts,
             s->seed);
    synth_key_text(f, "general.architecture", "glm5next");
    synth_key_text(f, "general.type", "model");
    synth_key_text(f, "general.name", name);
    synth_key_text(f, "general.description", "Random weights in a real model's shapes, for measurements.");
    synth_key_u32(f, "general.alignment", 32);
    synth_key_u32(f, "general.quantization_version", 2);
    synth_key_u32(f, "general.file_type", synth_file_type(s->type));
    key(f, "block_count", s->layers + 1);
    key(f, "nextn_predict_layers", 1);
    key(f, "context_length", s->ctx);
    key(f, "embedding_length", s->embd);
    key(f, "feed_forward_length", w.dense);
    key(f, "vocab_size", s->vocab);
    key(f, "attention.head_count", s->heads);
    synth_key_array(f, "glm5next.attention.head_count_kv", GGUF_U32, s->layers + 1);
    for (uint32_t i = 0; i <= s->layers; i++)
        synth_put_u32(f, (uint32_t)latent(s, i));
    key_f(f, "attention.layer_norm_rms_epsilon", 1e-5f);
    key_f(f, "attention.layer_norm_epsilon", 1e-6f);
    key(f, "attention.q_lora_rank", w.q_rank);
    key(f, "attention.kv_lora_rank", w.rank);
    key(f, "attention.key_length", w.rank);
    key(f, "attention.value_length", w.rank);
    key(f, "attention.key_length_mla", w.k);
    key(f, "attention.value_length_mla", w.v);
    key(f, "rope.dimension_count", 0);
    key(f, "ssm.conv_kernel", TAPS);
    key(f, "kda.head_dim", w.dim);
    key_f(f, "kda.gate_lower_bound", -5);
    key(f, "attention.indexer.head_count", w.index_heads);
    key(f, "attention.indexer.key_length", w.index);
    key(f, "attention.indexer.top_k", 2048);
    key(f, "attention.indexer.kpool", POOL);
    key(f, "hyper_connection.count", STREAMS);
    key(f, "hyper_connection.sinkhorn_iterations", 20);
    key_f(f, "hyper_connection.epsilon", 1e-6f);
    key(f, "expert_count", s->experts);
    key(f, "expert_used_count", s->used);
    key(f, "expert_feed_forward_length", s->ff);
    key(f, "expert_shared_feed_forward_length", s->ff);
    key(f, "expert_shared_count", 1);
    key(f, "leading_dense_block_count", s->dense);
    key_f(f, "expert_weights_scale", 2.5f);
    key(f, "expert_gating_func", 2);
    key_f(f, "swiglu_clamp_exp", 10);
    key_f(f, "swiglu_clamp_shexp", 10);
}

/* ---- tensors ---- */

struct place {
    struct layout *l;
    struct err *e;
    uint32_t i;  /* the layer */
    int rc;      /* of the first failure */
};

static void add(struct place *p, struct tensor t, uint32_t type, uint64_t cols, uint64_t rows, uint64_t n,
                const char *name)
{
    if (!p->rc)
        p->rc = synth_add(p->l, t, type, cols, rows, n, p->e, "blk.%u.%s", p->i, name);
}

/* Keeps the length of a vector, times `by`. */
static void product(struct place *p, uint32_t type, uint64_t cols, uint64_t rows, uint64_t n, double by,
                    const char *name)
{
    struct tensor t = {.sd = by / sqrt((double)cols), .by_col = {1, 1, 1}, .by_row = {1, 1, 1}};

    add(p, t, type, cols, rows, n, name);
}

static void values(struct place *p, uint64_t cols, uint64_t rows, double value, const char *name)
{
    add(p, (struct tensor){.making = VALUE, .value = value}, W_F32, cols, rows, 1, name);
}

static void add_delta(struct place *p, const struct synth_shape *s, double added)
{
    static const char *const conv[] = {"ssm_conv1d_q.weight", "ssm_conv1d_k.weight", "ssm_conv1d_v.weight"};
    struct widths w = widths_of(s);
    uint32_t t = s->trunk_type;

    product(p, t, w.d, w.wide, 1, 1, "attn_q.weight");
    product(p, t, w.d, w.wide, 1, 1, "attn_k.weight");
    product(p, t, w.d, w.wide, 1, 1, "attn_v.weight");
    for (int i = 0; i < 3; i++)
        add(p, (struct tensor){.sd = 0.5, .by_col = {1, 1, 1}, .by_row = {1, 1, 1}}, W_F32, TAPS, 1, w.wide, conv[i]);
    product(p, t, w.d, w.dim, 1, 1, "ssm_f_a.weight");
    product(p, t, w.dim, w.wide, 1, 1, "ssm_f_b.weight");
    product(p, t, w.d, w.dim, 1, 1, "ssm_g_a.weight");
    product(p, t, w.dim, w.wide, 1, 1, "ssm_g_b.weight");
    product(p, t, w.d, w.heads, 1, 1, "ssm_beta.weight");
    values(p, w.heads, 1, -1, "ssm_a");
    values(p, w.wide, 1, -4, "ssm_dt.bias"); /* a slow decay */
    values(p, w.dim, 1, 1, "ssm_norm.weight");
    product(p, t, w.wide, w.d, 1, added / GATED, "attn_output.weight");
}

static void add_latent(struct place *p, const struct synth_shape *s, double added)
{
    struct widths w = widths_of(s);
    uint32_t t = s->trunk_type;

    product(p, t, w.d, w.q_rank, 1, 1, "attn_q_a.weight");
    values(p, w.q_rank, 1, 1, "attn_q_a_norm.weight");
    product(p, t, w.q_rank, (uint64_t)w.heads * w.k, 1, 1, "attn_q_b.weight");
    product(p, t, w.d, w.rank, 1, 1, "attn_kv_a_mqa.weight");
    values(p, w.rank, 1, 1, "attn_kv_a_norm.weight");
    product(p, t, w.k, w.rank, w.heads, 1, "attn_k_b.weight");
    product(p, t, w.rank, w.v, w.heads, 1, "attn_v_b.weight");
    product(p, t, (uint64_t)w.heads * w.v, w.d, 1, added, "attn_output.weight");
    product(p, t, w.q_rank, (uint64_t)w.index_heads * w.index, 1, 1, "indexer.attn_q_b.weight");
    product(p, t, w.d, w.index, 1, 1, "indexer.attn_k.weight");
    values(p, w.index, 1, 1, "indexer.k_norm.weight");
    values(p, w.index, 1, 0, "indexer.k_norm.bias");
    product(p, W_F32, w.d, w.index_heads, 1, 1, "indexer.proj.weight");
    product(p, W_F32, w.d, w.index, 1, 1, "indexer_compressor_gate.weight");
    values(p, w.index, POOL, 0, "indexer_compressor_ape.weight");
}

static void add_mlp(struct place *p, const struct synth_shape *s, uint32_t width, const char *end, double added)
{
    char name[48];

    snprintf(name, sizeof name, "ffn_gate%s.weight", end);
    product(p, s->trunk_type, s->embd, width, 1, 1, name);
    snprintf(name, sizeof name, "ffn_up%s.weight", end);
    product(p, s->trunk_type, s->embd, width, 1, 1, name);
    snprintf(name, sizeof name, "ffn_down%s.weight", end);
    product(p, s->trunk_type, width, s->embd, 1, added / GATED, name);
}

static void add_experts(struct place *p, const struct synth_shape *s, double added)
{
    product(p, W_F32, s->embd, s->experts, 1, 1, "ffn_gate_inp.weight");
    values(p, s->experts, 1, 0, "exp_probs_b.bias");
    product(p, s->type, s->embd, s->ff, s->experts, 1, "ffn_gate_exps.weight");
    product(p, s->type, s->embd, s->ff, s->experts, 1, "ffn_up_exps.weight");
    product(p, s->down_type, s->ff, s->embd, s->experts, added / GATED, "ffn_down_exps.weight");
    add_mlp(p, s, s->ff, "_shexp", added);
}

static void add_streams(struct place *p, const struct synth_shape *s, const char *part)
{
    char name[48];

    snprintf(name, sizeof name, "hc_%s_fn.weight", part);
    product(p, W_F32, (uint64_t)STREAMS * s->embd, MIX, 1, 0.1, name);
    snprintf(name, sizeof name, "hc_%s_base.weight", part);
    values(p, MIX, 1, 0, name);
    snprintf(name, sizeof name, "hc_%s_scale.weight", part);
    values(p, 3, 1, 1, name);
}

static void add_layer(struct place *p, const struct synth_shape *s, double added)
{
    values(p, s->embd, 1, 1, "attn_norm.weight");
    values(p, s->embd, 1, 1, "ffn_norm.weight");
    if (p->i < s->layers) {
        add_streams(p, s, "attn");
        add_streams(p, s, "ffn");
    }
    if (latent(s, p->i))
        add_latent(p, s, added);
    else
        add_delta(p, s, added);
    if (p->i < s->dense)
        add_mlp(p, s, 3 * s->embd, "", added);
    else
        add_experts(p, s, added);
}

static void add_nextn(struct place *p, const struct synth_shape *s)
{
    add(p, (struct tensor){.making = IDENTITY}, W_F16, 2ull * s->embd, s->embd, 1, "nextn.eh_proj.weight");
    values(p, s->embd, 1, 1, "nextn.enorm.weight");
    values(p, s->embd, 1, 1, "nextn.hnorm.weight");
    values(p, s->embd, 1, 1, "nextn.shared_head_norm.weight");
}

int synth_glm_lay_out(struct layout *l, const struct synth_shape *s, struct err *e)
{
    struct tensor rows = {.sd = EMBEDDED, .by_col = {1, 1, 1}, .by_row = {1, 1, 1},
                          .seed = s->seed * 0x9E3779B97F4A7C15ull + 0xC0FFEE};
    struct tensor embd = rows;
    double added = EMBEDDED * ADDED / sqrt(2.0 * s->layers);
    struct place p = {l, e, 0, 0};
    int rc;

    embd.making = SUCCESSOR;
    l->t = calloc(3 + (size_t)(s->layers + 1) * SYNTH_GLM_TENSORS, sizeof *l->t);
    if (!l->t)
        return err_set(e, -ENOMEM, "no memory for the tensors of %u layers", s->layers);
    rc = synth_add(l, embd, s->trunk_type, s->embd, s->vocab, 1, e, "token_embd.weight");
    for (; !rc && p.i <= s->layers; p.i++) {
        add_layer(&p, s, added);
        rc = p.rc;
    }
    p.i = s->layers;
    if (!rc)
        add_nextn(&p, s);
    rc = rc ? rc : p.rc;
    rc = rc ? rc
            : synth_add(l, (struct tensor){.making = VALUE, .value = 1}, W_F32, s->embd, 1, 1, e, "output_norm.weight");
    return rc ? rc : synth_add(l, rows, s->trunk_type, s->embd, s->vocab, 1, e, "output.weight");
}
