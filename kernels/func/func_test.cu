/* Rules 17 to 20 on a card against the definition, by bits. CONCLAVE_LONG=1: every one of the 2^32
 * floats (about a minute of 16 cores), else every 4093rd. */
#include <pthread.h>

#include "tests/cuda.h"
extern "C" {
#include "kernels/cpu.h"
#include "kernels/func/func.h"
#include "kernels/func/func_cuda.h"
#include "kernels/func/nasty.h"
}

typedef void host_fn(const float *, float *, size_t);
typedef void card_fn(const float *, float *, size_t, cudaStream_t);
static const struct {
    const char *name;
    host_fn *host;
    card_fn *card;
} fn[] = {
    {"exp", vec_exp, vec_exp_cuda},    {"sigmoid", vec_sigmoid, vec_sigmoid_cuda},
    {"silu", vec_silu, vec_silu_cuda}, {"softplus", vec_softplus, vec_softplus_cuda},
    {"tanh", vec_tanh, vec_tanh_cuda},
};
enum { FUNCTIONS = sizeof fn / sizeof *fn, BATCH = 1 << 20, MOST_THREADS = 16 };

struct sweep {
    uint64_t step, next; /* bits of the next batch's first float */
    pthread_mutex_t lock;
    uint64_t floats, wrong[FUNCTIONS];
    uint32_t first_wrong[FUNCTIONS];
};

static void *sweep_thread(void *arg)
{
    struct sweep *w = (struct sweep *)arg;
    float *x, *got, *want = (float *)malloc(BATCH * sizeof *want), *dx, *dy;
    cudaStream_t s;

    cpu_float_state();
    CUDA_OK(cudaStreamCreate(&s));
    CUDA_OK(cudaMallocHost(&x, BATCH * sizeof *x));
    CUDA_OK(cudaMallocHost(&got, BATCH * sizeof *got));
    dx = (float *)cuda_room(BATCH * sizeof *dx);
    dy = (float *)cuda_room(BATCH * sizeof *dy);
    for (;;) {
        size_t n = 0;
        uint64_t bits;

        pthread_mutex_lock(&w->lock);
        bits = w->next;
        w->next += BATCH * w->step;
        pthread_mutex_unlock(&w->lock);
        for (; n < BATCH && bits >> 32 == 0; bits += w->step)
            x[n++] = f32_from_bits((uint32_t)bits);
        if (!n)
            break;
        CUDA_OK(cudaMemcpyAsync(dx, x, n * sizeof *x, cudaMemcpyHostToDevice, s));
        for (int f = 0; f < FUNCTIONS; f++) {
            fn[f].card(dx, dy, n, s);
            CUDA_OK(cudaMemcpyAsync(got, dy, n * sizeof *got, cudaMemcpyDeviceToHost, s));
            fn[f].host(x, want, n);
            CUDA_OK(cudaStreamSynchronize(s));
            if (memcmp(want, got, n * sizeof *got)) {
                pthread_mutex_lock(&w->lock);
                for (size_t i = 0; i < n; i++)
                    if (f32_bits(want[i]) != f32_bits(got[i]) && !w->wrong[f]++)
                        w->first_wrong[f] = f32_bits(x[i]);
                pthread_mutex_unlock(&w->lock);
            }
        }
        pthread_mutex_lock(&w->lock);
        w->floats += n;
        pthread_mutex_unlock(&w->lock);
    }
    CUDA_OK(cudaFree(dx));
    CUDA_OK(cudaFree(dy));
    CUDA_OK(cudaFreeHost(x));
    CUDA_OK(cudaFreeHost(got));
    CUDA_OK(cudaStreamDestroy(s));
    free(want);
    return NULL;
}

static void sweep(uint64_t step, int threads)
{
    struct sweep w = {};
    pthread_t t[MOST_THREADS];

    w.step = step;
    pthread_mutex_init(&w.lock, NULL);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&t[i], NULL, sweep_thread, &w))
            exit(1);
    for (int i = 0; i < threads; i++)
        pthread_join(t[i], NULL);
    CHECK(w.floats == ((1ull << 32) + step - 1) / step, "%llu floats",
          (unsigned long long)w.floats);
    for (int f = 0; f < FUNCTIONS; f++)
        CHECK(!w.wrong[f], "%s: %llu of %llu floats differ, the first at bits %08x", fn[f].name,
              (unsigned long long)w.wrong[f], (unsigned long long)w.floats, w.first_wrong[f]);
    printf("%llu floats\n", (unsigned long long)w.floats);
}

/* 19 with the clamps of rule 5: pairs of nasty values */
static void swiglu(void)
{
    enum { N = 200000 };
    static const float limits[] = {0, 7, 0.25f};
    static float g[N], u[N], want[N], got[N];
    struct nasty r = {21};
    float *dg, *du, *dh = (float *)cuda_room(sizeof got);

    for (int kind = 0; kind < 4; kind++) {
        nasty_fill(&r, kind, g, N);
        nasty_fill(&r, kind, u, N);
        dg = (float *)cuda_copy(g, sizeof g);
        du = (float *)cuda_copy(u, sizeof u);
        for (int l = 0; l < 3; l++) {
            clamp_swiglu_ref(g, u, limits[l], want, N);
            clamp_swiglu_cuda(dg, du, limits[l], dh, N, NULL);
            CUDA_OK(cudaGetLastError());
            cuda_back(got, dh, sizeof got);
            CHECK(!memcmp(want, got, sizeof got), "kind %d, limit %g", kind, limits[l]);
        }
        CUDA_OK(cudaFree(dg));
        CUDA_OK(cudaFree(du));
    }
    CUDA_OK(cudaFree(dh));
}

static void divided(void)
{
    enum { N = 100000 };
    static const float by[] = {3, 0.7f, 1e30f};
    static float x[N], got[N];
    struct nasty r = {22};
    float *dx;

    for (int kind = 0; kind < 4; kind++)
        for (int i = 0; i < 3; i++) {
            nasty_fill(&r, kind, x, N);
            dx = (float *)cuda_copy(x, sizeof x);
            vec_divide_cuda(dx, by[i], N, NULL);
            CUDA_OK(cudaGetLastError());
            for (int k = 0; k < N; k++)
                x[k] = f32_canon(x[k] / by[i]);
            cuda_back(got, dx, sizeof got);
            CHECK(!memcmp(x, got, sizeof got), "kind %d, divided by %g", kind, by[i]);
            CUDA_OK(cudaFree(dx));
        }
}

int main(void)
{
    const char *all = getenv("CONCLAVE_LONG");
    int every = all && *all && strcmp(all, "0");

    if (!cuda_card())
        return test_end();
    cpu_float_state();
    swiglu();
    divided();
    sweep(every ? 1 : 4093, every ? MOST_THREADS : 2);
    return test_end();
}
