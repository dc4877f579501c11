/* The trunk as data: a flat list of operations over numbered buffers, made once by an architecture's
 * file through coordinator/trunk/ops.h, executed by run_cpu.c, or sent to a card's worker. No pointers, no lengths of a
 * particular pass: token counts, positions and rows come from the step record, so one program serves
 * every batch and every context. Model code never sees a value between two operations. */
#pragma once
#include <stdint.h>

#define PROG_NONE UINT32_MAX
#define PROG_NAME 40

enum op_kind {
    OP_EMBED,     /* out = rows of table w [38], by the step's token ids */
    OP_PREPARE,   /* in[0]'s vectors in the form n[0] (enum act_form) for products [8] */
    OP_MATMUL,    /* out = w in[0], then scale, bias [8-14]; n[0] = act form */
    OP_RMS_NORM,  /* out = rms of in[0] by pieces of n[0] values, n[1] pieces a token, weight w, eps f[0]
                   * [21]; n[2] = 1: w is as long as a piece */
    OP_ROPE,      /* in place on out: n[0] heads of n[1] values, the first n[2] rotated [23, 24] */
    OP_KV_APPEND, /* in[0] keys, in[1] values -> state at the token's position [35] */
    OP_ATTENTION, /* out = attention of in[0] over the state [29]; n[0] heads, n[1] kv heads, n[2] head
                   * values; scale f[0] */
    OP_ADD,       /* out += in[0], one rounding */
    OP_ROUTER,    /* in[0] logits -> out probabilities, n[3] = ids buffer, n[4] = weights buffer; n[0]
                   * experts, n[1] used, n[2] normalise; f[0] floor, f[1] scale [25, 26] */
    OP_MOE_CALL,  /* in[0] vectors, in[1] ids: publishes the layer's call; n[0] = layer, n[1] = used */
    OP_MOE_SUM,   /* out = sum over places of weight in[1] times the rows of the call [28] */
    OP_PICK,      /* out = in[0]'s rows that the step wants logits of */
    OP_KINDS
};
const char *op_name(enum op_kind kind);

struct op {
    uint32_t kind;
    uint32_t in[2];
    uint32_t out;
    uint32_t w;     /* index into weight[], or PROG_NONE */
    uint32_t state; /* index into state[], or PROG_NONE */
    uint32_t n[5];
    float f[2];
    char name[PROG_NAME]; /* what `eval --dump` calls the result; "" = not dumped */
};

enum buf_type { BUF_F32, BUF_I32 };
struct prog_buffer {
    uint32_t width; /* values a token (or an output row) */
    uint32_t type;  /* enum buf_type */
    uint32_t rows;  /* 0: one row a token; 1: one row an output row of the step */
    uint32_t forms; /* bit mask of the act forms it is prepared in */
};

struct prog_weight { /* a trunk tensor: (rows, cols), or (cols) with rows 1 */
    uint32_t type;   /* enum weight_type */
    uint32_t rows, cols;
    uint32_t tensor; /* index in the model's trunk table: what the pager reads */
    uint64_t row_bytes;
    uint32_t scale, bias; /* weights of their own, or PROG_NONE (rule 14) */
};

struct prog_state { /* keys and values of one layer */
    uint32_t k_width, v_width; /* values a token */
    uint32_t head_values;      /* of a kv head, keys and values alike */
};

struct program {
    uint32_t n_ops, n_buffers, n_weights, n_states;
    uint32_t n_embd, n_vocab, top_k;
    uint32_t n_rot; /* of the rotation table */
    uint32_t logits;
    double rope_base;
    struct op *op; /* owned arrays */
    struct prog_buffer *buffer;
    struct prog_weight *weight;
    struct prog_state *state;
};
void program_free(struct program *p);
