/* What the picture costs the engine: a note of one expert's use while nobody watches and while somebody does, and what
 * one frame costs the thread that reads. Processor time, the best of several turns. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "coordinator/lights.h"

enum { LAYERS = 94, EXPERTS = 512, USED = 10, STEPS = 2000, TURNS = 7 };

static double now_cpu(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

/* STEPS tokens of a model with as many layers; ns a note. */
static double notes(struct lights *l)
{
    double start = now_cpu();

    for (uint32_t s = 0; s < STEPS; s++) {
        for (uint32_t i = 0; i < LAYERS; i++)
            for (uint32_t k = 0; k < USED; k++) {
                __asm__ volatile("" ::: "memory"); /* each looks anew */
                if (lights_on(l))
                    lights_put(l, i, (s * 7 + k * 41 + i) % EXPERTS, LIGHT_RAM);
            }
        if (lights_on(l))
            lights_step(l, 1);
    }
    return (now_cpu() - start) / ((double)STEPS * LAYERS * USED);
}

int main(void)
{
    static struct light out[LAYERS * EXPERTS];
    uint32_t of_layer[LAYERS];
    double off = 1e9, on = 1e9, frame = 1e9;
    struct lights l;
    struct err e = {0};

    for (int i = 0; i < LAYERS; i++)
        of_layer[i] = EXPERTS;
    lights_init(&l);
    if (lights_open(&l, LAYERS, of_layer, &e)) {
        fprintf(stderr, "lights_bench: %s\n", e.msg);
        return 1;
    }
    for (int t = 0; t < TURNS; t++) {
        uint64_t tokens, steps;
        double a, b, c;

        lights_watch(&l, 0);
        a = notes(&l);
        lights_watch(&l, 1);
        b = notes(&l);
        c = now_cpu();
        if (!lights_take(&l, out, LAYERS * EXPERTS, &tokens, &steps))
            return 1;
        c = now_cpu() - c;
        off = a < off ? a : off;
        on = b < on ? b : on;
        frame = c < frame ? c : frame;
    }
    printf("%d layers of %d experts, %d used: a note %.2f ns unwatched, %.2f ns watched (a token %.2f us, %.2f us); a frame %.0f us\n",
           LAYERS, EXPERTS, USED, off, on, off * LAYERS * USED * 1e-3, on * LAYERS * USED * 1e-3, frame * 1e-3);
    lights_free(&l);
    return 0;
}
