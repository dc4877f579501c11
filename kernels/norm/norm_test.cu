/* Rules 21 and 22 on a card against the definition, by bits: every length to 70, then odd ones to
 * more than a block stages, in place too. */
#include "tests/cuda.h"
extern "C" {
#include "kernels/func/nasty.h"
#include "kernels/norm/norm.h"
}
#include "kernels/norm/norm_cuda.h"

enum { ROWS = 3, LONGEST = 17001, MOST = 3 * 4 * LONGEST };
static float x[MOST], w[LONGEST], b[LONGEST], act[MOST], want[MOST], got[MOST];

enum kind { RMS, PLAIN, GATED, L2, LAYER, KINDS };
static const char *const names[] = {"rms", "rms without weight", "gated", "l2", "layer"};

static void reference(int k, const float *from, const float *a, float *to, size_t n)
{
    if (k == RMS || k == PLAIN)
        rms_norm_ref(from, k == RMS ? w : NULL, to, n, 1e-6f);
    else if (k == GATED)
        rms_norm_gated_ref(from, w, a, to, n, 1e-6f);
    else if (k == L2)
        l2_norm_ref(from, to, n, 1e-6f);
    else
        layer_norm_ref(from, w, b, to, n, 1e-6f);
}

static void check(struct nasty *r, int kind, size_t n, unsigned pieces, size_t extra)
{
    size_t ld = pieces * n + extra, all = ROWS * ld;
    float *dx, *dw, *db, *dact, *dy;

    nasty_fill(r, kind, x, all);
    nasty_fill(r, kind, act, all);
    nasty_fill(r, kind, w, n);
    nasty_fill(r, kind, b, n);
    dw = (float *)cuda_copy(w, n * sizeof *w);
    db = (float *)cuda_copy(b, n * sizeof *b);
    dact = (float *)cuda_copy(act, all * sizeof *act);
    for (int k = 0; k < KINDS; k++)
        for (int in_place = 0; in_place < 2; in_place++) {
            struct norm_rows rows = {NULL, NULL, ld, ld, ROWS, pieces, n, 0};

            dx = (float *)cuda_copy(x, all * sizeof *x);
            dy = in_place ? dx : (float *)cuda_room(all * sizeof *dy);
            rows.x = dx;
            rows.y = dy;
            if (k == RMS || k == PLAIN)
                rms_norm_cuda(&rows, k == RMS ? dw : NULL, 1e-6f, NULL);
            else if (k == GATED)
                rms_norm_gated_cuda(&rows, dw, dact, 1e-6f, NULL);
            else if (k == L2)
                l2_norm_cuda(&rows, 1e-6f, NULL);
            else
                layer_norm_cuda(&rows, dw, db, 1e-6f, NULL);
            CUDA_OK(cudaGetLastError());
            if (in_place)
                memcpy(want, x, all * sizeof *want);
            else
                memset(want, 0x55, all * sizeof *want); /* what lies between the rows stays */
            for (unsigned i = 0; i < ROWS; i++)
                for (unsigned p = 0; p < pieces; p++)
                    reference(k, x + i * ld + p * n, act + i * ld + p * n, want + i * ld + p * n,
                              n);
            cuda_back(got, dy, all * sizeof *got);
            CHECK(!memcmp(want, got, all * sizeof *got),
                  "%s, n %zu, %u pieces, values of kind %d%s", names[k], n, pieces, kind,
                  in_place ? ", in place" : "");
            CUDA_OK(cudaFree(dx));
            if (!in_place)
                CUDA_OK(cudaFree(dy));
        }
    CUDA_OK(cudaFree(dw));
    CUDA_OK(cudaFree(db));
    CUDA_OK(cudaFree(dact));
}

/* Weights of their own for each piece. */
static void check_each(struct nasty *r, int kind, size_t n, unsigned pieces)
{
    size_t ld = pieces * n, all = ROWS * ld;
    float *dx, *dw;
    struct norm_rows rows = {NULL, NULL, ld, ld, ROWS, pieces, n, 1};

    nasty_fill(r, kind, x, all);
    nasty_fill(r, kind, act, ld);
    dx = (float *)cuda_copy(x, all * sizeof *x);
    dw = (float *)cuda_copy(act, ld * sizeof *act);
    rows.x = rows.y = dx;
    rms_norm_cuda(&rows, dw, 1e-6f, NULL);
    CUDA_OK(cudaGetLastError());
    for (unsigned i = 0; i < ROWS; i++)
        for (unsigned p = 0; p < pieces; p++)
            rms_norm_ref(x + i * ld + p * n, act + p * n, want + i * ld + p * n, n, 1e-6f);
    cuda_back(got, dx, all * sizeof *got);
    CHECK(!memcmp(want, got, all * sizeof *got), "rms, a weight for each of %u pieces, n %zu, kind %d", pieces, n, kind);
    CUDA_OK(cudaFree(dx));
    CUDA_OK(cudaFree(dw));
}

/* norm_test [quick]: that is for runs under a checker */
int main(int argc, char **argv)
{
    static const size_t lengths[] = {127,  128,  256,  511,  512,  513, 1000,
                                     2048, 4096, 6143, 8192, 8193, 9000, 16384, 17001};
    int quick = argc > 1 && !strcmp(argv[1], "quick");
    struct nasty r = {31};

    if (!cuda_card())
        return test_end();
    for (int kind = 0; kind < (quick ? 1 : 4); kind++) {
        for (size_t n = 1; n <= 70; n += kind == 3 ? 1 : 7)
            check(&r, kind, n, 1 + n % 4, n % 3);
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            check(&r, kind, lengths[i], 1 + i % 3, i % 2);
        for (size_t n = 24; n <= 9000; n *= 5)
            check_each(&r, kind, n, 1 + n % 5);
        check_each(&r, kind, 9000, 3);
    }
    return test_end();
}
