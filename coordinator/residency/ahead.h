/* What the trunk foresees of the next layer, for the thread that orders reads: the newest list alone, an
 * older one is out of date. One writer, one reader, neither waits.
 *
 *   field     written by   order
 *   turn      writer       odd (relaxed), then a release fence, before the list is written; even
 *                          (release) after; the reader acquires, and looks again behind an acquire fence
 *   word[]    writer       relaxed, between the two
 */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

enum { AHEAD_MOST = 64 }; /* experts of a list */

struct ahead {
    _Alignas(64) _Atomic uint64_t turn;
    _Atomic uint32_t layer, n, word[AHEAD_MOST];
};

/* Starts as all zero. Writer: these experts of the layer are likely and not at hand, the likeliest first;
 * more than AHEAD_MOST are cut off. */
void ahead_tell(struct ahead *a, uint32_t layer, const uint32_t *expert, uint32_t n);
/* Reader: is there a list newer than the one taken at *seen? */
static inline int ahead_new(const struct ahead *a, uint64_t seen)
{
    return atomic_load_explicit(&a->turn, memory_order_acquire) / 2 != seen / 2;
}
/* Reader: a newer list than that of *seen (starts as 0). 0: none, or it is being written. expert has room
 * for AHEAD_MOST. */
int ahead_take(const struct ahead *a, uint64_t *seen, uint32_t *layer, uint32_t *expert, uint32_t *n);
