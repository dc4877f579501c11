/* Rules 29 and 35 on a card against the definition, by bits: appended rows, decode and prompt
 * forms, grouped heads, several sequences, lists, odd sizes, contexts of many chunks. */
#include "kernels/attention/attention_cuda.h"
#include "tests/cuda.h"
extern "C" {
#include "kernels/cpu.h"
#include "kernels/func/nasty.h"
}

enum { MOST_TOKENS = 24, SEQS = 2 };

struct shape {
    unsigned n_tokens, heads, kv_heads, hd, dv, n_ctx;
    int listed;
};

/* The host's copy of what lies on the card. */
struct both {
    struct attention_kv a;
    uint8_t *k, *v;
    size_t k_bytes, v_bytes;
    uint32_t pos[MOST_TOKENS], seq[MOST_TOKENS], *list;
};

static void open_both(struct both *b, const struct shape *s, enum kv_type type, int kind,
                      struct nasty *r)
{
    size_t rows = (size_t)SEQS * s->kv_heads * s->n_ctx, most = s->hd > s->dv ? s->hd : s->dv;
    float *x = (float *)malloc(most * sizeof *x);

    memset(b, 0, sizeof *b);
    b->k_bytes = rows * kv_bytes(type, s->hd);
    b->v_bytes = rows * kv_bytes(type, s->dv);
    b->k = (uint8_t *)malloc(b->k_bytes);
    b->v = (uint8_t *)malloc(b->v_bytes);
    for (size_t i = 0; i < rows; i++) {
        nasty_fill(r, kind, x, s->hd);
        kv_store(type, x, s->hd, b->k + i * kv_bytes(type, s->hd));
        nasty_fill(r, kind, x, s->dv);
        kv_store(type, x, s->dv, b->v + i * kv_bytes(type, s->dv));
    }
    b->list = (uint32_t *)malloc((size_t)MOST_TOKENS * (s->n_ctx + 1) * sizeof *b->list);
    for (unsigned t = 0, at = 0; t < s->n_tokens; t++) {
        b->seq[t] = t >= s->n_tokens / 3; /* two runs */
        if (t == 0 || b->seq[t] != b->seq[t - 1])
            at = nasty_u32(r) % (s->n_ctx - s->n_tokens + 1);
        b->pos[t] = at++;
        uint32_t *list = b->list + (size_t)t * (s->n_ctx + 1);
        *list = t % 4 == 3 ? ATTENTION_LIST_ALL : 1 + nasty_u32(r) % (b->pos[t] + 1);
        for (unsigned j = 0; *list != ATTENTION_LIST_ALL && j < *list; j++)
            list[1 + j] = nasty_u32(r) % (b->pos[t] + 1);
    }
    b->a.type = type;
    b->a.k = cuda_copy(b->k, b->k_bytes);
    b->a.v = cuda_copy(b->v, b->v_bytes);
    b->a.n_ctx = s->n_ctx;
    b->a.kv_heads = s->kv_heads;
    b->a.hd = s->hd;
    b->a.dv = s->dv;
    b->a.pos = (uint32_t *)cuda_copy(b->pos, sizeof b->pos);
    b->a.seq = (uint32_t *)cuda_copy(b->seq, sizeof b->seq);
    if (s->listed) {
        b->a.list_ld = s->n_ctx + 1;
        b->a.list =
            (uint32_t *)cuda_copy(b->list, (size_t)MOST_TOKENS * (s->n_ctx + 1) * sizeof *b->list);
    }
    free(x);
}

static void close_both(struct both *b)
{
    CUDA_OK(cudaFree(b->a.k));
    CUDA_OK(cudaFree(b->a.v));
    CUDA_OK(cudaFree((void *)b->a.pos));
    CUDA_OK(cudaFree((void *)b->a.seq));
    CUDA_OK(cudaFree((void *)b->a.list));
    free(b->k);
    free(b->v);
    free(b->list);
}

