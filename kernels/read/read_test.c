/* The measuring form reads every byte. */
#include "kernels/read/read.h"

#include <stdlib.h>

#include "kernels/cpu.h"
#include "kernels/dot/rows.h"
#include "tests/test.h"

int main(void)
{
    size_t sizes[] = {0, 256, 512, 768, 4096, 65536 + 256};
    uint8_t *p = malloc(1 << 17);
    struct rng g = {3};

    for (size_t i = 0; p && i < 1 << 17; i++)
        p[i] = (uint8_t)rng_u32(&g);
    for (size_t i = 0; p && cpu_level() >= CPU_AVX2 && i < sizeof sizes / sizeof *sizes; i++)
        CHECK(read_words_avx2(p + i, sizes[i]) == read_words_ref(p + i, sizes[i]), "%zu bytes", sizes[i]);
    CHECK(p && read_words(p, 256) == read_words_ref(p, 256));
    free(p);
    return test_end();
}
