/* Limits over made-up trees of /proc and cgroup files. */
#include "shm/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/test.h"

static char root[] = "/tmp/conclave-memory-XXXXXX";

static void put(const char *path, const char *text)
{
    char full[512];
    FILE *f;

    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0700);
        *p = '/';
    }
    f = fopen(full, "w");
    CHECK(f != NULL, "%s", full);
    if (f) {
        fputs(text, f);
        fclose(f);
    }
}

static struct memory look(void)
{
    struct memory m;

    memory_look_in(root, &m);
    CHECK_EQ(memory_left_in(root), m.left);
    return m;
}

static void nothing_known(void)
{
    struct memory m = look();

    CHECK(m.left == UINT64_MAX && m.available == UINT64_MAX && m.limit == UINT64_MAX && !m.version);
    CHECK(memory_node_left_in(root, 0) == UINT64_MAX);
}

static void machine_alone(void)
{
    struct memory m;

    put("/proc/meminfo", "MemTotal:  16000000 kB\nMemFree:  100 kB\nMemAvailable:    8000 kB\n"
                         "SwapFree:  9000000 kB\n");
    m = look();
    CHECK_EQ(m.left, 8000 * 1024); /* swap is not memory */
    CHECK(!m.version && m.limit == UINT64_MAX && !*m.group);
}

static void groups_v2(void)
{
    struct memory m;

    put("/proc/self/cgroup", "0::/user.slice/a b/leaf\n");
    put("/proc/self/mountinfo",
        "25 1 0:23 / /proc rw - proc proc rw\n"
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/user.slice/a b/leaf/memory.max", "max\n");
    put("/sys/fs/cgroup/user.slice/a b/leaf/memory.high", "max\n");
    put("/sys/fs/cgroup/user.slice/a b/leaf/memory.current", "1000000\n");
    CHECK_EQ(look().left, 8000 * 1024); /* nested, no limit */
    put("/sys/fs/cgroup/user.slice/memory.max", "7000000\n");
    put("/sys/fs/cgroup/user.slice/memory.current", "5000000\n");
    put("/sys/fs/cgroup/user.slice/memory.swap.max", "900000000\n");
    m = look();
    CHECK_EQ(m.left, 2000000); /* the outer one's, and no swap */
    CHECK(m.version == 2 && m.limit == 7000000 && m.used == 5000000 && !m.high);
    CHECK_STR(m.group, "/user.slice");
    put("/sys/fs/cgroup/user.slice/memory.stat", "anon 10\ninactive_file 400000\nactive_file 100000\n");
    CHECK_EQ(look().left, 2500000); /* file pages can go */
    put("/sys/fs/cgroup/user.slice/a b/leaf/memory.high", "1500000\n");
    m = look();
    CHECK_EQ(m.left, 500000);
    CHECK(m.high && m.limit == 1500000 && m.used == 1000000);
    CHECK_STR(m.group, "/user.slice/a b/leaf");
    put("/sys/fs/cgroup/user.slice/a b/leaf/memory.max", "900000\n");
    m = look();
    CHECK(m.left == 0 && !m.high && m.limit == 900000); /* past it already */
}

/* The outer group is nearly full although its limit is the larger one: what is left counts. */
static void nested_and_full(void)
{
    struct memory m;

    put("/proc/self/cgroup", "0::/outer/inner\n");
    put("/sys/fs/cgroup/outer/memory.max", "6000000\n");
    put("/sys/fs/cgroup/outer/memory.current", "5900000\n");
    put("/sys/fs/cgroup/outer/inner/memory.max", "3000000\n");
    put("/sys/fs/cgroup/outer/inner/memory.current", "4096\n");
    m = look();
    CHECK(m.left == 100000 && m.limit == 6000000, "%llu", (unsigned long long)m.left);
    CHECK_STR(m.group, "/outer");
    put("/sys/fs/cgroup/outer/inner/memory.max", "99000000000\n"); /* more than the machine has */
    put("/sys/fs/cgroup/outer/memory.max", "99000000000\n");
    m = look();
    CHECK(m.left == 8000 * 1024 && m.version == 2);
}

static void group_of_a_container(void)
{
    put("/proc/self/cgroup", "0::/docker/abc\n"); /* the mount begins at the container's group */
    put("/proc/self/mountinfo", "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup ro\n");
    put("/sys/fs/cgroup/memory.max", "3000000\n");
    put("/sys/fs/cgroup/memory.current", "1\n");
    CHECK_EQ(look().left, 2999999);
    CHECK_STR(look().group, "/");
    put("/proc/self/cgroup", "0::/../other\n"); /* a group that this namespace cannot see */
    CHECK_EQ(look().left, 2999999);
}

static void groups_v1(void)
{
    struct memory m;

    put("/proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/job/7\n0::/\n");
    put("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
                                "32 31 0:29 / /cg1/cpu rw - cgroup cgroup rw,cpu\n"
                                "35 31 0:32 / /cg1/memory rw - cgroup cgroup rw,memory\n"
                                "36 31 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put("/cg1/memory/job/7/memory.limit_in_bytes", "9223372036854771712\n");
    put("/cg1/memory/job/7/memory.usage_in_bytes", "100\n");
    m = look();
    CHECK(m.left == 8000 * 1024 && !m.version); /* v1's way to write "no limit" */
    put("/cg1/memory/job/memory.limit_in_bytes", "5000000\n");
    put("/cg1/memory/job/memory.memsw.limit_in_bytes", "50000000\n");
    put("/cg1/memory/job/memory.usage_in_bytes", "4000000\n");
    put("/cg1/memory/job/memory.stat",
        "inactive_file 7\ntotal_inactive_file 1000\ntotal_active_file 1\n");
    m = look();
    CHECK_EQ(m.left, 1001001);
    CHECK(m.version == 1 && m.limit == 5000000 && m.used == 3998999);
    CHECK_STR(m.group, "/job");
    /* both hierarchies limit: the lesser holds */
    put("/proc/self/cgroup", "4:memory:/job/7\n0::/u\n");
    put("/sys/fs/cgroup/unified/u/memory.max", "700000\n");
    put("/sys/fs/cgroup/unified/u/memory.current", "100000\n");
    m = look();
    CHECK(m.left == 600000 && m.version == 2);
}

static void nodes(void)
{
    put("/sys/devices/system/node/node1/meminfo",
        "Node 1 MemTotal:       16000000 kB\nNode 1 MemFree:         5000 kB\nNode 1 Active(file):  30 kB\n"
        "Node 1 Inactive(file):  200 kB\nNode 1 FilePages:   99999 kB\n");
    CHECK_EQ(memory_node_left_in(root, 1), 5230 * 1024);
    CHECK(memory_node_left_in(root, 0) == UINT64_MAX);
}

int main(void)
{
    char command[64];

    if (!mkdtemp(root))
        return 1;
    nothing_known();
    machine_alone();
    groups_v2();
    nested_and_full();
    group_of_a_container();
    groups_v1();
    nodes();
    CHECK(memory_left() > 0 && memory_left() < 1ull << 50, "%llu", (unsigned long long)memory_left());
    snprintf(command, sizeof command, "rm -rf %s", root);
    CHECK_EQ(system(command), 0);
    return test_end();
}
