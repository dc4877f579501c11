/* What qwen35moe and qwen4exp have in common: gated attention, the gated delta net, experts with a gated shared
 * one. Each: 0, or -EINVAL with the line. */
#pragma once
#include "coordinator/model/model.h"

/* Keys: layers, heads, rotation, delta net, router. A NextN block whose tensors were taken from the file is none. */
int qwen35_read_sizes(struct model *m, struct err *e);
/* The token table, the head, m->layer; *interval: of layers with full attention. */
int qwen35_read_tables(struct model *m, uint32_t *interval, struct err *e);
/* A layer's mixer and feed-forward part, without norms. */
int qwen35_read_layer(struct model *m, uint32_t il, uint32_t interval, struct err *e);
