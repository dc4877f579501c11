/* The table of types: ggml's sizes, what is built, what is refused. */
#include "kernels/type/type.h"
#include "tests/test.h"
#include <stddef.h>

int main(void)
{
    static const uint32_t removed[] = {4, 5, 31, 32, 33, 36, 37, 38, 43, 1000, UINT32_MAX};
    uint64_t bytes = 7;
    int known = 0;

    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++)
        CHECK(!type_info(removed[i]), "id %u must be unknown", removed[i]);
    for (uint32_t id = 0; id < 64; id++) {
        const struct type_info *t = type_info(id);

        if (!t)
            continue;
        known++;
        CHECK(t->block_values && t->block_bytes, "%s has no size", t->name);
        if (t->built)
            CHECK((t->act == ACT_A256) == (t->block_values == 256) &&
                      (t->act == ACT_F32) == (t->block_values == 1),
                  "%s: rule 9", t->name);
    }
    CHECK_EQ(known, 35);
    CHECK_STR(type_info(W_Q4_K)->name, "Q4_K");
    CHECK_EQ(type_info(W_NVFP4)->block_values, 64);
    CHECK(!type_info(9)->built && !type_info(28)->built, "named only");
    CHECK_EQ(type_row_bytes(W_Q6_K, 4096, &bytes), 0);
    CHECK_EQ(bytes, 3360);
    CHECK_EQ(type_row_bytes(W_Q6_K, 4095, &bytes), -1);
    CHECK_EQ(type_row_bytes(5, 32, &bytes), -1);
    CHECK_EQ(type_row_bytes(W_F32, UINT64_MAX / 2, &bytes), -1);
    return test_end();
}
