/* conclave-gpu: a card's worker; so far the emulated card, whose kernels are the CPU's. */
#include <stdio.h>
#include <string.h>

#include "gpu-worker/experts.h"
#include "gpu-worker/probe.h"
#include "kernels/cpu.h"

int main(int argc, char **argv)
{
    struct child c;
    struct err e = {0};
    const char *problem;

    if (argc == 2 && !strncmp(argv[1], "--probe", 7) && (!argv[1][7] || !strcmp(argv[1] + 7, "=measure")))
        return probe_main(argv[1][7] != 0); /* the coordinator asks, or a person */
    if (child_begin(argc, argv, "conclave-gpu", "Works on a card for conclave, which starts it.", &c, &e) < 0) {
        if (c.ctl < 0) /* else the coordinator was told, and says it */
            fprintf(stderr, "conclave-gpu: %s\n", e.msg);
        return 1;
    }
    problem = cpu_override_problem();
    if (problem)
        err_set(&e, -EINVAL, "%s", problem);
    else
        experts_run(&c, &e);
    if (e.code)
        ctl_sendf(c.ctl, CTL_ERROR, 0, "%s", e.msg);
    return e.code ? 1 : 0;
}
