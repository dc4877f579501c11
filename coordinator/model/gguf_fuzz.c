/* Any bytes as a GGUF file: refused with one line or read, and then everything in it can be looked
 * at. Seeds: coordinator/model/gguf_seeds DIR.
 * FUZZ: coordinator/model/gguf.c coordinator/model/gguf_front.c coordinator/model/gguf_split.c
 * FUZZ: coordinator/pack/pack.c -lxxhash
 * FUZZ: coordinator/model/utf8.c kernels/type/type.c shm/err.c
 */
#include <stdlib.h>
#include <string.h>

#include "coordinator/model/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void look_at_array(const struct gguf *g, const char *key)
{
    struct gguf_array a;
    volatile size_t sum = 0;
    uint64_t u;
    int64_t i;
    float f;
    int b;

    if (gguf_array(g, key, &a))
        return;
    for (size_t j = 0; j < a.n; j++) {
        struct gguf_str s = gguf_array_str(&a, j);

        if (a.kind == GGUF_STRING) {
            sum += strlen(s.s);
            if (s.s[s.n])
                abort(); /* must be NUL-terminated */
            continue;
        }
        gguf_array_u64(&a, j, &u);
        gguf_array_i64(&a, j, &i);
        gguf_array_f32(&a, j, &f);
        gguf_array_bool(&a, j, &b);
    }
}

static void look_at(const struct gguf *g, size_t n)
{
    for (size_t i = 0; i < gguf_n_keys(g); i++) {
        struct gguf_str k = gguf_key_at(g, i), s;
        struct err e = {0};
        uint64_t u;
        float f;
        int b;

        if (strlen(k.s) != k.n || gguf_kind(g, k.s) < 0)
            abort(); /* keys are ASCII without NUL, and each is found */
        gguf_u64(g, k.s, &u);
        gguf_f32(g, k.s, &f);
        gguf_bool(g, k.s, &b);
        if (!gguf_string(g, k.s, &s) && s.s[s.n])
            abort();
        look_at_array(g, k.s);
        gguf_why(g, k.s, "nothing", &e);
        if (!e.msg[0] || strchr(e.msg, '\n'))
            abort();
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        if (gguf_tensor(g, t->name.s) != t || t->file_offset + t->bytes > n ||
            t->row_bytes * t->dims[1] * t->dims[2] * t->dims[3] != t->bytes)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct gguf *g = NULL;
    struct err e = {0};

    if (gguf_parse("fuzz", data, n, n, &g, &e)) {
        if (!e.code || strncmp(e.msg, "fuzz: ", 6) || strchr(e.msg, '\n'))
            abort();
        return 0;
    }
    look_at(g, n);
    gguf_close(g);
    return 0;
}