static uint8_t *head_row(const struct both *b, uint8_t *base, unsigned t, unsigned h, size_t row)
{
    return base + ((size_t)b->seq[t] * b->a.kv_heads + h) * b->a.n_ctx * row;
}

/* the definition, query by query */
static void reference(const struct both *b, const struct shape *s, const float *q, size_t ldq,
                      float scale, float *out, size_t ldo)
{
    void *scratch =
        aligned_alloc(64, attention_scratch(s->dv) + 64 - attention_scratch(s->dv) % 64);
    size_t kr = kv_bytes(b->a.type, s->hd), vr = kv_bytes(b->a.type, s->dv);

    for (unsigned t = 0; t < s->n_tokens; t++)
        for (unsigned h = 0; h < s->heads; h++) {
            unsigned kvh = h / (s->heads / s->kv_heads);
            struct attention_keys keys = {};
            struct attention_query one = {q + t * ldq + h * s->hd, out + t * ldo + h * s->dv,
                                          b->pos[t] + 1};

            keys.type = b->a.type;
            keys.k = head_row(b, b->k, t, kvh, kr);
            keys.v = head_row(b, b->v, t, kvh, vr);
            keys.k_stride = kr;
            keys.v_stride = vr;
            keys.hd = s->hd;
            keys.dv = s->dv;
            keys.scale = scale;
            const uint32_t *list = b->list + (size_t)t * (s->n_ctx + 1);
            if (s->listed && *list != ATTENTION_LIST_ALL) {
                keys.list = list + 1;
                one.n = *list;
            }
            attention_group_ref(&keys, &one, 1, scratch);
        }
    free(scratch);
}

static void check(struct nasty *r, const struct shape *s, enum kv_type type, int kind)
{
    struct both b;
    size_t ldq = s->heads * s->hd + 3, ldo = s->heads * s->dv + 1;
    size_t q_bytes = s->n_tokens * ldq * sizeof(float), o_bytes = s->n_tokens * ldo * sizeof(float);
    float *q = (float *)malloc(q_bytes), *want = (float *)malloc(o_bytes),
          *got = (float *)malloc(o_bytes);
    float *dq, *dout = (float *)cuda_room(o_bytes), scale = 0.3f;
    void *scratch = cuda_room(attention_cuda_scratch(s->n_tokens, s->heads, s->dv, s->n_ctx) + 16);

    open_both(&b, s, type, kind, r);
    nasty_fill(r, kind == 2 ? 0 : kind, q, s->n_tokens * ldq);
    dq = (float *)cuda_copy(q, q_bytes);
    memset(want, 0x55, o_bytes);
    reference(&b, s, q, ldq, scale, want, ldo);
    attention_cuda(&b.a, dq, ldq, s->heads, scale, dout, ldo, s->n_tokens, scratch, NULL);
    CUDA_OK(cudaGetLastError());
    cuda_back(got, dout, o_bytes);
    CHECK(!memcmp(want, got, o_bytes),
          "%u tokens, %u heads, %u kv heads, hd %u, dv %u, context %u, type %d, kind %d%s, "
          "positions %u...",
          s->n_tokens, s->heads, s->kv_heads, s->hd, s->dv, s->n_ctx, type, kind,
          s->listed ? ", listed" : "", b.pos[0]);
    close_both(&b);
    CUDA_OK(cudaFree(dq));
    CUDA_OK(cudaFree(dout));
    CUDA_OK(cudaFree(scratch));
    free(q);
    free(want);
    free(got);
}

