/* The AVX-512 form of the 32-value types (ARITHMETIC.md rules 10 and 12), included by a type's file
 * after it has defined
 *
 *   enum { BLOCK_BYTES, SHIFT, WITH_MINS };
 *   void values(const uint8_t *const block[4], __m512i *low, __m512i *high)
 *       four units, one in each part: values 0..15 and 16..31, unsigned, SHIFT added
 *   __m128 factors(const uint8_t *const block[4])                  D of four blocks
 *   __m128 min_factors(const uint8_t *const block[4])              WITH_MINS: m of four blocks
 *
 * Four units of a row are the four lanes, and the four parts of a register; its elements are four
 * rows (one vector) or four vectors (one row), so that one instruction does one step of sixteen
 * lanes. Padding as in a32_avx2_form.h. */

/* four units of one vector */
struct quad {
    __m512i low, high; /* values 0..15 and 16..31, a unit in each part */
    __m128 d;
    __m128i sum;
};

static const uint8_t zero_block[64];

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
        x.sum = load128((const int32_t *)a->sum + u);
    } else {
        memcpy(q, from, 32 * rest);
        memcpy(d, a->d + u, 4 * rest);
        memcpy(sum, (const int32_t *)a->sum + u, 4 * rest);
        from = q;
        x.d = _mm_loadu_ps(d);
        x.sum = load128(sum);
    }
    first = load512(from);
    second = load512(from + 64);
    x.low = _mm512_shuffle_i32x4(first, second, 0x88);
    x.high = _mm512_shuffle_i32x4(first, second, 0xDD);
    return x;
}

INLINE void open_blocks(const uint8_t *row, size_t u, size_t rest, const uint8_t *b[4])
{
    for (size_t k = 0; k < 4; k++)
        b[k] = k < rest ? row + (u + k) * BLOCK_BYTES : zero_block;
}

INLINE __m512i products(__m512i low, __m512i high, const struct quad *x)
{
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), low, x->low), high,
                               x->high);
}
INLINE __m512 join(const __m128 v[4])
{
    return _mm512_insertf32x4(
        _mm512_insertf32x4(_mm512_insertf32x4(_mm512_castps128_ps512(v[0]), v[1], 1), v[2], 2), v[3],
        3);
}
INLINE __m512i sums_to_parts(__m128i v)
{
    return _mm512_castps_si512(to_parts(_mm_castsi128_ps(v)));
}

/* S = products - SHIFT * sum, then one step of the chains */
INLINE void step(__m512i s, __m512i sum, __m512 d, __m512 dw, __m512 mw, __m512 *p, __m512 *m)
{
    if (SHIFT == 128)
        s = _mm512_sub_epi32(s, _mm512_slli_epi32(sum, 7));
    else if (SHIFT)
        s = _mm512_sub_epi32(s, _mm512_mullo_epi32(sum, _mm512_set1_epi32(SHIFT)));
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
INLINE __m128 tile_rows(const uint8_t *const row[4], size_t next, size_t n_units,
                        const struct act *act)
{
    __m512 p = _mm512_setzero_ps(), m = p, mw = p;

    for (size_t u = 0; u < n_units; u += 4) {
        size_t rest = n_units - u < 4 ? n_units - u : 4;
        struct quad x = open_quad(act, u, rest);
        __m512i acc[4];
        __m128 dw[4], mr[4];

#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) {
            const uint8_t *b[4];
            __m512i low, high;

            open_blocks(row[r], u, rest, b);
            if (next)
                for (int o = 0; o < 4 * BLOCK_BYTES; o += 64)
                    _mm_prefetch((const char *)b[0] + next + o, _MM_HINT_T1);
            values(b, &low, &high);
            acc[r] = products(low, high, &x);
            dw[r] = factors(b);
            if (WITH_MINS)
                mr[r] = min_factors(b);
        }
        if (WITH_MINS)
            mw = transpose4(join(mr));
        step(combine4(acc[0], acc[1], acc[2], acc[3]), sums_to_parts(x.sum), to_parts(x.d),
             transpose4(join(dw)), mw, &p, &m);
    }
    return finish4(WITH_MINS ? _mm_add_ps(fold_lane_parts(p), fold_lane_parts(m))
                             : fold_lane_parts(p));
}

