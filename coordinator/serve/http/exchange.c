/* One request and its answer. evhttp owns the request while its connection lives; when the client goes before the
 * answer's end, the request is left to us. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/serve/fault.h"
#include "coordinator/serve/http/inside.h"
#include "coordinator/serve/log.h"

static void exchange_free(struct exchange *x)
{
    struct http *h = x->h;

    if (x->has_query)
        evhttp_clear_headers(&x->query);
    if (x->body)
        evbuffer_free(x->body);
    free(x);
    h->count.exchanges--;
    http_exchange_over(h);
}

/* All bytes of the answer are written. */
static void on_complete(struct evhttp_request *r, void *arg)
{
    struct exchange *x = arg;

    (void)r;
    connection_free_again(x->c);
    if (x->h->draining)
        evhttp_add_header(evhttp_request_get_output_headers(r), "Connection", "close"); /* evhttp looks now */
    exchange_free(x);
}

void exchange_lost(struct exchange *x)
{
    struct evhttp_request *ours = evhttp_request_get_connection(x->r) ? NULL : x->r;

    x->c->x = NULL;
    x->c = NULL;
    if (x->gone) {
        x->h->count.gone++;
        x->gone(x->gone_arg);
    }
    if (ours)
        evhttp_send_reply_end(ours); /* frees it */
    exchange_free(x);
}

/* ---- what came ---- */

const char *exchange_id(const struct exchange *x)
{
    return x->id;
}

const char *exchange_path(const struct exchange *x)
{
    return x->route ? x->route->path : "?";
}

const char *exchange_query(struct exchange *x, const char *key)
{
    const char *q = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(x->r));

    if (!x->has_query) {
        if (!q || evhttp_parse_query_str(q, &x->query))
            return NULL;
        x->has_query = 1;
    }
    return evhttp_find_header(&x->query, key);
}

const char *exchange_header(struct exchange *x, const char *name)
{
    return evhttp_find_header(evhttp_request_get_input_headers(x->r), name);
}

const char *exchange_body(struct exchange *x, size_t *n)
{
    struct evbuffer *b = evhttp_request_get_input_buffer(x->r);

    *n = evbuffer_get_length(b);
    return *n ? (const char *)evbuffer_pullup(b, -1) : "";
}

struct evbuffer *exchange_take_body(struct exchange *x)
{
    struct evbuffer *b = evbuffer_new();

    if (b && evbuffer_add_buffer(b, evhttp_request_get_input_buffer(x->r))) {
        evbuffer_free(b);
        b = NULL;
    }
    return b;
}

double exchange_seconds(const struct exchange *x)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - x->came.tv_sec) + 1e-9 * (double)(now.tv_nsec - x->came.tv_nsec);
}

/* ---- what goes ---- */

void exchange_on_gone(struct exchange *x, void (*gone)(void *arg), void *arg)
{
    x->gone = gone;
    x->gone_arg = arg;
}

void exchange_header_out(struct exchange *x, const char *name, const char *value)
{
    struct evkeyvalq *out = evhttp_request_get_output_headers(x->r);

    evhttp_remove_header(out, name);
    evhttp_add_header(out, name, value);
}

static void common_headers(struct exchange *x, const char *type)
{
    const char *origin = exchange_header(x, "Origin");

    exchange_header_out(x, "Content-Type", type);
    exchange_header_out(x, "X-Request-Id", x->id);
    exchange_header_out(x, "X-Content-Type-Options", "nosniff");
    if (origin && x->h->o.origin) {
        exchange_header_out(x, "Access-Control-Allow-Origin", x->h->o.origin);
        exchange_header_out(x, "Vary", "Origin");
    }
    if (x->h->draining)
        exchange_header_out(x, "Connection", "close");
}

static void over(struct exchange *x)
{
    x->gone = NULL;
    x->drained = NULL;
}

static void log_end(const struct exchange *x, int status, size_t n)
{
    log_line(LOG_INFO, "%s %s %d, %zu bytes, %.1f ms", x->id, exchange_path(x), status, n, 1e3 * exchange_seconds(x));
}

void exchange_reply(struct exchange *x, int status, const char *type, const void *data, size_t n)
{
    over(x);
    common_headers(x, type);
    log_end(x, status, n);
    if (n)
        evbuffer_add(x->body, data, n); /* without memory: shorter than it says; evhttp counts what is there */
    evhttp_send_reply(x->r, status, NULL, x->body);
}

void exchange_stream(struct exchange *x, const char *type)
{
    common_headers(x, type);
    exchange_header_out(x, "Cache-Control", "no-store");
    exchange_header_out(x, "X-Accel-Buffering", "no"); /* proxies pass events on as they come */
    x->streaming = 1;
    evhttp_send_reply_start(x->r, 200, NULL);
}

static void on_written(struct evhttp_connection *evcon, void *arg)
{
    struct exchange *x = arg;

    (void)evcon;
    if (x->drained)
        x->drained(x->drained_arg);
}

void exchange_on_drained(struct exchange *x, void (*drained)(void *arg), void *arg)
{
    x->drained = drained;
    x->drained_arg = arg;
}

void exchange_send_more(struct exchange *x, const void *data, size_t n)
{
    evbuffer_add(x->body, data, n); /* no memory: the connection will not have any, either */
}

void exchange_send(struct exchange *x, const void *data, size_t n)
{
    exchange_send_more(x, data, n);
    if (!evbuffer_get_length(x->body)) /* an empty chunk would be the end */
        return;
    evhttp_send_reply_chunk_with_cb(x->r, x->body, on_written, x);
    evbuffer_drain(x->body, evbuffer_get_length(x->body)); /* HEAD takes nothing */
}

