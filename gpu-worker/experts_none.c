/* A build without CUDA opens no real card, so that nobody comes here. */
#include "gpu-worker/experts_cuda.h"

#include <stdlib.h>

int experts_cuda_open(const struct experts_cuda_config *c, struct experts_cuda **out, struct err *e)
{
    *out = NULL;
    return err_set(e, -ENOTSUP, "%s: this build has no CUDA", card_name(c->card));
}
void experts_cuda_close(struct experts_cuda *x)
{
    free(x);
}
struct experts_cuda_lists experts_cuda_lists(struct experts_cuda *x)
{
    (void)x;
    return (struct experts_cuda_lists){0};
}
int experts_cuda_run(struct experts_cuda *x, const struct experts_cuda_pass *p, struct err *e)
{
    (void)x, (void)p;
    return err_set(e, -ENOTSUP, "this build has no CUDA");
}
int experts_cuda_poll(struct experts_cuda *x, struct err *e)
{
    (void)x;
    return err_set(e, -ENOTSUP, "this build has no CUDA");
}
void experts_cuda_break(struct experts_cuda *x)
{
    (void)x;
}
