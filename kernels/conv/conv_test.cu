/* Rule 32 on a card against the definition, by bits: sequences mixed in a batch, every small width,
 * the history that is left. */
#include "tests/cuda.h"
extern "C" {
#include "kernels/conv/conv.h"
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
    return test_end();
}
