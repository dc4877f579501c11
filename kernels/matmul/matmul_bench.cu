/* How fast products and experts are on a card, beside what the card can do: plain reads of the same
 * bytes, and int8 tensor cores that do nothing else. Weights are random bytes, and none is read again
 * before more than a gigabyte of others was. Launches follow each other in one stream, or in one
 * graph, as in a step; a figure is the median over rounds in which all cases take turns.
 *
 *     matmul_bench [rows] [trunk] [experts] [prompts] [TYPE ...]     default: everything
 *     matmul_bench once VECTORS TYPE ...             three launches of a type each, for a profiler */
#include "tests/cuda.h"
extern "C" {
#include "kernels/expert/expert_cuda.h"
#include "kernels/matmul/matmul_cuda.h"
#include "kernels/quantise/quantise.h"
#include "kernels/quantise/quantise_cuda.h"
}
#include "kernels/gemm/mma.cuh"

static const size_t POOL = (size_t)5 << 29; /* 2.7 GB of weights */
enum { COLS = 4096, ROUNDS = 7 };
static char **arguments;

struct pool {
    uint8_t *w;
    float *x, *y, *h;
    unsigned char *acts[3]; /* by form */
    cudaStream_t stream;
};

static __global__ void fill(uint32_t *p, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        uint32_t v = (uint32_t)i * 2654435761u ^ (uint32_t)(i >> 17);
        v ^= v >> 15, v *= 2246822519u, v ^= v >> 13;
        p[i] = v;
    }
}
static __global__ void fill_floats(float *p, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        p[i] = (float)(((uint32_t)i * 2654435761u >> 20) % 4001) / 1000.0f - 2;
}

/* ---- the card's limits ---- */

static __global__ void __launch_bounds__(512) read_all(const uint4 *p, size_t n, uint32_t *out)
{
    size_t step = (size_t)gridDim.x * blockDim.x, i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    uint32_t x = 0;

    for (; i + 7 * step < n; i += 8 * step) {
        uint4 v[8];
#pragma unroll
        for (int k = 0; k < 8; k++)
            v[k] = __ldcs(p + i + k * step);
#pragma unroll
        for (int k = 0; k < 8; k++)
            x ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    for (; i < n; i += step)
        x ^= p[i].x ^ p[i].y ^ p[i].z ^ p[i].w;
    if (x == 0x12345678)
        *out = x;
}

/* independent products of registers: what mma.sync can do at most */
static __global__ void __launch_bounds__(256) mma_only(int *out, int n)
{
    uint32_t a[4] = {threadIdx.x * 77777u, threadIdx.x * 1234567u, 0x01020304, 0x7F80FE03};
    int sum = 0, c[8][4] = {};

    for (int i = 0; i < n; i++)
#pragma unroll
        for (int k = 0; k < 8; k++) {
#if __CUDA_ARCH__ >= 800
            asm volatile(
                "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                "{%8,%9}, {%0,%1,%2,%3};"
                : "+r"(c[k][0]), "+r"(c[k][1]), "+r"(c[k][2]), "+r"(c[k][3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[k % 4]), "r"(a[1]));
#else
            mma8(c[k], a[0], a[k % 4]);
            mma8(c[k] + 2, a[1], a[k % 4]);
            mma8(c[k], a[2], a[1]);
            mma8(c[k] + 2, a[3], a[1]);
#endif
        }
    for (int k = 0; k < 8; k++)
        sum += c[k][0] + c[k][1] + c[k][2] + c[k][3];
    if (sum == 0x12345678)
        *out = sum;
}

/* Hopper's own instruction reads both sides from shared memory and is faster; only in a build for
 * sm_90a, as the Makefile makes where 90 is asked for. */
static __global__ void __launch_bounds__(256) wgmma_only(int *out, int n)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t tile[];
    int c[64] = {}, sum = 0;
    uint32_t at = (uint32_t)__cvta_generic_to_shared(tile);
    uint64_t a = (uint64_t)(at >> 4 & 0x3FFF) | (uint64_t)8 << 16 | (uint64_t)16 << 32;
    uint64_t b = a + (8192 >> 4);

    for (int i = threadIdx.x; i < 4096; i += blockDim.x)
        ((uint32_t *)tile)[i] = i * 2654435761u;
    __syncthreads();
    for (int i = 0; i < n; i++) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < 4; k++)
            asm volatile(
                "{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n"
                "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,"
                "%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
                "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,"
                "%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, add;\n}"
                : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]), "+r"(c[4]), "+r"(c[5]),
                  "+r"(c[6]), "+r"(c[7]), "+r"(c[8]), "+r"(c[9]), "+r"(c[10]), "+r"(c[11]),
                  "+r"(c[12]), "+r"(c[13]), "+r"(c[14]), "+r"(c[15]), "+r"(c[16]), "+r"(c[17]),
                  "+r"(c[18]), "+r"(c[19]), "+r"(c[20]), "+r"(c[21]), "+r"(c[22]), "+r"(c[23]),
                  "+r"(c[24]), "+r"(c[25]), "+r"(c[26]), "+r"(c[27]), "+r"(c[28]), "+r"(c[29]),
                  "+r"(c[30]), "+r"(c[31]), "+r"(c[32]), "+r"(c[33]), "+r"(c[34]), "+r"(c[35]),
                  "+r"(c[36]), "+r"(c[37]), "+r"(c[38]), "+r"(c[39]), "+r"(c[40]), "+r"(c[41]),
                  "+r"(c[42]), "+r"(c[43]), "+r"(c[44]), "+r"(c[45]), "+r"(c[46]), "+r"(c[47]),
                  "+r"(c[48]), "+r"(c[49]), "+r"(c[50]), "+r"(c[51]), "+r"(c[52]), "+r"(c[53]),
                  "+r"(c[54]), "+r"(c[55]), "+r"(c[56]), "+r"(c[57]), "+r"(c[58]), "+r"(c[59]),
                  "+r"(c[60]), "+r"(c[61]), "+r"(c[62]), "+r"(c[63])
                : "l"(a), "l"(b));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    for (int k = 0; k < 64; k++)
        sum += c[k];
    if (sum == 0x12345678)
        *out = sum;
