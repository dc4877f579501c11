/* One counter a run, taken from by adding: its owner's line stays in its core until somebody helps. */
#include "shm/runs.h"

#include <stdlib.h>
#include <string.h>

int runs_init(struct runs *r, int n_threads, struct err *e)
{
    memset(r, 0, sizeof *r);
    r->run = aligned_alloc(_Alignof(struct run_left), (size_t)n_threads * sizeof *r->run);
    if (!r->run)
        return err_set(e, -ENOMEM, "no memory for the work of %d threads", n_threads);
    memset(r->run, 0, (size_t)n_threads * sizeof *r->run);
    r->most = n_threads;
    return 0;
}

void runs_drop(struct runs *r)
{
    free(r->run);
    memset(r, 0, sizeof *r);
}

void runs_cut(struct runs *r, int n, uint64_t all)
{
    uint64_t pieces = all / (uint64_t)n / PIECE_LEAST;

    r->n = n;
    r->all = all;
    r->pieces = pieces < 1 ? 1 : pieces < RUN_PIECES ? (uint32_t)pieces : RUN_PIECES;
    for (int i = 0; i < n; i++)
        atomic_store_explicit(&r->run[i].next, 0, memory_order_relaxed); /* the team's word is released after it */
}

int runs_take(struct runs *r, int *of, int thread, uint64_t *from, uint64_t *to)
{
    for (;;) {
        _Atomic uint32_t *next = &r->run[*of].next;
        uint32_t i = atomic_load_explicit(next, memory_order_relaxed);
        if (i < r->pieces && (i = atomic_fetch_add_explicit(next, 1, memory_order_relaxed)) < r->pieces) {
            uint64_t piece = (uint64_t)*of * r->pieces + i, n = (uint64_t)r->n * r->pieces;
            *from = r->all * piece / n;
            *to = r->all * (piece + 1) / n;
            return 1;
        }
        *of = *of + 1 < r->n ? *of + 1 : 0;
        if (*of == thread || r->pieces == 1) /* one piece each: nobody helps */
            return 0;
    }
}
