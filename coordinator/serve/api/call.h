/* One request of the APIs from its arrival to the last byte of its answer. Lives in the HTTP thread; while its
 * body is read it belongs to the reading thread (api.c). */
#pragma once
#include "coordinator/json/json_write.h"
#include "coordinator/serve/api/api.h"
#include "coordinator/serve/api/inside.h"
#include "coordinator/serve/api/turn.h"

enum finish { FINISH_NOT, FINISH_STOP, FINISH_WORD, FINISH_LENGTH, FINISH_TOOLS };
struct choice {
    struct job *job;
    struct turn turn;
    struct job_status status; /* as last looked at; of the end once it is over */
    size_t prompt;            /* which */
    enum finish finish;
    /* what was written of it so far */
    size_t thought, content, calls, text, tokens, progress;
    int begun, part; /* Responses, Messages: which part is open */
};
struct forms;
struct call {
    struct call *next, **at; /* of those in work */
    struct api *api;
    struct exchange *x; /* NULL: the client has gone */
    enum api_kind kind;
    const struct forms *forms; /* NULL with a task */
    api_task *task;
    char *reply; /* of the task */
    size_t reply_n;
    int reading;   /* the reading thread has it */
    int streaming; /* begun */
    int was_full;
    int late;      /* ended by its time */
    struct request r;
    struct fault fault;
    struct evbuffer *body;
    struct choice *choice;
    size_t n_choices;
    char id[40];
    int64_t created;
    int sent;         /* something since the last ping */
    int sequence;     /* Responses: events are numbered */
    size_t n_items;   /* Responses, Messages: parts of the output so far */
    double first_s;   /* from arrival to the first byte of the answer; 0: none yet */
};

/* How an API writes answers. In streams: begin once, delta whenever a choice has more, finished when it has
 * ended, end after all have. Else whole, after all have ended. */
struct forms {
    const char *id_prefix;
    void (*begin)(struct call *c);
    void (*delta)(struct call *c, struct choice *h);
    void (*finished)(struct call *c, struct choice *h);
    void (*end)(struct call *c);
    void (*whole)(struct call *c, struct json_out *o);
    enum fault_form fault;
};
extern const struct forms forms_chat, forms_text, forms_completion, forms_responses, forms_messages;

const struct served *api_served(const struct api *a);
const char *api_fingerprint(const struct api *a);

/* What they share. */
struct json_out *event_begin(void); /* NULL: no memory: the event is left out */
/* "data: {...}" and, with a name, "event: NAME" before it; frees o. */
void event_send(struct call *c, const char *name, struct json_out *o);
/* 1: the choice has more than was written. */
int choice_has_more(const struct choice *h);
const char *finish_openai(enum finish f);
void put_usage_openai(struct json_out *o, const struct call *c);
void put_timings(struct json_out *o, const char *key, const struct choice *h);
void put_progress(struct json_out *o, const char *key, const struct choice *h);
/* The tokens from..to of a choice as OpenAI's logprobs, an array that is opened and closed here. */
void put_chat_probs(struct json_out *o, const struct call *c, const struct choice *h, size_t from, size_t to);
/* A token's text, what is not UTF-8 replaced, and its bytes. */
void put_token_text(struct json_out *o, const char *key, const struct tokenizer *t, uint32_t id);
void put_token_bytes(struct json_out *o, const char *key, const struct tokenizer *t, uint32_t id);
size_t call_prompt_tokens(const struct call *c);
size_t call_answer_tokens(const struct call *c);
size_t call_cached_tokens(const struct call *c);
