/* A card's worker: the process from CTL_START to its end. It computes experts, and if it was sent the trunk's
 * program also that. */
#pragma once
#include "shm/child.h"

/* 0: it was told to end; negative: *e. */
int experts_run(const struct child *c, struct err *e);
