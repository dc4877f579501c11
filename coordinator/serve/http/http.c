/* The server's thread: its loop, what is served where, and its end. Waits for nothing but its loop. */
#define _GNU_SOURCE
#include "coordinator/serve/http/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "coordinator/serve/http/inside.h"

enum { ARRIVE_S = 60, WRITE_S = 60 };

/* ---- routes ---- */

static struct route *new_route(struct http *h, enum http_method m, const char *path, struct err *e)
{
    if (h->n_routes == HTTP_ROUTES) {
        err_set(e, -ENOSPC, "%s: more than %d paths are served", path, HTTP_ROUTES);
        return NULL;
    }
    h->route[h->n_routes] = (struct route){.method = m, .path = path};
    return &h->route[h->n_routes++];
}

int http_route(struct http *h, enum http_method method, const char *path, int open, http_handler *fn, void *arg,
               struct err *e)
{
    struct route *r = new_route(h, method, path, e);

    if (!r)
        return -ENOSPC;
    r->open = open;
    r->fn = fn;
    r->arg = arg;
    return 0;
}

int http_file(struct http *h, const char *path, const char *type, const void *bytes, size_t n, struct err *e)
{
    struct route *r = new_route(h, HTTP_GET, path, e);

    if (!r)
        return -ENOSPC;
    r->open = 1;
    r->type = type;
    r->bytes = bytes;
    r->n = n;
    return 0;
}

/* "/slots/" followed by a star stands for all paths below it. */
static int is_route(const char *route, const char *path)
{
    size_t n = strlen(route);

    return n && route[n - 1] == '*' ? !strncmp(route, path, n - 1) : !strcmp(route, path);
}

const struct route *http_find(const struct http *h, const char *path, enum http_method m, int *status)
{
    *status = 404;
    for (size_t i = 0; i < h->n_routes; i++)
        if (is_route(h->route[i].path, path)) {
            if (h->route[i].method == m)
                return &h->route[i];
            *status = 405;
        }
    return NULL;
}

/* ---- calls from other threads, timers ---- */

static void ring(int fd)
{
    uint64_t one = 1;

    (void)!write(fd, &one, sizeof one); /* it is full: a ring is under way already */
}

static void on_posts(evutil_socket_t fd, short what, void *arg)
{
    struct http *h = arg;
    struct post *p;
    uint64_t n;

    (void)what;
    (void)!read(fd, &n, sizeof n);
    pthread_mutex_lock(&h->lock);
    p = h->first;
    h->first = NULL;
    h->last = &h->first;
    pthread_mutex_unlock(&h->lock);
    while (p) {
        struct post *next = p->next;

        p->fn(p->arg);
        free(p);
        p = next;
    }
}

int http_post(struct http *h, void (*fn)(void *arg), void *arg)
{
    struct post *p = malloc(sizeof *p);

    if (!p)
        return -ENOMEM;
    *p = (struct post){NULL, fn, arg};
    pthread_mutex_lock(&h->lock);
    *h->last = p;
    h->last = &p->next;
    pthread_mutex_unlock(&h->lock);
    ring(h->post_fd);
    return 0;
}

static void on_watch(evutil_socket_t fd, short what, void *arg)
{
    struct http_event *w = arg;
    uint64_t n;

    (void)what;
    if (w->fd >= 0)
        (void)!read(fd, &n, sizeof n);
    w->fn(w->arg);
}

/* Timers run only while somebody is served: an idle server sleeps. */
void http_timers(struct http *h, int on)
{
    for (size_t i = 0; i < h->n_watches; i++)
        if (h->watch[i].repeats && on)
            event_add(h->watch[i].ev, &h->watch[i].every);
        else if (h->watch[i].repeats)
            event_del(h->watch[i].ev);
}

static int watch(struct http *h, struct http_event w, struct err *e)
{
    struct http_event *to = &h->watch[h->n_watches];

    if (h->n_watches == HTTP_WATCHES)
        return err_set(e, -ENOSPC, "more than %d things are watched", HTTP_WATCHES);
    *to = w;
    to->h = h;
    to->ev = event_new(h->base, w.fd, w.fd >= 0 ? EV_READ | EV_PERSIST : w.repeats ? EV_PERSIST : 0, on_watch, to);
    if (!to->ev || (w.fd >= 0 && event_add(to->ev, NULL)))
        return err_set(e, -ENOMEM, "no memory for the HTTP server");
    h->n_watches++;
    return 0;
}

