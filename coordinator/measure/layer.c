/* Two teams on the same cores: the caller's stands for the trunk's, the other for the workers. A layer
 * is handed over by a word and a bell, as calls are. A third thread stands for the pager. What is not
 * there: the steward, and one hop between pager and worker. */
#define _GNU_SOURCE
#include "coordinator/measure/layer.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/measure/disk.h"
#include "coordinator/measure/measure.h"
#include "coordinator/supervise/pieces.h"
#include "kernels/expert/expert.h"
#include "kernels/quantise/quantise.h"
#include "kernels/type/type.h"
#include "shm/bell.h"
#include "shm/runs.h"
#include "shm/size.h"
#include "shm/team.h"

#define READS_MAX (LAYER_MOST_USED * ORDER_PIECES)
#define SHARDS_MAX 512
#define UNIT_ROWS 16 /* cpu-worker/job.h */
#define ROUNDS_LEAST 2
#define ROUNDS_MOST 64

struct read {
    int fd;
    uint64_t off, bytes;
    uint8_t *to;
};

struct bench {
    const struct layer_config *c;
    const struct expert_layer *l;
    struct layer_times *out;
    uint32_t used, pool, next; /* experts in the segment; the next one to compute */
    uint64_t one, land;        /* bytes of one there, and where it is read to */
    uint64_t mat_at[N_MATS];
    uint8_t *seg, *landing;
    struct geometry geo;
    struct tables *tables;
    struct pieces pieces;
    int fd[SHARDS_MAX];
    uint32_t n_fd;
    /* the workers' side */
    struct team *team;
    struct runs runs[2]; /* of gate and up; of down */
    float *x, *mid, *y, *tmp; /* tmp: 2 * n_ff a thread */
    uint8_t *acts[2], *mid_act; /* mid_act: `used` a thread */
    uint32_t first, n;          /* of the pass */
    /* words between the three */
    struct bell bell[3]; /* trunk, workers, pager */
    LINE _Atomic uint32_t asleep[3];
    LINE _Atomic uint64_t asked, arrived, done; /* asked: ASK; the others: number of a layer */
    uint64_t sum_ns[LAYER_MOST_USED + 1], present_ns, present_bytes, read_ns, read_sum, n_read;
    uint32_t rounds;
    uint64_t rng;
    struct io_uring ring;
    int has_ring, failed;
};
enum { TRUNK, WORKERS, PAGER };
#define ASK(layer, absent) ((uint64_t)(layer) << 8 | (absent)) /* layers count from 1 */
#define THE_END UINT64_MAX

/* ---- computing ---- */

static struct expert_part mat(const struct bench *b, uint32_t i, int m)
{
    const uint8_t *at = b->seg + (uint64_t)((b->first + i) % b->pool) * b->one + b->mat_at[m];

    return (struct expert_part){b->l->m[m].type, at, b->l->m[m].row_bytes, 1};
}

/* Rows r0 .. r1-1 of the pass's expert i in the part [from, to) of bytes: all experts' rows lie end to end, cut as
 * the workers cut them. */
static int rows_of(uint64_t row_bytes, uint32_t rows, uint32_t i, uint64_t from, uint64_t to, uint32_t *r0, uint32_t *r1)
{
    uint64_t unit = row_bytes * UNIT_ROWS, lo = row_bytes * rows * i;
    uint64_t a = from > lo ? (from - lo + unit - 1) / unit * UNIT_ROWS : 0,
             b = to > lo ? (to - lo + unit - 1) / unit * UNIT_ROWS : 0;

    *r0 = (uint32_t)(a < rows ? a : rows);
    *r1 = (uint32_t)(b < rows ? b : rows);
    return *r0 < *r1;
}

