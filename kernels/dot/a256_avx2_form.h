/* The AVX2 form of the 256-value types (ARITHMETIC.md rules 10 and 11), included by a type's file
 * after it has defined
 *
 *   enum { BLOCK_BYTES, SUB_BLOCK, WITH_SHIFT, WITH_MINS, WITH_SIGN };
 *   void head(const uint8_t *block, struct head *h)                 the block's scales, and more
 *   __m256i bytes(const uint8_t *block, const struct head *h, int j, __m256i *sign)
 *                                                                  values 32j.. of a block
 *   __m128 factors(const uint8_t *const block[4])                  D of four blocks
 *   __m128 min_factors(const uint8_t *const block[4])              WITH_MINS: dmin of four blocks
 *
 * Four rows go side by side: their integer sums end in the four parts of one register, so that one
 * instruction does one step of four chains. Bytes are unsigned; a type with signed values gives
 * them shifted (WITH_SHIFT: h->shift * sum16 makes up for it) or as magnitudes with the signs apart
 * (WITH_SIGN: the vector's byte takes the sign). Pair sums stay inside int16: BLOCKS.md, section 5.
 */

enum { ROWS = 4 };

struct sums {
    __m256i s[ROWS][8], t[ROWS][8]; /* eight partial sums each, per row and token */
};

/* int16 scale of each pair of bytes of values 32j..: sub-block 2j in the low half, 2j + 1 above */
INLINE __m256i scale_of(__m256i scales, int j)
{
    return _mm256_shuffle_epi8(scales, _mm256_set1_epi16((short)(0x0100 + 0x0202 * j)));
}

INLINE void block_sums(const uint8_t *block, const struct act *act, size_t u, const int n_tok,
                       __m256i *s, __m256i *t)
{
    struct head h;
    __m256i acc[8];
    const int8_t *from[8];

    head(block, &h);
    for (int k = 0; k < n_tok; k++)
        from[k] = unknown(act[k].q + 256 * u);
    for (int k = 0; k < n_tok; k++) {
        __m256i sum16 = load256((const int16_t *)act[k].sum + 16 * u);

        acc[k] = _mm256_setzero_si256();
        if (WITH_SHIFT)
            acc[k] = _mm256_madd_epi16(h.shift, sum16);
        if (WITH_MINS)
            t[k] = _mm256_madd_epi16(h.mins, sum16);
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        __m256i sign, w = bytes(block, &h, j, &sign), scale = scale_of(h.scales, j);

#pragma GCC unroll 8
        for (int k = 0; k < n_tok; k++) {
            __m256i q = load256(from[k] + 32 * j);

            if (WITH_SIGN)
                q = _mm256_sign_epi8(q, sign);
            acc[k] = as_written(
                _mm256_add_epi32(acc[k], _mm256_madd_epi16(_mm256_maddubs_epi16(w, q), scale)));
        }
    }
    for (int k = 0; k < n_tok; k++)
        s[k] = acc[k];
}

/* Four rows times n_tok vectors. next: how far the rows are that are fetched, 0: none. */
INLINE void tile(const uint8_t *const row[ROWS], size_t next, size_t n_units, const struct act *act,
                 const int n_tok, __m128 *y)
{
    __m128 p[8], m[8];
    struct sums x;

    for (int k = 0; k < n_tok; k++)
        p[k] = m[k] = _mm_setzero_ps();
    for (size_t u = 0; u < n_units; u++) {
        const uint8_t *b[ROWS];
        __m128 d, dmin;

        for (int r = 0; r < ROWS; r++)
            b[r] = row[r] + u * BLOCK_BYTES;
        if (next)
            for (int r = 0; r < ROWS; r++)
                for (int o = 0; o < BLOCK_BYTES; o += 64)
                    _mm_prefetch((const char *)b[r] + next + o, _MM_HINT_T1);
        if (n_tok == 1) {
#pragma GCC unroll 4
            for (int r = 0; r < ROWS; r++)
                block_sums(b[r], act, u, 1, x.s[r], x.t[r]);
        } else {
#pragma GCC unroll 1
            for (int r = 0; r < ROWS; r++)
                block_sums(b[r], act, u, n_tok, x.s[r], x.t[r]);
        }
        d = factors(b);
        if (WITH_MINS)
            dmin = min_factors(b);
        for (int k = 0; k < n_tok; k++) {
            __m128 da = _mm_set1_ps(act[k].d[u]);
            __m128i s = sum4(x.s[0][k], x.s[1][k], x.s[2][k], x.s[3][k]);

            p[k] = _mm_fmadd_ps(_mm_mul_ps(d, da), _mm_cvtepi32_ps(s), p[k]);
            if (WITH_MINS) {
                __m128i t = sum4(x.t[0][k], x.t[1][k], x.t[2][k], x.t[3][k]);
                m[k] = _mm_fmadd_ps(_mm_mul_ps(dmin, da), _mm_cvtepi32_ps(t), m[k]);
            }
        }
    }
    for (int k = 0; k < n_tok; k++)
        y[k] = finish4(WITH_MINS ? _mm_sub_ps(p[k], m[k]) : p[k]);
}

static void job_a256(const struct dot_job *job)
{
    const size_t n_units = job->n_cols / 256;

    for (size_t i0 = 0; i0 < job->n_tok; i0 += TOKENS_CACHED) {
        size_t i1 = i0 + TOKENS_CACHED < job->n_tok ? i0 + TOKENS_CACHED : job->n_tok;

        for (size_t r = 0; r < job->n_rows; r += ROWS) {
            size_t n = job->n_rows - r < ROWS ? job->n_rows - r : ROWS;
            size_t next = fetch_distance(ROWS * job->row_bytes);
            const uint8_t *row[ROWS];

            for (size_t k = 0; k < ROWS; k++) /* missing rows: the last one again, result dropped */
                row[k] = job->w + (r + (k < n ? k : n - 1)) * job->row_bytes;
            for (size_t i = i0; i < i1;) {
                size_t real = i1 - i, together = tokens_together(real);
                struct act act[8];
                __m128 y[8];

                real = real < together ? real : together;
                for (size_t k = 0; k < together; k++)
                    act[k] = act_parts(ACT_A256, job_act(job, i + (k < real ? k : real - 1)),
                                       job->n_cols);
                if (together == 8)
                    tile(row, i == i0 ? next : 0, n_units, act, 8, y);
                else if (together == 4)
                    tile(row, i == i0 ? next : 0, n_units, act, 4, y);
                else if (together == 2)
                    tile(row, i == i0 ? next : 0, n_units, act, 2, y);
                else
                    tile(row, i == i0 ? next : 0, n_units, act, 1, y);
                for (size_t k = 0; k < real; k++)
                    store_rows(job->y + (i + k) * job->ldy + r, y[k], n);
                i += real;
            }
        }
    }
}
