/* One name, one meaning and one help text, whatever the command. */
#include "coordinator/cli/answer_flags.h"

#include <stddef.h>

#include "coordinator/draft/pays.h"

#define AT(x) offsetof(struct answer_flags, x)
const struct flag answer_flag_table[] = {
    {.name = "predict|n-predict",
     .letter = 'n',
     .arg = "N",
     .group = "answer",
     .kind = FLAG_I64,
     .at = AT(n_predict),
     .min = -1,
     .max = INT32_MAX,
     .range = "0 to 2147483647, or -1: until the answer or the context ends",
     .shown = "-1: until the answer or the context ends",
     .help = "most tokens of an answer"},
    {.name = "ctx-size",
     .letter = 'c',
     .arg = "N",
     .kind = FLAG_U32,
     .at = AT(n_ctx),
     .max = 1 << 30,
     .shown = "the model's maximum, or what fits",
     .help = "tokens of the context of a sequence: prompt and answer, or the whole conversation; 0: the default"},
    {.name = "draft",
     .arg = "N",
     .kind = FLAG_I64,
     .at = AT(draft),
     .min = 0,
     .max = DRAFT_PLACES,
     .shown = "as many as pay, at most 4",
     .help = "tokens that the model's NextN block drafts for each step; 0: off. The text is the same"},
    {.name = "no-heat",
     .kind = FLAG_ON,
     .at = AT(no_heat),
     .help = "where not all experts fit: don't begin with those that earlier runs of this model used "
             "most, and don't remember this one's (in XDG_CACHE_HOME)"},
    {.kind = 0},
};
#undef AT

void answer_flags_init(struct answer_flags *f)
{
    *f = (struct answer_flags){.n_predict = -1, .draft = -1};
}

uint32_t answer_flags_drafts(const struct answer_flags *f)
{
    return f->draft < 0 ? DRAFTS_MOST : (uint32_t)f->draft;
}

void answer_flags_options(const struct answer_flags *f, struct engine_options *o)
{
    o->n_ctx = f->n_ctx;
    o->heat = !f->no_heat;
    o->drafts = answer_flags_drafts(f);
    o->drafts_asked = f->draft > 0;
}

#define AT(x) offsetof(struct template_flags, x)
const struct flag template_flag_table[] = {
    {.name = "chat-template|chat-template-file",
     .arg = "FILE",
     .group = "messages",
     .kind = FLAG_STRING,
     .at = AT(template),
     .shown = "the model's own",
     .help = "render messages with the template in FILE"},
    {.name = "chat-template-kwargs",
     .arg = "JSON",
     .kind = FLAG_STRING,
     .at = AT(kwargs),
     .help = "an object: further variables for the template"},
    {.name = "reasoning",
     .arg = "WHEN",
     .kind = FLAG_CHOICE,
     .at = AT(thinking),
     .choices = "auto|on|off",
     .help = "does the model think before it answers? auto: as its template has it"},
    {.name = "reasoning-effort",
     .arg = "WORD",
     .kind = FLAG_STRING,
     .at = AT(effort),
     .help = "low, medium, high: for templates that know it"},
    {.name = "keep-reasoning",
     .kind = FLAG_ON,
     .at = AT(keep_reasoning),
     .help = "thoughts of earlier answers stay in the prompt, where the template can do that"},
    {.name = "allow-control-tokens",
     .kind = FLAG_ON,
     .at = AT(allow_control),
     .help = "<|name|> in a message is that control token; by default it is text"},
    {.kind = 0},
};

int template_flags_thinking(const struct template_flags *f)
{
    return f->thinking == THINK_AUTO ? -1 : f->thinking == THINK_ON;
}
