/* The cards of this machine, told by `conclave-gpu --probe` (gpu-worker/probe.h), which is started for it
 * and ends: no CUDA call is made here. What a probe that crashes, hangs or talks nonsense leaves behind is
 * one line. */
#pragma once
#include <stdint.h>

#include "shm/err.h"
#include "shm/layout.h"

struct card_found {
    uint32_t number; /* the driver's */
    char name[96], pci[24];
    char problem[200];       /* "": none */
    uint32_t compute;        /* capability, 10 * major + minor */
    uint32_t multiprocessors;
    int numa;                /* -1: unknown */
    int runs;                /* the build has code for it */
    int registers, registers_read_only; /* host memory can be mapped for it; without being writable */
    uint64_t total, free;    /* bytes */
    uint32_t peers;          /* bit k: reaches card k's memory */
    /* measured, 0: not. Bytes a second, microseconds */
    double upload, upload_pageable, memory, round_trip;
    double experts, experts_layer, node; /* of a shape that was asked for: weights a second; a layer; an empty node */
    double handoff[MAX_CARDS], handoff_peer[MAX_CARDS]; /* to a kernel on card k: mapped, peer memory */
};
struct cards_found {
    char problem[400];      /* why there is none, and what to do; "": none */
    char archs[160];        /* what the build has code for; "": built without CUDA */
    uint32_t driver, runtime; /* 1000 * major + 10 * minor; 0: none */
    uint32_t n;
    struct card_found card[MAX_CARDS];
};

/* Asks the probe beside this program, or the program that CONCLAVE_PROBE names (tests). measure: rates,
 * too, some seconds. Never fails: what went wrong is out->problem. Starts a child and reaps it. */
void cards_find(int measure, struct cards_found *out);
/* The same with experts of a shape measured, too; shape: as probe_shape_read takes it. */
void cards_measure(const char *shape, struct cards_found *out);
/* The program `path`, for at most limit_ms; what it says into *out. 0, or negative and why not. */
int cards_ask(const char *path, int measure, const char *shape, int limit_ms, struct cards_found *out, struct err *e);
/* The same from a probe's text; 0, or -EPROTO and what is wrong with it. */
int cards_read(const char *text, size_t n, struct cards_found *out, struct err *e);
