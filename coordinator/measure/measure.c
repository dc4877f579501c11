/* Times passes of a team over rows, contenders in turn. */
#define _GNU_SOURCE
#include "coordinator/measure/measure.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/dot/rows.h"
#include "kernels/num.h"
#include "kernels/read/read.h"
#include "shm/bell.h"
#include "shm/team.h"

struct run {
    struct contender *c;
    size_t n;
    int rounds;
    const struct contender *now;
};

double median_of(double *v, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && v[k] < v[k - 1]; k--) {
            double t = v[k];
            v[k] = v[k - 1];
            v[k - 1] = t;
        }
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void part(void *arg, int thread, int n_threads)
{
    const struct run *r = arg;
    size_t n = r->now->n_rows, a = n * (size_t)thread / (size_t)n_threads / 8 * 8,
           b = thread + 1 == n_threads ? n : n * (size_t)(thread + 1) / (size_t)n_threads / 8 * 8;

    r->now->fn(r->now->arg, a, b, thread);
}

static int lead(void *arg, struct team *t)
{
    struct run *r = arg;

    for (int round = -1; round < r->rounds; round++)
        for (size_t i = 0; i < r->n; i++) {
            uint64_t start = now_ns();
            r->now = &r->c[i];
            team_do(t, part, r);
            if (round >= 0)
                r->c[i].seconds[round] = (double)(now_ns() - start) * 1e-9;
        }
    return 0;
}

int measure_run(struct contender *c, size_t n, int rounds, int threads, const int *cpus, struct err *e)
{
    struct run r = {.c = c, .n = n, .rounds = rounds};

    if (rounds < 1 || rounds > 32)
        return err_set(e, -EINVAL, "%d rounds (1 to 32)", rounds);
    team_run(threads, cpus, 0, lead, &r);
    for (size_t i = 0; i < n; i++) {
        double s[32];
        memcpy(s, c[i].seconds, sizeof s);
        c[i].median = c[i].bytes / median_of(s, rounds) * 1e-9;
        c[i].best = c[i].bytes / s[0] * 1e-9;
    }
    return 0;
}

void *measure_segment(size_t bytes, struct err *e)
{
    int fd = memfd_create("conclave-measure", MFD_CLOEXEC);
    void *p = MAP_FAILED;

    if (fd >= 0 && !ftruncate(fd, (off_t)bytes))
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (p == MAP_FAILED) {
        err_set(e, -ENOMEM, "no memory for %zu bytes of weights", bytes);
        return NULL;
    }
    madvise(p, bytes, MADV_NOHUGEPAGE); /* slabs ask for huge pages and often get none */
    return p;
}

void measure_segment_free(void *p, size_t bytes)
{
    if (p)
        munmap(p, bytes);
}

void measure_read(void *arg, size_t r0, size_t r1, int thread)
{
    struct read_job *j = arg;

    j->sink[(thread % 64) * 8] ^= read_words(j->p + r0 * 4096, (r1 - r0) * 4096);
}

void measure_fill(uint32_t type, void *p, size_t bytes)
{
    const struct type_info *t = type_info(type);
    size_t pattern = 1 << 20, n = pattern / t->block_bytes * t->block_bytes;
    uint8_t *b = p;
    struct rng g = {type + 1};

    if (n > bytes)
        n = bytes / t->block_bytes * t->block_bytes;
    for (size_t i = 0; i < n; i += t->block_bytes) {
        for (size_t k = 0; k < t->block_bytes; k++)
            b[i + k] = (uint8_t)rng_u32(&g);
        if (t->act == ACT_F32) { /* float types: numbers of size one */
            float v = rng_gauss(&g);
            uint16_t h = type == W_F16 ? f32_to_f16(v) : f32_to_bf16(v);
            memcpy(b + i, type == W_F32 ? (void *)&v : (void *)&h, t->block_bytes);
        } else if (type == W_MXFP4) {
            block_set_scale(type, b + i, 120, 0);
        } else if (type == W_NVFP4) {
            block_set_scale(type, b + i, 48, 0);
        } else {
            block_set_scale(type, b + i, f32_to_f16(0x1p-9f), f32_to_f16(0x1p-10f));
        }
    }
    for (size_t at = n; at < bytes; at += n)
        memcpy(b + at, b, bytes - at < n ? bytes - at : n);
}
