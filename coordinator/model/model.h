/* What a loaded file is for the engine: hyper-parameters, the table of trunk tensors, and for each
 * layer the three expert matrices. Made once from a struct gguf by the architecture's reader, all
 * shapes checked; after that read-only. Holds places and sizes of weights, never the weights.
 *
 * Trunk tensors are all tensors that are used and are no routed expert; other code names them by
 * index into model.tensor (MODEL_NONE: the file has none). Row-major shapes here: a matrix is
 * (rows, cols), cols contiguous, that is GGUF's dims {cols, rows}. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "coordinator/model/gguf.h"
#include "shm/err.h"

#define MODEL_NONE UINT32_MAX

enum {
    MODEL_MAX_LAYERS = 512,
    MODEL_MAX_EXPERTS = 1024,
    MODEL_TYPES = 64, /* GGUF type ids are below */
    MODEL_NGRAM = 8,        /* longest n-gram of a hashed table */
    MODEL_NGRAM_HEADS = 64, /* rows that a token looks up in it */
};

enum model_kind {
    MODEL_EMBEDDING, /* token_embd; also the head where it is tied */
    MODEL_ATTENTION,
    MODEL_ROUTER,
    MODEL_NORM,
    MODEL_DENSE, /* feed-forward parts that every token takes: dense layers', shared experts' */
    MODEL_STREAMS, /* hyper-connections */
    MODEL_TABLES,  /* rows that are looked up by something else than a token's id */
    MODEL_NEXTN, /* what only a NextN block has */
    MODEL_EXPERTS, /* routed experts: not in the trunk table, but counted */
    MODEL_HEAD,
    MODEL_OTHER, /* companions of experts (.scale) and the like */
    MODEL_KINDS,
};

/* One trunk tensor. */
struct model_tensor {
    const char *name; /* borrowed from the gguf */
    enum model_kind kind;
    uint32_t type;      /* kernels/type/type.h */
    uint32_t n_dims;    /* by its use, whatever the file says: 1 a vector, 2 an operand of products
                           or rows to look up, even if there is only one row */
    uint64_t dims[4];   /* as in the file, dims[0] contiguous; missing ones are 1 */
    uint64_t row_bytes; /* of dims[0] values */
    uint64_t bytes;     /* row_bytes * dims[1] * dims[2] * dims[3] */
    uint32_t shard;     /* gguf_shard_fd(m->g, shard) */
    uint64_t file_offset;
    int by_rows; /* its rows are looked up and handed over with each step (struct prog_table): it may stay in the file */
};

/* A matrix of the trunk with what may follow its product (ARITHMETIC.md rule 14): indices into
 * model.tensor. scale is F32 {1}, bias {rows}; MODEL_NONE where absent. */
struct model_weight {
    uint32_t w, scale, bias;
};

/* One of the three matrices of a layer's experts. Expert e's bytes are
 * [file_offset + e * stride, + bytes) of the shard: rows one after the other, row_bytes each. */
struct model_matrix {
    uint32_t type;
    uint32_t rows, cols;
    uint64_t row_bytes;
    uint64_t bytes; /* of one expert: rows * row_bytes */
    uint32_t shard;
    uint64_t file_offset; /* of expert 0 */
    uint64_t stride;      /* from one expert to the next; > bytes where gate and up are fused */
    uint32_t scale; /* trunk tensor, F32 {n_experts}: rule 14's factor by expert; or MODEL_NONE */
};

enum { MODEL_GATE, MODEL_UP, MODEL_DOWN, EXPERT_MATRICES };

/* What mixes the tokens of a layer. */
enum model_mixer {
    MIX_ATTENTION, /* grouped heads, rotated */
    MIX_DELTA,     /* delta rule with short convolutions: a recurrent state */
    MIX_LATENT,    /* attention over one latent a position, selected by pools */
};

/* Delta rule: (heads, dim), width heads * dim; the output is the layer's attn_output. Either with a decay
 * for each key channel (KDA): q, k, v are attn_q, attn_k, attn_v, each with its convolution; decay and gate
 * are two products one after the other, n_embd -> dim -> width. Or with one decay a head (model.delta.by_head):
 * qkv is one product with one convolution, q and k of k_heads heads, then v; decay[0] is (heads, n_embd),
 * gate[0] (width, n_embd). */
