/* Whole worker processes, one to three nodes, against a trunk and a steward in this process:
 * experts that are on disk, stale epochs (declined items), shares taken from owners that go on, a
 * worker stopped for many calls, calls retired under its hands. Every row of every call is checked,
 * and no wake-up may be found by the time-out net. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu-worker/worker.h"

#include "cpu-worker/test_world.h"
#include "shm/steward.h"

#define LATE_NS 20000000u /* the steward's deadline */
#define STOPPED_CALLS 30
#define BLOCKED_NS 5000000000u
#define MAX_WAIT_NS 60000000000u

static const struct world_layer LAYERS[] = {
    {{W_F32, W_F32, W_F32}, 16, 24, 0, 0, 4096},
    {{W_Q8_0, W_Q8_0, W_F16}, 64, 32, 0.5f, 1, 1000032},
    {{W_Q4_K, W_Q6_K, W_Q4_K}, 256, 256, 0, 0, 3000032},
};
#define N_LAYERS (sizeof LAYERS / sizeof *LAYERS)

struct flight { /* a call that is open */
    struct call call;
    uint64_t since;
};
struct run {
    struct world w;
    struct steward *steward;
    _Atomic int *quit;
    pid_t pid[8];
    struct { /* the table: which expert lies where */
        int used;
        uint32_t layer, expert;
        uint64_t epoch;
    } place[WORLD_SLABS];
    struct flight flight[CALLS_IN_FLIGHT];
    uint64_t next, oldest; /* calls */
    int stopped;           /* index of the stopped worker, or -1 */
    uint64_t stopped_at;
    uint64_t stale, taken, blocked, bad_rows, rows;
};

static int worker_main(struct run *r, uint32_t index, int threads)
{
    struct maps m;
    struct worker w;
    struct err e = {0};
    int rc;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    r->w.child.outbox = PROC_FIRST_WORKER + index;
    rc = maps_take(&m, &r->w.child, &e);
    if (!rc)
        rc = worker_init(&w, &m, NULL, threads, 0, 0, &e);
    w.quit = &r->quit[index];
    if (!rc)
        rc = team_run(threads, NULL, 1, worker_lead, &w);
    if (rc)
        printf("worker %u: %s\n", index, e.msg);
    worker_drop(&w);
    maps_drop(&m);
    return rc != 0;
}

static void start(struct run *r, uint32_t n_nodes, uint32_t n_workers, int threads)
{
    struct steward_config c;
    struct err e = {0};

    memset(r, 0, sizeof *r);
    world_make(&r->w, n_nodes, n_workers, LAYERS, N_LAYERS);
    r->quit = world_memory(4096);
    r->next = r->oldest = 1;
    r->stopped = -1;
    for (uint32_t i = 0; i < CALLS_IN_FLIGHT; i++) {
        r->flight[i].call.items = calloc(r->w.g.max_items, sizeof(struct call_item));
        r->flight[i].call.pairs = calloc(r->w.g.max_pairs, sizeof(struct call_pair));
    }
    fflush(stdout);
    for (uint32_t i = 0; i < n_workers; i++) {
        r->pid[i] = fork();
        if (!r->pid[i])
            _exit(worker_main(r, i, threads));
    }
    c = (struct steward_config){.geo = &r->w.g,
                                .board = r->w.board,
                                .bells = r->w.bells,
                                .calls = r->w.calls,
                                .amends = r->w.amends,
                                .first = 1};
    CHECK(!steward_open(&c, &r->steward, &e), "%s", e.msg);
    for (uint32_t i = 0; i < n_workers; i++)
        steward_worker(r->steward, PROC_FIRST_WORKER + i, r->w.box[PROC_FIRST_WORKER + i],
                       WORKER_LIVE);
}

/* ---- trunk ---- */

