/* Which cards a run uses: what was asked for against what was found. Plain values in, plain values out. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "coordinator/supervise/cards_found.h"

enum cards_kind {
    CARDS_AUTO,     /* all that can be used, none is fine */
    CARDS_NONE,
    CARDS_LISTED,   /* these, or an error; a card may be listed more than once */
    CARDS_EMULATED, /* worker processes with the CPU's kernels */
};
#define TRUNK_AUTO (-1)
#define TRUNK_CPU (-2)

struct cards_wanted { /* --cards and --trunk */
    enum cards_kind kind;
    uint32_t n;               /* listed or emulated */
    uint32_t card[MAX_CARDS]; /* listed: the driver's numbers */
    uint64_t most[MAX_CARDS]; /* bytes that its pool of experts may have; 0: what is free, emulated: whatever is right */
    int trunk;                /* TRUNK_AUTO, TRUNK_CPU, or an index into the list of cards */
};

struct card_chosen {
    uint32_t device;    /* the driver's number: index into cards_found.card */
    char name[96];
    uint32_t sharers;   /* how often it is in the list */
    uint64_t free;      /* bytes of this worker: the card's free memory over its sharers */
    uint64_t most;      /* of these, for its pool of experts; 0: as many as are left */
    int read_only;      /* it reaches memory that is mapped for reading only */
};
struct cards_chosen {
    uint32_t n;
    struct card_chosen card[MAX_CARDS];
    char why[600]; /* of CARDS_AUTO: what is not used and why; "": nothing to say */
    int notable;   /* 1: there is a driver or a card, so whoever has it wants to know why it is not used */
};

/* least: bytes that a card must have free to be of use. CARDS_AUTO never fails. Of CARDS_NONE and
 * CARDS_EMULATED nothing is chosen. */
int cards_choose(const struct cards_wanted *w, const struct cards_found *f, uint64_t least, struct cards_chosen *out,
                 struct err *e);
/* Is a token expected sooner with the trunk on a card than with so many threads alone? n_ops: operations of the
 * trunk; bytes: weights that a token reads, experts included. By constants, not by this machine: a model of
 * megabytes is told from one of gigabytes, nothing finer. 0: *why is what to say. */
int cards_pay(uint32_t n_ops, uint64_t bytes, uint32_t threads, char *why, size_t n);
/* "75 80 90+ptx" -> "7.5, 8.0, 9.0 and later" */
void cards_archs_text(const char *archs, char *text, size_t n);
