/* Plans by tables: what a budget becomes, and what is refused. */
#include "coordinator/residency/plan.h"

#include "tests/test.h"

#define MB (1ull << 20)
enum { LAYERS = 4, EXPERTS = 8 };

static struct expert_layer layers[LAYERS];

/* Experts of three matrices of 256 rows of 4 KiB: 3 MiB each. */
static struct plan_file file_of(uint64_t trunk, uint64_t position)
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
                              .token_bytes = 40000,
                              .row_bytes = 4000,
                              .kept_bytes = position};
}
static struct plan_ask ask(void)
{
    return (struct plan_ask){.n_nodes = 1, .threads = 2};
}
static struct plan_budget budget(uint64_t mb)
{
    struct plan_budget b = {.left = mb * MB, .own = 1};

    for (uint32_t k = 0; k < MAX_NODES; k++)
        b.node_left[k] = UINT64_MAX;
    return b;
}

static void test_everything_fits(void)
{
    struct plan_file f = file_of(10 * MB, 1024);
    struct plan_ask a = ask();
    struct plan_budget b = budget(4096);
    struct plan p;
    struct err e = {0};

    CHECK(!plan_make(&f, &a, &b, &p, &e), "%s", e.msg);
    CHECK(p.slabs.resident && p.slabs.n_slabs == LAYERS * EXPERTS && p.bytes.experts == p.need_experts);
    CHECK(p.n_ctx == 8192 && p.max_tokens == PLAN_BATCH && p.max_out == 1);
    CHECK(p.geo.n_slabs == p.slabs.n_slabs && p.geo.max_tokens == PLAN_BATCH);
    a.every_row = 1;
    f.n_vocab = 200000;
    CHECK(!plan_make(&f, &a, &b, &p, &e) && p.max_out == p.max_tokens && p.max_tokens == 330, "%u", p.max_tokens);
}

/* Sequences have contexts of their own; what a position takes once is taken once. */
static void test_sequences(void)
{
    struct plan_file f = file_of(10 * MB, 1024);
    struct plan_ask a = ask();
    struct plan_budget b = budget(4096);
    struct plan one, four;
    struct err e = {0};

    f.position_bytes = 64;
    f.sequence_bytes = 5000;
    a.n_ctx = 1000;
    CHECK(!plan_make(&f, &a, &b, &one, &e) && one.bytes.context == 5000 + 1000 * (1024 + 64) && !one.n_notes);
    f.saved_bytes = 77;
    a.n_seqs = 4;
    a.rows = 4;
    CHECK(!plan_make(&f, &a, &b, &four, &e), "%s", e.msg);
    CHECK(four.bytes.context == 77 + 4 * 5000 + 1000 * (4 * 1024 + 64) && four.n_ctx == 1000 && four.max_out == 4);
    CHECK(four.n_notes == 1 && strstr(four.note[0].text, "4 sequences with a context of 1000 tokens and 1.0 MB each"), "%s",
          four.note[0].text);
    a.n_ctx = 2000000;
    CHECK(plan_make(&f, &a, &b, &four, &e) == -ENOMEM && strstr(e.msg, "smaller -c"), "%s", e.msg);
    a.n_seqs = 0;
    CHECK(!plan_make(&f, &a, &b, &one, &e) && one.n_ctx == 2000000, "%s", e.msg);
}