/* A random call: some experts where the table says, some on disk, some by a stale entry. */
static void publish(struct run *r)
{
    struct world *w = &r->w;
    struct flight *f = &r->flight[r->next % CALLS_IN_FLIGHT];
    uint32_t layer = world_random(w) % N_LAYERS, first = world_random(w) % WORLD_EXPERTS;
    uint32_t n_items = 1 + world_random(w) % 4;
    struct call mine = w->call;

    w->call = f->call;
    world_call(w, r->next, layer, world_random(w) % 4 ? 1 : 1 + world_random(w) % 12);
    for (uint32_t i = 0; i < n_items; i++) {
        uint32_t expert = (first + i) % WORLD_EXPERTS, at = 0;
        struct call_item *it;
        while (at < WORLD_SLABS &&
               !(r->place[at].used && r->place[at].layer == layer && r->place[at].expert == expert))
            at++;
        it = world_item(w, expert, at, at < WORLD_SLABS ? r->place[at].epoch : 0, i, 0, 1);
        if (at == WORLD_SLABS) {
            it->place = PLACE_NONE;
            for (uint32_t k = 0; k < w->g.n_nodes; k++)
                it->owner[k] = OWNER_DISK;
        } else if (world_random(w) % 16 == 0) {
            it->epoch--; /* as if the table had been read before the place was filled again */
            r->stale++;
        }
    }
    f->since = now_ns();
    world_publish(w);
    f->call = w->call;
    w->call = mine;
    r->next++;
}

static int complete(struct run *r, const struct call *c)
{
    struct world *w = &r->w;

    for (uint32_t i = 0; i < c->head.n_items; i++)
        for (uint32_t k = 0; k < w->g.n_nodes; k++) {
            uint32_t o;
            if (!share_done(&w->g, w->amends, w->box, c->head.seq, i, k, c->items[i].owner[k], &o))
                return 0;
        }
    return 1;
}

static void check_rows(struct run *r, const struct call *c)
{
    struct world *w = &r->w;
    uint32_t n_embd = table_layer(w->tables, c->head.layer)->m[MAT_GATE].cols;
    float want[512];

    for (uint32_t i = 0; i < c->head.n_items; i++)
        for (uint32_t p = c->items[i].pair0; p < c->items[i].pair0 + c->items[i].n_pairs; p++) {
            uint32_t token = c->pairs[p].token;
            size_t at = (size_t)(token * c->head.top_k + c->pairs[p].rank) * w->g.n_embd;
            world_answer(w, c->head.layer, c->items[i].expert,
                         world_acts(w, c) + (size_t)token * w->g.n_embd, want);
            for (uint32_t k = 0; k < w->g.n_nodes; k++) {
                uint32_t r0 = share_row(n_embd, k, w->g.n_nodes), o;
                uint32_t r1 = share_row(n_embd, k + 1, w->g.n_nodes);
                present_giving(&w->g, w->amends, c->head.seq, i, k, c->items[i].owner[k], &o);
                r->bad_rows += memcmp(outbox_rows(&w->g, w->box[o], c->head.seq) + at + r0,
                                      want + r0, (r1 - r0) * sizeof *want) != 0;
                r->rows++;
            }
        }
}

/* ---- steward ---- */

static uint32_t live_owner(struct run *r, uint32_t start_at)
{
    uint32_t i = start_at % r->w.n_workers;

    if ((int)i == r->stopped)
        i = (i + 1) % r->w.n_workers;
    return PROC_FIRST_WORKER + i;
}

/* The expert's place; PLACE_NONE: none is free now. Evicts whatever nobody names. */
static uint32_t fetch(struct run *r, uint32_t layer, uint32_t expert)
{
    struct err e = {0};
    uint32_t from = world_random(&r->w);

    for (uint32_t i = 0; i < WORLD_SLABS; i++)
        if (r->place[i].used && r->place[i].layer == layer && r->place[i].expert == expert)
            return i;
    for (uint32_t j = 0; j < WORLD_SLABS; j++) {
        uint32_t i = (from + j) % WORLD_SLABS;
        if (steward_place_named(r->steward, i, now_ns(), &e))
            continue;
        world_mark(&r->w, i);
        steward_ring_workers(r->steward);
        if (steward_place_named(r->steward, i, now_ns(), &e))
            continue;
        r->place[i].used = 1;
        r->place[i].layer = layer;
        r->place[i].expert = expert;
        r->place[i].epoch = world_load(&r->w, layer, expert, i);
        return i;
    }
    return PLACE_NONE;
}

