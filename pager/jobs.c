/* The queue between orders and the disk. Knows bytes and priorities, not tokens or experts: layer
 * and expert numbers of an order only pass through, for messages. */
#include "pager/jobs.h"

#include <stdlib.h>
#include <string.h>

#include "shm/size.h"

struct job {
    struct order o;
    uint32_t piece; /* the next read begins in this piece, */
    uint64_t at;    /* that many bytes into its blocks */
    uint32_t out;   /* reads that are out, or not yet copied */
    uint32_t left[ORDER_PIECES]; /* of these, in each piece */
    uint64_t to_check;           /* a bit a piece: waits to be hashed */
    int checking;                /* a piece is being hashed */
    int open, queued, in_check_list;
    enum order_why why; /* the first failure */
    uint32_t bad_piece;
    struct job *next, *next_check; /* in its priority's queue; in the list of checks */
};
_Static_assert(ORDER_PIECES <= 64, "a bit a piece");

int jobs_init(struct jobs *js, uint32_t n_slots, uint32_t depth, uint32_t low_depth, struct err *e)
{
    *js = (struct jobs){.n_slots = n_slots, .depth = depth};

    jobs_size(js, READ_BYTES, depth, low_depth);
    js->job = calloc(n_slots, sizeof *js->job);
    js->read = calloc(depth, sizeof *js->read);
    js->spare = calloc(depth, sizeof *js->spare);
    if (!js->job || !js->read || !js->spare) {
        jobs_free(js);
        return err_set(e, -ENOMEM, "no memory for %u orders", n_slots);
    }
    for (uint32_t i = 0; i < depth; i++) {
        js->read[i].id = i;
        js->spare[i] = depth - 1 - i;
    }
    return 0;
}

void jobs_free(struct jobs *js)
{
    free(js->job);
    free(js->read);
    free(js->spare);
    *js = (struct jobs){0};
}

void jobs_size(struct jobs *js, uint32_t read_bytes, uint32_t limit, uint32_t low_limit)
{
    js->read_bytes = read_bytes;
    js->limit = limit;
    js->low_limit = low_limit;
}

int jobs_more(const struct jobs *js)
{
    return js->first[PRIO_DEMAND] || js->first[PRIO_PREFETCH] || js->first[PRIO_WARM];
}

int jobs_urgent(const struct jobs *js)
{
    return js->first[PRIO_DEMAND] && js->low_out;
}

static struct job *slot_of(const struct jobs *js, uint64_t number)
{
    return &js->job[number % js->n_slots];
}

static void queue_add(struct jobs *js, struct job *j)
{
    uint32_t p = j->o.prio;

    j->next = NULL;
    j->queued = 1;
    if (js->last[p])
        js->last[p]->next = j;
    else
        js->first[p] = j;
    js->last[p] = j;
}

static void queue_drop(struct jobs *js, struct job *j)
{
    uint32_t p = j->o.prio;
    struct job *before = NULL;

    if (!j->queued)
        return;
    for (struct job *k = js->first[p]; k != j; k = k->next)
        before = k;
    if (before)
        before->next = j->next;
    else
        js->first[p] = j->next;
    if (js->last[p] == j)
        js->last[p] = before;
    j->queued = 0;
}

int jobs_slot_open(const struct jobs *js, uint64_t number)
{
    return slot_of(js, number)->open;
}

int jobs_add(struct jobs *js, const struct order *o)
{
    struct job *j = slot_of(js, o->number);

    if (j->open)
        return -EEXIST;
    *j = (struct job){.o = *o, /* it may stand in the list from its former order, with nothing to check */
                      .open = 1,
                      .in_check_list = j->in_check_list,
                      .next_check = j->next_check};
    js->n_open++;
    queue_add(js, j);
    return 0;
}

/* ---- giving reads ---- */

/* The blocks of the file that a piece is read from: where they begin, how far the wanted bytes lie
 * behind that, how many bytes must come from there on. */
struct span {
    uint64_t off, skip, need;
};
static struct span span_of(const struct order_piece *p)
{
    uint64_t skip = p->flags & PIECE_COPY ? p->file_off % READ_ALIGN : 0;

