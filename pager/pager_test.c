/* The pager as a process of its own, with real segments and real files: both forms of reading,
 * direct and buffered, odd places, failures, the end. */
#define _GNU_SOURCE
#include "pager/pager.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "shm/bell.h"
#include "shm/orders.h"
#include "tests/test.h"

extern char **environ;

enum {
    SLOTS = 8,
    OUTBOX = 5,
    NODES = 2,
    SEG = 4 << 20, /* bytes of each place */
    ROOM = SEG / SLOTS,
    WAIT_MS = 20000, /* far more than any of this takes */
};
static const uint64_t FILE_BYTES = (3 << 20) + 1234; /* an odd tail */

/* ---- files: byte i is a function of i and of the file's salt ---- */

static uint8_t byte_at(uint64_t i, unsigned salt)
{
    uint64_t x = (i / 8 + 1) * 0x9E3779B97F4A7C15ull + salt;

    x ^= x >> 29;
    return (uint8_t)((x * 0xBF58476D1CE4E5B9ull) >> (8 * (i % 8)));
}

static const char *tmp_dir(void)
{
    const char *d = getenv("TMPDIR");

    if (d)
        return d;
    mkdir("build", 0777);
    mkdir("build/tmp", 0777);
    return "build/tmp";
}

/* Makes a file, opens it for reading, removes its name. -1: cannot be opened so (O_DIRECT on
 * tmpfs). */
static int make_file(const char *dir, uint64_t bytes, unsigned salt, int flags)
{
    char path[4096];
    uint8_t *all = malloc(bytes);
    int w, r;

    snprintf(path, sizeof path, "%s/pager-test-%ld", dir, (long)getpid());
    w = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (uint64_t i = 0; i < bytes; i++)
        all[i] = byte_at(i, salt);
    if (w < 0 || write(w, all, bytes) != (ssize_t)bytes || fsync(w)) {
        CHECK(0, "%s: cannot be written", path);
        exit(test_end());
    }
    posix_fadvise(w, 0, 0, POSIX_FADV_DONTNEED);
    r = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (r >= 0 && flags & O_DIRECT &&
        pread(r, (void *)(((uintptr_t)all + 4095) & ~4095ull), 4096, 0) != 4096) {
        close(r);
        r = -1;
    }
    close(w);
    unlink(path);
    free(all);
    return r;
}

static size_t cached_pages(int fd, uint64_t bytes)
{
    size_t n = (bytes + 4095) / 4096, sum = 0;
    unsigned char *v = calloc(n, 1);
    void *m = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);

    if (m == MAP_FAILED || mincore(m, bytes, v))
        sum = n;
    for (size_t i = 0; i < n; i++)
        sum += v[i] & 1;
    munmap(m, bytes);
    free(v);
    return sum;
}

/* ---- a pager and what it shares with us ---- */

struct rig {
    struct seg board, orders, bells, box, trunk, slab[NODES];
    int ctl;
    pid_t pid;
    uint64_t next;
    int file[4];
    int n_files;
};
enum trick { NO_TRICK, NO_IO_URING, NO_LOCKED_MEMORY };

static struct board *board(struct rig *r)
{
    return r->board.base;
}
static struct pager_box *box(struct rig *r)
{
    return r->box.base;
}
static const struct geometry *geo(struct rig *r)
{
    return &board(r)->geo;
}

static void make_segments(struct rig *r)
{
    struct geometry g = {.n_nodes = NODES, .order_slots = SLOTS};
    struct err e = {0};
    int rc = seg_create(SEG_BOARD, 0, sizeof(struct board), -1, &r->board, &e);

    rc = rc ? rc : seg_create(SEG_ORDERS, 0, orders_bytes(&g), -1, &r->orders, &e);
    rc = rc ? rc : seg_create(SEG_BELLS, 0, MAX_PROCS * sizeof(struct bell), -1, &r->bells, &e);
    rc = rc ? rc : seg_create(SEG_OUTBOX, OUTBOX, pager_box_bytes(&g), -1, &r->box, &e);
    rc = rc ? rc : seg_create(SEG_TRUNK, 0, SEG, -1, &r->trunk, &e);
    for (uint32_t i = 0; i < NODES; i++)
        rc = rc ? rc : seg_create(SEG_SLABS, i, SEG, -1, &r->slab[i], &e);
    if (rc) {
        CHECK(0, "%s", e.msg);
        exit(test_end());
    }
    board(r)->geo = g;
}

