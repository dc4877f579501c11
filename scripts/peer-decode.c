/* llama.cpp over given token ids: what scripts/measure-paging compares with. Not a program of this
 * project: compiled against llama.cpp's headers and libraries where a measurement asks for it.
 *
 *   peer-decode MODEL TOKENS.txt N_PROMPT THREADS CTX [ROUTES.bin]
 *
 * TOKENS.txt: one id a line. The first N_PROMPT as one batch, the others one at a time as a decode
 * does, whatever it would have said itself. The file is mapped and nothing is repacked: repacking
 * copies the weights into memory that cannot be dropped. Prints one JSON object. ROUTES.bin: int32, the
 * chosen experts of each token and layer, best first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llama.h"

#include "ggml-backend.h"

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static unsigned long long io_bytes(void)
{
    unsigned long long bytes = 0;
    char line[128];
    FILE *f = fopen("/proc/self/io", "r");

    while (f && fgets(line, sizeof line, f))
        sscanf(line, "read_bytes: %llu", &bytes);
    if (f)
        fclose(f);
    return bytes;
}

static unsigned long long major_faults(void)
{
    unsigned long long n = 0;
    FILE *f = fopen("/proc/self/stat", "r");

    if (f && fscanf(f, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %llu", &n) != 1)
        n = 0;
    if (f)
        fclose(f);
    return n;
}

/* Asked before each tensor whether it is wanted, then called with it. */
static bool take_routes(struct ggml_tensor *t, bool ask, void *to)
{
    int32_t ids[1024];

    if (strncmp(t->name, "ffn_moe_topk", 12))
        return !ask;
    if (ask)
        return true;
    for (int64_t i = 0; i < t->ne[1]; i++) { /* a view: rows lie apart */
        ggml_backend_tensor_get(t, ids, (size_t)i * t->nb[1], (size_t)t->ne[0] * sizeof *ids);
        fwrite(ids, sizeof *ids, (size_t)t->ne[0], to);
    }
    return true;
}

int main(int argc, char **argv)
{
    struct llama_model_params mp = llama_model_default_params();
    struct llama_context_params cp = llama_context_default_params();
    struct llama_model *model;
    struct llama_context *ctx;
    static llama_token tokens[1 << 20];
    int n = 0, n_prompt, rc;
    double t0, t1, t2;
    unsigned long long b0, b1, b2, f1, f2;
    FILE *f, *routes = NULL;

    if (argc < 6 || !(f = fopen(argv[2], "r")))
        return 2;
    while (n < 1 << 20 && fscanf(f, "%d", &tokens[n]) == 1)
        n++;
    fclose(f);
    n_prompt = atoi(argv[3]);
    if (n_prompt < 1 || n_prompt > n)
        return 2;
    if (argc > 6 && !(routes = fopen(argv[6], "wb")))
        return 2;
    mp.load_mode = LLAMA_LOAD_MODE_MMAP;
    mp.use_extra_bufts = false;
    model = llama_model_load_from_file(argv[1], mp);
    if (!model)
        return 1;
    cp.n_ctx = (uint32_t)atoi(argv[5]);
    cp.n_threads = cp.n_threads_batch = atoi(argv[4]);
    if (routes) {
        cp.cb_eval = take_routes;
        cp.cb_eval_user_data = routes;
    }
    ctx = llama_init_from_model(model, cp);
    if (!ctx)
        return 1;
    t0 = now();
    b0 = io_bytes();
    rc = llama_decode(ctx, llama_batch_get_one(tokens, n_prompt));
    t1 = now();
    b1 = io_bytes();
    f1 = major_faults();
    for (int i = n_prompt; i < n && !rc; i++)
        rc = llama_decode(ctx, llama_batch_get_one(tokens + i, 1));
    llama_synchronize(ctx);
    t2 = now();
    b2 = io_bytes();
    f2 = major_faults();
    if (rc)
        return 1;
    if (routes && fclose(routes))
        return 1;
    printf("{\"prompt\": %d, \"prompt_s\": %.6f, \"prompt_bytes\": %llu, \"tokens\": %d, \"s\": %.6f, "
           "\"bytes\": %llu, \"major_faults\": %llu}\n",
           n_prompt, t1 - t0, b1 - b0, n - n_prompt, t2 - t1, b2 - b1, f2 - f1);
    llama_free(ctx);
    llama_model_free(model);
    return 0;
}
