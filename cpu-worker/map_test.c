/* Segments and tables that do not fit together are refused with one line that names what is wrong;
 * what fits gives the same pieces of a slab as shm/layout.h; and the text of CTL_START. */
#include "cpu-worker/worker.h"

#include "cpu-worker/test_world.h"

static const struct world_layer LAYERS[] = {
    {{W_Q8_0, W_Q4_K, W_F32}, 256, 96, 0, 0, 1234567},
    {{W_F16, W_F16, W_F16}, 64, 6, 0, 1, 9000000},
};
static struct world w;

static void pieces(void)
{
    struct maps m;
    struct err e = {0};

    for (uint32_t n_nodes = 1; n_nodes <= 5; n_nodes++) {
        world_make(&w, n_nodes, n_nodes, LAYERS, 2);
        CHECK(!maps_take(&m, &w.child, &e), "%s", e.msg);
        CHECK_EQ(m.n_other, n_nodes - 1);
        CHECK(m.box[PROC_FIRST_WORKER] == m.out && !m.box[PROC_FIRST_WORKER + n_nodes], "outboxes");
        for (uint32_t l = 0; l < 2; l++)
            for (uint32_t k = 0; k < n_nodes; k++)
                for (uint32_t x = 0; x < WORLD_EXPERTS; x++)
                    for (int i = 0; i < N_MATS; i++) {
                        struct slab_piece p =
                            slab_piece(table_layer(w.tables, l), x, k, n_nodes, i);
                        const uint8_t *at = maps_rows(&m, &m.layer[l], k, 2, x, i);
                        if (p.bytes)
                            CHECK_EQ(at - (w.slabs[k] + 2 * WORLD_SLAB_BYTES), p.off + p.shift);
                        CHECK_EQ(m.layer[l].m[i].cut[k].n_rows * m.layer[l].m[i].row_bytes,
                                 p.bytes);
                    }
        maps_drop(&m);
        world_drop(&w);
    }
}

static void refused(void (*spoil)(void), const char *says)
{
    struct maps m;
    struct err e = {0};

    world_make(&w, 2, 2, LAYERS, 2);
    spoil();
    CHECK(maps_take(&m, &w.child, &e) < 0, "taken: %s", says);
    CHECK(strstr(e.msg, says), "'%s' does not say '%s'", e.msg, says);
    maps_drop(&m);
    world_drop(&w);
}
static struct seg *seg_of(enum seg_role role)
{
    for (size_t i = 0; i < w.child.n_segs; i++)
        if (w.child.seg[i].role == role)
            return &w.child.seg[i];
    return NULL;
}
static void short_calls(void)
{
    w.child.seg[1].bytes -= 64;
}
static void no_slabs(void)
{
    seg_of(SEG_SLABS)->index = 7;
}
static void no_own_outbox(void)
{
    w.child.outbox = 99;
}
static void nine_nodes(void)
{
    w.board->geo.n_nodes = 9;
}
static void small_rows(void)
{
    w.board->geo.rows_half = 64;
}
static void huge(void)
{
    w.board->geo.n_ff = UINT32_MAX;
}
static void odd_amend_slots(void)
{
    w.board->geo.amend_slots = 63;
}
static void far_header(void)
{
    w.tables->off_header = 1u << 30;
}
static void odd_type(void)
{
    table_layer(w.tables, 1)->m[MAT_UP].type = 4;
}
static void odd_row(void)
{
    table_layer(w.tables, 0)->m[MAT_UP].row_bytes++;
}
static void odd_shape(void)
{
    table_layer(w.tables, 0)->m[MAT_DOWN].cols = 32;
}
static void many_experts(void)
{
    table_layer(w.tables, 1)->n_experts = WORLD_EXPERTS + 1;
}

static void starts(void)
{
    static const char *const bad[] = {"",
                                      "threads=0 cpus=- shared=0",
                                      "threads=2 cpus=- shared=2",
                                      "threads=2 cpus=0 shared=0",
                                      "threads=2 cpus=0,1,2 shared=0",
                                      "threads=2 cpus=0,-1 shared=0",
                                      "threads=9999 cpus=- shared=0",
                                      "threads=2 cpus=- shared=1 more",
                                      "threads=2 shared=1",
                                      "threads= 2 cpus=- shared=1"};
    struct start st;
    struct err e = {0};

    CHECK(!start_read("threads=3 cpus=0,5,17 shared=1", &st, &e), "%s", e.msg);
    CHECK(st.threads == 3 && st.shared == 1 && st.cpus && st.cpus[0] == 0 && st.cpus[1] == 5 &&
              st.cpus[2] == 17,
          "three threads");
    free(st.cpus);
    CHECK(!start_read("threads=16 cpus=- shared=0", &st, &e), "%s", e.msg);
    CHECK(st.threads == 16 && !st.shared && !st.cpus, "not pinned");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        e.code = 0;
        CHECK(start_read(bad[i], &st, &e) == -EPROTO && strstr(e.msg, "is no start"),
              "'%s' was taken", bad[i]);
        CHECK(!st.cpus, "cpus of '%s'", bad[i]);
    }
}

int main(void)
{
    pieces();
    refused(short_calls, "segment calls.0 holds");
    refused(no_slabs, "segment slabs.0 was not passed on");
    refused(no_own_outbox, "segment outbox.35 was not passed on");
    refused(nine_nodes, "9 nodes");
    refused(small_rows, "arenas do not hold");
    refused(huge, "arenas do not hold");
    refused(odd_amend_slots, "geometry makes no sense");
    refused(far_header, "its headers do not lie in it");
    refused(odd_type, "layer 1: up matrices are of type unknown (4)");
    refused(odd_row, "layer 0: a row of up, 256 Q4_K values, cannot have 145 bytes");
    refused(odd_shape, "layer 0: the experts' shapes do not fit");
    refused(many_experts, "layer 1: the experts' shapes do not fit");
    starts();
    return test_end();
}