static void no_io_uring(void)
{
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {.len = sizeof f / sizeof *f, .filter = f};

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

static void no_locked_memory(void)
{
    struct rlimit l = {1 << 20, 1 << 20};

    setrlimit(RLIMIT_MEMLOCK, &l);
    if (!getuid() && setresuid(65534, 65534, 65534)) /* root may lock what it wants */
        _exit(99);
    prctl(PR_SET_DUMPABLE, 1); /* the leak check wants it */
}

/* The child of a fork: what main.c does. */
static _Noreturn void child_main(struct rig *r, int ctl, enum trick trick)
{
    struct child c = {.ctl = ctl, .outbox = OUTBOX, .n_segs = 5 + NODES};
    struct err e = {0};
    int rc;

    if (trick == NO_IO_URING)
        no_io_uring();
    if (trick == NO_LOCKED_MEMORY)
        no_locked_memory();
    c.seg[0] = r->board;
    c.seg[1] = r->orders;
    c.seg[2] = r->bells;
    c.seg[3] = r->box;
    c.seg[4] = r->trunk;
    for (int i = 0; i < NODES; i++)
        c.seg[5 + i] = r->slab[i];
    rc = pager_run(&c, &e);
    if (rc)
        ctl_sendf(ctl, CTL_ERROR, 0, "%s", e.msg);
    fflush(stdout);
    exit(rc != 0);
}

/* The program build/[SAN/]bin/conclave-pager beside build/[SAN/]test/pager/pager_test. */
static int program_path(char *path, size_t n)
{
    ssize_t len = readlink("/proc/self/exe", path, n - 32);
    char *test;

    path[len > 0 ? len : 0] = 0;
    test = strstr(path, "/test/pager/");
    if (!test)
        return 0;
    strcpy(test, "/bin/conclave-pager");
    return access(path, X_OK) == 0;
}

static pid_t spawn_program(struct rig *r, const char *path, int ctl)
{
    static const char mode[] = "rrwwwww";
    const struct seg *s[] = {&r->board, &r->orders,  &r->bells,  &r->box,
                             &r->trunk, &r->slab[0], &r->slab[1]};
    char arg[11][40], *argv[12];
    posix_spawn_file_actions_t fa;
    pid_t pid = -1;

    snprintf(arg[0], sizeof arg[0], "conclave-pager");
    snprintf(arg[1], sizeof arg[1], "%ld", (long)getpid());
    snprintf(arg[2], sizeof arg[2], "%d", OUTBOX);
    snprintf(arg[3], sizeof arg[3], "%d", 100);
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, ctl, 100);
    for (int i = 0; i < 7; i++) {
        posix_spawn_file_actions_adddup2(&fa, s[i]->fd, 101 + i);
        snprintf(arg[4 + i], sizeof arg[0], "%d:%u:%d:%c", (int)s[i]->role, s[i]->index, 101 + i,
                 mode[i]);
    }
    for (int i = 0; i < 11; i++)
        argv[i] = arg[i];
    argv[11] = NULL;
    if (posix_spawn(&pid, path, &fa, NULL, argv, environ))
        pid = -1;
    posix_spawn_file_actions_destroy(&fa);
    return pid;
}

static int expect(struct rig *r, enum ctl_kind kind, struct ctl_msg *m)
{
    int fd;

    for (;;) {
        if (ctl_recv(r->ctl, m, &fd, WAIT_MS) != 1)
            return 0;
        if (m->kind == (uint32_t)kind)
            return 1;
        if (m->kind == CTL_ERROR || (kind == CTL_LOG && m->kind == CTL_READY))
            return 0;
    }
}

/* A log line with these words. */
static int expect_log(struct rig *r, const char *words, struct ctl_msg *m)
{
    while (expect(r, CTL_LOG, m))
        if (strstr(m->text, words))
            return 1;
    return 0;
}

/* program: path, or NULL: fork. Files: fd[i], opened directly or not. */
static struct rig *start(const char *program, const char *io, enum trick trick, const int *fd,
                         int n, int direct)
{
    struct rig *r = calloc(1, sizeof *r);
    struct ctl_msg m;
    struct err e = {0};
    int pair[2];

    make_segments(r);
    r->next = 1;
    CHECK_EQ(ctl_pair(pair, &e), 0);
    r->ctl = pair[0];
    if (io)
        setenv("CONCLAVE_IO", io, 1);
    else
        unsetenv("CONCLAVE_IO");
    fflush(stdout);
    r->pid = program ? spawn_program(r, program, pair[1]) : fork();
    if (!r->pid) {
        close(pair[0]);
        test_passed = test_failed = 0;
        child_main(r, pair[1], trick);
    }
    CHECK(r->pid > 0, "no child");
    close(pair[1]);
    for (int i = 0; i < n; i++) {
        m = (struct ctl_msg){
            .kind = CTL_FILE, .flags = (uint32_t)direct, .a = (uint64_t)i, .b = FILE_BYTES};
        snprintf(m.text, sizeof m.text, "file-%d.gguf", i);
        CHECK_EQ(ctl_send(r->ctl, &m, fd[i]), 0);
        r->file[i] = fd[i];
    }
    r->n_files = n;
    CHECK_EQ(ctl_sendf(r->ctl, CTL_START, 0, "%s", ""), 0);
    return r;
}

