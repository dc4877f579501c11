/* Places at which a test has a process die: tests/faults/test_card_death.py, and nothing else. Between the
 * stores of the protocol's words, where death is most awkward. One load and a branch where nobody asked.
 *
 *   CONCLAVE_DIE=POINT:K:CARD[:LIVES]   the worker of card CARD dies when it passes POINT for the K-th time; and so
 *                                     do its successors, LIVES workers in all (1) */
#pragma once
#include <stdint.h>

enum fault_point { /* a name each, in fault.c */
    FAULT_NONE,
    FAULT_READY,     /* before it says that it is ready; a successor's alone */
    FAULT_STEP,      /* a step record is taken; on a card its kernels run */
    FAULT_PUBLISH,   /* a call's fields are in its slot, the word is not */
    FAULT_HEAD,      /* the word is, the ring's head is not */
    FAULT_SUM,       /* a call is complete; its rows are about to be summed */
    FAULT_RETIRE,    /* a call's rows are summed; it is not retired */
    FAULT_LOGITS,    /* half of the logits are in the answer */
    FAULT_ANSWER,    /* all are, the answer's word is not */
    FAULT_STAGE,     /* an intermediate is made, its stage stamp is not there */
    FAULT_ROWS,      /* half of the rows of a share are written */
    FAULT_ITEM,      /* a share is made, neither its stamp nor the owner's is there */
    FAULT_RING,      /* stamps are there, nobody has been rung */
    FAULT_UPLOAD,    /* half of an expert is copied; it dies when an item or a step comes */
    FAULT_DOWN,      /* ... on its way to RAM; the same */
    FAULT_UPLOADED,  /* all is copied, the order is not answered; the same */
    FAULT_ERROR,     /* "fault": a pass over items, or a step: on a card a kernel that faults, else an error like it */
    N_FAULT_POINTS
};

/* Reads CONCLAVE_DIE. Before threads are made. card, life: whose worker this is, and which of it. Returns a
 * message if the variable makes no sense, else NULL. */
const char *fault_arm(uint32_t card, uint32_t life);

extern enum fault_point fault_armed; /* constant after fault_arm */
int fault_passed(void); /* counts; is it the K-th time? */
_Noreturn void fault_die(void);
/* Blocks for ever; the process dies when another thread calls fault_work, or after two seconds. */
_Noreturn void fault_hold(void);
void fault_held(void);

/* Is the process to die here and now? Any thread. */
static inline int fault_due(enum fault_point p)
{
    return __builtin_expect(fault_armed == p, 0) && fault_passed();
}
static inline void fault_pass(enum fault_point p)
{
    if (fault_due(p))
        fault_die();
}
/* An item, or a step, is about to be worked at. */
static inline void fault_work(void)
{
    if (__builtin_expect(fault_armed >= FAULT_UPLOAD && fault_armed <= FAULT_UPLOADED, 0))
        fault_held();
}