struct model_delta {
    struct model_weight qkv;            /* by_head */
    uint32_t conv[3];                   /* of q, k, v: (width, taps), oldest tap first; by_head: conv[0] of all */
    struct model_weight decay[2], gate[2];
    struct model_weight beta;           /* (heads, n_embd) */
    uint32_t a, dt, norm;               /* (heads), (width) or by_head (heads), (dim) */
};
/* Latent attention; its output is attn_output. Widths: model.latent. */
struct model_latent {
    struct model_weight q_a, q_b, kv_a; /* (q_rank, n_embd), (heads * k, q_rank), (rank, n_embd) */
    uint32_t q_norm, kv_norm;
    struct model_weight k_b, v_b;       /* by head: (rank, k) each, (v, rank) each */
    int own_index;                      /* 0: the key list of the latent layer before it is used */
    struct model_weight index_q, index_k, index_w, index_gate;
    uint32_t index_norm, index_bias, index_ape; /* (size), (size), (pool, size) */
};
struct model_mlp { /* gate and up (n, n_embd), down (n_embd, n); n 0: none */
    struct model_weight gate, up, down;
    uint32_t n;
};
/* The mixer of hyper-connections before one part of a layer: by coefficients (fn, base, scale), or by gates of
 * low rank (model.streams.rank): norm is n vectors of n_embd, inject is absent before the head. */
struct model_streams {
    struct model_weight fn; /* (2n + n*n, n * n_embd) */
    uint32_t base, scale;
    uint32_t norm;
    struct model_weight down, up, inject; /* (rank, n * n_embd), (n * n_embd, rank), (n, n * n_embd) */
};
/* Attention that selects pools of positions: index heads and one index key a position. Sizes: model.index. */
struct model_index {
    uint32_t pool; /* positions of a pool; 0: this layer attends to every position */
    struct model_weight q, k; /* (heads * size, n_embd), (size, n_embd) */
    uint32_t q_norm, k_norm;  /* (size) */
};
/* A table of hashed n-grams whose rows one layer's streams take in (coordinator/model/ngram.h). */
struct model_ngram {
    uint32_t size, per_gram, heads; /* longest n-gram; rows looked up for each length from 2 on; in all. 0: no table */
    uint32_t row;                   /* values of one */
    uint32_t layer, taps, eos;
    uint32_t table;                 /* (rows, row) */
    struct model_weight key, value; /* (n * n_embd, n_embd), (n_embd, n_embd) */
    uint32_t norm_key, norm_query, norm_conv, conv; /* n * n_embd each; conv (n * n_embd, taps), oldest tap first */
    uint64_t factor[MODEL_NGRAM], first[MODEL_NGRAM_HEADS], rows[MODEL_NGRAM_HEADS];
};
/* A block that reads the trunk's last hidden state and the token after it, and predicts the one after that. */
struct model_nextn {
    struct model_weight eh; /* (n_embd, 2 * n_embd): embedding first */
    uint32_t e_norm, h_norm, head_norm;
    uint32_t embed;           /* table; token_embd where it has none of its own */
    struct model_weight head; /* output's where it has none */
};

struct model_layer {
    enum model_mixer mixer;
    uint32_t attn_norm;
    struct model_weight attn_q, attn_k, attn_v, attn_output;
    uint32_t attn_q_norm, attn_k_norm;
    struct model_delta delta;
    struct model_latent latent;
    struct model_index index;
    struct model_streams streams[2]; /* before attention, before the feed-forward part */
    uint32_t ffn_norm;
    struct model_mlp dense;  /* n > 0: in place of experts */
    struct model_mlp shared; /* n > 0: beside them */
    struct model_weight shared_gate; /* (1, n_embd): its sigmoid times the shared expert; or MODEL_NONE */
    float limit, shared_limit; /* SwiGLU clamps of the experts; of the shared or dense part; 0: none */
    uint32_t n_experts;      /* 0: a dense layer */
    struct model_weight ffn_gate_inp; /* the router, (n_experts, n_embd) */
    uint32_t router_bias;    /* (n_experts), for the choice alone; or MODEL_NONE */
    /* gate and up (n_ff, n_embd), down (n_embd, n_ff) */
    struct model_matrix expert[EXPERT_MATRICES];
    uint64_t expert_bytes; /* of one expert, all three matrices */
};

