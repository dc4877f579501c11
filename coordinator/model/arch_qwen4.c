/* Reader of qwen4exp: qwen35moe's mixers and experts between streams that gates of low rank mix, attention that
 * selects blocks of positions, a table of hashed n-grams. What is computed with it:
 * coordinator/trunk/arch/qwen4exp.c. */
#include <stdio.h>
#include <string.h>

#include "coordinator/model/arch_qwen35.h"
#include "kernels/hyper/hyper.h"
#include "kernels/index/index.h"

enum { MAX_RANK = 1 << 16, MAX_HEADS = 1 << 12, MAX_HEAD_DIM = 1 << 12, MAX_TAPS = 16, MAX_ROW = 1 << 16 };

/* A layer of one kind of state has the other's: the draft block at the end is not run, for no reference defines it. */
static int read_draft_block(struct model *m, struct err *e)
{
    if (!m->n_nextn)
        return 0;
    m->n_layers -= m->n_nextn;
    m->n_nextn = 0;
    for (size_t i = 0; i < gguf_n_tensors(m->g); i++) {
        const char *name = gguf_tensor_at(m->g, i)->name.s;
        char begins[32];
        snprintf(begins, sizeof begins, "blk.%u.", m->n_layers);
        if (!strncmp(name, begins, strlen(begins)))
            model_ignore(m, "%s", name);
    }
    return model_warn(m, e, "%s: its draft block (blk.%u) is not used: nothing defines yet what it computes", m->path,
                      m->n_layers);
}

static int read_streams_key(struct model *m, struct err *e)
{
    return model_key_u32(m, "hyper_connection.count", 0, 1, HYPER_STREAMS, &m->streams.n, e) ||
                   model_key_u32(m, "hyper_connection.low_rank", 0, 1, MAX_RANK, &m->streams.rank, e)
               ? -EINVAL
               : 0;
}

static int read_index_keys(struct model *m, struct err *e)
{
    if (model_key_u32(m, "attention.indexer.head_count", 0, 1, MAX_HEADS, &m->index.heads, e) ||
        model_key_u32(m, "attention.indexer.key_length", 0, 2, MAX_HEAD_DIM, &m->index.size, e) ||
        model_key_u32(m, "attention.indexer.top_k", 0, 1, 1 << 20, &m->index.positions, e))
        return -EINVAL;
    return m->index.size < m->n_rot
               ? err_set(e, -EINVAL, "%s: %s.attention.indexer.key_length: %u (at least rope.dimension_count, %u)",
                         m->path, model_arch_name(m), m->index.size, m->n_rot)
               : 0;
}

/* ---- the n-gram table ---- */

static int read_ngram_keys(struct model *m, struct err *e)
{
    struct model_ngram *g = &m->ngram;
    uint64_t layer;

    if (model_key_u64s(m, "ple.layers", 1, m->n_layers - 1, &layer, e) ||
        model_key_u32(m, "ple.ngram_size", 0, 2, MODEL_NGRAM, &g->size, e) ||
        model_key_u32(m, "ple.heads_per_ngram", 0, 1, MODEL_NGRAM_HEADS / (g->size - 1), &g->per_gram, e) ||
        model_key_u32(m, "ple.conv_kernel", 0, 1, MAX_TAPS, &g->taps, e) ||
        model_key_u32(m, "ple.eos_token_id", 0, 0, INT32_MAX, &g->eos, e) ||
        model_key_u32(m, "embedding_length_per_layer_input", 0, 1, MAX_ROW, &g->row, e))
        return -EINVAL;
    g->layer = (uint32_t)layer;
    g->heads = (g->size - 1) * g->per_gram;
    if ((uint64_t)g->heads * g->row != m->n_embd)
        return err_set(e, -EINVAL, "%s: %s.embedding_length_per_layer_input: %u values of %u rows (%u together, as "
                                   "embedding_length)", m->path, model_arch_name(m), g->row, g->heads, m->n_embd);
    return model_key_u64s(m, "ple.layer_multipliers", g->size, UINT64_MAX, g->factor, e) ||
                   model_key_u64s(m, "ple.head_offsets", g->heads, UINT32_MAX, g->first, e) ||
                   model_key_u64s(m, "ple.head_vocab_sizes", g->heads, UINT32_MAX, g->rows, e)
               ? -EINVAL
               : 0;
}

static int read_ngram(struct model *m, struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor(m->g, "per_layer_token_embd.weight");
    struct model_ngram *g = &m->ngram;
    uint64_t d = m->n_embd, wide = d * m->streams.n, rows = t ? t->dims[1] : 1;
    uint32_t il = g->layer;

    for (uint32_t i = 0; t && i < g->heads; i++)
        if (!g->rows[i] || g->first[i] + g->rows[i] > rows)
            return err_set(e, -EINVAL, "%s: %s.ple.head_vocab_sizes: head %u has rows %llu to %llu of a table of %llu",
                           m->path, model_arch_name(m), i, (unsigned long long)g->first[i],
                           (unsigned long long)(g->first[i] + g->rows[i]), (unsigned long long)rows);
    if (rows > UINT32_MAX)
        return err_set(e, -EINVAL, "%s: byte %u: tensor 'per_layer_token_embd.weight': %llu rows are too many",
                       gguf_shard_path(m->g, t->shard), t->info_at, (unsigned long long)rows);
    if (model_tensor(m, MODEL_TABLES, 0, g->row, rows, &g->table, e, "per_layer_token_embd.weight") ||
        model_weight(m, MODEL_STREAMS, 0, d, wide, &g->key, e, "blk.%u.ple_key", il) ||
        model_weight(m, MODEL_STREAMS, 0, d, d, &g->value, e, "blk.%u.ple_value", il) ||
        model_tensor(m, MODEL_NORM, 0, wide, 1, &g->norm_key, e, "blk.%u.ple_norm_key.weight", il) ||
        model_tensor(m, MODEL_NORM, 0, wide, 1, &g->norm_query, e, "blk.%u.ple_norm_query.weight", il) ||
        model_tensor(m, MODEL_NORM, 0, wide, 1, &g->norm_conv, e, "blk.%u.ple_norm_conv.weight", il) ||
        model_values(m, MODEL_STREAMS, (const uint64_t[4]){g->taps, wide, 1, 1}, &g->conv, e,
                     "blk.%u.ple_conv1d.weight", il))
        return -EINVAL;
    m->tensor[g->table].n_dims = 2; /* rows to look up, even one */
    m->tensor[g->table].by_rows = 1;
    return 0;
}

