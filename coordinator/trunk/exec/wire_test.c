/* A program through the wire and back; every 32-bit word of the image replaced: refused, or a program whose
 * every index lies inside its arrays. */
#include "coordinator/trunk/exec/wire.h"

#include <stdlib.h>

#include "kernels/type/type.h"
#include "tests/test.h"

static const struct geometry g = {.n_layers = 4, .n_experts = 8, .top_k = 2, .n_embd = 32, .n_vocab = 16, .token_bytes = 144};
#define TRUNK_BYTES 65536u
#define NONE PROG_NONE
#define N(a) ((uint32_t)(sizeof(a) / sizeof *(a)))
#define A32 (1u << ACT_A32)

enum buf { X, Q, K, V, PROBS, IDS, WEIGHTS, LAST, LOGITS, STREAMS, MIX, M, LIST, IQ, IW, IK, IG, LATENT, PARTS,
           ROUTED, BRANCHES, DRAFT_LAST, DRAFT_LOGITS };
static struct prog_buffer buffers[] = {
    [X] = {.width = 32, .forms = A32},
    [Q] = {.width = 32},
    [K] = {.width = 16},
    [V] = {.width = 16},
    [PROBS] = {.width = 8},
    [IDS] = {.width = 2, .type = BUF_I32},
    [WEIGHTS] = {.width = 2},
    [LAST] = {.width = 32, .rows = 1, .forms = A32},
    [LOGITS] = {.width = 16, .rows = 1},
    [STREAMS] = {.width = 64},
    [MIX] = {.width = 8},
    [M] = {.width = 8},
    [LIST] = {.width = 13, .type = BUF_I32},
    [IQ] = {.width = 16},
    [IW] = {.width = 2},
    [IK] = {.width = 8},
    [IG] = {.width = 8},
    [LATENT] = {.width = 16},
    [PARTS] = {.width = 64, .forms = A32, .parts = 2},
    [ROUTED] = {.width = 8},
    [BRANCHES] = {.width = 64},
    [DRAFT_LAST] = {.width = 32, .rows = 1, .forms = A32},
    [DRAFT_LOGITS] = {.width = 16, .rows = 1},
};
enum weight { W16, NORM, W32, W8, VECTOR, SCALE };
static struct prog_weight weights[] = {
    [W16] = {W_Q8_0, 16, 32, 0, 34, NONE, NONE},
    [NORM] = {W_F32, 1, 32, 1, 128, NONE, NONE},
    [W32] = {W_Q8_0, 32, 32, 2, 34, NONE, NONE},
    [W8] = {W_Q8_0, 8, 32, 3, 34, NONE, NONE},
    [VECTOR] = {W_F32, 1, 64, 4, 256, NONE, NONE},
    [SCALE] = {W_F32, 1, 3, 5, 12, NONE, NONE},
};
static const struct weight_at places[] = {{0, 0, 0},     {4096, 1, 0},  {8192, 0, 0},
                                          {12288, 0, 0}, {16384, 1, 0}, {20480, 1, 0}};
