/* Any bytes as a .npy file: refused with one line, or an array all of whose values can be read and
 * whose file is as long as its shape says.
 * FUZZ: coordinator/npy/npy.c shm/err.c
 */
#include <stdlib.h>
#include <string.h>

#include "coordinator/npy/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err e = {0};
    struct npy a;
    volatile uint32_t sum = 0;

    if (npy_parse("file", data, n, &a, &e)) {
        if (!e.code || !e.msg[0] || strchr(e.msg, '\n') || a.data)
            abort();
        return 0;
    }
    if (e.code || a.n_dims > NPY_DIMS || a.data + a.n * a.width != data + n)
        abort();
    for (size_t i = 0; i < a.n; i++)
        sum += npy_at(&a, i);
    return 0;
}