static void steward_step(struct run *r)
{
    struct need need[16];
    struct err e = {0};
    uint32_t owner[MAX_NODES];
    uint64_t now = now_ns();
    size_t n;

    if (steward_follow(r->steward, now, &e) < 0)
        CHECK(0, "%s", e.msg);
    n = steward_needs(r->steward, now, LATE_NS, need, 16);
    for (size_t i = 0; i < n && i < 16; i++) {
        uint32_t place;
        if (need[i].why == NEED_PLACE) {
            place = fetch(r, need[i].layer, need[i].expert);
            if (place == PLACE_NONE)
                continue;
            for (uint32_t k = 0; k < r->w.g.n_nodes; k++)
                owner[k] = live_owner(r, k);
            steward_grant(r->steward, need[i].call, need[i].item, place, r->place[place].epoch,
                          owner, now);
        } else if (need[i].why == NEED_AGAIN) { /* rule 20 */
            const _Atomic uint64_t *header =
                table_header(r->w.tables, &r->w.g, need[i].share, need[i].was.place);
            if (atomic_load(header) == need[i].was.epoch)
                steward_give(r->steward, need[i].call, need[i].item, need[i].share,
                             need[i].was.outbox, need[i].was.place, need[i].was.epoch, now);
        } else if (r->w.n_workers > 1) {
            uint32_t to = live_owner(r, need[i].was.outbox - PROC_FIRST_WORKER + 1);
            if (to != need[i].was.outbox)
                r->taken += steward_give(r->steward, need[i].call, need[i].item, need[i].share, to,
                                         need[i].was.place, need[i].was.epoch, now) > 0;
        }
    }
}

/* Takes a share from an owner that is at work on it, perhaps: any share of the youngest call. */
static void take_away(struct run *r)
{
    struct flight *f = &r->flight[(r->next - 1) % CALLS_IN_FLIGHT];
    struct world *w = &r->w;
    uint32_t i = world_random(w) % f->call.head.n_items, k = world_random(w) % w->g.n_nodes, o;
    struct err e = {0};

    if (w->n_workers < 2)
        return;
    steward_follow(r->steward, now_ns(), &e);
    if (f->call.items[i].owner[0] == OWNER_DISK ||
        present_giving(&w->g, w->amends, f->call.head.seq, i, k, f->call.items[i].owner[k], &o))
        return;
    r->taken +=
        steward_give(r->steward, f->call.head.seq, i, k, live_owner(r, o - PROC_FIRST_WORKER + 1),
                     f->call.items[i].place, f->call.items[i].epoch, now_ns()) > 0;
}

static void stop_or_continue(struct run *r)
{
    if (r->w.n_workers < 2)
        return;
    if (r->stopped < 0 && r->next % 400 == 200) {
        r->stopped = (int)(world_random(&r->w) % r->w.n_workers);
        r->stopped_at = r->next;
        kill(r->pid[r->stopped], SIGSTOP);
    } else if (r->stopped >= 0 && r->next - r->stopped_at >= STOPPED_CALLS) {
        kill(r->pid[r->stopped], SIGCONT);
        r->stopped = -1;
    }
}

/* A stopped owner's givings hold their places until it answers or is reaped (rule 10), so an item
 * on disk may have to wait for it: then it goes on early. Nothing else may take that long. */
