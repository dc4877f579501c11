/* The architectures: each turns a checked model into a program. One short file a family. */
#pragma once
#include "coordinator/model/model.h"
#include "coordinator/trunk/exec/program.h"

/* By m->arch; hands over *out. */
int arch_program(const struct model *m, struct program **out, struct err *e);
/* The same with the NextN block's pass, where the model has one. drafts: most tokens that are drafted for
 * a step, which is how far a sequence can be taken back; 0: without it. */
int arch_program_drafting(const struct model *m, uint32_t drafts, struct program **out, struct err *e);

int arch_qwen3moe(const struct model *m, uint32_t drafts, struct program **out, struct err *e); /* and olmoe */
int arch_qwen35moe(const struct model *m, uint32_t drafts, struct program **out, struct err *e);
int arch_qwen4exp(const struct model *m, uint32_t drafts, struct program **out, struct err *e);
int arch_glm5next(const struct model *m, uint32_t drafts, struct program **out, struct err *e);
