/* The machine without its cards. Reads /proc and /sys, tries what a run would do in small. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "coordinator/cli/doctor.h"
#include "coordinator/cli/value.h"
#include "coordinator/engine.h"
#include "coordinator/machine.h"
#include "coordinator/residency/plan.h"
#include "coordinator/supervise/ask.h"
#include "coordinator/supervise/spawn.h"
#include "kernels/cpu.h"
#include "shm/memory.h"

#define VERSION_MS 20000
#define REGISTERED (32u << 20) /* more than the usual limit of 8 MiB */
#define FILES_LEAST 256u /* descriptors: segments and sockets of the largest number of processes */

static const char *size(uint64_t bytes)
{
    static char text[4][32];
    static int at;

    return value_show_size(bytes, text[at++ % 4]);
}

/* First line of a file, "" if there is none. */
static const char *first_line(const char *path, char *text, size_t n)
{
    FILE *f = fopen(path, "re");

    *text = 0;
    if (f && fgets(text, (int)n, f))
        text[strcspn(text, "\n")] = 0;
    if (f)
        fclose(f);
    return text;
}

static void programs(struct doctor *d)
{
    static const char *const name[] = {"conclave-cpu", "conclave-gpu", "conclave-pager"};
    unsigned bad = d->bad;

    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        char path[4096], wanted[64], *text = NULL;
        struct err e = {0};
        size_t n;

        snprintf(wanted, sizeof wanted, "build %s", build_id());
        if (spawn_beside_us(name[i], path, sizeof path, &e) ||
            ask((char *[]){path, "--version", NULL}, 4096, VERSION_MS, &text, &n, &e))
            doctor_say(d, FOUND_BAD, "programs", "%s: %s: install all programs of conclave together", path, e.msg);
        else if (!strstr(text, wanted))
            doctor_say(d, FOUND_BAD, "programs", "%s is of another build than this conclave: install them together", path);
        free(text);
    }
    if (d->bad == bad)
        doctor_say(d, FOUND_OK, "programs", "conclave-cpu, conclave-gpu and conclave-pager, all of build %s", build_id());
}

static void processor(struct doctor *d, const struct machine *m)
{
    char line[512], name[200] = "";
    FILE *f = fopen("/proc/cpuinfo", "re");
    enum cpu_level has = cpu_has(), used = cpu_level();

    while (f && !*name && fgets(line, sizeof line, f))
        if (!strncmp(line, "model name", 10) && strchr(line, ':'))
            snprintf(name, sizeof name, "%.*s", (int)strcspn(strchr(line, ':') + 2, "\n"), strchr(line, ':') + 2);
    if (f)
        fclose(f);
    doctor_say(d, has == CPU_GENERIC || used != has ? FOUND_NOTE : FOUND_OK, "processor", "%s: %u cores, %u threads; %s%s",
               *name ? name : "of unknown name", m->n_cores, m->n_cpus, cpu_level_name(used),
               used != has           ? " by CONCLAVE_CPU, though it has more: unset it"
               : has == CPU_GENERIC  ? ": kernels in plain C are slow; a processor with AVX2 is wanted"
               : has == CPU_AVX2     ? " is used (no AVX-512 with VNNI)"
               : has == CPU_AVX512   ? " is used (no VBMI with GFNI)"
                                     : " is used");
}

static void kernel(struct doctor *d)
{
    struct utsname u;
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    uname(&u);
    if (fd < 0)
        doctor_say(d, FOUND_BAD, "kernel", "Linux %s: pidfd_open: %s: Linux 5.3 or later is wanted, and a sandbox that "
                   "allows the call", u.release, strerror(errno));
    else
        doctor_say(d, FOUND_OK, "kernel", "Linux %s", u.release);
    if (fd >= 0)
        close(fd);
}

static void memory(struct doctor *d, const struct machine *m)
{
    struct memory mem;

    memory_look(&mem);
    if (mem.version && mem.left < mem.available)
        doctor_say(d, FOUND_OK, "memory", "%s to take: cgroup v%d %s allows %s%s, %s are used", size(mem.left), mem.version,
                   mem.group, size(mem.limit), mem.high ? " (memory.high)" : "", size(mem.used));
    else
        doctor_say(d, FOUND_OK, "memory", "%s to take: what the machine has available", size(mem.left));
    for (uint32_t k = 0; m->n_nodes > 1 && k < m->n_nodes; k++)
        doctor_say(d, FOUND_OK, "node", "%d: %s free", m->numa_id[k], size(memory_node_left(m->numa_id[k])));
    if (m->n_nodes == 1)
        doctor_say(d, FOUND_OK, "nodes", "1 NUMA node");
}

static void limits(struct doctor *d)
{
    struct rlimit files = {0};
    struct statvfs fs;

    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < FILES_LEAST)
        doctor_say(d, FOUND_NOTE, "files", "%llu descriptors: runs with several nodes or cards need more; ulimit -n 1024",
                   (unsigned long long)files.rlim_cur);
    else
        doctor_say(d, FOUND_OK, "files", "%llu descriptors", (unsigned long long)files.rlim_cur);
    if (statvfs("/dev/shm", &fs))
        doctor_say(d, FOUND_NOTE, "/dev/shm", "%s: memfds are used instead", strerror(errno));
    else
        doctor_say(d, FOUND_OK, "/dev/shm", "%s of %s free: small segments; the large ones are memfds",
                   size((uint64_t)fs.f_bavail * fs.f_frsize), size((uint64_t)fs.f_blocks * fs.f_frsize));
}

