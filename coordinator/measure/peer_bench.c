/* Our products beside another program's over the same rows, in turn, on all cores:
 *
 *   peer_bench PEER.so [-t THREADS] [-m MB] [-r ROUNDS] [-b TOKENS] [-c COLS] [TYPE ...]
 *
 * PEER.so is llama.cpp's libggml-cpu (its dot product of a row and a quantised vector, as its CPU
 * backend calls it, one row at a time). A dash in place of it: without. Part of `make bench`. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/machine.h"
#include "coordinator/measure/measure.h"
#include "kernels/cpu.h"
#include "kernels/dot/dot.h"
#include "kernels/dot/rows.h"
#include "kernels/quantise/quantise.h"

struct ours {
    struct dot_job job;
    dot_form *form;
};
static void run_ours(void *arg, size_t r0, size_t r1, int thread)
{
    const struct ours *o = arg;
    struct dot_job j = o->job;

    (void)thread;
    j.w += r0 * j.row_bytes;
    j.n_rows = r1 - r0;
    j.y += r0;
    if (r1 > r0)
        o->form(&j);
}

/* llama.cpp's struct ggml_type_traits_cpu */
struct peer_traits {
    void (*from_float)(const float *x, void *y, int64_t k);
    void (*vec_dot)(int n, float *s, size_t bs, const void *x, size_t bx, const void *y, size_t by,
                    int nrc);
    int vec_dot_type;
    int64_t nrows;
};
struct peer {
    const struct peer_traits *t;
    const uint8_t *w;
    size_t row_bytes, cols, tokens, act_bytes, n_rows;
    uint8_t *act;
    float *y;
};
static void run_peer(void *arg, size_t r0, size_t r1, int thread)
{
    const struct peer *p = arg;

    (void)thread;
    for (size_t i = 0; i < p->tokens; i++) /* its matrix product goes vector by vector over few rows */
        for (size_t r = r0; r < r1; r++)
            p->t->vec_dot((int)p->cols, p->y + i * p->n_rows + r, 0, p->w + r * p->row_bytes, 0,
                          p->act + i * p->act_bytes, 0, 1);
}

static const uint32_t every[] = {W_Q4_K, W_Q6_K,   W_Q8_0,  W_IQ4_XS, W_IQ2_XS, W_IQ3_S,   W_Q5_K,
                                 W_Q2_K, W_Q3_K,   W_IQ1_S, W_IQ1_M,  W_IQ2_S,  W_IQ2_XXS, W_IQ3_XXS,
                                 W_Q4_0, W_Q4_1,   W_Q5_0,  W_Q5_1,   W_IQ4_NL, W_MXFP4,   W_NVFP4,
                                 W_F16,  W_BF16,   W_F32};

static int wanted(const char *name, int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (!strcasecmp(argv[i], name))
            return 1;
    return argc == 0;
}

