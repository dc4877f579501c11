/* A real card: the runtime's calls and their errors' words. Nothing here waits for a kernel that runs
 * (docs/DESIGN.md, section 8: what blocks): memory is given back at the end alone. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu-worker/card_kind.h"

struct cuda {
    struct card card;
    int readonly_maps; /* cudaDevAttrHostRegisterReadOnlySupported */
    cudaStream_t copies;
    cudaEvent_t mark[CARD_MARKS];
    int marked[CARD_MARKS]; /* was it ever? */
};

static int failed(const struct cuda *x, cudaError_t rc, const char *what, struct err *e)
{
    return err_set(e, -EIO, "%s: %s: %s", x->card.name, what, cudaGetErrorString(rc));
}
/* A refusal, as opposed to an error of the card: taken out of the runtime's books. */
static void forgive(void)
{
    (void)cudaGetLastError();
}

static void cuda_close(struct card *c)
{
    struct cuda *x = (struct cuda *)c;

    cudaDeviceReset(); /* memory, registrations, streams */
    free(x);
}
static int cuda_use(struct card *c, struct err *e)
{
    cudaError_t rc = cudaSetDevice(c->device);

    return rc ? failed((struct cuda *)c, rc, "cudaSetDevice", e) : 0;
}

static uint64_t cuda_free(struct card *c)
{
    size_t left = 0, all = 0;

    (void)c;
    if (cudaMemGetInfo(&left, &all)) {
        forgive();
        return 0;
    }
    return left;
}

static int cuda_alloc(struct card *c, uint64_t bytes, const char *what, void **out, struct err *e)
{
    cudaError_t rc = cudaMalloc(out, bytes);

    if (!rc)
        return 0;
    *out = NULL;
    if (rc != cudaErrorMemoryAllocation)
        return failed((struct cuda *)c, rc, what, e);
    forgive();
    return err_set(e, -ENOMEM,
                   "%s: no memory for %s: %llu bytes are wanted, %llu are free; end what else uses the card, or give "
                   "less (--cards %d:BYTES)",
                   c->name, what, (unsigned long long)bytes, (unsigned long long)cuda_free(c), c->device);
}

static int cuda_shared(struct card *c, uint64_t bytes, const char *what, void **host, void **dev, struct err *e)
{
    cudaError_t rc = cudaHostAlloc(host, bytes, cudaHostAllocMapped | cudaHostAllocPortable);

    if (rc == cudaErrorMemoryAllocation) {
        forgive();
        return err_set(e, -ENOMEM, "%s: no memory that stays in place for %s, %llu bytes", c->name, what,
                       (unsigned long long)bytes);
    }
    if (!rc)
        rc = cudaHostGetDevicePointer(dev, *host, 0);
    if (rc)
        return failed((struct cuda *)c, rc, what, e);
    memset(*host, 0, bytes);
    return 0;
}

static int cuda_map(struct card *c, const void *host, uint64_t bytes, int writable, void **dev, struct err *e)
{
    const struct cuda *x = (struct cuda *)c;
    unsigned flags = cudaHostRegisterMapped | cudaHostRegisterPortable;
    cudaError_t rc;

    *dev = NULL;
    if (!writable && !x->readonly_maps)
        return err_set(e, -ENOTSUP, "%s: does not reach memory that is mapped for reading only", c->name);
    rc = cudaHostRegister((void *)host, bytes, writable ? flags : flags | cudaHostRegisterReadOnly);
    if (!rc)
        rc = cudaHostGetDevicePointer(dev, (void *)host, 0);
    if (!rc)
        return 0;
    forgive();
    return err_set(e, -EACCES, "%s: %llu bytes of memory are not registered: %s", c->name, (unsigned long long)bytes,
                   cudaGetErrorString(rc));
}

static int cuda_copy_in(struct card *c, void *dev, const void *host, uint64_t bytes, struct err *e)
{
    struct cuda *x = (struct cuda *)c;
    cudaError_t rc = cudaMemcpyAsync(dev, host, bytes, cudaMemcpyHostToDevice, x->copies);

    return rc ? failed(x, rc, "a copy to the card", e) : 0;
}
static int cuda_copy_out(struct card *c, void *host, const void *dev, uint64_t bytes, struct err *e)
{
    struct cuda *x = (struct cuda *)c;
    cudaError_t rc = cudaMemcpyAsync(host, dev, bytes, cudaMemcpyDeviceToHost, x->copies);

    return rc ? failed(x, rc, "a copy from the card", e) : 0;
}
static int cuda_mark(struct card *c, unsigned mark, struct err *e)
{
    struct cuda *x = (struct cuda *)c;
    cudaError_t rc = cudaEventRecord(x->mark[mark], x->copies);

    x->marked[mark] = 1;
    return rc ? failed(x, rc, "a copy to the card", e) : 0;
}
static int cuda_marked(struct card *c, unsigned mark, struct err *e)
{
    struct cuda *x = (struct cuda *)c;
    cudaError_t rc = x->marked[mark] ? cudaEventQuery(x->mark[mark]) : cudaSuccess;

    if (rc == cudaErrorNotReady) {
        forgive();
        return 0;
    }
    return rc ? failed(x, rc, "a copy to the card", e) : 1;
}

static const struct card_kind kind = {cuda_close, cuda_use,     cuda_alloc,    cuda_shared, cuda_map,
                                      cuda_free,  cuda_copy_in, cuda_copy_out, cuda_mark,   cuda_marked};

/* The device's number is one of the machine's; 0, or a line. */
static int there(int device, struct err *e)
{
    int n = 0;
    cudaError_t rc = cudaGetDeviceCount(&n);

    if (rc == cudaErrorInsufficientDriver || rc == cudaErrorNoDevice)
        return err_set(e, -ENODEV, "card %d: %s", device,
                       rc == cudaErrorNoDevice ? "this machine shows no NVIDIA card"
                                               : "there is no NVIDIA driver here, or one too old for this build");
    if (rc)
        return err_set(e, -ENODEV, "card %d: %s", device, cudaGetErrorString(rc));
    return device < n ? 0 : err_set(e, -ENODEV, "card %d: there are %d cards here, from 0 on", device, n);
}

extern "C" int card_cuda_open(int device, struct card **out, struct err *e)
{
    struct cuda *x;
    cudaDeviceProp p;
    cudaError_t rc;
    int code = there(device, e);

    *out = NULL;
    if (code)
        return code;
    x = (struct cuda *)calloc(1, sizeof *x);
    if (!x)
        return err_set(e, -ENOMEM, "no memory");
    x->card.kind = &kind;
    x->card.device = device;
    snprintf(x->card.name, sizeof x->card.name, "card %d", device);
    rc = cudaSetDevice(device);
    if (!rc)
        rc = cudaGetDeviceProperties(&p, device);
    if (!rc)
        snprintf(x->card.name, sizeof x->card.name, "card %d (%.60s)", device, p.name);
    if (!rc)
        rc = cudaDeviceGetAttribute(&x->readonly_maps, cudaDevAttrHostRegisterReadOnlySupported, device);
    if (!rc)
        rc = cudaStreamCreateWithFlags(&x->copies, cudaStreamNonBlocking);
    for (int i = 0; i < CARD_MARKS && !rc; i++)
        rc = cudaEventCreateWithFlags(&x->mark[i], cudaEventDisableTiming);
    if (rc) {
        code = failed(x, rc, "cannot be opened", e);
        free(x);
        return code;
    }
    *out = &x->card;
    return 0;
}
