/* What a build without CUDA says of cards. */
#include "gpu-worker/probe.h"

#include <stdio.h>

void probe_cuda(struct probe *p, int measure, const struct probe_shape *shape)
{
    (void)measure, (void)shape; /* nothing is there that could be */
    snprintf(p->problem, sizeof p->problem,
             "conclave-gpu was built without CUDA: make CARDS=1, where nvcc is");
}
