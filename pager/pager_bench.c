/* What the pager gets out of a disk, and what it costs: the program conclave-pager with segments and
 * orders as a run has them, random pieces of a file. Compare with fio by scripts/measure-pager.
 *
 *   pager_bench [FILE [KEY=VALUE ...]]
 *
 * piece   bytes of a piece (1572864)     pieces  pieces an order (3)
 * open    orders open at a time (16)     seconds (2)
 * check   1: every piece is hashed       direct  0: through the page cache
 *
 * Without FILE it makes one of 256 MB in build/tmp. One line: GB/s; processor time of the pager in
 * seconds a second; reads, orders a second; how it reads. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "shm/bell.h"
#include "shm/ctl.h"
#include "shm/orders.h"
#include "shm/seg.h"
#include "shm/size.h"

extern char **environ;

enum { SLOTS = 256, OUTBOX = 2, N_SEG = 6, CTL_FD = 100, READY_MS = 10000, MADE_MB = 256,
       CHECKED_BYTES = 1 << 30 };

struct bench {
    uint64_t piece, pieces, open, seconds, check, direct;
    const char *path;
    int fd;
    uint64_t file_bytes, rng;
    uint64_t *hash; /* by block of `piece` bytes; 0: not known yet */
    struct seg seg[N_SEG];
    struct board *board;
    struct orders *orders;
    struct bell *bells;
    struct pager_box *box;
    uint8_t *slabs;
    int ctl;
    pid_t pid;
    uint64_t next, answered;
};

static _Noreturn void die(struct bench *b, const char *what)
{
    fprintf(stderr, "pager_bench: %s: %s\n", b->path ? b->path : "", what);
    if (b->pid > 0)
        kill(b->pid, SIGKILL);
    exit(1);
}

static uint64_t *option(struct bench *b, const char *key, size_t n)
{
    struct {
        const char *name;
        uint64_t *at;
    } o[] = {{"piece", &b->piece},     {"pieces", &b->pieces}, {"open", &b->open},
             {"seconds", &b->seconds}, {"check", &b->check},   {"direct", &b->direct}};

    for (size_t i = 0; i < sizeof o / sizeof *o; i++)
        if (strlen(o[i].name) == n && !strncmp(o[i].name, key, n))
            return o[i].at;
    return NULL;
}

static void options(struct bench *b, int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        char *eq = strchr(argv[i], '='), *end = "?";
        uint64_t *at = eq ? option(b, argv[i], (size_t)(eq - argv[i])) : NULL;
        if (at)
            *at = strtoull(eq + 1, &end, 10);
        if (!at || *end) {
            fprintf(stderr, "pager_bench: '%s' is not KEY=VALUE (see pager/pager_bench.c)\n", argv[i]);
            exit(2);
        }
    }
    if (!b->piece || !b->pieces || b->pieces > ORDER_PIECES || !b->open || b->open > SLOTS) {
        fprintf(stderr, "pager_bench: piece > 0, pieces 1 to %u, open 1 to %d\n", ORDER_PIECES, SLOTS);
        exit(2);
    }
    b->piece = round_up(b->piece, 4096);
}

static void make_file(struct bench *b)
{
    static uint8_t part[1 << 20];
    int fd;

    mkdir("build", 0777);
    mkdir("build/tmp", 0777);
    b->path = "build/tmp/pager_bench.file";
    fd = open(b->path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < MADE_MB; i++) {
        for (size_t k = 0; k < sizeof part; k += 8)
            memcpy(part + k, &(uint64_t){(b->rng = b->rng * 6364136223846793005u + 1)}, 8);
        if (fd < 0 || write(fd, part, sizeof part) != sizeof part)
            die(b, "cannot be written");
    }
    if (fsync(fd))
        die(b, "cannot be written");
    close(fd);
}

static void open_file(struct bench *b)
{
    struct stat st;

    b->fd = open(b->path, O_RDONLY | O_CLOEXEC | (b->direct ? O_DIRECT : 0));
    if (b->fd < 0 || fstat(b->fd, &st))
        die(b, "cannot be opened");
    b->file_bytes = (uint64_t)st.st_size;
    if (b->check && b->file_bytes > CHECKED_BYTES)
        b->file_bytes = CHECKED_BYTES; /* all of it is hashed before the time begins */
    if (b->file_bytes < b->piece)
        die(b, "is smaller than a piece");
    b->hash = calloc(b->file_bytes / b->piece, sizeof *b->hash);
    if (!b->hash)
        die(b, "no memory");
}

