/* Connections as evhttp does not see them: how many there are, how long a request takes to arrive, how many bytes
 * are on their way, and whether the client is still there while its answer is made (evhttp stops reading then,
 * so that it would notice at the next write only).
 *
 * evhttp names a connection to us only with its first whole request. Its bufferevent is ours, though, and from
 * the callbacks that evhttp sets on it right after it asked for it, its connection is known: adopt(). */
#define _GNU_SOURCE
#include <assert.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "coordinator/serve/http/inside.h"

enum { READ_SLACK = 64 << 10 }; /* marks of chunks; the next request's beginning */

/* No more are accepted while as many are open as may be: they wait in the kernel's queue. */
static void admit(struct http *h)
{
    struct evconnlistener *l = h->bound ? evhttp_bound_socket_get_listener(h->bound) : NULL;
    int full = h->count.connections >= h->o.connections;

    if (!l || h->draining || full == h->held)
        return;
    h->held = full;
    if (full)
        evconnlistener_disable(l);
    else
        evconnlistener_enable(l);
}

/* What is counted for c is n bytes from now on. */
static void count_bytes(struct connection *c, size_t n)
{
    c->h->count.arriving += n - c->arrived;
    c->arrived = n;
}

/* Bytes that came. Beyond what may be on its way at a time this connection goes: others hold the rest. */
static void on_bytes(struct evbuffer *b, const struct evbuffer_cb_info *info, void *arg)
{
    struct connection *c = arg;

    (void)b;
    c->arrived += info->n_added;
    c->h->count.arriving += info->n_added;
    if (info->n_added && c->h->count.arriving > c->h->o.arriving_bytes && c->deadline) {
        struct timeval now = {0, 0};

        event_add(c->deadline, &now); /* not from within a read */
    }
}

static void connection_free(struct connection *c)
{
    struct http *h = c->h;

    *c->at = c->next;
    if (c->next)
        c->next->at = c->at;
    count_bytes(c, 0);
    h->count.connections--;
    if (c->closed)
        event_free(c->closed);
    if (c->watched >= 0)
        close(c->watched);
    if (c->deadline)
        event_free(c->deadline);
    evbuffer_remove_cb(bufferevent_get_input(c->bev), on_bytes, c);
    bufferevent_decref(c->bev);
    free(c);
    admit(h);
}

/* evhttp's: it is about to free the connection. */
static void on_close(struct evhttp_connection *evcon, void *arg)
{
    struct connection *c = arg;

    (void)evcon;
    if (c->x)
        exchange_lost(c->x);
    connection_free(c);
}

void connection_drop(struct connection *c)
{
    bufferevent_trigger_event(c->bev, BEV_EVENT_READING | BEV_EVENT_TIMEOUT, 0);
}

/* Something came, perhaps the next request, or the other side's end, or a reset. */
static void on_stir(evutil_socket_t fd, short what, void *arg)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};

    (void)what;
    if (poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR))
        connection_drop(arg);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    connection_drop(arg);
}

static void wait_for_request(struct connection *c)
{
    struct timeval t = {c->h->o.arrive_s, 0};

    event_add(c->deadline, &t);
}

/* A client that vanished without a word: the kernel asks after a minute of silence, and gives up on data that is
 * not acknowledged. */
static void tune(int fd, uint32_t write_s)
{
    int on = 1, idle = 60, interval = 10, count = 3;
    unsigned unacked = write_s * 1000;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked, sizeof unacked);
}

/* Right after evhttp has made its connection over the bufferevent, before a byte was read. */
static void adopt(evutil_socket_t unused, short what, void *arg)
{
    struct connection *c = arg;
    bufferevent_data_cb reads = NULL, writes = NULL;
    bufferevent_event_cb events = NULL;
    void *evcon = NULL;
    int fd = bufferevent_getfd(c->bev);

    (void)unused, (void)what;
    bufferevent_getcb(c->bev, &reads, &writes, &events, &evcon);
    if (!reads || fd < 0) { /* evhttp had no memory for it and has freed it */
        connection_free(c);
        return;
    }
    c->evcon = evcon;
    assert(evhttp_connection_get_bufferevent(c->evcon) == c->bev);
    evhttp_connection_set_closecb(c->evcon, on_close, c);
    tune(fd, c->h->o.write_s);
    /* A descriptor of its own: told of edges (a second request that waits must not wake us again and again), which
     * libevent does not mix with the others' events; of resets, which it does not tell as EV_CLOSED. */
    c->watched = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (c->watched >= 0)
        c->closed = event_new(c->h->base, c->watched, EV_READ | EV_CLOSED | EV_ET | EV_PERSIST, on_stir, c);
    c->deadline = evtimer_new(c->h->base, on_deadline, c);
    if (!c->closed || !c->deadline)
        connection_drop(c);
    else
        wait_for_request(c);
}

struct bufferevent *connection_new(struct event_base *base, void *http)
{
    struct http *h = http;
    struct connection *c = calloc(1, sizeof *c);
    struct timeval now = {0, 0};
    struct bufferevent *b =
        h->tls ? tls_bufferevent(h->tls, base) : bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);

    if (!c || !b || event_base_once(base, -1, EV_TIMEOUT, adopt, c, &now)) {
        /* no memory. evhttp makes a plain bufferevent of its own if it gets none; connection_of finds nothing
         * for its requests, which are refused */
        free(c);
        return b;
    }
    bufferevent_incref(b);
    evbuffer_add_cb(bufferevent_get_input(b), on_bytes, c);
    /* evhttp takes a body when all of it is there, and reads on while it writes an answer */
    bufferevent_setwatermark(b, EV_READ, 0, h->o.header_bytes + h->o.body_bytes + READ_SLACK);
    c->h = h;
    c->bev = b;
    c->watched = -1;
    c->next = h->connections;
    c->at = &h->connections;
    if (c->next)
        c->next->at = &c->next;
    h->connections = c;
    h->count.connections++;
    h->count.accepted++;
    admit(h);
    return b;
}

struct connection *connection_of(struct http *h, struct evhttp_request *r)
{
    struct evhttp_connection *evcon = evhttp_request_get_connection(r);

    for (struct connection *c = h->connections; c; c = c->next)
        if (c->evcon == evcon)
            return c;
    return NULL;
}

void connection_busy(struct connection *c, struct exchange *x)
{
    c->x = x;
    event_del(c->deadline);
    event_add(c->closed, NULL);
}

void connection_free_again(struct connection *c)
{
    c->x = NULL;
    count_bytes(c, evbuffer_get_length(bufferevent_get_input(c->bev))); /* of the next request */
    event_del(c->closed);
    wait_for_request(c);
}
