/* The worked example of the specification with the published constants; tokens that cut. */
#include "coordinator/model/ngram.h"
#include "tests/test.h"

#define N 16

static struct model_ngram published(void)
{
    static const uint32_t above[N] = {3, 23, 33, 47, 59, 63, 69, 77, 81, 93, 107, 147, 153, 159, 161, 171};
    struct model_ngram g = {.size = 3, .per_gram = 8, .heads = N, .eos = 248044,
                            .factor = {23703573157769, 20109073645365, 8052911324071}};
    uint64_t sum = 0;

    for (int i = 0; i < N; i++) {
        g.rows[i] = 20000000 + above[i];
        g.first[i] = sum;
        sum += g.rows[i];
    }
    CHECK(sum == 320001446);
    return g;
}

int main(void)
{
    static const uint32_t first[N] = {16121432, 28938500, 59087997, 73487090, 81148277, 104500129, 120276032, 149373875,
                                      176283436, 184305849, 216528839, 231080079, 257961536, 266068568, 289043455,
                                      305959965};
    static const uint32_t third[N] = {14605717, 24410875, 49313567, 72177428, 86060820, 104022010, 130963819, 146886202,
                                      161523077, 195939126, 219424565, 220811782, 248020141, 275228530, 284297999,
                                      309645223};
    struct model_ngram g = published();
    uint32_t ids[8] = {1, 2, 3}, row[N], cut[N];

    ngram_rows(&g, ids, 0, row);
    CHECK(!memcmp(row, first, sizeof row));
    ngram_rows(&g, ids, 2, row);
    CHECK(!memcmp(row, third, sizeof row));

    memcpy(ids, (uint32_t[]){7, 9, 248044, 1}, 16); /* behind an end, as at the beginning */
    ngram_rows(&g, ids, 3, cut);
    CHECK(!memcmp(cut, first, sizeof cut));
    memcpy(ids, (uint32_t[]){9, 248044}, 8); /* an end cuts not itself off */
    ngram_rows(&g, ids, 1, row);
    memcpy(ids, (uint32_t[]){8, 248044}, 8);
    ngram_rows(&g, ids, 1, cut);
    CHECK(memcmp(row, cut, sizeof row));
    memcpy(ids, (uint32_t[]){5, 248044, 6, 1}, 16); /* one further back cuts the longer n-grams alone */
    ngram_rows(&g, ids, 3, row);
    memcpy(ids, (uint32_t[]){4, 248044, 6, 1}, 16);
    ngram_rows(&g, ids, 3, cut);
    CHECK(!memcmp(row, cut, sizeof row));
    return test_end();
}