static void make_segments(struct bench *b)
{
    const struct geometry g = {.n_nodes = 1, .order_slots = SLOTS};
    const struct {
        enum seg_role role;
        size_t bytes;
    } s[N_SEG] = {{SEG_BOARD, sizeof(struct board)},
                  {SEG_ORDERS, orders_bytes(&g)},
                  {SEG_BELLS, MAX_PROCS * sizeof(struct bell)},
                  {SEG_OUTBOX, pager_box_bytes(&g)},
                  {SEG_TRUNK, 4096},
                  {SEG_SLABS, b->open * b->pieces * b->piece}};
    struct err e = {0};

    for (int i = 0; i < N_SEG; i++)
        if (seg_create(s[i].role, s[i].role == SEG_OUTBOX ? OUTBOX : 0, s[i].bytes, -1, &b->seg[i], &e))
            die(b, e.msg);
    b->board = b->seg[0].base;
    b->orders = b->seg[1].base;
    b->bells = b->seg[2].base;
    b->box = b->seg[3].base;
    b->slabs = b->seg[5].base;
    b->board->geo = g;
    memset(b->slabs, 1, s[5].bytes);
}

/* build/bin/conclave-pager beside build/bench/pager/pager_bench */
static void start_program(struct bench *b)
{
    char path[4096], arg[4 + N_SEG][40], *argv[5 + N_SEG] = {0};
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 40);
    posix_spawn_file_actions_t fa;
    struct err e = {0};
    int pair[2];

    path[len > 0 ? len : 0] = 0;
    if (!strstr(path, "/bench/pager/"))
        die(b, "not in a build folder");
    strcpy(strstr(path, "/bench/pager/"), "/bin/conclave-pager");
    if (ctl_pair(pair, &e))
        die(b, e.msg);
    snprintf(arg[0], sizeof arg[0], "conclave-pager");
    snprintf(arg[1], sizeof arg[1], "%ld", (long)getpid());
    snprintf(arg[2], sizeof arg[2], "%d", OUTBOX);
    snprintf(arg[3], sizeof arg[3], "%d", CTL_FD);
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, pair[1], CTL_FD);
    for (int i = 0; i < N_SEG; i++) {
        posix_spawn_file_actions_adddup2(&fa, b->seg[i].fd, CTL_FD + 1 + i);
        snprintf(arg[4 + i], sizeof arg[0], "%d:%u:%d:%c", (int)b->seg[i].role, b->seg[i].index,
                 CTL_FD + 1 + i, i < 2 ? 'r' : 'w');
    }
    for (int i = 0; i < 4 + N_SEG; i++)
        argv[i] = arg[i];
    if (posix_spawn(&b->pid, path, &fa, NULL, argv, environ))
        die(b, "cannot start conclave-pager");
    posix_spawn_file_actions_destroy(&fa);
    close(pair[1]);
    b->ctl = pair[0];
}

static void start_reading(struct bench *b, char *form, size_t n)
{
    struct ctl_msg m = {.kind = CTL_FILE, .flags = (uint32_t)b->direct, .b = b->file_bytes};
    int fd;

    snprintf(m.text, sizeof m.text, "%s", b->path);
    ctl_send(b->ctl, &m, b->fd);
    ctl_sendf(b->ctl, CTL_START, 0, "%s", "");
    do
        if (ctl_recv(b->ctl, &m, &fd, READY_MS) != 1 || m.kind == CTL_ERROR)
            die(b, m.kind == CTL_ERROR ? m.text : "the pager does not answer");
    while (m.kind != CTL_READY);
    snprintf(form, n, "%.*s", (int)n - 1, m.text);
}

static uint64_t random_block(struct bench *b)
{
    b->rng = b->rng * 6364136223846793005u + 1442695040888963407u;
    return (b->rng >> 33) % (b->file_bytes / b->piece);
}

static uint64_t hash_of(struct bench *b, uint64_t block)
{
    uint8_t *m;

    if (b->hash[block])
        return b->hash[block];
    m = aligned_alloc(4096, b->piece);
    if (!m || pread(b->fd, m, b->piece, (off_t)(block * b->piece)) != (ssize_t)b->piece)
        die(b, "cannot be read");
    b->hash[block] = XXH3_64bits(m, b->piece);
    free(m);
    return b->hash[block];
}

