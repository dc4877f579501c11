/* Rule 32 on a card against the definition, by bits: sequences mixed in a batch, every small width,
 * the history that is left. */
#include "tests/cuda.h"
extern "C" {
#include "kernels/conv/conv.h"
#include "kernels/func/func.h"
#include "kernels/func/nasty.h"
}
#include "kernels/conv/conv_cuda.h"

enum { TOKENS = 9, SLOTS = 3, N = 300, BEFORE = CONV_CUDA_WIDTH - 1 };
static float history[SLOTS * BEFORE * N], x[TOKENS * (N + 2)], w[N * CONV_CUDA_WIDTH], bias[N];
static float y[TOKENS * (N + 1)], got[SLOTS * BEFORE * N + TOKENS * (N + 1)],
    left[SLOTS * BEFORE * N];

static void check(struct nasty *r, int kind, unsigned width, size_t n, int biased, int in_place)
{
    static const uint32_t seq[TOKENS] = {2, 0, 0, 2, 0, 2, 2, 0, 0}; /* slot 1 has none */
    size_t before = width - 1, h = SLOTS * before * n, ldx = n + 2, ldy = n + 1;
    struct conv_cuda c = {};

    nasty_fill(r, kind, history, h);
    nasty_fill(r, kind, x, TOKENS * ldx);
    nasty_fill(r, kind, w, n * width);
    nasty_fill(r, kind, bias, n);
    memset(y, 0x55, sizeof y);
    memset(left, 0x55, sizeof left);
    for (uint32_t s = 0; s < SLOTS; s++) {
        const float *rows[BEFORE + TOKENS], *of[CONV_CUDA_WIDTH];
        unsigned at = (unsigned)before;

        for (unsigned j = 0; j < before; j++)
            rows[j] = history + (s * before + j) * n;
        for (int t = 0; t < TOKENS; t++)
            if (seq[t] == s) {
                rows[at++] = x + t * ldx;
                for (unsigned j = 0; j < width; j++)
                    of[j] = rows[at - width + j];
                short_conv_ref(of, w, biased ? bias : NULL, width, n, y + t * ldy);
            }
        for (unsigned j = 0; j < before; j++)
            if (at > before || in_place)
                memcpy(left + (s * before + j) * n, rows[at - before + j], n * sizeof *x);
    }
    c.from = (float *)cuda_copy(history, h * 4 + 4);
    c.to = in_place ? (float *)c.from : (float *)cuda_room(h * 4 + 4);
    c.x = (float *)cuda_copy(x, TOKENS * ldx * 4);
    c.w = (float *)cuda_copy(w, n * width * 4);
    c.bias = biased ? (float *)cuda_copy(bias, n * 4) : NULL;
    c.y = (float *)cuda_room(TOKENS * ldy * 4);
    c.ldx = ldx, c.ldy = ldy, c.n = n, c.width = width, c.n_slots = SLOTS, c.n_tokens = TOKENS;
    c.seq = (uint32_t *)cuda_copy(seq, sizeof seq);
    short_conv_cuda(&c, NULL);
    CUDA_OK(cudaGetLastError());
    cuda_back(got, c.y, TOKENS * ldy * 4);
    CHECK(!memcmp(got, y, TOKENS * ldy * 4), "width %u, n %zu, kind %d", width, n, kind);
    cuda_back(got, c.to, h * 4);
    CHECK(!memcmp(got, left, h * 4), "history: width %u, n %zu, kind %d", width, n, kind);
    if (!in_place)
        CUDA_OK(cudaFree(c.to));
    CUDA_OK(cudaFree((void *)c.from));
    CUDA_OK(cudaFree((void *)c.x));
    CUDA_OK(cudaFree((void *)c.w));
    CUDA_OK(cudaFree((void *)c.bias));
    CUDA_OK(cudaFree(c.y));
    CUDA_OK(cudaFree((void *)c.seq));
}