#else
    (void)out, (void)n;
#endif
}

/* ---- timing ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *v, int n)
{
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}
/* seconds that `work` takes on the stream */
template <class F> static double seconds(const struct pool *p, F work)
{
    cudaEvent_t a, b;
    float ms;

    CUDA_OK(cudaEventCreate(&a));
    CUDA_OK(cudaEventCreate(&b));
    CUDA_OK(cudaEventRecord(a, p->stream));
    work();
    CUDA_OK(cudaEventRecord(b, p->stream));
    CUDA_OK(cudaEventSynchronize(b));
    CUDA_OK(cudaEventElapsedTime(&ms, a, b));
    CUDA_OK(cudaEventDestroy(a));
    CUDA_OK(cudaEventDestroy(b));
    return ms / 1e3;
}
template <class F> static cudaGraphExec_t graph_of(const struct pool *p, F work)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;

    CUDA_OK(cudaStreamBeginCapture(p->stream, cudaStreamCaptureModeThreadLocal));
    work();
    CUDA_OK(cudaStreamEndCapture(p->stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_OK(cudaGraphDestroy(graph));
    return exec;
}

static int asked(uint32_t type) /* on the command line */
{
    int none = 1;

    for (char **a = arguments; *a; a++)
        for (uint32_t i = 0; i < 64; i++)
            if (type_info(i) && !strcmp(type_info(i)->name, *a)) {
                none = 0;
                if (i == type)
                    return 1;
            }
    return none;
}

/* ---- products of few vectors ---- */

struct rows_case {
    uint32_t type;
    size_t mb; /* of a launch */
    uint32_t n_tok;
    int graph;
};
static const struct rows_case rows_cases[] = {
    {W_Q8_0, 256, 1, 0},    {W_Q4_K, 256, 1, 0},   {W_Q6_K, 256, 1, 0},    {W_IQ4_XS, 256, 1, 0},
    {W_IQ2_XS, 256, 1, 0},  {W_IQ3_S, 256, 1, 0},  {W_IQ4_XS, 256, 4, 0},
    {W_IQ2_XS, 256, 4, 0},  {W_IQ3_S, 256, 4, 0},  {W_IQ4_XS, 256, 8, 0}, {W_IQ2_XS, 256, 8, 0},
    {W_IQ3_S, 256, 8, 0},   {W_Q4_K, 75, 1, 0},     {W_Q4_K, 75, 1, 1},
    {W_Q8_0, 75, 1, 1},     {W_Q6_K, 75, 1, 1},    {W_Q8_0, 256, 2, 0},    {W_Q4_K, 256, 2, 0},
    {W_Q6_K, 256, 2, 0},    {W_IQ4_XS, 256, 2, 0},  {W_IQ2_XS, 256, 2, 0},  {W_IQ3_S, 256, 2, 0},
    {W_Q8_0, 256, 4, 0},   {W_Q4_K, 256, 4, 0},    {W_Q6_K, 256, 4, 0},
    {W_Q8_0, 256, 8, 0},    {W_Q4_K, 256, 8, 0},   {W_Q6_K, 256, 8, 0},    {W_Q5_K, 256, 1, 0},
    {W_Q5_K, 256, 2, 0},    {W_Q5_K, 256, 4, 0},    {W_Q5_K, 256, 8, 0},   {W_Q3_K, 256, 4, 0},    {W_Q3_K, 256, 8, 0},
    {W_Q2_K, 256, 4, 0},    {W_Q2_K, 256, 8, 0},   {W_IQ2_XXS, 256, 4, 0}, {W_IQ2_S, 256, 4, 0},
    {W_IQ3_XXS, 256, 4, 0},
    {W_Q3_K, 256, 1, 0},    {W_Q2_K, 256, 1, 0},   {W_Q4_0, 256, 1, 0},    {W_Q4_1, 256, 1, 0},
    {W_Q5_0, 256, 1, 0},    {W_Q5_1, 256, 1, 0},   {W_IQ4_NL, 256, 1, 0},  {W_MXFP4, 256, 1, 0},
    {W_NVFP4, 256, 1, 0},   {W_IQ2_XXS, 256, 1, 0}, {W_IQ2_S, 256, 1, 0},  {W_IQ3_XXS, 256, 1, 0},
    {W_IQ1_S, 256, 1, 0},   {W_IQ1_M, 256, 1, 0},  {W_F16, 256, 1, 0},     {W_BF16, 256, 1, 0},
    {W_F32, 256, 1, 0},     {W_Q8_0, 20, 1, 1},    {W_Q4_K, 20, 1, 1},
};

static void rows_launches(const struct pool *p, const struct rows_case *c, size_t *bytes)
{
    uint64_t row_bytes;
    size_t each, n_rows, n;
    enum act_form form = type_info(c->type)->act;

    CHECK_EQ(type_row_bytes(c->type, COLS, &row_bytes), 0);
    n_rows = c->mb * 1000000 / row_bytes / 16 * 16;
    each = n_rows * row_bytes;
    n = POOL / ((each + 255) & ~(size_t)255);
    *bytes = n * each;
    for (size_t i = 0; i < n; i++)
        CUDA_OK(matmul_cuda(c->type, p->w + i * ((each + 255) & ~(size_t)255), row_bytes, COLS,
                            (uint32_t)n_rows, p->acts[form], act_stride_cuda(form, COLS), NULL, c->n_tok,
                            NULL, NULL, p->y, n_rows, p->stream));
}
static void read_launches(const struct pool *p, size_t mb, size_t *bytes, int blocks)
{
    size_t each = mb * 1000000 / 256 * 256, n = POOL / each;

    *bytes = n * each;
    for (size_t i = 0; i < n; i++)
        read_all<<<blocks, 512, 0, p->stream>>>((const uint4 *)(p->w + i * each), each / 16,
                                                (uint32_t *)p->y);
}

static double best_read(const struct pool *p, size_t mb, int sms)
{
    double best = 0;

    for (int per = 2; per <= 16; per *= 2) {
        double v[ROUNDS];
        size_t bytes;
        for (int r = 0; r < ROUNDS; r++) {
            double s = seconds(p, [&] { read_launches(p, mb, &bytes, per * sms); });
            v[r] = (double)bytes / s / 1e9;
        }
        double m = median(v, ROUNDS);
        best = m > best ? m : best;
    }
    return best;
}

static void bench_rows(const struct pool *p, int sms)
{
    enum { N = sizeof rows_cases / sizeof *rows_cases };
    static double v[N][ROUNDS];
    cudaGraphExec_t exec[N] = {};
    double read = best_read(p, 256, sms), read75 = best_read(p, 75, sms);
    double read20 = best_read(p, 20, sms), one[64] = {0};
    size_t bytes[N];

    for (int i = 0; i < N; i++)
        if (rows_cases[i].graph && asked(rows_cases[i].type))
            exec[i] = graph_of(p, [&] { rows_launches(p, &rows_cases[i], &bytes[i]); });
    for (int r = -1; r < ROUNDS; r++) /* the first one warms up */
        for (int i = 0; i < N; i++) {
            if (!asked(rows_cases[i].type))
                continue;
            double s = seconds(p, [&] {
                if (exec[i])
                    CUDA_OK(cudaGraphLaunch(exec[i], p->stream));
                else
                    rows_launches(p, &rows_cases[i], &bytes[i]);
            });
            if (r >= 0)
                v[i][r] = (double)bytes[i] / s / 1e9;
        }
    printf("plain read, GB/s: %.0f (256 MB a launch), %.0f (75 MB), %.0f (20 MB)\n", read, read75,
           read20);
    printf("%-8s %5s %7s %6s %8s %9s  %s\n", "type", "MB", "vectors", "graph", "GB/s", "of read",
           "time of one vector");
    for (int i = 0; i < N; i++) {
        const struct rows_case *c = &rows_cases[i];
        double m = median(v[i], ROUNDS);

        if (!asked(c->type))
            continue;
        if (c->n_tok == 1 && c->mb == 256)
            one[c->type] = m;
        printf("%-8s %5zu %7u %6d %8.0f %8.1f%%", type_info(c->type)->name, c->mb, c->n_tok,
               c->graph, m, 100 * m / read);
        if (c->n_tok > 1)
            printf("  x %.2f", one[c->type] / m);
        printf("\n");
    }
}

/* ---- the trunk's products in a step: few rows, each after the launch that prepares its vector ---- */

static void bench_trunk(const struct pool *p)
{
    static const struct trunk_case {
        uint32_t type, rows;
    } cases[] = {{W_Q8_0, 4096}, {W_Q8_0, 512},  {W_Q8_0, 2048},  {W_Q8_0, 12288}, {W_Q8_0, 151936},
                 {W_F32, 128},   {W_F32, 288},   {W_F16, 288},    {W_F32, 1},      {W_F32, 24},
                 {W_F16, 4096},  {W_BF16, 2048}, {W_Q4_K, 4096},  {W_Q4_K, 512},   {W_Q6_K, 4096}};
    enum { N = sizeof cases / sizeof *cases };

    printf("%-8s %7s %16s %16s   with its prepare, in a graph; prepare alone: ", "type", "rows",
           "1 vector", "4 vectors");
    for (int i = -1; i < N; i++) {
        uint32_t type = i < 0 ? (uint32_t)W_Q8_0 : cases[i].type, rows = i < 0 ? 0 : cases[i].rows;
        enum act_form form = type_info(type)->act;
        uint64_t row_bytes;
        size_t each, n;

        if (!asked(type))
            continue;
        CHECK_EQ(type_row_bytes(type, COLS, &row_bytes), 0);
        each = (rows * row_bytes + 255) & ~(size_t)255;
        n = each ? POOL / each : 64;
        n = n > 256 ? 256 : n;
        if (i >= 0)
            printf("%-8s %7u", type_info(type)->name, rows);
        for (uint32_t n_tok = 1; n_tok <= (i < 0 ? 1 : 4); n_tok += 3) {
            double v[ROUNDS], m;
            cudaGraphExec_t exec = graph_of(p, [&] {
                for (size_t k = 0; k < n; k++) {
                    size_t stride = act_stride_cuda(form, COLS);
                    int e = act_prepare_cuda(form, p->x, COLS, COLS, n_tok, p->acts[form], stride,
                                             p->stream);
                    CUDA_OK(e);
                    if (rows)
                        CUDA_OK(matmul_cuda(type, p->w + k * each, row_bytes, COLS, rows,
                                            p->acts[form], stride, NULL, n_tok, NULL, NULL, p->y,
                                            rows, p->stream));
                }
            });
            for (int r = -1; r < ROUNDS; r++) {
                double s = seconds(p, [&] { CUDA_OK(cudaGraphLaunch(exec, p->stream)); });
                if (r >= 0)
                    v[r] = s / (double)n;
            }
            CUDA_OK(cudaGraphExecDestroy(exec));
            m = median(v, ROUNDS);
            if (i < 0)
                printf("%.2f us", m * 1e6);
            else
                printf("  %6.2f us %5.0f", m * 1e6, (double)rows * (double)row_bytes / m / 1e9);
        }
        printf("\n");
    }
}

/* ---- experts ---- */

struct widths { /* of an expert, and how many work at once */
    uint32_t embd, ff, n;
};

static void bench_experts(const struct pool *p, int sms, uint32_t type, uint32_t down_type, struct widths x)
{
    uint64_t gate_bytes, down_bytes;
    struct expert_shape shape = {};
    double read, v[ROUNDS];

    if (!asked(type) || !asked(down_type))
        return;
    read = best_read(p, 256, sms);
    CHECK_EQ(type_row_bytes(type, x.embd, &gate_bytes), 0);
    CHECK_EQ(type_row_bytes(down_type, x.ff, &down_bytes), 0);
    shape.type[0] = shape.type[1] = type, shape.type[2] = down_type;
    shape.row_bytes[0] = shape.row_bytes[1] = gate_bytes, shape.row_bytes[2] = down_bytes;
    shape.n_embd = x.embd, shape.n_ff = x.ff;

    size_t gate = x.ff * gate_bytes, down = x.embd * down_bytes, each = 2 * gate + down;
    size_t n_layers = POOL / (each * x.n), n_slots = n_layers * x.n;
    struct expert_slot *slot = (struct expert_slot *)calloc(n_slots, sizeof *slot), *dslot;
    struct expert_item *item = (struct expert_item *)calloc(n_slots, sizeof *item), *ditem;
    uint32_t n_items = x.n, *dn_items = (uint32_t *)cuda_copy(&n_items, sizeof n_items);
    enum act_form form = type_info(type)->act;

    for (size_t i = 0; i < n_slots; i++) {
        for (int m = 0; m < 3; m++) {
            slot[i].w[m] = p->w + i * each + m * gate;
            slot[i].scale[m] = 1;
        }
        item[i].slot = (uint32_t)i, item[i].n_tok = 1;
        item[i].row[0] = (uint32_t)(i % x.n);
    }
    dslot = (struct expert_slot *)cuda_copy(slot, n_slots * sizeof *slot);
    ditem = (struct expert_item *)cuda_copy(item, n_slots * sizeof *item);
    for (int stage = 0; stage < 3; stage++) { /* both, gate and up alone, down alone */
        cudaGraphExec_t exec = graph_of(p, [&] {
            for (size_t l = 0; l < n_layers; l++) {
                struct expert_work work = {dslot, ditem + l * x.n, dn_items, x.n, 0, 1}; /* the list lies there */
                if (stage != 2)
                    CUDA_OK(expert_gate_up_cuda(&shape, &work, p->acts[form],
                                                act_stride_cuda(form, x.embd), p->acts[form],
                                                act_stride_cuda(form, x.embd), NULL, p->h, x.ff, p->stream));
                if (stage != 1)
                    CUDA_OK(expert_down_cuda(&shape, &work, p->h, x.ff, p->y, x.embd, p->stream));
            }
        });
        double bytes = (double)n_slots * (stage == 0 ? each : stage == 1 ? 2 * gate : down);
        for (int r = -1; r < ROUNDS; r++) {
            double s = seconds(p, [&] { CUDA_OK(cudaGraphLaunch(exec, p->stream)); });
            if (r >= 0)
                v[r] = s;
        }
        double m = median(v, ROUNDS);
        printf("%u experts of %u x %u, %s/%s, %s: %.0f GB/s, %.1f%% of plain read, %.1f us a layer, %.1f more than "
               "reading it\n",
               x.n, x.embd, x.ff, type_info(type)->name, type_info(down_type)->name,
               stage == 0   ? "both launches"
               : stage == 1 ? "gate and up"
                            : "down",
               bytes / m / 1e9, 100 * bytes / m / 1e9 / read, m / (double)n_layers * 1e6,
               (m - bytes / read / 1e9) / (double)n_layers * 1e6);
        CUDA_OK(cudaGraphExecDestroy(exec));
    }
    CUDA_OK(cudaFree(dslot));
    CUDA_OK(cudaFree(ditem));
    CUDA_OK(cudaFree(dn_items));
    free(slot);
    free(item);
}

/* ---- prompts ---- */

static void bench_prompts(const struct pool *p, int sms)
{
    enum { TOKENS = 2048, GEMM_ROWS = 8192 };
    static const uint32_t types[] = {W_Q4_K, W_Q8_0, W_Q6_K, W_IQ4_XS, W_Q5_K, W_MXFP4, W_IQ2_XS};
    enum { N = sizeof types / sizeof *types, LOOPS = 1024 };
    double peak = 0, v[N][ROUNDS], w[ROUNDS];

    CUDA_OK(cudaFuncSetAttribute(wgmma_only, cudaFuncAttributeMaxDynamicSharedMemorySize, 32768));
    for (int hopper = 0; hopper < 2; hopper++) {
        double each = hopper ? 4.0 * 64 * 128 * 32 * 2 /* warpgroups */ : 8.0 * 4096 * 8 /* warps */;
        for (int r = -1; r < ROUNDS; r++) {
            double s = seconds(p, [&] {
                if (hopper)
                    wgmma_only<<<2 * sms, 256, 32768, p->stream>>>((int *)p->y, LOOPS);
                else
                    mma_only<<<4 * sms, 256, 0, p->stream>>>((int *)p->y, LOOPS);
            });
            if (r >= 0)
                w[r] = 2 * each * LOOPS * (hopper ? 2 : 4) * sms / s / 1e12;
        }
        double m = median(w, ROUNDS);
        if (hopper && m > 10000) /* not compiled in: nothing was done */
            printf("wgmma: not in this build (CUDA_ARCH=90)\n");
        else {
            printf("int8 tensor cores alone, %s: %.0f TOPS\n", hopper ? "wgmma" : "mma.sync", m);
            peak = m > peak ? m : peak;
        }
    }
    for (int r = -1; r < ROUNDS; r++)
        for (int i = 0; i < N; i++) {
            enum act_form form = type_info(types[i])->act;
            uint64_t row_bytes;
            if (!asked(types[i]))
                continue;
            CHECK_EQ(type_row_bytes(types[i], COLS, &row_bytes), 0);
            double s = seconds(p, [&] {
                CUDA_OK(matmul_cuda(types[i], p->w, row_bytes, COLS, GEMM_ROWS, p->acts[form],
                                    act_stride_cuda(form, COLS), NULL, TOKENS, NULL, NULL, p->y,
                                    GEMM_ROWS, p->stream));
            });
            if (r >= 0)
                v[i][r] = 2.0 * TOKENS * GEMM_ROWS * COLS / s / 1e12;
        }
    for (int i = 0; i < N; i++) {
        if (!asked(types[i]))
            continue;
        double m = median(v[i], ROUNDS);
        printf("%-8s 2048 vectors x 8192 rows of 4096: %.0f TOPS, %.1f%% of the peak\n",
               type_info(types[i])->name, m, 100 * m / peak);
    }
}

static int wanted(int argc, char **argv, const char *what)
{
    int found = 0, others = 0;

    for (int i = 1; i < argc; i++) {
        found |= !strcmp(argv[i], what);
        others |= !strcmp(argv[i], "rows") || !strcmp(argv[i], "experts") ||
                  !strcmp(argv[i], "prompts") || !strcmp(argv[i], "trunk");
    }
    return found || !others;
}

/* ncu and the like look at single launches */
static void once(const struct pool *p, uint32_t n_tok, const char *name)
{
    for (uint32_t type = 0; type < 64; type++) {
        const struct type_info *t = type_info(type);
        uint64_t row_bytes;
        uint32_t n_rows;

        if (!t || strcmp(t->name, name) || type_row_bytes(type, COLS, &row_bytes))
            continue;
        n_rows = n_tok > 8 ? 8192 : (uint32_t)(256000000 / row_bytes);
        for (size_t i = 0; i < 3; i++)
            CUDA_OK(matmul_cuda(type, p->w + i * 300000000 / 256 * 256, row_bytes, COLS, n_rows,
                                p->acts[t->act], act_stride_cuda(t->act, COLS), NULL, n_tok, NULL, NULL,
                                p->y, n_rows, p->stream));
    }
    CUDA_OK(cudaDeviceSynchronize());
}

int main(int argc, char **argv)
{
    const struct widths large = {4096, 2048, 8}, small = {2560, 640, 10}; /* GLM-5.3-Flash's, Qwen3.8-Flash-Next's */
    struct pool p = {};
    int sms;

    arguments = argv + 1;
    if (!cuda_card())
        return test_end();
    CUDA_OK(products_load_cuda());
    CUDA_OK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    CUDA_OK(cudaStreamCreate(&p.stream));
    p.w = (uint8_t *)cuda_room(POOL + 4096);
    p.x = (float *)cuda_room((size_t)2048 * COLS * sizeof(float));
    p.y = (float *)cuda_room((size_t)2048 * 8192 * sizeof(float));
    p.h = (float *)cuda_room((size_t)64 * large.ff * sizeof(float));
    fill<<<4096, 256>>>((uint32_t *)p.w, POOL / 4);
    fill_floats<<<1024, 256>>>(p.x, (size_t)2048 * COLS);
    for (int form = 0; form < 3; form++) {
        size_t stride = act_stride_cuda((enum act_form)form, COLS);
        p.acts[form] = (unsigned char *)cuda_room(2048 * stride);
        CUDA_OK(act_prepare_cuda((enum act_form)form, p.x, COLS, COLS, 2048, p.acts[form], stride,
                                 NULL));
    }
    CUDA_OK(cudaDeviceSynchronize());
    if (argc > 3 && !strcmp(argv[1], "once")) {
        for (int i = 3; i < argc; i++)
            once(&p, (uint32_t)atoi(argv[2]), argv[i]);
        return 0;
    }
    if (wanted(argc, argv, "rows"))
        bench_rows(&p, sms);
    if (wanted(argc, argv, "trunk"))
        bench_trunk(&p);
    if (wanted(argc, argv, "experts")) {
        bench_experts(&p, sms, W_Q4_K, W_Q4_K, large);
        bench_experts(&p, sms, W_Q4_K, W_Q6_K, large);
        bench_experts(&p, sms, W_Q8_0, W_Q8_0, large);
        bench_experts(&p, sms, W_IQ2_XS, W_IQ3_S, large);
        bench_experts(&p, sms, W_IQ2_XS, W_IQ4_NL, small);
        bench_experts(&p, sms, W_IQ4_XS, W_IQ4_NL, small);
        bench_experts(&p, sms, W_Q4_K, W_IQ4_NL, small);
    }
    if (wanted(argc, argv, "prompts"))
        bench_prompts(&p, sms);
    return 0;
}
