/* Files as packing and verifying read and write them: large pieces past the page cache. Direct where the
 * file system has it, else buffered, and each piece is put out of the cache again. */
#pragma once
#include <stdint.h>

#include "coordinator/pack/format.h"
#include "shm/err.h"

struct pack_file {
    const char *path; /* borrowed */
    int fd;           /* owned; -1: not open */
    int direct;
};

/* Buffers of a thread; all from a page on. */
enum { PACK_OUT = 8 << 20, PACK_IN = 4 << 20 };
struct pack_room {
    uint8_t *out; /* PACK_OUT bytes */
    uint8_t *in;  /* PACK_IN bytes */
};
int pack_room_make(struct pack_room *r, struct err *e);
void pack_room_free(struct pack_room *r);

int pack_file_read_only(struct pack_file *f, const char *path, struct err *e);
/* To read and write; made if it is not there, then *is_new is 1. */
int pack_file_make(struct pack_file *f, const char *path, int *is_new, struct err *e);
void pack_file_close(struct pack_file *f);

/* n bytes from off on, wherever they begin and end, through r->in. */
int pack_file_read(const struct pack_file *f, void *to, uint64_t off, uint64_t n, struct pack_room *r,
                   struct err *e);
/* from, off and n: whole pages. */
int pack_file_write(const struct pack_file *f, const void *from, uint64_t off, uint64_t n, struct err *e);
