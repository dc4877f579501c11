/* A word is either a pass (top bit; 20 bits: its tokens; 43 bits: those of all passes up to its
 * end) or a use (15 bits: layer; 16: expert; 32: tokens). */
#include "coordinator/residency/uses.h"

#include <assert.h>

#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan" /* nothing here is not atomic: no fence makes a race */
#endif

#define PASS (1ull << 63)
#define ALL_BITS 43
#define ALL ((1ull << ALL_BITS) - 1)
enum { COPY = 512 };

static void put(struct uses *u, uint64_t word)
{
    uint64_t head = atomic_load_explicit(&u->head, memory_order_relaxed);

    /* the head before this one says that the word is about to go: seen by whoever sees the word */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&u->word[head % USES_RING], word, memory_order_relaxed);
    atomic_store_explicit(&u->head, head + 1, memory_order_release);
}

void uses_step(struct uses *u, uint32_t n_tokens)
{
    assert(n_tokens < 1u << 20);
    u->tokens += n_tokens;
    put(u, PASS | (uint64_t)n_tokens << ALL_BITS | (u->tokens & ALL));
}

void uses_note(struct uses *u, uint32_t layer, uint32_t expert, uint32_t n)
{
    put(u, (uint64_t)layer << 48 | (uint64_t)expert << 32 | n);
}

static void tell_step(struct policy *const p[2], uint64_t n)
{
    for (int i = 0; i < 2; i++)
        if (p[i])
            policy_step(p[i], n < UINT32_MAX ? (uint32_t)n : UINT32_MAX);
}

static void tell(struct uses *u, struct policy *const p[2], uint64_t word)
{
    uint32_t n = (uint32_t)(word >> ALL_BITS & 0xfffff);
    uint64_t missed;

    if (!(word & PASS)) {
        for (int i = 0; i < 2; i++)
            if (p[i] && !u->torn)
                policy_use(p[i], (uint32_t)(word >> 48), (uint32_t)(word >> 32 & 0xffff), (uint32_t)word);
        return;
    }
    missed = (word & ALL) - n - u->seen;
    if (missed) /* passes whose words are gone */
        tell_step(p, missed);
    tell_step(p, n);
    u->seen = word & ALL;
    u->torn = 0;
}

uint64_t uses_copy(const struct uses *u, uint64_t from, uint64_t n, uint64_t *copy)
{
    uint64_t head, gone = 0;

    for (uint64_t i = 0; i < n; i++)
        copy[i] = atomic_load_explicit(&u->word[(from + i) % USES_RING], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    head = atomic_load_explicit(&u->head, memory_order_relaxed);
    if (head + 1 > from + USES_RING) /* word i + USES_RING may have been begun: i may be that one */
        gone = head + 1 - USES_RING - from;
    return gone < n ? gone : n;
}

uint64_t uses_drain_both(struct uses *u, struct policy *p, struct policy *q)
{
    struct policy *const both[2] = {p, q};
    uint64_t lost = 0, copy[COPY], head;

    while ((head = atomic_load_explicit(&u->head, memory_order_acquire)) != u->tail) {
        uint64_t n, gone;
        if (head - u->tail > USES_RING - USES_RING / 4) { /* far behind: away from the writer */
            lost += head - USES_RING / 2 - u->tail;
            u->tail = head - USES_RING / 2;
            u->torn = 1;
        }
        n = head - u->tail < COPY ? head - u->tail : COPY;
        gone = uses_copy(u, u->tail, n, copy);
        lost += gone;
        u->torn |= gone > 0;
        u->tail += n;
        for (uint64_t i = gone; i < n; i++)
            tell(u, both, copy[i]);
    }
    return lost;
}

uint64_t uses_drain(struct uses *u, struct policy *p)
{
    return uses_drain_both(u, p, NULL);
}