static void gate_up(const struct bench *b, int thread, uint64_t from, uint64_t to)
{
    const struct expert_matrix *m = b->l->m;
    uint32_t n_ff = m[MAT_GATE].rows, n_embd = m[MAT_DOWN].rows, r0, r1;
    size_t g = act_stride(type_info(m[MAT_GATE].type)->act, n_embd), u = act_stride(type_info(m[MAT_UP].type)->act, n_embd);

    for (uint32_t i = 0; i < b->n; i++) {
        struct expert_part gate = mat(b, i, MAT_GATE), up = mat(b, i, MAT_UP);
        if (rows_of(m[MAT_GATE].row_bytes + m[MAT_UP].row_bytes, n_ff, i, from, to, &r0, &r1))
            expert_gate_up(&gate, &up, n_embd, r0, r1, b->acts[0], g, b->acts[1], u, NULL, 1, b->l->limit,
                           b->tmp + (size_t)thread * 2 * n_ff, b->mid + (size_t)i * n_ff + r0, n_ff);
    }
}
static void down(const struct bench *b, int thread, uint32_t *prepared, uint64_t from, uint64_t to)
{
    const struct expert_matrix *m = b->l->m;
    uint32_t n_ff = m[MAT_GATE].rows, n_embd = m[MAT_DOWN].rows, r0, r1;
    enum act_form form = type_info(m[MAT_DOWN].type)->act;
    size_t mid = act_stride(form, n_ff);
    uint8_t *acts = b->mid_act + (size_t)thread * mid;

    for (uint32_t i = 0; i < b->n; i++) {
        struct expert_part w = mat(b, i, MAT_DOWN);
        if (!rows_of(m[MAT_DOWN].row_bytes, n_embd, i, from, to, &r0, &r1))
            continue;
        if (*prepared != i)
            act_prepare(form, b->mid + (size_t)i * n_ff, n_ff, acts);
        *prepared = i;
        expert_down(&w, n_ff, r0, r1, acts, mid, 1, b->y + (size_t)i * n_embd + r0, n_embd);
    }
}

static void compute(void *arg, int thread, int n_threads)
{
    struct bench *b = arg;
    uint32_t prepared = UINT32_MAX;
    uint64_t from, to;

    for (int of = thread; runs_take(&b->runs[0], &of, thread, &from, &to);)
        gate_up(b, thread, from, to);
    if (n_threads > 1)
        team_meet(b->team);
    for (int of = thread; runs_take(&b->runs[1], &of, thread, &from, &to);)
        down(b, thread, &prepared, from, to);
}

static void pass(struct bench *b, uint32_t n)
{
    const struct expert_matrix *m = b->l->m;

    if (!n)
        return;
    b->first = b->next;
    b->next = (b->next + n) % b->pool;
    b->n = n;
    runs_cut(&b->runs[0], team_size(b->team), n * (m[MAT_GATE].row_bytes + m[MAT_UP].row_bytes) * m[MAT_GATE].rows);
    runs_cut(&b->runs[1], team_size(b->team), n * m[MAT_DOWN].row_bytes * m[MAT_DOWN].rows);
    team_do(b->team, compute, b);
}

/* ---- waiting: word >= number, by rounds, then asleep ---- */

struct wanted {
    _Atomic uint64_t *word;
    uint64_t number;
};
static int there(void *arg)
{
    const struct wanted *w = arg;

    return atomic_load_explicit(w->word, memory_order_acquire) >= w->number ? LOOK_FOUND : LOOK_NOTHING;
}
static void await(struct bench *b, int who, _Atomic uint64_t *word, uint64_t number)
{
    struct wanted w = {word, number};
    uint32_t round = 0;

    while (!there(&w))
        if (!wait_round(&round, 1)) {
            bell_sleep(&b->bell[who], &b->asleep[who], there, &w, 0);
            round = 0;
        }
}
static void publish(struct bench *b, _Atomic uint64_t *word, uint64_t number, int whom)
{
    atomic_store_explicit(word, number, memory_order_release);
    bell_ring(&b->bell[whom], &b->asleep[whom]);
}

/* ---- the three ---- */

static int workers_lead(void *arg, struct team *t)
{
    struct bench *b = arg;

    b->team = t;
    for (uint64_t layer = 1;; layer++) {
        uint32_t absent;
        uint64_t start, word;
        await(b, WORKERS, &b->asked, ASK(layer, 0));
        word = atomic_load_explicit(&b->asked, memory_order_acquire);
        if (word == THE_END)
            return 0;
        absent = word & 0xFF;
        start = now_ns();
        act_prepare(type_info(b->l->m[MAT_GATE].type)->act, b->x, b->l->m[MAT_DOWN].rows, b->acts[0]);
        if (b->acts[1] != b->acts[0])
            act_prepare(type_info(b->l->m[MAT_UP].type)->act, b->x, b->l->m[MAT_DOWN].rows, b->acts[1]);
        pass(b, b->used - absent);
        if (absent && absent < b->used) {
            b->present_ns += now_ns() - start;
            b->present_bytes += (b->used - absent) * b->out->expert_bytes;
        }
        if (absent) {
            await(b, WORKERS, &b->arrived, layer);
            pass(b, absent);
        }
        publish(b, &b->done, layer, TRUNK);
    }
}
static void *workers(void *arg)
{
    struct bench *b = arg;
    const struct machine *m = b->c->machine;
    int cpus[MACHINE_MAX_CPUS];

    for (uint32_t i = 0; i < b->c->threads && i < MACHINE_MAX_CPUS; i++)
        cpus[i] = m->cpu[i % m->n_cpus];
    team_run((int)b->c->threads, cpus, 1, workers_lead, b);
    return NULL;
}

