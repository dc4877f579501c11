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

struct tile {
    const uint8_t *row[ROWS]; /* at the first unit */
    __m512i at;               /* bytes from the first row */
    size_t next;              /* to the rows that are fetched */
    size_t n_units;
};

/* group g of unit u begins */
INLINE void begin_at(const struct tile *x, size_t u, int g, struct opened *to)
{
    const uint8_t *b[TOGETHER];

    for (int i = 0; i < TOGETHER; i++) {
        b[i] = x->row[TOGETHER * g + i] + u * BLOCK_BYTES;
        for (int o = 0; o < BLOCK_BYTES; o += 64)
            _mm_prefetch((const char *)b[i] + x->next + o, _MM_HINT_T1);
    }
    begin(b, to);
}

/* group g of unit u, opened in *next, times n_tok vectors; opens what comes next: group 0 of the next
 * unit after the last, and after the last of all the same again */
INLINE void group(const struct tile *x, size_t u, int g, struct opened *next,
                  const struct turned *const unit[], const int n_tok, __m512i acc[FEW][GROUPS])
{
    struct opened now = *next;
    __m512i s[FEW];
    int over = g == GROUPS - 1;

    begin_at(x, over && u + 1 < x->n_units ? u + 1 : u, over ? 0 : g + 1, next);
    sums(&now, next, unit, n_tok, s);
    for (int k = 0; k < n_tok; k++)
        acc[k][g] = s[k];
}

/* n_tok vectors times sixteen rows; d: the vectors' factors; p: the rows' chains so far, and then */
INLINE void tile(const struct tile *x, const float *const d[], const struct turned *const t[],
                 const int n_tok, __m512 *p)
{
    struct opened next = {0};

    begin_at(x, 0, 0, &next);
    for (int j = 0; j < 4; j++)
        open_part(&next, j);
    for (size_t u = 0; u < x->n_units; u++) {
        const struct turned *unit[FEW];
        __m512i acc[FEW][GROUPS];
        __m512 f = factors16(x->row[0] + u * BLOCK_BYTES, x->at);

        for (int k = 0; k < n_tok; k++)
            unit[k] = t[k] + u;
        if (n_tok == 1) {
#pragma GCC unroll 8
            for (int g = 0; g < GROUPS; g++)
                group(x, u, g, &next, unit, 1, acc);
        } else {
#pragma GCC unroll 1
            for (int g = 0; g < GROUPS; g++)
                group(x, u, g, &next, unit, n_tok, acc);
        }
        for (int k = 0; k < n_tok; k++)
            p[k] = _mm512_fmadd_ps(_mm512_mul_ps(f, _mm512_set1_ps(d[k][u])),
                                   _mm512_cvtepi32_ps(fold16(acc[k])), p[k]);
    }
}

/* apart, each with its own tables and constants in registers */
#define TILE(n)                                                                                    \
    static __attribute__((noinline)) void tile##n(const struct tile *x, const float *const d[],    \
                                                  const struct turned *const t[], __m512 *p)       \
    {                                                                                              \
        tile(x, d, t, n, p);                                                                       \
    }
TILE(1)
TILE(2)
TILE(4)

/* All rows times vectors i.. i + n_tok - 1, at most FEW. With many units the chains stay in y between one piece
 * of the vectors and the next. Rows lie less than 2^27 bytes apart. */
static void few_vectors(const struct dot_job *job, size_t i, size_t n_tok)
{
    _Alignas(64) struct turned turned[FEW][UNITS_TURNED];
    const size_t n_units = job->n_cols / 256;

    for (size_t u0 = 0; u0 < n_units; u0 += UNITS_TURNED) {
        struct tile x = {.n_units = n_units - u0 < UNITS_TURNED ? n_units - u0 : UNITS_TURNED,
                         .next = fetch_distance(ROWS * job->row_bytes)};
        const struct turned *t[FEW];
        const float *d[FEW];

        for (size_t k = 0; k < n_tok; k++) {
            struct act act = act_parts(ACT_A256, job_act(job, i + k), job->n_cols);

            for (size_t u = 0; u < x.n_units; u++)
                turn(&act, u0 + u, &turned[k][u]);
            t[k] = turned[k];
            d[k] = act.d + u0;
        }
        for (size_t k = n_tok; k < FEW; k++) { /* missing vectors: the first again, dropped */
            t[k] = t[0];
            d[k] = d[0];
        }
        for (size_t r = 0; r < job->n_rows; r += ROWS) {
            size_t real = job->n_rows - r < ROWS ? job->n_rows - r : ROWS;
            __mmask16 mask = (__mmask16)((1u << real) - 1);
            float *y = job->y + i * job->ldy + r;
            _Alignas(64) int32_t at[ROWS];
            __m512 p[FEW];

            for (size_t k = 0; k < ROWS; k++) { /* missing rows: the last one again */
                at[k] = (int32_t)((k < real ? k : real - 1) * job->row_bytes);
                x.row[k] = job->w + r * job->row_bytes + at[k] + u0 * BLOCK_BYTES;
            }
            x.at = load512(at);
            for (size_t k = 0; k < FEW; k++)
                p[k] = u0 && k < n_tok ? _mm512_maskz_loadu_ps(mask, y + k * job->ldy)
                                       : _mm512_setzero_ps();
            if (n_tok == 1)
                tile1(&x, d, t, p);
            else if (n_tok == 2)
                tile2(&x, d, t, p);
            else
                tile4(&x, d, t, p);
            for (size_t k = 0; k < n_tok; k++)
                _mm512_mask_storeu_ps(y + k * job->ldy, mask,
                                      u0 + x.n_units < n_units ? p[k] : finish16(p[k]));
        }
    }
}

INLINE void job_few(const struct dot_job *job, dot_form *many)
{
    if (job->n_tok >= PANEL)
        many(job);
    else
        for (size_t i = 0; i < job->n_tok; i += FEW)
            few_vectors(job, i, job->n_tok - i < FEW ? job->n_tok - i : FEW);
}