static struct rig *start_ready(const char *program, const char *io, const int *fd, int n,
                               int direct)
{
    struct rig *r = start(program, io, NO_TRICK, fd, n, direct);
    struct ctl_msg m;

    if (!direct)
        CHECK(expect_log(r, n > 1 ? "file-0.gguf and others: O_DIRECT is refused there"
                                  : "file-0.gguf: O_DIRECT is refused there", &m), "not said: %s", m.text);
    CHECK(expect(r, CTL_READY, &m), "no answer: %s", m.text);
    CHECK(!io || !strcmp(m.text, io), "reads with %s", m.text);
    return r;
}

static int wait_exit(struct rig *r)
{
    int st = 0;

    for (int i = 0; i < WAIT_MS && waitpid(r->pid, &st, WNOHANG) == 0; i++)
        usleep(1000);
    return WIFEXITED(st) ? WEXITSTATUS(st) : 1000 + WTERMSIG(st);
}

static void free_rig(struct rig *r)
{
    seg_close(&r->board);
    seg_close(&r->orders);
    seg_close(&r->bells);
    seg_close(&r->box);
    seg_close(&r->trunk);
    for (int i = 0; i < NODES; i++)
        seg_close(&r->slab[i]);
    if (r->ctl >= 0)
        close(r->ctl);
    free(r);
}

static void stop(struct rig *r)
{
    ctl_sendf(r->ctl, CTL_QUIT, 0, "%s", "");
    CHECK_EQ(wait_exit(r), 0);
    free_rig(r);
}

static void publish(struct rig *r, struct order *o)
{
    o->number = r->next++;
    for (int i = 0; i < WAIT_MS && !order_room(geo(r), box(r), o->number); i++)
        usleep(1000);
    order_publish(geo(r), r->orders.base, o, (struct bell *)r->bells.base + OUTBOX,
                  &box(r)->asleep);
}

struct answer_look {
    struct rig *r;
    uint64_t number;
};
static int answered(void *arg)
{
    struct answer_look *a = arg;

    return order_answer(geo(a->r), box(a->r), a->number) ? LOOK_FOUND : LOOK_NOTHING;
}
/* 1 done, -1 failed, 0: never. As the steward would wait. */
static int wait_answer(struct rig *r, uint64_t number)
{
    struct answer_look a = {r, number};
    struct bell *b = (struct bell *)r->bells.base + PROC_STEWARD;

    for (int i = 0; i < WAIT_MS / BELL_NET_MS && !answered(&a); i++)
        bell_sleep(b, &board(r)->asleep_steward, answered, &a, 0);
    return order_answer(geo(r), box(r), number);
}

static uint8_t *place(struct rig *r, uint32_t seg)
{
    return seg ? r->slab[seg - 1].base : r->trunk.base;
}

/* Bytes [at, at + n) of a file to dst of a place. */
static struct order_piece piece(uint32_t shard, uint64_t at, uint64_t n, uint32_t seg, uint64_t dst)
{
    uint64_t from = at & ~4095ull;

    return (struct order_piece){.shard = shard,
                                .seg = seg,
                                .file_off = from,
                                .bytes = (at + n - from + 4095) & ~4095ull,
                                .need = at + n - from,
                                .dst = dst};
}

static uint64_t wrong_bytes(struct rig *r, const struct order_piece *p, uint64_t at)
{
    uint64_t wrong = 0;

    for (uint64_t i = at - p->file_off; i < p->need; i++)
        wrong += place(r, p->seg)[p->dst + i] != byte_at(p->file_off + i, p->shard);
    return wrong;
}

/* ---- the tests ---- */

