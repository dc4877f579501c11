/* Plans by tables: what a budget becomes, and what is refused. */
#include "coordinator/residency/plan.h"

#include "tests/test.h"

#define MB (1ull << 20)
enum { LAYERS = 4, EXPERTS = 8 };

static struct expert_layer layers[LAYERS];

/* Experts of three matrices of 256 rows of 4 KiB: 3 MiB, and a page for rows that begin askew each. */
static struct plan_file file_of(uint64_t trunk, uint64_t kv)
{
    for (int l = 0; l < LAYERS; l++) {
        layers[l] = (struct expert_layer){.n_experts = EXPERTS, .top_k = 2};
        for (int m = 0; m < N_MATS; m++)
            layers[l].m[m] = (struct expert_matrix){
                .rows = 256, .cols = 1024, .row_bytes = 4096, .stride = MB, .file_off = m * EXPERTS * MB};
    }
    return (struct plan_file){.path = "a.gguf",
                              .layer = layers,
                              .n_layers = LAYERS,
                              .n_experts = EXPERTS,
                              .top_k = 2,
                              .n_embd = 1024,
                              .n_ff = 256,
                              .n_vocab = 1000,
                              .n_ctx_train = 8192,
                              .trunk_bytes = trunk,
                              .kv_bytes = kv};
}

static void test_everything_fits(void)
{
    struct plan_file f = file_of(10 * MB, 1024);
    struct plan_ask a = {.n_nodes = 1};
    struct plan_budget b = {4096 * MB};
    struct plan p;
    struct err e = {0};

    CHECK(!plan_make(&f, &a, &b, &p, &e), "%s", e.msg);
    CHECK(p.slabs.resident && p.slabs.n_slabs == LAYERS * EXPERTS);
    CHECK(p.n_ctx == 8192 && p.max_tokens == PLAN_BATCH && p.max_out == 1);
    CHECK(p.geo.n_slabs == p.slabs.n_slabs && p.geo.max_tokens == PLAN_BATCH);
}

static void test_refusals(void)
{
    static const struct {
        uint64_t trunk_mb, kv, left_mb, ram_mb;
        uint32_t n_ctx;
        const char *says;
    } t[] = {
        {500, 1024, 256, 0, 0, "the trunk takes 524288000 bytes"},
        {10, 1024, 512, 1, 0, "give --ram"},
        {10, 1 << 20, 512, 20, 8000, "-c 8000"},
        {10, 1024, 120, 100, 0, "a smaller --ram"},
    };
    struct plan_ask a = {.n_nodes = 1};
    struct plan p;

    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct plan_file f = file_of(t[i].trunk_mb * MB, t[i].kv);
        struct plan_budget b = {t[i].left_mb * MB};
        struct err e = {0};
        a.ram = t[i].ram_mb * MB;
        a.n_ctx = t[i].n_ctx;
        CHECK(plan_make(&f, &a, &b, &p, &e) < 0 && strstr(e.msg, t[i].says), "%zu: %s", i, e.msg);
    }
}

int main(void)
{
    test_everything_fits();
    test_refusals();
    return test_end();
}
