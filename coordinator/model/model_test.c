/* From files to models: the golden ones against what their makers say, and a small qwen3moe made
 * here, right and with one thing wrong at a time. */
#define _GNU_SOURCE
#include "coordinator/model/model.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "coordinator/model/gguf_build.h"
#include "tests/test.h"

/* --- golden ------------------------------------------------------------------------------------
 */

struct golden {
    const char *path, *arch;
    uint32_t layers, embd, vocab, head, head_kv, head_dim, experts, k, ff;
    float base, eps;
    int tied, whole, normalise;
    unsigned flags;
};

/* tests/golden/README.md, "the models", and the demo's page */
static const struct golden goldens[] = {
    {"tests/golden/tiny/olmoe/model.gguf", "olmoe", 2, 64, 288, 4, 4, 16, 8, 2, 32, 1e4f, 1e-5f, 0,
     1, 0, 0},
    {"tests/golden/tiny/qwen3moe/model.gguf", "qwen3moe", 2, 64, 288, 4, 2, 32, 8, 2, 32, 1e6f,
     1e-6f, 1, 0, 1, 0},
    {"tests/golden/models/olmoe-q8_0/model.gguf", "olmoe", 2, 128, 0, 0, 0, 0, 8, 2, 32, 0, 1e-5f,
     0, 1, 0, 0},
    {"tests/golden/models/qwen3moe-q4_k_m/model.gguf", "qwen3moe", 1, 256, 0, 0, 0, 0, 4, 2, 256, 0,
     1e-6f, 1, 0, 1, 0},
    {"tests/golden/models/qwen3moe-iq/model.gguf", "qwen3moe", 2, 256, 0, 0, 0, 0, 3, 2, 256, 0,
     1e-6f, 1, 0, 1, MODEL_ANY_TYPE},
    {"tests/demo/story-moe-q4_k_m.gguf", "qwen3moe", 4, 256, 2048, 4, 2, 64, 12, 3, 256, 1e6f, 0, 0,
     0, 1, 0},
};

/* Every claimed byte lies in one file, once. */
static void check_places(const struct model *m)
{
    uint64_t sum = m->unused_bytes, by_kind = m->unused_bytes, by_type = 0, in_file = 0;

    for (uint32_t i = 0; i < m->n_tensors; i++) {
        const struct model_tensor *t = &m->tensor[i];

        sum += t->bytes;
        CHECK(t->file_offset + t->bytes <= gguf_shard_bytes(m->g, t->shard), "%s", t->name);
        CHECK(t->bytes == t->row_bytes * t->dims[1] * t->dims[2] * t->dims[3], "%s", t->name);
    }
    for (uint32_t il = 0; il < m->n_layers; il++)
        for (int k = 0; k < EXPERT_MATRICES; k++) {
            const struct model_matrix *x = &m->layer[il].expert[k];

            CHECK(x->file_offset + x->stride * (m->n_experts - 1) + x->bytes <=
                      gguf_shard_bytes(m->g, x->shard),
                  "layer %u", il);
            CHECK(x->bytes == x->rows * x->row_bytes && x->stride >= x->bytes, "layer %u", il);
            sum += x->bytes * m->n_experts;
        }
    for (int k = 0; k < MODEL_KINDS; k++)
        by_kind += m->kind_bytes[k];
    for (int t = 0; t < MODEL_TYPES; t++)
        by_type += m->type_bytes[t];
    for (size_t i = 0; i < gguf_n_tensors(m->g); i++)
        in_file += gguf_tensor_at(m->g, i)->bytes;
    CHECK_EQ(sum, in_file);
    CHECK_EQ(by_kind, in_file);
    CHECK_EQ(by_type, in_file);
}

#define CHECK_IF(want, have)                                                                       \
    do {                                                                                           \
        if (want)                                                                                  \
            CHECK((have) == (want), "%s: %g, wanted %g", w->path, (double)(have), (double)(want)); \
    } while (0)

