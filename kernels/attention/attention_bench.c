/* Speed of the forms of attention, one thread, a kv head of 128 values, keys in the cache: several
 * query heads over 512 keys (small) and 4096 keys. Part of `make bench`. */
#include "kernels/attention/attention.h"
#include "kernels/cpu.h"
#include "kernels/func/nasty.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { KEYS = 4096, HD = 128, QUERIES = 32, REPEATS = 60 };

typedef void form_fn(const struct attention_keys *, const struct attention_query *, size_t, void *);

static const struct {
    const char *name;
    form_fn *run;
    enum cpu_level level;
} forms[] = {{"avx2", attention_group_avx2, CPU_AVX2},
             {"avx512", attention_group_avx512, CPU_AVX512}};

/* the thread's own time: other work on the machine disturbs less */
static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double best_time(form_fn *form, const struct attention_keys *a,
                        const struct attention_query *query, size_t n, void *scratch)
{
    double best = 1e9;

    for (int i = 0; i < REPEATS; i++) {
        double t = now();

        form(a, query, n, scratch);
        t = now() - t;
        best = t < best ? t : best;
    }
    return best;
}

static void measure(enum kv_type type, const char *name, const float *x, char *k, char *v)
{
    static float q[QUERIES * HD], out[QUERIES * HD];
    size_t row = kv_bytes(type, HD);
    struct attention_keys a = {type, k, v, row, row, NULL, HD, HD, 0.0884f};
    void *scratch = aligned_alloc(64, (attention_group_scratch(QUERIES, HD) + 63) / 64 * 64);
    struct nasty r = {2};

    if (!scratch)
        abort();
    nasty_fill(&r, 0, q, QUERIES * HD);
    kv_store(type, x, KEYS * HD, k);
    kv_store(type, x, KEYS * HD, v);
    for (size_t n = 512; n <= KEYS; n *= 8)
        for (size_t queries = 1; queries <= QUERIES; queries *= 2) {
            struct attention_query query[QUERIES];

            for (size_t i = 0; i < queries; i++)
                query[i] = (struct attention_query){q + i * HD, out + i * HD, n};
            printf("%-4s %4zu keys %2zu queries:", name, n, queries);
            for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
                if (forms[f].level <= cpu_has()) {
                    double t = best_time(forms[f].run, &a, query, queries, scratch);
                    printf("  %s %7.1f us %6.1f GFLOP/s", forms[f].name, t * 1e6,
                           4.0 * (double)(n * queries * HD) / t * 1e-9);
                }
            printf("\n");
        }
    free(scratch);
}

int main(void)
{
    float *x = malloc(KEYS * HD * sizeof *x);
    char *k = malloc(KEYS * HD * 4), *v = malloc(KEYS * HD * 4);
    struct nasty r = {1};

    if (!x || !k || !v)
        abort();
    nasty_fill(&r, 0, x, KEYS * HD);
    measure(KV_F16, "f16", x, k, v);
    measure(KV_F32, "f32", x, k, v);
    free(x);
    free(k);
    free(v);
    return 0;
}
