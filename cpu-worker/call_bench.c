/* What a call of small experts costs beside reading their bytes: passes of a worker's team over one
 * token's experts, out of a pool larger than the caches, in turn with plain reading of that pool.
 *
 *   call_bench [-t THREADS] [-m MB] [-n EXPERTS] [-e N_EMBD] [-f N_FF] [-r ROUNDS] [GATE_UP/DOWN ...]
 *
 * Types like IQ2_XS/IQ4_NL; CONCLAVE_CPU lowers the form. "empty": a pass with a meeting and nothing to do. Part of
 * `make bench`. */
#define _GNU_SOURCE
#include "cpu-worker/work.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cpu.h"
#include "kernels/dot/rows.h"
#include "kernels/read/read.h"
#include "shm/bell.h"

enum { MOST_ROUNDS = 64, CALLS = 24, MOST_THREADS = 256 };
enum { BOTH, ONE, TWO, EMPTY, N_KINDS };

struct bench {
    int threads, rounds;
    uint32_t used, n_embd, n_ff, pool, next;
    size_t bytes;
    struct maps m;
    struct layer layer;
    struct work w;
    struct call call;
    struct pass pass;
    uint64_t sink[MOST_THREADS * 8];
    double us[N_KINDS][MOST_ROUNDS * CALLS];
    double read[MOST_ROUNDS]; /* GB/s */
};

