/* How a job is cut: rows to panels, vectors to blocks and tiles; what is fetched ahead. Included
 * after vec_avx512.h or vec_avx2.h. */

/* vectors for which a unit's values are opened once; their float sums lie on the stack, in the
 * second cache level */
enum { BLOCK_VECTORS = 256 };

/* where the vectors of a tile lie; missing ones are the last one again (rule 16) */
struct tile {
    const uint8_t *at[TILE];
};
INLINE struct tile tile_open(const struct dot_job *job, size_t i, size_t n)
{
    struct tile t;

    for (size_t k = 0; k < TILE; k++)
        t.at[k] = job_act(job, i + (k < n ? k : n - 1));
    return t;
}

/* missing rows are the last one again */
INLINE struct rows rows_open(const struct dot_job *job, size_t r)
{
    struct rows x;

    for (size_t k = 0; k < ROWS; k++) {
        size_t row = r + k < job->n_rows ? r + k : job->n_rows - 1;
        x.at[k] = job->w + row * job->row_bytes;
    }
    return x;
}
INLINE struct rows rows_plus(const struct rows *x, size_t bytes)
{
    struct rows y;

    for (size_t k = 0; k < ROWS; k++)
        y.at[k] = x->at[k] + bytes;
    return y;
}

/* Bytes of row k towards the second cache level: while a tile is computed, so that the memory works
 * meanwhile (sixteen rows are too many streams for the processor's own prefetcher). */
INLINE void row_fetch(const struct rows *x, size_t k, size_t bytes)
{
    for (size_t o = 0; o < bytes; o += 64)
        _mm_prefetch((const char *)x->at[k] + o, _MM_HINT_T1);
    _mm_prefetch((const char *)x->at[k] + bytes - 1, _MM_HINT_T1);
}
/* Bytes from.. to of a tile's vectors towards the first one, in n portions; this is portion k. */
INLINE void tile_fetch(const struct tile *t, size_t from, size_t to, size_t k, size_t n)
{
    for (size_t o = from + 64 * k; o < to; o += 64 * n)
        for (size_t i = 0; i < TILE; i++)
            _mm_prefetch((const char *)t->at[i] + o, _MM_HINT_T0);
}

/* bits of every byte: (v >> n) & mask, and (v << n) & mask */
INLINE vec bits_right(vec v, int n, int mask)
{
    return v_and(v_right(v, n), v_set8(mask));
}
INLINE vec bits_left(vec v, int n, int mask)
{
    return v_and(v_left(v, n), v_set8(mask));
}
