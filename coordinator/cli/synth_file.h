/* Writes a model of any size with random weights, qwen3moe unless the shape says another architecture. The layers' shapes are a real model's,
 * and its choice of experts has a preset's skew and locality, so that calls, reads and caches are
 * a real model's too; what it says means nothing. */
#pragma once
#include <stdint.h>

#include "coordinator/cli/synth_routing.h"
#include "shm/err.h"

struct synth_shape {
    uint32_t layers, embd, ff, experts, used, heads, kv_heads, head_dim, vocab, ctx;
    uint32_t type, down_type, trunk_type; /* kernels/type/type.h: gate and up; down; the trunk's */
    int glm5next;  /* 1: that architecture, with a NextN block behind the layers; 0: qwen3moe */
    uint32_t dense; /* glm5next: leading layers without experts */
    int qwen4exp;   /* 1: that architecture */
    uint32_t table_rows; /* qwen4exp: of its n-gram table, in down_type */
    enum synth_preset preset;
    uint64_t seed;
    const char
        *tokenizer; /* GGUF file whose tokenizer is copied, vocab tokens; NULL: one is made */
};

/* Token 0 to 255 are the bytes, 256 the end of text, the rest (if any) unused ones. */
enum { SYNTH_VOCAB_MIN = 257 };

/* Writes path.part, then gives it its name: no half file under `path` whatever happens. *bytes: its
 * size. Every byte follows from s (and the tokenizer's file). */
int synth_write(const struct synth_shape *s, const char *path, uint64_t *bytes, struct err *e);
