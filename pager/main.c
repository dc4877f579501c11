/* conclave-pager: the one process that reads weights. */
#include <stdio.h>

#include "pager/pager.h"

int main(int argc, char **argv)
{
    struct child c;
    struct err e = {0};

    if (child_begin(argc, argv, "conclave-pager",
                    "Reads the weights of a model from disk for conclave, which starts it.", &c,
                    &e) < 0) {
        if (c.ctl < 0) /* else the coordinator was told, and says it */
            fprintf(stderr, "conclave-pager: %s\n", e.msg);
        return 1;
    }
    if (pager_run(&c, &e) < 0) {
        ctl_sendf(c.ctl, CTL_ERROR, 0, "%s", e.msg);
        return 1;
    }
    return 0;
}
