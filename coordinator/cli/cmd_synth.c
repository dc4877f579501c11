/* conclave synth: a model of a real one's shapes with random weights, to measure with. Not in the
 * list of commands; scripts/synth calls it. */
#include <inttypes.h>
#include <stdio.h>

#include "coordinator/cli/args.h"
#include "coordinator/cli/synth_file.h"
#include "coordinator/model/gguf.h"
#include "kernels/type/type.h"

int cmd_synth(int argc, char **argv);

#define TYPES "q8_0|q4_k|q6_k|iq4_nl|f16|bf16|f32|iq2_xxs|iq2_xs|iq3_xxs|iq3_s|iq4_xs"
static const uint32_t type_of[] = {W_Q8_0, W_Q4_K, W_Q6_K, W_IQ4_NL, W_F16, W_BF16, W_F32,
                                   W_IQ2_XXS, W_IQ2_XS, W_IQ3_XXS, W_IQ3_S, W_IQ4_XS};

struct options {
    struct synth_shape s; /* 0 where the command line says nothing: the model's */
    const char *out;
    int model, preset, type, down_type, trunk_type;
};

/* Shapes of real models, as far as qwen3moe's layers have them: of the two others, experts, heads
 * and vocabulary are the model's, attention is plain and there is no shared expert. glm5next is
 * GLM-5.3-Flash as it is, four KDA layers, one of latent attention and the NextN block; its widths
 * follow --embd and --head-dim in the model's proportions. qwen4exp is Qwen3.8-Flash-Next as it is but for its draft
 * block, likewise. */
#define MODELS "qwen3-30b|qwen3.8-flash|glm-5.3-flash|glm5next|qwen4exp"
static const struct synth_shape models[] = {
    {48, 2048, 768, 128, 8, 32, 4, 128, 151936, 40960, .tokenizer = NULL},
    {48, 2560, 640, 512, 10, 24, 2, 256, 248320, 262144, .tokenizer = NULL},
    {42, 4096, 2048, 288, 8, 64, 4, 128, 154880, 262144, .tokenizer = NULL},
    {5, 4096, 2048, 288, 8, 64, 64, 128, 154880, 1048576, .glm5next = 1, .dense = 1, .tokenizer = NULL},
    {4, 2560, 640, 512, 10, 24, 2, 256, 248320, 262144, .qwen4exp = 1, .table_rows = 320001536, .tokenizer = NULL},
};

#define NUMBER(flag, field, text, least, most)                                                     \
    {                                                                                              \
        .name = flag, .arg = "N", .help = text, .kind = FLAG_U32,                                  \
        .at = offsetof(struct options, s.field), .min = least, .max = most, .shown = ""            \
    }

static const struct flag flags[] = {
    {.name = "output",
     .letter = 'o',
     .arg = "FILE",
     .help = "the GGUF file to write",
     .kind = FLAG_STRING,
     .at = offsetof(struct options, out),
     .required = 1},
    {.name = "model",
     .arg = "NAME",
     .help = "shapes of a real model: " MODELS,
     .kind = FLAG_CHOICE,
     .at = offsetof(struct options, model),
     .choices = MODELS},
    {.name = "preset",
     .arg = "NAME",
     .help = "how experts are chosen: " SYNTH_PRESETS,
     .kind = FLAG_CHOICE,
     .at = offsetof(struct options, preset),
     .choices = SYNTH_PRESETS},
    NUMBER("layers", layers, "layers", 1, 512),
    NUMBER("embd", embd, "width of the model", 1, 1 << 20),
    NUMBER("ff", ff, "hidden width of one expert", 1, 1 << 20),
    NUMBER("experts", experts, "experts a layer", 2, 1024),
    NUMBER("used", used, "experts a token uses", 1, 1024),
    NUMBER("heads", heads, "attention heads", 1, 1024),
    NUMBER("kv-heads", kv_heads, "heads of keys and values", 1, 1024),
    NUMBER("head-dim", head_dim, "width of a head", 2, 4096),
    {.name = "vocab",
     .arg = "N",
     .help = "tokens (default: the tokenizer's, if one is copied)",
     .kind = FLAG_U32,
     .at = offsetof(struct options, s.vocab),
     .min = SYNTH_VOCAB_MIN,
     .max = 1 << 24,
     .shown = ""},
    NUMBER("table-rows", table_rows, "qwen4exp: rows of the n-gram table, in the type of the down matrices", 1024,
           INT32_MAX),
    NUMBER("ctx", ctx, "trained context", 1, 1 << 30),
    {.name = "type",
     .arg = "TYPE",
     .help = "weights of experts: " TYPES,
     .kind = FLAG_CHOICE,
     .at = offsetof(struct options, type),
     .choices = TYPES},
    {.name = "down-type",
     .arg = "TYPE",
     .help = "down matrices of experts (default: as --type; iq4_nl or q8_0 where --ff is no whole "
             "blocks of it)",
     .kind = FLAG_CHOICE,
     .at = offsetof(struct options, down_type),
     .choices = TYPES,
     .shown = ""},
    {.name = "trunk-type",
     .arg = "TYPE",
     .help = "matrices of the trunk: the same choice",
     .kind = FLAG_CHOICE,
     .at = offsetof(struct options, trunk_type),
     .choices = TYPES},
    {.name = "tokenizer",
     .arg = "FILE",
     .help = "GGUF file to copy the tokenizer from (default: one token a byte)",
     .kind = FLAG_STRING,
     .at = offsetof(struct options, s.tokenizer)},
    {.name = "seed",
     .arg = "N",
     .help = "same seed, same bytes",
     .kind = FLAG_BITS64,
     .at = offsetof(struct options, s.seed)},
    {0},
};

