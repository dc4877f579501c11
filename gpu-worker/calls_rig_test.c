/* The rig itself, with the CPU's producer of calls in place of a card's: rows and sums of every call are those
 * of the plain formula, wherever the experts lie. */
#include "gpu-worker/calls_rig.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/trunk/exec/moe.h"
#include "kernels/cpu.h"
#include "kernels/dot/dot.h"
#include "kernels/expert/expert.h"
#include "kernels/moe/moe.h"
#include "kernels/quantise/quantise.h"
#include "tests/test.h"

enum { LAYERS = 2, EXPERTS = 12, EMBD = 64, FF = 96, TOP_K = 3, TOKENS = 5, PASS = 13 };

static uint64_t seed = 5;
static float value(void)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (float)(int32_t)(seed >> 32) * 0x1p-31f;
}

static void plain(const struct calls_rig_layer *l, uint32_t e, const float *x, float *row)
{
    struct expert_part p[N_MATS];
    float h[FF], tmp[2 * FF];

    for (int m = 0; m < N_MATS; m++)
        p[m] = (struct expert_part){W_F32, l->rows[m] + e * l->bytes[m], (m == MAT_DOWN ? FF : EMBD) * 4u, 1.0f};
    expert_gate_up(&p[0], &p[1], EMBD, 0, FF, x, 64, x, 64, NULL, 1, 0.0f, tmp, h, FF);
    expert_down(&p[2], FF, 0, EMBD, h, 64, 1, row, EMBD);
}

static void pass(struct moe *m, const struct calls_rig_layer *layer, uint32_t i, uint32_t n)
{
    static float x[PASS * EMBD], w[PASS * TOP_K], got[PASS * EMBD], want[PASS * EMBD], row[TOP_K][EMBD];
    int32_t ids[PASS * TOP_K];
    const float *of[TOP_K];

    for (uint32_t k = 0; k < n * EMBD; k++)
        x[k] = value();
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t k = 0; k < TOP_K; k++) {
            w[t * TOP_K + k] = value();
            ids[t * TOP_K + k] = (int32_t)((uint32_t)(seed >> 40) % (EXPERTS / TOP_K) + k * (EXPERTS / TOP_K));
        }
    moe_begin(m, i, TOP_K, x, ids, n);
    moe_finish(m, NULL, 0, 1, 0, w, got);
    for (uint32_t t = 0; t < n; t++) {
        for (uint32_t k = 0; k < TOP_K; k++) {
            plain(&layer[i], (uint32_t)ids[t * TOP_K + k], x + t * EMBD, row[k]);
            of[k] = row[k];
        }
        moe_sum(w + t * TOP_K, of, TOP_K, want + t * EMBD, EMBD);
    }
    CHECK(!memcmp(got, want, n * EMBD * 4), "layer %u, %u tokens", i, n);
}

int main(void)
{
    struct calls_rig_layer layer[LAYERS] = {0};
    struct calls_rig_config c = {.n_nodes = 2, .n_layers = LAYERS, .n_experts = EXPERTS, .n_embd = EMBD,
                                 .n_ff = FF, .max_tokens = TOKENS, .step_tokens = PASS, .n_slots = 7,
                                 .layer = layer, .seed = 3};
    struct calls_rig_counts n;
    struct calls_rig r;
    struct moe *m;
    struct err e = {0};

    cpu_float_state();
    for (uint32_t i = 0; i < LAYERS; i++) {
        layer[i].top_k = TOP_K;
        for (int k = 0; k < N_MATS; k++) {
            float *rows = malloc(EXPERTS * EMBD * FF * 4);
            for (uint32_t j = 0; j < EXPERTS * EMBD * FF; j++)
                rows[j] = value();
            layer[i].type[k] = W_F32;
            layer[i].rows[k] = (uint8_t *)rows;
            layer[i].bytes[k] = EMBD * FF * 4;
        }
    }
    CHECK(!calls_rig_open(&c, &r, &e), "%s", e.msg);
    struct moe_config mc = {.geo = &r.g, .board = r.board, .calls = r.calls, .amends = r.amends,
                            .tables = r.tables, .bells = r.bells, .acts = (float *)r.acts, .outbox = r.outbox,
                            .n_cards = RIG_CARDS, .first = 1, .shared = 1};
    for (uint32_t k = 0; k < c.n_nodes; k++)
        mc.owner[k] = PROC_FIRST_WORKER + k;
    for (uint32_t k = 0; k < RIG_CARDS; k++)
        mc.card_slot0[k] = k * c.n_slots;
    CHECK(!moe_open(&mc, &m, &e), "%s", e.msg);
    for (uint32_t i = 0; i < 400; i++) {
        struct rig_deal d = {i % 101, 30, i % 3 * 20, i % 4 * 10, 0, i % 5 ? 0 : 20000};
        calls_rig_deal(&r, &d);
        for (uint32_t l = 0; l < LAYERS; l++)
            pass(m, layer, l, i % 3 ? 1 : 1 + i % PASS);
    }
    calls_rig_counts(&r, &n);
    CHECK(n.amendments && n.declined && n.served[0] && n.served[1], "%llu amendments, %llu declined, %llu and %llu "
          "items of cards", (unsigned long long)n.amendments, (unsigned long long)n.declined,
          (unsigned long long)n.served[0], (unsigned long long)n.served[1]);
    moe_close(m);
    CHECK(!calls_rig_close(&r), "a worker failed");
    for (uint32_t i = 0; i < LAYERS; i++)
        for (int k = 0; k < N_MATS; k++)
            free((void *)layer[i].rows[k]);
    return test_end();
}
