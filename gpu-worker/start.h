/* The beginning of a card's CTL_START, "card=C device=emu|N " and, where it hosts the trunk,
 * "trunk=RECORD team=T:a,b,c ", and then what every worker's says about the threads for experts. */
#pragma once
#include <stdint.h>

#include "shm/err.h"

#define CARD_TEAM_MOST 256u
struct card_start {
    uint32_t card;   /* index in the coordinator's list: whose slots in the tables are ours */
    int device;      /* CUDA's number of the card; -1: emulated, the CPU's kernels */
    int trunk;       /* it executes the trunk's program: */
    uint64_t record; /* step record that was there before it (rule 23) */
    uint32_t team;   /* threads, on these CPUs */
    int cpu[CARD_TEAM_MOST];
};
/* Reads it and moves *text behind it. */
int card_start_read(const char **text, struct card_start *s, struct err *e);
