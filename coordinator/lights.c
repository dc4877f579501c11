/* Two bytes an expert, and a copy of the engine's figures behind a counter that is odd while they change. */
#include "coordinator/lights.h"

#include <stdlib.h>
#include <string.h>

#include "shm/bell.h" /* now_ns */

enum { STATS_NS = 250 * 1000 * 1000, TRIES = 100 };

void lights_init(struct lights *l)
{
    memset(l, 0, sizeof *l);
}

void lights_free(struct lights *l)
{
    free(l->of_layer);
    free((void *)atomic_load_explicit(&l->lit, memory_order_relaxed));
    memset(l, 0, sizeof *l);
}

int lights_open(struct lights *l, uint32_t n_layers, const uint32_t *of_layer, struct err *e)
{
    _Atomic uint16_t *lit;

    free(l->of_layer); /* an engine that was opened in vain, with cards */
    l->of_layer = malloc((n_layers + 1) * sizeof *l->of_layer);
    l->n_layers = n_layers;
    l->n_experts = 0;
    for (uint32_t i = 0; i < n_layers; i++)
        l->n_experts = of_layer[i] > l->n_experts ? of_layer[i] : l->n_experts;
    lit = calloc((size_t)n_layers * l->n_experts + 1, sizeof *lit);
    if (!l->of_layer || !lit) {
        free((void *)lit);
        return err_set(e, -ENOMEM, "no memory for the picture of %u layers", n_layers);
    }
    memcpy(l->of_layer, of_layer, n_layers * sizeof *of_layer);
    free((void *)atomic_exchange_explicit(&l->lit, lit, memory_order_acq_rel));
    return 0;
}

void lights_step(struct lights *l, uint32_t n_tokens)
{
    atomic_fetch_add_explicit(&l->tokens, n_tokens, memory_order_relaxed);
    atomic_fetch_add_explicit(&l->steps, 1, memory_order_relaxed);
}

int lights_want_stats(const struct lights *l)
{
    return now_ns() - atomic_load_explicit(&l->stats_ns, memory_order_relaxed) > STATS_NS;
}

void lights_put_stats(struct lights *l, const struct engine_stats *s)
{
    uint64_t word[sizeof l->stats / 8] = {0}, n = atomic_load_explicit(&l->stats_count, memory_order_relaxed);

    memcpy(word, s, sizeof *s);
    atomic_store_explicit(&l->stats_count, n + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&l->stats_ns, now_ns(), memory_order_relaxed);
    for (size_t i = 0; i < sizeof word / 8; i++)
        atomic_store_explicit(&l->stats[i], word[i], memory_order_relaxed);
    atomic_store_explicit(&l->stats_count, n + 2, memory_order_release);
}

int lights_stats(const struct lights *l, struct engine_stats *s, uint64_t *at_ns)
{
    uint64_t word[sizeof l->stats / 8];

    for (int t = 0; t < TRIES; t++) {
        uint64_t n = atomic_load_explicit(&l->stats_count, memory_order_acquire);

        if (!n)
            return 0;
        *at_ns = atomic_load_explicit(&l->stats_ns, memory_order_relaxed);
        for (size_t i = 0; i < sizeof word / 8; i++)
            word[i] = atomic_load_explicit(&l->stats[i], memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        if (!(n & 1) && atomic_load_explicit(&l->stats_count, memory_order_relaxed) == n) {
            memcpy(s, word, sizeof *s);
            return 1;
        }
    }
    return 0; /* next time */
}

void lights_watch(struct lights *l, int on)
{
    _Atomic uint16_t *lit = atomic_load_explicit(&l->lit, memory_order_acquire);

    for (size_t i = 0; on && lit && i < (size_t)l->n_layers * l->n_experts; i++)
        atomic_store_explicit(&lit[i], 0, memory_order_relaxed);
    atomic_store_explicit(&l->watched, on && lit, memory_order_relaxed);
}

size_t lights_take(struct lights *l, struct light *out, size_t most, uint64_t *tokens, uint64_t *steps)
{
    _Atomic uint16_t *lit = atomic_load_explicit(&l->lit, memory_order_acquire);
    size_t n = 0;

    *tokens = atomic_load_explicit(&l->tokens, memory_order_relaxed);
    *steps = atomic_load_explicit(&l->steps, memory_order_relaxed);
    for (uint32_t i = 0; lit && i < l->n_layers; i++)
        for (uint32_t x = 0; x < l->of_layer[i] && n < most; x++) {
            _Atomic uint16_t *p = &lit[(size_t)i * l->n_experts + x];
            if (atomic_load_explicit(p, memory_order_relaxed)) {
                unsigned was = atomic_exchange_explicit(p, 0, memory_order_relaxed);
                out[n++] = (struct light){(uint16_t)i, (uint16_t)x, (uint8_t)was, (uint8_t)(*steps - (was >> 8)) <= 1};
            }
        }
    return n;
}
