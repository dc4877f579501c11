/* Visibility: payloads that carry their number, handed over through every kind of memory and in each
 * direction, every word of every payload compared. A sender that announces before it has written must be
 * caught, so that the test is known to see.
 *
 *   handoff_test [N [SECONDS [KIND ...]]]    N hand-offs of 1 MB each (1500), of each kind, or of those, as many as
 *                                            SECONDS allow; kinds are numbered from 1 */
#include <pthread.h>

#include "gpu-worker/handoff.cuh"
#include "tests/cuda.h"

#include <time.h>

enum {
    PAYLOAD = 1 << 20,
    WORDS = PAYLOAD / 8,
    DEPTH = 8, /* payloads on their way */
    BLOCKS = 128, /* on as many multiprocessors */
    THREADS = 256,
    PAIRS = WORDS / 2 / BLOCKS / THREADS, /* of a payload's words, a thread's */
    TEAM = 8, /* host threads */
    SLICE = WORDS / TEAM,
};
#define LIMIT_NS (20ull * 1000000000ull)

/* word i of payload n */
static __host__ __device__ __forceinline__ uint64_t content(uint64_t n, uint64_t i)
{
    return n << 32 | (((i & 0xFFFFFFFF) * 2654435761u ^ n) & 0xFFFFFFFF);
}

/* Where things lie: the payloads, the sender's word, the receiver's word, and what stops both. */
struct channel {
    uint64_t *payload; /* (DEPTH, WORDS) */
    uint64_t *sent, *taken, *stop;
    uint64_t n;
    int early; /* the planted fault: announced before it is written */
};

struct card_side {
    unsigned *arrived;         /* DEPTH words of this card's memory */
    uint64_t *near;            /* a word of it */
    unsigned long long *wrong; /* payload words that were not what they should be */
    unsigned long long *ends;  /* waits that did not end well */
};

/* this thread's pair k of a payload's words */
static __device__ __forceinline__ unsigned word_of(unsigned k)
{
    return 2 * ((k * BLOCKS + blockIdx.x) * THREADS + threadIdx.x);
}

static __global__ void send_card(channel c, card_side d)
{
    for (uint64_t n = 1; n <= c.n; n++) {
        uint64_t *p = c.payload + n % DEPTH * WORDS;

        if (n > DEPTH && handoff_wait_by_one(c.taken, d.near, n - DEPTH, c.stop, LIMIT_NS)) {
            if (threadIdx.x == 0)
                atomicAdd(d.ends, 1);
            return;
        }
        if (c.early) {
            handoff_publish_by_last(c.sent, n, &d.arrived[n % DEPTH], BLOCKS);
            handoff_wait(c.sent, n, c.stop, LIMIT_NS); /* out before anything is written */
        }
#pragma unroll
        for (unsigned k = 0; k < PAIRS; k++) {
            unsigned i = word_of(k);
            *(ulonglong2 *)(p + i) = make_ulonglong2(content(n, i), content(n, i + 1));
        }
        if (!c.early)
            handoff_publish_by_last(c.sent, n, &d.arrived[n % DEPTH], BLOCKS);
    }
}

static __global__ void take_card(channel c, card_side d)
{
    for (uint64_t n = 1; n <= c.n; n++) {
        const uint64_t *p = c.payload + n % DEPTH * WORDS;
        unsigned wrong = 0;

        if (handoff_wait_by_one(c.sent, d.near, n, c.stop, LIMIT_NS)) {
            if (threadIdx.x == 0)
                atomicAdd(d.ends, 1);
            return;
        }
        ulonglong2 v[PAIRS];
#pragma unroll
        for (unsigned k = 0; k < PAIRS; k++) /* all on their way before the first is looked at */
            v[k] = handoff_load2(p + word_of(k));
#pragma unroll
        for (unsigned k = 0; k < PAIRS; k++)
            wrong += (v[k].x != content(n, word_of(k))) + (v[k].y != content(n, word_of(k) + 1));
        if (wrong)
            atomicAdd(d.wrong, wrong);
        handoff_publish_by_last(c.taken, n, &d.arrived[n % DEPTH], BLOCKS);
    }
}

/* ---- the host's side: a team, each thread a slice of every payload ---- */

struct host_side {
    channel c;
    int sends;
    unsigned done[DEPTH]; /* threads that have finished the payload */
    uint64_t wrong, late;
};
struct host_thread {
    host_side *h;
    int i;
};

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int host_wait(const uint64_t *word, uint64_t value)
{
    uint64_t start = now_ns();

    for (unsigned polls = 1; __atomic_load_n(word, __ATOMIC_ACQUIRE) < value; polls++)
        if (polls % 65536 == 0 && now_ns() - start > LIMIT_NS)
            return -1;
    return 0;
}

/* the last thread of payload n announces it */
static void host_arrive(host_side *h, uint64_t *word, uint64_t n)
{
    if (__atomic_add_fetch(&h->done[n % DEPTH], 1, __ATOMIC_ACQ_REL) < TEAM)
        return;
    __atomic_store_n(&h->done[n % DEPTH], 0, __ATOMIC_RELAXED);
    __atomic_store_n(word, n, __ATOMIC_RELEASE);
}

