/* Qwen3.8-Flash-Next's layers with random weights, to measure with: four streams, the n-gram table, delta nets,
 * attention that selects blocks. The presets' choice of experts (synth_routing.h) comes about as in qwen3moe, with
 * the delta net of layer 0 as the running mean: its queries and keys read the const columns alone, so that every
 * token has the same ones, and a constant beta makes what they find a mean of the tokens before, which goes to the
 * slow columns. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "coordinator/cli/synth_parts.h"
#include "kernels/type/type.h"

enum { STREAMS = 4, TAPS = 4, POOL = 4, SIZE = 3, PER_GRAM = 8, HEADS = (SIZE - 1) * PER_GRAM, DELTA_DIM = 128 };
#define CONST_VALUE 2.0 /* as synth_file.c has it */
#define MEAN_OF 28.0    /* tokens that the running mean is worth, as synth_routing.c has it */
#define GATED 0.35      /* deviation of silu(g) u, for g and u of deviation 1 */
#define HALF 0.5        /* of a sigmoid around 0; and what gates leave of a vector */
#define ADDED 0.5       /* what all layers' parts add to the own columns, together */
#define SHORT_MEAN 0.05  /* values of the running mean before their norm: silu is linear there, more or less */

struct widths { /* in the model's proportions */
    uint32_t d, hc, rank, k_heads, heads, dim, keys, wide, index_heads, index, row;
};

static struct widths widths_of(const struct synth_shape *s)
{
    struct widths w = {.d = s->embd, .hc = STREAMS * s->embd, .rank = s->embd / 8, .index_heads = 4};

    w.dim = s->embd >= 1024 ? DELTA_DIM : 32;
    w.k_heads = s->embd / 160 ? s->embd / 160 : 1;
    w.heads = 3 * w.k_heads;
    w.keys = w.k_heads * w.dim;
    w.wide = w.heads * w.dim;
    w.index = s->head_dim / 2 < 32 ? 32 : s->head_dim / 2;
    w.row = s->embd / HEADS;
    return w;
}

static int attends(uint32_t i)
{
    return i % 4 == 3;
}
static uint32_t ngram_layer(const struct synth_shape *s)
{
    return s->layers > 1;
}

/* ---- keys ---- */

static void key(struct front *f, const char *name, uint32_t v)
{
    char full[128];

    snprintf(full, sizeof full, "qwen4exp.%s", name);
    synth_key_u32(f, full, v);
}

static void key_f(struct front *f, const char *name, float v)
{
    char full[128];

    snprintf(full, sizeof full, "qwen4exp.%s", name);
    synth_key_f32(f, full, v);
}

static void key_u64s(struct front *f, const char *name, const uint64_t *v, uint32_t n)
{
    char full[128];

    snprintf(full, sizeof full, "qwen4exp.%s", name);
    synth_key_array(f, full, GGUF_U64, n);
    for (uint32_t i = 0; i < n; i++)
        synth_put_u64(f, v[i]);
}

/* How many of the rotated pairs take a text's position, an image's row, its column: all three are one number in text,
 * but other programs want the key. The model's 32 are 11, 11, 10. */
static void sections_key(struct front *f, uint32_t pairs)
{
    synth_key_array(f, "qwen4exp.rope.dimension_sections", GGUF_I32, 4);
    synth_put_u32(f, (pairs + 2) / 3);
    synth_put_u32(f, (pairs + 1) / 3);
    synth_put_u32(f, pairs / 3);
    synth_put_u32(f, 0);
}

static void ngram_keys(struct front *f, const struct synth_shape *s)
{
    static const uint64_t factors[SIZE] = {23703573157769, 20109073645365, 8052911324071}; /* as published */
    uint64_t first[HEADS], rows[HEADS], at = 0;

    for (uint32_t i = 0; i < HEADS; i++, at += rows[i - 1]) {
        first[i] = at;
        rows[i] = s->table_rows / HEADS;
    }
    synth_key_array(f, "qwen4exp.ple.layers", GGUF_I32, 1);
    synth_put_u32(f, ngram_layer(s));
    key(f, "ple.ngram_size", SIZE);
    key(f, "ple.heads_per_ngram", PER_GRAM);
    key(f, "ple.conv_kernel", TAPS);
    key(f, "ple.eos_token_id", 256);
    key(f, "embedding_length_per_layer_input", widths_of(s).row);
    key_u64s(f, "ple.layer_multipliers", factors, SIZE);
    key_u64s(f, "ple.head_offsets", first, HEADS);
    key_u64s(f, "ple.head_vocab_sizes", rows, HEADS);
}