static void test_golden(void)
{
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
        const struct golden *w = &goldens[i];
        struct model *m = NULL;
        struct err e = {0};

        CHECK(!model_open(w->path, w->flags, &m, &e), "%s", e.msg);
        if (!m)
            continue;
        CHECK_STR(model_arch_name(m), w->arch);
        CHECK_EQ(m->n_layers, w->layers);
        CHECK_EQ(m->n_embd, w->embd);
        CHECK_IF(w->vocab, m->n_vocab);
        CHECK_IF(w->head, m->n_head);
        CHECK_IF(w->head_kv, m->n_head_kv);
        CHECK_IF(w->head_dim, m->head_dim);
        CHECK_IF(w->head_dim, m->n_rot);
        CHECK_EQ(m->n_experts, w->experts);
        CHECK_EQ(m->top_k, w->k);
        CHECK_EQ(m->n_ff, w->ff);
        CHECK_IF(w->base, m->rope_base);
        CHECK_IF(w->eps, m->rms_eps);
        CHECK_EQ(m->qk_norm_whole, w->whole);
        CHECK_EQ(m->router_normalise, w->normalise);
        CHECK(m->router_scale == 1, "%g", (double)m->router_scale);
        CHECK_EQ(m->output.w == m->token_embd, w->tied);
        CHECK(m->n_unused == 0 && m->n_warnings == 0, "%s: %s", w->path,
              m->n_warnings ? m->warning[0] : "");
        check_places(m);
        model_close(m);
    }
}

/* --- a model made here -------------------------------------------------------------------------
 */

enum {
    D = 8,
    HEADS = 2,
    KV = 1,
    HD = 4,
    EXPERTS = 4,
    K = 2,
    FF = 6,
    VOCAB = 10,
    LAYERS = 2,
    F32 = 0
};

struct change {
    const char *arch;    /* NULL: qwen3moe */
    const char *skip;    /* keys (a pattern) or a tensor left out */
    const char *reshape; /* a tensor that gets other dims */
    uint64_t dims[3];
    const char
        *retype; /* a tensor that gets a type without a kernel of 32 values (and 32 columns) */
    int fused;   /* gate and up in one tensor */
    int no_tensors;
    void (*more_keys)(struct build *w);
    void (*more_tensors)(struct build *w);
};

static const char *arch_of(const struct change *c)
{
    return c->arch ? c->arch : "qwen3moe";
}

/* "ARCH.key" unless it is left out */
static const char *key(const struct change *c, const char *name)
{
    static char full[100];

    snprintf(full, sizeof full, "%s.%s", arch_of(c), name);
    return c->skip && !fnmatch(c->skip, name, 0) ? NULL : full;
}
static void key_u32(struct build *w, const struct change *c, const char *name, uint32_t v)
{
    if (key(c, name))
        build_u32(w, key(c, name), v);
}
static void key_f32(struct build *w, const struct change *c, const char *name, float v)
{
    if (key(c, name))
        build_f32(w, key(c, name), v);
}

static void tensor(struct build *w, const struct change *c, uint64_t d0, uint64_t d1, uint64_t d2,
                   const char *fmt, ...)
{
    uint64_t dims[3] = {d0, d1, d2}, n;
    char name[80];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    if (c->skip && !strcmp(c->skip, name))
        return;
    if (c->reshape && !strcmp(c->reshape, name))
        memcpy(dims, c->dims, sizeof dims);
    n = dims[0] * dims[1] * dims[2];
    if (c->retype && !strcmp(c->retype, name)) /* F64 */
        build_tensor(w, name, 28, 3, dims, 8 * n);
    else
        build_tensor(w, name, F32, dims[2] > 1 ? 3 : dims[1] > 1 ? 2 : 1, dims, 4 * n);
}

