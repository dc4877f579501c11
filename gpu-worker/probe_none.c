/* What a build without CUDA says of cards. */
#include "gpu-worker/probe.h"

#include <stdio.h>

void probe_cuda(struct probe *p, int measure)
{
    (void)measure; /* nothing is there that could be */
    snprintf(p->problem, sizeof p->problem,
             "this conclave-gpu was built without CUDA: build it where nvcc is found, with `make CARDS=1`, to use cards");
}
