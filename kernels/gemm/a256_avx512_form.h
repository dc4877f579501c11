/* The blocked product of a 256-value type with AVX-512 VNNI (ARITHMETIC.md rules 10 and 11), included
 * by a type's file after
 *
 *   enum { BLOCK_BYTES, SUB_BLOCK, WITH_MINS, VALUES_SHIFT };   VALUES_SHIFT: makes values unsigned
 *
 * and before its open_unit. gemm.h says how the work is cut. */
#include "kernels/gemm/panel_avx512.h"

enum { SUBS = 256 / SUB_BLOCK, PANELS = 4 };

/* one unit of sixteen rows; row r is element r of every register */
struct panel {
    _Alignas(64) uint8_t w[64][64]; /* values 4k.. of each row, VALUES_SHIFT added */
    int32_t scale[SUBS][16];
    int16_t mins[WITH_MINS ? SUBS / 2 : 0][32]; /* of two sub-blocks side by side */
    float d[16], dmin[16];
};

/* the blocks at b to a panel */
static void open_unit(const struct rows *b, struct panel *x);

INLINE void panel_values(struct panel *x, int k, __m512i v)
{
    _mm512_store_si512(x->w[k], v);
}
/* scales of four sub-blocks from b on, signed bytes of each element */
INLINE void panel_scales(struct panel *x, int b, __m512i s)
{
    for (int i = 0; i < 4; i++)
        _mm512_store_si512(x->scale[b + i],
                           _mm512_srai_epi32(_mm512_slli_epi32(s, (unsigned)(24 - 8 * i)), 24));
}
/* minima of four sub-blocks from b on, unsigned bytes of each element */
INLINE void panel_mins(struct panel *x, int b, __m512i s)
{
    const __m512i bytes = _mm512_set1_epi32(0x00FF00FF);
    __m512i even = _mm512_and_si512(s, bytes);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(s, 8), bytes);

    _mm512_store_si512(x->mins[b / 2], or512(_mm512_and_si512(even, _mm512_set1_epi32(0xFFFF)),
                                             _mm512_slli_epi32(odd, 16)));
    _mm512_store_si512(x->mins[b / 2 + 1],
                       or512(_mm512_srli_epi32(even, 16),
                             _mm512_and_si512(odd, _mm512_set1_epi32((int)0xFFFF0000))));
}

/* what a unit of a tile adds besides its bytes, made once for all panels */
struct extra {
    int32_t start[SUBS];    /* -VALUES_SHIFT * sum of q over the sub-block */
    int32_t pair[SUBS / 2]; /* two int16: the sums of q over two sub-blocks */
};

/* sum16: of one unit */
INLINE void open_extra(const uint8_t *sum16, struct extra *e)
{
    __m256i s = _mm256_loadu_si256((const __m256i *)sum16);

    if (SUB_BLOCK == 32)
        s = _mm256_madd_epi16(s, _mm256_set1_epi16(1)); /* int32 */
    if (VALUES_SHIFT && SUB_BLOCK == 32)
        _mm256_storeu_si256((__m256i *)e->start,
                            _mm256_mullo_epi32(s, _mm256_set1_epi32(-VALUES_SHIFT)));
    if (VALUES_SHIFT && SUB_BLOCK == 16)
        _mm512_storeu_si512(e->start, _mm512_mullo_epi32(_mm512_cvtepi16_epi32(s),
                                                         _mm512_set1_epi32(-VALUES_SHIFT)));
    if (WITH_MINS && SUB_BLOCK == 32)
        _mm_storeu_si128((__m128i *)e->pair, _mm256_cvtepi32_epi16(s));
    if (WITH_MINS && SUB_BLOCK == 16)
        _mm256_storeu_si256((__m256i *)e->pair, s);
}

/* the float sums of a panel and a tile, in the order of use */
struct sums {
    _Alignas(64) float p[TILE][16], m[WITH_MINS ? TILE : 0][16];
};

/* One unit: sixteen rows times n_tok vectors. at: the unit's offset in a vector, d_at: its factor's. */
INLINE void unit_tile(const struct panel *x, const struct tile *t, const struct extra *e, size_t at,
                      size_t d_at, const int n_tok, struct sums *sums)
{
    __m512i s[TILE];

    if (WITH_MINS) {
        for (int k = 0; k < n_tok; k++)
            s[k] = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int j = 0; j < SUBS / 2; j++) {
            __m512i w = _mm512_load_si512(x->mins[j]);

#pragma GCC unroll 8
            for (int k = 0; k < n_tok; k++)
                s[k] = _mm512_dpwssd_epi32(s[k], w, _mm512_set1_epi32(e[k].pair[j]));
        }
#pragma GCC unroll 8
        for (int k = 0; k < n_tok; k++) {
            __m512 g = _mm512_mul_ps(_mm512_load_ps(x->dmin), float1(t->at[k] + d_at));
            _mm512_store_ps(sums->m[k], _mm512_fmadd_ps(g, _mm512_cvtepi32_ps(s[k]),
                                                        _mm512_load_ps(sums->m[k])));
        }
    }
    for (int k = 0; k < n_tok; k++)
        s[k] = _mm512_setzero_si512();