static void read_places(struct rig *r)
{
    static const struct {
        uint64_t at, n;
    } c[] = {{0, 1},          {1, 4096},     {4095, 2},           {4096, 8192}, {12345, 700000},
             {3 << 20, 1234}, {3145800, 50}, {FILE_BYTES - 1, 1}, {0, SEG / 4}, {513, 3 << 20}};
    struct order o = {.kind = ORDER_READ, .layer = 3, .expert = 1};

    for (unsigned i = 0; i < sizeof c / sizeof *c; i++) {
        uint64_t n = c[i].n;
        o.n_pieces = 1;
        o.piece[0] = piece(i % 2, c[i].at, n, i % 3, 4096 * i);
        memset(place(r, i % 3), 0xEE, SEG);
        publish(r, &o);
        CHECK_EQ(wait_answer(r, o.number), 1);
        CHECK_EQ(wrong_bytes(r, &o.piece[0], c[i].at), 0);
        CHECK_EQ(place(r, i % 3)[o.piece[0].dst + o.piece[0].bytes], 0xEE); /* no byte behind it */
    }
    CHECK_EQ(atomic_load(&box(r)->count.orders), sizeof c / sizeof *c);
    CHECK_EQ(atomic_load(&box(r)->count.expert_reads), sizeof c / sizeof *c);
    CHECK_EQ(atomic_load(&box(r)->count.errors), 0);
    CHECK(atomic_load(&box(r)->count.reads) > sizeof c / sizeof *c, "large pieces are not split");
}

/* Far more orders than slots, all priorities, several pieces each, always as many open as there is
 * room for. */
static void read_many(struct rig *r, unsigned n)
{
    struct order o[SLOTS];
    uint64_t first = r->next, wrong = 0, bad = 0;

    srand(7);
    for (unsigned i = 0; i < n + SLOTS; i++) {
        struct order *s = &o[i % SLOTS];
        if (i >= SLOTS) {
            bad += wait_answer(r, s->number) != 1;
            for (uint32_t k = 0; k < s->n_pieces; k++)
                wrong += wrong_bytes(r, &s->piece[k], s->piece[k].file_off);
        }
        if (i >= n)
            continue;
        *s = (struct order){.kind = ORDER_READ, .prio = (uint32_t)rand() % 3, .layer = UINT32_MAX};
        s->n_pieces = 1 + (uint32_t)rand() % 6;
        for (uint32_t k = 0; k < s->n_pieces;
             k++) { /* a slot's own part of each place, cut in two */
            uint64_t bytes = (uint64_t)rand() % (i % 8 ? 20000 : ROOM / 2 - 8192) + 1;
            uint64_t at = (uint64_t)rand() % (FILE_BYTES - bytes);
            s->piece[k] = piece((uint32_t)rand() % 2, at, bytes, k % 3,
                                (i % SLOTS) * ROOM + (k / 3) * (ROOM / 2));
        }
        publish(r, s);
    }
    CHECK_EQ(bad, 0);
    CHECK_EQ(wrong, 0);
    CHECK_EQ(r->next - first, n);
    CHECK_EQ(atomic_load(&box(r)->count.net_finds), 0);
}

/* An idle pager uses no processor time: ticks of 10 ms over 0.4 s. */
static unsigned long ticks(pid_t pid)
{
    char path[64], text[1024] = "", *p;
    unsigned long u = 0, s = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    f = fopen(path, "r");
    if (f && fgets(text, sizeof text, f) && (p = strrchr(text, ')')))
        sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &u, &s);
    if (f)
        fclose(f);
    return u + s;
}

static void test_form(const char *program, const char *io, const int *fd, int direct, int on_disk)
{
    struct rig *r = start_ready(program, io, fd, 2, direct);
    unsigned long before;

    read_places(r);
    read_many(r, 300);
    if (on_disk)
        CHECK_EQ(cached_pages(fd[0], FILE_BYTES) + cached_pages(fd[1], FILE_BYTES), 0);
    before = ticks(r->pid);
    usleep(400000);
    CHECK(ticks(r->pid) - before <= 4, "%lu ticks", ticks(r->pid) - before);
    stop(r);
}

