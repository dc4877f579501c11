/* How fast a card computes a layer of experts of a model's shape: the kernels of a run over random weights,
 * none of which is read again before hundreds of megabytes of others. What a plan reckons with. */
#include "gpu-worker/probe.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

extern "C" {
#include "kernels/expert/expert_cuda.h"
#include "kernels/matmul/matmul_cuda.h"
#include "kernels/quantise/quantise.h"
#include "kernels/quantise/quantise_cuda.h"
#include "kernels/type/type.h"
}

enum { POOL = 1 << 30, ROUNDS = 5, NODES = 512, ALIGN = 256 };

struct bench {
    const struct probe_shape *shape;
    struct expert_shape s;
    size_t at[EXPERT_MATS], each; /* of a matrix in an expert; of an expert */
    uint64_t weights;             /* bytes of an expert's weights */
    uint32_t n_layers;
    uint8_t *w;
    float *x, *h, *y, *tmp;
    uint8_t *gate, *up; /* the vector as those want it */
    size_t gate_stride, up_stride;
    struct expert_slot *slots;
    struct expert_item *items;
    uint32_t *n_items;
    cudaStream_t stream;
};

static __global__ void fill(uint32_t *p, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t v = (uint32_t)i * 2654435761u ^ (uint32_t)(i >> 17);
        v ^= v >> 15, v *= 2246822519u, v ^= v >> 13;
        p[i] = v;
    }
}
static __global__ void fill_floats(float *p, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        p[i] = (float)(((uint32_t)i * 2654435761u >> 20) % 4001) / 1000.0f - 2;
}
static __global__ void nothing(void)
{
}

static int sizes(struct bench *b, uint64_t free)
{
    const struct probe_shape *x = b->shape;
    size_t at = 0;

    b->s.n_embd = x->n_embd;
    b->s.n_ff = x->n_ff;
    for (int m = 0; m < EXPERT_MATS; m++) {
        const struct type_info *t = type_info(x->type[m]);
        uint64_t row, rows = m == EXPERT_DOWN ? x->n_embd : x->n_ff;
        if (!t || !t->built || type_row_bytes(x->type[m], m == EXPERT_DOWN ? x->n_ff : x->n_embd, &row))
            return -1;
        b->s.type[m] = x->type[m];
        b->s.row_bytes[m] = row;
        b->at[m] = at;
        b->weights += rows * row;
        at += (rows * row + 16 + ALIGN - 1) / ALIGN * ALIGN;
    }
    b->each = at;
    b->n_layers = (uint32_t)((free / 2 < POOL ? free / 2 : (uint64_t)POOL) / (b->each * x->used));
    return b->n_layers ? 0 : -1;
}

