/* The architectures: each turns a checked model into a program. One short file a family. */
#pragma once
#include "coordinator/model/model.h"
#include "coordinator/trunk/exec/program.h"

/* By m->arch; hands over *out. */
int arch_program(const struct model *m, struct program **out, struct err *e);

int arch_qwen3moe(const struct model *m, struct program **out, struct err *e); /* and olmoe */
