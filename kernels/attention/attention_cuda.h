/* attention.h on a card: keys and values appended, and attention of a batch's query heads, rules 29
 * and
 * 35. Positions, sequences and lists are read from device memory when the kernels run, and grids do
 * not follow them, so one recorded graph serves every context. No allocation, capturable.
 *
 * Keys and values lie head by head: row j of kv head h of sequence s begins at
 * base + ((s * kv_heads + h) * n_ctx + j) * row bytes, row bytes = kv_bytes(type, values). */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "kernels/stream.h"

CUDA_BEGIN
#include "kernels/attention/attention.h"

#define ATTENTION_LIST_ALL UINT32_MAX
struct attention_kv {
    enum kv_type type;
    void *k, *v;                      /* device memory, base aligned to 16 */
    unsigned n_ctx, kv_heads, hd, dv; /* hd: values of a key, dv: of a value */
    const uint32_t *pos, *seq;        /* device, by token: it sees the positions 0 ... pos */
    /* selected lists: token t's at list + t * list_ld: how many, then their rows; or ATTENTION_LIST_ALL alone: 0 ...
     * pos. NULL: none */
    const uint32_t *list;
    size_t list_ld;
};

/* Row pos[t] of sequence seq[t] = token t's kv_heads keys and values, k (n_tokens, kv_heads * hd)
 * with ldk floats from token to token, v likewise; dv 0: there are keys alone. */
void kv_append_cuda(const struct attention_kv *a, const float *k, size_t ldk, const float *v,
                    size_t ldv, unsigned n_tokens, cudaStream_t s);

/* out (n_tokens, heads * dv) = attention of q (n_tokens, heads * hd); heads % kv_heads == 0, the
 * heads of kv head h are h * heads / kv_heads ... Every token sees at least one key.
 *
 * scratch: device memory, attention_cuda_scratch(...) bytes, 16-byte aligned; 0 where n_tokens is
 * more than ATTENTION_SPLIT_TOKENS. Up to that many tokens a chunk of keys is one block's work, and
 * a second kernel merges; more (prompt passes) walk chunk by chunk. The same bits. */
#define ATTENTION_SPLIT_TOKENS 8
size_t attention_cuda_scratch(unsigned n_tokens, unsigned heads, unsigned dv, unsigned n_ctx);
void attention_cuda(const struct attention_kv *a, const float *q, size_t ldq, unsigned heads,
                    float scale, float *out, size_t ldo, unsigned n_tokens, void *scratch,
                    cudaStream_t s);
/* Loads the kernels and raises their shared memory: once a process and card, before the first step
 * (a first launch blocks behind a waiting graph). The CUDA error, 0: none. */
int attention_cuda_ready(void);
CUDA_END
