/* Integers alone, unsigned and with wrap-around. (spec: qwen4exp, "Hashed n-gram embedding") */
#include "coordinator/model/ngram.h"

void ngram_rows(const struct model_ngram *g, const uint32_t *ids, uint32_t at, uint32_t *row)
{
    uint64_t x = ids[at] * g->factor[0];
    int cut = 0;

    for (uint32_t n = 1; n < g->size; n++) {
        uint32_t before = at >= n ? ids[at - n] : g->eos;
        cut |= before == g->eos;
        x ^= (cut ? g->eos : before) * g->factor[n];
        for (uint32_t k = 0; k < g->per_gram; k++) {
            uint32_t head = (n - 1) * g->per_gram + k;
            row[head] = (uint32_t)(x % g->rows[head] + g->first[head]);
        }
    }
}
