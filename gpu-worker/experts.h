/* A card's worker as one that computes experts: the process from CTL_START to its end. */
#pragma once
#include "shm/child.h"

/* 0: it was told to end; negative: *e. */
int experts_run(const struct child *c, struct err *e);
