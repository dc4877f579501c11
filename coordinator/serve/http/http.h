/* HTTP on libevent (evhttp): one thread with its loop, which takes requests and writes answers, and never
 * computes a token. Everything below but http_post is called in that thread, or before http_start.
 *
 *   http_open(&o, &h, e);  http_route(...), http_file(...);  http_start(h, e);
 *   ...
 *   http_drain(h, seconds);  http_close(h);
 *
 * What evhttp leaves open is bounded here: how many connections, how long a request may take to arrive, how
 * many bytes of requests are on their way together, what a client may leave unread, and that a client who has
 * gone is noticed while its answer is being made (connection.h). A request that evhttp itself refuses (no
 * HTTP, headers or body too long) is answered with its own HTML page. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/err.h"

struct event_base;
struct evbuffer;
struct http;
struct exchange;

struct http_options {
    const char *host; /* an address or "localhost" */
    uint16_t port;    /* 0: any free one, http_port tells */
    const char *const *keys; /* n_keys; none: everybody may. Borrowed until http_close */
    size_t n_keys;
    const char *tls_cert, *tls_key; /* PEM files; NULL: no TLS */
    const char *origin;             /* pages of which other origin may use us; "*": all; NULL: none */
    size_t header_bytes, body_bytes; /* of one request; 0: HTTP_HEADERS_MAX, HTTP_BODY_MAX */
    size_t arriving_bytes;           /* of all requests that are not answered yet; 0: HTTP_ARRIVING_MAX */
    uint32_t connections;            /* 0: HTTP_CONNECTIONS_MAX; more wait to be accepted */
    uint32_t arrive_s;               /* a request must have arrived so long after its connection was free; 0: 60 */
    uint32_t write_s;                /* a client that takes nothing for so long is gone; 0: 60 */
};
enum {
    HTTP_HEADERS_MAX = 32 << 10,
    HTTP_BODY_MAX = 16 << 20,
    HTTP_ARRIVING_MAX = 128 << 20,
    HTTP_CONNECTIONS_MAX = 512,
    HTTP_WAITING_MAX = 1 << 20, /* bytes of a stream that a client has not taken: exchange_full */
};

/* Binds, so that errors of host, port and certificates are known; nothing is accepted yet. Hands over *out. */
int http_open(const struct http_options *o, struct http **out, struct err *e);
uint16_t http_port(const struct http *h);
int http_is_local(const struct http *h); /* only this machine reaches it */
int http_start(struct http *h, struct err *e);

enum http_method { HTTP_GET = 1, HTTP_POST = 2 };
/* fn answers the exchange, now or later. HEAD goes to GET's handler. A path that ends with * stands for all that begin
 * so. open: no key is asked for. path and arg are borrowed until http_close. At most HTTP_ROUTES. */
typedef void http_handler(struct exchange *x, void *arg);
int http_route(struct http *h, enum http_method method, const char *path, int open, http_handler *fn, void *arg,
               struct err *e);
/* A file that is in this program: GET, open to everybody. bytes is borrowed. */
int http_file(struct http *h, const char *path, const char *type, const void *bytes, size_t n, struct err *e);
enum { HTTP_ROUTES = 64 };

/* From any thread: fn(arg) is called soon in the HTTP thread. Calls stay in order. -ENOMEM: it is not. */
int http_post(struct http *h, void (*fn)(void *arg), void *arg);
/* fn(arg) is called in the HTTP thread whenever fd (an eventfd, read here) was written to. Before http_start. */
int http_watch(struct http *h, int fd, void (*fn)(void *arg), void *arg, struct err *e);
/* A timer: fn(arg) `us` microseconds after http_timer_set, once. Made before http_start; http's, until http_close. */
struct http_event;
struct http_event *http_timer(struct http *h, void (*fn)(void *arg), void *arg, struct err *e);
void http_timer_set(struct http_event *t, uint32_t us);
/* fn(arg) every `ms` milliseconds while any exchange is open. Before http_start. */
int http_every(struct http *h, uint32_t ms, void (*fn)(void *arg), void *arg, struct err *e);

/* From another thread: nothing is accepted any more, and done(arg) is called there, in the HTTP thread, when the
 * last exchange has ended or `seconds` have passed. Once. */
int http_drain(struct http *h, uint32_t seconds, void (*done)(void *arg), void *arg);
/* Ends the thread and everything that is open: each exchange's gone is called. NULL is allowed. */
void http_close(struct http *h);

struct http_counts {
    uint64_t accepted, requests, gone, refused; /* connections; requests; clients that left; without key or origin */
    uint32_t connections, exchanges;            /* now */
    uint64_t arriving;                          /* bytes, now */
};
struct http_counts http_counts(const struct http *h);

/* ---- one request and its answer ---- */
const char *exchange_id(const struct exchange *x);   /* "req-" and 16 digits: in the log and in X-Request-Id */
const char *exchange_path(const struct exchange *x); /* the route's: ours, not the client's text */
/* The value of a query's member, or NULL; borrowed until the end. */
const char *exchange_query(struct exchange *x, const char *key);
const char *exchange_header(struct exchange *x, const char *name);
/* The body, in one piece; borrowed until the end. Handed over: the caller frees it (evbuffer_free), in any
 * thread; NULL: no memory. */
const char *exchange_body(struct exchange *x, size_t *n);
struct evbuffer *exchange_take_body(struct exchange *x);

/* Exactly one of these two ways, and x is gone after the end. A client that leaves meanwhile: gone(arg) is
 * called instead, once, and x is no more when it returns. */
void exchange_on_gone(struct exchange *x, void (*gone)(void *arg), void *arg);
void exchange_header_out(struct exchange *x, const char *name, const char *value);
void exchange_reply(struct exchange *x, int status, const char *type, const void *data, size_t n);
/* ... a stream: bytes as they come. exchange_full: the client is slow, send no more until drained(arg) is
 * called. */
void exchange_stream(struct exchange *x, const char *type);
void exchange_send(struct exchange *x, const void *data, size_t n);
/* Goes out with the next exchange_send. */
void exchange_send_more(struct exchange *x, const void *data, size_t n);
int exchange_full(const struct exchange *x);
void exchange_on_drained(struct exchange *x, void (*drained)(void *arg), void *arg);
void exchange_end(struct exchange *x);
/* The time since the request had arrived. */
double exchange_seconds(const struct exchange *x);