/* The file became shorter after it was opened. */
static void test_truncated(const char *io, int direct)
{
    int fd[2] = {make_file(tmp_dir(), FILE_BYTES, 0, direct ? O_DIRECT : 0),
                 make_file(tmp_dir(), FILE_BYTES, 1, direct ? O_DIRECT : 0)};
    struct rig *r = start_ready(NULL, io, fd, 2, direct);
    struct order o = {.kind = ORDER_READ, .layer = 4, .expert = 77, .n_pieces = 2};
    char path[64];
    struct ctl_msg m;
    uint8_t *slab = place(r, 1);

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd[1]);
    CHECK_EQ(truncate(path, (1 << 20) + 100), 0);
    o.piece[0] = piece(0, 5, 100000, 0, 0);
    o.piece[1] = piece(1, 4096, 2 << 20, 1, 8192);
    publish(r, &o);
    CHECK_EQ(wait_answer(r, o.number), -1);
    CHECK(expect(r, CTL_ERROR, &m), "no line about it");
    CHECK_EQ(m.a, o.number);
    CHECK(strstr(m.text, "file-1.gguf: byte 1") && strstr(m.text, "layer 4, expert 77") &&
              strstr(m.text, "ends at byte 1048676"),
          "%s", m.text);
    usleep(20000);
    memset(slab, 0x55, SEG); /* nothing lands after the answer */
    usleep(100000);
    for (size_t i = 0; i < SEG; i += 512)
        if (slab[i] != 0x55) {
            CHECK(0, "byte %zu was written after the answer", i);
            break;
        }
    o.layer = UINT32_MAX; /* a trunk tensor; behind the new end from its first byte on */
    o.expert = 12;
    o.n_pieces = 1;
    o.piece[0] = piece(1, 2 << 20, 1000, 1, 0);
    publish(r, &o);
    CHECK_EQ(wait_answer(r, o.number), -1);
    CHECK(expect(r, CTL_ERROR, &m), "no line about it");
    CHECK(strstr(m.text, "file-1.gguf: byte 2097152: ") && strstr(m.text, "trunk tensor 12"), "%s",
          m.text);
    o.piece[0] = piece(0, 999, 54321, 1, 0); /* and the other file is read as before */
    publish(r, &o);
    CHECK_EQ(wait_answer(r, o.number), 1);
    CHECK_EQ(wrong_bytes(r, &o.piece[0], 999), 0);
    CHECK_EQ(atomic_load(&box(r)->count.errors), 2);
    stop(r);
    close(fd[0]);
    close(fd[1]);
}

/* A descriptor that cannot be read at all. */
static void test_unreadable(const char *io)
{
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    struct rig *r = start_ready(NULL, io, &fd, 1, 0);
    struct order o = {.kind = ORDER_READ, .layer = 0, .expert = 3, .n_pieces = 1};
    struct ctl_msg m;

    o.piece[0] = piece(0, 8192, 3 << 20 >> 1, 1, 0);
    publish(r, &o);
    CHECK_EQ(wait_answer(r, o.number), -1);
    CHECK(expect(r, CTL_ERROR, &m), "no line about it");
    CHECK(strstr(m.text,
                 "file-0.gguf: byte 8192: cannot read layer 0, expert 3: Bad file descriptor") ||
              strstr(m.text, "cannot read layer 0, expert 3: "),
          "%s", m.text);
    stop(r);
    close(fd);
}

static struct order_piece copied(uint32_t shard, uint64_t at, uint64_t n, uint32_t seg, uint64_t dst)
{
    return (struct order_piece){.shard = shard,
                                .seg = seg,
                                .file_off = at,
                                .bytes = n,
                                .need = n,
                                .dst = dst,
                                .flags = PIECE_COPY};
}

static uint64_t hash_of(const struct order_piece *p)
{
    uint8_t *all = malloc(p->need);
    uint64_t h;

    for (uint64_t i = 0; i < p->need; i++)
        all[i] = byte_at(p->file_off + i, p->shard);
    h = XXH3_64bits(all, p->need);
    free(all);
    return h;
}

/* Any bytes to any place, and no other byte is touched. */
static void read_copied(struct rig *r)
{
    static const struct {
        uint64_t at, n, dst;
    } c[] = {{0, 1, 1},           {4095, 2, 4094},       {123, 4096, 7},         {513, 3 << 20, 99},
             {4096, 8192, 12288}, {FILE_BYTES - 1, 1, 0}, {3 << 20, 1234, 555555}, {77, 700000, SEG - 700000}};
    const unsigned n = sizeof c / sizeof *c;
    struct order o = {.kind = ORDER_READ, .n_pieces = 1};

    for (unsigned i = 0; i < n; i++) {
        uint8_t *at = place(r, i % 3);
        memset(at, 0xEE, SEG);
        o.piece[0] = copied(i % 2, c[i].at, c[i].n, i % 3, c[i].dst);
        o.piece[0].flags |= PIECE_CHECK;
        o.piece[0].xxh = hash_of(&o.piece[0]);
        publish(r, &o);
        CHECK_EQ(wait_answer(r, o.number), 1);
        CHECK_EQ(wrong_bytes(r, &o.piece[0], c[i].at), 0);
        CHECK(!c[i].dst || at[c[i].dst - 1] == 0xEE, "the byte before it was written");
        CHECK(c[i].dst + c[i].n == SEG || at[c[i].dst + c[i].n] == 0xEE, "the byte behind it was written");
    }
    o.n_pieces = ORDER_PIECES; /* one place, from many odd parts */
    for (uint32_t i = 0; i < ORDER_PIECES; i++)
        o.piece[i] = copied(i % 2, 1000 + i * 60001ull, 60001, 1, 3 + i * 60001ull);
    publish(r, &o);
    CHECK_EQ(wait_answer(r, o.number), 1);
    for (uint32_t i = 0; i < ORDER_PIECES; i++)
        CHECK_EQ(wrong_bytes(r, &o.piece[i], o.piece[i].file_off), 0);
}

