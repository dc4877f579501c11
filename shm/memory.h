/* How much memory this process and its children may still take: what the machine has and what every
 * cgroup above us allows. Swap is not counted: weights that go there are worse than on the disk. */
#pragma once
#include <stdint.h>

struct memory {
    uint64_t left;      /* bytes that may still be allocated: the least of all limits below */
    uint64_t available; /* the machine's MemAvailable; UINT64_MAX: it does not say */
    uint64_t limit;     /* of the group that allows the least; UINT64_MAX: none has a limit */
    uint64_t used;      /* by that group, pages of files that can be dropped not counted */
    int version;        /* of that group's hierarchy, 1 or 2; 0: none has a limit */
    int high;           /* 1: the limit is memory.high, past which the kernel only slows us down */
    char group[256];    /* its path in the hierarchy, cut off if longer */
};
/* root: "" , or a folder that holds a made-up /proc, /sys and mount points, for tests. */
void memory_look_in(const char *root, struct memory *m);
void memory_look(struct memory *m);
/* The `left` of it. */
uint64_t memory_left(void);
uint64_t memory_left_in(const char *root);
/* Bytes of a NUMA node that are free or hold pages of files that can be dropped; UINT64_MAX if the
 * machine does not say. */
uint64_t memory_node_left_in(const char *root, int node);
uint64_t memory_node_left(int node);