/* Tails in two versions: runs at a sequence's beginning, in its middle, longer than the tail. */
static void check_runs(struct nasty *r, int kind, unsigned width, unsigned gap, size_t n)
{
    static const struct run run[3] = {{2, 0, 2, 0, 0, 0, 1}, {0, 2, 1, 77, 0, 1, 0}, {1, 3, 6, 3, 0, 0, 0}};
    enum { MOST_KEEP = 11, RUNS = 3 };
    static float tail[SLOTS * 2 * MOST_KEEP * N], back[SLOTS * 2 * MOST_KEEP * N];
    int keep = (int)((width - 1) * gap) + 2;
    size_t seq = 2 * keep * n, all = SLOTS * seq;
    uint32_t n_runs = RUNS;
    struct conv_runs_cuda c = {};
    float acc[N];

    nasty_fill(r, kind, tail, all);
    nasty_fill(r, kind, x, TOKENS * n);
    nasty_fill(r, kind, w, n * width);
    c.tails.base = (float *)cuda_copy(tail, all * 4);
    c.tails.seq_floats = seq, c.tails.keep = (unsigned)keep, c.tails.n = (unsigned)n, c.tails.most_runs = RUNS + 1;
    c.tails.run = (struct run *)cuda_copy(run, sizeof run);
    c.tails.n_runs = (uint32_t *)cuda_copy(&n_runs, sizeof n_runs);
    c.x = (float *)cuda_copy(x, TOKENS * n * 4);
    c.w = (float *)cuda_copy(w, n * width * 4);
    c.y = (float *)cuda_room(TOKENS * n * 4);
    c.width = width, c.gap = gap, c.n_tokens = TOKENS;
    for (const struct run *q = run; q < run + RUNS; q++) {
        float *from = tail + q->seq * seq + q->from * keep * n, *to = tail + q->seq * seq + (q->from ^ 1) * keep * n;
        const float *rows[CONV_CUDA_WIDTH];
        int end = (int)(q->pos + q->n);
        for (int pos = (int)q->pos; pos < end; pos++) {
            size_t at = (q->first + pos - q->pos) * n;
            for (int j = 0; j < (int)width; j++) {
                int p = pos - ((int)width - 1 - j) * (int)gap;
                rows[j] = p < 0 ? NULL : p < (int)q->pos ? from + p % keep * n : x + (q->first + p - q->pos) * n;
            }
            short_conv_ref(rows, w, NULL, width, n, acc);
            vec_silu_ref(acc, y + at, n);
        }
        for (int p = end < keep ? 0 : end - keep; p < end; p++)
            memcpy(to + p % keep * n, p < (int)q->pos ? from + p % keep * n : x + (q->first + p - q->pos) * n, n * 4);
    }
    silu_conv_runs_cuda(&c, NULL);
    tails_write_cuda(&c.tails, c.x, 0, (unsigned)n, NULL);
    CUDA_OK(cudaGetLastError());
    cuda_back(got, c.y, TOKENS * n * 4);
    CHECK(!memcmp(got, y, TOKENS * n * 4), "runs: width %u, %u apart, n %zu, kind %d", width, gap, n, kind);
    cuda_back(back, c.tails.base, all * 4);
    CHECK(!memcmp(back, tail, all * 4), "runs: tails, width %u, n %zu, kind %d", width, n, kind);
    CUDA_OK(cudaFree(c.tails.base));
    CUDA_OK(cudaFree((void *)c.tails.run));
    CUDA_OK(cudaFree(c.y));
    CUDA_OK(cudaFree((void *)c.tails.n_runs));
    CUDA_OK(cudaFree((void *)c.x));
    CUDA_OK(cudaFree((void *)c.w));
}

int main(void)
{
    struct nasty r = {111};

    if (!cuda_card())
        return test_end();
    for (int kind = 0; kind < 4; kind++)
        for (unsigned width = 1; width <= CONV_CUDA_WIDTH; width += width < 5 ? 1 : 5)
            for (int in_place = 0; in_place < 2; in_place++)
                check(&r, kind, width, width == 4 ? (size_t)N : 1 + 13 * width, width % 2,
                      in_place);
    for (int kind = 0; kind < 4; kind++) {
        check_runs(&r, kind, 4, 1, N);
        check_runs(&r, kind, 2, 1, 77);
        check_runs(&r, kind, 4, 3, N);
    }
    return test_end();
}
