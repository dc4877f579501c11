/* conclave bench kernels: how fast this machine multiplies each weight type, beside its own read
 * bandwidth in the same run. Contenders take turns (measure/measure.h). Measures, decides nothing. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/cli/args.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/common.h"
#include "coordinator/machine.h"
#include "coordinator/measure/measure.h"
#include "kernels/cpu.h"
#include "kernels/dot/dot.h"
#include "kernels/dot/rows.h"
#include "kernels/matmul/matmul.h"
#include "kernels/quantise/quantise.h"

enum { MAX_LIST = 32, MAX_CONTENDERS = 2 + 4 };

struct options {
    const char *what, *types, *batches, *threads;
    uint64_t bytes;
    uint32_t cols, rounds;
};

static const struct flag table[] = {
    {.arg = "kernels",
     .group = "what",
     .kind = FLAG_STRING,
     .at = offsetof(struct options, what),
     .required = 1,
     .help = "products of weight rows and vectors"},
    {.name = "types",
     .arg = "LIST",
     .kind = FLAG_STRING,
     .at = offsetof(struct options, types),
     .shown = "all",
     .help = "weight types, with commas between: Q4_K,Q8_0"},
    {.name = "batch",
     .letter = 'b',
     .arg = "LIST",
     .kind = FLAG_STRING,
     .at = offsetof(struct options, batches),
     .help = "vectors that meet the rows together"},
    {.name = "threads",
     .letter = 't',
     .arg = "LIST",
     .kind = FLAG_STRING,
     .at = offsetof(struct options, threads),
     .shown = "the physical cores",
     .help = "team sizes"},
    {.name = "bytes",
     .arg = "BYTES",
     .kind = FLAG_SIZE,
     .at = offsetof(struct options, bytes),
     .min = 1 << 20,
     .help = "weights of each type; several times the caches"},
    {.name = "cols",
     .arg = "N",
     .kind = FLAG_U32,
     .at = offsetof(struct options, cols),
     .min = 256,
     .max = 65536,
     .help = "values of a row, a multiple of 256"},
    {.name = "rounds",
     .arg = "N",
     .kind = FLAG_U32,
     .at = offsetof(struct options, rounds),
     .min = 1,
     .max = 32,
     .help = "rounds; figures are medians"},
    {.kind = 0},
};

/* ---- one product ---- */

struct product {
    struct dot_job job;
    const struct dot_type *type;
    dot_form *form; /* NULL: what a run uses (matmul) */
    uint32_t id;
};

static void multiply(void *arg, size_t r0, size_t r1, int thread)
{
    const struct product *p = arg;
    struct dot_job j = p->job;

    (void)thread;
    if (r0 >= r1)
        return;
    if (!p->form) {
        matmul(p->id, j.w, j.row_bytes, j.n_cols, r0, r1, j.acts, j.a_stride, NULL, j.n_tok, j.y + r0, j.ldy);
        return;
    }
    j.w += r0 * j.row_bytes;
    j.n_rows = r1 - r0;
    j.y += r0;
    p->form(&j);
}

static void reference(void *arg, size_t r0, size_t r1, int thread)
{
    const struct product *p = arg;
    struct dot_job j = p->job;

    (void)thread;
    if (r0 >= r1)
        return;
    j.w += r0 * j.row_bytes;
    j.n_rows = r1 - r0;
    j.y += r0;
    dot_reference(p->type, &j);
}

struct bench {
    const struct options *o;
    const struct machine *m;
    uint8_t *w;
    float *x;
};

static int one(const struct bench *b, uint32_t id, size_t tokens, int threads, struct err *e)
{
    const struct type_info *t = type_info(id);
    const struct dot_type *d = dot_type(id);
    size_t cols = b->o->cols, row = cols / t->block_values * t->block_bytes, n = 0;
    size_t rows = (size_t)b->o->bytes / row / 8 * 8, stride = act_stride(t->act, cols), few = rows / 64 + 8;
    struct read_job rj = {.p = b->w};
    struct product p[MAX_CONTENDERS];
    struct contender c[MAX_CONTENDERS] = {0};
    uint8_t *acts = aligned_alloc(64, tokens * stride);
    float *y = malloc(tokens * rows * sizeof *y);
    int rc = -1;

    if (!acts || !y) {
        err_set(e, -ENOMEM, "no memory for %zu vectors and their results", tokens);
        goto done;
    }
    for (size_t i = 0; i < tokens; i++)
        act_prepare(t->act, b->x + i * cols, cols, acts + i * stride);
    struct dot_job job = {b->w, row, cols, rows, acts, stride, NULL, tokens, y, rows, NULL};
    c[n++] = (struct contender){
        .name = "read", .fn = measure_read, .arg = &rj, .n_rows = b->o->bytes / 4096, .bytes = (double)b->o->bytes};
    p[n] = (struct product){job, d, NULL, id};
    c[n] = (struct contender){.name = "as run", .fn = multiply, .arg = &p[n], .n_rows = rows, .bytes = (double)(rows * row)};
    n++;
    p[n] = (struct product){job, d, NULL, id}; /* slow: over a part of the rows */
    c[n] = (struct contender){.name = "generic", .fn = reference, .arg = &p[n], .n_rows = few, .bytes = (double)(few * row)};
    n++;
    for (enum cpu_level f = CPU_AVX2; f <= cpu_level(); f++) {
        dot_form *form = dot_form_at(d, f);
        if (!form)
            continue;
        p[n] = (struct product){job, d, form, id};
        c[n] = (struct contender){.name = cpu_level_name(f), .fn = multiply, .arg = &p[n], .n_rows = rows,
                                  .bytes = (double)(rows * row)};
        n++;
    }
    rc = measure_run(c, n, (int)b->o->rounds, threads, b->m->cpu, e);
    if (rc)
        goto done;
    printf("%-8s %5zu %7d %8.1f", t->name, tokens, threads, c[0].median);
    for (const char *const *name = (const char *const[]){"as run", "generic", "avx2", "avx512", "vbmi", NULL}; *name; name++) {
        size_t i = 1;
        while (i < n && strcmp(c[i].name, *name))
            i++;
        if (i < n)
            printf(" %8.1f %3.0f%%", c[i].median, 100 * c[i].median / c[0].median);
        else
            printf(" %8s %4s", "-", "");
    }
    printf("\n");
    fflush(stdout);
done:
    free(acts);
    free(y);
    return rc;
}

