/* conclave synth: a model of a real one's shapes with random weights, to measure with. Not in the
 * list of commands; scripts/synth calls it. */
#include <inttypes.h>
#include <stdio.h>

#include "coordinator/cli/args.h"
#include "coordinator/cli/synth_file.h"
#include "coordinator/model/gguf.h"
#include "kernels/type/type.h"

int cmd_synth(int argc, char **argv);

#define TYPES "q8_0|q4_k|q6_k|f16|bf16|f32"
static const uint32_t type_of[] = {W_Q8_0, W_Q4_K, W_Q6_K, W_F16, W_BF16, W_F32};

struct options {
    struct synth_shape s;
    const char *out;
    int type, trunk_type;
};

#define NUMBER(flag, field, text, least, most)                                                     \
    {                                                                                              \
        .name = flag, .arg = "N", .help = text, .kind = FLAG_U32,                                  \
        .at = offsetof(struct options, s.field), .min = least, .max = most                         \
    }

static const struct flag flags[] = {
    {.name = "output",
     .letter = 'o',
     .arg = "FILE",
     .help = "the GGUF file to write",
     .kind = FLAG_STRING,
     .at = offsetof(struct options, out),
     .required = 1},
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
     .help = "tokens (default 151936, or the tokenizer's)",
     .kind = FLAG_U32,
     .at = offsetof(struct options, s.vocab),
     .min = SYNTH_VOCAB_MIN,
     .max = 1 << 24,
     .shown = ""},
    NUMBER("ctx", ctx, "trained context", 1, 1 << 30),
    {.name = "type",
     .arg = "TYPE",
     .help = "weights of experts: " TYPES,
     .kind = FLAG_CHOICE,
     .at = offsetof(struct options, type),
     .choices = TYPES},
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
    return 0;
}

/* The size that the tokenizer brings, where none was asked for. */
static int take_vocab(struct synth_shape *s, struct err *e)
{
    struct gguf_array tokens = {0};
    struct gguf *g = NULL;
    int rc;

    if (s->vocab)
        return 0;
    s->vocab = 151936;
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
    /* Qwen3-30B-A3B */
    struct options o = {.s = {.layers = 48,
                              .embd = 2048,
                              .ff = 768,
                              .experts = 128,
                              .used = 8,
                              .heads = 32,
                              .kv_heads = 4,
                              .head_dim = 128,
                              .ctx = 40960,
                              .seed = 1},
                        .type = 1};
    struct args a = {.verb = "synth",
                     .about =
                         "write a model of qwen3moe's shapes with random weights, to measure with",
                     .usage = "-o FILE [options]",
                     .notes = "The defaults are the shapes of Qwen3-30B-A3B.",
                     .part = {{flags, &o}}};
    struct err e = {0};
    uint64_t bytes = 0;
    int status;

    if (args_parse(&a, argc, argv, &status))
        return status;
    status = check(&o.s);
    if (status)
        return status;
    o.s.type = type_of[o.type];
    o.s.trunk_type = type_of[o.trunk_type];
    if (take_vocab(&o.s, &e) || synth_write(&o.s, o.out, &bytes, &e)) {
        fprintf(stderr, "conclave: synth: %s\n", e.msg);
        return 1;
    }
    printf("%s: %" PRIu64 " bytes, %u layers of %u experts in %s\n", o.out, bytes, o.s.layers,
           o.s.experts, type_info(o.s.type)->name);
    return fflush(stdout) ? 1 : 0;
}