/* ---- layers ---- */

/* stem: "blk.3.hc_attn", or "output_hc", which injects nothing */
static int read_streams(struct model *m, struct model_streams *s, const char *stem, int inject, struct err *e)
{
    uint64_t n = m->streams.n, wide = n * m->n_embd, rank = m->streams.rank;
    char norm[64];
    const struct gguf_tensor *t;

    snprintf(norm, sizeof norm, "%s_norm.weight", stem);
    t = gguf_tensor(m->g, norm);
    /* the same values in the same order, seen as one vector or as one a stream */
    if (t && t->dims[1] == n && n > 1
            ? model_values(m, MODEL_STREAMS, (const uint64_t[4]){m->n_embd, n, 1, 1}, &s->norm, e, "%s", norm)
            : model_tensor(m, MODEL_STREAMS, 0, wide, 1, &s->norm, e, "%s", norm))
        return -EINVAL;
    s->inject.w = MODEL_NONE;
    return model_weight(m, MODEL_STREAMS, 0, wide, rank, &s->down, e, "%s_down", stem) ||
                   model_weight(m, MODEL_STREAMS, 0, rank, wide, &s->up, e, "%s_up", stem) ||
                   (inject && model_weight(m, MODEL_STREAMS, 0, wide, n, &s->inject, e, "%s_inject", stem))
               ? -EINVAL
               : 0;
}

/* Without a pool's size the layer attends to every position, though the file may have the tensors. Returns whether
 * it has (1), or -EINVAL. */
static int read_index(struct model *m, struct model_layer *l, uint32_t il, struct err *e)
{
    static const char *const parts[] = {"q_proj", "k_proj", "q_norm", "k_norm"};
    uint64_t d = m->n_embd, size = m->index.size;
    struct model_index *x = &l->index;
    int there = model_has(m, "blk.%u.indexer.q_proj.weight", il);

    if (model_key_u32_of(m, "attention.compress_ratios", 1, il, 0, POOL_MEMBERS, &x->pool, e))
        return -EINVAL;
    if (!x->pool) {
        for (int i = 0; i < 4; i++)
            model_ignore(m, "blk.%u.indexer.%s.weight", il, parts[i]);
        return there;
    }
    if (m->index.positions < x->pool)
        return err_set(e, -EINVAL, "%s: %s.attention.indexer.top_k: %u positions (at least a block of %u)", m->path,
                       model_arch_name(m), m->index.positions, x->pool);
    return model_weight(m, MODEL_ATTENTION, 0, d, m->index.heads * size, &x->q, e, "blk.%u.indexer.q_proj", il) ||
                   model_weight(m, MODEL_ATTENTION, 0, d, size, &x->k, e, "blk.%u.indexer.k_proj", il) ||
                   model_tensor(m, MODEL_NORM, 0, size, 1, &x->q_norm, e, "blk.%u.indexer.q_norm.weight", il) ||
                   model_tensor(m, MODEL_NORM, 0, size, 1, &x->k_norm, e, "blk.%u.indexer.k_norm.weight", il)
               ? -EINVAL
               : 0;
}

static int read_layer(struct model *m, uint32_t il, uint32_t interval, uint32_t *dense, struct err *e)
{
    struct model_layer *l = &m->layer[il];
    char stem[32];
    int rc = 0;

    if (qwen35_read_layer(m, il, interval, e))
        return -EINVAL;
    for (int part = 0; part < 2; part++) {
        snprintf(stem, sizeof stem, "blk.%u.hc_%s", il, part ? "ffn" : "attn");
        if (read_streams(m, &l->streams[part], stem, 1, e))
            return -EINVAL;
    }
    if (l->mixer == MIX_ATTENTION)
        rc = read_index(m, l, il, e);
    *dense += rc > 0;
    return rc < 0 ? rc : 0;
}

int model_read_qwen4exp(struct model *m, struct err *e)
{
    uint32_t interval, dense = 0;

    if (qwen35_read_sizes(m, e) || read_draft_block(m, e) || read_streams_key(m, e) || read_index_keys(m, e) ||
        read_ngram_keys(m, e) || qwen35_read_tables(m, &interval, e))
        return -EINVAL;
    m->delta.gate_sigmoid = 1;
    for (uint32_t il = 0; il < m->n_layers; il++)
        if (read_layer(m, il, interval, &dense, e))
            return -EINVAL;
    if (dense && model_warn(m, e, "%s: %u layer%s with an index attend%s to every position, as "
                                  "attention.compress_ratios in the file says (0)", m->path, dense,
                            dense > 1 ? "s" : "", dense > 1 ? "" : "s"))
        return -EINVAL;
    return read_streams(m, &m->output_streams, "output_hc", 0, e) || read_ngram(m, e) ? -EINVAL : 0;
}
