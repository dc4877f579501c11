/* Flags from elsewhere than the command line, by the same names: a file, the environment. The command line comes
 * last, so it wins; then the environment, then the file.
 *
 * The environment: CONCLAVE_ARG_ and the long name in capitals, dashes as underscores (CONCLAVE_ARG_CTX_SIZE=4096).
 * The file: INI or TOML, "name = value" a line; the value as it is, or in quotes, or a list in brackets (taken
 * as its parts with commas between); flags without a value are true or false. A line [verb] begins that
 * command's part, lines before the first are everybody's. # and ; begin a comment. */
#pragma once
#include "coordinator/cli/args.h"
#include "shm/err.h"

struct settings {
    int argc;
    char **argv; /* owned, with what it points to */
};
/* argv with the settings between the verb and what was typed. path: of the file, NULL: none. For settings_free. */
int settings_read(const struct args *a, const char *path, int argc, char **argv, struct settings *out, struct err *e);
void settings_free(struct settings *s);
