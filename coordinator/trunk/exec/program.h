/* The trunk as data: a flat list of operations over numbered buffers, made once by an architecture's
 * file through coordinator/trunk/ops.h, executed by run_cpu.c, or sent to a card's worker. No pointers, no lengths of a
 * particular pass: token counts, positions and rows come from the step record, so one program serves
 * every batch and every context. Model code never sees a value between two operations.
 *
 * The list has two parts: [0, draft_at) is a pass of the trunk, [draft_at, n_ops) one of the NextN block
 * (none: draft_at == n_ops), which drafts. They share buffers, weights and nothing of the state. */
#pragma once
#include <stdint.h>

#define PROG_NONE UINT32_MAX
#define PROG_NAME 40

enum op_kind {
    OP_EMBED,     /* out = rows of table w [38], by the step's token ids */
    OP_PREPARE,   /* in[0]'s vectors in the form n[0] (enum act_form) for products [8] */
    OP_MATMUL,    /* out = w in[0], then scale, bias [8-14]; n[0] = act form */
    OP_RMS_NORM,  /* out = rms of in[0] by pieces of n[0] values, n[1] pieces a token, weight w (or none), eps
                   * f[0] [21]; n[2] 1: w has values for each piece; written from value n[3] of the row on */
    OP_ROPE,      /* in place on out: n[0] heads of n[1] values, the first n[2] rotated [23, 24]; n[3]: 1: as the
                   * position after the token's */
    OP_KV_APPEND, /* in[0] keys, in[1] values -> state at the token's position [35]; no in[1]: keys are the
                   * values too */
    OP_ATTENTION, /* out = attention of in[0] over the state [29]; n[0] heads, n[1] kv heads, n[2] head
                   * values; scale f[0]; in[1]: key lists as OP_SELECT makes them, or none: all positions */
    OP_ADD,       /* out += in[0], one rounding; then, where there is one, += in[1] */
    OP_ROUTER,    /* in[0] logits -> out probabilities, n[3] = ids buffer, n[4] = weights buffer; n[0]
                   * experts, n[1] used, n[2] ROUTER_ flags; f[0] floor, f[1] scale [25, 26]; w: a bias for
                   * the choice alone, or none */
    OP_MOE_CALL,  /* in[0] vectors, in[1] ids: publishes the layer's call; n[0] = layer, n[1] = used */
    OP_MOE_SUM,   /* out = sum over places of weight in[1] times the rows of the call [28] */
    OP_PICK,      /* out = in[0]'s rows that the step wants logits of */

    OP_MATMUL_PARTS, /* as OP_MATMUL for n[1] vectors beside each other in a row, each with its own rows of w */
    OP_REPEAT,       /* out = n[0] copies of in[0], side by side */
    OP_L2_NORM,      /* out = l2 of in[0] by pieces of n[0] values, n[1] a token, eps f[0], then * f[1] [22] */
    OP_LAYER_NORM,   /* out = layer norm of in[0], weight w, bias n[0] (a weight), eps f[0] [22] */
    OP_GATED_NORM,   /* out = rms of in[0] by pieces of n[0], n[1] a token, weight w, eps f[0], times in[1] [21] */
    OP_FUNC,         /* out = n[0] (enum op_func) of in[0] [19] */
    OP_SCALE,        /* out *= f[0]; n[0] 1: out /= f[0] */
    OP_SWIGLU,       /* out = silu(in[0]) * in[1], both clamped by f[0] (0: not) [19] */
    OP_CONV,         /* out = silu of the short convolution of in[0], taps w, n[0] of them, each
                      * n[1] positions behind the next; state: a tail [32] */
    OP_DECAY,        /* out = log decay of in[0], n[0] heads: x = in[0] + weight n[2]; n[1] 1: f[0] *
                      * sigmoid((-w[head]) * x), 0: w[head] * softplus(x) [18, 19] */
    OP_DELTA,        /* out = delta rule of queries in[0], keys in[1], values n[0], decays n[1], betas n[2]
                      * (buffers); state: a matrix a head [31] */
    OP_POOL,         /* index keys in[0] -> pooled keys in state; n[0]: the tail's state. With gates in[1], w: bias by
                      * slot [30, gated]; without: the mean, normed (weight w, eps f[0]), its first n[1] values rotated
                      * as the pool's first position [30, mean; 21, 24] */
    OP_SELECT,       /* out = key lists: heads in[0], head weights in[1] or none, pools in state; n[0] heads, n[1] most
                      * pools; scale f[0] [30, 26]. A row: how many, then positions ascending; or
                      * LIST_ALL: every position up to the own */
    OP_HYPER_MIX,    /* out = pre, post, C from the projection in[0]; scale w, base n[2] (a weight), n[0] streams,
                      * n[1] iterations, eps f[0] [33] */
    OP_HYPER_COLLAPSE, /* out = sum of streams in[0] by the coefficients in[1]; n[0] streams [33] */
    OP_HYPER_EXPAND,   /* streams out from themselves, in[0] and the coefficients in[1]; n[0] streams [33] */
    OP_HYPER_MEAN,     /* out = mean of the streams in[0]; n[0] streams [33] */
    OP_SLICE,          /* out = values [n[2], n[2] + n[1]) of each of n[0] groups of n[3] values of in[0] */
    OP_MUL,            /* out *= in[0], one rounding */
    OP_ADD_TIMES,      /* out = fma(in[1], in[0], out), in[1] one number a token [28]; n[0] vectors beside each other in
                        * out, each with its own number of in[1] */
    OP_CARRY,          /* in a chained draft: out's first row = in[0]'s last one of the pass before; else nothing */
    OP_ROWS,           /* out = looked-up rows side by side [38]: n[1] rows of n[2] values of type n[3], from byte n[0] of
                        * what is handed over for the token (struct prog_table) */
    OP_BRANCH_MEAN,    /* out = mean of the streams in[1] by the gates in[0]; n[0] streams (kernels/branch) */
    OP_BRANCH_GATE,    /* out = the value n[1] (a buffer) by the gate of keys in[0] and streams in[1]; n[0] streams,
                        * scale f[0] (kernels/branch) */
    OP_KINDS
};
enum op_func { FUNC_SIGMOID, FUNC_SILU, FUNC_EXP, FUNC_KINDS };
enum { ROUTER_NORMALISE = 1, ROUTER_SIGMOID = 2 };
#define LIST_ALL UINT32_MAX
const char *op_name(enum op_kind kind);

