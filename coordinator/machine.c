/* Reads the affinity mask and the topology. Nothing here changes a result, only who does what. */
#define _GNU_SOURCE
#include "coordinator/machine.h"

#include <numa.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* lowest sibling of a cpu, as the kernel says; the cpu itself if it says nothing */
static int first_sibling(int cpu)
{
    char path[96];
    int first = cpu;
    FILE *f;

    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    f = fopen(path, "re");
    if (f && fscanf(f, "%d", &first) != 1)
        first = cpu;
    if (f)
        fclose(f);
    return first;
}

void machine_look(struct machine *m)
{
    cpu_set_t set;
    int has_numa = numa_available() >= 0, seen_node[64], core_seen[MACHINE_MAX_CPUS];
    memset(m, 0, sizeof *m);
    memset(core_seen, 0, sizeof core_seen);
    memset(seen_node, -1, sizeof seen_node);
    if (sched_getaffinity(0, sizeof set, &set))
        CPU_SET(0, &set);
    for (int c = 0; c < MACHINE_MAX_CPUS; c++) { /* nodes, in the order of their cpus */
        int id = has_numa ? numa_node_of_cpu(c) : 0;
        if (!CPU_ISSET(c, &set))
            continue;
        if (id < 0 || id >= 64)
            id = 0;
        if (seen_node[id] < 0) {
            seen_node[id] = (int)m->n_nodes;
            m->numa_id[m->n_nodes++] = has_numa ? id : -1;
        }
    }
    for (int pass = 0; pass < 2; pass++) /* one thread of every core, then the others */
        for (uint32_t n = 0; n < m->n_nodes; n++)
            for (int c = 0; c < MACHINE_MAX_CPUS; c++) {
                int id = has_numa ? numa_node_of_cpu(c) : 0, core = first_sibling(c);
                if (!CPU_ISSET(c, &set) || seen_node[id < 0 || id >= 64 ? 0 : id] != (int)n)
                    continue;
                if (core < 0 || core >= MACHINE_MAX_CPUS)
                    core = c;
                if (pass == 0 ? core_seen[core] != 0 : core_seen[core] == c + 1)
                    continue; /* this core has its thread, or c is it */
                if (pass == 0) {
                    core_seen[core] = c + 1;
                    m->n_cores++;
                }
                m->cpu[m->n_cpus] = c;
                m->node_of[m->n_cpus++] = (int)n;
            }
}

uint32_t machine_share(const struct machine *m, uint32_t node, uint32_t n_nodes, uint32_t n, int *cpus,
                       uint32_t max)
{
    uint32_t first = (uint32_t)((uint64_t)n * node / n_nodes),
             want = (uint32_t)((uint64_t)n * (node + 1) / n_nodes) - first, got = 0;

    if (!want)
        want = 1;
    if (want > max)
        want = max;
    if (n_nodes == m->n_nodes && n_nodes > 1) { /* one worker a real node */
        for (uint32_t i = 0; i < m->n_cpus && got < want; i++)
            if (m->node_of[i] == (int)node)
                cpus[got++] = m->cpu[i];
        return got ? got : 1;
    }
    for (; got < want; got++)
        cpus[got] = m->cpu[(first + got) % m->n_cpus];
    return got;
}