/* Right checksums pass; a wrong one fails its order, told as what it ends. */
static void read_checked(struct rig *r)
{
    struct order o = {.kind = ORDER_READ, .layer = 4, .expert = 77, .n_pieces = 3};
    struct ctl_msg m;
    uint32_t bad;

    for (unsigned i = 0; i < 3; i++) {
        o.piece[i] = piece(i % 2, 4096 * i, (1 << 20) + 99 * i, i, 0);
        o.piece[i].flags = PIECE_CHECK;
        o.piece[i].xxh = hash_of(&o.piece[i]);
    }
    publish(r, &o);
    CHECK_EQ(wait_answer(r, o.number), 1);
    CHECK_EQ(order_why(geo(r), box(r), o.number, NULL), ORDER_WHY_OK);
    CHECK(atomic_load(&box(r)->count.checked_bytes) >= 3 << 20, "nothing was hashed");
    o.piece[2].xxh ^= 1ull << 40;
    for (int soft = 0; soft < 2; soft++) {
        o.flags = soft ? ORDER_SOFT : 0;
        publish(r, &o);
        CHECK_EQ(wait_answer(r, o.number), -1);
        CHECK_EQ(order_why(geo(r), box(r), o.number, &bad), ORDER_WHY_CHECKSUM);
        CHECK_EQ(bad, 2);
        CHECK(soft ? expect_log(r, "checksum", &m) : expect(r, CTL_ERROR, &m), "no line about it");
        CHECK_EQ(m.a, soft ? 1 : o.number);
        CHECK(strstr(m.text, "file-0.gguf: byte 8192: cannot read layer 4, expert 77: 1048774 bytes "
                             "have another checksum"),
              "%s", m.text);
    }
    CHECK_EQ(atomic_load(&box(r)->count.bad_checksums), 2);
    CHECK_EQ(atomic_load(&box(r)->count.errors), 2);
}

/* The pager sees all of them together: a large order, another, then what changes them. */
static void publish_stopped(struct rig *r, struct order *o, unsigned n)
{
    int status;

    kill(r->pid, SIGSTOP);
    CHECK(waitpid(r->pid, &status, WUNTRACED) == r->pid && WIFSTOPPED(status), "the pager does not stop"); /* not at once */
    for (unsigned i = 0; i < n; i++)
        publish(r, &o[i]);
    kill(r->pid, SIGCONT);
}

static struct order large(uint32_t prio, uint32_t seg)
{
    struct order o = {.kind = ORDER_READ, .prio = prio, .n_pieces = ORDER_PIECES};

    for (uint32_t i = 0; i < ORDER_PIECES; i++)
        o.piece[i] = piece(0, 0, 3 << 20, seg, 0);
    return o;
}

/* Reads of two orders that nobody needs any more. When they are answered, nothing lands any more; an
 * order that was cancelled after its end is left alone. */
