/* Messages to a prompt. A request's messages are put into the form that templates expect (spec of the
 * interface: content null, arguments as text, reasoning under three names, ids), rendered, and cut into
 * tokens with what users wrote kept apart from control tokens. */
#pragma once
#include <stddef.h>
#include <time.h>

#include "coordinator/chat/jinja/jinja.h"
#include "coordinator/json/json.h"
#include "coordinator/model/tokenizer.h"
#include "shm/err.h"

/* How a family writes calls of tools: told from the marks in its template. */
enum chat_format {
    CHAT_PLAIN,    /* none */
    CHAT_HERMES,   /* <tool_call>{"name", "arguments"}</tool_call>: Qwen3, MiMo */
    CHAT_QWEN_XML, /* <tool_call><function=N><parameter=K>: Qwen3-Coder, Qwen3.5 */
    CHAT_GLM,      /* <tool_call>N<arg_key>K</arg_key><arg_value> */
    CHAT_DEEPSEEK, /* <｜tool▁calls▁begin｜> */
    CHAT_DSML,     /* <｜DSML｜tool_calls>: DeepSeek-V3.2, V4 */
    CHAT_KIMI,     /* <|tool_calls_section_begin|> */
    CHAT_GPT_OSS,  /* <|channel|>commentary to=functions.N */
    CHAT_LLAMA,    /* the answer is {"name", "parameters"} */
    CHAT_MISTRAL,  /* [TOOL_CALLS]N[CALL_ID]I[ARGS] */
};
/* "hermes", ... */
const char *chat_format_name(enum chat_format f);

/* Where the prompt leaves the model. */
enum chat_start {
    CHAT_AUTO,      /* the answer's first word decides: <think> or not */
    CHAT_CONTENT,   /* the prompt closed the reasoning */
    CHAT_REASONING, /* the prompt opened it */
};

struct chat_template;
/* Parses a template and finds out by trying what it takes. name stands for it in messages; bos and eos are
 * the texts of those tokens ("" without). Nothing is kept of the arguments. Hands over *out, which any
 * number of threads may use. */
int chat_open(const char *name, const char *source, size_t n, const char *bos, const char *eos,
              struct chat_template **out, struct err *e);
/* The same from a model's file and its tokenizer. source NULL: the file's own template; -ENOENT if it has
 * none. */
int chat_open_model(const struct gguf *g, const struct tokenizer *t, const char *name, const char *source, size_t n,
                    struct chat_template **out, struct err *e);
void chat_close(struct chat_template *t); /* NULL is allowed */
enum chat_format chat_format(const struct chat_template *t);
/* 1: a content may be a list of parts; 0: their texts are joined first. */
int chat_takes_parts(const struct chat_template *t);

struct chat_request { /* all borrowed while it is rendered */
    const struct json *messages;
    const struct json *tools;           /* an array, or NULL */
    const struct json *response_format; /* or NULL */
    const struct json *kwargs;          /* an object of further variables, or NULL; these win */
    const char *reasoning_effort;       /* or NULL */
    int thinking;                       /* 1 on, 0 off, -1: as the template has it */
    int keep_reasoning;                 /* 1: reasoning of earlier answers stays in the prompt */
    int no_generation_prompt;           /* 1: the text ends with the last message */
    const struct tm *now;               /* or NULL */
};
struct chat_prompt {
    struct jinja_text text; /* owned */
    enum chat_start start;
};
/* A fault of kind JINJA_OK with an error is one of the request's form. Hands over *out, for
 * chat_prompt_free. */
int chat_render(const struct chat_template *t, const struct chat_request *q, struct chat_prompt *out,
                struct jinja_fault *f, struct err *e);
void chat_prompt_free(struct chat_prompt *p);

/* The prompt's ids, with exactly one BOS where the model wants one. allow_control: names of control tokens
 * in what users wrote are those tokens. Appends to *out. */
int chat_tokenize(struct tokenizer *t, const struct jinja_text *text, int allow_control, struct token_list *out,
                  struct err *e);