static void publish(struct bench *b)
{
    struct order o = {.number = b->next, .kind = ORDER_READ, .n_pieces = (uint32_t)b->pieces};

    for (uint32_t i = 0; i < b->pieces; i++) {
        uint64_t block = random_block(b);
        o.piece[i] = (struct order_piece){.seg = 1,
                                          .file_off = block * b->piece,
                                          .bytes = b->piece,
                                          .need = b->piece,
                                          .dst = ((b->next % b->open) * b->pieces + i) * b->piece};
        if (!b->check)
            continue;
        o.piece[i].flags = PIECE_CHECK;
        o.piece[i].xxh = hash_of(b, block);
    }
    order_publish(&b->board->geo, b->orders, &o, &b->bells[OUTBOX], &b->box->asleep);
    b->next++;
}

static int answer_there(void *arg)
{
    struct bench *b = arg;

    return order_answer(&b->board->geo, b->box, b->answered + 1) ? LOOK_FOUND : LOOK_NOTHING;
}

/* Keeps the orders open until `until`; 0: until all are answered. */
static void go_on(struct bench *b, uint64_t until)
{
    while (until ? now_ns() < until : b->answered + 1 < b->next) {
        int how = order_answer(&b->board->geo, b->box, b->answered + 1);
        if (how < 0)
            die(b, "an order failed");
        b->answered += how > 0;
        while (until && b->next - b->answered <= b->open)
            publish(b);
        if (!how)
            bell_sleep(&b->bells[PROC_STEWARD], &b->board->asleep_steward, answer_there, b, 0);
    }
}

static uint64_t cpu_ns(struct bench *b)
{
    struct timespec t = {0};
    clockid_t clock;

    if (clock_getcpuclockid(b->pid, &clock) || clock_gettime(clock, &t))
        die(b, "no processor time of the pager");
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void stop_program(struct bench *b)
{
    int status = 0;

    ctl_sendf(b->ctl, CTL_QUIT, 0, "%s", "");
    if (waitpid(b->pid, &status, 0) != b->pid || status)
        die(b, "the pager did not end well");
}

struct totals {
    uint64_t ns, cpu, bytes, reads, orders;
};
static struct totals totals(struct bench *b)
{
    return (struct totals){now_ns(), cpu_ns(b), atomic_load(&b->box->count.bytes),
                           atomic_load(&b->box->count.reads), atomic_load(&b->box->count.orders)};
}

int main(int argc, char **argv)
{
    struct bench b = {.piece = 1572864, .pieces = 3, .open = 16, .seconds = 2, .direct = 1, .rng = 1, .next = 1};
    struct totals t0, t1;
    char form[80];
    double s;

    options(&b, argc, argv);
    if (argc > 1)
        b.path = argv[1];
    else
        make_file(&b);
    b.rng = now_ns(); /* other places every time */
    open_file(&b);
    if (argc == 1)
        unlink(b.path);
    for (uint64_t i = 0; b.check && i < b.file_bytes / b.piece; i++)
        hash_of(&b, i);
    make_segments(&b);
    start_program(&b);
    start_reading(&b, form, sizeof form);
    go_on(&b, now_ns() + 200000000); /* every page was touched, the queue is full */
    t0 = totals(&b);
    go_on(&b, now_ns() + b.seconds * 1000000000u);
    t1 = totals(&b);
    go_on(&b, 0);
    stop_program(&b);
    s = (double)(t1.ns - t0.ns) * 1e-9;
    printf("%.3f GB/s  cpu %.4f  reads/s %.0f  orders/s %.0f  cpu us/read %.1f  %s%s%s\n",
           (double)(t1.bytes - t0.bytes) * 1e-9 / s, (double)(t1.cpu - t0.cpu) * 1e-9 / s,
           (double)(t1.reads - t0.reads) / s, (double)(t1.orders - t0.orders) / s,
           (double)(t1.cpu - t0.cpu) * 1e-3 / (double)(t1.reads - t0.reads), form,
           b.direct ? "" : ", buffered", b.check ? ", hashed" : "");
    return 0;
}