static void cancel_reads(struct rig *r)
{
    struct order o[4] = {large(PRIO_PREFETCH, 1), large(PRIO_WARM, 1), {.kind = ORDER_CANCEL}, {.kind = ORDER_CANCEL}};
    uint64_t before = atomic_load(&box(r)->count.bytes);

    o[2].target = r->next;
    o[3].target = r->next + 1;
    publish_stopped(r, o, 4);
    for (int i = 3; i >= 0; i--)
        CHECK_EQ(wait_answer(r, o[i].number), i < 2 ? -1 : 1);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(order_why(geo(r), box(r), o[i].number, NULL), ORDER_WHY_CANCELLED);
    memset(place(r, 1), 0x55, SEG);
    CHECK_EQ(atomic_load(&box(r)->count.cancelled), 2);
    CHECK_EQ(atomic_load(&box(r)->count.errors), 0);
    CHECK(atomic_load(&box(r)->count.bytes) - before < (uint64_t)ORDER_PIECES * (3 << 20), "all was read");
    o[0] = (struct order){.kind = ORDER_READ, .n_pieces = 1};
    o[0].piece[0] = piece(1, 5, 1 << 20, 2, 4096);
    publish(r, &o[0]);
    CHECK_EQ(wait_answer(r, o[0].number), 1);
    CHECK_EQ(wrong_bytes(r, &o[0].piece[0], 5), 0);
    for (int i = 0; i < 2; i++) {
        o[2].target = o[0].number;
        o[2].kind = i ? ORDER_RAISE : ORDER_CANCEL;
        publish(r, &o[2]);
        CHECK_EQ(wait_answer(r, o[2].number), 1);
        CHECK_EQ(order_answer(geo(r), box(r), o[0].number), 1);
    }
    for (size_t i = 0; i < SEG; i += 512)
        if (place(r, 1)[i] != 0x55) {
            CHECK(0, "byte %zu was written after the answer", i);
            break;
        }
}

/* Two orders read into the same place; the one that was raised was read before the end of the other,
 * which has the last word there, but for a thread that was stopped in the middle of a read. A pager that gets no
 * processor between the orders may have read all before it sees the raise: then once more. */
static void raise_read(struct rig *r)
{
    uint64_t late = 3 << 20, tries = 0;

    while (late >= 3 << 19 && tries < 20) {
        struct order o[3] = {large(PRIO_WARM, 1), {.kind = ORDER_READ, .prio = PRIO_WARM, .n_pieces = 1},
                             {.kind = ORDER_RAISE}};
        o[1].piece[0] = piece(1, 0, 3 << 20, 1, 0);
        o[2].target = r->next + 1;
        o[2].prio = PRIO_DEMAND;
        publish_stopped(r, o, 3);
        for (int i = 0; i < 3; i++)
            CHECK_EQ(wait_answer(r, o[i].number), 1);
        late = wrong_bytes(r, &o[0].piece[0], 0);
        tries++;
    }
    CHECK(late < 3 << 19, "%llu bytes came later, %llu times", (unsigned long long)late, (unsigned long long)tries);
    CHECK(atomic_load(&box(r)->count.raised) >= 1 && atomic_load(&box(r)->count.raised) <= tries, "%llu raised",
          (unsigned long long)atomic_load(&box(r)->count.raised));
}

static void test_words(const char *program, const char *io, const int *fd, int direct)
{
    struct rig *r = start_ready(program, io, fd, 2, direct);

    cancel_reads(r);
    raise_read(r);
    read_copied(r);
    read_checked(r);
    stop(r);
}

static void test_impossible_orders(const char *program, const int *fd)
{
    struct order good = {.kind = ORDER_READ, .layer = 0, .expert = 3, .n_pieces = 1}, bad[6];
    struct ctl_msg m;

    good.piece[0] = piece(0, 0, 8192, 1, 0);
    for (int i = 0; i < 6; i++)
        bad[i] = good;
    bad[0].kind = 9;
    bad[1].piece[0].shard = 2;
    bad[2].piece[0].seg = NODES + 1;
    bad[3].piece[0].dst = SEG - 4096;
    bad[4].piece[0].file_off = 1;
    bad[5].piece[0].need = 8193;
    for (int i = 0; i < 6; i++) {
        struct rig *r = start_ready(i ? NULL : program, NULL, fd, 2, 0);
        publish(r, &good);
        publish(r, &bad[i]);
        publish(r, &good); /* never read */
        CHECK(expect(r, CTL_ERROR, &m) || m.kind == CTL_ERROR, "no line about it");
        CHECK(strstr(m.text, "order 2"), "%s", m.text);
        CHECK_EQ(wait_exit(r), 1);
        CHECK_EQ(order_answer(geo(r), box(r), 2), 0);
        CHECK_EQ(order_answer(geo(r), box(r), 3), 0);
        free_rig(r);
    }
}