/* Whatever the limit: all parts together stay within it, and a larger one never holds fewer experts. */
static void test_sums_up(void)
{
    uint32_t before = 0, planned = 0;

    for (uint64_t mb = 32; mb <= 512; mb += 3)
        for (uint32_t nodes = 1; nodes <= 4; nodes *= 4) {
            struct plan_file f = file_of(10 * MB + 4096, 3000);
            struct plan_ask a = ask();
            struct plan_budget b = budget(mb);
            struct plan p;
            struct err e = {0};

            a.n_nodes = nodes;
            a.batch = nodes == 1 ? 64 : 0; /* passes as large for every limit, so that they compare */
            if (plan_make(&f, &a, &b, &p, &e)) {
                CHECK(strstr(e.msg, "raise the limit") || strstr(e.msg, "keys and values"), "%llu MB: %s",
                      (unsigned long long)mb, e.msg);
                continue;
            }
            planned++;
            CHECK(plan_taken(&p) + p.bytes.reserve <= b.left, "%llu MB, %u nodes: %llu and %llu",
                  (unsigned long long)mb, nodes, (unsigned long long)plan_taken(&p),
                  (unsigned long long)p.bytes.reserve);
            CHECK(p.n_ctx >= 256 && p.geo.n_slabs >= 1 && p.max_tokens >= 16);
            CHECK(p.bytes.experts >= p.geo.n_slabs * 3 * MB && p.bytes.reserve >= 16 * MB);
            if (nodes == 1) {
                CHECK(p.geo.n_slabs >= before, "%llu MB: %u after %u", (unsigned long long)mb, p.geo.n_slabs, before);
                before = p.geo.n_slabs;
            }
        }
    CHECK(planned > 200 && before == LAYERS * EXPERTS, "%u plans", planned);
}

/* Cards take their part: rings and a process each, emulated ones pools too, and the trunk's host its arrays. The
 * parts stay within the limit, and the more cards there are the fewer experts RAM has. */
static void test_cards(void)
{
    struct plan_file f = file_of(10 * MB, 1024);
    struct plan_budget b = budget(700);
    uint64_t before = UINT64_MAX, calls = 0;

    f.n_layers = LAYERS;
    for (uint32_t n = 0; n <= 4; n++)
        for (int trunk = 0; trunk <= (n > 0); trunk++) {
            struct plan_ask a = ask();
            struct plan p;
            struct err e = {0};
            a.batch = 64; /* passes as large, so that they compare */
            a.cards = (struct plan_cards){n, 1, trunk, 8 * n, n * 16 * MB};
            CHECK(!plan_make(&f, &a, &b, &p, &e), "%u cards: %s", n, e.msg);
            CHECK(plan_taken(&p) + p.bytes.reserve <= b.left, "%u cards: %llu of %llu", n,
                  (unsigned long long)plan_taken(&p), (unsigned long long)b.left);
            CHECK(p.bytes.cards == n * 16 * MB && (!calls || p.bytes.calls > calls), "%u cards: pools and rings", n);
            CHECK(p.bytes.experts <= before, "%u cards leave more for experts", n);
            before = p.bytes.experts;
            calls = p.bytes.calls;
        }
    CHECK(before < UINT64_MAX);
}

/* What others live in is left more alone than a limit of our own. */
static void test_reserve(void)
{
    struct plan_file f = file_of(10 * MB, 1024);
    struct plan_ask a = ask();
    struct plan_budget b = budget(3200);
    struct plan p;
    struct err e = {0};

    CHECK(!plan_make(&f, &a, &b, &p, &e) && p.bytes.reserve == 50 * MB);
    b.own = 0;
    CHECK(!plan_make(&f, &a, &b, &p, &e) && p.bytes.reserve == 200 * MB);
}

static void test_small_memory_makes_small_passes(void)
{
    struct plan_file f = file_of(10 * MB, 1024);
    struct plan_ask a = ask();
    struct plan_budget b = budget(150);
    struct plan p;
    struct err e = {0};

    CHECK(!plan_make(&f, &a, &b, &p, &e), "%s", e.msg);
    CHECK(p.max_tokens < PLAN_BATCH && p.max_tokens >= PLAN_BATCH_LEAST &&
              p.bytes.work + p.bytes.calls < 150 * MB / 8,
          "%u tokens", p.max_tokens);
    CHECK(p.n_notes >= 1 && strstr(p.note[0].text, "passes of"), "%s", p.note[0].text);
    a.batch = 300; /* asked for: obeyed */
    CHECK(!plan_make(&f, &a, &b, &p, &e) && p.max_tokens == 300, "%s", e.msg);
}