static void make_keys(struct build *w, const struct change *c)
{
    if (!c->skip || strcmp(c->skip, "general.architecture"))
        build_string(w, "general.architecture", arch_of(c));
    build_string(w, "general.name", "small");
    key_u32(w, c, "block_count", LAYERS);
    key_u32(w, c, "context_length", 77);
    key_u32(w, c, "embedding_length", D);
    key_u32(w, c, "feed_forward_length", 2 * FF);
    key_u32(w, c, "expert_feed_forward_length", FF);
    key_u32(w, c, "attention.head_count", HEADS);
    key_u32(w, c, "attention.head_count_kv", KV);
    key_u32(w, c, "attention.key_length", HD);
    key_f32(w, c, "rope.freq_base", 5000);
    key_f32(w, c, "attention.layer_norm_rms_epsilon", 1e-6f);
    key_u32(w, c, "expert_count", EXPERTS);
    key_u32(w, c, "expert_used_count", K);
    if (c->more_keys)
        c->more_keys(w);
}

static void make_layer(struct build *w, const struct change *c, unsigned il)
{
    tensor(w, c, D, 1, 1, "blk.%u.attn_norm.weight", il);
    tensor(w, c, D, HEADS * HD, 1, "blk.%u.attn_q.weight", il);
    tensor(w, c, D, KV * HD, 1, "blk.%u.attn_k.weight", il);
    tensor(w, c, D, KV * HD, 1, "blk.%u.attn_v.weight", il);
    tensor(w, c, HD, 1, 1, "blk.%u.attn_q_norm.weight", il);
    tensor(w, c, HD, 1, 1, "blk.%u.attn_k_norm.weight", il);
    tensor(w, c, HEADS * HD, D, 1, "blk.%u.attn_output.weight", il);
    tensor(w, c, D, 1, 1, "blk.%u.ffn_norm.weight", il);
    tensor(w, c, D, EXPERTS, 1, "blk.%u.ffn_gate_inp.weight", il);
    if (c->fused) {
        tensor(w, c, D, 2 * FF, EXPERTS, "blk.%u.ffn_gate_up_exps.weight", il);
    } else {
        tensor(w, c, D, FF, EXPERTS, "blk.%u.ffn_gate_exps.weight", il);
        tensor(w, c, D, FF, EXPERTS, "blk.%u.ffn_up_exps.weight", il);
    }
    tensor(w, c, FF, D, EXPERTS, "blk.%u.ffn_down_exps.weight", il);
}

static int make(const struct change *c, struct model **m, struct err *e)
{
    struct build w;
    struct gguf *g;
    int rc;

    build_begin(&w, 3);
    make_keys(&w, c);
    if (!c->no_tensors) {
        tensor(&w, c, D, VOCAB, 1, "token_embd.weight");
        for (unsigned il = 0; il < LAYERS; il++)
            make_layer(&w, c, il);
        tensor(&w, c, D, 1, 1, "output_norm.weight");
        tensor(&w, c, D, VOCAB, 1, "output.weight");
    }
    if (c->more_tensors)
        c->more_tensors(&w);
    build_end(&w);
    *m = NULL;
    *e = (struct err){0};
    rc = gguf_parse("m.gguf", w.b, w.n, w.n, &g, e);
    CHECK(!rc, "%s", e->msg);
    build_free(&w);
    return rc ? rc : model_from_gguf(g, 0, m, e);
}

static void accepted(const struct change *c, void (*look)(const struct model *m))
{
    struct model *m;
    struct err e;

    CHECK(!make(c, &m, &e), "%s", e.msg);
    if (m) {
        check_places(m);
        look(m);
    }
    model_close(m);
}

/* The line is "m.gguf: " and, where `at` is set, "byte N: ", and then exactly this. */
static void refused(struct change c, int at, const char *line)
{
    struct model *m;
    struct err e;
    const char *rest = e.msg;
    unsigned byte;
    int n = 0;

    CHECK(make(&c, &m, &e) < 0 && !m, "accepted, wanted: %s", line);
    CHECK(!strncmp(e.msg, "m.gguf: ", 8), "%s", e.msg);
    rest += 8;
    if (at && sscanf(rest, "byte %u: %n", &byte, &n) == 1)
        rest += n;
    CHECK(at == (n > 0), "%s", e.msg);
    CHECK_STR(rest, line);
    model_close(m);
}

