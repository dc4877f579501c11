/* The definition, and the choice of a form. */
#include "kernels/read/read.h"

#include <string.h>

#include "kernels/cpu.h"

uint64_t read_words_ref(const void *p, size_t n)
{
    uint64_t x = 0, v;

    for (size_t i = 0; i + 8 <= n; i += 8) {
        memcpy(&v, (const char *)p + i, 8);
        x ^= v;
    }
    return x;
}

uint64_t read_words(const void *p, size_t n)
{
    return cpu_level() >= CPU_AVX2 ? read_words_avx2(p, n) : read_words_ref(p, n);
}
