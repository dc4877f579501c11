/* Attention of query heads over the keys of one kv head, ARITHMETIC.md rules 29 and 35.
 *
 * Scores are LANE8 dots, keys are walked in chunks of 256 positions (or list entries), chunks merge
 * in ascending order. Neither chunks nor orders depend on how many queries or keys a call handles,
 * so a prompt pass, a batch and single steps give the same bits.
 *
 * K and V are seen as they were stored. Their rows lie k_stride and v_stride bytes apart; a row is
 * kv_bytes(type, hd) or (type, dv) bytes. Rows of one head that follow each other directly are
 * best: a large power of two as stride wastes the caches. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum kv_type { KV_F32, KV_F16, KV_BF16 };

size_t kv_bytes(enum kv_type type, size_t n);                          /* of n values */
void kv_store(enum kv_type type, const float *x, size_t n, void *out); /* rule 6; NaN canonical */
void kv_load(enum kv_type type, const void *in, size_t n, float *x);   /* exact */

#define ATTENTION_CHUNK 256 /* rule 29.2 */

/* The keys and values of one kv head. Borrows all of it. */
struct attention_keys {
    enum kv_type type;
    const void *k, *v; /* row j at k + j * k_stride, v + j * v_stride; k and v may overlap */
    size_t k_stride, v_stride; /* bytes */
    const uint32_t *list;      /* NULL: key j is row j. Else key j is row list[j]: rule 29's
                                  selected list, its chunks are 256 entries */
    size_t hd, dv;             /* values of a key, of a value */
    float scale;
};

/* One query head of one token: its keys are 0 ... n-1, n >= 1. */
struct attention_query {
    const float *q; /* hd floats */
    float *out;     /* dv floats, of this query alone; not q */
    size_t n;
};

/* Several queries over the same keys: the heads that share a kv head, of one token or of a prompt's
 * neighbouring tokens, each with its own n. Each key and value is loaded and widened once for up to
 * four queries, and a chunk stays in the cache for all of them: put queries of equal or similar n
 * side by side (token by token, the heads of each together). Bits are those of one call a query.
 * What the rows from a query's n on hold cannot change its result.
 * scratch: attention_group_scratch(n_queries, dv) bytes, aligned to 64. */
size_t attention_group_scratch(size_t n_queries, size_t dv);
void attention_group(const struct attention_keys *keys, const struct attention_query *query,
                     size_t n_queries, void *scratch);

/* The same for one query without a list. scratch: attention_scratch(dv) bytes, aligned to 64. */
size_t attention_scratch(size_t dv);
void attention(enum kv_type type, const float *q, const void *k, const void *v, size_t k_stride,
               size_t v_stride, size_t n, size_t hd, size_t dv, float scale, float *out,
               void *scratch);

void attention_group_ref(const struct attention_keys *keys, const struct attention_query *query,
                         size_t n_queries, void *scratch);
void attention_group_avx2(const struct attention_keys *keys, const struct attention_query *query,
                          size_t n_queries, void *scratch);
void attention_group_avx512(const struct attention_keys *keys, const struct attention_query *query,
                            size_t n_queries, void *scratch);
void kv_store_ref(enum kv_type type, const float *x, size_t n, void *out);
void kv_store_avx2(enum kv_type type, const float *x, size_t n, void *out);