struct op {
    uint32_t kind;
    uint32_t in[2];
    uint32_t out;
    uint32_t w;     /* index into weight[], or PROG_NONE */
    uint32_t state; /* index into state[], or PROG_NONE */
    uint32_t n[5];
    float f[2];
    uint32_t heads; /* for dumps: a row is so many heads; 0: one */
    char name[PROG_NAME]; /* what `eval --dump` calls the result; "" = not dumped */
};

enum buf_type { BUF_F32, BUF_I32 };
struct prog_buffer {
    uint32_t width; /* values a token (or an output row) */
    uint32_t type;  /* enum buf_type */
    uint32_t rows;  /* 0: one row a token; 1: one row an output row of the step */
    uint32_t forms; /* bit mask of the act forms it is prepared in */
    uint32_t parts; /* vectors a row that are prepared each on its own; 0: the row is one */
};

struct prog_weight { /* a trunk tensor: (rows, cols), or (cols) with rows 1 */
    uint32_t type;   /* enum weight_type */
    uint32_t rows, cols;
    uint32_t tensor; /* index in the model's trunk table: what the pager reads */
    uint64_t row_bytes;
    uint32_t scale, bias; /* weights of their own, or PROG_NONE (rule 14) */
};

/* What a sequence keeps from step to step. Rows by position are written where they belong and stand for
 * themselves; a tail and a matrix have two versions (versions.h). */
enum state_kind {
    STATE_KV,     /* a row a position, under --kv: k_width and v_width values in heads of head_values;
                   * v_width 0: one vector is key and value */
    STATE_POOLS,  /* a row of k_width f32 every head_values positions */
    STATE_TAIL,   /* the last head_values rows of k_width f32 before a position, and of rejected ones */
    STATE_MATRIX, /* heads matrices (k_width, v_width) f32; decay: values of a head's decay; head h goes with query
                   * and key head h mod k_heads */
    STATE_KINDS
};
struct prog_state {
    uint32_t k_width, v_width; /* STATE_KV: values a token */
    uint32_t head_values;      /* of a kv head, keys and values alike */
    uint32_t kind;             /* enum state_kind */
    uint32_t heads, k_heads, decay; /* STATE_MATRIX */
    uint32_t draft;            /* 1: of the NextN block: counts its rows */
};

/* A table whose rows are not among the weights: whoever asks for a step looks them up, for he knows the tokens, and
 * hands over their bytes with it: token_bytes for each token, the tables' parts side by side. */
enum { PROG_TABLES = 4 };
struct prog_table {
    uint32_t tensor; /* as prog_weight's */
    uint32_t rows;   /* a token */
    uint32_t first;  /* byte of a token's, where they begin, as many rows of row_bytes */
    uint32_t row_bytes;
};

struct program {
    uint32_t n_ops, n_buffers, n_weights, n_states, n_tables;
    uint32_t token_bytes;
    struct prog_table table[PROG_TABLES];
    uint32_t n_embd, n_vocab, top_k;
    uint32_t n_rot; /* of the rotation table */
    uint32_t logits;
    uint32_t draft_at, draft_logits; /* its first operation, its answer */
    uint32_t rollback;               /* most tokens that a sequence can be taken back by */
    double rope_base;
    struct op *op; /* owned arrays */
    struct prog_buffer *buffer;
    struct prog_weight *weight;
    struct prog_state *state;
};
void program_free(struct program *p);
/* The first operation that real cards have no kernels for yet; PROG_NONE: they compute all of it. */
uint32_t program_not_on_cards(const struct program *p);

/* Which buffers an operation reads and writes, forms included; which weights it reads, which states it
 * uses. PROG_NONE where there are fewer. */
enum { USES_READ = 6, USES_WRITTEN = 3, USES_WEIGHTS = 2, USES_STATES = 2 };
struct op_uses {
    uint32_t read[USES_READ], written[USES_WRITTEN], weight[USES_WEIGHTS], state[USES_STATES];
    int changes_state; /* the states are written too */
};
struct op_uses program_uses(const struct op *op);
