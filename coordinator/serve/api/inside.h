/* What api.c and info.c share. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "coordinator/serve/api/api.h"

struct call;
/* Work of the reading thread that needs no tokens: leaves c->reply (malloced) or c->fault. */
typedef void api_task(struct api *a, const char *body, size_t n, struct call *c);
api_task task_tokenize, task_detokenize, task_apply_template, task_count_tokens;

enum { API_ROUTES = 16 };
struct api_route {
    struct api *api;
    size_t number;
};
struct api {
    struct api_options o;
    struct http *http;
    time_t started;
    _Atomic int ready; /* release by the main thread: what follows is there */
    const struct served *served;
    struct jobs *jobs;
    struct api_facts facts;
    char fingerprint[64];
    uint32_t *eog; /* ids that end an answer */
    size_t n_eog;

    struct api_route route[API_ROUTES];
    int news_fd;
    struct timespec news; /* the last ones */
    struct http_event *again; /* looks for news without being told */
    _Atomic int looking;  /* 1: it will; written by the HTTP thread */
    struct call *calls; /* in work; the HTTP thread's */
    uint64_t taken;      /* tokens */

    pthread_t thread; /* reads bodies */
    int reading;      /* it runs */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct call *to_read, **to_read_last; /* under lock */
    int ending;
};
http_handler on_metrics; /* metrics.c */
void reply_fault(struct exchange *x, const struct fault *f);
int api_info_routes(struct api *a, struct err *e);
