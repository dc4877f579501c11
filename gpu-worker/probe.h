/* conclave-gpu --probe: what the cards of this machine are, as JSON on standard output. The coordinator
 * makes no CUDA call; it starts this, reads the text (coordinator/supervise/cards_found.h) and it ends,
 * its contexts with it, before any worker opens a card.
 *
 *   {"build": "cuda"|"cpu", "archs": "75 80 90 90+ptx"|"", "driver": 13000, "runtime": 13000,
 *    "problem": null|"what is wrong and what to do",
 *    "cards": [{"number", "name", "major", "minor", "pci", "numa", "multiprocessors", "total_bytes",
 *               "free_bytes", "runs", "registers", "registers_read_only", "peers": [numbers],
 *               "problem": null|text, "measured": {...} with --probe=measure}]}
 *
 * versions as CUDA writes them, 1000 * major + 10 * minor, 0: none. numa -1: unknown. runs: the build has
 * code for this card. A card with a problem has only what could be asked. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PROBE_CARDS = 16, PROBE_TEXT = 400 };

struct probe_card {
    char name[96], pci[24], problem[PROBE_TEXT];
    int major, minor, multiprocessors, numa;
    uint64_t total, free; /* bytes */
    int runs, registers, registers_read_only;
    int peer[PROBE_CARDS]; /* 1: reaches that card's memory */
    /* measured; 0: not. bytes a second; microseconds */
    double upload, upload_pageable, memory; /* from registered and from plain memory; reading its own */
    double round_trip;                      /* a word of the host's to a kernel that waits, and its answer back */
    double handoff[PROBE_CARDS], handoff_peer[PROBE_CARDS]; /* one way to a kernel there: mapped, peer memory */
};
struct probe {
    char problem[PROBE_TEXT];
    const char *archs; /* static; NULL: built without CUDA */
    int driver, runtime;
    uint32_t n_cards;
    struct probe_card card[PROBE_CARDS];
};

/* All of it; 0, or 1: standard output could not be written. What was wrong with the machine is in the
 * text. measure: a second or two longer. */
int probe_main(int measure);

/* probe_cuda.cu: fills in p. Without CUDA (probe_none.c): says so. */
void probe_cuda(struct probe *p, int measure);

/* 1: code for `archs` ("75 80 90 90+ptx") runs on a card of compute capability major.minor: machine code
 * within its major version up to its minor one, PTX from its version on. */
int probe_runs(const char *archs, int major, int minor);
/* One JSON text, an end of line behind it. Hands over a malloc'ed string; NULL: no memory. */
char *probe_text(const struct probe *p, int measured);

#ifdef __cplusplus
}
#endif
