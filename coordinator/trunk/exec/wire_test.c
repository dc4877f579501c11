/* A program through the wire and back; every 32-bit word of the image replaced: refused, or a program whose
 * every index lies inside its arrays. */
#include "coordinator/trunk/exec/wire.h"

#include <stdlib.h>

#include "kernels/type/type.h"
#include "tests/test.h"

static const struct geometry g = {.n_layers = 4, .n_experts = 8, .top_k = 2, .n_embd = 32, .n_vocab = 16};
#define TRUNK_BYTES 65536u
#define NONE PROG_NONE

/* 0 x, 1 q, 2 k, 3 v, 4 probabilities, 5 ids, 6 weights, 7 rows wanted, 8 logits */
static struct prog_buffer buffers[] = {{32, BUF_F32, 0, 1u << ACT_A32}, {32, BUF_F32, 0, 0}, {16, BUF_F32, 0, 0},
                                       {16, BUF_F32, 0, 0}, {8, BUF_F32, 0, 0}, {2, BUF_I32, 0, 0},
                                       {2, BUF_F32, 0, 0}, {32, BUF_F32, 1, 1u << ACT_A32}, {16, BUF_F32, 1, 0}};
static struct prog_weight weights[] = {{W_Q8_0, 16, 32, 0, 34, NONE, NONE}, {W_F32, 1, 32, 1, 128, NONE, NONE},
                                       {W_Q8_0, 32, 32, 2, 34, NONE, NONE}, {W_Q8_0, 8, 32, 3, 34, NONE, NONE}};
static struct prog_state states[] = {{16, 16, 8}};
static const struct weight_at places[] = {{0, 0, 0}, {4096, 1, 0}, {8192, 0, 0}, {12288, 0, 0}};
static struct op ops[] = {
    {OP_EMBED, {NONE, NONE}, 0, 0, NONE, {0}, {0}, "embed"},
    {OP_PREPARE, {0, NONE}, NONE, NONE, NONE, {ACT_A32}, {0}, ""},
    {OP_MATMUL, {0, NONE}, 1, 2, NONE, {ACT_A32}, {0}, "q"},
    {OP_MATMUL, {0, NONE}, 2, 0, NONE, {ACT_A32}, {0}, "k"},
    {OP_MATMUL, {0, NONE}, 3, 0, NONE, {ACT_A32}, {0}, "v"},
    {OP_RMS_NORM, {1, NONE}, 1, 1, NONE, {32, 1}, {1e-5f}, ""},
    {OP_ROPE, {NONE, NONE}, 1, NONE, NONE, {4, 8, 8}, {0}, ""},
    {OP_KV_APPEND, {2, 3}, NONE, NONE, 0, {0}, {0}, ""},
    {OP_ATTENTION, {1, NONE}, 1, NONE, 0, {4, 2, 8}, {0.3f}, ""},
    {OP_ADD, {1, NONE}, 0, NONE, NONE, {0}, {0}, ""},
    {OP_MATMUL, {0, NONE}, 4, 3, NONE, {ACT_A32}, {0}, ""},
    {OP_ROUTER, {4, NONE}, 4, NONE, NONE, {8, 2, 1, 5, 6}, {0, 1}, "router"},
    {OP_MOE_CALL, {0, 5}, NONE, NONE, NONE, {3, 2}, {0}, ""},
    {OP_MOE_SUM, {NONE, 6}, 0, NONE, NONE, {0}, {0}, ""},
    {OP_PICK, {0, NONE}, 7, NONE, NONE, {0}, {0}, ""},
    {OP_PREPARE, {7, NONE}, NONE, NONE, NONE, {ACT_A32}, {0}, ""},
    {OP_MATMUL, {7, NONE}, 8, 0, NONE, {ACT_A32}, {0}, "logits"},
};
#define N(a) ((uint32_t)(sizeof(a) / sizeof *(a)))

static struct program whole(void)
{
    return (struct program){.n_ops = N(ops), .n_buffers = N(buffers), .n_weights = N(weights),
                            .n_states = 1, .n_embd = 32, .n_vocab = 16, .top_k = 2, .n_rot = 8, .logits = 8,
                            .rope_base = 1e4, .op = ops, .buffer = buffers, .weight = weights, .state = states};
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

/* what the executor would touch */
static int inside(const struct program *p)
{
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct op *o = &p->op[i];
        int out = o->kind != OP_PREPARE && o->kind != OP_KV_APPEND && o->kind != OP_MOE_CALL;
        int in = o->kind != OP_EMBED && o->kind != OP_ROPE && o->kind != OP_MOE_SUM;
        int w = o->kind == OP_EMBED || o->kind == OP_MATMUL || o->kind == OP_RMS_NORM;
        if ((out && o->out >= p->n_buffers) || (in && o->in[0] >= p->n_buffers) || (w && o->w >= p->n_weights) ||
            ((o->kind == OP_KV_APPEND || o->kind == OP_ATTENTION) && o->state >= p->n_states))
            return 0;
        if (o->kind == OP_MATMUL && (p->buffer[o->out].width < p->weight[o->w].rows ||
                                     p->buffer[o->in[0]].width != p->weight[o->w].cols))
            return 0;
    }
    return p->logits < p->n_buffers && p->buffer[p->logits].width == 16;
}

int main(void)
{
    static const uint32_t values[] = {0, 1, 3, 9, 33, 1000, 65536, 0x7FFFFFFF, 0x80000000, UINT32_MAX};
    struct program p = whole(), *q = NULL;
    uint64_t n = wire_bytes(&p);
    uint8_t *image = malloc(n);
    uint32_t refused = 0, taken = 0, outside = 0;

    wire_write(&p, places, KV_F16, image);
    CHECK_EQ(reads(image, n, &q), 0);
    if (q) {
        CHECK(!memcmp(q->op, ops, sizeof ops) && !memcmp(q->buffer, buffers, sizeof buffers));
        CHECK(!memcmp(q->weight, weights, sizeof weights) && !memcmp(q->state, states, sizeof states));
        CHECK(q->rope_base == 1e4 && q->n_rot == 8 && q->logits == 8 && inside(q));
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