struct model_arch;

struct model {
    struct gguf *g; /* owned */
    const struct model_arch *arch;
    const char *path; /* as opened; of the first shard in a split */
    const char *name; /* general.name, or "" */

    uint32_t n_layers; /* of the file: the trunk's, then n_nextn NextN blocks */
    uint32_t n_nextn;
    struct model_nextn nextn; /* of the first; n_nextn > 0 */
    uint32_t n_embd;
    uint32_t n_vocab;
    uint32_t n_ctx_train;

    uint32_t n_head, n_head_kv, head_dim; /* key and value alike */
    uint32_t n_rot; /* rotated values of a head, NeoX pairs (i, i + n_rot/2) */
    float rope_base;
    float rms_eps;
    int attn_gated;    /* attn_q has a gate behind each head's query */
    int qk_norm_whole; /* 1: attn_q_norm is one norm over all heads; 0: (head_dim), each head alone
                        */

    struct {
        uint32_t heads, k_heads, dim, taps; /* heads of (dim, dim) */
        int by_head;               /* one decay a head */
        int gate_sigmoid;          /* by_head: the output's gate; 0: by silu */
        int bounded;               /* decay bound * sigmoid(-a f); 0: a * softplus(f) */
        float bound;
    } delta; /* MIX_DELTA */
    struct {
        uint32_t q_rank, rank, k, v; /* of the query, of what is kept; of a head's key and value */
        uint32_t index_heads, index_size, pool, most; /* positions a pool, pools chosen */
        float norm_eps;                               /* of the index keys' LayerNorm */
    } latent; /* MIX_LATENT; n_head heads */
    struct {
        uint32_t n, iterations; /* n 0: one plain residual */
        float eps;
        uint32_t rank; /* of the gates; 0: mixed by coefficients */
    } streams;
    struct model_streams output_streams; /* rank: before the head */
    struct {
        uint32_t heads, size, positions; /* 0: no layer selects; positions that the chosen pools have together */
    } index;
    struct model_ngram ngram;

    uint32_t n_experts, top_k, n_ff; /* n_experts: of a layer that has any; n_ff: hidden size of one */
    int router_sigmoid;   /* scores by sigmoid; 0: softmax over all */
    int router_normalise; /* 1: weights of the chosen are divided by max(sum, router_floor) */
    float router_floor;
    float router_scale; /* expert_weights_scale; 1: none */

    uint32_t token_embd;        /* (n_vocab, n_embd) */
    uint32_t output_norm;       /* (n_embd) */
    struct model_weight output; /* (n_vocab, n_embd); tied: output.w == token_embd */

    struct model_tensor *tensor; /* the trunk table */
    uint32_t n_tensors;
    struct model_layer *layer; /* n_layers */

    /* of the whole file, tensors that nobody uses included (those only by type) */
    uint64_t kind_bytes[MODEL_KINDS];
    uint64_t type_bytes[MODEL_TYPES];
    uint32_t type_tensors[MODEL_TYPES];
    uint64_t trunk_bytes; /* sum over the trunk table */
    uint64_t unused_bytes;
    uint32_t n_unused;

    char **warning; /* one line each: unknown tensors, odd sizes */
    size_t n_warnings;

    unsigned char *claimed; /* by gguf tensor: a reader has taken it */
    unsigned flags;
};

enum {
    MODEL_ANY_TYPE = 1, /* types without a kernel are no error (for commands that only look) */
};

/* Opens and checks everything. Hands over *out. Refusals are one line and say what to do. */
int model_open(const char *path, unsigned flags, struct model **out, struct err *e);
/* The same from an open gguf, which is owned from here on, also on failure. */
int model_from_gguf(struct gguf *g, unsigned flags, struct model **out, struct err *e);
void model_close(struct model *m); /* NULL is allowed */

