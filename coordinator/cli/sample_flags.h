/* The flags of sampling, for every command that writes an answer. */
#pragma once
#include <stdint.h>

#include "coordinator/cli/args.h"
#include "coordinator/sample/sample.h"
#include "shm/err.h"

struct sample_flags { /* as typed */
    double temp, top_p, min_p, repeat, frequency, presence;
    int64_t top_k, last_n;
    uint64_t seed; /* all ones (-1): choose one */
};
extern const struct flag sample_flag_table[];
void sample_flags_init(struct sample_flags *f);
/* Checked; a seed is chosen if none was given. */
int sample_flags_settings(const struct sample_flags *f, struct sample_settings *s, struct err *e);
/* One line on stderr: all that decides the answer besides model and text. */
void sample_flags_print(int kv, const struct sample_settings *s);