enum st { S_KV, S_TAIL, S_MATRIX, S_LATENT, S_POOLS, S_KEYS, S_GAPS, S_PLAIN, S_DRAFT };
static struct prog_state states[] = {
    [S_KV] = {.k_width = 16, .v_width = 16, .head_values = 8},
    [S_TAIL] = {.kind = STATE_TAIL, .k_width = 16, .head_values = 3},
    [S_MATRIX] = {.kind = STATE_MATRIX, .k_width = 8, .v_width = 8, .heads = 2, .k_heads = 2, .decay = 8},
    [S_LATENT] = {.k_width = 16, .head_values = 16},
    [S_POOLS] = {.kind = STATE_POOLS, .k_width = 8, .head_values = 4},
    [S_KEYS] = {.kind = STATE_TAIL, .k_width = 16, .head_values = 3},
    [S_GAPS] = {.kind = STATE_TAIL, .k_width = 16, .head_values = 9},
    [S_PLAIN] = {.kind = STATE_TAIL, .k_width = 8, .head_values = 3},
    [S_DRAFT] = {.k_width = 16, .head_values = 16, .draft = 1},
};
#define OP(k, a, b, o, wt, s, ...) {.kind = (k), .in = {(a), (b)}, .out = (o), .w = (wt), .state = (s), __VA_ARGS__}
static struct op ops[] = {
    OP(OP_EMBED, NONE, NONE, X, W16, NONE, .name = "embed"),
    OP(OP_PREPARE, X, NONE, NONE, NONE, NONE, .n = {ACT_A32}),
    OP(OP_MATMUL, X, NONE, Q, W32, NONE, .n = {ACT_A32}, .name = "q"),
    OP(OP_MATMUL, X, NONE, K, W16, NONE, .n = {ACT_A32}, .name = "k"),
    OP(OP_MATMUL, X, NONE, V, W16, NONE, .n = {ACT_A32}, .name = "v"),
    OP(OP_RMS_NORM, Q, NONE, Q, NORM, NONE, .n = {32, 1}, .f = {1e-5f}),
    OP(OP_ROPE, NONE, NONE, Q, NONE, NONE, .n = {4, 8, 8}),
    OP(OP_KV_APPEND, K, V, NONE, NONE, S_KV, .n = {0}),
    OP(OP_ATTENTION, Q, NONE, Q, NONE, S_KV, .n = {4, 2, 8}, .f = {0.3f}, .heads = 4),
    OP(OP_ADD, Q, NONE, X, NONE, NONE, .n = {0}),
    OP(OP_REPEAT, X, NONE, STREAMS, NONE, NONE, .n = {2}),
    OP(OP_HYPER_MIX, M, NONE, MIX, SCALE, NONE, .n = {2, 20, VECTOR}, .f = {1e-6f}),
    OP(OP_HYPER_COLLAPSE, STREAMS, MIX, X, NONE, NONE, .n = {2}),
    OP(OP_CONV, K, NONE, V, VECTOR, S_TAIL, .n = {4, 1}),
    OP(OP_L2_NORM, V, NONE, V, NONE, NONE, .n = {8, 2}, .f = {1e-6f, 0.5f}),
    OP(OP_DECAY, K, NONE, K, VECTOR, NONE, .n = {2, 1, VECTOR}, .f = {-5}),
    OP(OP_FUNC, IW, NONE, IW, NONE, NONE, .n = {FUNC_SIGMOID}),
    OP(OP_DELTA, V, V, LATENT, NONE, S_MATRIX, .n = {V, K, IW}),
    OP(OP_GATED_NORM, LATENT, K, LATENT, VECTOR, NONE, .n = {8, 2}, .f = {1e-5f}),
    OP(OP_KV_APPEND, LATENT, NONE, NONE, NONE, S_LATENT, .n = {0}),
    OP(OP_LAYER_NORM, IK, NONE, IK, VECTOR, NONE, .n = {VECTOR}, .f = {1e-6f}),
    OP(OP_POOL, IK, IG, NONE, VECTOR, S_POOLS, .n = {S_KEYS}),
    OP(OP_SCALE, NONE, NONE, IW, NONE, NONE, .f = {0.5f}),
    OP(OP_SELECT, IQ, IW, LIST, NONE, S_POOLS, .n = {2, 2}, .f = {0.5f}),
    OP(OP_ATTENTION, Q, LIST, Q, NONE, S_LATENT, .n = {2, 1, 16}, .f = {0.3f}),
    OP(OP_PREPARE, PARTS, NONE, NONE, NONE, NONE, .n = {ACT_A32}),
    OP(OP_MATMUL_PARTS, PARTS, NONE, X, W32, NONE, .n = {ACT_A32, 2}),
    OP(OP_SWIGLU, Q, X, Q, NONE, NONE, .f = {10}),
    OP(OP_HYPER_EXPAND, X, MIX, STREAMS, NONE, NONE, .n = {2}),
    OP(OP_SLICE, Q, NONE, K, NONE, NONE, .n = {2, 8, 4, 16}),
    OP(OP_MUL, K, NONE, V, NONE, NONE, .n = {0}),
    OP(OP_ADD_TIMES, K, IW, V, NONE, NONE, .n = {1}),
    OP(OP_ROWS, NONE, NONE, Q, NONE, NONE, .n = {8, 4, 8, W_F32}),
    OP(OP_BRANCH_MEAN, STREAMS, STREAMS, X, NONE, NONE, .n = {2}),
    OP(OP_BRANCH_GATE, STREAMS, STREAMS, BRANCHES, NONE, NONE, .n = {2, X}, .f = {0.5f}),
    OP(OP_RMS_NORM, STREAMS, NONE, STREAMS, VECTOR, NONE, .n = {32, 2, 1}, .f = {1e-5f}),
    OP(OP_ADD_TIMES, X, IW, STREAMS, NONE, NONE, .n = {2}),
    OP(OP_ADD, BRANCHES, STREAMS, STREAMS, NONE, NONE, .n = {0}),
    OP(OP_CONV, K, NONE, V, VECTOR, S_GAPS, .n = {4, 3}),
    OP(OP_POOL, IK, NONE, NONE, NORM, S_POOLS, .n = {S_PLAIN, 8}, .f = {1e-6f}),
    OP(OP_SELECT, IQ, NONE, LIST, NONE, S_POOLS, .n = {2, 2}, .f = {0.5f}),
    OP(OP_HYPER_MEAN, STREAMS, NONE, X, NONE, NONE, .n = {2}),
    OP(OP_PREPARE, X, NONE, NONE, NONE, NONE, .n = {ACT_A32}),
    OP(OP_MATMUL, X, NONE, ROUTED, W8, NONE, .n = {ACT_A32}),
    OP(OP_ROUTER, ROUTED, NONE, PROBS, VECTOR, NONE, .n = {8, 2, 3, IDS, WEIGHTS}, .f = {0, 1}, .name = "router"),
    OP(OP_MOE_CALL, X, IDS, NONE, NONE, NONE, .n = {3, 2}),
    OP(OP_MOE_SUM, NONE, WEIGHTS, X, NONE, NONE, .n = {0}),
    OP(OP_PICK, X, NONE, LAST, NONE, NONE, .n = {0}),
    OP(OP_PREPARE, LAST, NONE, NONE, NONE, NONE, .n = {ACT_A32}),
    OP(OP_MATMUL, LAST, NONE, LOGITS, W16, NONE, .n = {ACT_A32}, .name = "logits"),
    /* the second part */
    OP(OP_CARRY, DRAFT_LAST, NONE, X, NONE, NONE, .n = {0}),
    OP(OP_KV_APPEND, LATENT, NONE, NONE, NONE, S_DRAFT, .n = {0}),
    OP(OP_PICK, X, NONE, DRAFT_LAST, NONE, NONE, .n = {0}),
    OP(OP_PREPARE, DRAFT_LAST, NONE, NONE, NONE, NONE, .n = {ACT_A32}),
    OP(OP_MATMUL, DRAFT_LAST, NONE, DRAFT_LOGITS, W16, NONE, .n = {ACT_A32}, .name = "N.logits"),
};
#define SECOND_PART 5u