static void print(const struct contender *c, size_t n, const char *type, size_t tokens, int threads)
{
    double read = c[0].median, peer = 0;

    for (size_t i = 1; i < n; i++)
        if (!strcmp(c[i].name, "peer"))
            peer = c[i].median;
    printf("| %s | %zu | %d | %.1f |", type, tokens, threads, read);
    for (size_t i = 1; i < n; i++)
        printf(" %s %.1f (%.0f%% of read%s", c[i].name, c[i].median, 100 * c[i].median / read,
               peer > 0 && strcmp(c[i].name, "peer") ? "" : ")");
    for (size_t i = 1; i < n; i++)
        if (peer > 0 && strcmp(c[i].name, "peer"))
            printf(" | %s/peer %.2f", c[i].name, c[i].median / peer);
    printf(" |\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct machine m;
    struct err e = {0};
    size_t mb = 1024, tokens = 1, cols = 4096;
    int threads, rounds = 7, opt;
    const struct peer_traits *(*traits)(int) = NULL;
    void (*init)(void) = NULL;
    const char *peer_path;

    machine_look(&m);
    threads = (int)m.n_cores;
    while ((opt = getopt(argc, argv, "t:m:r:b:c:")) > 0) {
        if (opt == 't')
            threads = atoi(optarg);
        else if (opt == 'm')
            mb = strtoul(optarg, NULL, 10);
        else if (opt == 'r')
            rounds = atoi(optarg);
        else if (opt == 'b')
            tokens = strtoul(optarg, NULL, 10);
        else if (opt == 'c')
            cols = strtoul(optarg, NULL, 10);
        else
            return 2;
    }
    peer_path = optind < argc ? argv[optind++] : "-";
    if (strcmp(peer_path, "-")) {
        void *so = dlopen(peer_path, RTLD_NOW);
        if (!so) {
            fprintf(stderr, "peer_bench: %s\n", dlerror());
            return 1;
        }
        *(void **)&traits = dlsym(so, "ggml_get_type_traits_cpu");
        *(void **)&init = dlsym(so, "ggml_cpu_init");
        if (!traits || !init) {
            fprintf(stderr, "peer_bench: %s is no libggml-cpu\n", peer_path);
            return 1;
        }
        init();
    }
    printf("| type | tokens | threads | read GB/s | forms, GB/s of weights |\n|---|---|---|---|---|\n");
    for (size_t k = 0; k < sizeof every / sizeof *every; k++) {
        const struct type_info *t = type_info(every[k]);
        const struct dot_type *d = dot_type(every[k]);
        struct contender c[5] = {0};
        struct ours o[CPU_VBMI + 1];
        struct peer p;
        struct read_job rj = {0};
        size_t row, rows, bytes, stride, n = 0;
        float *x, *y;
        uint8_t *acts, *peer_acts, *w;
        struct rng g = {7};
        if (!d || !wanted(t->name, argc - optind, argv + optind))
            continue;
        row = cols / t->block_values * t->block_bytes;
        rows = (mb << 20) / row / 8 * 8;
        bytes = (rows * row + 4095) / 4096 * 4096;
        stride = act_stride(t->act, cols);
        w = measure_segment(bytes, &e);
        x = malloc(tokens * cols * sizeof *x);
        y = malloc(tokens * rows * sizeof *y);
        acts = aligned_alloc(64, tokens * stride);
        peer_acts = malloc(tokens * cols * 8);
        if (!w || !x || !y || !acts || !peer_acts) {
            fprintf(stderr, "peer_bench: %s\n", e.code ? e.msg : "no memory");
            return 1;
        }
        measure_fill(every[k], w, bytes);
        for (size_t i = 0; i < tokens * cols; i++)
            x[i] = rng_gauss(&g);
        for (size_t i = 0; i < tokens; i++)
            act_prepare(t->act, x + i * cols, cols, acts + i * stride);
        rj.p = w;
        c[n++] = (struct contender){.name = "read", .fn = measure_read, .arg = &rj, .n_rows = bytes / 4096,
                                    .bytes = (double)bytes};
        for (enum cpu_level f = CPU_AVX2; f <= cpu_level(); f++) {
            dot_form *form = dot_form_at(d, f);
            if (!form)
                continue;
            o[f] = (struct ours){{w, row, cols, rows, acts, stride, NULL, tokens, y, rows, NULL}, form};
            c[n++] = (struct contender){.name = cpu_level_name(f), .fn = run_ours, .arg = &o[f],
                                        .n_rows = rows, .bytes = (double)(rows * row)};
        }
        if (traits && traits((int)every[k]) && traits((int)every[k])->vec_dot) {
            const struct peer_traits *pt = traits((int)every[k]), *at = traits(pt->vec_dot_type);
            const struct type_info *ai = type_info((uint32_t)pt->vec_dot_type);
            size_t ab = ai && ai->block_bytes ? cols / ai->block_values * ai->block_bytes
                        : pt->vec_dot_type == 15 ? cols / 256 * 292
                                                 : cols / 32 * 36;
            p = (struct peer){pt, w, row, cols, tokens, ab, rows, peer_acts, y};
            for (size_t i = 0; i < tokens; i++) {
                if (at && at->from_float)
                    at->from_float(x + i * cols, peer_acts + i * ab, (int64_t)cols);
                else
                    memcpy(peer_acts + i * ab, x + i * cols, cols * sizeof *x);
            }
            c[n++] = (struct contender){.name = "peer", .fn = run_peer, .arg = &p, .n_rows = rows,
                                        .bytes = (double)(rows * row)};
        }
        if (measure_run(c, n, rounds, threads, m.cpu, &e)) {
            fprintf(stderr, "peer_bench: %s\n", e.msg);
            return 1;
        }
        print(c, n, t->name, tokens, threads);
        measure_segment_free(w, bytes);
        free(x);
        free(y);
        free(acts);
        free(peer_acts);
    }
    return 0;
}
