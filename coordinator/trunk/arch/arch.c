/* Which file makes the program of which architecture. */
#include "coordinator/trunk/arch/arch.h"

#include <string.h>

static const struct {
    const char *name;
    int (*make)(const struct model *m, uint32_t drafts, struct program **out, struct err *e);
} archs[] = {
    {"olmoe", arch_qwen3moe},
    {"qwen3moe", arch_qwen3moe},
    {"qwen35moe", arch_qwen35moe},
    {"qwen4exp", arch_qwen4exp},
    {"glm5next", arch_glm5next},
    {"glm5-next", arch_glm5next},
};

int arch_program_drafting(const struct model *m, uint32_t drafts, struct program **out, struct err *e)
{
    const char *name = model_arch_name(m);

    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (!strcmp(archs[i].name, name))
            return archs[i].make(m, drafts, out, e);
    return err_set(e, -ENOTSUP, "%s: architecture '%s' can be read but not run yet", m->path, name);
}

int arch_program(const struct model *m, struct program **out, struct err *e)
{
    return arch_program_drafting(m, 0, out, e);
}