static struct program whole(void)
{
    return (struct program){.n_ops = N(ops), .n_buffers = N(buffers), .n_weights = N(weights),
                            .n_states = N(states), .n_embd = 32, .n_vocab = 16, .top_k = 2, .n_rot = 8,
                            .logits = LOGITS, .draft_at = N(ops) - SECOND_PART, .draft_logits = DRAFT_LOGITS,
                            .rollback = 4, .token_bytes = 144, .rope_base = 1e4,
                            .op = ops, .buffer = buffers, .weight = weights, .state = states};
}

static int reads(const uint8_t *image, uint64_t n, struct program **p)
{
    struct weight_at *at;
    struct err e = {0};
    enum kv_type kv;
    int rc = wire_read(image, n, TRUNK_BYTES, &g, p, &at, &kv, &e);

    CHECK(!rc == !e.msg[0], "%d: '%s'", rc, e.msg);
    if (!rc)
        free(at);
    return rc;
}

static int below(const uint32_t *index, int n, uint32_t end)
{
    for (int i = 0; i < n; i++)
        if (index[i] != NONE && index[i] >= end)
            return 0;
    return 1;
}

/* Has it a second operand? A field that means nothing holds anything. */
static int second(uint32_t kind)
{
    static const uint32_t kinds[] = {OP_KV_APPEND, OP_ATTENTION, OP_MOE_CALL, OP_MOE_SUM, OP_GATED_NORM, OP_SWIGLU,
                                     OP_DELTA, OP_POOL, OP_SELECT, OP_ADD_TIMES, OP_HYPER_COLLAPSE, OP_HYPER_EXPAND,
                                     OP_BRANCH_MEAN, OP_BRANCH_GATE};

    for (size_t i = 0; i < N(kinds); i++)
        if (kinds[i] == kind)
            return 1;
    return 0;
}

