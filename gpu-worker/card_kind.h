/* Between card.h and what a card really is. */
#pragma once
#include "gpu-worker/card.h"

#ifdef __cplusplus
extern "C" {
#endif

struct card_kind { /* as in card.h, which says what they promise */
    void (*close)(struct card *c);
    int (*use)(struct card *c, struct err *e);
    int (*alloc)(struct card *c, uint64_t bytes, const char *what, void **out, struct err *e);
    int (*shared)(struct card *c, uint64_t bytes, const char *what, void **host, void **dev, struct err *e);
    int (*map)(struct card *c, const void *host, uint64_t bytes, int writable, void **dev, struct err *e);
    uint64_t (*free_bytes)(struct card *c);
    int (*copy_in)(struct card *c, void *dev, const void *host, uint64_t bytes, struct err *e);
    int (*copy_out)(struct card *c, void *host, const void *dev, uint64_t bytes, struct err *e);
    int (*mark)(struct card *c, unsigned mark, struct err *e);
    int (*marked)(struct card *c, unsigned mark, struct err *e);
};
struct card { /* the first member of each kind's own */
    const struct card_kind *kind;
    int device;
    char name[80];
};
int card_emu_open(struct card **out, struct err *e);
int card_cuda_open(int device, struct card **out, struct err *e);

#ifdef __cplusplus
}
#endif