/* one row times 4 * n_quads vectors */
INLINE void tile_vectors(const uint8_t *row, size_t n_units, const struct act *act,
                         const int n_quads, __m128 *y)
{
    __m512 p[2], m[2], mw = _mm512_setzero_ps();

    for (int k = 0; k < n_quads; k++)
        p[k] = m[k] = _mm512_setzero_ps();
    for (size_t u = 0; u < n_units; u += 4) {
        size_t rest = n_units - u < 4 ? n_units - u : 4;
        const uint8_t *b[4];
        __m512i low, high;
        __m512 dw;

        open_blocks(row, u, rest, b);
        for (int o = 0; o < 4 * BLOCK_BYTES; o += 64)
            _mm_prefetch((const char *)b[0] + PREFETCH_AHEAD + o, _MM_HINT_T0);
        values(b, &low, &high);
        dw = to_parts(factors(b));
        if (WITH_MINS)
            mw = to_parts(min_factors(b));
#pragma GCC unroll 2
        for (int k = 0; k < n_quads; k++) {
            __m512i acc[4];
            __m128 d[4], sum[4];

#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                struct quad x = open_quad(&act[4 * k + i], u, rest);

                acc[i] = products(low, high, &x);
                d[i] = x.d;
                sum[i] = _mm_castsi128_ps(x.sum);
            }
            step(combine4(acc[0], acc[1], acc[2], acc[3]),
                 _mm512_castps_si512(transpose4(join(sum))), transpose4(join(d)), dw, mw, &p[k],
                 &m[k]);
        }
    }
    for (int k = 0; k < n_quads; k++)
        y[k] = finish4(WITH_MINS ? _mm_add_ps(fold_lane_parts(p[k]), fold_lane_parts(m[k]))
                                 : fold_lane_parts(p[k]));
}

/* all rows times one vector */
INLINE void job_rows(const struct dot_job *job, size_t i)
{
    struct act act = act_parts(ACT_A32, job_act(job, i), job->n_cols);

    for (size_t r = 0; r < job->n_rows; r += 4) {
        size_t n = job->n_rows - r < 4 ? job->n_rows - r : 4;
        size_t next = r + 8 <= job->n_rows ? 4 * job->row_bytes : 0;
        const uint8_t *row[4];

        for (size_t k = 0; k < 4; k++) /* missing rows: the last one again, result dropped */
            row[k] = job->w + (r + (k < n ? k : n - 1)) * job->row_bytes;
        store_rows(job->y + i * job->ldy + r, tile_rows(row, next, job->n_cols / 32, &act), n);
    }
}

/* one row times vectors i..; returns how many, up to eight */
INLINE size_t some_vectors(const struct dot_job *job, size_t r, size_t i, size_t left)
{
    size_t together = left <= 4 ? 4 : 8, real = left < together ? left : together;
    const uint8_t *row = job->w + r * job->row_bytes;
    struct act act[8];
    __m128 y[2];
    float v[8];

    for (size_t k = 0; k < together; k++) /* missing vectors: the last one again */
        act[k] = act_parts(ACT_A32, job_act(job, i + (k < real ? k : real - 1)), job->n_cols);
    if (together == 4)
        tile_vectors(row, job->n_cols / 32, act, 1, y);
    else
        tile_vectors(row, job->n_cols / 32, act, 2, y);
    _mm_storeu_ps(v, y[0]);
    _mm_storeu_ps(v + 4, y[together / 8]);
    for (size_t k = 0; k < real; k++)
        job->y[(i + k) * job->ldy + r] = v[k];
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
                i += some_vectors(job, r, i, i1 - i);
    }
}