/* 0; the process ends soon, so that nothing is given back. */
static int room(struct bench *b)
{
    const struct probe_shape *x = b->shape;
    enum act_form gate = type_info(x->type[EXPERT_GATE])->act, up = type_info(x->type[EXPERT_UP])->act;
    size_t pool = (size_t)b->n_layers * x->used * b->each, n = (size_t)b->n_layers * x->used,
           tmp = expert_cuda_tmp(&b->s, x->used);
    struct expert_slot *slots = (struct expert_slot *)calloc(n, sizeof *slots);
    struct expert_item *items = (struct expert_item *)calloc(n, sizeof *items);
    int bad = !slots || !items;

    b->gate_stride = act_stride(gate, x->n_embd);
    b->up_stride = act_stride(up, x->n_embd);
    bad = bad || cudaMalloc(&b->w, pool) || cudaMalloc(&b->x, x->n_embd * sizeof(float)) ||
          cudaMalloc(&b->h, (size_t)x->used * x->n_ff * sizeof(float)) ||
          cudaMalloc(&b->y, (size_t)x->used * x->n_embd * sizeof(float)) || (tmp && cudaMalloc(&b->tmp, tmp * sizeof(float))) ||
          cudaMalloc(&b->gate, b->gate_stride) || cudaMalloc(&b->up, b->up_stride) ||
          cudaMalloc(&b->slots, n * sizeof *slots) || cudaMalloc(&b->items, n * sizeof *items) ||
          cudaMalloc(&b->n_items, sizeof *b->n_items) || cudaStreamCreate(&b->stream);
    for (size_t i = 0; !bad && i < n; i++) {
        for (int m = 0; m < EXPERT_MATS; m++) {
            slots[i].w[m] = b->w + i * b->each + b->at[m];
            slots[i].scale[m] = 1;
        }
        items[i].slot = (uint32_t)i, items[i].n_tok = 1;
        items[i].row[0] = (uint32_t)(i % x->used);
    }
    if (!bad) {
        fill<<<2048, 256, 0, b->stream>>>((uint32_t *)b->w, pool / 4);
        fill_floats<<<64, 256, 0, b->stream>>>(b->x, x->n_embd);
        bad = act_prepare_cuda(gate, b->x, x->n_embd, x->n_embd, 1, b->gate, b->gate_stride, b->stream) ||
              act_prepare_cuda(up, b->x, x->n_embd, x->n_embd, 1, b->up, b->up_stride, b->stream) ||
              cudaMemcpy(b->slots, slots, n * sizeof *slots, cudaMemcpyHostToDevice) ||
              cudaMemcpy(b->items, items, n * sizeof *items, cudaMemcpyHostToDevice) ||
              cudaMemcpy(b->n_items, &x->used, sizeof x->used, cudaMemcpyHostToDevice) || cudaStreamSynchronize(b->stream);
    }
    free(slots);
    free(items);
    return bad;
}

static int all_layers(const struct bench *b)
{
    int rc = 0;

    for (uint32_t l = 0; !rc && l < b->n_layers; l++) {
        struct expert_work work = {b->slots, b->items + (size_t)l * b->shape->used, b->n_items, b->shape->used, 0, 0};
        rc = expert_gate_up_cuda(&b->s, &work, b->gate, b->gate_stride, b->up, b->up_stride, b->tmp, b->h, b->s.n_ff,
                                 b->stream);
        if (!rc)
            rc = expert_down_cuda(&b->s, &work, b->h, b->s.n_ff, b->y, b->s.n_embd, b->stream);
    }
    return rc;
}
static int empty_nodes(const struct bench *b)
{
    for (int i = 0; i < NODES; i++)
        nothing<<<1, 32, 0, b->stream>>>();
    return cudaGetLastError();
}

/* Seconds of a graph of what `record` launches, the best of a few; 0: it did not work. */
static double graph_seconds(const struct bench *b, int (*record)(const struct bench *b))
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaEvent_t start, end;
    double best = 0;
    int bad;

    if (record(b) || cudaStreamSynchronize(b->stream)) /* loads the kernels */
        return 0;
    if (cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal))
        return 0;
    bad = record(b);
    bad = cudaStreamEndCapture(b->stream, &graph) || bad;
    if (bad || cudaGraphInstantiate(&exec, graph, 0) || cudaEventCreate(&start) || cudaEventCreate(&end))
        return 0;
    for (int i = 0; i <= ROUNDS; i++) {
        float ms = 0;
        cudaEventRecord(start, b->stream);
        cudaGraphLaunch(exec, b->stream);
        cudaEventRecord(end, b->stream);
        if (cudaEventSynchronize(end) || cudaEventElapsedTime(&ms, start, end) || ms <= 0)
            return 0;
        if (i && (best == 0 || ms * 1e-3 < best))
            best = ms * 1e-3;
    }
    return best;
}

extern "C" void probe_experts(struct probe_card *c, const struct probe_shape *shape)
{
    struct bench b = {};
    double s;

    b.shape = shape;
    if (products_load_cuda() || sizes(&b, c->free) || room(&b) || (s = graph_seconds(&b, all_layers)) <= 0) {
        fprintf(stderr, "experts of this shape cannot be measured on %s: %s\n", c->name,
                cudaGetErrorString(cudaGetLastError()));
        return;
    }
    c->experts_layer = 1e6 * s / b.n_layers;
    c->experts = (double)b.weights * shape->used * b.n_layers / s;
    c->node = 1e6 * graph_seconds(&b, empty_nodes) / NODES;
}
