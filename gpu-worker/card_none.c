/* What a build without CUDA says to a real card. */
#include "gpu-worker/card_kind.h"

int card_cuda_open(int device, struct card **out, struct err *e)
{
    *out = NULL;
    return err_set(e, -ENOTSUP, "card %d: this build has no CUDA; build it where nvcc is found, or leave --cards out",
                   device);
}