static void test_ends(const int *fd, const char *io)
{
    struct order o = {.kind = ORDER_READ, .layer = 0, .expert = 3, .n_pieces = 1};
    struct ctl_msg m;
    struct rig *r;

    for (int how = 0; how < 3; how++) { /* with reads out: CTL_QUIT, SIGTERM, the parent has gone */
        r = start_ready(NULL, io, fd, 2, 1);
        for (uint32_t i = 0; i < 1 + NODES; i++) {
            o.piece[0] = piece(i % 2, 0, 3 << 20, i, 0);
            publish(r, &o);
        }
        if (how == 0)
            ctl_sendf(r->ctl, CTL_QUIT, 0, "%s", "");
        else if (how == 1)
            kill(r->pid, SIGTERM);
        else {
            close(r->ctl);
            r->ctl = -1;
        }
        CHECK_EQ(wait_exit(r), 0);
        for (uint64_t n = 1; n <= 1 + NODES; n++) /* what was answered is there */
            if (order_answer(geo(r), box(r), n) == 1) {
                o.piece[0] = piece((n - 1) % 2, 0, 3 << 20, (uint32_t)n - 1, 0);
                CHECK_EQ(wrong_bytes(r, &o.piece[0], 0), 0);
            }
        memset(place(r, 1), 0x55, SEG);
        usleep(20000);
        for (size_t i = 0; i < SEG; i++)
            if (place(r, 1)[i] != 0x55) {
                CHECK(0, "byte %zu was written after the end", i);
                break;
            }
        free_rig(r);
    }
    r = start(NULL, "neither", NO_TRICK, fd, 2, 1);
    CHECK(!expect(r, CTL_READY, &m) && strstr(m.text, "CONCLAVE_IO is 'neither'"), "%s", m.text);
    CHECK_EQ(wait_exit(r), 1);
    free_rig(r);
}

static void test_refused_io_uring(const int *fd, int direct)
{
    struct rig *r = start(NULL, NULL, NO_IO_URING, fd, 2, direct);
    struct ctl_msg m;

    CHECK(expect_log(r, "io_uring is not available", &m), "%s", m.text);
    CHECK(expect(r, CTL_READY, &m), "%s", m.text);
    CHECK_STR(m.text, "threads");
    read_places(r);
    stop(r);
    r = start(NULL, "uring", NO_IO_URING, fd, 2, direct); /* demanded: no other form */
    CHECK(!expect(r, CTL_READY, &m) && strstr(m.text, "io_uring is not available"), "%s", m.text);
    CHECK_EQ(wait_exit(r), 1);
    free_rig(r);
}

static void test_small_memlock(const int *fd, int direct)
{
    struct rig *r = start(NULL, "uring", NO_LOCKED_MEMORY, fd, 2, direct);
    struct ctl_msg m;

    CHECK(expect_log(r, "limit of locked memory 1024 KiB", &m), "%s", m.text);
    CHECK(expect(r, CTL_READY, &m), "%s", m.text);
    read_places(r);
    read_many(r, 50);
    stop(r);
}

int main(void)
{
    char program[4096];
    int has_program = program_path(program, sizeof program);
    int disk[2], plain[2], tmpfs[2];
    int direct;

    for (unsigned i = 0; i < 2; i++) {
        disk[i] = make_file(tmp_dir(), FILE_BYTES, i, O_DIRECT);
        plain[i] = make_file(tmp_dir(), FILE_BYTES, i, 0);
        tmpfs[i] = make_file("/dev/shm", FILE_BYTES, i, 0);
    }
    direct = disk[0] >= 0 && disk[1] >= 0;
    if (direct) {
        test_form(NULL, "uring", disk, 1, 1);
        test_form(NULL, "threads", disk, 1, 1);
        test_ends(disk, "uring");
        test_ends(disk, "threads");
        test_truncated("uring", 1);
        test_truncated("threads", 1);
    } else {
        SKIP("%s does not know O_DIRECT (set TMPDIR to a directory on a disk)", tmp_dir());
    }
    test_form(NULL, "uring", plain, 0, direct);
    test_form(NULL, "threads", plain, 0, direct);
    test_form(NULL, "uring", tmpfs, 0, 0);
    test_form(NULL, "threads", tmpfs, 0, 0);
    test_truncated("uring", 0);
    test_truncated("threads", 0);
    test_unreadable("uring");
    test_unreadable("threads");
    test_words(NULL, "uring", direct ? disk : plain, direct);
    test_words(NULL, "threads", direct ? disk : plain, direct);
    test_words(NULL, "uring", tmpfs, 0);
    test_words(NULL, "threads", tmpfs, 0);
    test_refused_io_uring(direct ? disk : plain, direct);
    test_small_memlock(direct ? disk : plain, direct);
    test_impossible_orders(has_program ? program : NULL, plain);
    if (has_program) {
        test_form(program, NULL, direct ? disk : plain, direct, direct);
        test_words(program, "uring", direct ? disk : plain, direct);
        test_words(program, "threads", direct ? disk : plain, direct);
    } else
        SKIP("no program beside this test: its main was run by fork only");
    return test_end();
}