static void *host_thread_run(void *arg)
{
    host_thread *t = (host_thread *)arg;
    host_side *h = t->h;
    const channel *c = &h->c;
    uint64_t first = (uint64_t)t->i * SLICE;

    for (uint64_t n = 1; n <= c->n; n++) {
        uint64_t *p = c->payload + n % DEPTH * WORDS, differ = 0;

        if (h->sends ? n > DEPTH && host_wait(c->taken, n - DEPTH) : host_wait(c->sent, n)) {
            __atomic_add_fetch(&h->late, 1, __ATOMIC_RELAXED);
            __atomic_store_n(c->stop, 1, __ATOMIC_RELEASE);
            return NULL;
        }
        if (h->sends) {
            if (c->early) {
                host_arrive(h, c->sent, n);
                host_wait(c->sent, n);
            }
            for (uint64_t i = first; i < first + SLICE; i++)
                p[i] = content(n, i);
            if (!c->early)
                host_arrive(h, c->sent, n);
        } else {
            for (uint64_t i = first; i < first + SLICE; i++)
                differ |= p[i] ^ content(n, i);
            if (differ)
                __atomic_add_fetch(&h->wrong, 1, __ATOMIC_RELAXED);
            host_arrive(h, c->taken, n);
        }
    }
    return NULL;
}

static void host_run(host_side *h)
{
    pthread_t id[TEAM];
    host_thread t[TEAM];

    for (int i = 0; i < TEAM; i++) {
        t[i] = {h, i};
        if (pthread_create(&id[i], NULL, host_thread_run, &t[i]))
            exit(1);
    }
    for (int i = 0; i < TEAM; i++)
        pthread_join(id[i], NULL);
}

/* ---- one kind of hand-off ---- */

enum place { HOST, CARD0, CARD1 };