    return (struct span){p->file_off - skip, skip, skip + p->need};
}

/* Where a bounced read's bytes go from its buffer. */
static void plan_copy(struct job_read *r, const struct order_piece *p, const struct span *s,
                      uint64_t at)
{
    uint64_t skip = at ? 0 : s->skip; /* only the first read begins before the wanted bytes */

    r->bounce = 1;
    r->dst = (uint64_t)r->id * READ_BYTES;
    r->copy_from = r->dst + skip;
    r->n_copy = r->need - skip;
    r->copy_to = p->dst + at + skip - s->skip;
}

struct job_read *jobs_next(struct jobs *js)
{
    struct job *j = NULL;
    struct job_read *r;
    const struct order_piece *p;
    struct span s;
    uint32_t id, prio, most;

    if (js->out >= js->limit) /* more are out: the limit was lowered */
        return NULL;
    for (prio = PRIO_DEMAND; prio <= PRIO_WARM && !j; prio++)
        if (prio == PRIO_DEMAND || js->low_out < js->low_limit)
            j = js->first[prio];
    if (!j)
        return NULL;
    p = &j->o.piece[j->piece];
    s = span_of(p);
    most = p->flags & PIECE_COPY ? READ_BYTES : js->read_bytes;
    id = js->spare[js->depth - ++js->out];
    r = &js->read[id];
    *r = (struct job_read){
        .id = id,
        .shard = p->shard,
        .seg = p->seg,
        .off = s.off + j->at,
        .dst = p->dst + j->at,
        .need = s.need - j->at < most ? s.need - j->at : most,
        .piece = j->piece,
        .job = j,
    };
    r->bytes = round_up(r->need, READ_ALIGN); /* blocks behind the last wanted byte are not read */
    if (p->flags & PIECE_COPY)
        plan_copy(r, p, &s, j->at);
    j->out++;
    j->left[j->piece]++;
    js->low_out += j->o.prio != PRIO_DEMAND;
    j->at += r->bytes;
    if (j->at >= s.need) {
        j->at = 0;
        if (++j->piece == j->o.n_pieces)
            queue_drop(js, j);
    }
    return r;
}

/* ---- ends ---- */

static void end_if_over(struct jobs *js, struct job *j, struct job_result *res)
{
    if (!j->open || j->out || j->queued || j->to_check || j->checking)
        return;
    res->ended = 1;
    res->why = j->why;
    res->piece = j->bad_piece;
    j->open = 0;
    js->n_open--;
}

/* What was not read yet is not read any more, what was not hashed is not hashed. */
static void drop(struct jobs *js, struct job *j, enum order_why why, uint32_t piece)
{
    j->why = why;
    j->bad_piece = piece;
    j->to_check = 0;
    queue_drop(js, j);
}

static void want_check(struct jobs *js, struct job *j, uint32_t piece, struct job_result *res)
{
    j->to_check |= 1ull << piece;
    res->work = 1;
    if (j->in_check_list)
        return;
    j->in_check_list = 1;
    j->next_check = NULL;
    if (js->check_last)
        js->check_last->next_check = j;
    else
        js->check_first = j;
    js->check_last = j;
}

/* The read is over, well or not. */
static void read_over(struct jobs *js, struct job_read *r, struct job_result *res)
{
    struct job *j = r->job;
    uint32_t piece = r->piece;

    js->spare[js->depth - js->out--] = r->id;
    js->low_out -= j->o.prio != PRIO_DEMAND;
    j->out--;
    j->left[piece]--;
    if (!j->why && j->o.piece[piece].flags & PIECE_CHECK && !j->left[piece] && piece < j->piece)
        want_check(js, j, piece, res);
    end_if_over(js, j, res);
}

static void report(struct job *j, uint32_t piece, int code, uint64_t at, struct job_result *res)
{
    res->report = code;
    res->at = at;
    res->piece = piece;
    res->shard = j->o.piece[piece].shard;
}

static void read_failed(struct jobs *js, struct job_read *r, int code, struct job_result *res)
{
    struct job *j = r->job;

    if (!j->why) {
        drop(js, j, ORDER_WHY_IO, r->piece);
        report(j, r->piece, code, r->off, res);
    }
    read_over(js, r, res);
}

