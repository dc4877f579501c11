/* The AVX-512 form of the 32-value types (ARITHMETIC.md rules 10 and 12), included by a type's file
 * after <type>_avx2.h and the definition of
 *
 *   enum { VALUES_SHIFT };
 *   void values(const uint8_t *const block[4], __m512i *low, __m512i *high)
 *       four units, one in each part: values 0..15 and 16..31, unsigned, VALUES_SHIFT added
 *
 * Four units of a row are the four lanes, and the four parts of a register; its elements are four
 * rows (one vector) or four vectors (one row), so that one instruction does one step of sixteen
 * lanes. Padding as in a32_avx2_form.h. Many vectors: kernels/gemm. */

enum { ROWS = 4 };

/* four units of one vector */
struct quad {
    __m512i low, high; /* values 0..15 and 16..31, a unit in each part */
    __m128 d;
    __m128 sum; /* int32 */
};

/* units u.. of a vector, rest (1..4) of them real */
INLINE struct quad open_quad(const struct act *a, size_t u, size_t rest)
{
    int8_t q[128] = {0};
    float d[4] = {0};
    int32_t sum[4] = {0};
    const int8_t *from = a->q + 32 * u;
    struct quad x;
    __m512i first, second;

    if (rest == 4) {
        x.d = _mm_loadu_ps(a->d + u);
        x.sum = _mm_castsi128_ps(load128((const int32_t *)a->sum + u));
    } else {
        memcpy(q, from, 32 * rest);
        memcpy(d, a->d + u, 4 * rest);
        memcpy(sum, (const int32_t *)a->sum + u, 4 * rest);
        from = q;
        x.d = _mm_loadu_ps(d);
        x.sum = _mm_castsi128_ps(load128(sum));
    }
    first = load512(from);
    second = load512(from + 64);
    x.low = _mm512_shuffle_i32x4(first, second, 0x88);
    x.high = _mm512_shuffle_i32x4(first, second, 0xDD);
    return x;
}

INLINE void open_blocks(const uint8_t *row, size_t u, size_t rest, const uint8_t *b[4])
{
    static const uint8_t zeros[64];

    for (size_t k = 0; k < 4; k++)
        b[k] = k < rest ? row + (u + k) * BLOCK_BYTES : zeros;
}

/* units u.. of rows that come later */
INLINE void fetch(const uint8_t *b, size_t next)
{
    if (next)
        for (int o = 0; o < 4 * BLOCK_BYTES; o += 64)
            _mm_prefetch((const char *)b + next + o, _MM_HINT_T1);
}

INLINE __m512i products(__m512i low, __m512i high, const struct quad *x)
{
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), low, x->low), high,
                               x->high);
}

/* S = products - VALUES_SHIFT * sum, then one step of the chains */
INLINE void step(__m512i s, __m512 sum_bits, __m512 d, __m512 dw, __m512 mw, __m512 *p, __m512 *m)
{
    __m512i sum = _mm512_castps_si512(sum_bits);

    if (VALUES_SHIFT == 128)
        s = _mm512_sub_epi32(s, _mm512_slli_epi32(sum, 7));
    else if (VALUES_SHIFT)
        s = _mm512_sub_epi32(s, _mm512_mullo_epi32(sum, _mm512_set1_epi32(VALUES_SHIFT)));
    *p = _mm512_fmadd_ps(_mm512_mul_ps(dw, d), _mm512_cvtepi32_ps(s), *p);
    if (WITH_MINS)
        *m = _mm512_fmadd_ps(_mm512_mul_ps(mw, d), _mm512_cvtepi32_ps(sum), *m);
}

/* the lanes are the parts: (l0 + l2) + (l1 + l3) */
INLINE __m128 fold_lane_parts(__m512 v)
{
    __m256 s = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));

    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