static void *room_in(place where, size_t bytes)
{
    void *p;

    if (where == HOST) {
        CUDA_OK(cudaHostAlloc(&p, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
        memset(p, 0, bytes);
    } else {
        CUDA_OK(cudaSetDevice(where - CARD0));
        CUDA_OK(cudaMalloc(&p, bytes));
        CUDA_OK(cudaMemset(p, 0, bytes));
        CUDA_OK(cudaDeviceSynchronize());
    }
    return p;
}
static void drop(place where, void *p)
{
    CUDA_OK(where == HOST ? cudaFreeHost(p) : cudaFree(p));
}

/* A card's part: its memory for counts, its stream. */
struct end_of {
    int card;
    card_side side;
    cudaStream_t stream;
    void *counts;
};
static void open_end(end_of *e, int card)
{
    e->card = card;
    e->counts = room_in(card ? CARD1 : CARD0, 256);
    e->side.wrong = (unsigned long long *)e->counts;
    e->side.ends = e->side.wrong + 1;
    e->side.near = (uint64_t *)(e->side.wrong + 2);
    e->side.arrived = (unsigned *)(e->side.wrong + 4);
    CUDA_OK(cudaStreamCreateWithFlags(&e->stream, cudaStreamNonBlocking));
}
static void close_end(end_of *e, uint64_t *wrong, uint64_t *bad_ends)
{
    unsigned long long counts[2];

    CUDA_OK(cudaSetDevice(e->card));
    CUDA_OK(cudaStreamSynchronize(e->stream));
    cuda_back(counts, e->counts, sizeof counts);
    *wrong += counts[0];
    *bad_ends += counts[1];
    CUDA_OK(cudaStreamDestroy(e->stream));
    CUDA_OK(cudaFree(e->counts));
}

/* from, to: HOST (its team), CARD0 or CARD1 (a kernel); memory: where payloads lie. The receiver's
 * word lies on the sender's side and the other way round, where cards reach each other's memory. */
static double hand_over(const char *what, place from, place to, place memory, uint64_t n, int early)
{
    channel c = {};
    end_of a = {}, b = {};
    uint64_t wrong = 0, bad = 0, start;
    place words = memory == HOST ? HOST : to, back = memory == HOST ? HOST : from;
    host_side h = {};
    double s;

    c.payload = (uint64_t *)room_in(memory, (size_t)DEPTH * PAYLOAD);
    c.sent = (uint64_t *)room_in(words, 128);
    c.taken = (uint64_t *)room_in(back, 128);
    c.stop = (uint64_t *)room_in(HOST, 128);
    c.n = n;
    c.early = early;
    if (from != HOST)
        open_end(&a, from - CARD0);
    if (to != HOST)
        open_end(&b, to - CARD0);
    start = now_ns();
    if (from != HOST) {
        CUDA_OK(cudaSetDevice(from - CARD0));
        send_card<<<BLOCKS, THREADS, 0, a.stream>>>(c, a.side);
        CUDA_OK(cudaGetLastError());
    }
    if (to != HOST) {
        CUDA_OK(cudaSetDevice(to - CARD0));
        take_card<<<BLOCKS, THREADS, 0, b.stream>>>(c, b.side);
        CUDA_OK(cudaGetLastError());
    }
    if (from == HOST || to == HOST) {
        h.c = c;
        h.sends = from == HOST;
        host_run(&h);
    }
    if (from != HOST)
        close_end(&a, &wrong, &bad);
    if (to != HOST)
        close_end(&b, &wrong, &bad);
    s = (now_ns() - start) * 1e-9;
    wrong += h.wrong;
    bad += h.late;
    CHECK(!bad, "%s: %llu waits ended by their limit", what, (unsigned long long)bad);
    if (early)
        CHECK(wrong, "%s, announced too early: nobody noticed", what);
    else
        CHECK(!wrong, "%s: %llu words or slices of %llu payloads were not the announced ones", what,
              (unsigned long long)wrong, (unsigned long long)n);
    if (!early)
        printf("%-44s %8llu hand-offs of 1 MB, %6.1f s, %5.1f us each, %5.1f GB/s\n", what,
               (unsigned long long)n, s, s / n * 1e6, n * (double)PAYLOAD / s * 1e-9);
    fflush(stdout);
    drop(memory, c.payload);
    drop(words, c.sent);
    drop(back, c.taken);
    drop(HOST, c.stop);
    return s / n;
}

/* the deadline: a wait for what never comes ends by the stop word, and by the clock */
static __global__ void wait_for(const uint64_t *word, const uint64_t *stop, uint64_t limit,
                                int *how)
{
    int end = handoff_wait(word, 1, stop, limit);

    if (threadIdx.x == 0)
        *how = end;
}
static void deadlines(void)
{
    uint64_t *word = (uint64_t *)room_in(HOST, 128), *stop = (uint64_t *)room_in(HOST, 128);
    int *how = (int *)room_in(HOST, 128);

    wait_for<<<1, 64>>>(word, stop, 3000000, how);
    CUDA_OK(cudaDeviceSynchronize());
    CHECK(*how == HANDOFF_LATE, "3 ms: %d", *how);
    wait_for<<<1, 64>>>(word, stop, 0, how);
    __atomic_store_n(stop, 1, __ATOMIC_RELEASE);
    CUDA_OK(cudaDeviceSynchronize());
    CHECK(*how == HANDOFF_STOP, "stopped: %d", *how);
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    wait_for<<<1, 64>>>(word, stop, 0, how);
    CUDA_OK(cudaDeviceSynchronize());
    CHECK(*how == HANDOFF_THERE, "there: %d", *how);
    drop(HOST, word);
    drop(HOST, stop);
    drop(HOST, how);
}

static int peers(void)
{
    int n = 0, there = 0, back = 0;

    CUDA_OK(cudaGetDeviceCount(&n));
    if (n < 2)
        return 0;
    CUDA_OK(cudaDeviceCanAccessPeer(&there, 0, 1));
    CUDA_OK(cudaDeviceCanAccessPeer(&back, 1, 0));
    if (!there || !back)
        return 0;
    for (int i = 0; i < 2; i++) {
        CUDA_OK(cudaSetDevice(i));
        CUDA_OK(cudaDeviceEnablePeerAccess(1 - i, 0));
    }
    CUDA_OK(cudaSetDevice(0));
    return 1;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *what;
        place from, to, memory;
        int cards;
    } kinds[] = {
        {"card to host, mapped host memory", CARD0, HOST, HOST, 1},
        {"host to card, mapped host memory", HOST, CARD0, HOST, 1},
        {"card to card, receiver's memory (peer)", CARD0, CARD1, CARD1, 2},
        {"card to card, sender's memory (peer)", CARD0, CARD1, CARD0, 2},
        {"the other way, receiver's memory (peer)", CARD1, CARD0, CARD0, 2},
        {"card to card, mapped host memory", CARD0, CARD1, HOST, 2},
    };
    uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 1500;
    double most = argc > 2 ? atof(argv[2]) : 1e9, each = 0;
    int cards;

    if (!cuda_card())
        return test_end();
    cards = peers() ? 2 : 1;
    deadlines();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int asked = argc <= 3;

        for (int k = 3; k < argc; k++)
            asked |= (size_t)atoi(argv[k]) == i + 1;
        if (!asked)
            continue;
        if (kinds[i].cards > cards) {
            SKIP("%s: needs two cards that reach each other's memory", kinds[i].what);
            continue;
        }
        hand_over(kinds[i].what, kinds[i].from, kinds[i].to, kinds[i].memory, 300, 1);
        each = hand_over(kinds[i].what, kinds[i].from, kinds[i].to, kinds[i].memory, n < 1500 ? n : 1500, 0);
        if (n > 1500)
            hand_over(kinds[i].what, kinds[i].from, kinds[i].to, kinds[i].memory,
                      n * each < most ? n : (uint64_t)(most / each), 0);
    }
    return test_end();
}