void synth_qwen4_keys(struct front *f, const struct synth_shape *s)
{
    struct widths w = widths_of(s);
    char name[160];

    snprintf(name, sizeof name, "synthetic qwen4exp, %s, %u layers of %u experts, seed %" PRIu64,
             synth_preset_name(s->preset), s->layers, s->experts, s->seed);
    synth_key_text(f, "general.architecture", "qwen4exp");
    synth_key_text(f, "general.type", "model");
    synth_key_text(f, "general.name", name);
    synth_key_text(f, "general.description", "Random weights in a real model's shapes, for measurements.");
    synth_key_u32(f, "general.alignment", 32);
    synth_key_u32(f, "general.quantization_version", 2);
    synth_key_u32(f, "general.file_type", synth_file_type(s->type));
    key(f, "block_count", s->layers);
    key(f, "context_length", s->ctx);
    key(f, "embedding_length", s->embd);
    key(f, "vocab_size", s->vocab);
    key(f, "attention.head_count", s->heads);
    key(f, "attention.head_count_kv", s->kv_heads);
    key(f, "attention.key_length", s->head_dim);
    key(f, "attention.value_length", s->head_dim);
    key_f(f, "attention.layer_norm_rms_epsilon", 1e-9f); /* the running mean is a small vector before its norm */
    key(f, "rope.dimension_count", s->head_dim / 4);
    sections_key(f, s->head_dim / 8);
    key_f(f, "rope.freq_base", 1e7f);
    key(f, "full_attention_interval", 4);
    key(f, "ssm.conv_kernel", TAPS);
    key(f, "ssm.state_size", w.dim);
    key(f, "ssm.group_count", w.k_heads);
    key(f, "ssm.time_step_rank", w.heads);
    key(f, "ssm.inner_size", w.wide);
    key(f, "hyper_connection.count", STREAMS);
    key(f, "hyper_connection.low_rank", w.rank);
    key(f, "attention.indexer.head_count", w.index_heads);
    key(f, "attention.indexer.key_length", w.index);
    key(f, "attention.indexer.top_k", 2048);
    synth_key_array(f, "qwen4exp.attention.compress_ratios", GGUF_I32, s->layers);
    for (uint32_t i = 0; i < s->layers; i++)
        synth_put_u32(f, attends(i) ? POOL : 0);
    key(f, "expert_count", s->experts);
    key(f, "expert_used_count", s->used);
    key(f, "expert_feed_forward_length", s->ff);
    key(f, "expert_shared_feed_forward_length", s->ff);
    ngram_keys(f, s);
}

/* ---- tensors ---- */

