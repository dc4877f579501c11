/* The AVX2 form of the 32-value types (ARITHMETIC.md rules 10 and 12), included by a type's file
 * after it has defined
 *
 *   enum { BLOCK_BYTES, SHIFT, WITH_MINS, WITH_SIGN };
 *   __m256i bytes(const uint8_t *block, __m256i *sign)             the 32 values
 *   __m128 factors(const uint8_t *const block[4])                  D of four blocks
 *   __m128 min_factors(const uint8_t *const block[4])              WITH_MINS: m of four blocks
 *
 * Four units of one row go side by side: they are the four lanes. One vector meets four rows at a
 * time, so that memory has several streams to work on. Bytes are unsigned; signed
 * values come shifted by SHIFT or as magnitudes with the signs apart (WITH_SIGN). A row whose
 * units are no multiple of four is padded with a block of zeros and d = 0: S = T = 0, f = 0. */

/* q: 128 bytes of each of n_tok vectors, with their four d and sums */
INLINE void four_units(const uint8_t *const b[4], const int8_t *const q[], const __m128 *d,
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
            __m256i v = load256(q[i] + 32 * k);

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

/* the last one to three units of a vector, padded with zeros */
struct tail {
    int8_t q[128];
    __m128 d;
    __m128i sum;
};
INLINE void open_tail(const struct act *act, size_t u, size_t rest, struct tail *x)
{
    float d[4] = {0};
    int32_t sum[4] = {0};

    memset(x->q, 0, sizeof x->q);
    memcpy(x->q, act->q + 32 * u, 32 * rest);
    memcpy(d, act->d + u, 4 * rest);
    memcpy(sum, (const int32_t *)act->sum + u, 4 * rest);
    x->d = _mm_loadu_ps(d);
    x->sum = load128(sum);
}

/* n_rows rows times n_tok vectors, one of the two numbers is 1. next: how far the rows that are
 * fetched are, for one row anything: what follows it in memory. */
INLINE void tile(const uint8_t *const *row, const int n_rows, size_t next, size_t n_units,
                 const struct act *act, const int n_tok, float *y)
{
    static const uint8_t zeros[64];
    __m128 p[8], m[8], d[8];
    __m128i sum[8];
    const int8_t *q[8];
    const uint8_t *b[4];
    size_t u = 0;

    for (int i = 0; i < n_rows * n_tok; i++)
        p[i] = m[i] = _mm_setzero_ps();
    for (; u + 4 <= n_units; u += 4) {
        for (int i = 0; i < n_tok; i++) {
            q[i] = act[i].q + 32 * u;
            d[i] = _mm_loadu_ps(act[i].d + u);
            sum[i] = load128((const int32_t *)act[i].sum + u);
        }
        for (int r = 0; r < n_rows; r++) {
            for (size_t k = 0; k < 4; k++)
                b[k] = row[r] + (u + k) * BLOCK_BYTES;
            if (next)
                for (int o = 0; o < 4 * BLOCK_BYTES; o += 64)
                    _mm_prefetch((const char *)b[0] + next + o, _MM_HINT_T1);
            four_units(b, q, d, sum, n_tok, p + r, m + r);
        }
    }
    if (u < n_units) {
        struct tail x[8];

        for (int i = 0; i < n_tok; i++) {
            open_tail(&act[i], u, n_units - u, &x[i]);
            q[i] = x[i].q;
            d[i] = x[i].d;
            sum[i] = x[i].sum;
        }
        for (int r = 0; r < n_rows; r++) {
            for (size_t k = 0; k < 4; k++)
                b[k] = u + k < n_units ? row[r] + (u + k) * BLOCK_BYTES : zeros;
            four_units(b, q, d, sum, n_tok, p + r, m + r);
        }
    }
    for (int i = 0; i < n_rows * n_tok; i++) {
        float v = fold_lanes(p[i]);

        if (WITH_MINS)
            v += fold_lanes(m[i]);
        y[i] = f32_canon(v + 0.0f);
    }
}

/* all rows times one vector, four at a time */
INLINE void job_rows(const struct dot_job *job, size_t i)
{
    struct act act = act_parts(ACT_A32, job_act(job, i), job->n_cols);
    size_t n_units = job->n_cols / 32, r = 0;
    float *y = job->y + i * job->ldy;

    for (; r + 4 <= job->n_rows; r += 4) {
        const uint8_t *w = job->w + r * job->row_bytes, *row[4];
        size_t next = fetch_distance(4 * job->row_bytes);

        for (size_t k = 0; k < 4; k++)
            row[k] = w + k * job->row_bytes;
        tile(row, 4, next, n_units, &act, 1, y + r);
    }
    for (; r < job->n_rows; r++) {
        const uint8_t *row = job->w + r * job->row_bytes;
        tile(&row, 1, 0, n_units, &act, 1, y + r);
    }
}

/* row r times up to eight vectors from i on; returns how many */
INLINE size_t some_vectors(const struct dot_job *job, size_t r, size_t i, size_t left, size_t next)
{
    size_t together = tokens_together(left), real = left < together ? left : together;
    const uint8_t *row = job->w + r * job->row_bytes;
    const size_t n_units = job->n_cols / 32;
    struct act act[8];
    float y[8];

    for (size_t k = 0; k < together; k++) /* missing vectors: the last one again */
        act[k] = act_parts(ACT_A32, job_act(job, i + (k < real ? k : real - 1)), job->n_cols);
    if (together == 8)
        tile(&row, 1, next, n_units, act, 8, y);
    else if (together == 4)
        tile(&row, 1, next, n_units, act, 4, y);
    else if (together == 2)
        tile(&row, 1, next, n_units, act, 2, y);
    else
        tile(&row, 1, next, n_units, act, 1, y);
    for (size_t k = 0; k < real; k++)
        job->y[(i + k) * job->ldy + r] = y[k];
    return real;
}

static void job_a32(const struct dot_job *job)
{
    for (size_t i0 = 0; i0 < job->n_tok; i0 += TOKENS_CACHED) {
        size_t i1 = i0 + TOKENS_CACHED < job->n_tok ? i0 + TOKENS_CACHED : job->n_tok;

        if (i1 - i0 == 1) {
            job_rows(job, i0);
            continue;
        }
        for (size_t r = 0; r < job->n_rows; r++)
            for (size_t i = i0; i < i1;)
                i += some_vectors(job, r, i, i1 - i, i == i0 ? PREFETCH_AHEAD : 0);
    }
}
