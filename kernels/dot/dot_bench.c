/* GB/s of weights of each type's forms, rows of 4096 from memory and in cache, one thread, beside a
 * plain read: dot_bench [type name]. Part of `make bench`; the product has `conclave bench
 * kernels`. */
#include "kernels/cpu.h"
#include "kernels/dot/dot.h"
#include "kernels/dot/rows.h"
#include "kernels/num.h"
#include "kernels/quantise/quantise.h"
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { COLS = 4096, REPEATS = 5, MEMORY_MB = 256 };

/* the thread's own time: other work on the machine disturbs less */
static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double read_speed(const uint8_t *w, size_t bytes)
{
    double best = 1e9;
    uint64_t sum = 0;

    for (int k = 0; k < REPEATS; k++) {
        double t = now();
        uint64_t s[8] = {0};

        for (size_t i = 0; i + 64 <= bytes; i += 64)
            for (int j = 0; j < 8; j++)
                s[j] += load_u64(w + i + 8 * j);
        for (int j = 0; j < 8; j++)
            sum += s[j];
        t = now() - t;
        best = t < best ? t : best;
    }
    if (sum == 1)
        printf(" "); /* keeps the loop */
    return (double)bytes / best * 1e-9;
}

/* best of REPEATS, in GB/s of weights */
static double speed(dot_form *form, uint32_t type, const uint8_t *w, size_t bytes, size_t n_tok)
{
    const struct type_info *t = type_info(type);
    size_t row = COLS / t->block_values * t->block_bytes, stride = act_stride(t->act, COLS);
    size_t rows = bytes / row;
    unsigned char *acts = aligned_alloc(64, n_tok * stride);
    float *y = malloc(rows * n_tok * sizeof *y), x[COLS];
    struct dot_job job = {w, row, COLS, rows, acts, stride, NULL, n_tok, y, rows, NULL};
    struct rng g = {1};
    double best = 1e9;
    int inner = bytes < 4 << 20 ? 32 : 1;

    for (size_t i = 0; i < n_tok; i++) {
        for (int j = 0; j < COLS; j++)
            x[j] = rng_gauss(&g);
        act_prepare(t->act, x, COLS, acts + i * stride);
    }
    form(&job);
    for (int k = 0; k < REPEATS; k++) {
        double s = now();
        for (int i = 0; i < inner; i++)
            form(&job);
        s = (now() - s) / inner;
        best = s < best ? s : best;
    }
    free(y);
    free(acts);
    return (double)(rows * row) / best * 1e-9;
}

int main(int argc, char **argv)
{
    size_t bytes = (size_t)MEMORY_MB << 20;
    uint8_t *w = malloc(bytes);
    struct rng g = {2};

    cpu_float_state();
    for (size_t i = 0; i < bytes; i += 4) {
        uint32_t v = rng_u32(&g) & 0x3BFF3BFF; /* no NaN, as f16 or as a scale */
        memcpy(w + i, &v, 4);
    }
    printf("rows of %d, GB/s of weights, one thread; plain read %.1f\n", COLS,
           read_speed(w, bytes));
    printf("%-8s %-7s %8s %8s %8s | in cache: %8s %8s; 64 vectors, GMAC/s\n", "type", "form",
           "1 vector", "4", "8", "1", "4");
    for (uint32_t type = 0; type < 64; type++) {
        const struct dot_type *t = dot_type(type);
        const struct type_info *info = type_info(type);

        if (!t || (argc > 1 && strcmp(argv[1], info->name)))
            continue;
        for (enum cpu_level f = CPU_AVX2; f <= cpu_has(); f++) {
            dot_form *form = dot_form_at(t, f);

            if (!form)
                continue;
            printf("%-8s %-7s %8.1f %8.1f %8.1f | %18.1f %8.1f; %8.1f\n", info->name,
                   cpu_level_name(f), speed(form, type, w, bytes, 1),
                   speed(form, type, w, bytes, 4), speed(form, type, w, bytes, 8),
                   speed(form, type, w, 512 << 10, 1), speed(form, type, w, 512 << 10, 4),
                   64 * speed(form, type, w, 2 << 20, 64) * info->block_values /
                       info->block_bytes);
            fflush(stdout);
        }
    }
    free(w);
    return 0;
}
