/* What the files that lay out synthetic models share: tensors by how their values are made, and the front
 * part of a GGUF file. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "coordinator/cli/synth_file.h"
#include "coordinator/cli/synth_routing.h"
#include "coordinator/model/gguf.h"
#include "shm/err.h"

/* The residual's columns by what they are for: synth_routing.h. */
enum part { CONST, SLOW, OWN, PARTS };

/* How a tensor's values are made. */
enum making {
    RANDOM,    /* deviation sd x by_col of the column's part x by_row of the row's */
    VALUE,     /* f32, all the same */
    QK_NORM,   /* f32, one head */
    ROUTER,    /* f32 */
    SUCCESSOR, /* row t is row t + 1 of the matrix that is made with the same seed; the last one is its row 0 */
    IDENTITY,  /* f16: row i has a one in column i */
};

struct tensor {
    char name[64];
    enum making making;
    uint32_t type, n_dims;
    uint64_t dims[3], bytes, offset;
    double sd;
    int cols_parted, rows_parted; /* its columns, its rows are the residual's */
    double by_col[PARTS], by_row[PARTS];
    int each;                                /* 1: by row and column, `by` in place of these two; */
    double by[PARTS][PARTS];
    uint64_t row_end[OWN];                   /* ... and rows of its own parts, where these end */
    double embedded; /* not 0: all values of the const columns */
    double value;    /* VALUE */
    uint64_t seed;   /* not 0: in place of its own */
};

struct front { /* the file's front part, grown as it is written */
    uint8_t *b;
    size_t n, cap;
    uint64_t n_keys;
    int failed; /* no memory */
};

struct layout {
    struct tensor *t; /* room for all */
    uint32_t n;
    uint64_t next; /* offset of the next one */
};

void synth_key(struct front *f, const char *name, enum gguf_kind kind);
void synth_key_u32(struct front *f, const char *name, uint32_t v);
void synth_key_f32(struct front *f, const char *name, float v);
void synth_key_text(struct front *f, const char *name, const char *v);
void synth_key_array(struct front *f, const char *name, enum gguf_kind kind, uint64_t n);
uint32_t synth_file_type(uint32_t type); /* llama.cpp's number */
void synth_put_u32(struct front *f, uint32_t v);
void synth_put_u64(struct front *f, uint64_t v);
/* Appends t, (experts, rows, cols) of that type; its name is printed. */
int synth_add(struct layout *l, struct tensor t, uint32_t type, uint64_t cols, uint64_t rows, uint64_t experts,
              struct err *e, const char *fmt, ...) __attribute__((format(printf, 8, 9)));

/* glm5next (synth_glm5next.c) */
enum { SYNTH_GLM_TENSORS = 40 }; /* of a layer, at most */
void synth_glm_keys(struct front *f, const struct synth_shape *s);
int synth_glm_lay_out(struct layout *l, const struct synth_shape *s, struct err *e);

/* qwen4exp (synth_qwen4.c) */
enum { SYNTH_QWEN4_TENSORS = 40 }; /* of a layer, at most */
void synth_qwen4_keys(struct front *f, const struct synth_shape *s);
int synth_qwen4_lay_out(struct layout *l, const struct synth_shape *s, const struct synth_routing *r, struct err *e);
