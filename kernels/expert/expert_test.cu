/* The fused expert on a card against the reference, bit for bit: several experts and vectors at
 * once, one type or three, float types, scales and clamps, no items at all, and the same through a
 * captured graph whose item list changes between replays. */
#include "tests/cuda.h"
extern "C" {
#include "kernels/cpu.h"
#include "kernels/dot/dot.h"
#include "kernels/dot/rows.h"
#include "kernels/expert/expert.h"
#include "kernels/expert/expert_cuda.h"
#include "kernels/expert/many_cuda.h"
#include "kernels/matmul/matmul_cuda.h"
#include "kernels/num.h"
#include "kernels/quantise/quantise.h"
}

enum { SLOTS = 5, TOKENS = 8, MOST_ROWS = 600 };

struct fixture {
    struct expert_shape shape;
    struct expert_part part[SLOTS][EXPERT_MATS]; /* host */
    struct expert_slot slot[SLOTS], *dslot;
    unsigned char *acts[2], *dacts[2];
    size_t stride[2];
    struct expert_item item[MOST_ROWS], *ditem;
    uint32_t n_items, *dn_items;
    float *dtmp, *dh, *dy;
};

static size_t rows_of(const struct fixture *f, int m)
{
    return m == EXPERT_DOWN ? f->shape.n_embd : f->shape.n_ff;
}
static size_t cols_of(const struct fixture *f, int m)
{
    return m == EXPERT_DOWN ? f->shape.n_ff : f->shape.n_embd;
}

static void make(struct fixture *f, const uint32_t type[3], uint32_t n_embd, uint32_t n_ff,
                 float limit, struct rng *g)
{
    memset(f, 0, sizeof *f);
    f->shape.n_embd = n_embd, f->shape.n_ff = n_ff, f->shape.limit = limit;
    for (int m = 0; m < EXPERT_MATS; m++) {
        uint64_t bytes;
        CHECK_EQ(type_row_bytes(type[m], cols_of(f, m), &bytes), 0);
        f->shape.type[m] = type[m];
        f->shape.row_bytes[m] = bytes;
    }
    for (int s = 0; s < SLOTS; s++)
        for (int m = 0; m < EXPERT_MATS; m++) {
            size_t bytes = f->shape.row_bytes[m], rows = rows_of(f, m);
            uint8_t *w = (uint8_t *)malloc(rows * bytes);

            for (size_t r = 0; r < rows; r++)
                make_row(g, type[m], w + r * bytes, cols_of(f, m), CLEAN);
            f->part[s][m].type = type[m];
            f->part[s][m].w = w;
            f->part[s][m].row_bytes = bytes;
            f->part[s][m].scale = s == 1 ? 0.7f + (float)m : s == 2 && m == 1 ? -3.0f : 1.0f;
            f->slot[s].w[m] = cuda_copy(w, rows * bytes);
            f->slot[s].scale[m] = f->part[s][m].scale;
        }
    f->dslot = (struct expert_slot *)cuda_copy(f->slot, sizeof f->slot);
    for (int k = 0; k < 2; k++) {
        enum act_form form = type_info(type[k])->act;
        float *x = (float *)malloc(n_embd * sizeof *x);

        f->stride[k] = act_stride(form, n_embd);
        f->acts[k] = (unsigned char *)aligned_alloc(64, TOKENS * f->stride[k]);
        for (int t = 0; t < TOKENS; t++) {
            struct rng same = {(uint64_t)t + 99};
            make_vector(&same, x, n_embd, t == 6 ? BROKEN : GAUSS);
            act_prepare(form, x, n_embd, f->acts[k] + t * f->stride[k]);
        }
        f->dacts[k] = (unsigned char *)cuda_copy(f->acts[k], TOKENS * f->stride[k]);
        free(x);
    }
    f->ditem = (struct expert_item *)cuda_room(sizeof f->item);
    f->dn_items = (uint32_t *)cuda_room(sizeof *f->dn_items);
    f->dh = (float *)cuda_room((size_t)MOST_ROWS * n_ff * sizeof(float));
    f->dy = (float *)cuda_room((size_t)MOST_ROWS * n_embd * sizeof(float));
    f->dtmp = (float *)cuda_room(expert_cuda_tmp(&f->shape, MOST_ROWS) * sizeof(float) + 16);
}
static void drop(struct fixture *f)
{
    for (int s = 0; s < SLOTS; s++)
        for (int m = 0; m < EXPERT_MATS; m++) {
            free((void *)f->part[s][m].w);
            CUDA_OK(cudaFree((void *)f->slot[s].w[m]));
        }
    for (int k = 0; k < 2; k++) {
        free(f->acts[k]);
        CUDA_OK(cudaFree(f->dacts[k]));
    }
    CUDA_OK(cudaFree(f->dslot));
    CUDA_OK(cudaFree(f->ditem));
    CUDA_OK(cudaFree(f->dn_items));
    CUDA_OK(cudaFree(f->dh));
    CUDA_OK(cudaFree(f->dy));
    CUDA_OK(cudaFree(f->dtmp));
}