static void look_plain(const struct model *m)
{
    const struct model_layer *l = &m->layer[1];
    uint64_t a, b;

    CHECK_STR(m->name, "small");
    CHECK_EQ(m->n_vocab, VOCAB);
    CHECK_EQ(m->n_ctx_train, 77);
    CHECK_EQ(m->n_rot, HD);
    CHECK(m->rope_base == 5000, "%g", (double)m->rope_base);
    CHECK_EQ(m->n_ff, FF);
    CHECK_EQ(m->n_tensors, 3 + LAYERS * 9);
    CHECK_STR(m->tensor[l->attn_k.w].name, "blk.1.attn_k.weight");
    CHECK_STR(m->tensor[l->ffn_gate_inp.w].name, "blk.1.ffn_gate_inp.weight");
    CHECK_STR(m->tensor[m->output.w].name, "output.weight");
    CHECK_EQ(l->attn_q.scale, MODEL_NONE);
    CHECK_EQ(l->attn_q.bias, MODEL_NONE);
    CHECK_EQ(l->expert[MODEL_GATE].rows, FF);
    CHECK_EQ(l->expert[MODEL_GATE].cols, D);
    CHECK_EQ(l->expert[MODEL_DOWN].rows, D);
    CHECK_EQ(l->expert[MODEL_DOWN].cols, FF);
    CHECK_EQ(l->expert[MODEL_DOWN].stride, 4 * D * FF);
    CHECK_EQ(l->expert_bytes, 3 * 4 * D * FF);
    CHECK_EQ(l->expert[MODEL_UP].file_offset,
             gguf_tensor(m->g, "blk.1.ffn_up_exps.weight")->file_offset);
    CHECK_EQ(model_n_experts(m), LAYERS * EXPERTS);
    CHECK_EQ(model_experts_bytes(m), LAYERS * EXPERTS * 3 * 4 * D * FF);
    CHECK_EQ(m->kind_bytes[MODEL_ROUTER], LAYERS * EXPERTS * D * 4);
    CHECK_EQ(m->kind_bytes[MODEL_EMBEDDING], VOCAB * D * 4);
    model_expert_range(m, &a, &b);
    CHECK(a == b && a == l->expert_bytes, "%llu", (unsigned long long)a);
}

static void look_fused(const struct model *m)
{
    const struct model_matrix *gate = &m->layer[1].expert[MODEL_GATE],
                              *up = &m->layer[1].expert[MODEL_UP];
    uint64_t at = gguf_tensor(m->g, "blk.1.ffn_gate_up_exps.weight")->file_offset;

    CHECK_EQ(gate->file_offset, at);
    CHECK_EQ(up->file_offset, at + FF * D * 4);
    CHECK_EQ(gate->stride, 2 * FF * D * 4);
    CHECK_EQ(up->stride, 2 * FF * D * 4);
    CHECK_EQ(up->bytes, FF * D * 4);
    CHECK_EQ(up->rows, FF);
    CHECK_EQ(m->layer[1].expert_bytes, 3 * FF * D * 4);
}

static void look_tied(const struct model *m)
{
    CHECK_EQ(m->output.w, m->token_embd);
    CHECK_EQ(m->kind_bytes[MODEL_HEAD], 0);
}

static void look_derived(const struct model *m)
{
    CHECK_EQ(m->n_ff, FF); /* feed_forward_length / expert_used_count */
}

/* --- companions and strangers ------------------------------------------------------------------
 */

static void one(struct build *w, const char *name, uint64_t n)
{
    build_tensor(w, name, F32, 1, &n, 4 * n);
}