int http_watch(struct http *h, int fd, void (*fn)(void *arg), void *arg, struct err *e)
{
    return watch(h, (struct http_event){.fd = fd, .fn = fn, .arg = arg}, e);
}

int http_every(struct http *h, uint32_t ms, void (*fn)(void *arg), void *arg, struct err *e)
{
    return watch(h,
                 (struct http_event){
                     .fd = -1, .fn = fn, .arg = arg, .repeats = 1, .every = {ms / 1000, (long)(ms % 1000) * 1000}},
                 e);
}

struct http_event *http_timer(struct http *h, void (*fn)(void *arg), void *arg, struct err *e)
{
    return watch(h, (struct http_event){.fd = -1, .fn = fn, .arg = arg}, e) ? NULL : &h->watch[h->n_watches - 1];
}

void http_timer_set(struct http_event *t, uint32_t us)
{
    struct timeval after = {us / 1000000, (long)(us % 1000000)};

    event_add(t->ev, &after);
}

/* ---- opening ---- */

static int is_loopback(struct evhttp_bound_socket *b)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;

    if (getsockname(evhttp_bound_socket_get_fd(b), (struct sockaddr *)&a, &n))
        return 0;
    if (a.ss_family == AF_INET)
        return ntohl(((struct sockaddr_in *)&a)->sin_addr.s_addr) >> 24 == 127;
    return a.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)&a)->sin6_addr);
}

uint16_t http_port(const struct http *h)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;

    if (getsockname(evhttp_bound_socket_get_fd(h->bound), (struct sockaddr *)&a, &n))
        return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

int http_is_local(const struct http *h)
{
    return h->loopback;
}

static void defaults(struct http_options *o)
{
    o->header_bytes = o->header_bytes ? o->header_bytes : HTTP_HEADERS_MAX;
    o->body_bytes = o->body_bytes ? o->body_bytes : HTTP_BODY_MAX;
    o->arriving_bytes = o->arriving_bytes ? o->arriving_bytes : HTTP_ARRIVING_MAX;
    o->connections = o->connections ? o->connections : HTTP_CONNECTIONS_MAX;
    o->arrive_s = o->arrive_s ? o->arrive_s : ARRIVE_S;
    o->write_s = o->write_s ? o->write_s : WRITE_S;
}

static int open_loop(struct http *h, struct err *e)
{
    h->base = event_base_new();
    h->ev = h->base ? evhttp_new(h->base) : NULL;
    h->post_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->post_ev = h->base ? event_new(h->base, h->post_fd, EV_READ | EV_PERSIST, on_posts, h) : NULL;
    if (!h->ev || h->post_fd < 0 || !h->post_ev || event_add(h->post_ev, NULL))
        return err_set(e, -ENOMEM, "the HTTP server cannot start: no memory, or too many open files");
    if (!(event_base_get_features(h->base) & EV_FEATURE_EARLY_CLOSE))
        return err_set(e, -ENOSYS, "the HTTP server needs libevent's epoll (EVENT_NOEPOLL is set?)");
    evhttp_set_bevcb(h->ev, connection_new, h);
    evhttp_set_gencb(h->ev, exchange_came, h);
    evhttp_set_max_headers_size(h->ev, (ev_ssize_t)h->o.header_bytes);
    evhttp_set_max_body_size(h->ev, (ev_ssize_t)h->o.body_bytes);
    evhttp_set_timeout(h->ev, (int)h->o.write_s);
    evhttp_set_allowed_methods(h->ev, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST | EVHTTP_REQ_OPTIONS |
                                          EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE | EVHTTP_REQ_PATCH);
    return 0;
}

