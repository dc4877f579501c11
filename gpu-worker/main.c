/* conclave-gpu: a card's worker; so far the emulated card, whose kernels are the CPU's. */
#include <stdio.h>
#include <string.h>

#include "gpu-worker/experts.h"
#include "gpu-worker/probe.h"
#include "kernels/cpu.h"
#include "shm/fault.h"

int main(int argc, char **argv)
{
    struct child c;
    struct err e = {0};
    const char *problem;
    struct probe_shape shape;

    if (argc == 2 && !strcmp(argv[1], "--probe")) /* the coordinator asks, or a person */
        return probe_main(0, NULL);
    if (argc == 2 && !strcmp(argv[1], "--probe=measure"))
        return probe_main(1, NULL);
    if (argc == 3 && !strcmp(argv[1], "--probe=measure") && !probe_shape_read(argv[2], &shape))
        return probe_main(1, &shape);
    if (child_begin(argc, argv, "conclave-gpu", "Works on a card for conclave, which starts it.", &c, &e) < 0) {
        if (c.ctl < 0) /* else the coordinator was told, and says it */
            fprintf(stderr, "conclave-gpu: %s\n", e.msg);
        return 1;
    }
    problem = cpu_override_problem();
    if (!problem && outbox_is_card(c.outbox))
        problem = fault_arm(outbox_card(c.outbox), outbox_life(c.outbox));
    if (problem)
        err_set(&e, -EINVAL, "%s", problem);
    else
        experts_run(&c, &e);
    if (e.code)
        ctl_sendf(c.ctl, CTL_ERROR, 0, "%s", e.msg);
    return e.code ? 1 : 0;
}
