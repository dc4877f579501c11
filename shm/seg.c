/* Makes and maps segments. Knows roles only to choose where the pages come from; what is inside is
 * layout.h's. Nothing here has a name that outlives seg_create. */
#define _GNU_SOURCE
#include "shm/seg.h"

#include <fcntl.h>
#include <numa.h>
#include <numaif.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/size.h"

#define PAGE 4096u
#define POPULATE_STEP (16ull << 20) /* pages touched between two looks at what is left, by all threads */
#define POPULATE_THREADS 4          /* each takes its part of a step */
#define NAME_TRIES 8                 /* names are 64 random bits: a second try is already news */
#define MB(x) ((double)(x) / (1 << 20))

const char *seg_role_name(enum seg_role role)
{
    static const char *const name[] = {
        [SEG_BOARD] = "board",   [SEG_CALLS] = "calls", [SEG_ACTS] = "acts",
        [SEG_AMENDS] = "amends", [SEG_BELLS] = "bells", [SEG_TABLES] = "tables",
        [SEG_ORDERS] = "orders", [SEG_TRUNK] = "trunk", [SEG_OUTBOX] = "outbox",
        [SEG_SLABS] = "slabs",
        [SEG_STEPS] = "steps",
        [SEG_ANSWERS] = "answers",
        [SEG_PROGRAM] = "program",
        [SEG_CARD_ANSWERS] = "card answers",
        [SEG_TIMELINE] = "timeline",
    };

    return (size_t)role < sizeof name / sizeof *name && name[role] ? name[role] : "unknown";
}

static int is_large(enum seg_role role)
{
    return role == SEG_SLABS || role == SEG_TRUNK || role == SEG_ACTS || role == SEG_OUTBOX ||
           role == SEG_ANSWERS || role == SEG_TIMELINE;
}

/* A memfd's size is sealed, so that no process that holds it can shorten it under another. */
static int open_memfd(enum seg_role role, uint32_t index, uint64_t total, struct err *e)
{
    char name[64];
    int fd, rc;

    snprintf(name, sizeof name, "conclave.%s.%u", seg_role_name(role), index);
    fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_set(e, -errno, "segment %s.%u: memfd_create: %s", seg_role_name(role), index,
                       strerror(errno));
    if (ftruncate(fd, (off_t)total) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
        rc = err_set(e, -errno, "segment %s.%u: cannot set its size to %.1f MB: %s",
                     seg_role_name(role), index, MB(total), strerror(errno));
        close(fd);
        return rc;
    }
    return fd;
}

