/* The rate at which a card's multiprocessors run right now: a card that is hot, or whose neighbours
 * take the power, falls to a fraction, and figures taken then say nothing. For measuring programs.
 */
#pragma once
#include <cuda_runtime.h>

static __global__ void clock_spin(long long cycles)
{
    long long start = clock64();

    while (clock64() - start < cycles)
        ;
}

/* MHz, over some 20 ms of the default stream; 0: an error of the card */
static inline double clock_mhz(void)
{
    const long long cycles = 20000000;
    cudaEvent_t a, b;
    float ms = 0;

    if (cudaEventCreate(&a) || cudaEventCreate(&b))
        return 0;
    clock_spin<<<1, 1>>>(cycles); /* loads it */
    cudaEventRecord(a);
    clock_spin<<<1, 1>>>(cycles);
    cudaEventRecord(b);
    if (cudaEventSynchronize(b) || cudaEventElapsedTime(&ms, a, b))
        ms = 0;
    cudaEventDestroy(a);
    cudaEventDestroy(b);
    return ms > 0 ? cycles / (ms * 1e3) : 0;
}
