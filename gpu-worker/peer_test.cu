/* Memory of one process's card in another process's kernels: what a word costs that way, what opening it costs,
 * and what its owner's death does to who writes there, and the writer's to the owner. Two cards, if there are two
 * that reach each other, else one card twice.
 *
 *   peer_test [ROUNDS]      deaths of each kind (3)
 *
 * The parent makes no CUDA call: its children are processes as conclave-gpu's are. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gpu-worker/handoff.cuh"
#include "tests/cuda.h"

enum { BYTES = 4 << 20, BLOCKS = 32, THREADS = 256, TRIPS = 3000, NODES = 4 };
enum command { NOTHING, OPEN, CLOSE, WRITE, SYNC, SUM, CLEAR, ANSWER, ASK, PASSES, WAITING, QUIT };
#define LIMIT_NS 3000000000ull

/* Of all processes. One command a process at a time; the parent gives them. */
struct common {
    volatile int command[2], status[2];
    volatile double value[2][4];
    cudaIpcMemHandle_t handle[2];
    volatile int second; /* the writer's card */
    alignas(128) uint64_t there[32], stop[16], control[16], stamp[16]; /* mapped for cards */
};
static struct common *com;

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

/* ---- kernels ---- */

/* Numbers that grow, everywhere, until the stop word. */
static __global__ void write_on(uint64_t *to, const uint64_t *stop)
{
    uint64_t start = handoff_now();

    for (uint64_t n = 1; !handoff_word(stop) && handoff_now() - start < LIMIT_NS; n++)
        for (size_t i = blockIdx.x * THREADS + threadIdx.x; i < BYTES / 8; i += BLOCKS * THREADS)
            to[i] = n;
}
/* Answers each number on *there by the same on *back. */
static __global__ void answer(const uint64_t *there, uint64_t *back, const uint64_t *stop)
{
    for (uint64_t n = 1; n <= TRIPS; n++) {
        if (handoff_wait(there, n, stop, LIMIT_NS))
            return;
        handoff_store(back, n);
    }
}
static __global__ void ask(uint64_t *there, const uint64_t *back, const uint64_t *stop, uint64_t *ns)
{
    uint64_t start = handoff_now();

    for (uint64_t n = 1; n <= TRIPS; n++) {
        handoff_store(there, n);
        if (handoff_wait(back, n, stop, LIMIT_NS))
            return;
    }
    *ns = handoff_now() - start;
}
/* The nodes of a pass, of which only the first one's wait and the last one's stamp do anything. */
static __global__ void first_node(const uint64_t *control, const uint64_t *number, const uint64_t *stop)
{
    if (number)
        handoff_wait(control, *number + 1, stop, LIMIT_NS);
}
static __global__ void some_node(void)
{
}
static __global__ void last_node(const uint64_t *control, uint64_t *number, uint64_t *stamp)
{
    uint64_t n = handoff_word(control);

    *number = n;
    handoff_store(stamp, n);
}
static __global__ void until_stopped(const uint64_t *stop)
{
    handoff_wait(stop, 1, stop, LIMIT_NS);
}

/* ---- a process ---- */

struct process {
    int who, card;
    uint64_t *own, *other; /* device memory: mine; the other's, opened */
    uint64_t *word;        /* device memory */
    struct common *seen;   /* by the card */
    cudaStream_t stream;
};

static double open_other(struct process *p)
{
    double start = now_us();
    cudaError_t e = cudaIpcOpenMemHandle((void **)&p->other, com->handle[!p->who], cudaIpcMemLazyEnablePeerAccess);

    if (e != cudaSuccess)
        printf("cudaIpcOpenMemHandle: %s\n", cudaGetErrorString(e));
    com->status[p->who] = e;
    return now_us() - start;
}

static double sum_of_own(struct process *p)
{
    uint64_t *host = (uint64_t *)malloc(BYTES);
    double s = 0;

    com->status[p->who] = cudaMemcpyAsync(host, p->own, BYTES, cudaMemcpyDeviceToHost, p->stream);
    com->status[p->who] |= cudaStreamSynchronize(p->stream);
    for (size_t i = 0; i < BYTES / 8; i++)
        s += (double)host[i];
    free(host);
    return s;
}

