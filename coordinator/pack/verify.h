/* Reads a whole pack and compares every checksum in it. */
#pragma once
#include "coordinator/model/gguf.h"
#include "shm/err.h"

struct pack_verify {
    const struct gguf *g; /* of a pack */
    void (*progress)(void *arg, uint64_t done, uint64_t total, int last); /* NULL: none */
    int (*stop)(void);                                                    /* NULL: never */
    /* One line for what is damaged or cannot be read. One at a time, from any thread. */
    void (*bad)(void *arg, const char *line);
    void *arg;
    /* out */
    uint64_t n_bad, bytes;
};
/* 0: all was read, n_bad says how much of it is damaged. 1: stopped. Negative: one line. */
int pack_verify(struct pack_verify *v, struct err *e);
