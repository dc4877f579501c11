/* A prompt's experts on a card: all items of a layer as a few products with the bits of the fused expert
 * (expert_cuda.h), by int8 tensor cores, up to 128 vectors of an expert at a time. For many vectors an expert;
 * which items there are is read from device memory as there. */
#pragma once
#include "kernels/expert/expert_cuda.h"

/* Loads the kernels into the current context; before the first launch, with products_load_cuda(). */
int expert_many_load_cuda(void);

/* Bytes of `tmp` below (64-byte aligned, device memory) for results of max_rows rows; 0: not for these types (they
 * are quantised ones), or not on this card. */
size_t expert_many_cuda_tmp(const struct expert_shape *shape, uint32_t max_rows);

/* A layer's vectors as gate and up want them (act_prepare_cuda), stride bytes apart; the same if that is one form. */
struct expert_vectors {
    const void *acts[2];
    size_t stride[2];
};
/* As expert_gate_up_cuda and expert_down_cuda, one after the other. Items of one expert should follow each
 * other, and all but the last of them be full: others are right, too, and slower. h: of all max_rows rows,
 * whether they are named or not (what lies in others is read, and used for nothing). */
int expert_many_cuda(const struct expert_shape *shape, const struct expert_work *work,
                     const struct expert_vectors *vectors, void *tmp, float *h, size_t ldh, float *y, size_t ldy,
                     struct CUstream_st *stream);