static void appends(struct nasty *r, const struct shape *s, enum kv_type type, int kind)
{
    struct both b;
    size_t ldk = s->kv_heads * s->hd + 1, ldv = s->kv_heads * s->dv + 2;
    size_t kr = kv_bytes(type, s->hd), vr = kv_bytes(type, s->dv);
    float *k = (float *)malloc(s->n_tokens * ldk * 4), *v = (float *)malloc(s->n_tokens * ldv * 4),
          *dk, *dv;
    uint8_t *got;

    open_both(&b, s, type, 0, r);
    nasty_fill(r, kind, k, s->n_tokens * ldk);
    nasty_fill(r, kind, v, s->n_tokens * ldv);
    dk = (float *)cuda_copy(k, s->n_tokens * ldk * 4);
    dv = (float *)cuda_copy(v, s->n_tokens * ldv * 4);
    kv_append_cuda(&b.a, dk, ldk, dv, ldv, s->n_tokens, NULL);
    CUDA_OK(cudaGetLastError());
    for (unsigned t = 0; t < s->n_tokens; t++)
        for (unsigned h = 0; h < s->kv_heads; h++) {
            kv_store_ref(type, k + t * ldk + h * s->hd, s->hd,
                         head_row(&b, b.k, t, h, kr) + b.pos[t] * kr);
            kv_store_ref(type, v + t * ldv + h * s->dv, s->dv,
                         head_row(&b, b.v, t, h, vr) + b.pos[t] * vr);
        }
    got = (uint8_t *)malloc(b.k_bytes > b.v_bytes ? b.k_bytes : b.v_bytes);
    cuda_back(got, b.a.k, b.k_bytes);
    CHECK(!memcmp(got, b.k, b.k_bytes), "keys appended, type %d, kind %d, hd %u", type, kind,
          s->hd);
    cuda_back(got, b.a.v, b.v_bytes);
    CHECK(!memcmp(got, b.v, b.v_bytes), "values appended, type %d, kind %d, dv %u", type, kind,
          s->dv);
    close_both(&b);
    CUDA_OK(cudaFree(dk));
    CUDA_OK(cudaFree(dv));
    free(k);
    free(v);
    free(got);
}

/* attention_test [quick]: that is for runs under a checker */
int main(int argc, char **argv)
{
    static const struct shape shapes[] = {
        {1, 4, 4, 64, 64, 100, 0},    {1, 32, 4, 128, 128, 700, 0},  {2, 8, 1, 128, 128, 300, 0},
        {8, 16, 2, 64, 64, 1300, 0},  {5, 12, 2, 80, 72, 600, 0},    {3, 6, 6, 37, 41, 530, 0},
        {7, 33, 3, 24, 130, 260, 0},  {1, 8, 8, 8, 300, 257, 0},     {12, 8, 2, 64, 64, 700, 0},
        {24, 16, 16, 32, 32, 900, 0}, {17, 20, 2, 128, 128, 300, 0}, {9, 6, 2, 41, 37, 600, 0},
        {20, 10, 1, 16, 264, 520, 0}, {4, 8, 2, 64, 64, 800, 1},     {10, 4, 2, 64, 50, 600, 1},
        {11, 24, 24, 48, 48, 64, 0},  {12, 64, 1, 200, 136, 600, 1}, {9, 40, 1, 264, 72, 900, 0},
        {14, 16, 1, 576, 512, 300, 1},
    };
    static const struct shape distant[] = {{2, 8, 1, 8, 16, 140 * 256, 0},
                                           {10, 2, 1, 8, 8, 12 * 256, 0}};
    struct nasty r = {81};
    const char *all = getenv("CONCLAVE_LONG");
    int quick = argc > 1 && !strcmp(argv[1], "quick"), rounds = all && *all && strcmp(all, "0") ? 12 : 1;

    if (!cuda_card())
        return test_end();
    cpu_float_state();
    CUDA_OK(attention_cuda_ready());
    for (int type = 0; type < 3; type++)
        for (int kind = 0; kind < (quick ? 1 : 4); kind++)
            for (int i = 0; i < rounds; i++) {
                for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
                    check(&r, &shapes[k], (enum kv_type)type, kind);
                appends(&r, &shapes[4], (enum kv_type)type, kind);
                appends(&r, &shapes[9], (enum kv_type)type, kind);
            }
    for (int i = 0; i < rounds && !quick; i++)
        for (int k = 0; k < 2; k++)
            check(&r, &distant[k], KV_F16, i % 2);
    return test_end();
}
