/* The pager's life. It opens nothing: every file is a descriptor that the coordinator checked,
 * every segment was mapped by child_begin. It never maps a model file: a page fault would stall the
 * process at a moment nobody chose. */
#define _GNU_SOURCE
#include "pager/pager.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "pager/io.h"
#include "shm/bell.h"
#include "shm/size.h"

static const struct seg *find_seg(const struct child *c, enum seg_role role, uint32_t index)
{
    for (size_t i = 0; i < c->n_segs; i++)
        if (c->seg[i].role == role && c->seg[i].index == index)
            return &c->seg[i];
    return NULL;
}

/* The segment's payload, at least `bytes` of it. */
static void *need_seg(const struct child *c, enum seg_role role, uint32_t index, uint64_t bytes,
                      struct err *e)
{
    const struct seg *s = find_seg(c, role, index);

    if (!s || s->bytes < bytes) {
        err_set(e, -EPROTO, "segment %s.%u: %" PRIu64 " bytes wanted, found %" PRIu64,
                seg_role_name(role), index, bytes, s ? s->bytes : 0);
        return NULL;
    }
    return s->base;
}

/* Where reads go: the trunk's segment is 0, node n's slabs are 1 + n. Either may be missing. */
static void take_places(struct pager *p)
{
    p->n_segs = 1 + p->geo.n_nodes;
    for (uint32_t i = 0; i < p->n_segs; i++) {
        const struct seg *s =
            i ? find_seg(p->child, SEG_SLABS, i - 1) : find_seg(p->child, SEG_TRUNK, 0);
        if (!s)
            continue;
        p->seg_base[i] = s->base;
        p->seg_bytes[i] = round_up(s->bytes, READ_ALIGN); /* a mapping ends with its page */
    }
}

static int take_segments(struct pager *p, struct err *e)
{
    const struct child *c = p->child;
    uint32_t n;

    p->board = need_seg(c, SEG_BOARD, 0, sizeof *p->board, e);
    if (!p->board)
        return e->code;
    p->geo = p->board->geo;
    n = p->geo.order_slots;
    if (!n || n & (n - 1) || n > 1u << 20 || p->geo.n_nodes > MAX_NODES || c->outbox >= MAX_PROCS)
        return err_set(e, -EPROTO, "board: %u order slots, %u nodes, outbox %u", n, p->geo.n_nodes,
                       c->outbox);
    p->orders = need_seg(c, SEG_ORDERS, 0, orders_bytes(&p->geo), e);
    p->bells = need_seg(c, SEG_BELLS, 0, MAX_PROCS * sizeof *p->bells, e);
    p->box = need_seg(c, SEG_OUTBOX, c->outbox, pager_box_bytes(&p->geo), e);
    take_places(p);
    return e->code;
}

static int take_file(struct pager *p, const struct ctl_msg *m, int fd, struct err *e)
{
    struct pager_file *f;
    uint64_t *bytes;

    if (fd < 0 || m->a >= PAGER_MAX_SHARDS || m->b > INT64_MAX)
        return err_set(e, -EPROTO, "%s: shard %" PRIu64 " of %" PRIu64 " bytes%s", m->text, m->a,
                       m->b, fd < 0 ? " came without its descriptor" : "");
    if (m->a >= p->n_shards) {
        uint32_t n = (uint32_t)m->a + 1;
        f = realloc(p->file, n * sizeof *f);
        if (f)
            p->file = f;
        bytes = realloc(p->shard_bytes, n * sizeof *bytes);
        if (bytes)
            p->shard_bytes = bytes;
        if (!f || !bytes)
            return err_set(e, -ENOMEM, "no memory for %u model files", n);
        for (uint32_t i = p->n_shards; i < n; i++)
            f[i] = (struct pager_file){.fd = -1};
        p->n_shards = n;
    }
    f = &p->file[m->a];
    if (f->fd >= 0)
        return err_set(e, -EEXIST, "%s: shard %" PRIu64 " came twice", m->text, m->a);
    f->fd = fd;
    f->direct = m->flags & 1;
    if (!f->direct) /* no read-ahead: it would leave in the page cache what nobody reads */
        posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    snprintf(f->name, sizeof f->name, "%.*s", (int)sizeof f->name - 1, m->text);
    p->shard_bytes[m->a] = m->b;
    return 0;
}

/* A line for the files that go through the page cache, if there are any: one for all. */
static void say_buffered(struct pager *p)
{
    uint32_t n = 0, first = 0;

    for (uint32_t i = p->n_shards; i-- > 0;)
        if (!p->file[i].direct) {
            n++;
            first = i;
        }
    if (n)
        ctl_sendf(p->child->ctl, CTL_LOG, 1,
                  "%s%s: O_DIRECT is refused there: read by way of the page cache, which is told to "
                  "drop it again",
                  p->file[first].name, n > 1 ? " and others" : "");
}

/* 1: start; 0: end; negative: error. */
static int take_files(struct pager *p, struct err *e)
{
    struct ctl_msg m;
    int fd, rc;

    for (;;) {
        rc = ctl_recv(p->child->ctl, &m, &fd, -1);
        if (rc == -EPIPE)
            return 0;
        if (rc <= 0)
            return err_set(e, rc ? rc : -EPROTO, "control socket: %s", strerror(rc ? -rc : EPROTO));
        rc = m.kind == CTL_FILE ? take_file(p, &m, fd, e) : 0;
        if (fd >= 0 && (rc || m.kind != CTL_FILE))
            close(fd);
        if (rc)
            return rc;
        if (m.kind == CTL_QUIT)
            return 0;
        if (m.kind != CTL_START)
            continue;
        p->next = m.a ? m.a : 1;
        for (uint32_t i = 0; i < p->n_shards; i++)
            if (p->file[i].fd < 0)
                return err_set(e, -EPROTO, "shard %u of %u did not come", i, p->n_shards);
        say_buffered(p);
        return 1;
    }
}

