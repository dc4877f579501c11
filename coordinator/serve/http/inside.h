/* What the files of this folder share. */
#pragma once
#if !__has_include(<event2/http.h>) || !__has_include(<openssl/ssl.h>)
#error "headers of libevent or OpenSSL are missing: scripts/deps installs them (libevent-dev, libssl-dev)"
#endif
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "coordinator/serve/http/http.h"

struct ssl_ctx_st;

struct route {
    enum http_method method;
    const char *path;
    int open;
    http_handler *fn;
    void *arg;
    const char *type; /* a file */
    const void *bytes;
    size_t n;
};
struct post {
    struct post *next;
    void (*fn)(void *arg);
    void *arg;
};
enum { HTTP_WATCHES = 8 };
struct http_event {
    struct event *ev;
    void (*fn)(void *arg);
    void *arg;
    struct http *h;
    int fd;               /* -1: a timer */
    int repeats;          /* ... that runs while somebody is served */
    struct timeval every;
};

struct http {
    struct http_options o;
    int loopback; /* bound to an address that only this machine reaches */
    struct event_base *base;
    struct evhttp *ev;
    struct evhttp_bound_socket *bound;
    struct ssl_ctx_st *tls;
    struct route route[HTTP_ROUTES];
    size_t n_routes;
    struct http_event watch[HTTP_WATCHES];
    size_t n_watches;

    pthread_t thread;
    int running;
    pthread_mutex_t lock; /* of posts */
    struct post *first, **last;
    int post_fd;
    struct event *post_ev, *drain_ev;

    struct connection *connections;
    struct http_counts count; /* this thread's, read by others as they are */
    int held;                 /* 1: no more are accepted until one ends */
    uint64_t next_id;
    int draining;
    void (*drained)(void *arg);
    void *drained_arg;
};

/* One client's socket, from accept to its end. Owned by the list of http. */
struct connection {
    struct connection *next, **at;
    struct http *h;
    struct bufferevent *bev;
    struct evhttp_connection *evcon;
    struct exchange *x;      /* being answered, or NULL */
    int watched;             /* its descriptor once more; -1: none */
    struct event *closed;    /* on that one, armed while x is there: has the client gone? */
    struct event *deadline;  /* armed while none is there */
    size_t arrived;          /* bytes of the request, counted in count.arriving */
};
/* evhttp's callback: the bufferevent of the next connection. */
struct bufferevent *connection_new(struct event_base *base, void *http);
struct connection *connection_of(struct http *h, struct evhttp_request *r);
void connection_busy(struct connection *c, struct exchange *x);
void connection_free_again(struct connection *c);
/* Ends it as if the client had gone. */
void connection_drop(struct connection *c);

struct exchange {
    struct connection *c; /* NULL: it has ended */
    struct http *h;
    struct evhttp_request *r;
    const struct route *route;
    struct evkeyvalq query;
    int has_query, streaming;
    char id[32];
    struct evbuffer *body;
    void (*gone)(void *arg);
    void *gone_arg;
    void (*drained)(void *arg);
    void *drained_arg;
    struct timespec came;
};
/* evhttp's callback: a whole request is there. */
void exchange_came(struct evhttp_request *r, void *http);
/* Its connection has ended. */
void exchange_lost(struct exchange *x);
void http_timers(struct http *h, int on);
/* After an exchange has ended: is a drain over? */
void http_exchange_over(struct http *h);
/* 1: h (may be NULL) names the route's paths; sets *status for what does not fit. */
const struct route *http_find(const struct http *h, const char *path, enum http_method m, int *status);

/* guard.c */
/* 1: one of the keys was given. Takes as long whatever was typed. */
int guard_key(const char *const *keys, size_t n, const char *authorization, const char *x_api_key);
/* 1: a page of `origin` (NULL: no page) may use a server that was asked for as `host` (NULL: unknown). */
int guard_origin(const char *allowed, const char *origin, const char *host);
/* 1: a server that only this machine reaches may be called so. */
int guard_host(const char *host);

/* tls.c */
int tls_open(const char *cert, const char *key, struct ssl_ctx_st **out, struct err *e);
void tls_close(struct ssl_ctx_st *t);
struct bufferevent *tls_bufferevent(struct ssl_ctx_st *t, struct event_base *base);
