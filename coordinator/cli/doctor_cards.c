/* What the probe tells of the cards, in lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/cli/doctor.h"
#include "coordinator/cli/value.h"
#include "coordinator/supervise/cards_choose.h"

#define MPS_CONTROL "/tmp/nvidia-mps/control"

static const char *size(uint64_t bytes)
{
    static char text[2][32];
    static int at;

    return value_show_size(bytes, text[at++ % 2]);
}

static void card(struct doctor *d, const struct cards_found *f, const struct card_found *c)
{
    char about[16], archs[200], node[24] = "no NUMA node";

    snprintf(about, sizeof about, "card %u", c->number);
    if (c->numa >= 0)
        snprintf(node, sizeof node, "node %d", c->numa);
    if (!c->runs) {
        cards_archs_text(f->archs, archs, sizeof archs);
        doctor_say(d, FOUND_NOTE, about, "%s: compute capability %u.%u, this build runs on %s: build with CUDA_ARCH=%u",
                   c->name, c->compute / 10, c->compute % 10, archs, c->compute);
        return;
    }
    if (*c->problem) {
        doctor_say(d, FOUND_NOTE, about, "%s: %s", c->name, c->problem);
        return;
    }
    doctor_say(d, FOUND_OK, about, "%s: compute capability %u.%u, %u multiprocessors, %s of %s free, PCI %s, %s", c->name,
               c->compute / 10, c->compute % 10, c->multiprocessors, size(c->free), size(c->total), c->pci, node);
    doctor_say(d, FOUND_OK, about, "memory %.0f GB/s; a word from the host to a kernel and back %.1f us", 1e-9 * c->memory,
               c->round_trip);
    if (c->registers && c->upload > 0)
        doctor_say(d, FOUND_OK, about, "uploads %.1f GB/s from registered memory, %.1f GB/s from plain", 1e-9 * c->upload,
                   1e-9 * c->upload_pageable);
    else
        doctor_say(d, FOUND_NOTE, about, "host memory cannot be registered: uploads %.1f GB/s, through a buffer",
                   1e-9 * c->upload_pageable);
    doctor_say(d, FOUND_OK, about, c->registers_read_only
                                       ? "read-only mappings can be registered"
                                       : "read-only mappings cannot be registered: its worker maps calls and slabs writable");
}

static void links(struct doctor *d, const struct cards_found *f)
{
    for (uint32_t a = 0; a < f->n; a++)
        for (uint32_t b = a + 1; b < f->n; b++) {
            const struct card_found *c = &f->card[a];
            int peers = (c->peers >> b & 1) && (f->card[b].peers >> a & 1);
            if (!(c->handoff[b] > 0))
                continue;
            if (peers)
                doctor_say(d, FOUND_OK, "link", "cards %u and %u: a word takes %.1f us through peer memory, %.1f through mapped",
                           a, b, c->handoff_peer[b], c->handoff[b]);
            else
                doctor_say(d, FOUND_NOTE, "link", "cards %u and %u do not reach each other's memory: a word takes %.1f us "
                           "through mapped memory; see nvidia-smi topo -p2p r, and whether an IOMMU is on", a, b,
                           c->handoff[b]);
        }
}

void doctor_cards(struct doctor *d)
{
    struct cards_found *f = calloc(1, sizeof *f);

    if (!f) {
        doctor_say(d, FOUND_BAD, "memory", "none");
        return;
    }
    cards_find(1, f);
    if (*f->problem)
        doctor_say(d, FOUND_NOTE, "cards", "%s", f->problem);
    else
        doctor_say(d, FOUND_OK, "driver", "CUDA %u.%u; this build was made with CUDA %u.%u", f->driver / 1000,
                   f->driver % 1000 / 10, f->runtime / 1000, f->runtime % 1000 / 10);
    for (uint32_t i = 0; i < f->n; i++)
        card(d, f, &f->card[i]);
    links(d, f);
    if (f->n && !access(MPS_CONTROL, F_OK))
        doctor_say(d, FOUND_NOTE, "MPS", "its server runs: a process that dies takes other processes' work on the card with "
                   "it; end it (echo quit | nvidia-cuda-mps-control)");
    free(f);
}
