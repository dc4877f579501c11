/* The AVX2 form of the 32-value types (ARITHMETIC.md rules 10 and 12), included by a type's file
 * after it has defined
 *
 *   enum { BLOCK_BYTES, SHIFT, WITH_MINS, WITH_SIGN };
 *   __m256i bytes(const uint8_t *block, __m256i *sign)             the 32 values
 *   __m128 factors(const uint8_t *const block[4])                  D of four blocks
 *   __m128 min_factors(const uint8_t *const block[4])              WITH_MINS: m of four blocks
 *
 * Four units of one row go side by side: they are the four lanes. Bytes are unsigned; signed
 * values come shifted by SHIFT or as magnitudes with the signs apart (WITH_SIGN). A row whose
 * units are no multiple of four is padded with a block of zeros and d = 0: S = T = 0, f = 0. */

INLINE void four_units(const uint8_t *const b[4], const int8_t *const q[][4], const __m128 *d,
                       const __m128i *sum, const int n_tok, __m128 *p, __m128 *m)
{
    __m256i w[4], sign[4];
    __m128 dw = factors(b), mw;

    for (int k = 0; k < 4; k++)
        w[k] = bytes(b[k], &sign[k]);
    if (WITH_MINS)
        mw = min_factors(b);
    for (int i = 0; i < n_tok; i++) {
        __m256i part[4];
        __m128i s;

        for (int k = 0; k < 4; k++) {
            __m256i v = load256(q[i][k]);

            if (WITH_SIGN)
                v = _mm256_sign_epi8(v, sign[k]);
            part[k] = _mm256_madd_epi16(_mm256_maddubs_epi16(w[k], v), _mm256_set1_epi16(1));
        }
        s = sum4(part[0], part[1], part[2], part[3]);
        if (SHIFT)
            s = _mm_sub_epi32(s, _mm_mullo_epi32(sum[i], _mm_set1_epi32(SHIFT)));
        p[i] = _mm_fmadd_ps(_mm_mul_ps(dw, d[i]), _mm_cvtepi32_ps(s), p[i]);
        if (WITH_MINS)
            m[i] = _mm_fmadd_ps(_mm_mul_ps(mw, d[i]), _mm_cvtepi32_ps(sum[i]), m[i]);
    }
}

/* one row times n_tok vectors */
INLINE void tile(const uint8_t *row, size_t n_units, const struct act *act, const int n_tok,
                 float *y)
{
    static const uint8_t zeros[64];
    __m128 p[8], m[8], d[8];
    __m128i sum[8];
    const int8_t *q[8][4];
    const uint8_t *b[4];
    size_t u = 0, rest;

    for (int i = 0; i < n_tok; i++)
        p[i] = m[i] = _mm_setzero_ps();
    for (; u + 4 <= n_units; u += 4) {
        for (int k = 0; k < 4; k++)
            b[k] = row + (u + (size_t)k) * BLOCK_BYTES;
        for (int o = 0; o < 4 * BLOCK_BYTES; o += 64) /* goes on into the row that follows */
            _mm_prefetch((const char *)b[0] + PREFETCH_AHEAD + o, _MM_HINT_T0);
        for (int i = 0; i < n_tok; i++) {
            for (int k = 0; k < 4; k++)
                q[i][k] = act[i].q + 32 * (u + (size_t)k);
            d[i] = _mm_loadu_ps(act[i].d + u);
            if (SHIFT || WITH_MINS)
                sum[i] = load128((const int32_t *)act[i].sum + u);
        }
        four_units(b, q, d, sum, n_tok, p, m);
    }
    rest = n_units - u;
    if (rest) {
        for (size_t k = 0; k < 4; k++)
            b[k] = k < rest ? row + (u + k) * BLOCK_BYTES : zeros;
        for (int i = 0; i < n_tok; i++) {
            float di[4] = {0};
            int32_t si[4] = {0};

            for (size_t k = 0; k < 4; k++)
                q[i][k] = k < rest ? act[i].q + 32 * (u + k) : (const int8_t *)zeros;
            for (size_t k = 0; k < rest; k++) {
                di[k] = act[i].d[u + k];
                si[k] = ((const int32_t *)act[i].sum)[u + k];
            }
            d[i] = _mm_loadu_ps(di);
            sum[i] = load128(si);
        }
        four_units(b, q, d, sum, n_tok, p, m);
    }
    for (int i = 0; i < n_tok; i++) {
        float v = fold_lanes(p[i]);

        if (WITH_MINS)
            v += fold_lanes(m[i]);
        y[i] = f32_canon(v + 0.0f);
    }
}

static void job_a32(const struct dot_job *job)
{
    const size_t n_units = job->n_cols / 32;

    for (size_t i0 = 0; i0 < job->n_tok; i0 += TOKENS_CACHED) {
        size_t i1 = i0 + TOKENS_CACHED < job->n_tok ? i0 + TOKENS_CACHED : job->n_tok;

        for (size_t r = 0; r < job->n_rows; r++) {
            const uint8_t *row = job->w + r * job->row_bytes;

            for (size_t i = i0; i < i1;) {
                size_t real = i1 - i, together = tokens_together(real);
                struct act act[8];
                float y[8];

                real = real < together ? real : together;
                for (size_t k = 0; k < together; k++)
                    act[k] = act_parts(ACT_A32, job_act(job, i + (k < real ? k : real - 1)),
                                       job->n_cols);
                if (together == 8)
                    tile(row, n_units, act, 8, y);
                else if (together == 4)
                    tile(row, n_units, act, 4, y);
                else if (together == 2)
                    tile(row, n_units, act, 2, y);
                else
                    tile(row, n_units, act, 1, y);
                for (size_t k = 0; k < real; k++)
                    job->y[(i + k) * job->ldy + r] = y[k];
                i += real;
            }
        }
    }
}