static int by_value(const void *a, const void *b)
{
    return *(const double *)a < *(const double *)b ? -1 : 1;
}

/* A pass's graph from the host's number to the stamp that the host sees: launched when the number is known, or
 * before, with a first node that waits for it. Medians, us. */
static double passes(struct process *p, int early)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    double us[TRIPS / 10];
    struct common *c = p->seen;
    uint64_t n = __atomic_load_n(&com->control[0], __ATOMIC_RELAXED);

    CUDA_OK(cudaMemcpy(p->word, &n, 8, cudaMemcpyHostToDevice));
    CUDA_OK(cudaStreamBeginCapture(p->stream, cudaStreamCaptureModeThreadLocal));
    first_node<<<1, 32, 0, p->stream>>>(c->control, early ? p->word : NULL, c->stop);
    for (int i = 0; i < NODES - 2; i++)
        some_node<<<BLOCKS, THREADS, 0, p->stream>>>();
    last_node<<<1, 1, 0, p->stream>>>(c->control, p->word, c->stamp);
    CUDA_OK(cudaStreamEndCapture(p->stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    if (early)
        CUDA_OK(cudaGraphLaunch(exec, p->stream));
    for (int i = 0; i < TRIPS / 10; i++) {
        double start, until = now_us() + 60;
        while (now_us() < until)
            ;
        start = now_us();
        __atomic_store_n(&com->control[0], ++n, __ATOMIC_RELEASE);
        if (!early)
            CUDA_OK(cudaGraphLaunch(exec, p->stream));
        while (__atomic_load_n(&com->stamp[0], __ATOMIC_ACQUIRE) != n && now_us() - start < 1e6)
            ;
        us[i] = now_us() - start;
        if (early)
            CUDA_OK(cudaGraphLaunch(exec, p->stream));
    }
    __atomic_store_n(&com->control[0], ++n, __ATOMIC_RELEASE); /* the one that waits */
    com->status[p->who] = cudaStreamSynchronize(p->stream);
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    qsort(us, TRIPS / 10, sizeof *us, by_value);
    return us[TRIPS / 20];
}

/* Where words lie: 0 mapped host memory, 1 the asker's card, 2 each on the card of who looks at it. */
static double trips(struct process *p, int how, int asks)
{
    uint64_t *mine = how ? p->own : p->seen->there, *others = how ? p->other : p->seen->there, ns = 0;
    uint64_t *there = asks == (how == 2) ? others : mine, *back = (asks ? mine : others) + 16;

    if (asks)
        ask<<<1, 32, 0, p->stream>>>(there, back, p->seen->stop, p->word);
    else
        answer<<<1, 32, 0, p->stream>>>(there, back, p->seen->stop);
    com->status[p->who] = cudaStreamSynchronize(p->stream);
    if (asks)
        CUDA_OK(cudaMemcpy(&ns, p->word, 8, cudaMemcpyDeviceToHost));
    return ns * 1e-3 / TRIPS;
}

static void obey(struct process *p, enum command what)
{
    volatile double *v = com->value[p->who];
    size_t before, after, total;
    int how = (int)v[0];
    double start;

    com->status[p->who] = 0;
    switch (what) {
    case OPEN:
        v[0] = open_other(p);
        break;
    case CLOSE:
        start = now_us();
        com->status[p->who] = cudaIpcCloseMemHandle(p->other);
        v[0] = now_us() - start;
        break;
    case WRITE:
        write_on<<<BLOCKS, THREADS, 0, p->stream>>>(p->other, p->seen->stop);
        com->status[p->who] = cudaGetLastError();
        break;
    case SYNC:
        com->status[p->who] = cudaStreamSynchronize(p->stream);
        break;
    case SUM:
        v[0] = sum_of_own(p);
        com->status[p->who] |= cudaMemGetInfo(&after, &total);
        v[1] = after / 1048576.0;
        break;
    case CLEAR:
        com->status[p->who] = cudaMemset(p->own, 0, 256) | cudaDeviceSynchronize();
        break;
    case ANSWER:
    case ASK:
        v[0] = trips(p, how, what == ASK);
        break;
    case PASSES:
        v[0] = passes(p, how);
        break;
    case WAITING: /* a kernel waits: what does opening cost then? */
        until_stopped<<<1, 32, 0, p->stream>>>(p->seen->stop);
        CUDA_OK(cudaMemGetInfo(&before, &total));
        v[0] = open_other(p);
        v[1] = cudaStreamQuery(p->stream) == cudaErrorNotReady;
        (void)cudaGetLastError();
        break;
    default:
        break;
    }
}

static void process_run(int who, int card)
{
    struct process p = {who, card, NULL, NULL, NULL, NULL, NULL};

    CUDA_OK(cudaSetDevice(card));
    CUDA_OK(cudaMalloc(&p.own, BYTES));
    CUDA_OK(cudaMalloc(&p.word, 256));
    CUDA_OK(cudaMemset(p.own, 0, BYTES));
    CUDA_OK(cudaMemset(p.word, 0, 256));
    CUDA_OK(cudaStreamCreateWithFlags(&p.stream, cudaStreamNonBlocking));
    CUDA_OK(cudaHostRegister(com, sizeof *com, cudaHostRegisterMapped));
    CUDA_OK(cudaHostGetDevicePointer((void **)&p.seen, com, 0));
    CUDA_OK(cudaIpcGetMemHandle(&com->handle[who], p.own));
    CUDA_OK(cudaDeviceSynchronize());
    com->command[who] = NOTHING;
    for (;;) {
        enum command c = (enum command)com->command[who];
        if (c == QUIT)
            _exit(0);
        if (c != NOTHING) {
            obey(&p, c);
            fflush(stdout);
            __sync_synchronize();
            com->command[who] = NOTHING;
        }
        usleep(20);
    }
}

/* ---- the parent ---- */

static pid_t pid[2];

static void begin(int who, int card)
{
    fflush(stdout);
    com->command[who] = SYNC; /* until it is ready */
    pid[who] = fork();
    if (!pid[who])
        process_run(who, card);
}
/* The status; -1: it has ended, or not answered. */
static int done(int who)
{
    double start = now_us();

    while (com->command[who] != NOTHING) {
        if (waitpid(pid[who], NULL, WNOHANG) == pid[who] || now_us() - start > 20e6)
            return -1;
        usleep(50);
    }
    return com->status[who];
}
static void tell(int who, enum command what, double value)
{
    com->value[who][0] = value;
    __sync_synchronize();
    com->command[who] = what;
}
static int told(int who, enum command what, double value)
{
    tell(who, what, value);
    return done(who);
}
static void kill_and_reap(int who)
{
    kill(pid[who], SIGKILL);
    waitpid(pid[who], NULL, 0);
}

/* Cards that reach each other: 2; 1, or 0. */
static int cards(void)
{
    pid_t child = fork();
    int status = 0, n = 0, there = 0, back = 0;

    if (!child) {
        if (cudaGetDeviceCount(&n) != cudaSuccess)
            n = 0;
        if (n > 1 && (cudaDeviceCanAccessPeer(&there, 0, 1) || cudaDeviceCanAccessPeer(&back, 1, 0) || !there || !back))
            n = 1;
        _exit(n < 2 ? n : 2);
    }
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

static void figures(void)
{
    static const char *const where[] = {"mapped host memory", "the asker's card", "each on its reader's card"};
    double free_before;

    told(0, SUM, 0);
    free_before = com->value[0][1];
    CHECK(!told(1, OPEN, 0), "memory of another process was not opened");
    printf("opening it: %.0f us", com->value[1][0]);
    told(0, SUM, 0);
    printf(", which takes %.0f MiB of the owner's card\n", free_before - com->value[0][1]);
    CHECK(!told(1, CLOSE, 0), "not closed");
    printf("closing it: %.0f us; ", com->value[1][0]);
    CHECK(!told(1, OPEN, 0), "not opened again");
    printf("opening it again: %.0f us\n", com->value[1][0]);
    CHECK(!told(0, OPEN, 0), "the other way round");
    for (int how = 0; how < 3 && com->second; how++) { /* on one card two contexts take turns */
        memset(com->there, 0, sizeof com->there);
        for (int k = 0; k < 2; k++)
            CHECK(!told(k, CLEAR, 0), "clearing");
        tell(0, ANSWER, how);
        tell(1, ASK, how);
        CHECK(!done(0) && !done(1), "words through %s", where[how]);
        printf("a word there and back, two kernels of two processes, %s: %.2f us\n", where[how], com->value[1][0]);
    }
    for (int early = 0; early < 2; early++) {
        CHECK(!told(1, PASSES, early), "passes");
        printf("a pass of %d empty nodes, from the host's word to the stamp that the host sees, %s: %.1f us\n", NODES,
               early ? "launched before" : "launched then", com->value[1][0]);
    }
}

static void owner_dies(int round)
{
    com->stop[0] = 0;
    CHECK(!told(1, WRITE, 0), "a kernel that writes");
    usleep(20000 + 7000 * round);
    kill_and_reap(0);
    usleep(100000);
    com->stop[0] = 1;
    CHECK(!told(1, SYNC, 0), "the owner was killed: the writer's kernel ends with %d", com->status[1]);
    com->stop[0] = 0;
    begin(0, 0);
    CHECK(!done(0), "another owner");
    CHECK(!told(1, CLOSE, 0), "closing a dead owner's memory: %d", com->status[1]);
    double us = com->value[1][0];
    CHECK(!told(1, OPEN, 0), "opening the next owner's: %d", com->status[1]);
    printf("owner killed: closing %.0f us, opening the next one's %.0f us\n", us, com->value[1][0]);
    com->stop[0] = 1;
    CHECK(!told(1, WRITE, 0) && !told(1, SYNC, 0) && !told(0, SUM, 0), "the next owner's memory");
    com->stop[0] = 0;
}

static void writer_dies(int round)
{
    double a, b;

    com->stop[0] = 0;
    CHECK(!told(1, WRITE, 0), "a kernel that writes");
    usleep(20000 + 7000 * round);
    kill_and_reap(1);
    CHECK(!told(0, SUM, 0), "the writer was killed: the owner's copy ends with %d", com->status[0]);
    a = com->value[0][0];
    usleep(100000);
    CHECK(!told(0, SUM, 0), "the writer was killed: %d", com->status[0]);
    b = com->value[0][0];
    CHECK(a > 0 && a == b, "the writer is reaped and goes on writing: %g, then %g", a, b);
    begin(1, com->second);
    CHECK(!done(1) && !told(1, OPEN, 0), "another writer");
}

static void opens_beside_a_wait(void)
{
    CHECK(!told(1, CLOSE, 0), "not closed");
    com->stop[0] = 0;
    CHECK(!told(1, WAITING, 0), "not opened beside a kernel that waits");
    printf("opening it while a kernel of the same process waits: %.0f us, the kernel %s\n", com->value[1][0],
           com->value[1][1] ? "still waits" : "had to end first");
    com->stop[0] = 1;
    CHECK(!told(1, SYNC, 0), "the kernel that waited");
    com->stop[0] = 0;
}

int main(int argc, char **argv)
{
    int n = cards(), rounds = argc > 1 ? atoi(argv[1]) : 3;

    if (!n) {
        SKIP("no CUDA card here");
        return test_end();
    }
    com = (struct common *)mmap(NULL, (sizeof *com + 4095) & ~4095ul, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    com->second = n > 1;
    begin(0, 0);
    begin(1, com->second);
    CHECK(!done(0) && !done(1), "two processes on %d cards", n);
    if (!test_failed) {
        figures();
        opens_beside_a_wait();
        for (int i = 0; i < rounds; i++) {
            owner_dies(i);
            writer_dies(i);
        }
    }
    for (int k = 0; k < 2; k++) {
        com->command[k] = QUIT;
        waitpid(pid[k], NULL, 0);
    }
    return test_end();
}
