/* conclave-cpu: one node's team of threads over the experts in memory. */
#include <stdio.h>

#include "cpu-worker/process.h"
#include "kernels/cpu.h"

int main(int argc, char **argv)
{
    struct child c;
    struct err e = {0};
    const char *problem;

    if (child_begin(argc, argv, "conclave-cpu",
                    "Computes the experts that lie in memory for conclave, which starts it.", &c,
                    &e) < 0) {
        if (c.ctl < 0) /* else the coordinator was told, and says it */
            fprintf(stderr, "conclave-cpu: %s\n", e.msg);
        return 1;
    }
    problem = cpu_override_problem();
    if (problem)
        err_set(&e, -EINVAL, "%s", problem);
    else
        process_run(&c, NULL, &e);
    if (e.code)
        ctl_sendf(c.ctl, CTL_ERROR, 0, "%s", e.msg);
    return e.code ? 1 : 0;
}
