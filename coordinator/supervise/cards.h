/* The tier of cards: which experts lie in cards' slots, their uploads, and the leaving of slots. A part of
 * the steward's thread (paging.h), which calls it from its rounds and nowhere else.
 *
 * An expert goes to a card from its slabs and from nowhere else. While it lies on a card its table entry
 * names the slot; what is left of it in RAM is RAM's business (the copy stays where all experts fit, else it
 * is the first to be overwritten). When it leaves, the entry names the slab again. If RAM has it no longer and has
 * room, it is copied down first, while it can still be used here; else the entry names nothing.
 *
 * Who goes: the policy says which experts are worth a slot; spread.h on which card, and whether cards have their
 * part already, by the rates measured so far: where RAM has everything, what a card should not have stays with the
 * nodes, and a card with too much gives some back.
 *
 * Order of stores, as for a slab (shm/model/README.md rules 10, 13 and 27; a card whose calls all come by the
 * ring has no table of its own, so that the header is what confirms that it has left):
 *   coming   slab held; order; the card's answer; header; entry; slab let go
 *   leaving  entry; on the trunk's card the order "clear" and its answer; header; workers rung; fence; givings
 *            over; only then the slot is anybody's
 *
 * A card's worker dies (lives.h): its number leaves the tables; its slots are empty; orders that it has left
 * open are answered for it; its unfinished items want somebody else, as the steward says. A successor has the
 * next number and empty slots, into which the hottest come first. */
#pragma once
#include "coordinator/residency/card_plan.h"
#include "coordinator/residency/spread.h"
#include "coordinator/supervise/watch.h"
#include "shm/orders.h"
#include "shm/steward.h"

struct card_channel {
    uint32_t outbox;     /* of its worker */
    uint32_t bell;       /* of its uploads */
    struct orders *orders;
    struct pager_box *answers;
};
struct cards_config { /* borrowed until cards_close */
    const struct geometry *geo;
    struct tables *tables;
    struct bell *bells;
    struct steward *steward;
    struct watch **watch;
    const struct card_plan *plan;
    const uint8_t *size_of; /* by layer: its experts' class in the plan */
    struct outbox *const *box; /* by outbox number */
    const struct card_channel *card;
    struct life *life;         /* of each card's workers */
    const struct calls *calls;
    const _Atomic uint64_t *step; /* the word of the step records; NULL: the trunk is executed here */
    int trunk;               /* the card that hosts the trunk; -1: none */
    uint32_t churn_us;       /* tests: an expert leaves each card so often, used or not; 0: never */
    /* RAM's side */
    void *arg;
    /* the slab in which the expert's bytes are whole now, and its epoch; PLACE_NONE */
    uint32_t (*in_ram)(void *arg, uint32_t layer, uint32_t expert, uint64_t *epoch);
    void (*hold)(void *arg, uint32_t slab, int more); /* +1: may not be overwritten; -1 */
    void (*came)(void *arg, uint32_t layer, uint32_t expert); /* it lies on a card now */
    /* A slab for one that is to leave a card and lies nowhere else: nobody's until it has landed, whole or not (then
     * it holds nothing). PLACE_NONE: RAM has no room for it. */
    uint32_t (*room)(void *arg, uint32_t layer, uint32_t expert);
    void (*landed)(void *arg, uint32_t slab, int whole);
    /* What cards and nodes have been measured to do so far; rate 0: nothing yet. */
    void (*rates)(void *arg, struct spread_rates *r);
    int all_in_ram; /* every expert has a slab of its own */
};
struct cards;
int cards_open(const struct cards_config *c, struct cards **out, struct err *e);
void cards_close(struct cards *c); /* NULL is allowed */
/* Of its uses: uses_drain tells it. */
struct policy *cards_policy(struct cards *c);
/* Before the first round: the policy knows the heat of earlier runs; where RAM has everything the hottest come
 * first. */
void cards_warm(struct cards *c);
/* The place that the expert's entry names on a card, and its epoch; PLACE_NONE: it lies on none. c may be
 * NULL. */
uint32_t cards_place(const struct cards *c, uint32_t layer, uint32_t expert, uint64_t *epoch);
/* The outbox of a card's place. */
uint32_t cards_outbox(const struct cards *c, uint32_t place);
/* The outbox of a card's worker; 0: there is none now. */
uint32_t cards_worker(const struct cards *c, uint32_t card);
/* After steward_follow: what died since the last call, and what came to life. Returns whether anything did. */
int cards_lives(struct cards *c);
/* Answers, slots that are over, new uploads. news: experts were used, or came to RAM, since the last round. Returns whether
 * anything moved, or there is more to look at. */
int cards_round(struct cards *c, int news);
/* Is there an answer that no round has seen? */
int cards_look(const struct cards *c);

struct cards_stats { /* any thread */
    uint32_t slots, experts; /* slots of all cards; taken by an expert that can be used */
    uint64_t uploads, upload_bytes, left, down; /* since the start; of those that left, copied down */
    int filling;             /* free slots are being filled */
    uint32_t held[MAX_CARDS]; /* experts on each card now */
    uint64_t came[MAX_CARDS]; /* experts that ever arrived there */
    uint32_t deaths, successors, out; /* workers that ended; that followed them; cards that are left out */
    uint64_t lost_items;      /* of open calls, that somebody else was given */
    struct card_past {        /* what a card's former workers did */
        uint64_t calls, items, amended, declined, rows, weight_bytes, work_ns, sleeps, net_finds;
    } past[MAX_CARDS];
};
void cards_stats(const struct cards *c, struct cards_stats *s);