/* n_items items of at most `most` vectors, rows handed out in turn */
static int list(struct fixture *f, uint32_t n_items, uint32_t most, struct rng *g)
{
    uint32_t row = 0, many = 0;

    for (uint32_t i = 0; i < n_items; i++) {
        struct expert_item *it = &f->item[i];
        uint32_t n = 1 + rng_u32(g) % most;

        it->slot = rng_u32(g) % SLOTS;
        it->n_tok = n;
        for (uint32_t k = 0; k < n; k++) {
            it->tok[k] = rng_u32(g) % TOKENS;
            it->row[k] = (row++ * 7) % MOST_ROWS; /* 7 and MOST_ROWS have no common divisor */
        }
        many |= n > 1;
    }
    f->n_items = n_items;
    CHECK(row <= MOST_ROWS);
    CUDA_OK(cudaMemcpy(f->ditem, f->item, sizeof f->item, cudaMemcpyHostToDevice));
    CUDA_OK(cudaMemcpy(f->dn_items, &f->n_items, sizeof f->n_items, cudaMemcpyHostToDevice));
    return many;
}

/* Runs of full items of one expert, of up to `most` vectors in all; rows as in list(). */
static void list_runs(struct fixture *f, uint32_t n_runs, uint32_t most, struct rng *g)
{
    uint32_t row = 0, n_items = 0;

    for (uint32_t run = 0; run < n_runs; run++) {
        uint32_t slot = rng_u32(g) % SLOTS, n = 1 + rng_u32(g) % most;

        for (n = n < MOST_ROWS - row ? n : MOST_ROWS - row; n;) {
            struct expert_item *it = &f->item[n_items++];

            it->slot = slot;
            it->n_tok = n < EXPERT_TOKENS ? n : (uint32_t)EXPERT_TOKENS;
            for (uint32_t k = 0; k < it->n_tok; k++) {
                it->tok[k] = rng_u32(g) % TOKENS;
                it->row[k] = (row++ * 7) % MOST_ROWS;
            }
            n -= it->n_tok;
        }
    }
    f->n_items = n_items;
    CUDA_OK(cudaMemcpy(f->ditem, f->item, sizeof f->item, cudaMemcpyHostToDevice));
    CUDA_OK(cudaMemcpy(f->dn_items, &f->n_items, sizeof f->n_items, cudaMemcpyHostToDevice));
}

static void launch(struct fixture *f, int several, int early, cudaStream_t stream)
{
    struct expert_work work = {f->dslot, f->ditem, f->dn_items, MOST_ROWS, several, early};

    CUDA_OK(expert_gate_up_cuda(&f->shape, &work, f->dacts[0], f->stride[0], f->dacts[1],
                                f->stride[1], f->dtmp, f->dh, f->shape.n_ff, stream));
    CUDA_OK(expert_down_cuda(&f->shape, &work, f->dh, f->shape.n_ff, f->dy, f->shape.n_embd,
                             stream));
}

static size_t compare(const float *got, const float *want, size_t n)
{
    size_t bad = 0;

    for (size_t i = 0; i < n; i++)
        bad += f32_bits(got[i]) != f32_bits(want[i]);
    return bad;
}

