/* The queue between orders and the disk. Knows bytes and priorities, not tokens or experts: layer
 * and expert numbers of an order only pass through, for messages. */
#include "pager/jobs.h"

#include <stdlib.h>
#include <string.h>

struct job {
    struct order o;
    uint32_t piece; /* the next read begins in this piece, */
    uint64_t at;    /* that many bytes into it */
    uint32_t out;   /* reads that are out */
    int open, queued, failed;
    struct job *next; /* in its priority's queue */
};

int jobs_init(struct jobs *js, uint32_t n_slots, uint32_t depth, uint32_t low_depth, struct err *e)
{
    *js = (struct jobs){.n_slots = n_slots, .depth = depth, .low_depth = low_depth};
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

int jobs_add(struct jobs *js, const struct order *o)
{
    struct job *j = &js->job[o->number % js->n_slots];

    if (j->open)
        return -EEXIST;
    *j = (struct job){.o = *o, .open = 1};
    js->n_open++;
    queue_add(js, j);
    return 0;
}

struct job_read *jobs_next(struct jobs *js)
{
    struct job *j = NULL;
    struct job_read *r;
    const struct order_piece *p;
    uint32_t id, prio;

    if (js->out == js->depth)
        return NULL;
    for (prio = PRIO_DEMAND; prio <= PRIO_WARM && !j; prio++)
        if (prio == PRIO_DEMAND || js->low_out < js->low_depth)
            j = js->first[prio];
    if (!j)
        return NULL;
    p = &j->o.piece[j->piece];
    id = js->spare[js->depth - ++js->out];
    r = &js->read[id];
    *r = (struct job_read){
        .id = id,
        .shard = p->shard,
        .seg = p->seg,
        .off = p->file_off + j->at,
        .dst = p->dst + j->at,
        .bytes = p->bytes - j->at < READ_BYTES ? p->bytes - j->at : READ_BYTES,
        .need = p->need - j->at,
        .job = j,
    };
    if (r->need > r->bytes)
        r->need = r->bytes;
    j->out++;
    js->low_out += j->o.prio != PRIO_DEMAND;
    j->at += r->bytes;
    if (j->at >= p->need) { /* blocks behind the last wanted byte are not read */
        j->at = 0;
        if (++j->piece == j->o.n_pieces)
            queue_drop(js, j);
    }
    return r;
}

/* The read is over, well or not. */
static void read_over(struct jobs *js, struct job_read *r, struct job_result *res)
{
    struct job *j = r->job;

    js->spare[js->depth - js->out--] = r->id;
    js->low_out -= j->o.prio != PRIO_DEMAND;
    j->out--;
    if (j->out || j->queued)
        return;
    res->ended = 1;
    res->failed = j->failed;
    j->open = 0;
    js->n_open--;
}

static void read_failed(struct jobs *js, struct job_read *r, int code, struct job_result *res)
{
    if (!r->job->failed) {
        r->job->failed = 1;
        res->report = code;
        res->at = r->off;
    }
    queue_drop(js, r->job); /* what was not read yet is not read any more */
    read_over(js, r, res);
}

struct job_result jobs_result(struct jobs *js, struct job_read *r, int64_t got)
{
    struct job_result res = {.number = r->job->o.number};
    uint64_t whole;

    if (r->job->failed) { /* another read of the order: whatever came is not used */
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
        read_over(js, r, &res);
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

const struct order *jobs_order(const struct job_read *r)
{
    return &r->job->o;
}
