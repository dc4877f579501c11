/* Files and streams that commands write. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/err.h"

/* All bytes now, without a buffer between: text of an answer on standard output (name is for the
 * message). SIGPIPE must be ignored; a closed reader is -EPIPE and a line. */
int output_bytes(int fd, const char *name, const void *data, size_t n, struct err *e);

/* A result file. Opened before the work begins, so that a typing error costs nothing; what is there
 * stays until the first byte is written. Pipes and devices work. */
struct output {
    const char *path; /* borrowed; NULL: not open */
    int fd;
    int ours;    /* there was no such file before */
    int written; /* something was */
    uint64_t bytes; /* so many */
};
int output_open(struct output *o, const char *path, struct err *e);
int output_write(struct output *o, const void *data, size_t n, struct err *e);
/* Closes. A file that was made here and never written is removed. NULL path: nothing to do. */
int output_close(struct output *o, struct err *e);

/* Results that one command line names: no two may be the same file. After those that are opened early were
 * opened. path NULL: not asked for. -EINVAL and a line that names both flags. */
struct result {
    const char *flag, *path;
};
int results_differ(const struct result *r, size_t n, struct err *e);

/* The folder exists (is made if it does not) and can be written to. */
int output_folder(const char *path, struct err *e);

/* The whole of a file, or of standard input (path NULL or "-"). Hands over *text. */
int input_text(const char *path, char **text, size_t *n, struct err *e);