/* what lies in dh and dy against the reference; rows that no item names are untouched */
static void check(struct fixture *f, const char *what)
{
    size_t n_ff = f->shape.n_ff, n_embd = f->shape.n_embd, bad_h = 0, bad_y = 0, touched = 0;
    float *h = (float *)malloc(MOST_ROWS * n_ff * sizeof *h);
    float *y = (float *)malloc(MOST_ROWS * n_embd * sizeof *y);
    float *want = (float *)malloc((n_ff + n_embd) * sizeof *want), *tmp = (float *)malloc(8 * n_ff);
    enum act_form down = type_info(f->shape.type[2])->act;
    unsigned char *mid = (unsigned char *)aligned_alloc(64, act_stride(down, n_ff));
    char named[MOST_ROWS] = {0};

    CUDA_OK(cudaDeviceSynchronize());
    cuda_back(h, f->dh, MOST_ROWS * n_ff * sizeof *h);
    cuda_back(y, f->dy, MOST_ROWS * n_embd * sizeof *y);
    for (uint32_t i = 0; i < f->n_items; i++)
        for (uint32_t k = 0; k < f->item[i].n_tok; k++) {
            const struct expert_part *p = f->part[f->item[i].slot];
            uint32_t tok = f->item[i].tok[k], row = f->item[i].row[k];

            expert_gate_up(&p[0], &p[1], n_embd, 0, n_ff, f->acts[0], f->stride[0], f->acts[1],
                           f->stride[1], &tok, 1, f->shape.limit, tmp, want, n_ff);
            bad_h += compare(h + row * n_ff, want, n_ff);
            act_prepare(down, want, n_ff, mid);
            expert_down(&p[2], n_ff, 0, n_embd, mid, 0, 1, want + n_ff, n_embd);
            bad_y += compare(y + row * n_embd, want + n_ff, n_embd);
            named[row] = 1;
        }
    for (size_t r = 0; r < MOST_ROWS; r++)
        for (size_t i = 0; !named[r] && i < n_embd; i++)
            touched += f32_bits(y[r * n_embd + i]) != 0x55555555;
    CHECK(!bad_h && !bad_y && !touched, "%s/%s/%s %s, %u items: %zu of h, %zu of y, %zu others",
          type_info(f->shape.type[0])->name, type_info(f->shape.type[1])->name,
          type_info(f->shape.type[2])->name, what, f->n_items, bad_h, bad_y, touched);
    CUDA_OK(cudaMemset(f->dh, 0x55, MOST_ROWS * n_ff * sizeof *h));
    CUDA_OK(cudaMemset(f->dy, 0x55, MOST_ROWS * n_embd * sizeof *y));
    free(h);
    free(y);
    free(want);
    free(tmp);
    free(mid);
}

static void run(uint32_t gate, uint32_t up, uint32_t down, uint32_t n_embd, uint32_t n_ff,
                float limit, struct rng *g)
{
    const uint32_t type[3] = {gate, up, down};
    struct fixture f;

    make(&f, type, n_embd, n_ff, limit, g);
    list(&f, 3, 1, g);
    launch(&f, 0, 0, NULL);
    check(&f, "one vector");
    launch(&f, list(&f, 3, 8, g), 0, NULL);
    check(&f, "several");
    list(&f, 24, 1, g);
    launch(&f, 1, 0, NULL);
    check(&f, "many items");
    for (int early = 0; early < 2; early++) {
        list(&f, early ? 9 : 0, 1, g);
        launch(&f, !early, 0, NULL);
        launch(&f, !early, early, NULL);
        check(&f, early ? "one vector each, the list read early" : "none");
    }
    drop(&f);
}

/* Types whose rows have warps of their own (own.cuh): rows taken one, two and four at a time, ends of ranges, more
 * items than a warp has threads. Quick: fewer rows and items, but still each of these, of gate and up and of down. */
static void alone(int quick, struct rng *g)
{
    static const uint32_t widths[2][4][2] = {{{4096, 2048}, {2560, 3072}, {1536, 1024}, {2048, 3584}},
                                             {{4096, 512}, {2560, 1536}, {1536, 2560}, {512, 3584}}};
    const uint32_t n[2][4] = {{3, 10, 40, 1}, {3, 2, 2, 1}};

    for (uint32_t k = 0; k < 4; k++)
        for (uint32_t turned = 0; turned < 2; turned++) {
            const uint32_t a = turned ? W_IQ3_S : W_IQ2_XS, type[3] = {a, a, turned ? (uint32_t)W_IQ2_XS : (uint32_t)W_IQ3_S};
            struct fixture f;

            make(&f, type, widths[quick][k][0], widths[quick][k][1], k % 2 ? 0 : 1.5f, g);
            list(&f, n[quick][k], 1, g);
            launch(&f, 0, 0, NULL);
            check(&f, "a warp's own rows");
            list(&f, n[quick][3 - k], 1, g);
            launch(&f, 0, 1, NULL);
            check(&f, "a warp's own rows, the list read early");
            drop(&f);
        }
}