const char *model_arch_name(const struct model *m);
const char *model_kind_name(enum model_kind k);
/* Routed experts of all layers. */
uint64_t model_n_experts(const struct model *m);
/* Smallest and largest expert of the file, in bytes. */
void model_expert_range(const struct model *m, uint64_t *smallest, uint64_t *largest);
/* Bytes of all routed experts. */
uint64_t model_experts_bytes(const struct model *m);

/* --- for architecture readers (arch_*.c) -------------------------------------------------------
 */

struct model_arch {
    const char *name; /* general.architecture */
    int (*read)(struct model *m, struct err *e);
};
extern const struct model_arch model_archs[]; /* ends with name == NULL */
int model_read_glm5next(struct model *m, struct err *e);
int model_read_qwen35moe(struct model *m, struct err *e);
int model_read_qwen4exp(struct model *m, struct err *e);
/* The tensors of m->nextn, which the last block has. */
int model_read_nextn(struct model *m, struct err *e);

/* Keys are given without the architecture: "block_count". Absent: *out is left alone and, unless
 * `optional`, the line says so. Out of [min, max], not finite, or of another kind: a line. An array
 * of one value a layer is taken where all its values are equal. */
int model_key_u32(const struct model *m, const char *key, int optional, uint32_t min, uint32_t max,
                  uint32_t *out, struct err *e);
int model_key_f32(const struct model *m, const char *key, int optional, float *out, struct err *e);
/* Layer il's value of a key that has one for all layers or one for each. */
int model_key_u32_of(const struct model *m, const char *key, int optional, uint32_t il, uint32_t min,
                     uint32_t max, uint32_t *out, struct err *e);
int model_key_f32_of(const struct model *m, const char *key, int optional, uint32_t il, float *out,
                     struct err *e);
int model_key_bool_of(const struct model *m, const char *key, uint32_t il, int *out, struct err *e);
int model_key_bool(const struct model *m, const char *key, int optional, int *out, struct err *e);
/* Refuses the file if the key is there and not `harmless`: something that the architecture's
 * definition here does not compute. */
int model_key_refuse(const struct model *m, const char *key, double harmless, struct err *e);

/* Takes the tensor whose name is fmt's text into the trunk table and stores its index. Absent:
 * MODEL_NONE if optional, else refused. Other dims than cols x rows (rows 1: a vector): refused. */
int model_tensor(struct model *m, enum model_kind kind, int optional, uint64_t cols, uint64_t rows,
                 uint32_t *out, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 8, 9)));
/* A few values that are no product's operand, of up to three dimensions, as one vector of them all. */
int model_values(struct model *m, enum model_kind kind, const uint64_t dims[4], uint32_t *out, struct err *e,
                 const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* Is there such a tensor? */
int model_has(const struct model *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A tensor that is there and that nothing here reads: not told of as unknown. */
void model_ignore(struct model *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* One line for the user. */
int model_warn(struct model *m, struct err *e, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A key's array of exactly n whole numbers, each from 0 to max. */
int model_key_u64s(const struct model *m, const char *key, uint32_t n, uint64_t max, uint64_t *out, struct err *e);
/* Matrices that lie one behind the other, each (rows, cols), as one of n * rows rows. */
int model_weights(struct model *m, enum model_kind kind, uint64_t cols, uint64_t rows, uint64_t n,
                  struct model_weight *out, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 8, 9)));
/* STEM.weight (in some files STEM alone), and STEM.scale and STEM.bias where the file has them. */
int model_weight(struct model *m, enum model_kind kind, int optional, uint64_t cols, uint64_t rows,
                 struct model_weight *out, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 8, 9)));
/* The experts of layer il: separate or fused tensors, with their scales; n_experts, n_embd and n_ff
 * of m. Fills l->expert, l->expert_bytes and l->n_experts. */
int model_experts(struct model *m, uint32_t il, struct model_layer *l, struct err *e);