/* A node with little memory limits all: its share is as large as the others'. */
static void test_nodes(void)
{
    struct plan_file f = file_of(10 * MB, 1024);
    struct plan_ask a = ask();
    struct plan_budget b = budget(4096);
    struct plan p;
    struct err e = {0};

    a.n_nodes = 2;
    b.node_left[0] = 1000 * MB;
    b.node_left[1] = 16 * MB;
    CHECK(!plan_make(&f, &a, &b, &p, &e), "%s", e.msg);
    CHECK(!p.slabs.resident && p.slabs.node_bytes[1] <= 15 * MB && p.slabs.node_bytes[1] >= 12 * MB,
          "%llu", (unsigned long long)p.slabs.node_bytes[1]);
    a.ram = 60 * MB;
    CHECK(plan_make(&f, &a, &b, &p, &e) == -ENOMEM && strstr(e.msg, "on the nodes"), "%s", e.msg);
}

static void test_refusals(void)
{
    static const struct {
        uint64_t trunk_mb, position, left_mb, ram_mb;
        uint32_t n_ctx;
        const char *says, *and;
    } t[] = {
        {500, 1024, 256, 0, 0, "a.gguf: the trunk takes 524.3 MB", "raise the limit"},
        {80, 1024, 120, 0, 0, "are left for experts, and one takes 3.1 MB", "raise the limit"},
        {10, 1024, 512, 1, 0, "give --ram", "one takes"},
        {10, 1 << 20, 512, 20, 8000, "are left for experts", "smaller -c"},
        {10, 8192, 120, 95, 0, "--ram 99614720", "a smaller --ram"},
        {10, 16384, 220, 0, 20000, "left for experts", "smaller -c"},
    };
    struct plan p;

    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct plan_file f = file_of(t[i].trunk_mb * MB, t[i].position);
        struct plan_ask a = ask();
        struct plan_budget b = budget(t[i].left_mb);
        struct err e = {0};
        a.ram = t[i].ram_mb * MB;
        a.n_ctx = t[i].n_ctx;
        CHECK(plan_make(&f, &a, &b, &p, &e) < 0 && strstr(e.msg, t[i].says) && strstr(e.msg, t[i].and), "%zu: %s", i,
              e.msg);
    }
}

/* Look-up tables lie whole where there is room beside everything else; else some of their rows do, as many as are
 * asked for or a part of what is left, and never fewer than passes need. */
static void test_tables(void)
{
    struct plan_file f = file_of(10 * MB, 1024);
    struct plan_ask a = ask();
    struct plan_budget b = budget(4096);
    struct plan p;
    struct err e = {0};

    f.tables = (struct plan_tables){.whole = 900 * MB, .stage = MB, .row = 130, .token = 2 * 16 * 130};
    CHECK(!plan_make(&f, &a, &b, &p, &e) && p.tables_whole && p.bytes.tables > 900 * MB && p.slabs.resident, "%s", e.msg);
    b = budget(800);
    CHECK(!plan_make(&f, &a, &b, &p, &e) && !p.tables_whole && p.slabs.resident, "%s", e.msg);
    CHECK(p.table_cache > 20 * MB && p.table_cache < 25 * MB && p.bytes.tables > p.table_cache + MB);
    CHECK(plan_taken(&p) + p.bytes.reserve <= b.left);
    a.tables = 50 * MB;
    CHECK(!plan_make(&f, &a, &b, &p, &e) && p.table_cache == 50 * MB);
    a.tables = 1;
    a.batch = 100;
    CHECK(!plan_make(&f, &a, &b, &p, &e) && p.table_cache == 100 * f.tables.token);
    a.tables = 1000 * MB; /* asked for, but there is no room */
    CHECK(plan_make(&f, &a, &b, &p, &e) == -ENOMEM && strstr(e.msg, "look-up tables"), "%s", e.msg);
    a.tables = 1;
    f.tables.whole = 10000; /* two passes' rows are more than all of it */
    CHECK(!plan_make(&f, &a, &b, &p, &e) && p.tables_whole);
}

int main(void)
{
    test_tables();
    test_everything_fits();
    test_sequences();
    test_sums_up();
    test_cards();
    test_reserve();
    test_small_memory_makes_small_passes();
    test_nodes();
    test_refusals();
    return test_end();
}
