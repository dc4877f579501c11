/* What CUDA says of the cards, and short measurements of what a plan reckons with. Runs in a process that
 * does nothing else and ends: errors become text, and memory is not given back piece by piece. */
#include "gpu-worker/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "gpu-worker/handoff.cuh"

#ifndef PROBE_ARCHS
#error "the Makefile says for which cards this is built"
#endif

enum {
    PIECE = 8 << 20,        /* of an upload; the pager's slabs go up in pieces of this order */
    UPLOAD = 64 << 20,      /* the memory that is uploaded from */
    UPLOADS = 4,            /* times all of it */
    READ_MOST = 1 << 30,    /* of the card's memory, larger than any L2 */
    READS = 6,
    THREADS = 256,
    ROUNDS = 2000,          /* of a word */
    WARM = 200,             /* not counted */
};
#define LIMIT_NS 2000000000ull /* a kernel that waits gives up */

struct words { /* mapped host memory; a line each */
    uint64_t ask, pad0[7], answer, pad1[7], stop, pad2[7];
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

/* The first error of a card stays. 0: none. */
static int failed(struct probe_card *c, cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return 0;
    (void)cudaGetLastError();
    if (!*c->problem)
        snprintf(c->problem, sizeof c->problem, "%s: %s", what, cudaGetErrorString(e));
    return 1;
}

/* ---- kernels ---- */

/* one thread: answers the words 1 .. n */
static __global__ void answer_words(const uint64_t *ask, uint64_t *answer, const uint64_t *stop, uint64_t n)
{
    for (uint64_t i = 1; i <= n; i++) {
        if (handoff_wait(ask, i, stop, LIMIT_NS) != HANDOFF_THERE)
            return;
        handoff_store(answer, i);
    }
}
/* one thread: asks, awaits the answers; *ns: of the rounds after the first WARM, 0: gave up */
static __global__ void ask_words(uint64_t *ask, const uint64_t *answer, const uint64_t *stop, uint64_t n, uint64_t *ns)
{
    uint64_t start = handoff_now();

    *ns = 0;
    for (uint64_t i = 1; i <= n; i++) {
        if (i == WARM + 1)
            start = handoff_now();
        handoff_store(ask, i);
        if (handoff_wait(answer, i, stop, LIMIT_NS) != HANDOFF_THERE)
            return;
    }
    *ns = handoff_now() - start;
}
/* every thread of the grid its part; the sum keeps the loads */
static __global__ void read_all(const uint4 *p, size_t n, unsigned *sink)
{
    size_t step = (size_t)gridDim.x * THREADS;
    unsigned x = 0;

#pragma unroll 8
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < n; i += step) {
        uint4 v = p[i];
        x ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (x == 0x12345678u)
        *sink = x;
}

/* ---- measurements; the card is current ---- */

static double upload_rate(struct probe_card *c, char *to, const char *from, int async)
{
    double start = 0;

    for (int i = 0; i <= UPLOADS; i++) { /* once to warm up */
        if (i == 1)
            start = now();
        for (size_t at = 0; at < UPLOAD; at += PIECE) {
            cudaError_t e = async ? cudaMemcpyAsync(to + at, from + at, PIECE, cudaMemcpyHostToDevice, 0)
                                  : cudaMemcpy(to + at, from + at, PIECE, cudaMemcpyHostToDevice);
            if (failed(c, e, "an upload"))
                return 0;
        }
        if (failed(c, cudaDeviceSynchronize(), "an upload"))
            return 0;
    }
    return UPLOADS * (double)UPLOAD / (now() - start);
}

/* As slabs are: a memfd, its pages touched. */
static void uploads(struct probe_card *c)
{
    int fd = memfd_create("conclave-probe", MFD_CLOEXEC);
    char *from = (char *)MAP_FAILED, *to = NULL;

    if (fd >= 0 && !ftruncate(fd, UPLOAD))
        from = (char *)mmap(NULL, UPLOAD, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (from == MAP_FAILED) {
        snprintf(c->problem, sizeof c->problem, "no memory to measure uploads from");
    } else if (memset(from, 1, UPLOAD), !failed(c, cudaMalloc(&to, UPLOAD), "memory of the card")) {
        c->upload_pageable = upload_rate(c, to, from, 0);
        if (c->registers && cudaHostRegister(from, UPLOAD, cudaHostRegisterMapped) == cudaSuccess) {
            c->upload = upload_rate(c, to, from, 1);
            cudaHostUnregister(from);
        } else {
            c->registers = 0; /* refused: uploads go through a buffer */
            (void)cudaGetLastError();
        }
    }
    cudaFree(to);
    if (from != MAP_FAILED)
        munmap(from, UPLOAD);
    if (fd >= 0)
        close(fd);
}

static void memory_rate(struct probe_card *c)
{
    size_t part = c->free / 4 & ~(size_t)(PIECE - 1), bytes = part < READ_MOST ? part : (size_t)READ_MOST;
    unsigned *sink = NULL, blocks = 8 * c->multiprocessors;
    cudaEvent_t a, b;
    uint4 *p = NULL;

    if (failed(c, cudaMalloc(&p, bytes), "memory of the card") || failed(c, cudaMalloc(&sink, 4), "memory of the card") ||
        failed(c, cudaMemset(p, 1, bytes), "memory of the card") || failed(c, cudaEventCreate(&a), "an event") ||
        failed(c, cudaEventCreate(&b), "an event"))
        return;
    for (int i = 0; i < READS; i++) {
        float ms = 0;
        cudaEventRecord(a);
        read_all<<<blocks, THREADS>>>(p, bytes / sizeof *p, sink);
        cudaEventRecord(b);
        if (failed(c, cudaEventSynchronize(b), "reading the card's memory") || cudaEventElapsedTime(&ms, a, b) || ms <= 0)
            break;
        if (i && bytes / (ms * 1e-3) > c->memory)
            c->memory = bytes / (ms * 1e-3);
    }
    cudaEventDestroy(a);
    cudaEventDestroy(b);
    cudaFree(p);
    cudaFree(sink);
}

/* 0 and zeroed words that every card sees. */
static int make_words(struct probe_card *c, struct words **w)
{
    if (failed(c, cudaHostAlloc(w, sizeof **w, cudaHostAllocMapped | cudaHostAllocPortable), "mapped memory"))
        return -1;
    memset(*w, 0, sizeof **w);
    return 0;
}

/* The host asks, a kernel answers. */
static void round_trips(struct probe_card *c)
{
    struct words *w;
    double start = 0, end;

    if (make_words(c, &w))
        return;
    answer_words<<<1, 1>>>(&w->ask, &w->answer, &w->stop, ROUNDS);
    end = now() + 1;
    for (uint64_t i = 1; i <= ROUNDS && !failed(c, cudaGetLastError(), "a kernel that waits"); i++) {
        if (i == WARM + 1)
            start = now();
        __atomic_store_n(&w->ask, i, __ATOMIC_RELEASE);
        while (__atomic_load_n(&w->answer, __ATOMIC_ACQUIRE) < i)
            if (now() > end) {
                __atomic_store_n(&w->stop, 1, __ATOMIC_RELEASE);
                i = ROUNDS + 1;
                break;
            }
        if (i == ROUNDS)
            c->round_trip = 1e6 * (now() - start) / (ROUNDS - WARM);
    }
    failed(c, cudaDeviceSynchronize(), "a kernel that waits");
    cudaFreeHost(w);
}

/* Card a asks, card b answers; ask lies where b polls it, answer where a does. Microseconds one way; 0: no. */
static double one_way(struct probe_card *c, int a, int b, uint64_t *ask, uint64_t *answer, struct words *w)
{
    uint64_t *ns;
    double us = 0;

    if (failed(c, cudaHostAlloc(&ns, sizeof *ns, cudaHostAllocMapped | cudaHostAllocPortable), "mapped memory"))
        return 0;
    *ns = 0;
    w->stop = 0;
    for (int warm = 1; warm >= 0; warm--) { /* a kernel's first launch must not come while another waits */
        cudaSetDevice(b);
        answer_words<<<1, 1>>>(ask, answer, &w->stop, warm ? 0 : ROUNDS);
        cudaSetDevice(a);
        ask_words<<<1, 1>>>(ask, answer, &w->stop, warm ? 0 : ROUNDS, ns);
        if (failed(c, cudaDeviceSynchronize(), "a kernel that waits"))
            break;
        cudaSetDevice(b);
        if (failed(c, cudaDeviceSynchronize(), "a kernel that waits"))
            break;
    }
    if (*ns)
        us = 1e-3 * (double)*ns / (ROUNDS - WARM) / 2;
    cudaFreeHost(ns);
    return us;
}

static void handoffs(struct probe *p, int a, int b)
{
    struct probe_card *c = &p->card[a];
    uint64_t *ask = NULL, *answer = NULL;
    struct words *w;

    cudaSetDevice(a);
    if (make_words(c, &w))
        return;
    c->handoff[b] = one_way(c, a, b, &w->ask, &w->answer, w);
    if (c->peer[b] && p->card[b].peer[a]) {
        cudaSetDevice(a);
        cudaDeviceEnablePeerAccess(b, 0); /* said before: then an error that means nothing */
        cudaMalloc(&answer, sizeof *answer);
        cudaMemset(answer, 0, sizeof *answer);
        cudaSetDevice(b);
        cudaDeviceEnablePeerAccess(a, 0);
        cudaMalloc(&ask, sizeof *ask);
        cudaMemset(ask, 0, sizeof *ask);
        (void)cudaGetLastError();
        if (ask && answer && !failed(c, cudaDeviceSynchronize(), "peer memory"))
            c->handoff_peer[b] = one_way(c, a, b, ask, answer, w);
        cudaFree(ask);
        cudaSetDevice(a);
        cudaFree(answer);
    }
    cudaFreeHost(w);
}

/* ---- what is there ---- */

static int attribute(int card, enum cudaDeviceAttr what)
{
    int v = 0;

    return cudaDeviceGetAttribute(&v, what, card) == cudaSuccess ? v : 0;
}

/* As the kernel says; -1: it does not. */
static int numa_of(const char *pci)
{
    char path[80];
    int node = -1;
    FILE *f;

    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", pci);
    for (char *x = path + 21; *x; x++) /* the runtime writes the address in capitals */
        if (*x >= 'A' && *x <= 'F')
            *x += 'a' - 'A';
    f = fopen(path, "re");
    if (f && fscanf(f, "%d", &node) != 1)
        node = -1;
    if (f)
        fclose(f);
    return node;
}

static void look_at(struct probe *p, int n, int n_all)
{
    struct probe_card *c = &p->card[n];
    struct cudaDeviceProp prop;
    size_t left, all;

    c->numa = -1;
    c->major = attribute(n, cudaDevAttrComputeCapabilityMajor);
    c->minor = attribute(n, cudaDevAttrComputeCapabilityMinor);
    c->multiprocessors = attribute(n, cudaDevAttrMultiProcessorCount);
    c->registers = attribute(n, cudaDevAttrHostRegisterSupported) && attribute(n, cudaDevAttrCanMapHostMemory);
    c->registers_read_only = attribute(n, cudaDevAttrHostRegisterReadOnlySupported);
    c->runs = probe_runs(PROBE_ARCHS, c->major, c->minor);
    if (cudaGetDeviceProperties(&prop, n) == cudaSuccess) {
        snprintf(c->name, sizeof c->name, "%.95s", prop.name);
        c->total = prop.totalGlobalMem;
    }
    if (cudaDeviceGetPCIBusId(c->pci, sizeof c->pci, n) == cudaSuccess)
        c->numa = numa_of(c->pci);
    for (int k = 0; k < n_all; k++) {
        int can = 0;
        if (k != n && cudaDeviceCanAccessPeer(&can, n, k) == cudaSuccess)
            c->peer[k] = can;
    }
    (void)cudaGetLastError();
    if (!failed(c, cudaSetDevice(n), "cannot be opened") && !failed(c, cudaMemGetInfo(&left, &all), "cannot be opened")) {
        c->free = left;
        c->total = all;
    }
}

extern "C" void probe_cuda(struct probe *p, int measure, const struct probe_shape *shape)
{
    cudaError_t e;
    int n = 0;

    p->archs = PROBE_ARCHS;
    cudaRuntimeGetVersion(&p->runtime);
    if (cudaDriverGetVersion(&p->driver) != cudaSuccess)
        p->driver = 0;
    e = cudaGetDeviceCount(&n);
    if (e == cudaErrorInsufficientDriver && p->driver)
        snprintf(p->problem, sizeof p->problem,
                 "the driver is too old: it knows CUDA %d.%d, this build needs %d.0 or later: install a newer driver",
                 p->driver / 1000, p->driver % 1000 / 10, p->runtime / 1000);
    else if (e == cudaErrorNoDevice || (e == cudaSuccess && !n))
        snprintf(p->problem, sizeof p->problem,
                 "the driver finds no card: see whether nvidia-smi lists one, and CUDA_VISIBLE_DEVICES");
    else if (e != cudaSuccess)
        snprintf(p->problem, sizeof p->problem, "the driver gives an error: %s", cudaGetErrorString(e));
    (void)cudaGetLastError();
    if (*p->problem)
        return;
    p->n_cards = n < PROBE_CARDS ? n : PROBE_CARDS;
    for (uint32_t k = 0; k < p->n_cards; k++)
        look_at(p, (int)k, (int)p->n_cards);
    for (uint32_t k = 0; measure && k < p->n_cards; k++) {
        struct probe_card *c = &p->card[k];
        if (*c->problem || !c->runs || cudaSetDevice((int)k) != cudaSuccess)
            continue;
        uploads(c);
        memory_rate(c);
        round_trips(c);
        if (shape)
            probe_experts(c, shape);
    }
    for (uint32_t a = 0; measure && a < p->n_cards; a++)
        for (uint32_t b = a + 1; b < p->n_cards; b++)
            if (!*p->card[a].problem && !*p->card[b].problem && p->card[a].runs && p->card[b].runs)
                handoffs(p, (int)a, (int)b);
}
