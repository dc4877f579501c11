/* A worker's pass on a card: vectors from mapped memory to operands, gate and up, down, rows to mapped memory,
 * and a stamp there that says so. A decode's pass is one graph, replayed; a prompt's is launched, its experts
 * with many vectors as products of their own (kernels/gemm). Which experts, vectors and rows is data, read by
 * the first launch.
 *
 * Plain values in, launches out: it knows no process and no protocol. Order: open; fill in the lists; run; poll
 * until it is over; again. One thread. Every kernel is loaded and was launched when open returns, and nothing
 * is allocated after. */
#pragma once
#include <stdint.h>

#include "kernels/stream.h"

CUDA_BEGIN
#include "gpu-worker/card.h"
#include "kernels/expert/expert_cuda.h"
#include "shm/layout.h"

enum { EXPERTS_CUDA_HALVES = CALLS_IN_FLIGHT };

/* One half of the arenas, as the card sees them: (token, n_embd) vectors; (row, n_ff) intermediates and
 * (row, n_embd) results of the own outbox. */
struct experts_cuda_half {
    const float *acts;
    float *inter, *rows;
};
struct experts_cuda_config {
    struct card *card;
    const struct expert_shape *shape; /* of the layers, each once; borrowed */
    uint32_t n_shapes;
    struct experts_cuda_half half[EXPERTS_CUDA_HALVES];
    uint32_t max_tokens, max_rows, max_slots; /* of a pass; rows are numbered below max_rows */
    uint32_t top_k;
    uint32_t ld_embd, ld_ff; /* floats from a vector, an intermediate or a result to the next in the arenas */
    uint32_t n_nodes;        /* 1: intermediates stay on the card */
    const void *weights;     /* on the card, any bytes, as many as the largest matrix: for the first launches */
};
/* An expert with more than EXPERTS_CUDA_FEW vectors (with so many both ways take as long): pairs
 * [first, first + n) of tok[] and row[]. Others are items, one for EXPERT_TOKENS vectors. */
enum { EXPERTS_CUDA_FEW = 2 * EXPERT_TOKENS };
struct experts_cuda_many {
    uint32_t slot, first, n, shares;
};
/* Filled in by the host before a run, in memory that the card reads. slot, many: max_slots. item, tok, row:
 * max_rows. shares[i], many[i].shares: a bit for each share of item i that is wanted (1: all, with one node). */
struct experts_cuda_lists {
    struct expert_slot *slot;
    struct expert_item *item;
    uint32_t *shares;
    struct experts_cuda_many *many;
    uint32_t *tok, *row;
};
struct experts_cuda_pass {
    uint32_t shape, half;
    uint32_t n_tokens, n_slots, n_items;
    uint32_t n_many, n_pairs; /* many items, and all their pairs; 0 if n_tokens <= EXPERT_TOKENS */
    int several;              /* one of n_items has more than one vector */
};

struct experts_cuda;
int experts_cuda_open(const struct experts_cuda_config *c, struct experts_cuda **out, struct err *e);
/* Not after an error. NULL is allowed. The card's memory is given back by card_close. */
void experts_cuda_close(struct experts_cuda *x);
struct experts_cuda_lists experts_cuda_lists(struct experts_cuda *x);
int experts_cuda_run(struct experts_cuda *x, const struct experts_cuda_pass *p, struct err *e);
/* 1: the rows are in memory; 0: not yet; negative: the card's error. */
int experts_cuda_poll(struct experts_cuda *x, struct err *e);
/* For tests: the next thing on the card is a kernel that writes where it must not. */
void experts_cuda_break(struct experts_cuda *x);
CUDA_END