int exchange_full(const struct exchange *x)
{
    return evbuffer_get_length(bufferevent_get_output(x->c->bev)) >= HTTP_WAITING_MAX;
}

void exchange_end(struct exchange *x)
{
    over(x);
    log_end(x, 200, 0);
    evhttp_send_reply_end(x->r);
}

/* ---- arrival ---- */

static void refuse(struct exchange *x, int status, const char *message)
{
    struct fault f = {.status = status};
    char text[FAULT_TEXT];
    size_t n;

    snprintf(f.message, sizeof f.message, "%s", message);
    n = fault_text(&f, fault_style(evhttp_uri_get_path(evhttp_request_get_evhttp_uri(x->r))), x->id, text);
    if (status == 401)
        exchange_header_out(x, "WWW-Authenticate", "Bearer");
    exchange_reply(x, status, "application/json", text, n);
}

static void send_file(struct exchange *x)
{
    exchange_header_out(x, "Content-Security-Policy",
                        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
                        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'");
    exchange_header_out(x, "Referrer-Policy", "no-referrer");
    exchange_header_out(x, "Cache-Control", "no-cache");
    exchange_reply(x, 200, x->route->type, x->route->bytes, x->route->n);
}

/* A page of an allowed origin asks what it may send: what it names, where these are names (clients' libraries add
 * headers of their own). */
static void preflight(struct exchange *x)
{
    const char *asked = exchange_header(x, "Access-Control-Request-Headers");

    if (!asked || strlen(asked) > 1000 ||
        asked[strspn(asked, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ")])
        asked = "authorization, content-type, x-api-key, anthropic-version";
    exchange_header_out(x, "Access-Control-Allow-Methods", "GET, POST");
    exchange_header_out(x, "Access-Control-Allow-Headers", asked);
    exchange_header_out(x, "Access-Control-Max-Age", "600");
    exchange_reply(x, 204, "text/plain", NULL, 0);
}

/* Who reads a request before us may take the other one of two. */
static int said_twice(struct exchange *x, const char *name)
{
    const struct evkeyval *h;
    int n = 0;

    for (h = evhttp_request_get_input_headers(x->r)->tqh_first; h; h = h->next.tqe_next)
        n += !evutil_ascii_strcasecmp(h->key, name);
    return n > 1;
}

static void handle(struct exchange *x)
{
    struct http *h = x->h;
    enum evhttp_cmd_type cmd = evhttp_request_get_command(x->r);
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(x->r);
    const char *path = uri ? evhttp_uri_get_path(uri) : NULL, *host = exchange_header(x, "Host");
    int status = 404;

    /* evhttp takes any version up to 1 and answers with the same */
    if (x->r->major != 1) {
        x->r->major = 1;
        x->r->minor = 0;
        refuse(x, 505, "HTTP/1.0 and 1.1 are spoken here");
        return;
    }
    if (x->r->minor > 1)
        x->r->minor = 1;
    if (exchange_header(x, "Transfer-Encoding") && exchange_header(x, "Content-Length")) {
        exchange_header_out(x, "Connection", "close");
        refuse(x, 400, "Transfer-Encoding and Content-Length exclude each other");
        return;
    }
    if (said_twice(x, "Content-Length") || said_twice(x, "Transfer-Encoding") || said_twice(x, "Host") ||
        (x->r->minor && !host)) {
        exchange_header_out(x, "Connection", "close");
        refuse(x, 400, "Host is needed once, Content-Length and Transfer-Encoding may be there once");
        return;
    }
    if ((h->loopback && !guard_host(host)) || !guard_origin(h->o.origin, exchange_header(x, "Origin"), host)) {
        h->count.refused++;
        refuse(x, 403, "pages of other origins may not use this server (--allow-origin)");
        return;
    }
    if (cmd == EVHTTP_REQ_OPTIONS && h->o.origin) {
        preflight(x);
        return;
    }
    x->route = path ? http_find(h, path, cmd == EVHTTP_REQ_POST ? HTTP_POST :
                                cmd == EVHTTP_REQ_GET || cmd == EVHTTP_REQ_HEAD ? HTTP_GET : 0, &status) : NULL;
    if ((!x->route || !x->route->open) && !guard_key(h->o.keys, h->o.n_keys, exchange_header(x, "Authorization"),
                                                     exchange_header(x, "X-Api-Key"))) {
        h->count.refused++;
        refuse(x, 401, "a valid API key is needed: Authorization: Bearer KEY");
    } else if (!x->route) {
        refuse(x, status, status == 405 ? "this path takes another method" : "there is no such path here");
    } else if (x->route->bytes) {
        send_file(x);
    } else {
        x->route->fn(x, x->route->arg);
    }
}

void exchange_came(struct evhttp_request *r, void *http)
{
    struct http *h = http;
    struct connection *c = connection_of(h, r);
    struct exchange *x = c ? calloc(1, sizeof *x) : NULL;

    h->count.requests++;
    if (!x || !(x->body = evbuffer_new())) {
        free(x);
        evhttp_send_error(r, 503, NULL);
        return;
    }
    x->c = c;
    x->h = h;
    x->r = r;
    clock_gettime(CLOCK_MONOTONIC, &x->came);
    snprintf(x->id, sizeof x->id, "req-%016llx", (unsigned long long)h->next_id++);
    if (!h->count.exchanges++)
        http_timers(h, 1);
    connection_busy(c, x);
    evhttp_request_set_on_complete_cb(r, on_complete, x);
    handle(x);
}