static int check(const struct synth_shape *s)
{
    if (s->used > s->experts)
        return args_usage("synth", "--used %u is more than --experts %u", s->used, s->experts);
    if (s->heads % s->kv_heads)
        return args_usage("synth", "--heads %u is no multiple of --kv-heads %u", s->heads,
                          s->kv_heads);
    if (s->head_dim % 2)
        return args_usage("synth", "--head-dim %u is odd: values of a head are turned in pairs",
                          s->head_dim);
    if (s->glm5next && (s->embd % 256 || s->head_dim % 32))
        return args_usage("synth", "--embd %u, --head-dim %u: glm5next's widths follow from them: multiples of 256 "
                          "and 32", s->embd, s->head_dim);
    if (s->qwen4exp && (s->embd % 512 || s->head_dim % 16))
        return args_usage("synth", "--embd %u, --head-dim %u: qwen4exp's widths follow from them: multiples of 512 "
                          "and 16", s->embd, s->head_dim);
    if (s->glm5next && s->preset != SYNTH_FLAT)
        return args_usage("synth", "--preset %s: glm5next has flat alone", synth_preset_name(s->preset));
    return 0;
}

static uint32_t or (uint32_t given, uint32_t model)
{
    return given ? given : model;
}

/* What the command line left open. */
static void take_shape(struct synth_shape *s, const struct synth_shape *m)
{
    s->layers = or (s->layers, m->layers);
    s->embd = or (s->embd, m->embd);
    s->ff = or (s->ff, m->ff);
    s->experts = or (s->experts, m->experts);
    s->used = or (s->used, m->used);
    s->heads = or (s->heads, m->heads);
    s->kv_heads = or (s->kv_heads, m->kv_heads);
    s->head_dim = or (s->head_dim, m->head_dim);
    s->ctx = or (s->ctx, m->ctx);
    s->table_rows = or (s->table_rows, m->table_rows);
    s->glm5next = m->glm5next;
    s->qwen4exp = m->qwen4exp;
    s->kv_heads = s->glm5next ? s->heads : s->kv_heads;
    s->dense = m->dense < s->layers ? m->dense : 0;
}

static void take_types(struct options *o)
{
    uint32_t ff = o->s.ff;

    o->s.type = type_of[o->type];
    o->s.trunk_type = type_of[o->trunk_type];
    if (o->down_type >= 0)
        o->s.down_type = type_of[o->down_type];
    else if (ff % type_info(o->s.type)->block_values && !(ff % 32))
        o->s.down_type = o->s.type == W_Q6_K ? W_Q8_0 : W_IQ4_NL; /* as real files have it */
    else
        o->s.down_type = o->s.type;
}

/* The size that the tokenizer brings, where none was asked for. */
static int take_vocab(struct synth_shape *s, uint32_t vocab, struct err *e)
{
    struct gguf_array tokens = {0};
    struct gguf *g = NULL;
    int rc;

    if (s->vocab)
        return 0;
    s->vocab = vocab;
    if (!s->tokenizer)
        return 0;
    rc = gguf_open(s->tokenizer, &g, e);
    if (rc)
        return rc;
    if (!gguf_array(g, "tokenizer.ggml.tokens", &tokens) && tokens.n && tokens.n < UINT32_MAX)
        s->vocab = (uint32_t)tokens.n;
    gguf_close(g);
    return 0;
}

int cmd_synth(int argc, char **argv)
{
    struct options o = {.s = {.seed = 1}, .type = 1, .down_type = -1};
    struct args a = {
        .verb = "synth",
        .about = "write a model of true shapes with random weights, to measure with",
        .usage = "-o FILE [options]",
        .notes = "Shapes that are not given are those of --model.",
        .part = {{flags, &o}}};
    struct err e = {0};
    uint64_t bytes = 0;
    int status;

    if (args_parse(&a, argc, argv, &status))
        return status;
    take_shape(&o.s, &models[o.model]);
    o.s.preset = (enum synth_preset)o.preset;
    status = check(&o.s);
    if (status)
        return status;
    take_types(&o);
    if (take_vocab(&o.s, models[o.model].vocab, &e) || synth_write(&o.s, o.out, &bytes, &e)) {
        fprintf(stderr, "conclave: synth: %s\n", e.msg);
        return 1;
    }
    printf("%s: %" PRIu64 " bytes, %u layers of %u experts in %s, preset %s\n", o.out, bytes,
           o.s.layers, o.s.experts, type_info(o.s.type)->name, synth_preset_name(o.s.preset));
    return fflush(stdout) ? 1 : 0;
}