/* four rows times one vector */
INLINE __m128 tile1(const uint8_t *const row[ROWS], size_t next, size_t n_units,
                    const struct act *act)
{
    __m512 p = _mm512_setzero_ps(), m = p, mw = p;

    for (size_t u = 0; u < n_units; u += 4) {
        size_t rest = n_units - u < 4 ? n_units - u : 4;
        struct quad x = open_quad(act, u, rest);
        __m512i acc[ROWS];
        __m128 dw[ROWS], mr[ROWS];

#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {
            const uint8_t *b[4];
            __m512i low, high;

            open_blocks(row[r], u, rest, b);
            fetch(b[0], next);
            values(b, &low, &high);
            acc[r] = products(low, high, &x);
            dw[r] = factors(b);
            mr[r] = WITH_MINS ? min_factors(b) : dw[r];
        }
        if (WITH_MINS)
            mw = transpose4(join_parts(mr));
        step(combine4(acc[0], acc[1], acc[2], acc[3]), to_parts(x.sum), to_parts(x.d),
             transpose4(join_parts(dw)), mw, &p, &m);
    }
    return finish4(WITH_MINS ? _mm_add_ps(fold_lane_parts(p), fold_lane_parts(m))
                             : fold_lane_parts(p));
}

/* four rows times four vectors; y: the vectors of a row */
INLINE void tile4(const uint8_t *const row[ROWS], size_t next, size_t n_units,
                  const struct act *act, __m128 y[ROWS])
{
    __m512 p[ROWS], m[ROWS], mw = _mm512_setzero_ps();

    for (int r = 0; r < ROWS; r++)
        p[r] = m[r] = _mm512_setzero_ps();
    for (size_t u = 0; u < n_units; u += 4) {
        size_t rest = n_units - u < 4 ? n_units - u : 4;
        struct quad x[4];
        __m128 d[4], sum[4];
        __m512 da, sums;

#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            x[i] = open_quad(&act[i], u, rest);
            d[i] = x[i].d;
            sum[i] = x[i].sum;
        }
        da = transpose4(join_parts(d));
        sums = transpose4(join_parts(sum));
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {
            const uint8_t *b[4];
            __m512i low, high, s;

            open_blocks(row[r], u, rest, b);
            fetch(b[0], next);
            values(b, &low, &high);
            s = combine4(products(low, high, &x[0]), products(low, high, &x[1]),
                         products(low, high, &x[2]), products(low, high, &x[3]));
            if (WITH_MINS)
                mw = to_parts(min_factors(b));
            step(s, sums, da, to_parts(factors(b)), mw, &p[r], &m[r]);
        }
    }
    for (int r = 0; r < ROWS; r++)
        y[r] = finish4(WITH_MINS ? _mm_add_ps(fold_lane_parts(p[r]), fold_lane_parts(m[r]))
                                 : fold_lane_parts(p[r]));
}

/* rows r.. times one vector, or up to four from i on; returns how many */
INLINE size_t some_vectors(const struct dot_job *job, size_t r, size_t i, size_t left, int first)
{
    size_t n = job->n_rows - r < ROWS ? job->n_rows - r : ROWS, real = left < 4 ? left : 4;
    size_t next = first ? fetch_distance(ROWS * job->row_bytes) : 0;
    const size_t n_units = job->n_cols / 32;
    const uint8_t *row[ROWS];
    struct act act[4];
    __m128 y[ROWS];

    for (size_t k = 0; k < ROWS; k++) /* missing rows: the last one again, result dropped */
        row[k] = job->w + (r + (k < n ? k : n - 1)) * job->row_bytes;
    for (size_t k = 0; k < 4; k++) /* missing vectors likewise */
        act[k] = act_parts(ACT_A32, job_act(job, i + (k < real ? k : real - 1)), job->n_cols);
    if (real == 1) {
        store_rows(job->y + i * job->ldy + r, tile1(row, next, n_units, act), n);
        return 1;
    }
    tile4(row, next, n_units, act, y);
    _MM_TRANSPOSE4_PS(y[0], y[1], y[2], y[3]); /* now the rows of a vector */
    for (size_t k = 0; k < real; k++)
        store_rows(job->y + (i + k) * job->ldy + r, y[k], n);
    return real;
}

static void job_a32(const struct dot_job *job)
{
    for (size_t i0 = 0; i0 < job->n_tok; i0 += TOKENS_CACHED) {
        size_t i1 = i0 + TOKENS_CACHED < job->n_tok ? i0 + TOKENS_CACHED : job->n_tok;

        for (size_t r = 0; r < job->n_rows; r += ROWS)
            for (size_t i = i0; i < i1;)
                i += some_vectors(job, r, i, i1 - i, i == i0);
    }
}
