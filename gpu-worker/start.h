/* The beginning of a card's CTL_START: "card=C device=emu|N " and then what every worker's says. */
#pragma once
#include <stdint.h>

#include "shm/err.h"

struct card_start {
    uint32_t card; /* index in the coordinator's list: whose slots in the tables are ours */
    int device;    /* CUDA's number of the card; -1: emulated, the CPU's kernels */
};
/* Reads it and moves *text behind it. */
int card_start_read(const char **text, struct card_start *s, struct err *e);