static uint32_t chance(struct bench *b, uint32_t n)
{
    b->rng = b->rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((b->rng >> 33) % n);
}

/* An expert by chance, as the pager would read it: all pieces on all nodes. */
static uint32_t reads_of(struct bench *b, uint8_t *to, struct read *r)
{
    const struct layer_config *c = b->c;
    uint32_t at = c->at, expert;
    struct order o = {0};

    for (int tries = 0; tries < 16; tries++) { /* any layer of the same shape */
        uint32_t k = chance(b, c->m->n_layers);
        if (c->layer[k].n_experts && !memcmp(&c->layer[k].m[0].row_bytes, &b->l->m[0].row_bytes, 8) &&
            slab_bytes(&c->layer[k], 0, 1) == slab_bytes(b->l, 0, 1)) {
            at = k;
            break;
        }
    }
    expert = chance(b, c->layer[at].n_experts);
    pieces_expert(&b->pieces, at, expert, 0, &o);
    for (uint32_t i = 0; i < o.n_pieces; i++) {
        uint64_t off = o.piece[i].file_off & ~4095ull; /* a pack's may begin anywhere */
        r[i] = (struct read){b->fd[o.piece[i].shard], off,
                             round_up(o.piece[i].file_off - off + o.piece[i].bytes, 4096), to};
        to += r[i].bytes;
    }
    return o.n_pieces;
}

static void read_one(struct bench *b, const struct read *r)
{
    if (pread(r->fd, r->to, r->bytes, (off_t)r->off) < 0)
        b->failed = errno;
}

static void read_all(struct bench *b, const struct read *r, uint32_t n)
{
    uint32_t out = 0, got = 0;

    if (!b->has_ring) { /* slower than the pager's threads; the caller is told (one_by_one) */
        for (uint32_t i = 0; i < n; i++)
            read_one(b, &r[i]);
        return;
    }
    while (got < n) {
        struct io_uring_cqe *cqe;
        struct io_uring_sqe *sqe;
        while (out < n && (sqe = io_uring_get_sqe(&b->ring))) {
            io_uring_prep_read(sqe, r[out].fd, r[out].to, (unsigned)r[out].bytes, r[out].off);
            out++;
        }
        if (io_uring_submit_and_wait(&b->ring, 1) < 0 && errno != EINTR && errno != EAGAIN) {
            b->failed = errno;
            return;
        }
        while (!io_uring_peek_cqe(&b->ring, &cqe)) {
            if (cqe->res < 0)
                b->failed = -cqe->res;
            io_uring_cqe_seen(&b->ring, cqe);
            got++;
        }
    }
}

static void *pager(void *arg)
{
    struct bench *b = arg;
    struct read *r = calloc(READS_MAX, sizeof *r);

    for (uint64_t layer = 0;;) { /* the last one seen; those without reads may be over unseen */
        uint32_t absent, n = 0;
        uint64_t start, word, bytes = 0;
        await(b, PAGER, &b->asked, ASK(layer + 1, 0));
        word = atomic_load_explicit(&b->asked, memory_order_acquire);
        if (word == THE_END)
            break;
        layer = word >> 8;
        absent = word & 0xFF;
        if (!absent)
            continue;
        start = now_ns();
        for (uint32_t i = 0; r && i < absent; i++)
            n += reads_of(b, b->landing + i * b->land, &r[n]);
        if (r)
            read_all(b, r, n);
        for (uint32_t i = 0; i < n; i++)
            bytes += r[i].bytes;
        if (absent == b->used) {
            b->read_ns += now_ns() - start;
            b->read_sum += bytes;
            b->n_read += absent;
        }
        publish(b, &b->arrived, layer, WORKERS);
    }
    free(r);
    return NULL;
}

static void nothing(void *arg, int thread, int n_threads)
{
    (void)arg;
    (void)thread;
    (void)n_threads;
}