static void read_came(struct jobs *js, struct job_read *r, struct job_result *res)
{
    if (!r->bounce) {
        read_over(js, r, res);
        return;
    }
    r->next = NULL;
    if (js->copy_last)
        js->copy_last->next = r;
    else
        js->copy_first = r;
    js->copy_last = r;
    res->work = 1;
}

struct job_result jobs_result(struct jobs *js, struct job_read *r, int64_t got)
{
    struct job_result res = {.number = r->job->o.number};
    uint64_t whole;

    if (r->job->why) { /* another read of the order, or cancelled: whatever came is not used */
        read_over(js, r, &res);
    } else if (got == -EAGAIN || got == -EINTR) {
        if (r->tries_again++ < RETRY_AGAIN)
            res.again = 2;
        else
            read_failed(js, r, (int)got, &res);
    } else if (got == -EIO && r->tries_eio++ < RETRY_EIO) {
        res.again = 1;
    } else if (got < 0) {
        read_failed(js, r, (int)got, &res);
    } else if ((uint64_t)got >= r->need) {
        read_came(js, r, &res);
    } else {
        /* short: go on from the last whole block. Less than a block: as a rule the file's end */
        whole = (uint64_t)got & ~(uint64_t)(READ_ALIGN - 1);
        if (got == 0 || (!whole && r->tries_short++ >= RETRY_SHORT)) {
            r->off += (uint64_t)got;
            read_failed(js, r, -ENODATA, &res);
            return res;
        }
        r->off += whole;
        r->dst += whole;
        r->bytes -= whole;
        r->need -= whole;
        res.again = 1;
    }
    return res;
}

/* ---- work ---- */

int jobs_work_next(struct jobs *js, struct job_work *w)
{
    struct job_read *r = js->copy_first;
    struct job *j;

    if (r) { /* first: a place in the queue waits for it */
        js->copy_first = r->next;
        if (!r->next)
            js->copy_last = NULL;
        *w = (struct job_work){.read = r, .job = r->job, .piece = r->piece};
        return 1;
    }
    while ((j = js->check_first) != NULL) {
        if (j->to_check) {
            *w = (struct job_work){.job = j, .piece = (uint32_t)__builtin_ctzll(j->to_check)};
            j->to_check &= j->to_check - 1;
            j->checking++;
            return 1;
        }
        js->check_first = j->next_check;
        if (!js->check_first)
            js->check_last = NULL;
        j->in_check_list = 0;
    }
    return 0;
}

struct job_result jobs_work_over(struct jobs *js, const struct job_work *w, int ok)
{
    struct job *j = w->job;
    struct job_result res = {.number = j->o.number};

    if (w->read) {
        read_over(js, w->read, &res);
        return res;
    }
    j->checking--;
    if (!ok && !j->why) {
        drop(js, j, ORDER_WHY_CHECKSUM, w->piece);
        report(j, w->piece, -EBADMSG, j->o.piece[w->piece].file_off, &res);
    }
    end_if_over(js, j, &res);
    return res;
}

/* ---- changes ---- */

struct job_result jobs_cancel(struct jobs *js, uint64_t number)
{
    struct job *j = slot_of(js, number);
    struct job_result res = {.number = number};

    if (!j->open || j->o.number != number || j->why || !j->queued)
        return res;
    drop(js, j, ORDER_WHY_CANCELLED, 0);
    end_if_over(js, j, &res);
    return res;
}

int jobs_raise(struct jobs *js, uint64_t number, uint32_t prio)
{
    struct job *j = slot_of(js, number);
    int queued = j->queued;

    if (!j->open || j->o.number != number || j->why || prio >= j->o.prio)
        return 0;
    queue_drop(js, j);
    if (prio == PRIO_DEMAND)
        js->low_out -= j->out;
    j->o.prio = prio;
    if (queued)
        queue_add(js, j);
    return 1;
}

const struct order *jobs_order(const struct job_read *r)
{
    return &r->job->o;
}

const struct order *jobs_order_of(const struct job *j)
{
    return &j->o;
}
