/* Few vectors times rows of a type with a grid, where bytes can be permuted (ARITHMETIC.md rules 10
 * and 11), included by a type's file after grid8_vbmi_sums.h or grid4_vbmi_sums.h and
 *
 *   FACTOR                     D = d * FACTOR
 *
 * Sixteen rows make a register of chains, TOGETHER of them are opened at once, the next ones while
 * these are multiplied. Vectors are turned once for all rows. Many vectors: the AVX-512 form. */

enum { ROWS = 16, GROUPS = ROWS / TOGETHER, FEW = 4, UNITS_TURNED = 16 };
enum { PANEL = 12 }; /* as PANEL_MIN_TOKENS in a256_panel_avx512.h */

/* D of sixteen blocks, `at` bytes from the first */
INLINE __m512 factors16(const uint8_t *block, __m512i at)
{
    __m512i v = _mm512_i32gather_epi32(at, block, 1);

    return _mm512_mul_ps(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)), _mm512_set1_ps(FACTOR));
}

/* units u0.. u0 + n_units - 1 of a job's rows and of vectors i.. */
struct part {
    const struct dot_job *job;
    size_t i, n_tok, u0, n_units;
    const float *d[FEW];         /* the vectors' factors */
    const struct turned *t[FEW]; /* missing vectors: the first again, results dropped */
};
/* sixteen rows at unit u0; missing ones: the last again */
struct tile {
    const uint8_t *row[ROWS];
    int32_t at[ROWS]; /* bytes from the first; rows lie less than 2^27 bytes apart */
};

INLINE void tile_at(const struct part *x, size_t r, struct tile *to)
{
    const struct dot_job *job = x->job;
    const uint8_t *w = job->w + r * job->row_bytes + x->u0 * BLOCK_BYTES;

    for (size_t k = 0; k < ROWS; k++) {
        to->at[k] = (int32_t)((r + k < job->n_rows ? k : job->n_rows - 1 - r) * job->row_bytes);
        to->row[k] = w + to->at[k];
    }
}

/* rows TOGETHER * g.. of unit u begin */
INLINE void begin_at(const struct tile *x, size_t u, int g, size_t fetch, struct opened *to)
{
    const uint8_t *b[TOGETHER];

    for (int i = 0; i < TOGETHER; i++) {
        b[i] = x->row[TOGETHER * g + i] + u * BLOCK_BYTES;
        for (int o = 0; o < BLOCK_BYTES; o += 64)
            _mm_prefetch((const char *)b[i] + fetch + o, _MM_HINT_T1);
    }
    begin(b, to);
}

/* rows TOGETHER * g.. of unit u, opened in *next, times n_tok vectors. What comes next is opened
 * meanwhile: the tile's next rows, or the first ones of `after` in unit u_after. (Permutations and
 * products use different parts of a core, and it does not look far enough ahead to mix them itself.) */
INLINE void step(const struct tile *x, size_t u, int g, const struct tile *after, size_t u_after,
                 size_t fetch, const struct turned *const t[], const int n_tok,
                 struct opened *next, __m512i acc[FEW][GROUPS])
{
    struct opened now = *next;
    __m512i s[FEW];

    if (g + 1 < GROUPS)
        begin_at(x, u, g + 1, fetch, next);
    else
        begin_at(after, u_after, 0, fetch, next);
    sums(&now, next, t, n_tok, s);
    for (int k = 0; k < n_tok; k++)
        acc[k][g] = s[k];
}