static int trunk_lead(void *arg, struct team *t)
{
    struct bench *b = arg;
    uint64_t layer = 0, begin = now_ns();
    uint32_t most = b->c->reads ? b->used : 0;

    for (int round = -1; round < ROUNDS_MOST; round++) { /* the first one warms up */
        for (uint32_t absent = 0; absent <= most; absent++) {
            uint64_t start = now_ns();
            team_do(t, nothing, NULL); /* the trunk's threads were at work before */
            layer++;
            publish(b, &b->asked, ASK(layer, absent), WORKERS);
            if (absent)
                bell_ring(&b->bell[PAGER], &b->asleep[PAGER]);
            await(b, TRUNK, &b->done, layer);
            if (round >= 0)
                b->sum_ns[absent] += now_ns() - start;
        }
        if (round >= 0)
            b->rounds++;
        if (round + 1 >= ROUNDS_LEAST && now_ns() - begin > (uint64_t)b->c->ms * 1000000)
            break;
    }
    publish(b, &b->asked, THE_END, WORKERS);
    bell_ring(&b->bell[PAGER], &b->asleep[PAGER]);
    return 0;
}

/* ---- making it ---- */

static int open_files(struct bench *b, struct err *e)
{
    const struct gguf *g = b->c->m->g;
    enum disk_io how;
    int rc = disk_io(&how, e);

    if (rc)
        return rc;
    b->out->direct = 1;
    if (gguf_n_shards(g) > SHARDS_MAX)
        return err_set(e, -E2BIG, "%s: more than %d parts cannot be measured; --no-measure", b->c->m->path, SHARDS_MAX);
    for (size_t i = 0; i < gguf_n_shards(g); i++) {
        const char *path = gguf_shard_path(g, i);
        b->fd[i] = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
        if (b->fd[i] < 0) {
            b->out->direct = 0;
            b->fd[i] = open(path, O_RDONLY | O_CLOEXEC);
        }
        if (b->fd[i] < 0)
            return err_set(e, -errno, "%s: cannot open: %s", path, strerror(errno));
        b->n_fd++;
    }
    b->has_ring = how != DISK_THREADS && !io_uring_queue_init(64, &b->ring, 0);
    b->out->one_by_one = !b->has_ring;
    if (how == DISK_URING && !b->has_ring)
        return err_set(e, -ENOSYS, "no io_uring, and CONCLAVE_IO wants it");
    return 0;
}

/* As much of the tables as says where experts lie in the file, and a slab at 0 on every node. */
static int make_tables(struct bench *b, struct err *e)
{
    const struct layer_config *c = b->c;
    uint64_t layers = c->m->n_layers * sizeof *c->layer, at = round_up(sizeof(struct tables) + c->n_nodes * 8, 64);

    b->geo = (struct geometry){.n_nodes = c->n_nodes, .n_layers = c->m->n_layers, .n_experts = c->m->n_experts, .n_slabs = 1};
    b->tables = calloc(1, at + layers);
    if (!b->tables)
        return err_set(e, -ENOMEM, "no memory to measure a layer of experts");
    *b->tables = (struct tables){.off_slab = sizeof(struct tables), .off_layer = at};
    memcpy(table_layer(b->tables, 0), c->layer, layers);
    b->pieces = (struct pieces){c->m, &b->geo, b->tables, MODEL_NONE};
    return 0;
}

static void *floats(size_t n)
{
    float *p = aligned_alloc(64, round_up(n * sizeof *p + 64, 64));

    for (size_t i = 0; p && i < n; i++)
        p[i] = (float)(i % 17) * 0.1f - 0.8f;
    return p;
}

static int make(struct bench *b, struct err *e)
{
    const struct layer_config *c = b->c;
    uint32_t n_ff = b->l->m[MAT_GATE].rows, n_embd = b->l->m[MAT_DOWN].rows;
    enum act_form f[N_MATS];
    uint64_t at = 0, most;

    for (int m = 0; m < N_MATS; m++) {
        f[m] = type_info(b->l->m[m].type)->act;
        b->mat_at[m] = at;
        at += round_up((uint64_t)b->l->m[m].rows * b->l->m[m].row_bytes, 64);
        b->out->expert_bytes += (uint64_t)b->l->m[m].rows * b->l->m[m].row_bytes;
    }
    for (uint32_t k = 0; k < c->n_nodes; k++)
        b->land += slab_bytes(b->l, k, c->n_nodes);
    b->land += ORDER_PIECES * 2 * 4096;
    b->one = at;
    most = c->memory > b->used * b->land ? (c->memory - b->used * b->land) / at : 0;
    b->pool = most > 4096 ? 4096 : (uint32_t)most;
    if (b->pool < b->used + 1)
        b->pool = b->used + 1;
    b->seg = measure_segment(b->pool * at, e);
    b->landing = measure_segment(b->used * b->land, e);
    if (!b->seg || !b->landing)
        return -ENOMEM;
    for (uint32_t i = 0; i < b->pool; i++)
        for (int m = 0; m < N_MATS; m++)
            measure_fill(b->l->m[m].type, b->seg + i * at + b->mat_at[m], (uint64_t)b->l->m[m].rows * b->l->m[m].row_bytes);
    b->x = floats(n_embd);
    b->mid = floats((size_t)b->used * n_ff);
    b->y = floats((size_t)b->used * n_embd);
    b->tmp = floats((size_t)c->threads * 2 * n_ff);
    b->acts[0] = floats(act_stride(f[MAT_GATE], n_embd) / sizeof(float) + 16);
    b->acts[1] = f[MAT_UP] == f[MAT_GATE] ? b->acts[0] : floats(act_stride(f[MAT_UP], n_embd) / sizeof(float) + 16);
    b->mid_act = floats(c->threads * act_stride(f[MAT_DOWN], n_ff) / sizeof(float) + 16);
    if (!b->x || !b->mid || !b->y || !b->tmp || !b->acts[0] || !b->acts[1] || !b->mid_act)
        return err_set(e, -ENOMEM, "no memory to measure a layer of experts");
    for (int i = 0; i < 2; i++)
        if (runs_init(&b->runs[i], (int)c->threads, e))
            return -ENOMEM;
    if (!c->reads)
        return 0;
    return make_tables(b, e) ? -ENOMEM : open_files(b, e);
}