static void *memory(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        fprintf(stderr, "call_bench: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

static double median(double *v, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = i; k > 0 && v[k] < v[k - 1]; k--) {
            double t = v[k];
            v[k] = v[k - 1];
            v[k - 1] = t;
        }
    return v[n / 2];
}

static uint64_t round_64(uint64_t n)
{
    return (n + 63) & ~63ull;
}

/* One layer of `pool` experts, each in a slab. */
static void make(struct bench *b, uint32_t gate_up, uint32_t down)
{
    struct geometry *g = &b->m.g;
    struct layer *l = &b->layer;
    struct rng rng = {11};
    uint64_t off = 0, slab;

    *g = (struct geometry){.n_nodes = 1, .n_layers = 1, .top_k = b->used, .n_embd = b->n_embd,
                           .n_ff = b->n_ff, .max_tokens = 1, .max_items = b->used, .max_pairs = b->used,
                           .amend_slots = 64};
    *l = (struct layer){.top_k = b->used, .n_embd = b->n_embd, .n_ff = b->n_ff};
    for (int i = 0; i < N_MATS; i++) {
        struct mat *m = &l->m[i];
        m->type = i == MAT_DOWN ? down : gate_up;
        m->act = type_info(m->type)->act;
        m->rows = i == MAT_DOWN ? b->n_embd : b->n_ff;
        m->cols = i == MAT_DOWN ? b->n_ff : b->n_embd;
        if (type_row_bytes(m->type, m->cols, &m->row_bytes)) {
            fprintf(stderr, "call_bench: %u columns are no rows of %s\n", m->cols, type_info(m->type)->name);
            exit(2);
        }
        m->stride = 4096; /* all at the same place in their slabs */
        m->cut[0] = (struct cut){.n_rows = m->rows, .off = off};
        off += round_64(m->rows * m->row_bytes);
    }
    l->slab_bytes[0] = off;
    slab = (off + 4095) & ~4095ull;
    b->pool = l->n_experts = g->n_experts = g->n_slabs = (uint32_t)(b->bytes / slab / b->used) * b->used;
    if (b->pool < 2 * b->used) {
        fprintf(stderr, "call_bench: %zu bytes are too few for two calls\n", b->bytes);
        exit(2);
    }
    g->acts_half = b->n_embd * 4ull;
    g->inter_half = (uint64_t)b->used * b->n_ff * 4;
    g->rows_half = (uint64_t)b->used * b->n_embd * 4;
    b->m.layer = l;
    b->m.acts_bytes = CALLS_IN_FLIGHT * g->acts_half;
    b->m.acts = memory(b->m.acts_bytes);
    b->m.out = memory(outbox_bytes(g));
    b->m.tables = memory(4096 + b->pool * 8ull);
    b->m.tables->off_slab = 4096;
    b->m.slabs_bytes[0] = b->pool * slab;
    b->m.slabs[0] = memory(b->m.slabs_bytes[0]);
    for (uint32_t k = 0; k < b->pool; k++) {
        uint8_t *to = (uint8_t *)b->m.slabs[0] + k * slab;
        *table_slab_off(b->m.tables, g, 0, k) = k * slab;
        for (int i = 0; i < N_MATS; i++) {
            const struct mat *m = &l->m[i];
            if (k)
                memcpy(to + m->cut[0].off, b->m.slabs[0] + m->cut[0].off, m->rows * m->row_bytes);
            for (uint32_t r = 0; !k && r < m->rows; r++)
                make_row(&rng, m->type, to + m->cut[0].off + r * m->row_bytes, m->cols, CLEAN);
        }
    }
    for (uint32_t i = 0; i < CALLS_IN_FLIGHT * b->n_embd; i++)
        ((float *)b->m.acts)[i] = rng_gauss(&rng);
    b->call.items = calloc(b->used, sizeof *b->call.items);
    b->call.pairs = calloc(b->used, sizeof *b->call.pairs);
    b->pass.item = calloc(b->used, sizeof *b->pass.item);
    b->pass.call = &b->call;
}

/* The next `used` experts of the pool; kind ONE or TWO: one stage alone. */
static void pass(struct bench *b, struct team *t, int kind)
{
    b->call.head = (struct call_head){.seq = b->call.head.seq + 1, .n_tokens = 1, .n_items = b->used,
                                      .n_pairs = b->used, .top_k = b->used};
    b->pass.n = b->used;
    b->pass.stage_one = kind != TWO;
    b->pass.stage_two = kind != ONE;
    for (uint32_t i = 0; i < b->used; i++) {
        b->call.items[i] = (struct call_item){.expert = b->next + i, .place = b->next + i, .pair0 = i, .n_pairs = 1};
        b->call.pairs[i] = (struct call_pair){0, (uint16_t)i};
        b->pass.item[i] = (struct pass_item){.item = i, .place = b->next + i};
        b->pass.item[i].inter[0] = outbox_inter(&b->m.g, b->m.out, b->call.head.seq);
    }
    b->next = (b->next + b->used) % b->pool;
    work_pass(&b->w, t, &b->pass);
}

static void empty(void *arg, int thread, int n_threads)
{
    struct bench *b = arg;

    (void)thread;
    if (n_threads > 1)
        team_meet(b->w.team);
}

static void read_part(void *arg, int thread, int n_threads)
{
    struct bench *b = arg;
    uint64_t n = b->m.slabs_bytes[0] / 4096, from = n * (uint64_t)thread / (uint64_t)n_threads,
             to = n * ((uint64_t)thread + 1) / (uint64_t)n_threads;

    b->sink[thread % MOST_THREADS * 8] ^= read_words(b->m.slabs[0] + from * 4096, (to - from) * 4096);
}

static int lead(void *arg, struct team *t)
{
    struct bench *b = arg;
    struct err e = {0};

    if (work_init(&b->w, &b->m, team_size(t), &e)) {
        fprintf(stderr, "call_bench: %s\n", e.msg);
        return 1;
    }
    work_warm(&b->w, t);
    for (int round = -1; round < b->rounds; round++) {
        uint64_t at = now_ns();
        team_do(t, read_part, b);
        if (round >= 0)
            b->read[round] = (double)b->m.slabs_bytes[0] / (double)(now_ns() - at);
        for (int kind = 0; kind < N_KINDS; kind++)
            for (int i = 0; i < CALLS; i++) {
                at = now_ns();
                if (kind == EMPTY)
                    team_do(t, empty, b);
                else
                    pass(b, t, kind);
                if (round >= 0)
                    b->us[kind][round * CALLS + i] = (double)(now_ns() - at) * 1e-3;
            }
    }
    work_drop(&b->w);
    return 0;
}

static int one(const struct bench *from, const char *types)
{
    struct bench *b = memory(sizeof *b);
    uint32_t id[2] = {64, 64};
    const char *name[2] = {types, strchr(types, '/')};
    const struct mat *m = b->layer.m;
    cpu_set_t allowed;
    int cpus[MOST_THREADS], n = 0, rc;
    double bytes[N_KINDS] = {0}, rate, us[N_KINDS];

    *b = *from;
    for (int i = 0; name[1] && i < 2; i++)
        for (uint32_t k = 0; k < 64; k++) {
            size_t len = strcspn(name[i] += *name[i] == '/', "/");
            if (type_info(k) && type_info(k)->built && strlen(type_info(k)->name) == len &&
                !strncasecmp(type_info(k)->name, name[i], len))
                id[i] = k;
        }
    if (id[0] == 64 || id[1] == 64) {
        fprintf(stderr, "call_bench: %s: no pair of weight types such as IQ2_XS/IQ4_NL\n", types);
        return 2;
    }
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (int i = 0; i < CPU_SETSIZE && n < b->threads; i++)
        if (CPU_ISSET(i, &allowed))
            cpus[n++] = i;
    make(b, id[0], id[1]);
    rc = team_run(b->threads, n == b->threads ? cpus : NULL, 1, lead, b);
    bytes[ONE] = (double)(b->used * (m[MAT_GATE].rows * m[MAT_GATE].row_bytes + m[MAT_UP].rows * m[MAT_UP].row_bytes));
    bytes[TWO] = (double)(b->used * m[MAT_DOWN].rows * m[MAT_DOWN].row_bytes);
    bytes[BOTH] = bytes[ONE] + bytes[TWO];
    rate = median(b->read, (size_t)b->rounds);
    for (int kind = 0; kind < N_KINDS; kind++)
        us[kind] = median(b->us[kind], (size_t)b->rounds * CALLS);
    if (!rc)
        printf("%-16s %3d %7.2f %7.1f %8.1f %8.1f %8.1f | %8.1f %8.1f | %8.1f %8.1f | %6.1f\n", types, b->threads,
               bytes[BOTH] * 1e-6, rate, us[BOTH], bytes[BOTH] / rate * 1e-3, us[BOTH] - bytes[BOTH] / rate * 1e-3,
               us[ONE], us[ONE] - bytes[ONE] / rate * 1e-3, us[TWO], us[TWO] - bytes[TWO] / rate * 1e-3, us[EMPTY]);
    fflush(stdout);
    munmap((void *)b->m.slabs[0], b->m.slabs_bytes[0]);
    munmap(b, sizeof *b);
    return rc;
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"IQ2_XS/IQ4_NL", "IQ3_S/IQ4_NL", "IQ4_XS/IQ4_NL", "Q4_K/Q5_0", NULL};
    static struct bench b = {.rounds = 7, .used = 10, .n_embd = 2560, .n_ff = 640, .bytes = 512u << 20};
    const char *const *types = usual;
    cpu_set_t allowed;
    int rc = 0, o;

    b.threads = sched_getaffinity(0, sizeof allowed, &allowed) ? 1 : CPU_COUNT(&allowed);
    while ((o = getopt(argc, argv, "t:m:n:e:f:r:")) != -1) {
        long v = optarg ? atol(optarg) : 0;
        if (v < 1 || o == '?') {
            fprintf(stderr, "usage: call_bench [-t THREADS] [-m MB] [-n EXPERTS] [-e N_EMBD] [-f N_FF] [-r ROUNDS] "
                            "[GATE_UP/DOWN ...]\n");
            return 2;
        }
        if (o == 't')
            b.threads = v > MOST_THREADS ? MOST_THREADS : (int)v;
        else if (o == 'r')
            b.rounds = v > MOST_ROUNDS ? MOST_ROUNDS : (int)v;
        else if (o == 'm')
            b.bytes = (size_t)v << 20;
        else
            *(o == 'n' ? &b.used : o == 'e' ? &b.n_embd : &b.n_ff) = (uint32_t)v;
    }
    if (argv[optind])
        types = (const char *const *)argv + optind;
    cpu_float_state();
    printf("%u experts of %u x %u a call, level %s; us; \"over\": more than its bytes at the rate of reading\n", b.used,
           b.n_embd, b.n_ff, cpu_level_name(cpu_level()));
    printf("%-16s %3s %7s %7s %8s %8s %8s | %8s %8s | %8s %8s | %6s\n", "gate, up/down", "t", "MB", "GB/s", "call",
           "reading", "over", "gate+up", "over", "down", "over", "empty");
    for (; *types && !rc; types++)
        rc = one(&b, *types);
    return rc;
}
