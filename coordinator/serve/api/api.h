/* The APIs over HTTP and jobs: OpenAI's chat, completions and responses, Anthropic's messages, llama.cpp's own.
 *
 *   http_open(...); api_open(&o, h, &a, e); http_start(h, e);      everything is 503 but files and /health
 *   jobs_open({.news = api_news, .arg = a}, &j, e);
 *   in engine_run's body: api_ready(a, &served, j, &facts);  jobs_run(j, ...);
 *   http_drain(h, ..., jobs_drain ...);  api_stop(a);  http_close(h);  api_close(a);  jobs_close(j);
 *
 * Bodies are read, rendered and cut into tokens in a thread of the API's own, one after another, so that a long
 * prompt holds up neither the answers that are being written nor a decode step. */
#pragma once
#include "coordinator/serve/api/request.h"
#include "coordinator/serve/http/http.h"
#include "coordinator/serve/jobs.h"

struct api;
struct lights;
struct model;
struct api_options {
    uint32_t ping_s;    /* a comment in a stream that is silent for so long; 0: none */
    uint32_t answer_s;  /* an answer that takes longer ends, as if cut by its length; 0: none */
    const char *name;   /* of the model, as clients see it; borrowed */
    int metrics, slots, props; /* 1: these paths are served */
    const struct lights *lights; /* the engine's figures, for /metrics; borrowed until api_close; or NULL */
};
int api_open(const struct api_options *o, struct http *h, struct api **out, struct err *e);
/* Some job has news (jobs_options.news). From any thread; does not block. */
void api_news(void *api);

struct api_facts { /* for /v1/models, /props; borrowed until api_close */
    const struct model *m;
    const char *template_source; /* or NULL */
    const char *build, *version;
    size_t n_ctx_train;
    uint64_t n_params, bytes;
};
/* From the main thread: the model is loaded. All three are borrowed until api_close. */
int api_ready(struct api *a, const struct served *s, struct jobs *j, const struct api_facts *f, struct err *e);
/* Before http_close, from the main thread: nothing is read any more. NULL is allowed. */
void api_stop(struct api *a);
/* After http_close. NULL is allowed. */
void api_close(struct api *a);