static void companions(struct build *w)
{
    one(w, "blk.0.attn_q.scale", 1);
    one(w, "blk.1.attn_q.bias", HEADS * HD);
    one(w, "output.scale", 1);
    one(w, "blk.1.ffn_down_exps.scale", EXPERTS);
    one(w, "blk.1.ffn_down_exps.input_scale", EXPERTS);
}
static void look_companions(const struct model *m)
{
    CHECK_STR(m->tensor[m->layer[0].attn_q.scale].name, "blk.0.attn_q.scale");
    CHECK_EQ(m->layer[0].attn_q.bias, MODEL_NONE);
    CHECK_STR(m->tensor[m->layer[1].attn_q.bias].name, "blk.1.attn_q.bias");
    CHECK_STR(m->tensor[m->output.scale].name, "output.scale");
    CHECK_STR(m->tensor[m->layer[1].expert[MODEL_DOWN].scale].name, "blk.1.ffn_down_exps.scale");
    CHECK_EQ(m->layer[1].expert[MODEL_UP].scale, MODEL_NONE);
    CHECK_EQ(m->n_warnings, 0);
}

static void bias_of_two_dims(struct build *w)
{
    build_tensor(w, "blk.1.attn_q.bias", 1, 2, (const uint64_t[]){HEADS * HD, 1}, 2 * HEADS * HD);
}
static void look_bias(const struct model *m)
{
    CHECK_EQ(m->tensor[m->layer[1].attn_q.bias].n_dims, 1); /* whoever widens vectors must see it */
    CHECK_EQ(m->tensor[m->layer[1].attn_q.w].n_dims, 2);
    CHECK_EQ(m->tensor[m->layer[1].attn_norm].n_dims, 1);
    CHECK_EQ(m->tensor[m->token_embd].n_dims, 2);
}
static void stray_scale(struct build *w)
{
    one(w, "blk.0.ffn_gate_up_exps.scale", EXPERTS);
}
static void strangers(struct build *w)
{
    one(w, "blk.0.stranger.weight", 3);
    one(w, "blk.0.stranger2.weight", 3);
}
static void look_strangers(const struct model *m)
{
    CHECK_EQ(m->n_unused, 2);
    CHECK_EQ(m->unused_bytes, 24);
    CHECK(m->n_warnings == 1 &&
              !strcmp(m->warning[0], "m.gguf: 2 tensors are not used by qwen3moe: "
                                     "blk.0.stranger.weight, blk.0.stranger2.weight"),
          "%s", m->n_warnings ? m->warning[0] : "none");
}
static void per_expert(struct build *w)
{
    one(w, "blk.0.ffn_gate.0.weight", 8);
}
static void rope_factors(struct build *w)
{
    one(w, "rope_freqs.weight", 2);
}

/* --- keys --------------------------------------------------------------------------------------
 */

