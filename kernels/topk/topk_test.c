/* Rule 26: the order and its ties, every method against the definition, the router's weights. */
#include "kernels/cpu.h"
#include "kernels/func/func.h"
#include "kernels/func/nasty.h"
#include "kernels/softmax/softmax.h"
#include "kernels/topk/topk.h"
#include "tests/test.h"

#include <math.h>

static float v[2000];
static uint32_t want[2000], got[2000];

static void methods(uint32_t n, uint32_t k)
{
    order_topk_ref(v, n, k, want);
    order_topk_few(v, n, k, got);
    CHECK(!memcmp(want, got, k * sizeof *got), "few, n %u, k %u", n, k);
    order_topk_many(v, n, k, got);
    CHECK(!memcmp(want, got, k * sizeof *got), "many, n %u, k %u", n, k);
    order_topk(v, n, k, got);
    CHECK(!memcmp(want, got, k * sizeof *got), "chosen, n %u, k %u", n, k);
    if (cpu_has() >= CPU_AVX2) {
        order_topk_avx2(v, n, k, got);
        CHECK(!memcmp(want, got, k * sizeof *got), "avx2, n %u, k %u", n, k);
    }
}

static void order(void)
{
    static const float x[] = {NAN, -0.0f, 0.0f, -INFINITY, 2, INFINITY, 2, NAN, 0x1p-149f, -1};
    static const uint32_t places[] = {5, 4, 6, 8, 1, 2, 9, 3, 0, 7};

    memcpy(v, x, sizeof x);
    for (uint32_t k = 0; k <= 10; k++) {
        methods(10, k);
        CHECK(!memcmp(want, places, k * sizeof *want), "k %u", k);
    }
}

static void random_lists(void)
{
    struct nasty r = {6};

    for (int kind = 0; kind < 6; kind++)
        for (uint32_t n = 1; n <= 600; n += n < 40 ? 1 : 37) {
            nasty_fill(&r, kind < 4 ? kind : 0, v, n);
            for (uint32_t i = 0; i < n && kind == 4; i++)
                v[i] = (float)(nasty_u32(&r) % 5) - 2; /* ties everywhere */
            for (uint32_t i = 0; i < n && kind == 5; i++)
                v[i] = (float)i; /* each one enters the list */
            for (uint32_t k = 0; k <= n; k += k < 12 ? 1 : 29)
                methods(n, k);
            methods(n, n);
        }
}

static void router(void)
{
    struct nasty r = {7};
    float p[512], probs[512], w[8], t = 0;
    uint32_t idx[8];

    nasty_fill(&r, 0, v, 512);
    softmax(v, p, 512);
    router_softmax(v, 512, 8, 0, 0, 0, probs, idx, w);
    CHECK(!memcmp(p, probs, sizeof p));
    for (int i = 0; i < 8; i++) {
        CHECK(f32_bits(w[i]) == f32_bits(p[idx[i]]));
        t += p[idx[i]];
    }
    router_softmax(v, 512, 8, 1, 0x1p-14f, 2.5f, probs, idx, w);
    for (int i = 0; i < 8; i++)
        CHECK(f32_bits(w[i]) == f32_bits(p[idx[i]] / t * 2.5f));
    router_softmax(v, 512, 8, 1, 4.0f, 1.0f, probs, idx, w); /* the floor holds */
    for (int i = 0; i < 8; i++)
        CHECK(f32_bits(w[i]) == f32_bits(p[idx[i]] / 4.0f));
    w[0] = 1, w[1] = 2;
    router_weights(w, 2, 1, 0, 1, 0);
    CHECK(w[0] == 0.25f && w[1] == 0.5f);
    v[3] = NAN; /* all probabilities NaN: by index, and weights that say so */
    router_softmax(v, 512, 8, 1, 0x1p-14f, 0, probs, idx, w);
    for (uint32_t i = 0; i < 8; i++)
        CHECK(idx[i] == i && f32_bits(w[i]) == F32_NAN_BITS);
}

static void router_by_sigmoid(void)
{
    static const float logits[4] = {0, 2, -1, NAN}, bias[4] = {1, 0, 3, 100};
    float s[4], select[4], w[2];
    uint32_t idx[2];

    router_sigmoid(logits, bias, 4, 2, 1, 0x1p-14f, 2.5f, s, select, idx, w);
    CHECK(idx[0] == 2 && idx[1] == 0); /* chosen with the bias, weighed without; NaN last */
    CHECK(f32_bits(w[0]) == f32_bits(f_sigmoid(-1) / (f_sigmoid(-1) + 0.5f) * 2.5f));
    CHECK(f32_bits(w[1]) == f32_bits(0.5f / (f_sigmoid(-1) + 0.5f) * 2.5f));
    router_sigmoid(logits, NULL, 4, 2, 0, 0, 1, s, select, idx, w);
    CHECK(idx[0] == 1 && idx[1] == 0 && w[1] == 0.5f && f32_bits(w[0]) == f32_bits(f_sigmoid(2)));
}

int main(void)
{
    order();
    random_lists();
    router();
    router_by_sigmoid();
    return test_end();
}
