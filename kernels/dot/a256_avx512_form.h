/* The AVX-512 form of the 256-value types (ARITHMETIC.md rules 10 and 11), included by a type's
 * file after <type>_avx2.h and the definition of
 *
 *   void block_sums(const uint8_t *block, const struct head *h, const struct act *act, size_t u,
 *                   const int n_tok, __m512i *acc)
 *       S of the block and unit u of n_tok vectors, as sixteen numbers each, to be added
 *
 * which most types take from block_avx512.h.
 *
 * Few vectors: four rows go side by side. With one vector their sums are the four elements of a
 * small register; with more, rows are the parts and vectors the elements of a large one, so that
 * one instruction does one step of sixteen chains. Many vectors: kernels/gemm, and for the types
 * with grids a256_panel_avx512.h. */
#include "kernels/dot/avx512.h"

enum { ROWS = 4 };

/* T of four rows and one vector: row r's in part r, as four numbers to be added */
INLINE __m512i min_sums(const struct head *h, const struct act *act, size_t u)
{
    __m512i sum16 = _mm512_broadcast_i64x4(load256((const int16_t *)act->sum + 16 * u));

    return pair_parts(_mm512_madd_epi16(join256(h[0].mins, h[1].mins), sum16),
                      _mm512_madd_epi16(join256(h[2].mins, h[3].mins), sum16));
}

INLINE void fetch(const uint8_t *const b[ROWS], size_t next)
{
    if (next)
        for (int r = 0; r < ROWS; r++)
            for (int o = 0; o < BLOCK_BYTES; o += 64)
                _mm_prefetch((const char *)b[r] + next + o, _MM_HINT_T1);
}

/* four rows times one vector */
INLINE __m128 tile1(const uint8_t *const row[ROWS], size_t next, size_t n_units,
                    const struct act *act)
{
    const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    __m128 p = _mm_setzero_ps(), m = _mm_setzero_ps();

    for (size_t u = 0; u < n_units; u++) {
        const uint8_t *b[ROWS];
        struct head h[ROWS];
        __m512i s[ROWS];
        __m128 da = _mm_set1_ps(act->d[u]);

        for (int r = 0; r < ROWS; r++)
            b[r] = row[r] + u * BLOCK_BYTES;
        fetch(b, next);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {
            head(b[r], &h[r]);
            block_sums(b[r], &h[r], act, u, 1, &s[r]);
        }
        p = _mm_fmadd_ps(_mm_mul_ps(factors(b), da),
                         _mm_cvtepi32_ps(fold_parts(combine4(s[0], s[1], s[2], s[3]))), p);
        if (WITH_MINS) {
            __m512i t = min_sums(h, act, u);

            t = _mm512_add_epi32(t, _mm512_shuffle_epi32(t, 0x4E));
            t = _mm512_add_epi32(t, _mm512_shuffle_epi32(t, 0xB1));
            t = _mm512_permutexvar_epi32(firsts, t);
            m = _mm_fmadd_ps(_mm_mul_ps(min_factors(b), da),
                             _mm_cvtepi32_ps(_mm512_castsi512_si128(t)), m);
        }
    }
    return finish4(WITH_MINS ? _mm_sub_ps(p, m) : p);
}

/* four rows times 4 * n_quads vectors; y: one register for four vectors, part r is row r */
INLINE void tile4(const uint8_t *const row[ROWS], size_t next, size_t n_units,
                  const struct act *act, const int n_quads, __m512 *y)
{
    __m512 p[2], m[2];

    for (int k = 0; k < n_quads; k++)
        p[k] = m[k] = _mm512_setzero_ps();
    for (size_t u = 0; u < n_units; u++) {
        const uint8_t *b[ROWS];
        struct head h[ROWS];
        __m512i w[2][ROWS];
        __m512 d, dmin;

        for (int r = 0; r < ROWS; r++)
            b[r] = row[r] + u * BLOCK_BYTES;
        fetch(b, next);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {
            __m512i acc[8];

            head(b[r], &h[r]);
            block_sums(b[r], &h[r], act, u, 4 * n_quads, acc);
            for (int k = 0; k < n_quads; k++)
                w[k][r] = combine4(acc[4 * k], acc[4 * k + 1], acc[4 * k + 2], acc[4 * k + 3]);
        }
        d = to_parts(factors(b));
        if (WITH_MINS)
            dmin = to_parts(min_factors(b));
        for (int k = 0; k < n_quads; k++) {
            const struct act *a = act + 4 * k;
            __m512 da =
                _mm512_broadcast_f32x4(_mm_setr_ps(a[0].d[u], a[1].d[u], a[2].d[u], a[3].d[u]));
            __m512i s = sum_parts(w[k][0], w[k][1], w[k][2], w[k][3]);

            p[k] = _mm512_fmadd_ps(_mm512_mul_ps(d, da), _mm512_cvtepi32_ps(s), p[k]);
            if (WITH_MINS) {
                __m512i t = combine4(min_sums(h, a, u), min_sums(h, a + 1, u),
                                     min_sums(h, a + 2, u), min_sums(h, a + 3, u));
                m[k] = _mm512_fmadd_ps(_mm512_mul_ps(dmin, da), _mm512_cvtepi32_ps(t), m[k]);
            }
        }
    }
    for (int k = 0; k < n_quads; k++)
        y[k] = WITH_MINS ? _mm512_sub_ps(p[k], m[k]) : p[k];
}

/* up to eight vectors from i on; returns how many */
INLINE size_t some_vectors(const struct dot_job *job, size_t r, size_t i, size_t left, int first)
{
    size_t n = job->n_rows - r < ROWS ? job->n_rows - r : ROWS;
    size_t next = first ? fetch_distance(ROWS * job->row_bytes) : 0;
    size_t together = left == 1 ? 1 : left <= 4 ? 4 : 8, real = left < together ? left : together;
    const size_t n_units = job->n_cols / 256;
    const uint8_t *row[ROWS];
    struct act act[8];
    __m512 y[2];

    for (size_t k = 0; k < ROWS; k++) /* missing rows: the last one again, result dropped */
        row[k] = job->w + (r + (k < n ? k : n - 1)) * job->row_bytes;
    for (size_t k = 0; k < together; k++) /* missing vectors likewise */
        act[k] = act_parts(ACT_A256, job_act(job, i + (k < real ? k : real - 1)), job->n_cols);
    if (together == 1) {
        store_rows(job->y + i * job->ldy + r, tile1(row, next, n_units, act), n);
        return 1;
    }
    if (together == 4)
        tile4(row, next, n_units, act, 1, y);
    else
        tile4(row, next, n_units, act, 2, y);
    for (size_t k = 0; k < real; k++) {
        float v[4][4];

        if (k % 4 == 0)
            y[k / 4] = transpose4(y[k / 4]);
        _mm512_storeu_ps(v, y[k / 4]);
        store_rows(job->y + (i + k) * job->ldy + r, finish4(_mm_loadu_ps(v[k % 4])), n);
    }
    return real;
}

/* rows from r on times vectors i0.. i1 */
static void some_rows(const struct dot_job *job, size_t r, size_t i0, size_t i1)
{
    for (; r < job->n_rows; r += ROWS)
        for (size_t i = i0; i < i1;)
            i += some_vectors(job, r, i, i1 - i, i == i0);
}

INLINE void job_a256(const struct dot_job *job)
{
    for (size_t i = 0; i < job->n_tok; i += TOKENS_CACHED)
        some_rows(job, 0, i, i + TOKENS_CACHED < job->n_tok ? i + TOKENS_CACHED : job->n_tok);
}