struct place {
    struct layout *l;
    const struct synth_routing *r;
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

/* The same into the residual: its own columns, and `slow` times as much into the slow ones. */
static void output(struct place *p, uint32_t type, uint64_t cols, const struct synth_shape *s, uint64_t n, double by,
                   double slow, const char *name)
{
    struct tensor t = {.sd = by / sqrt((double)cols), .rows_parted = 1, .by_col = {1, 1, 1}, .by_row = {0, slow, 1}};

    add(p, t, type, cols, s->embd, n, name);
}

static void values(struct place *p, uint64_t cols, uint64_t rows, double value, const char *name)
{
    add(p, (struct tensor){.making = VALUE, .value = value}, W_F32, cols, rows, 1, name);
}

static int averages(const struct place *p)
{
    return p->i == 0 && p->r->n_const;
}

/* Queries, keys and betas of layer 0 from what all tokens have in common, values from what they have not. */
static void add_mean(struct place *p, const struct synth_shape *s, const struct widths *w)
{
    double own = s->embd - p->r->n_const - p->r->n_slow, beta = 2 / (MEAN_OF + 1);
    struct tensor qkv = {.sd = 1 / sqrt(own), .cols_parted = 1, .rows_parted = 1, .each = 1,
                         .row_end = {2 * w->keys, 2 * w->keys},
                         .by = {[CONST] = {1, 0, 0}, [OWN] = {0, 0, 2 * SHORT_MEAN}}};
    struct tensor strength = {.sd = 1, .cols_parted = 1, .by_row = {1, 1, 1},
                              .embedded = log(beta / (1 - beta)) / (p->r->n_const * HALF * CONST_VALUE)};

    add(p, qkv, s->trunk_type, w->d, 2 * w->keys + w->wide, 1, "attn_qkv.weight");
    add(p, strength, s->trunk_type, w->d, w->heads, 1, "ssm_beta.weight");
}

static void add_delta(struct place *p, const struct synth_shape *s, double added)
{
    struct widths w = widths_of(s);
    uint32_t t = s->trunk_type;

    if (averages(p)) {
        add_mean(p, s, &w);
    } else {
        product(p, t, w.d, 2 * w.keys + w.wide, 1, 1, "attn_qkv.weight");
        product(p, t, w.d, w.heads, 1, 1, "ssm_beta.weight");
    }
    product(p, t, w.d, w.heads, 1, averages(p) ? 0.01 : 1, "ssm_alpha.weight");
    product(p, t, w.d, w.wide, 1, 1, "attn_gate.weight");
    add(p, (struct tensor){.sd = 0.5, .by_col = {1, 1, 1}, .by_row = {1, 1, 1}}, W_F32, TAPS, 2 * w.keys + w.wide, 1,
        "ssm_conv1d.weight");
    values(p, w.heads, 1, averages(p) ? -1e-4 : -1, "ssm_a");
    values(p, w.heads, 1, averages(p) ? 0 : -4, "ssm_dt.bias"); /* a slow decay; hardly any */
    values(p, w.dim, 1, 1, "ssm_norm.weight");
    output(p, t, w.wide, s, 1, added / HALF, averages(p) ? 1 / added : 0, "ssm_out.weight");
}

static void add_attention(struct place *p, const struct synth_shape *s, double added)
{
    struct widths w = widths_of(s);
    uint64_t q = (uint64_t)s->heads * s->head_dim, kv = (uint64_t)s->kv_heads * s->head_dim;
    uint32_t t = s->trunk_type;

    product(p, t, w.d, 2 * q, 1, 1, "attn_q.weight");
    product(p, t, w.d, kv, 1, 1, "attn_k.weight");
    product(p, t, w.d, kv, 1, 1, "attn_v.weight");
    values(p, s->head_dim, 1, 1, "attn_q_norm.weight");
    values(p, s->head_dim, 1, 1, "attn_k_norm.weight");
    output(p, t, q, s, 1, added / HALF, 0, "attn_output.weight");
    product(p, t, w.d, (uint64_t)w.index_heads * w.index, 1, 1, "indexer.q_proj.weight");
    product(p, t, w.d, w.index, 1, 1, "indexer.k_proj.weight");
    values(p, w.index, 1, 1, "indexer.q_norm.weight");
    values(p, w.index, 1, 1, "indexer.k_norm.weight");
}

static void add_feed(struct place *p, const struct synth_shape *s, double added)
{
    uint32_t t = s->trunk_type, down = s->ff % type_info(t)->block_values ? s->down_type : t;

    if (p->r->n_const)
        add(p, (struct tensor){.making = ROUTER}, W_F32, s->embd, s->experts, 1, "ffn_gate_inp.weight");
    else
        product(p, W_F32, s->embd, s->experts, 1, 1, "ffn_gate_inp.weight");
    product(p, s->type, s->embd, s->ff, s->experts, 1 / HALF, "ffn_gate_exps.weight");
    product(p, s->type, s->embd, s->ff, s->experts, 1 / HALF, "ffn_up_exps.weight");
    output(p, s->down_type, s->ff, s, s->experts, added / GATED, 0, "ffn_down_exps.weight");
    product(p, t, s->embd, s->ff, 1, 1 / HALF, "ffn_gate_shexp.weight");
    product(p, t, s->embd, s->ff, 1, 1 / HALF, "ffn_up_shexp.weight");
    output(p, down, s->ff, s, 1, added / GATED, 0, "ffn_down_shexp.weight");
    product(p, W_F32, s->embd, 1, 1, 1, "ffn_gate_inp_shexp.weight");
}

static void add_streams(struct place *p, const struct synth_shape *s, const char *stem, int inject)
{
    struct widths w = widths_of(s);
    char name[48];

    snprintf(name, sizeof name, "%s_norm.weight", stem);
    values(p, w.hc, 1, 1, name);
    snprintf(name, sizeof name, "%s_down.weight", stem);
    product(p, s->trunk_type, w.hc, w.rank, 1, 1, name);
    snprintf(name, sizeof name, "%s_up.weight", stem);
    product(p, s->trunk_type, w.rank, w.hc, 1, 1, name);
    snprintf(name, sizeof name, "%s_inject.weight", stem);
    if (inject)
        product(p, s->trunk_type, w.hc, STREAMS, 1, 1, name);
}

static void add_ngram(struct place *p, const struct synth_shape *s, double added)
{
    struct widths w = widths_of(s);

    product(p, s->trunk_type, w.d, w.hc, 1, 1, "ple_key.weight");
    output(p, s->trunk_type, w.d, s, 1, added / HALF, 0, "ple_value.weight");
    values(p, w.hc, 1, 1, "ple_norm_key.weight");
    values(p, w.hc, 1, 1, "ple_norm_query.weight");
    values(p, w.hc, 1, 1, "ple_norm_conv.weight");
    add(p, (struct tensor){.sd = added / 2, .by_col = {1, 1, 1}, .by_row = {1, 1, 1}}, W_F16, TAPS, w.hc, 1,
        "ple_conv1d.weight");
}

static void add_layer(struct place *p, const struct synth_shape *s, double added)
{
    add_streams(p, s, "hc_attn", 1);
    add_streams(p, s, "hc_ffn", 1);
    if (p->i == ngram_layer(s))
        add_ngram(p, s, added);
    if (attends(p->i))
        add_attention(p, s, added);
    else
        add_delta(p, s, added);
    add_feed(p, s, added);
}

/* The mixer before the head, whose names have no layer. */
static int add_last(struct layout *l, const struct synth_shape *s, struct err *e)
{
    struct widths w = widths_of(s);
    struct tensor one = {.making = VALUE, .value = 1};
    struct tensor down = {.sd = 1 / sqrt(w.hc), .by_col = {1, 1, 1}, .by_row = {1, 1, 1}}, up = down;
    int rc = synth_add(l, one, W_F32, w.hc, 1, 1, e, "output_hc_norm.weight");

    up.sd = 1 / sqrt(w.rank);
    rc = rc ? rc : synth_add(l, down, s->trunk_type, w.hc, w.rank, 1, e, "output_hc_down.weight");
    return rc ? rc : synth_add(l, up, s->trunk_type, w.rank, w.hc, 1, e, "output_hc_up.weight");
}

int synth_qwen4_lay_out(struct layout *l, const struct synth_shape *s, const struct synth_routing *r, struct err *e)
{
    struct tensor embd = {.sd = 1, .cols_parted = 1, .by_col = {0, 0, 1}, .by_row = {1, 1, 1}, .embedded = CONST_VALUE};
    struct tensor head = {.sd = 1 / sqrt(s->embd - r->n_const - r->n_slow), .cols_parted = 1, .by_col = {0, 0, 1},
                          .by_row = {1, 1, 1}};
    struct tensor rows = {.sd = 1, .by_col = {1, 1, 1}, .by_row = {1, 1, 1}};
    double added = ADDED / sqrt(2.0 * s->layers);
    struct place p = {l, r, e, 0, 0};
    int rc;

    l->t = calloc(8 + (size_t)s->layers * SYNTH_QWEN4_TENSORS, sizeof *l->t);
    if (!l->t)
        return err_set(e, -ENOMEM, "no memory for the tensors of %u layers", s->layers);
    rc = synth_add(l, embd, s->trunk_type, s->embd, s->vocab, 1, e, "token_embd.weight");
    rc = rc ? rc : synth_add(l, rows, s->down_type, widths_of(s).row, s->table_rows, 1, e, "per_layer_token_embd.weight");
    for (; !rc && p.i < s->layers; p.i++) {
        add_layer(&p, s, added);
        rc = p.rc;
    }
    rc = rc ? rc : add_last(l, s, e);
    return rc ? rc : synth_add(l, head, s->trunk_type, s->embd, s->vocab, 1, e, "output.weight");
}