static int bind_port(struct http *h, struct err *e)
{
    const char *host = strcmp(h->o.host, "localhost") ? h->o.host : "127.0.0.1";

    errno = 0;
    h->bound = evhttp_bind_socket_with_handle(h->ev, host, h->o.port);
    if (!h->bound)
        return err_set(e, errno ? -errno : -EINVAL, "cannot listen on %s port %u: %s", h->o.host, h->o.port,
                       errno ? strerror(errno) : "no such address");
    evconnlistener_disable(evhttp_bound_socket_get_listener(h->bound));
    h->held = 1;
    h->loopback = is_loopback(h->bound);
    return 0;
}

int http_open(const struct http_options *o, struct http **out, struct err *e)
{
    struct http *h = calloc(1, sizeof *h);
    int rc;

    if (!h)
        return err_set(e, -ENOMEM, "no memory for the HTTP server");
    h->o = *o;
    h->last = &h->first;
    h->post_fd = -1;
    pthread_mutex_init(&h->lock, NULL);
    defaults(&h->o);
    if (getrandom(&h->next_id, sizeof h->next_id, 0) != sizeof h->next_id)
        h->next_id = 0; /* ids are for logs */
    rc = o->tls_cert ? tls_open(o->tls_cert, o->tls_key, &h->tls, e) : 0;
    if (!rc && !(rc = open_loop(h, e)))
        rc = bind_port(h, e);
    if (rc) {
        http_close(h);
        return rc;
    }
    *out = h;
    return 0;
}

static void *loop(void *arg)
{
    struct http *h = arg;

    pthread_setname_np(pthread_self(), "http");
    event_base_loop(h->base, EVLOOP_NO_EXIT_ON_EMPTY);
    return NULL;
}

int http_start(struct http *h, struct err *e)
{
    sigset_t all, before;
    int rc;

    h->held = 0;
    evconnlistener_enable(evhttp_bound_socket_get_listener(h->bound));
    sigfillset(&all); /* signals are the main thread's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&h->thread, NULL, loop, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return err_set(e, -rc, "no thread for the HTTP server: %s", strerror(rc));
    h->running = 1;
    return 0;
}

/* ---- the end ---- */

static void drain_over(struct http *h)
{
    void (*done)(void *arg) = h->drained;

    h->drained = NULL;
    if (done)
        done(h->drained_arg);
}

static void on_drain_time(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    drain_over(arg);
}

void http_exchange_over(struct http *h)
{
    if (!h->count.exchanges)
        http_timers(h, 0);
    if (h->draining && !h->count.exchanges)
        drain_over(h);
}

static void begin_drain(void *arg)
{
    struct http *h = arg;
    struct timeval t = {h->draining, 0};

    evhttp_del_accept_socket(h->ev, h->bound);
    h->bound = NULL;
    for (struct connection *c = h->connections, *next; c; c = next) {
        next = c->next;
        if (!c->x && c->evcon)
            connection_drop(c);
    }
    h->drain_ev = evtimer_new(h->base, on_drain_time, h);
    if (!h->count.exchanges || !h->drain_ev || event_add(h->drain_ev, &t))
        drain_over(h);
}

int http_drain(struct http *h, uint32_t seconds, void (*done)(void *arg), void *arg)
{
    h->drained = done;
    h->drained_arg = arg;
    h->draining = seconds ? (int)seconds : 1;
    return http_post(h, begin_drain, h);
}

static void end_loop(void *arg)
{
    event_base_loopbreak(arg);
}

void http_close(struct http *h)
{
    if (!h)
        return;
    if (h->running) {
        while (http_post(h, end_loop, h->base))
            usleep(1000);
        pthread_join(h->thread, NULL);
    }
    h->draining = 0;
    h->drained = NULL;
    if (h->ev)
        evhttp_free(h->ev);
    if (h->base)
        event_base_loop(h->base, EVLOOP_NONBLOCK); /* libevent frees some things there */
    for (size_t i = 0; i < h->n_watches; i++)
        event_free(h->watch[i].ev);
    if (h->post_ev)
        event_free(h->post_ev);
    if (h->drain_ev)
        event_free(h->drain_ev);
    while (h->first) {
        struct post *p = h->first;

        h->first = p->next;
        free(p);
    }
    if (h->base)
        event_base_free(h->base);
    if (h->post_fd >= 0)
        close(h->post_fd);
    tls_close(h->tls);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

struct http_counts http_counts(const struct http *h)
{
    return h->count;
}
