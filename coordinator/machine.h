/* Cores and nodes that this process may use. */
#pragma once
#include <stdint.h>

#define MACHINE_MAX_CPUS 1024
struct machine {
    uint32_t n_cpus;                /* in the affinity mask */
    uint32_t n_cores;               /* physical ones among them */
    uint32_t n_nodes;               /* NUMA nodes that have at least one of these cpus */
    int cpu[MACHINE_MAX_CPUS];      /* one thread of every core first, node by node; then siblings */
    int node_of[MACHINE_MAX_CPUS];  /* of cpu[i]: index below n_nodes */
    int numa_id[64];                /* of a node: libnuma's number, -1 where there is no NUMA */
};
void machine_look(struct machine *m);
/* The cores of worker `node` of n_nodes with n threads in all for the workers: fills cpus, returns how
 * many threads (at least 1). A real node's worker stays on its node; simulated ones share all cores. */
uint32_t machine_share(const struct machine *m, uint32_t node, uint32_t n_nodes, uint32_t n, int *cpus,
                       uint32_t max);
