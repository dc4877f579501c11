/* conclave-gpu --probe[=measure [SHAPE]]: what the cards of this machine are, as JSON on standard output. The coordinator
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
    double experts, experts_layer, node;    /* weights a second; a layer of experts; an empty node of a graph */
    double round_trip;                      /* a word of the host's to a kernel that waits, and its answer back */
    double handoff[PROBE_CARDS], handoff_peer[PROBE_CARDS]; /* one way to a kernel there: mapped, peer memory */
};
/* "12:12:14:2048:4096:8": types of gate, up and down as GGUF numbers them, n_ff, n_embd, experts a token */
struct probe_shape {
    uint32_t type[3], n_ff, n_embd, used;
};
struct probe {
    char problem[PROBE_TEXT];
    const char *archs; /* static; NULL: built without CUDA */
    int driver, runtime;
    uint32_t n_cards;
    struct probe_card card[PROBE_CARDS];
};

/* All of it; 0, or 1: standard output could not be written. What was wrong with the machine is in the
 * text. measure: a second or two longer. shape: NULL, or of the experts that are measured. */
int probe_main(int measure, const struct probe_shape *shape);
/* 0, or -1: it is no shape. */
int probe_shape_read(const char *text, struct probe_shape *out);

/* probe_cuda.cu: fills in p. Without CUDA (probe_none.c): says so. */
void probe_cuda(struct probe *p, int measure, const struct probe_shape *shape);
/* probe_experts.cu: experts, experts_layer and node of the current card, 0 where it does not work. */
void probe_experts(struct probe_card *c, const struct probe_shape *shape);

/* 1: code for `archs` ("75 80 90 90+ptx") runs on a card of compute capability major.minor: machine code
 * within its major version up to its minor one, PTX from its version on. */
int probe_runs(const char *archs, int major, int minor);
/* One JSON text, an end of line behind it. Hands over a malloc'ed string; NULL: no memory. */
char *probe_text(const struct probe *p, int measured);

#ifdef __cplusplus
}
#endif