/* POSIX shm without a name, its pages allocated; -1 if /dev/shm is missing or too full. */
static int open_shm(uint64_t total)
{
    char name[40];
    uint64_t r;
    int fd = -1;

    for (int i = 0; i < NAME_TRIES && fd < 0; i++) {
        if (getrandom(&r, sizeof r, 0) != sizeof r)
            return -1;
        snprintf(name, sizeof name, "/conclave-%016llx", (unsigned long long)r);
        fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fd < 0 && errno != EEXIST)
            return -1;
    }
    if (fd < 0)
        return -1;
    shm_unlink(name);
    /* allocated now: a later write to a full /dev/shm would be a SIGBUS */
    if (ftruncate(fd, (off_t)total) || posix_fallocate(fd, 0, (off_t)total)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Asks for pages on that node. A machine without it, or a container that forbids mbind: not bound.
 */
static int bind_node(void *at, uint64_t bytes, int node)
{
    unsigned long mask[16] = {0};

    if (node < 0 || numa_available() < 0 || node > numa_max_node() ||
        (size_t)node >= 8 * sizeof mask)
        return 0;
    mask[node / (8 * sizeof *mask)] = 1ul << node % (8 * sizeof *mask);
    return mbind(at, bytes, MPOL_BIND, mask, 8 * sizeof mask, 0) == 0;
}

int seg_create(enum seg_role role, uint32_t index, uint64_t bytes, int node, struct seg *s,
               struct err *e)
{
    const char *name = seg_role_name(role);
    uint64_t left = memory_left(), total = round_up(bytes, PAGE) + SEG_HEAD_BYTES;
    struct seg_head head = {.magic = SEG_MAGIC,
                            .layout = shm_layout_hash(),
                            .role = role,
                            .index = index,
                            .bytes = bytes};
    void *map;

    *s = (struct seg){.fd = -1, .role = role, .index = index, .bytes = bytes, .writable = 1};
    if (bytes > INT64_MAX - 2 * SEG_HEAD_BYTES)
        return err_set(e, -EOVERFLOW, "segment %s.%u: %llu bytes are too many", name, index,
                       (unsigned long long)bytes);
    if (total > left)
        return err_set(e, -ENOMEM,
                       "segment %s.%u needs %.1f MB of memory, %.1f MB are left (the smallest of "
                       "MemAvailable and the cgroup limits): free memory, raise the limit or use a "
                       "smaller --ram",
                       name, index, MB(total), MB(left));
    s->fd = is_large(role) ? -1 : open_shm(total);
    if (s->fd < 0) /* large, or no room in /dev/shm: a memfd is as anonymous */
        s->fd = open_memfd(role, index, total, e);
    if (s->fd < 0)
        return s->fd;
    map = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (map == MAP_FAILED) {
        int rc = err_set(e, -errno, "segment %s.%u: cannot map %.1f MB: %s", name, index, MB(total),
                         strerror(errno));
        seg_close(s);
        return rc;
    }
    s->map = map;
    s->base = (uint8_t *)map + SEG_HEAD_BYTES;
    if (is_large(role))
        madvise(map, total, MADV_HUGEPAGE); /* asked for, not relied on */
    s->bound = bind_node(map, total, node);
    memcpy(head.build, build_id(), sizeof head.build);
    memcpy(map, &head, sizeof head);
    return 0;
}

/* ---- pages ---- */

struct populate { /* lock, but for s */
    struct seg *s;
    uint64_t next;   /* first byte that nobody has taken */
    uint64_t step;   /* what a thread takes at a time */
    uint64_t flying; /* taken, and not known to be allocated */
    int rc;
    struct err err;
    pthread_mutex_t lock;
    pthread_cond_t landed;
};

/* The next step: 1; 0: none left, or refused. All that is to come is compared with what is left: other
 * programs may be taking memory as well. What our threads are allocating is partly gone from
 * memory_left() already; where it is tight they are waited for. */
static int take_step(struct populate *p, uint64_t *at, uint64_t *n)
{
    struct seg *s = p->s;
    int got = 0;

    pthread_mutex_lock(&p->lock);
    while (!got && !p->rc && p->next < s->bytes) {
        uint64_t left = memory_left();
        *at = p->next;
        *n = s->bytes - *at < p->step ? s->bytes - *at : p->step;
        if (s->bytes - *at + p->flying <= left) {
            p->next += *n;
            p->flying += *n;
            got = 1;
        } else if (p->flying) {
            pthread_cond_wait(&p->landed, &p->lock);
        } else {
            p->rc = err_set(&p->err, -ENOMEM,
                            "segment %s.%u: %.1f of %.1f MB allocated, %.1f MB of memory left: free "
                            "memory, raise the limit or use a smaller --ram",
                            seg_role_name(s->role), s->index, MB(*at), MB(s->bytes), MB(left));
        }
    }
    pthread_mutex_unlock(&p->lock);
    return got;
}

/* 0 or a negative errno. */
static int touch(uint8_t *p, uint64_t n)
{
#ifdef MADV_POPULATE_WRITE
    if (!madvise(p, round_up(n, PAGE), MADV_POPULATE_WRITE))
        return 0;
    if (errno != EINVAL) /* EINVAL: Linux before 5.14, touched by hand below */
        return -errno;
#endif
    for (uint64_t i = 0; i < n; i += PAGE) /* keeps what is there, whoever writes meanwhile */
        atomic_fetch_or_explicit((_Atomic uint8_t *)p + i, 0, memory_order_relaxed);
    return 0;
}

static void *populate(void *arg)
{
    struct populate *p = arg;
    struct seg *s = p->s;
    uint64_t at, n;

    while (take_step(p, &at, &n)) {
        int rc = touch((uint8_t *)s->base + at, n);
        pthread_mutex_lock(&p->lock);
        p->flying -= n;
        if (rc && !p->rc)
            p->rc = err_set(&p->err, rc, "segment %s.%u: cannot allocate %.1f MB at %.1f MB: %s",
                            seg_role_name(s->role), s->index, MB(n), MB(at), strerror(-rc));
        pthread_cond_broadcast(&p->landed);
        pthread_mutex_unlock(&p->lock);
    }
    return NULL;
}

/* One for each CPU that this process may use, and no more than there are steps. */
static int populate_threads(uint64_t bytes)
{
    uint64_t steps = bytes / POPULATE_STEP + 1;
    cpu_set_t may;
    int n = sched_getaffinity(0, sizeof may, &may) ? 1 : CPU_COUNT(&may);

    n = n < POPULATE_THREADS ? n : POPULATE_THREADS;
    return steps < (uint64_t)n ? (int)steps : n;
}

int seg_populate(struct seg *s, struct err *e)
{
    struct populate p = {
        .s = s, .lock = PTHREAD_MUTEX_INITIALIZER, .landed = PTHREAD_COND_INITIALIZER};
    pthread_t thread[POPULATE_THREADS];
    int n = populate_threads(s->bytes), started = 0;

    p.step = POPULATE_STEP / (unsigned)n & -(uint64_t)PAGE;
    /* a thread that cannot be had is one helper less */
    while (started < n - 1 && !pthread_create(&thread[started], NULL, populate, &p))
        started++;
    populate(&p);
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    return p.rc ? err_set(e, p.rc, "%s", p.err.msg) : 0;
}

static int check_head(const struct seg_head *h, const struct seg *s, uint64_t file_bytes,
                      struct err *e)
{
    const char *name = seg_role_name(s->role);

    if (h->magic != SEG_MAGIC)
        return err_set(e, -EPROTO, "segment %s.%u: not a segment of this program", name, s->index);
    if (memcmp(h->build, build_id(), sizeof h->build) || h->layout != shm_layout_hash())
        return err_set(
            e, -EPROTO,
            "segment %s.%u was made by build %.16s, this program is build %s: use programs "
            "of one build",
            name, s->index, h->build, build_id());
    if (h->role != s->role || h->index != s->index)
        return err_set(e, -EPROTO, "segment %s.%u expected, found %s.%u", name, s->index,
                       seg_role_name((enum seg_role)h->role), h->index);
    if (h->bytes > file_bytes - SEG_HEAD_BYTES)
        return err_set(e, -EPROTO, "segment %s.%u: its head says %llu bytes, it holds %llu", name,
                       s->index, (unsigned long long)h->bytes,
                       (unsigned long long)(file_bytes - SEG_HEAD_BYTES));
    return 0;
}

int seg_map(int fd, enum seg_role role, uint32_t index, int writable, struct seg *s, struct err *e)
{
    const char *name = seg_role_name(role);
    struct seg_head head;
    struct stat st;
    void *map;
    int rc;

    *s = (struct seg){.fd = fd, .role = role, .index = index, .writable = writable};
    if (fstat(fd, &st)) {
        rc = err_set(e, -errno, "segment %s.%u: descriptor %d: %s", name, index, fd,
                     strerror(errno));
        s->fd = -1; /* there was none */
        return rc;
    }
    if (st.st_size < (off_t)SEG_HEAD_BYTES) {
        rc = err_set(e, -EPROTO, "segment %s.%u: descriptor %d holds %lld bytes, no segment", name,
                     index, fd, (long long)st.st_size);
        seg_close(s);
        return rc;
    }
    map =
        mmap(NULL, (size_t)st.st_size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        rc = err_set(e, -errno, "segment %s.%u: cannot map %.1f MB: %s", name, index,
                     MB(st.st_size), strerror(errno));
        seg_close(s);
        return rc;
    }
    s->map = map;
    s->base = (uint8_t *)map + SEG_HEAD_BYTES;
    s->bytes = (uint64_t)st.st_size - SEG_HEAD_BYTES; /* for seg_close, until the head is checked */
    memcpy(&head, map, sizeof head);
    rc = check_head(&head, s, (uint64_t)st.st_size, e);
    if (rc) {
        seg_close(s);
        return rc;
    }
    s->bytes = head.bytes;
    if (is_large(role))
        madvise(map, (size_t)st.st_size, MADV_HUGEPAGE);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return 0;
}

int seg_reader_fd(const struct seg *s, struct err *e)
{
    char path[40];
    int fd;

    snprintf(path, sizeof path, "/proc/self/fd/%d", s->fd);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, -errno, "segment %s.%u: cannot open it for reading only: %s",
                       seg_role_name(s->role), s->index, strerror(errno));
    return fd;
}

void seg_close(struct seg *s)
{
    if (s->map)
        munmap(s->map, round_up(s->bytes, PAGE) + SEG_HEAD_BYTES);
    if (s->fd >= 0)
        close(s->fd);
    s->map = s->base = NULL;
    s->fd = -1;
}