static void rope_scaling(struct build *w)
{
    build_string(w, "qwen3moe.rope.scaling.type", "yarn");
}
static void adapter(struct build *w)
{
    build_string(w, "general.type", "adapter");
}
static void mmproj(struct build *w)
{
    build_string(w, "general.type", "mmproj");
}
static void imatrix(struct build *w)
{
    build_string(w, "general.type", "imatrix");
}
static void is_model(struct build *w)
{
    build_string(w, "general.type", "model");
    build_u32(w, "qwen3moe.expert_shared_count", 0); /* harmless values */
    build_u32(w, "qwen3moe.expert_gating_func", 1);
    build_f32(w, "qwen3moe.expert_weights_scale", 0);
    build_bool(w, "qwen3moe.expert_weights_norm", 1);
    build_u32(w, "qwen3moe.rope.dimension_count", 2);
}
static void look_is_model(const struct model *m)
{
    CHECK(m->router_scale == 1, "%g", (double)m->router_scale);
    CHECK_EQ(m->n_rot, 2);
}
static void sigmoid_router(struct build *w)
{
    build_u32(w, "qwen3moe.expert_gating_func", 2);
}
static void shared_expert(struct build *w)
{
    build_u32(w, "qwen3moe.expert_shared_count", 1);
}
static void not_normalised(struct build *w)
{
    build_bool(w, "qwen3moe.expert_weights_norm", 0);
}
static void scaled_weights(struct build *w)
{
    build_f32(w, "qwen3moe.expert_weights_scale", 2.5f);
}
static void look_scaled(const struct model *m)
{
    CHECK(m->router_scale == 2.5f, "%g", (double)m->router_scale);
}
static void fewer_tokens(struct build *w)
{
    build_array(w, "tokenizer.ggml.tokens", 8, 2);
    build_str(w, "a");
    build_str(w, "b");
}
static void kv_by_layer(struct build *w)
{
    build_array(w, "qwen3moe.attention.head_count_kv", 4, 2);
    build_int(w, 1, 4);
    build_int(w, 1, 4);
}
static void kv_differs(struct build *w)
{
    build_array(w, "qwen3moe.attention.head_count_kv", 4, 2);
    build_int(w, 1, 4);
    build_int(w, 2, 4);
}
static void layers_text(struct build *w)
{
    build_string(w, "qwen3moe.block_count", "two");
}
static void layers_0(struct build *w)
{
    build_u32(w, "qwen3moe.block_count", 0);
}
static void k_5(struct build *w)
{
    build_u32(w, "qwen3moe.expert_used_count", 5);
}
static void eps_nan(struct build *w)
{
    build_f32(w, "qwen3moe.attention.layer_norm_rms_epsilon", __builtin_nanf(""));
}
static void values_differ(struct build *w)
{
    build_u32(w, "qwen3moe.attention.value_length", 8);
}
static void heads_3_and_2(struct build *w)
{
    build_u32(w, "qwen3moe.attention.head_count", 3);
    build_u32(w, "qwen3moe.attention.head_count_kv", 2);
}
static void rot_3(struct build *w)
{
    build_u32(w, "qwen3moe.rope.dimension_count", 3);
}
static void base_0(struct build *w)
{
    build_f32(w, "qwen3moe.rope.freq_base", 0);
}
static void eps_negative(struct build *w)
{
    build_f32(w, "qwen3moe.attention.layer_norm_rms_epsilon", -1);
}
static void scale_in_f16(struct build *w)
{
    build_tensor(w, "blk.1.attn_k.scale", 1, 1, (const uint64_t[]){1}, 2);
}
static void arch_number(struct build *w)
{
    build_u32(w, "general.architecture", 7);
}
static void look_nothing(const struct model *m)
{
    CHECK_EQ(m->n_layers, LAYERS);
    CHECK_EQ(m->n_head_kv, KV);
}

static void test_made(void)
{
    accepted(&(struct change){0}, look_plain);
    accepted(&(struct change){.fused = 1}, look_fused);
    accepted(&(struct change){.skip = "output.weight"}, look_tied);
    accepted(&(struct change){.skip = "expert_feed_forward_length"}, look_derived);
    accepted(&(struct change){.more_tensors = companions}, look_companions);
    accepted(&(struct change){.more_tensors = bias_of_two_dims}, look_bias);
    accepted(&(struct change){.more_tensors = strangers}, look_strangers);
    accepted(&(struct change){.more_keys = is_model}, look_is_model);
    accepted(&(struct change){.more_keys = scaled_weights}, look_scaled);
    accepted(&(struct change){.skip = "attention.head_count_kv", .more_keys = kv_by_layer},
             look_nothing);
}

