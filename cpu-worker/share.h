/* The shares of open calls that this worker was given, and what comes next of them. A share is one
 * node's rows of one item; two things give it to us: the call itself, or an amendment. Each giving
 * is answered once (rule numbers: shm/model/README.md):
 *
 *            given                stage one            every other share of the item is staged
 *   IDLE ------------> TODO --------------------> STAGED ------------------> made: IDLE, DONE
 *                        |  header differs          |  header differs
 *                        +--------------------------+-----> IDLE, DECLINED
 *
 * with one node, or by a card, which makes the whole intermediate itself, straight from TODO to made. The header is compared whenever a share is looked at,
 * so before it begins and as long as it waits (13, 19). A share's stage one and its row stay good
 * for the whole call (19, 10): given again, it goes on from there.
 *
 * Leader only; decides, does no arithmetic. */
#pragma once
#include "cpu-worker/map.h"
#include "shm/consumer.h"

enum share_state { SHARE_IDLE, SHARE_TODO, SHARE_STAGED };
struct share {
    uint64_t call;  /* whose share this is; another number than the slot's call: as if new */
    uint64_t am;    /* amendment that is not answered; 0: none */
    uint64_t epoch; /* of the present giving */
    uint32_t place;
    uint8_t state;     /* enum share_state */
    uint8_t owes_call; /* the call's own giving is not answered */
    uint8_t staged, made;
};

struct open_call {    /* one a slot of the call ring */
    struct call copy; /* head.seq 0: none */
    uint32_t *open;   /* shares in TODO or STAGED, item * n_nodes + share, as they came */
    uint32_t n_open;
    uint32_t own_left; /* of the call's own givings: not answered */
    int declined;      /* one of them was declined */
    int counted;
};

/* One piece of work for the team. */
struct pass_item {
    uint32_t item, share, place;
    /* who holds each share's intermediate; set for stage two with several nodes */
    const float *inter[MAX_NODES];
};
struct pass {
    const struct call *call;
    int stage_one, stage_two; /* both: one node, or a card */
    uint32_t n;
    struct pass_item *item; /* max_items * n_nodes */
};

struct shares {
    const struct maps *m;
    int whole; /* a pass makes both stages of whatever shares it has, its part of the intermediate included,
                * and waits for nobody's: a card's. Set between shares_init and the first pass. */
    struct open_call call[CALL_SLOTS];
    struct share *share;      /* stamps_count, by stamp_index */
    struct consumer consumer; /* of both rings */
    struct call spare;        /* what it copies into */
    int stamping;             /* stamps were written and nobody rung yet */
    int ring_trunk, ring_steward, ring_nodes;
    struct pass pass;
};

/* The worker starts behind call and amendment number `calls`, `amends`: the rings' heads when its
 * outbox number was handed out (rule 12). Free with shares_drop, also after an error. */
int shares_init(struct shares *s, const struct maps *m, uint64_t calls, uint64_t amends,
                struct err *e);
void shares_drop(struct shares *s);

/* ---- follow.c ---- */
/* Takes whatever is new in both rings, in their order. 0, or negative if a number in them
 * is impossible. Rings for what it answers at once. */
int shares_follow(struct shares *s, struct err *e);

/* ---- share.c: givings and answers ---- */
/* The record of share k of an item of call c, made new if it is an older call's. */
struct share *share_of(const struct shares *s, const struct open_call *c, uint32_t item,
                       uint32_t k);
/* Gives the share to us: am 0 is the call's own giving. */
void share_give(struct shares *s, struct open_call *c, uint32_t item, uint32_t k, uint64_t am,
                uint32_t place, uint64_t epoch);
/* Answers every giving of the share that is open; its row is in memory, or will not be made. A
 * stamp of an amendment also stands for the call's own giving of the same share: item_stamp keeps
 * it, and giving_answer reads it so. */
void share_answer(struct shares *s, struct open_call *c, uint32_t item, uint32_t k,
                  enum stamp_kind kind);
/* Before any stamp. The first since the last ring says that a ring is coming (outbox.ringing). */
void shares_stamping(struct shares *s);
/* Rings for the stamps written since the last time: once for all of them. */
void shares_ring(struct shares *s);
/* Forgets a call's shares, unanswered: it is retired. */
void shares_forget(struct shares *s, struct open_call *c);
/* ---- pass.c: what comes next ---- */
/* Drops what is retired, declines what must be, and says what to work at next: all shares of the
 * oldest call that has any ready, stage one before stage two. NULL: nothing now. *declined: some
 * share was answered, look again before sleeping. Valid until the next call of shares_next. */
const struct pass *shares_next(struct shares *s, int *declined);
/* The pass is in memory: stamps, and rings whoever waits. (shares_next rings for what it declines.)
 */
void shares_done(struct shares *s, const struct pass *p);
/* Is there anything that shares_next would act on? An enum look, for a sleeper: LOOK_RUNG if the
 * last thing was a stage stamp whose writer has rung us. Changes nothing. */
int shares_look(const struct shares *s);