#pragma GCC unroll 1
    for (int b = 0; b < SUBS; b++) {
        __m512i part[TILE];

        for (int k = 0; k < n_tok; k++)
            part[k] = VALUES_SHIFT ? _mm512_set1_epi32(e[k].start[b]) : _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int i = 0; i < SUB_BLOCK / 4; i++) {
            __m512i w = _mm512_load_si512(x->w[b * (SUB_BLOCK / 4) + i]);

#pragma GCC unroll 8
            for (int k = 0; k < n_tok; k++)
                part[k] = _mm512_dpbusd_epi32(
                    part[k], w, bytes4(t->at[k] + at + (size_t)(SUB_BLOCK * b + 4 * i)));
        }
#pragma GCC unroll 8
        for (int k = 0; k < n_tok; k++)
            s[k] = _mm512_add_epi32(
                s[k], _mm512_mullo_epi32(part[k], _mm512_load_si512(x->scale[b])));
    }
#pragma GCC unroll 8
    for (int k = 0; k < n_tok; k++) {
        __m512 f = _mm512_mul_ps(_mm512_load_ps(x->d), float1(t->at[k] + d_at));
        _mm512_store_ps(sums->p[k],
                        _mm512_fmadd_ps(f, _mm512_cvtepi32_ps(s[k]), _mm512_load_ps(sums->p[k])));
    }
}

/* functions of their own: the registers of a tile are all that the compiler has to think of */
static __attribute__((noinline)) void unit_tile8(const struct panel *x, const struct tile *t,
                                                 const struct extra *e, size_t at, size_t d_at,
                                                 struct sums *sums)
{
    unit_tile(x, t, e, at, d_at, 8, sums);
}
static __attribute__((noinline)) void unit_tile4(const struct panel *x, const struct tile *t,
                                                 const struct extra *e, size_t at, size_t d_at,
                                                 struct sums *sums)
{
    unit_tile(x, t, e, at, d_at, 4, sums);
}

/* Unit u of the vectors that fetch has: its bytes and sums, towards the first cache level, in
 * n_groups portions; this is portion g. */
INLINE void fetch_tile(const struct tile *t, size_t u, size_t sum_at, size_t g, size_t n_groups)
{
    for (size_t o = 64 * g; o < 256; o += 64 * n_groups)
        for (size_t k = 0; k < TILE; k++)
            _mm_prefetch((const char *)t->at[k] + 256 * u + o, _MM_HINT_T0);
    if (g == 0)
        for (size_t k = 0; k < TILE; k++)
            _mm_prefetch((const char *)t->at[k] + sum_at + 32 * u, _MM_HINT_T0);
}

/* n_groups panels of rows from r on, vectors i0.. i1 */
static void block(const struct dot_job *job, size_t r, size_t n_groups, size_t i0, size_t i1,
                  struct sums (*sums)[PANELS])
{
    const size_t n_units = job->n_cols / 256;
    const size_t d_at = act_d_at(job->n_cols), sum_at = act_sum_at(ACT_A256, job->n_cols);
    struct panel x[PANELS];
    struct rows rows[PANELS];

    for (size_t g = 0; g < n_groups; g++)
        rows[g] = rows_open(job, r + 16 * g);
    memset(sums, 0, (i1 - i0 + TILE - 1) / TILE * sizeof *sums);
    for (size_t u = 0; u < n_units; u++) {
        struct tile t, next = tile_open(job, i0, i1 - i0);

        for (size_t g = 0; g < n_groups; g++) {
            open_unit(&rows[g], &x[g]);
            if (u + 1 < n_units) {
                rows[g] = rows_plus(&rows[g], BLOCK_BYTES);
                rows_fetch(&rows[g], 0, BLOCK_BYTES);
            }
        }
        for (size_t i = i0; i < i1; i += TILE) {
            struct extra e[TILE];

            t = next;
            if (VALUES_SHIFT || WITH_MINS)
                for (int k = 0; k < TILE; k++)
                    open_extra(t.at[k] + sum_at + 32 * u, &e[k]);
            if (i + TILE < i1)
                next = tile_open(job, i + TILE, i1 - i - TILE);
            for (size_t g = 0; g < n_groups; g++) {
                fetch_tile(&next, u, sum_at, g, n_groups);
                (i1 - i > 4 ? unit_tile8 : unit_tile4)(&x[g], &t, e, 256 * u, d_at + 4 * u,
                                                       &sums[(i - i0) / TILE][g]);
            }
        }
    }
    for (size_t i = 0; i < i1 - i0; i++)
        for (size_t g = 0; g < n_groups; g++) {
            size_t first = r + 16 * g;
            const struct sums *sum = &sums[i / TILE][g];
            __m512 y = _mm512_load_ps(sum->p[i % TILE]);

            if (WITH_MINS)
                y = _mm512_sub_ps(y, _mm512_load_ps(sum->m[i % TILE]));
            finish_rows(job->y + (i0 + i) * job->ldy + first, y, job->n_rows - first);
        }
}

static void gemm_a256(const struct dot_job *job)
{
    struct sums sums[BLOCK_TOKENS / TILE][PANELS];

    for (size_t i0 = 0; i0 < job->n_tok; i0 += BLOCK_TOKENS) {
        size_t i1 = i0 + BLOCK_TOKENS < job->n_tok ? i0 + BLOCK_TOKENS : job->n_tok;

        for (size_t r = 0; r < job->n_rows; r += 16 * PANELS) {
            size_t panels = (job->n_rows - r + 15) / 16;

            block(job, r, panels < PANELS ? panels : PANELS, i0, i1, sums);
        }
    }
}