static void drop(struct bench *b)
{
    measure_segment_free(b->seg, b->pool * b->one);
    measure_segment_free(b->landing, b->used * b->land);
    for (uint32_t i = 0; i < b->n_fd; i++)
        close(b->fd[i]);
    if (b->has_ring)
        io_uring_queue_exit(&b->ring);
    if (b->acts[1] != b->acts[0])
        free(b->acts[1]);
    free(b->acts[0]);
    free(b->x);
    free(b->mid);
    free(b->y);
    free(b->tmp);
    free(b->mid_act);
    for (int i = 0; i < 2; i++)
        runs_drop(&b->runs[i]);
    free(b->tables);
    free(b);
}

static int run(struct bench *b, struct err *e)
{
    const struct machine *m = b->c->machine;
    int cpus[MACHINE_MAX_CPUS], rc;
    pthread_t worker, reader;

    for (uint32_t i = 0; i < b->c->threads && i < MACHINE_MAX_CPUS; i++)
        cpus[i] = m->cpu[i % m->n_cpus];
    rc = pthread_create(&worker, NULL, workers, b);
    if (rc)
        return err_set(e, -rc, "cannot start a thread: %s", strerror(rc));
    rc = b->c->reads ? pthread_create(&reader, NULL, pager, b) : 0;
    if (rc) { /* the worker waits for a first layer: end it */
        publish(b, &b->asked, THE_END, WORKERS);
        pthread_join(worker, NULL);
        return err_set(e, -rc, "cannot start a thread: %s", strerror(rc));
    }
    team_run((int)b->c->threads, cpus, 1, trunk_lead, b);
    pthread_join(worker, NULL);
    if (b->c->reads)
        pthread_join(reader, NULL);
    if (b->failed)
        return err_set(e, -b->failed, "%s: cannot read experts to measure the disk: %s", b->c->m->path, strerror(b->failed));
    return 0;
}

static void conclude(const struct bench *b)
{
    struct layer_times *o = b->out;

    o->used = b->used;
    for (uint32_t i = 0; i <= (b->c->reads ? b->used : 0); i++)
        o->seconds[i] = (double)b->sum_ns[i] * 1e-9 / b->rounds;
    o->alone = (double)(b->used * o->expert_bytes) / o->seconds[0];
    o->beside = b->present_ns ? (double)b->present_bytes / ((double)b->present_ns * 1e-9) : o->alone;
    o->read_bytes = b->n_read ? b->read_sum / b->n_read : 0;
    o->disk = b->read_ns ? (double)b->read_sum / ((double)b->read_ns * 1e-9) : 0;
}

int measure_layer(const struct layer_config *c, struct layer_times *out, struct err *e)
{
    struct bench *b = aligned_alloc(64, round_up(sizeof *b, 64));
    int rc;

    *out = (struct layer_times){0};
    if (!b)
        return err_set(e, -ENOMEM, "no memory to measure a layer of experts");
    memset(b, 0, sizeof *b);
    b->c = c;
    b->l = &c->layer[c->at];
    b->out = out;
    b->used = b->l->top_k < LAYER_MOST_USED ? b->l->top_k : LAYER_MOST_USED;
    b->rng = now_ns();
    rc = make(b, e);
    if (!rc)
        rc = run(b, e);
    if (!rc)
        conclude(b);
    drop(b);
    return rc;
}