/* ---- lists ---- */

static int numbers(const char *text, const char *flag, size_t max, size_t *out, size_t *n)
{
    char *end;

    for (*n = 0; *n < MAX_LIST; text = end + 1) {
        out[*n] = strtoul(text, &end, 10);
        if (end == text || !out[*n] || out[*n] > max || (*end && *end != ','))
            return args_usage("bench", "%s %s: whole numbers from 1 to %zu with commas between", flag, text, max);
        ++*n;
        if (!*end)
            return 0;
    }
    return args_usage("bench", "%s: at most %d numbers", flag, MAX_LIST);
}

static int types(const char *text, uint32_t *out, size_t *n)
{
    *n = 0;
    for (uint32_t id = 0; id < 64 && *n < MAX_LIST; id++) {
        const struct type_info *t = type_info(id);
        size_t len = t ? strlen(t->name) : 0;
        if (!t || !t->built)
            continue;
        for (const char *p = text; p; p = strchr(p, ','), p = p ? p + 1 : NULL)
            if (!strncasecmp(p, t->name, len) && (!p[len] || p[len] == ',')) {
                out[(*n)++] = id;
                break;
            }
        if (!text)
            out[(*n)++] = id;
    }
    return *n ? 0 : args_usage("bench", "--types %s: no weight type of this name", text);
}

static int bench_all(const struct options *o, const struct machine *m, struct err *e)
{
    struct bench b = {.o = o, .m = m};
    uint32_t id[MAX_LIST];
    size_t batch[MAX_LIST], threads[MAX_LIST], n_id, n_batch, n_threads = 1, most = 0;
    struct rng g = {7};
    int rc;

    threads[0] = m->n_cores;
    if ((rc = types(o->types, id, &n_id)) || (rc = numbers(o->batches, "--batch", 4096, batch, &n_batch)) ||
        (o->threads && (rc = numbers(o->threads, "--threads", m->n_cpus, threads, &n_threads))))
        return rc;
    for (size_t i = 0; i < n_batch; i++)
        most = batch[i] > most ? batch[i] : most;
    b.w = measure_segment(o->bytes, e);
    b.x = malloc(most * o->cols * sizeof *b.x);
    if (!b.w || !b.x) {
        err_set(e, -ENOMEM, "no memory for the vectors");
        rc = 1;
        goto done;
    }
    for (size_t i = 0; i < most * o->cols; i++)
        b.x[i] = rng_gauss(&g);
    printf("GB/s of weights, rows of %u values, %llu bytes a type, medians of %u rounds; %% of the read rate\n",
           o->cols, (unsigned long long)o->bytes, o->rounds);
    printf("%-8s %5s %7s %8s %13s %13s %13s %13s %13s\n", "type", "batch", "threads", "read", "as run", "generic", "avx2",
           "avx512", "vbmi");
    rc = 0;
    for (size_t i = 0; !rc && i < n_id; i++) {
        measure_fill(id[i], b.w, o->bytes);
        for (size_t k = 0; !rc && k < n_batch; k++)
            for (size_t t = 0; !rc && t < n_threads; t++)
                rc = one(&b, id[i], batch[k], (int)threads[t], e);
    }
    rc = rc ? 1 : 0;
done:
    measure_segment_free(b.w, o->bytes);
    free(b.x);
    return rc;
}

int cmd_bench(int argc, char **argv)
{
    struct options o = {.batches = "1,4", .bytes = 512 << 20, .cols = 4096, .rounds = 5};
    struct args a = {.verb = "bench",
                     .about = "how fast this machine multiplies each weight type",
                     .usage = "kernels [flags]",
                     .notes = "\"as run\" is what a run uses; the others are its forms one by one, where the "
                              "processor has\nthem. All give the same bits. CONCLAVE_CPU=generic|avx2|avx512|vbmi lowers "
                              "what is used.",
                     .part = {{table, &o}}};
    struct machine *m = malloc(sizeof *m);
    struct err e = {0};
    int status;

    if (!m)
        return 1;
    if (args_parse(&a, argc, argv, &status)) {
        free(m);
        return status;
    }
    machine_look(m);
    if (strcmp(o.what, "kernels"))
        status = args_usage("bench", "there is no bench '%s', only kernels", o.what);
    else if (o.cols % 256)
        status = args_usage("bench", "--cols %u is no multiple of 256", o.cols);
    else
        status = bench_all(&o, m, &e);
    free(m);
    return e.code ? report_error(&e) : status;
}
