/* What a card's loads and stores of mapped host memory give (and of another card's, where there is
 * one), by the width of an access: rows of experts cross this way. Figures for
 * docs/MEASUREMENTS.md. */
#include "gpu-worker/clock.cuh"
#include "gpu-worker/handoff.cuh"
#include "tests/cuda.h"

enum { THREADS = 256, MOST_BLOCKS = 264, ROUNDS = 50 };

enum access { LOAD_4, LOAD_8, LOAD_16, LOAD_16_PLAIN, STORE_4, STORE_16, ACCESSES };
static const char *const names[] = {"load 4, relaxed.sys",
                                    "load 8, relaxed.sys",
                                    "load 16, relaxed.sys",
                                    "load 16, plain",
                                    "store 4",
                                    "store 16"};

static __device__ __forceinline__ uint4 load16(const uint4 *p)
{
    uint4 v;

    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}

/* every thread of the grid its part of the bytes, accesses of a warp side by side */
static __global__ void touch(access how, uint8_t *p, size_t bytes, unsigned *sink)
{
    size_t step = (size_t)gridDim.x * THREADS, i = blockIdx.x * (size_t)THREADS + threadIdx.x;
    unsigned x = 0;

    if (how == LOAD_4)
#pragma unroll 8
        for (; i < bytes / 4; i += step)
            x ^= __float_as_uint(handoff_load((const float *)p + i));
    else if (how == LOAD_8)
#pragma unroll 8
        for (; i < bytes / 8; i += step)
            x ^= (unsigned)handoff_load((const uint64_t *)p + i);
    else if (how == LOAD_16 || how == LOAD_16_PLAIN)
#pragma unroll 8
        for (; i < bytes / 16; i += step) {
            uint4 v = how == LOAD_16 ? load16((const uint4 *)p + i) : ((const uint4 *)p)[i];
            x ^= v.x ^ v.y ^ v.z ^ v.w;
        }
    else if (how == STORE_4)
        for (; i < bytes / 4; i += step)
            ((unsigned *)p)[i] = (unsigned)i;
    else
        for (; i < bytes / 16; i += step)
            ((uint4 *)p)[i] = make_uint4(1, 2, 3, (unsigned)i);
    if (how < STORE_4 && x == 0x12345678u)
        *sink = x; /* so that the loads stay */
}

static __global__ void nothing(void)
{
}

static double seconds(cudaEvent_t a, cudaEvent_t b)
{
    float ms;

    CUDA_OK(cudaEventSynchronize(b));
    CUDA_OK(cudaEventElapsedTime(&ms, a, b));
    return ms * 1e-3;
}

static void measure(const char *where, uint8_t *p, unsigned *sink)
{
    static const size_t sizes[] = {16 << 10, 128 << 10, 1 << 20, 16 << 20};
    cudaEvent_t a, b;
    double empty;

    CUDA_OK(cudaEventCreate(&a));
    CUDA_OK(cudaEventCreate(&b));
    for (int warm = 0; warm < 2; warm++) {
        CUDA_OK(cudaEventRecord(a));
        for (int i = 0; i < ROUNDS; i++)
            nothing<<<MOST_BLOCKS, THREADS>>>();
        CUDA_OK(cudaEventRecord(b));
        empty = seconds(a, b) / ROUNDS;
    }
    printf("%s: an empty launch %.2f us; us a launch (GB/s) for 16 KB, 128 KB, 1 MB, 16 MB\n",
           where, empty * 1e6);
    for (int how = 0; how < ACCESSES; how++) {
        printf("  %-22s", names[how]);
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            size_t width = how == LOAD_4 || how == STORE_4 ? 4 : how == LOAD_8 ? 8 : 16;
            size_t blocks = (sizes[k] / width + THREADS - 1) / THREADS;
            double s = 0;
            if (blocks > MOST_BLOCKS)
                blocks = MOST_BLOCKS;
            for (int warm = 0; warm < 2; warm++) {
                CUDA_OK(cudaEventRecord(a));
                for (int i = 0; i < ROUNDS; i++)
                    touch<<<(unsigned)blocks, THREADS>>>((access)how, p, sizes[k], sink);
                CUDA_OK(cudaEventRecord(b));
                s = seconds(a, b) / ROUNDS;
            }
            printf("  %7.2f (%5.1f)", s * 1e6, sizes[k] / s * 1e-9);
        }
        printf("\n");
    }
    CUDA_OK(cudaEventDestroy(a));
    CUDA_OK(cudaEventDestroy(b));
}

int main(void)
{
    uint8_t *p;
    unsigned *sink;
    int n = 0, peer = 0;

    if (!cuda_card())
        return test_end();
    printf("the card runs at %.0f MHz\n", clock_mhz());
    sink = (unsigned *)cuda_room(4);
    CUDA_OK(cudaHostAlloc(&p, 16 << 20, cudaHostAllocMapped));
    memset(p, 1, 16 << 20);
    measure("mapped host memory", p, sink);
    CUDA_OK(cudaFreeHost(p));
    CUDA_OK(cudaGetDeviceCount(&n));
    if (n > 1)
        CUDA_OK(cudaDeviceCanAccessPeer(&peer, 0, 1));
    if (peer) {
        CUDA_OK(cudaSetDevice(1));
        p = (uint8_t *)cuda_room(16 << 20);
        CUDA_OK(cudaSetDevice(0));
        CUDA_OK(cudaDeviceEnablePeerAccess(1, 0));
        measure("another card's memory", p, sink);
    }
    return 0;
}
