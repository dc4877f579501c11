/* Flags of every command that writes answers: run, chat, serve. */
#pragma once
#include <stdint.h>

#include "coordinator/cli/args.h"
#include "coordinator/engine.h"

struct answer_flags {
    uint32_t n_ctx;    /* 0: the default */
    int64_t n_predict; /* -1: no limit */
    int64_t draft;     /* -1: as many as pay */
    int no_heat;
};
extern const struct flag answer_flag_table[];
void answer_flags_init(struct answer_flags *f);
void answer_flags_options(const struct answer_flags *f, struct engine_options *o);
/* Most drafts for a step. */
uint32_t answer_flags_drafts(const struct answer_flags *f);

/* And of those that render messages: chat, serve. */
enum { THINK_AUTO, THINK_ON, THINK_OFF };
struct template_flags {
    const char *template, *kwargs, *effort;
    int allow_control, thinking, keep_reasoning;
};
extern const struct flag template_flag_table[];
/* As chat_request has it: 1, 0, -1. */
int template_flags_thinking(const struct template_flags *f);