static void unblock(struct run *r)
{
    struct err e = {0};
    uint32_t named = 0;

    for (uint32_t i = 0; i < WORLD_SLABS; i++)
        named += steward_place_named(r->steward, i, now_ns(), &e) > 0;
    CHECK(named == WORLD_SLABS, "call %llu waits, and %u of %u places are free",
          (unsigned long long)r->oldest, WORLD_SLABS - named, WORLD_SLABS);
    kill(r->pid[r->stopped], SIGCONT);
    r->stopped = -1;
    r->blocked++;
}

static void drive(struct run *r, uint64_t n_calls)
{
    while (r->oldest <= n_calls) {
        struct flight *f;
        while (r->next <= n_calls && r->next - r->oldest < CALLS_IN_FLIGHT) {
            if (world_random(&r->w) % 50 == 0)
                usleep(3000); /* they fall asleep */
            stop_or_continue(r);
            publish(r);
            if (world_random(&r->w) % 8 == 0)
                take_away(r);
        }
        f = &r->flight[r->oldest % CALLS_IN_FLIGHT];
        steward_step(r);
        if (!complete(r, &f->call)) {
            if (now_ns() - f->since > MAX_WAIT_NS) {
                CHECK(0, "call %llu is not complete", (unsigned long long)r->oldest);
                return;
            }
            if (r->stopped >= 0 && now_ns() - f->since > BLOCKED_NS)
                unblock(r);
            sched_yield();
            continue;
        }
        check_rows(r, &f->call);
        call_retire(&r->w.g, r->w.calls, r->oldest++);
    }
}

static void finish(struct run *r, const char *what)
{
    const struct steward_counters *c = steward_counters(r->steward);
    uint64_t declined = 0, amended = 0, sleeps = 0, net = 0, each = 1;
    int status;

    if (r->stopped >= 0)
        kill(r->pid[r->stopped], SIGCONT);
    for (uint32_t i = 0; i < r->w.n_workers; i++) {
        struct outbox_counters *o = &r->w.box[PROC_FIRST_WORKER + i]->count;
        atomic_store(&r->quit[i], 1);
        bell_wake(&r->w.bells[PROC_FIRST_WORKER + i]);
        CHECK(waitpid(r->pid[i], &status, 0) == r->pid[i] && !status, "%s: worker %u: status %d",
              what, i, status);
        declined += atomic_load(&o->declined);
        amended += atomic_load(&o->amended);
        sleeps += atomic_load(&o->sleeps);
        net += atomic_load(&o->net_finds);
        each &= atomic_load(&o->rows) > 0;
    }
    printf("%s: %llu rows, %llu declined, %llu amended, %llu taken away, %llu late, %llu sleeps\n",
           what, (unsigned long long)r->rows, (unsigned long long)declined,
           (unsigned long long)amended, (unsigned long long)r->taken, (unsigned long long)c->late,
           (unsigned long long)sleeps);
    CHECK(!r->bad_rows, "%s: %llu rows differ", what, (unsigned long long)r->bad_rows);
    CHECK(r->rows && declined && amended && sleeps && each, "%s: something did not happen", what);
    CHECK(r->w.n_workers < 2 || (r->taken && c->late), "%s: nothing was taken from anybody", what);
    CHECK_EQ(net, 0);
    steward_close(r->steward);
    for (uint32_t i = 0; i < CALLS_IN_FLIGHT; i++) {
        free(r->flight[i].call.items);
        free(r->flight[i].call.pairs);
    }
    munmap(r->quit, 4096);
    world_drop(&r->w);
}

int main(void)
{
    static const struct {
        uint32_t nodes, workers;
        int threads;
    } shape[] = {{1, 1, 2}, {1, 2, 1}, {2, 2, 1}, {2, 2, 2}, {3, 3, 1}, {2, 3, 1}};
    static struct run r;
    char what[60];

    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        snprintf(what, sizeof what, "%u nodes, %u workers, %d threads", shape[i].nodes,
                 shape[i].workers, shape[i].threads);
        start(&r, shape[i].nodes, shape[i].workers, shape[i].threads);
        drive(&r, 800);
        finish(&r, what);
    }
    return test_end();
}