static void test_refused_files(void)
{
    refused((struct change){.arch = "bertmoe"}, 1,
            "key 'general.architecture': 'bertmoe' (an architecture that is known here: olmoe, "
            "qwen3moe, qwen35moe, qwen4exp, glm5next, glm5-next)");
    refused(
        (struct change){
            .arch = "llama", .skip = "expert_count", .no_tensors = 1, .more_tensors = rope_factors},
        1,
        "key 'general.architecture': 'llama' (a Mixture-of-Experts model: this is a dense one, "
        "which has no "
        "experts to spread; run it with llama.cpp, or take a MoE model: olmoe, qwen3moe, qwen35moe, qwen4exp, glm5next, glm5-next)");
    refused((struct change){.skip = "general.architecture"}, 0,
            "key 'general.architecture' is missing (the name of an architecture)");
    refused((struct change){.skip = "general.architecture", .more_keys = arch_number}, 1,
            "key 'general.architecture': 7 (the name of an architecture)");
    refused((struct change){.no_tensors = 1}, 0,
            "holds no tensors, a vocabulary only (a model file is needed)");
    refused((struct change){.more_keys = adapter}, 1,
            "key 'general.type': 'adapter' ('model': an adapter has no model of its own; merge it "
            "into its base model)");
    refused((struct change){.more_keys = mmproj}, 1,
            "key 'general.type': 'mmproj' ('model': this is the image part that belongs to a "
            "model; name the model's file)");
    refused((struct change){.more_keys = imatrix}, 1,
            "key 'general.type': 'imatrix' ('model': this is statistics for a quantiser; name the "
            "model's file)");
    refused((struct change){.more_tensors = per_expert}, 1,
            "tensor 'blk.0.ffn_gate.0.weight': an old file with one tensor for each expert; "
            "convert the original model "
            "again with llama.cpp's converter of 2024 or later");
    refused((struct change){.more_keys = rope_scaling}, 1,
            "key 'qwen3moe.rope.scaling.type': 'yarn' (no rope scaling: it is not supported yet)");
    refused((struct change){.more_tensors = rope_factors}, 1,
            "tensor 'rope_freqs.weight': rope factors are not supported yet");
    refused((struct change){.more_tensors = stray_scale}, 1,
            "tensor 'blk.0.ffn_gate_up_exps.scale': a scale that qwen3moe does not use here; "
            "without it the output would be wrong");
}

static void test_refused_keys(void)
{
    static const char *const required[] = {
        "block_count",
        "context_length",
        "embedding_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
        "expert_count",
        "expert_used_count",
    };

    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        struct change c = {.skip = required[i]};
        struct model *m;
        struct err e;
        char line[200];

        CHECK(make(&c, &m, &e) < 0 && !m, "without %s", required[i]);
        snprintf(line, sizeof line, "m.gguf: key 'qwen3moe.%s' is missing (", required[i]);
        CHECK(!strncmp(e.msg, line, strlen(line)), "%s", e.msg);
        model_close(m);
    }
    refused((struct change){.skip = "block_count", .more_keys = layers_text}, 1,
            "key 'qwen3moe.block_count': 'two' (an integer from 1 to 512)");
    refused((struct change){.skip = "block_count", .more_keys = layers_0}, 1,
            "key 'qwen3moe.block_count': 0 (an integer from 1 to 512)");
    refused((struct change){.skip = "expert_used_count", .more_keys = k_5}, 1,
            "key 'qwen3moe.expert_used_count': 5 (an integer from 1 to 4)");
    refused((struct change){.skip = "attention.layer_norm_rms_epsilon", .more_keys = eps_nan}, 1,
            "key 'qwen3moe.attention.layer_norm_rms_epsilon': nan (a finite number)");
    refused((struct change){.skip = "attention.head_count_kv", .more_keys = kv_differs}, 1,
            "key 'qwen3moe.attention.head_count_kv': an array of 2 u32 (an integer from 1 to 2, "
            "the same for all layers)");
    refused((struct change){.more_keys = values_differ}, 0,
            "attention.value_length: 8 (the same as attention.key_length)");
    refused((struct change){.skip = "attention.head_count*", .more_keys = heads_3_and_2}, 0,
            "attention.head_count_kv: 2 (a divisor of attention.head_count)");
    refused((struct change){.more_keys = rot_3}, 0, "rope.dimension_count: 3 (an even number)");
    refused((struct change){.skip = "rope.freq_base", .more_keys = base_0}, 0,
            "qwen3moe.rope.freq_base: 0 (above 0)");
    refused((struct change){.skip = "attention.layer_norm_rms_epsilon", .more_keys = eps_negative},
            0, "qwen3moe.attention.layer_norm_rms_epsilon: -1 (0 or more)");
    refused((struct change){.more_tensors = scale_in_f16}, 1,
            "tensor 'blk.1.attn_k.scale': type F16 (F32)");
    refused((struct change){.more_keys = sigmoid_router}, 1,
            "key 'qwen3moe.expert_gating_func': 2 (absent or 1: anything else is not supported for "
            "qwen3moe)");
    refused((struct change){.more_keys = shared_expert}, 1,
            "key 'qwen3moe.expert_shared_count': 1 (absent or 0: anything else is not supported "
            "for qwen3moe)");
    refused((struct change){.more_keys = not_normalised}, 0,
            "qwen3moe.expert_weights_norm: false (true, as the architecture defines it)");
    refused((struct change){.more_keys = fewer_tokens}, 1,
            "tensor 'token_embd.weight': 10 rows (2, one for each token)");
}

