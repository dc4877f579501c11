/* Records are checked by whoever takes them: a number of another process becomes an index only after
 * that. */
#include "shm/steps.h"

void step_publish(const struct geometry *g, struct steps *s, const struct step_record *r,
                  const struct step_token *token, const uint32_t *out)
{
    words_store(steps_tokens(s), token, r->n_tokens * sizeof *token);
    words_store(steps_out(g, s), out, r->n_out * sizeof *out);
    words_store(&s->record, r, sizeof *r);
    atomic_store_explicit(&s->word, r->seq, memory_order_release);
}

void step_put_rows(const struct geometry *g, struct steps *s, const uint8_t *rows, uint32_t n)
{
    words_store(steps_rows(g, s), rows, (size_t)n * g->token_bytes);
}
void step_take_rows(const struct geometry *g, struct steps *s, uint8_t *rows, uint32_t n)
{
    words_load(rows, steps_rows(g, s), (size_t)n * g->token_bytes);
}

static int check(const struct geometry *g, const struct step_record *r, const struct step_token *token,
                 const uint32_t *out, struct err *e)
{
    uint32_t ids = r->pass < STEP_SAVE ? g->n_vocab : g->n_saved;

    for (uint32_t i = 0; i < r->n_tokens; i++)
        if (token[i].id >= ids || token[i].pos >= g->n_ctx || token[i].seq >= g->n_seqs)
            return err_set(e, -EPROTO, "step %llu: token %u: id %u, position %u, sequence %u",
                           (unsigned long long)r->seq, i, token[i].id, token[i].pos, token[i].seq);
    for (uint32_t i = 0; i < r->n_out; i++)
        if (out[i] >= r->n_tokens || (i && out[i] <= out[i - 1]))
            return err_set(e, -EPROTO, "step %llu: row %u is of token %u", (unsigned long long)r->seq, i,
                           out[i]);
    return 0;
}

int step_take(const struct geometry *g, struct steps *s, uint64_t after, struct step_record *r,
              struct step_token *token, uint32_t *out, struct err *e)
{
    uint64_t seq = atomic_load_explicit(&s->word, memory_order_acquire);
    int rc;

    if (seq <= after)
        return 0;
    words_load(r, &s->record, sizeof *r);
    if (r->seq != seq || !r->n_tokens || r->n_tokens > g->step_tokens || r->n_out > g->step_out ||
        r->pass >= STEP_PASSES || (r->pass >= STEP_SAVE && (r->n_tokens > 1 || r->n_out)))
        return err_set(e, -EPROTO, "step %llu says: step %llu, pass %u, %u tokens, %u rows",
                       (unsigned long long)seq, (unsigned long long)r->seq, r->pass, r->n_tokens, r->n_out);
    words_load(token, steps_tokens(s), r->n_tokens * sizeof *token);
    words_load(out, steps_out(g, s), r->n_out * sizeof *out);
    rc = check(g, r, token, out, e);
    return rc ? rc : 1;
}
