/* A program as bytes, for a process that knows no architecture: the coordinator writes it into a
 * segment, the trunk's host reads it. Every number is checked against the geometry and the sizes of the
 * segments, so that executing it reads and writes inside its buffers, its states and the weights. */
#pragma once
#include "kernels/attention/attention.h"
#include "shm/err.h"
#include "shm/layout.h"
#include "coordinator/trunk/exec/program.h"
#include "coordinator/trunk/exec/weights.h"

uint64_t wire_bytes(const struct program *p);
/* at: by weight, n_weights. */
void wire_write(const struct program *p, const struct weight_at *at, enum kv_type kv, uint8_t *out);
/* Hands over *p (program_free) and *at (free). bytes: of the image; trunk_bytes: of the weights' segment.
 * -EPROTO: it makes no sense, *e says what. */
int wire_read(const uint8_t *image, uint64_t bytes, uint64_t trunk_bytes, const struct geometry *g,
              struct program **p, struct weight_at **at, enum kv_type *kv, struct err *e);