static void test_refused_tensors(void)
{
    static const char *const needed[] = {
        "token_embd.weight",        "output_norm.weight",         "blk.1.attn_norm.weight",
        "blk.1.attn_q.weight",      "blk.1.attn_k.weight",        "blk.1.attn_v.weight",
        "blk.1.attn_q_norm.weight", "blk.1.attn_k_norm.weight",   "blk.1.attn_output.weight",
        "blk.1.ffn_norm.weight",    "blk.1.ffn_gate_inp.weight",  "blk.1.ffn_gate_exps.weight",
        "blk.1.ffn_up_exps.weight", "blk.1.ffn_down_exps.weight",
    };

    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        struct change c = {.skip = needed[i]};
        struct model *m;
        struct err e;
        char line[200];

        CHECK(make(&c, &m, &e) < 0 && !m, "without %s", needed[i]);
        snprintf(line, sizeof line, "m.gguf: tensor '%s' is missing ({", needed[i]);
        CHECK(!strncmp(e.msg, line, strlen(line)), "%s", e.msg);
        model_close(m);
        c = (struct change){.reshape = needed[i], .dims = {2, 3, 5}}; /* nobody's shape */
        CHECK(make(&c, &m, &e) < 0 && !m, "reshaped %s", needed[i]);
        snprintf(line, sizeof line, ": tensor '%s': dimensions {2, 3, 5} ({", needed[i]);
        CHECK(strstr(e.msg, line), "%s", e.msg);
        model_close(m);
    }
    refused((struct change){.reshape = "blk.0.attn_k.weight", .dims = {D, 2 * KV * HD, 1}}, 1,
            "tensor 'blk.0.attn_k.weight': dimensions {8, 8} ({8, 4})");
    refused((struct change){.reshape = "blk.0.ffn_up_exps.weight", .dims = {D, FF, EXPERTS + 1}}, 1,
            "tensor 'blk.0.ffn_up_exps.weight': dimensions {8, 6, 5} ({8, 6, 4})");
    refused((struct change){.reshape = "output.weight", .dims = {D, VOCAB - 1, 1}}, 1,
            "tensor 'output.weight': dimensions {8, 9} ({8, 10})");
    for (int k = 0; k < 2; k++) { /* a type without kernels, in the trunk and in an expert */
        struct change c = {.retype = k ? "blk.1.ffn_down_exps.weight" : "blk.0.attn_v.weight"};
        struct model *m;
        struct err e;
        char line[200];

        CHECK(make(&c, &m, &e) < 0 && !m, "F64 in %s", c.retype);
        snprintf(line, sizeof line, ": tensor '%s': type F64 is not supported yet (F32, F16",
                 c.retype);
        CHECK(strstr(e.msg, line), "%s", e.msg);
        model_close(m);
    }
}

int main(void)
{
    test_golden();
    test_made();
    test_refused_files();
    test_refused_keys();
    test_refused_tensors();
    return test_end();
}