static int open_form(struct pager *p, const struct io_form *form, struct err *e)
{
    const char *fixed = getenv("CONCLAVE_READS");
    int rc;

    tune_init(&p->tune);
    if (fixed && *fixed && tune_fix(&p->tune, fixed))
        return err_set(e, -EINVAL, "CONCLAVE_READS is '%s' (KiB of a read x reads out, as 1024x8; at most %ux%u)",
                       fixed, TUNE_READ >> 10, TUNE_DEPTH);
    rc = jobs_init(&p->jobs, p->geo.order_slots, form->depth, form->low_depth, e);
    if (rc)
        return rc;
    p->form = form;
    follow_size(p);
    rc = form->open(p, e);
    if (rc)
        jobs_free(&p->jobs);
    return rc;
}

static int begin_reading(struct pager *p, struct err *e)
{
    const char *wanted = getenv("CONCLAVE_IO");
    struct err why = {0};
    int rc;

    if (wanted && !strcmp(wanted, io_threads_form.name))
        return open_form(p, &io_threads_form, e);
    if (wanted && !strcmp(wanted, io_uring_form.name))
        return open_form(p, &io_uring_form, e);
    if (wanted && *wanted)
        return err_set(e, -EINVAL, "CONCLAVE_IO is '%s' (uring or threads)", wanted);
    rc = open_form(p, &io_uring_form, &why);
    if (!rc)
        return 0;
    ctl_sendf(p->child->ctl, CTL_LOG, 1, "%s: reading with %u threads instead", why.msg,
              io_threads_form.depth);
    return open_form(p, &io_threads_form, e);
}

void pager_trouble(struct pager *p, const struct err *e)
{
    err_set(&p->trouble, e->code, "%s", e->msg);
    eventfd_write(p->trouble_fd, 1);
}

/* Waits for the end: 0 when told to end, or the trouble that a thread has. */
static int wait_for_end(struct pager *p, int term_fd, struct err *e)
{
    enum { CTL, TERM, TROUBLE, N };
    struct pollfd f[N] = {[CTL] = {.fd = p->child->ctl, .events = POLLIN},
                          [TERM] = {.fd = term_fd, .events = POLLIN},
                          [TROUBLE] = {.fd = p->trouble_fd, .events = POLLIN}};
    struct ctl_msg m;
    int fd, rc;

    for (;;) {
        if (poll(f, N, -1) < 0) {
            if (errno == EINTR)
                continue;
            return err_set(e, -errno, "poll: %s", strerror(errno));
        }
        if (f[TROUBLE].revents) {
            pthread_mutex_lock(&p->lock);
            *e = p->trouble;
            pthread_mutex_unlock(&p->lock);
            return e->code;
        }
        if (f[TERM].revents)
            return 0;
        if (!f[CTL].revents)
            continue;
        rc = ctl_recv(p->child->ctl, &m, &fd, 0);
        if (rc > 0 && fd >= 0)
            close(fd);
        if (rc == -EPIPE || (rc > 0 && m.kind == CTL_QUIT))
            return 0;
        if (rc < 0)
            return err_set(e, rc, "control socket: %s", strerror(-rc));
    }
}

/* Reading has begun: follow until the end, then wait for the reads that are out. */
static int serve(struct pager *p, int term_fd, struct err *e)
{
    pthread_t follower;
    int rc = pthread_create(&follower, NULL, follow_orders, p);

    if (rc) {
        rc = err_set(e, -rc, "cannot start a thread: %s", strerror(rc));
    } else {
        ctl_sendf(p->child->ctl, CTL_READY, 0, "%s", p->form->name);
        rc = wait_for_end(p, term_fd, e);
        atomic_store_explicit(&p->ending, 1, memory_order_release);
        bell_wake(&p->bells[p->child->outbox]);
        pthread_join(follower, NULL);
    }
    pthread_mutex_lock(&p->lock);
    p->stopping = 1; /* the follower has done it, if there was one */
    pthread_mutex_unlock(&p->lock);
    finish_stop(p); /* before the form: it hands on places */
    p->form->close(p);
    jobs_free(&p->jobs);
    return rc;
}

int pager_run(const struct child *c, struct err *e)
{
    struct pager p = {.child = c, .trouble_fd = -1, .timeline = c->timeline};
    int rc, term_fd = -1;
    sigset_t term;

    pthread_mutex_init(&p.lock, NULL);
    pthread_cond_init(&p.quiet, NULL);
    pthread_cond_init(&p.work, NULL);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, NULL); /* the threads inherit it */
    term_fd = signalfd(-1, &term, SFD_CLOEXEC);
    p.trouble_fd = eventfd(0, EFD_CLOEXEC);
    if (term_fd < 0 || p.trouble_fd < 0) {
        rc = err_set(e, -errno, "no descriptor for the pager: %s", strerror(errno));
        goto done;
    }
    rc = take_segments(&p, e);
    if (rc)
        goto done;
    rc = take_files(&p, e);
    if (rc <= 0)
        goto done;
    rc = begin_reading(&p, e);
    if (rc)
        goto done;
    rc = serve(&p, term_fd, e);
done:
    for (uint32_t i = 0; i < p.n_shards; i++)
        if (p.file[i].fd >= 0)
            close(p.file[i].fd);
    free(p.file);
    free(p.shard_bytes);
    if (p.trouble_fd >= 0)
        close(p.trouble_fd);
    if (term_fd >= 0)
        close(term_fd);
    pthread_cond_destroy(&p.work);
    pthread_cond_destroy(&p.quiet);
    pthread_mutex_destroy(&p.lock);
    return rc;
}