/* As the pager registers slabs: what the limit of locked memory allows shows when it is tried. */
static void registered(struct doctor *d, struct io_uring *ring)
{
    struct iovec v = {.iov_len = REGISTERED};
    struct rlimit lock = {0};
    int rc;

    getrlimit(RLIMIT_MEMLOCK, &lock);
    v.iov_base = mmap(NULL, v.iov_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    rc = v.iov_base == MAP_FAILED ? -errno : io_uring_register_buffers(ring, &v, 1);
    if (rc)
        doctor_say(d, FOUND_NOTE, "locked", "%s cannot be locked (%s; the limit is %s): reads go into slabs that are not "
                   "registered, a little more processor time a read; ulimit -l unlimited", size(REGISTERED), strerror(-rc),
                   size(lock.rlim_cur));
    else if (lock.rlim_cur == RLIM_INFINITY)
        doctor_say(d, FOUND_OK, "locked", "memory can be locked without a limit: reads go into registered slabs");
    else
        doctor_say(d, FOUND_OK, "locked", "%s can be locked, the limit is %s: reads go into registered slabs",
                   size(REGISTERED), size(lock.rlim_cur));
    if (v.iov_base != MAP_FAILED)
        munmap(v.iov_base, v.iov_len);
}

static void uring(struct doctor *d)
{
    struct io_uring ring;
    int rc = io_uring_queue_init(8, &ring, 0);
    const char *wanted = getenv("CONCLAVE_IO");

    if (wanted && *wanted && strcmp(wanted, "uring") && strcmp(wanted, "threads")) {
        doctor_say(d, FOUND_BAD, "io_uring", "CONCLAVE_IO is '%s': only uring and threads mean something", wanted);
    } else if (rc) {
        doctor_say(d, FOUND_NOTE, "io_uring", "%s: files are read with threads, a little slower; see "
                   "kernel.io_uring_disabled, or the container's seccomp profile", strerror(-rc));
    } else {
        doctor_say(d, wanted && !strcmp(wanted, "threads") ? FOUND_NOTE : FOUND_OK, "io_uring", "works%s",
                   wanted && !strcmp(wanted, "threads") ? ", but CONCLAVE_IO=threads turns it off: unset it" : "");
    }
    if (!rc) {
        registered(d, &ring);
        io_uring_queue_exit(&ring);
    }
}

static void huge_pages(struct doctor *d)
{
    char text[200], *at;

    first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", text, sizeof text);
    at = strchr(text, '[');
    if (at)
        at[strcspn(at, "]")] = 0;
    if (!at)
        doctor_say(d, FOUND_NOTE, "huge pages", "none for shared memory in this kernel: slabs lie in small pages");
    else if (!strcmp(at + 1, "never") || !strcmp(at + 1, "deny"))
        doctor_say(d, FOUND_NOTE, "huge pages", "off for shared memory: slabs lie in small pages, which cards register more "
                   "slowly; echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled");
    else
        doctor_say(d, FOUND_OK, "huge pages", "for shared memory: %s", at + 1);
}

void doctor_machine(struct doctor *d)
{
    struct machine *m = malloc(sizeof *m);

    if (!m) {
        doctor_say(d, FOUND_BAD, "memory", "none");
        return;
    }
    machine_look(m);
    programs(d);
    kernel(d);
    processor(d, m);
    memory(d, m);
    limits(d);
    uring(d);
    huge_pages(d);
    free(m);
}

/* ---- a model ---- */

static int look(const struct engine_look *l, void *arg, struct err *e)
{
    struct doctor *d = arg;
    const struct plan *p = l->plan;
    const struct gguf *g = l->m->g;
    const char *refused = NULL;

    (void)e;
    doctor_say(d, FOUND_OK, "model", "%s: %s of trunk, %s; context %u tokens", model_arch_name(l->m), size(p->bytes.trunk),
               p->slabs.resident ? "all experts fit in memory" : "experts are read as needed", p->n_ctx);
    for (size_t i = 0; !refused && i < gguf_n_shards(g); i++) {
        int fd = open(gguf_shard_path(g, i), O_RDONLY | O_DIRECT | O_CLOEXEC);
        if (fd < 0)
            refused = gguf_shard_path(g, i);
        else
            close(fd);
    }
    if (refused)
        doctor_say(d, FOUND_NOTE, "O_DIRECT", "%s: its file system refuses it: reads go through the page cache, which takes "
                   "memory from the experts; keep models on ext4, xfs or btrfs", refused);
    else
        doctor_say(d, FOUND_OK, "O_DIRECT", "works for the model's files: reads go past the page cache");
    return 0;
}

void doctor_model(struct doctor *d, const char *path)
{
    struct engine_options o = {.model_path = path, .kv = KV_F16, .want = {.kind = CARDS_NONE, .trunk = TRUNK_AUTO}};
    struct err e = {0};

    if (engine_plan(&o, look, d, &e))
        doctor_say(d, FOUND_BAD, "model", "%s", e.msg);
}
