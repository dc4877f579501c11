/* A request of any of the APIs, read and checked: what is to be computed and how the answer is to look. Reading
 * renders the messages and makes the prompts' ids, so it may take long; it touches no socket and no engine. */
#pragma once
#include "coordinator/chat/chat.h"
#include "coordinator/json/json.h"
#include "coordinator/model/tokenizer.h"
#include "coordinator/sample/grammar_keep.h"
#include "coordinator/sample/sample.h"
#include "coordinator/serve/api/stops.h"
#include "coordinator/serve/fault.h"
#include "coordinator/serve/jobs.h"

/* What is served. Read only while requests are read, but for the tokenizer's scratch and what is kept of
 * grammars: one thread reads. */
struct served {
    const char *name;              /* as clients see the model */
    struct tokenizer *tok;
    struct chat_template *template; /* NULL: the model has none */
    int thinks;                    /* 1: the template knows <think>: an answer may begin so */
    struct grammar_keep *grammars; /* NULL: no grammars */
    uint32_t n_vocab;
    size_t n_ctx;                  /* of one sequence */
    struct sample_settings settings; /* what holds where a request says nothing; seed: see fixed_seed */
    int fixed_seed;                /* 1: settings.seed holds for all that name none; 0: each gets its own */
    int64_t n_predict;             /* -1: no limit */
    int thinking;                  /* as chat_request.thinking */
    const char *reasoning_effort;  /* or NULL */
    int keep_reasoning, allow_control;
    const struct json *kwargs;     /* of --chat-template-kwargs, or NULL */
};

enum api_kind { API_CHAT, API_TEXT, API_COMPLETION, API_RESPONSES, API_MESSAGES }; /* TEXT: /v1/completions */
enum {
    REQUEST_DEPTH_MAX = 200, /* arrays and objects in each other */
    REQUEST_VALUES_MAX = 2 << 20, /* about 64 bytes of memory each: more than ids of the longest contexts */
    REQUEST_STOPS_MAX = 64,
    REQUEST_STOP_BYTES = 1024,
    REQUEST_ANSWERS_MAX = 64, /* n, and prompts times n */
    REQUEST_BIASES_MAX = 4096,
};

struct request {
    enum api_kind api;
    struct json_doc *doc, *chat_doc; /* what came; as messages for templates, where that had to be made */
    const struct json *body, *chat;  /* their roots; chat NULL: no conversation */
    int stream, include_usage, every_timings, progress, return_tokens, echo, cache_prompt, ignore_eos, split_reasoning,
        one_call; /* no parallel calls */
    int64_t max_tokens; /* -1: none */
    uint32_t n;         /* answers to each prompt */
    int n_probs;        /* -1: none */
    struct sample_settings settings;
    struct sample_bias *bias;
    const char *stop_text[REQUEST_STOPS_MAX];
    size_t stop_len[REQUEST_STOPS_MAX];
    struct stops stops;
    struct request_prompt {
        struct token_list ids;
        char *text; /* with echo */
        size_t n;
    } *prompt;
    size_t n_prompts;
    enum chat_start start;
    const struct json *tools; /* NULL: no calls are looked for */
    struct grammar *grammar;  /* NULL: none; clone it for each answer */
};

/* 0, or f is set. Hands over what is in *out, for request_free, in both cases. */
int request_read(const struct served *m, enum api_kind api, const char *text, size_t n, struct request *out,
                 struct fault *f);
void request_free(struct request *r);

/* The messages of a request as a prompt's text. body: the chat's object. */
struct chat_prompt;
int request_render(const struct served *m, const struct json *body, int no_generation_prompt, struct chat_prompt *out,
                   struct fault *f);

/* Anthropic's messages and OpenAI's responses as a chat's object. whole: with what an answer
 * needs, not a count of tokens alone. Hands over *out. */
int request_from_messages(const struct json *body, int whole, struct json_doc **out, struct fault *f);
int request_from_responses(const struct json *body, struct json_doc **out, struct fault *f);
