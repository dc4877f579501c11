/* What a plan is worth: bytes and time of a token from measured times and an expected hit rate. Plain
 * values in, plain values out. */
#pragma once
#include <stdint.h>

#include "coordinator/residency/balance.h"
#include "shm/layout.h"

/* Cards beside the nodes: each computes its part of a layer at the same time (balance.h). */
struct predict_cards {
    uint32_t n;
    struct balance_device card[MAX_CARDS]; /* most: part of the uses that its slots can have */
    double node_fixed; /* seconds until the nodes' answer is there, beside their computing */
    double bytes;      /* weights of a layer of the measured size, one token */
    int all_in_ram;    /* nodes have what cards have; else only what these have not */
};
struct predict_in {
    double hit;              /* chance that an expert is at hand, on a card or in memory */
    double trunk_seconds;    /* of a token */
    uint32_t used;           /* experts of a layer and token */
    const double *seconds;   /* [absent], used + 1: of a layer of the measured size */
    double layers;           /* with experts, each counted by its size against the measured one */
    uint64_t expert_bytes;   /* of all experts that a token uses, all layers: computed */
    uint64_t read_bytes;     /* ... what reading all of them from the file takes */
    const struct predict_cards *cards; /* NULL: none */
};
struct predict_out {
    double tokens_per_s, seconds; /* of a token */
    double experts_seconds;       /* of that: the layers of experts, all */
    double best_seconds;          /* of a token if nothing is read */
    double card_bytes;            /* of experts a token, from cards */
    double memory_bytes;          /* ... from memory */
    double disk_bytes;            /* ... from the file */
    double part[MAX_CARDS];       /* of all uses, computed by each card */
};
/* Misses of a layer are taken as independent of each other: binomial. */
struct predict_out predict(const struct predict_in *p);
/* Part of the uses that fall on the n most used of them: what n places hit if the future is like the
 * counts. Reorders uses. 0 if they add up to nothing. */
double predict_hottest(float *uses, uint64_t n_uses, uint64_t n);