/* what the executor would touch */
static int inside(const struct program *p)
{
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct op *o = &p->op[i];
        struct op_uses u = program_uses(o);
        int out = o->kind != OP_PREPARE && o->kind != OP_KV_APPEND && o->kind != OP_MOE_CALL && o->kind != OP_POOL;
        int in = o->kind != OP_EMBED && o->kind != OP_ROPE && o->kind != OP_MOE_SUM && o->kind != OP_SCALE &&
                 o->kind != OP_ROWS;
        if (second(o->kind) && !below(u.read + 1, USES_READ - 1, p->n_buffers))
            return 0;
        if ((out && (o->out >= p->n_buffers || !below(u.written, USES_WRITTEN, p->n_buffers))) ||
            (in && o->in[0] >= p->n_buffers))
            return 0;
        if ((o->kind == OP_MATMUL || o->kind == OP_MATMUL_PARTS) &&
            (o->w >= p->n_weights || p->buffer[o->out].width < p->weight[o->w].rows))
            return 0;
        if (o->kind == OP_ROWS && (o->n[0] + 4ull * o->n[1] * o->n[2] > 144 && o->n[3] == W_F32))
            return 0;
        if (o->kind == OP_DELTA && (!below(u.state, USES_STATES, p->n_states) ||
                                    p->buffer[o->n[2]].width < p->state[o->state].heads))
            return 0;
    }
    return p->logits < p->n_buffers && p->buffer[p->logits].width == 16 && p->draft_at <= p->n_ops;
}

int main(void)
{
    static const uint32_t values[] = {0, 1, 3, 9, 33, 1000, 65536, 0x7FFFFFFF, 0x80000000, UINT32_MAX};
    struct program p = whole(), *q = NULL;
    uint64_t n = wire_bytes(&p);
    uint8_t *image = malloc(n);
    uint32_t refused = 0, taken = 0, outside = 0;

    wire_write(&p, places, KV_F16, image);
    for (uint32_t k = 0; k < OP_KINDS; k++) {
        uint32_t i = 0;
        while (i < N(ops) && ops[i].kind != k)
            i++;
        CHECK(i < N(ops), "no operation of kind %u, %s", k, op_name(k));
    }
    CHECK_EQ(reads(image, n, &q), 0);
    if (q) {
        CHECK(!memcmp(q->op, ops, sizeof ops) && !memcmp(q->buffer, buffers, sizeof buffers));
        CHECK(!memcmp(q->weight, weights, sizeof weights) && !memcmp(q->state, states, sizeof states));
        CHECK(q->rope_base == 1e4 && q->n_rot == 8 && q->logits == LOGITS && inside(q));
        CHECK(q->draft_at == N(ops) - SECOND_PART && q->draft_logits == DRAFT_LOGITS && q->rollback == 4);
        program_free(q);
    }
    for (uint64_t cut = 0; cut < n; cut += 37)
        CHECK(reads(image, cut, &q) == -EPROTO, "%llu bytes", (unsigned long long)cut);
    for (uint64_t at = 0; at + 4 <= n; at += 4)
        for (uint32_t v = 0; v < N(values); v++) {
            uint32_t was;
            memcpy(&was, image + at, 4);
            memcpy(image + at, &values[v], 4);
            if (reads(image, n, &q)) {
                refused++;
            } else {
                taken++;
                outside += !inside(q);
                program_free(q);
            }
            memcpy(image + at, &was, 4);
        }
    CHECK_EQ(outside, 0);
    CHECK(refused > taken / 4 && taken > 0, "%u refused, %u taken", refused, taken);
    free(image);
    return test_end();
}
