/* The lives of cards' workers. One that dies is reaped and followed by another; what it leaves behind is put in
 * order in between. The watching thread (watch.h) reaps and starts, the steward's thread (cards.h) puts in
 * order; one word a card says whose turn it is, and only that thread touches the rest of the life then. */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

enum life_turn {
    LIFE_UP,     /* it follows the rings. Watch: reaped -> GONE */
    LIFE_GONE,   /* steward: slots emptied, orders answered, items given away -> EMPTIED, or OUT */
    LIFE_EMPTIED, /* steward: the next one's outbox is nobody's any more -> WAITS */
    LIFE_WAITS,  /* watch: from not_before on a successor is started -> STARTS; that fails -> GONE */
    LIFE_STARTS, /* watch: it says that it is ready -> READY; it dies -> GONE */
    LIFE_READY,  /* steward: calls may name it from now on -> UP. Watch: it dies -> GONE */
    LIFE_OUT,    /* the card is left out for the rest of the run */
};
#define LIFE_FAILURES 3u /* so many within LIFE_WINDOW_S, and the card is left out */
#define LIFE_WINDOW_S 60u

struct life {
    _Atomic uint32_t turn; /* enum life_turn; release, acquire */
    uint32_t number;       /* which worker of the card, from 0: card_outbox */
    int pid;
    char name[48];         /* of the card, for lines; constant */
    char how[1280];        /* GONE: how it ended, or why none could be started */
    uint64_t not_before;   /* WAITS: now_ns() */
    int hosts;             /* it executes the trunk: WAITS also until the calls of the last one that was up are buried */
    _Atomic uint32_t last_up; /* number of the last one that was up; steward, before UP */
    _Atomic uint32_t buried;  /* main thread: calls of all workers below this number are */
    uint64_t failed[LIFE_FAILURES]; /* the last failures, newest first; 0: none */
};

static inline enum life_turn life_turn(const struct life *l)
{
    return (enum life_turn)atomic_load_explicit(&l->turn, memory_order_acquire);
}
static inline void life_pass(struct life *l, enum life_turn to)
{
    atomic_store_explicit(&l->turn, to, memory_order_release);
}
/* A worker has failed at `now`. Returns how many ns the next one waits, longer with every failure of the last
 * LIFE_WINDOW_S; or -1: that was one too many. Clocks are ns. */
int64_t life_failed(struct life *l, uint64_t now);