/* a prompt's: one launch over all experts; quick: a run, items in no order and no items */
static void many(uint32_t gate, uint32_t up, uint32_t down, uint32_t n_embd, uint32_t n_ff, float limit, int quick,
                 struct rng *g)
{
    const uint32_t type[3] = {gate, up, down};
    struct fixture f;
    size_t bytes;
    void *tmp;

    make(&f, type, n_embd, n_ff, limit, g);
    bytes = expert_many_cuda_tmp(&f.shape, MOST_ROWS);
    if (!bytes)
        printf("skipped: a prompt's experts as products are not made for this card\n");
    tmp = bytes ? cuda_room(bytes) : NULL;
    for (uint32_t i = 0; bytes && i < 5; i++) {
        struct expert_work work = {f.dslot, f.ditem, f.dn_items, MOST_ROWS, 1, 0};

        if (quick && (i == 1 || i == 2))
            continue;
        if (i < 3)
            list_runs(&f, i ? 6 : 1, i == 1 ? 300 : 129, g);
        else
            list(&f, i == 3 ? 60 : 0, 8, g); /* none in order; none at all */
        const struct expert_vectors v = {{f.dacts[0], f.dacts[1]}, {f.stride[0], f.stride[1]}};
        CUDA_OK(expert_many_cuda(&f.shape, &work, &v, tmp, f.dh, f.shape.n_ff, f.dy, f.shape.n_embd, NULL));
        check(&f, "as products");
    }
    if (bytes)
        CUDA_OK(cudaFree(tmp));
    drop(&f);
}

/* one graph, replayed over item lists that it reads when it runs */
static void replay(struct rng *g)
{
    const uint32_t type[3] = {W_Q4_K, W_Q4_K, W_Q6_K};
    struct fixture f;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;

    make(&f, type, 1024, 512, 0, g);
    CUDA_OK(cudaStreamCreate(&stream));
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    launch(&f, 1, 0, stream);
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    for (uint32_t n = 0; n <= 3; n++) {
        list(&f, n, 4, g);
        CUDA_OK(cudaGraphLaunch(exec, stream));
        check(&f, "replayed");
    }
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaStreamDestroy(stream));
    drop(&f);
}

static int is_named(uint32_t type, char **names)
{
    for (; *names; names++)
        if (!strcmp(*names, type_info(type)->name))
            return 1;
    return 0;
}

/* expert_test [quick] [TYPE ...] */
int main(int argc, char **argv)
{
    int quick = argc > 1 && !strcmp(argv[1], "quick"), named = argc > 1 + quick;
    struct rng g = {27};

    if (!cuda_card())
        return test_end();
    cpu_float_state();
    CUDA_OK(products_load_cuda());
    CUDA_OK(expert_many_load_cuda());
    for (uint32_t type = 0; type < 64; type++)
        if (dot_type(type) && (named ? is_named(type, argv + 1 + quick) : !quick || type % 5 == 2))
        {
            run(type, type, type, 512, 256, type % 2 ? 0 : 1.5f, &g);
            if (type_info(type)->act != ACT_F32)
                many(type, type, type, 512, 256, type % 2 ? 0 : 1.5f, quick, &g);
        }
    if (!named || is_named(W_Q4_K, argv + 1 + quick)) {
        many(W_Q4_K, W_Q4_K, W_Q4_K, 768, 512, 0, quick, &g);
        many(W_Q4_K, W_Q4_K, W_Q6_K, 512, 256, 0, quick, &g);
        many(W_Q4_K, W_Q5_K, W_Q8_0, 512, 768, 2, quick, &g);
        many(W_Q8_0, W_Q4_K, W_IQ4_NL, 768, 288, 0, quick, &g);
        many(W_MXFP4, W_Q8_0, W_Q5_1, 544, 288, 1, quick, &g);
    }
    if (!named || is_named(W_IQ2_XS, argv + 1 + quick))
        alone(quick, &g);
    if (named)
        return test_end();
    run(W_Q4_K, W_Q4_K, W_Q6_K, 1024, 768, 0, &g);
    run(W_Q4_K, W_Q5_K, W_Q8_0, 512, 256, 2, &g);
    run(W_Q8_0, W_Q4_K, W_F16, 512, 256, 0, &g);
    run(W_MXFP4, W_MXFP4, W_MXFP4, 544, 288, 0, &g);
    replay(&g);
    return test_end();
}