/* all rows; after the last of all the same is opened again */
INLINE void rows(const struct part *x, const int n_tok)
{
    const struct dot_job *job = x->job;
    const size_t fetch = fetch_distance(ROWS * job->row_bytes);
    struct opened next = {0};
    struct tile tile[2];

    tile_at(x, 0, &tile[0]);
    begin_at(&tile[0], 0, 0, fetch, &next);
    for (int j = 0; j < 4; j++)
        open_part(&next, j);
    for (size_t r = 0; r < job->n_rows; r += ROWS) {
        const struct tile *this = &tile[r / ROWS % 2];
        const size_t left = job->n_rows - r;
        const __mmask16 real = (__mmask16)(left < ROWS ? (1u << left) - 1 : 0xFFFF);
        const __m512i at = load512(this->at);
        float *y = job->y + x->i * job->ldy + r;
        __m512 p[FEW];

        tile_at(x, left > ROWS ? r + ROWS : r, &tile[r / ROWS % 2 ^ 1]);
        for (size_t k = 0; k < (size_t)n_tok; k++)
            p[k] = x->u0 && k < x->n_tok ? _mm512_maskz_loadu_ps(real, y + k * job->ldy)
                                         : _mm512_setzero_ps();
        for (size_t u = 0; u < x->n_units; u++) {
            const struct tile *after = u + 1 < x->n_units ? this : &tile[r / ROWS % 2 ^ 1];
            const size_t u_after = u + 1 < x->n_units ? u + 1 : 0;
            const __m512 f = factors16(this->row[0] + u * BLOCK_BYTES, at);
            const struct turned *t[FEW];
            __m512i acc[FEW][GROUPS];

            for (int k = 0; k < n_tok; k++)
                t[k] = x->t[k] + u;
            if (n_tok == 1) {
#pragma GCC unroll 8
                for (int g = 0; g < GROUPS; g++)
                    step(this, u, g, after, u_after, fetch, t, 1, &next, acc);
            } else {
#pragma GCC unroll 1
                for (int g = 0; g < GROUPS; g++)
                    step(this, u, g, after, u_after, fetch, t, n_tok, &next, acc);
            }
            for (int k = 0; k < n_tok; k++)
                p[k] = _mm512_fmadd_ps(_mm512_mul_ps(f, _mm512_set1_ps(x->d[k][u])),
                                       _mm512_cvtepi32_ps(fold16(acc[k])), p[k]);
        }
        for (size_t k = 0; k < (size_t)n_tok && k < x->n_tok; k++)
            _mm512_mask_storeu_ps(y + k * job->ldy, real,
                                  x->u0 + x->n_units < job->n_cols / 256 ? p[k] : finish16(p[k]));
    }
}
/* apart, each with its own tables and constants in registers */
#define ROWS_TIMES(n)                                                                              \
    static __attribute__((noinline)) void rows_times_##n(const struct part *x)                     \
    {                                                                                              \
        rows(x, n);                                                                                \
    }
ROWS_TIMES(1)
ROWS_TIMES(2)
ROWS_TIMES(4)

/* All rows of the jobs times vectors i.. i + n_tok - 1, at most FEW. With many units the chains stay in y
 * between one part and the next. */
static void few_vectors(const struct dot_job *job, size_t i, size_t n_tok)
{
    _Alignas(64) struct turned turned[FEW][UNITS_TURNED];
    const size_t n_units = job->n_cols / 256;

    for (size_t u0 = 0; u0 < n_units; u0 += UNITS_TURNED) {
        struct part x = {job, i, n_tok, u0, n_units - u0 < UNITS_TURNED ? n_units - u0 : UNITS_TURNED,
                         {0}, {0}};

        for (size_t k = 0; k < n_tok; k++) {
            struct act act = act_parts(ACT_A256, job_act(job, i + k), job->n_cols);

            for (size_t u = 0; u < x.n_units; u++)
                turn(&act, u0 + u, &turned[k][u]);
            x.d[k] = act.d + u0;
            x.t[k] = turned[k];
        }
        for (size_t k = n_tok; k < FEW; k++) {
            x.d[k] = x.d[0];
            x.t[k] = x.t[0];
        }
        for (x.job = job; x.job; x.job = x.job->also)
            if (!x.job->n_rows)
                continue;
            else if (n_tok == 1)
                rows_times_1(&x);
            else if (n_tok == 2)
                rows_times_2(&x);
            else
                rows_times_4(&x);
    }
}

INLINE void job_few(const struct dot_job *job, dot_form *many)
{
    if (job->n_tok >= PANEL)
        for (; job; job = job->also)
            many(job);
    else
        for (size_t i = 0; i < job->n_tok; i += FEW)
            few_vectors(job, i, job->n_tok - i < FEW ? job->n_tok - i : FEW);
}
