/* The beginning of every worker's main. Order matters: first tie our life to the parent's, then say
 * who we are, and only then touch anything shared. */
#define _GNU_SOURCE
#include "shm/child.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static void usage(FILE *to, const char *name, const char *about)
{
    fprintf(
        to,
        "%s: %s\n\n"
        "A part of conclave: the program `conclave` starts it, passes it its memory and ends it.\n"
        "There is nothing to start by hand; see `conclave --help`.\n\n"
        "  --help     this text\n"
        "  --version  the build's id (all programs of conclave must be of one build)\n",
        name, about);
}

/* A whole decimal number, at most `most`. */
static int number(const char **at, unsigned long most, char end, unsigned long *out)
{
    char *stop;

    if (**at < '0' || **at > '9')
        return -1;
    errno = 0;
    *out = strtoul(*at, &stop, 10);
    if (errno || *out > most || *stop != end)
        return -1;
    *at = stop + (end != 0);
    return 0;
}

/* ROLE:INDEX:FD:MODE */
static int map_one(const char *arg, struct seg *s, struct err *e)
{
    const char *p = arg;
    unsigned long role, index, fd;

    if (number(&p, 1000, ':', &role) || number(&p, UINT32_MAX, ':', &index) ||
        number(&p, INT_MAX, ':', &fd) || (strcmp(p, "r") && strcmp(p, "w")))
        return err_set(e, -EINVAL, "'%s' is no segment (ROLE:INDEX:FD:MODE)", arg);
    return seg_map((int)fd, (enum seg_role)role, (uint32_t)index, *p == 'w', s, e);
}

static int map_all(int argc, char **argv, struct child *c, struct err *e)
{
    if (argc > CHILD_SEGS)
        return err_set(e, -EINVAL, "%d segments are too many, at most %d", argc, CHILD_SEGS);
    for (int i = 0; i < argc; i++) {
        int rc = map_one(argv[i], &c->seg[c->n_segs], e);
        if (rc)
            return rc;
        c->n_segs++;
    }
    return 0;
}

/* Dies with the parent. The signal follows the parent's death only from now on, so a parent that
 * went before is found by its number. */
static int tie_to(unsigned long parent, struct err *e)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL))
        return err_set(e, -errno, "prctl(PR_SET_PDEATHSIG): %s", strerror(errno));
    if ((unsigned long)getppid() != parent)
        return err_set(e, -ESRCH, "process %lu, which started this one, has ended", parent);
    return 0;
}

static int hello(int ctl, struct err *e)
{
    struct ctl_msg m = {.kind = CTL_HELLO, .a = (uint64_t)getpid()};
    int rc;

    memcpy(m.build, build_id(), sizeof m.build);
    rc = ctl_send(ctl, &m, -1);
    return rc ? err_set(e, rc, "control socket %d: %s", ctl, strerror(-rc)) : 0;
}

static void begin_timeline(struct child *c)
{
    struct timeline *t = &c->timeline;

    t->pid = (uint32_t)getpid();
    for (size_t i = 0; i < c->n_segs; i++)
        if (c->seg[i].role == SEG_TIMELINE && c->seg[i].bytes >= sizeof *t->ring)
            t->ring = c->seg[i].base;
    timeline_end(t, TIMELINE_LEADER, TIMELINE_STARTED, timeline_begin(t), 0, 0, 0);
}

int child_begin(int argc, char **argv, const char *name, const char *about, struct child *c,
                struct err *e)
{
    unsigned long parent, outbox, ctl;
    const char *p1, *p2, *p3;
    int rc;

    memset(c, 0, sizeof *c);
    c->ctl = -1;
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        printf("%s build %s\n", name, build_id());
        exit(0);
    }
    if (argc == 2 && !strcmp(argv[1], "--help")) {
        usage(stdout, name, about);
        exit(0);
    }
    p1 = argc > 3 ? argv[1] : "";
    p2 = argc > 3 ? argv[2] : "";
    p3 = argc > 3 ? argv[3] : "";
    if (number(&p1, INT_MAX, 0, &parent) || number(&p2, MAX_PROCS - 1, 0, &outbox) ||
        number(&p3, INT_MAX, 0, &ctl)) {
        fprintf(stderr, "%s: started by `conclave` only; see %s --help\n", name, name);
        exit(2);
    }
    rc = tie_to(parent, e);
    if (rc)
        return rc;
    signal(SIGINT, SIG_IGN); /* Ctrl-C is the coordinator's to handle; it tells us */
    signal(SIGPIPE, SIG_IGN);
    c->ctl = (int)ctl;
    c->outbox = (uint32_t)outbox;
    rc = hello(c->ctl, e);
    if (rc)
        return rc;
    rc = map_all(argc - 4, argv + 4, c, e);
    begin_timeline(c);
    if (rc)
        ctl_sendf(c->ctl, CTL_ERROR, 0, "%s", e ? e->msg : "cannot map a segment");
    return rc;
}

void *child_seg(const struct child *c, enum seg_role role, uint32_t index)
{
    for (size_t i = 0; i < c->n_segs; i++)
        if (c->seg[i].role == role && c->seg[i].index == index)
            return c->seg[i].base;
    return NULL;
}
