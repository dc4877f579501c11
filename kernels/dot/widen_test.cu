/* Rule 38 on a card against the definition: random bytes are legal rows of every type, so that
 * scales of all kinds (rule 15) come by themselves; rows at odd addresses. */
#include "tests/cuda.h"
extern "C" {
#include "kernels/dot/dot.h"
#include "kernels/func/nasty.h"
}
#include "kernels/dot/widen_cuda.h"

enum { ROWS = 40, TOKENS = 64, UNITS = 3, COLS = 256 * UNITS };

static void check(struct nasty *r, uint32_t type, size_t shift)
{
    uint64_t row_bytes;
    static float want[TOKENS * (COLS + 1)], got[TOKENS * (COLS + 1)];
    uint32_t ids[TOKENS], *dids;
    uint8_t *w, *dw;
    void *base;
    float *dout = (float *)cuda_room(sizeof got);

    if (type_row_bytes(type, COLS, &row_bytes))
        exit(1);
    w = (uint8_t *)malloc(ROWS * row_bytes);
    for (size_t i = 0; i < ROWS * row_bytes; i++)
        w[i] = (uint8_t)nasty_u32(r);
    for (int t = 0; t < TOKENS; t++)
        ids[t] = nasty_u32(r) % ROWS;
    memset(want, 0x55, sizeof want);
    for (int t = 0; t < TOKENS; t++)
        dot_widen_row(dot_type(type), w + ids[t] * row_bytes, COLS, want + t * (COLS + 1));
    dw = (uint8_t *)cuda_copy_at(w, ROWS * row_bytes, shift, &base);
    dids = (uint32_t *)cuda_copy(ids, sizeof ids);
    dequant_rows_cuda(type, dw, row_bytes, COLS, dids, dout, COLS + 1, TOKENS, NULL);
    CUDA_OK(cudaGetLastError());
    cuda_back(got, dout, sizeof got);
    CHECK(!memcmp(want, got, sizeof got), "%s, %zu bytes off", type_info(type)->name, shift);
    for (int i = 0; i < 8; i++) /* two rows in each token's bytes, the second and third of five there */
        dot_widen_row(dot_type(type), w + (i / 2 * 5 + 1 + i % 2) * row_bytes, COLS, want + i * COLS);
    dequant_table_cuda(type, dw + row_bytes, 5 * row_bytes, row_bytes, 2, COLS, dout, 4, NULL);
    CUDA_OK(cudaGetLastError());
    cuda_back(got, dout, 8 * COLS * 4);
    CHECK(!memcmp(want, got, 8 * COLS * 4), "%s, tokens' rows, %zu bytes off", type_info(type)->name, shift);
    CUDA_OK(cudaFree(base));
    CUDA_OK(cudaFree(dids));
    CUDA_OK(cudaFree(dout));
    free(w);
}

static void picked(void)
{
    enum { N = 300, OUT = 5 };
    static float x[4 * N], want[OUT * N], got[OUT * N];
    static const uint32_t idx[OUT] = {3, 1, 2, 77, 99}, live = 3; /* those behind are not read */
    float *dx, *dout = (float *)cuda_room(sizeof got);
    uint32_t *didx = (uint32_t *)cuda_copy(idx, sizeof idx),
             *dlive = (uint32_t *)cuda_copy(&live, 4);

    for (int i = 0; i < 4 * N; i++)
        x[i] = (float)i;
    for (int i = 0; i < OUT; i++)
        memcpy(want + i * N, x + (i < 3 ? idx[i] : 0) * N, N * sizeof *x);
    dx = (float *)cuda_copy(x, sizeof x);
    pick_rows_cuda(dx, N, didx, dlive, dout, N, N, OUT, NULL);
    CUDA_OK(cudaGetLastError());
    cuda_back(got, dout, sizeof got);
    CHECK(!memcmp(want, got, sizeof got), "picked rows");
    CUDA_OK(cudaFree(dx));
    CUDA_OK(cudaFree(dout));
    CUDA_OK(cudaFree(didx));
    CUDA_OK(cudaFree(dlive));
}

int main(void)
{
    struct nasty r = {71};
    int types = 0;

    if (!cuda_card())
        return test_end();
    for (uint32_t type = 0; type < 64; type++)
        if (dot_type(type)) {
            types++;
            for (size_t shift = 0; shift < 16; shift += 5)
                check(&r, type, shift);
        }
    CHECK(types == 24, "%d types", types);
    picked();
    return test_end();
}
