/* Arrays of small unsigned integers in NumPy's .npy files (format versions 1 to 3), as routing
 * traces are: u8, u16 or u32, little-endian, C order. What else the format can hold is refused in
 * one line. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/err.h"

enum {
    NPY_DIMS = 8,          /* most dimensions */
    NPY_HEADER = 1 << 16,  /* most bytes of a header's text */
    NPY_WRITE_DIMS = 3,    /* most dimensions besides the first that we write */
    NPY_WRITE_HEADER = 128 /* bytes before the data of a file that we write */
};

struct npy {
    uint32_t width; /* bytes of a value: 1, 2 or 4 */
    uint32_t n_dims;
    uint64_t shape[NPY_DIMS]; /* slowest first */
    size_t n;                 /* values: product of shape */
    const unsigned char *data;
    unsigned char *owned; /* what npy_free frees; NULL after npy_parse */
};

/* bytes: the whole file, borrowed by *a as long as it is used. name is for messages. */
int npy_parse(const char *name, const void *bytes, size_t n, struct npy *a, struct err *e);
/* Reads a file; npy_free gives it back (also a zeroed one). */
int npy_read(const char *path, struct npy *a, struct err *e);
void npy_free(struct npy *a);
/* Value i < a->n. */
uint32_t npy_at(const struct npy *a, size_t i);

/* Writes an array row by row: the first dimension is the number of rows so far. After every 64 KiB,
 * and at the end, the file is a whole .npy file, so a run that dies leaves a trace that can be
 * read. */
struct npy_writer;
/* The file is made or, at the first row, emptied. shape: the other dimensions (n_dims <=
 * NPY_WRITE_DIMS), each at least 1; width: 1, 2 or 4. Needs a regular file. */
int npy_create(const char *path, uint32_t width, uint32_t n_dims, const uint32_t *shape,
               struct npy_writer **out, struct err *e);
/* One row, product of shape values, each fitting the width (else -ERANGE, nothing is written). */
int npy_write(struct npy_writer *w, const uint32_t *row, struct err *e);
uint64_t npy_rows(const struct npy_writer *w);
/* Writes what is left; closes and frees in any case. NULL: nothing to do. */
int npy_close(struct npy_writer *w, struct err *e);
/* Instead: rows that are not in the file yet are not written; a file of which nothing was is as it was
 * before, or gone. */
void npy_drop(struct npy_writer *w);
