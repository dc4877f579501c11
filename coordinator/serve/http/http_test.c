/* The HTTP side against a client that writes bytes: what is served, what is refused, who is thrown out, and
 * that nothing is left of any of them. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "coordinator/serve/http/inside.h"
#include "coordinator/serve/log.h"
#include "tests/test.h"

static struct rig {
    struct http *h;
    struct exchange *held; /* of /hold and /flood */
    _Atomic int gone, drained, came, over;
} rig;

/* ---- handlers ---- */

static void echo(struct exchange *x, void *arg)
{
    size_t n;
    const char *body = exchange_body(x, &n), *q = exchange_query(x, "q");

    (void)arg;
    exchange_reply(x, 200, "text/plain", q ? q : body, q ? strlen(q) : n);
}

static void on_gone(void *arg)
{
    struct rig *r = arg;

    r->held = NULL;
    r->gone++;
}

/* Answers when told. */
static void hold(struct exchange *x, void *arg)
{
    struct rig *r = arg;

    r->held = x;
    exchange_on_gone(x, on_gone, r);
    r->came++;
}

static void release(void *arg)
{
    struct rig *r = arg;

    if (r->held)
        exchange_reply(r->held, 200, "text/plain", "late", 4);
    r->held = NULL;
}

static void on_drained(void *arg)
{
    struct rig *r = arg;

    r->drained++;
}

enum { FLOOD = 24 << 20 }; /* more than sockets hold */

/* Sends on although the client is slow. */
static void flood(struct exchange *x, void *arg)
{
    struct rig *r = arg;
    static char block[1 << 16];

    memset(block, 'x', sizeof block);
    r->held = x;
    exchange_on_gone(x, on_gone, r);
    exchange_on_drained(x, on_drained, r);
    exchange_stream(x, "text/event-stream");
    for (size_t n = 0; n < FLOOD; n += sizeof block)
        exchange_send(x, block, sizeof block);
    CHECK(exchange_full(x));
    r->came++;
}

static void end_flood(void *arg)
{
    struct rig *r = arg;

    exchange_send(r->held, "end\n", 4);
    exchange_end(r->held);
    r->held = NULL;
}

static void drain_done(void *arg)
{
    struct rig *r = arg;

    r->over++;
}

static void start(struct http_options o)
{
    struct err e = {0};

    memset(&rig, 0, sizeof rig);
    o.host = "127.0.0.1";
    CHECK(!http_open(&o, &rig.h, &e), "%s", e.msg);
    CHECK(!http_route(rig.h, HTTP_GET, "/echo", 1, echo, NULL, &e) &&
              !http_route(rig.h, HTTP_POST, "/echo", 0, echo, NULL, &e) &&
              !http_route(rig.h, HTTP_GET, "/hold", 0, hold, &rig, &e) &&
              !http_route(rig.h, HTTP_GET, "/flood", 0, flood, &rig, &e) &&
              !http_file(rig.h, "/", "text/html", "<p>", 3, &e) && !http_start(rig.h, &e),
          "%s", e.msg);
}

/* ---- a client ---- */

static int dial(void)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(http_port(rig.h)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&a, sizeof a), "%s", strerror(errno));
    return fd;
}

static void say(int fd, const char *s)
{
    (void)!write(fd, s, strlen(s));
}

/* What comes within two seconds until `until` was there, or the end. */
static const char *hear(int fd, const char *until)
{
    static char text[1 << 20];
    size_t n = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};

    text[0] = 0;
    while (n < sizeof text - 1 && poll(&p, 1, 2000) > 0) {
        ssize_t k = read(fd, text + n, sizeof text - 1 - n);

        if (k <= 0)
            break;
        n += (size_t)k;
        text[n] = 0;
        if (until && strstr(text, until))
            break;
    }
    return text;
}

static const char *ask(const char *request, const char *until)
{
    static char keep[1 << 20];
    int fd = dial();

    say(fd, request);
    strcpy(keep, hear(fd, until));
    close(fd);
    return keep;
}

static int wait_until(_Atomic int *what, int value)
{
    for (int i = 0; i < 3000 && *what < value; i++)
        usleep(1000);
    return *what >= value;
}

/* 1: every connection has ended. */
static int all_gone(void)
{
    for (int i = 0; i < 3000; i++) {
        struct http_counts c = http_counts(rig.h);

        if (!c.connections && !c.exchanges && !c.arriving)
            return 1;
        usleep(1000);
    }
    return 0;
}

#define HAS(text, part) CHECK(strstr(text, part) != NULL, "'%s' is not in '%.300s'", part, text)
#define HOST "Host: localhost\r\n"

static void plain(void)
{
    int fd;
    const char *t;

    start((struct http_options){.port = 0});
    t = ask("GET /echo?q=a%20b HTTP/1.1\r\n" HOST "\r\n", "a b");
    HAS(t, "HTTP/1.1 200");
    HAS(t, "X-Request-Id: req-");
    HAS(ask("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc", "abc"), "\r\n\r\nabc");
    HAS(ask("POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", "abc"),
        "\r\n\r\nabc");
    HAS(ask("GET / HTTP/0.9\r\n\r\n", NULL), "HTTP/1.0 505");
    HAS(ask("GET / HTTP/1.7\r\n" HOST "Connection: close\r\n\r\n", NULL), "HTTP/1.1 200");
    HAS(ask("GET / HTTP/1.0\r\n\r\n", NULL), "<p>");
    HAS(ask("HEAD / HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n", NULL), "200 OK");
    t = ask("GET /none HTTP/1.1\r\n" HOST "\r\n", "}}");
    HAS(t, "404");
    HAS(t, "\"type\":\"not_found_error\",\"param\":null");
    HAS(ask("PUT /echo HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", "}}"), " 405 ");
    HAS(ask("POST /v1/messages/x HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", "}}"),
        "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\"");
    HAS(ask("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "}}"),
        " 400 ");
    HAS(ask("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 3\r\nContent-Length: 30\r\n\r\nabc", "}}"), " 400 ");
    HAS(ask("GET /echo?q=a HTTP/1.1\r\n" HOST "Host: evil.example\r\n\r\n", "}}"), " 400 ");
    HAS(ask("GET /echo?q=a HTTP/1.1\r\n\r\n", "}}"), " 400 ");
    /* other names of this machine and other pages */
    HAS(ask("GET /echo HTTP/1.1\r\nHost: evil.example\r\n\r\n", "}}"), " 403 ");
    HAS(ask("GET /echo HTTP/1.1\r\n" HOST "Origin: http://evil.example\r\n\r\n", "}}"), " 403 ");
    HAS(ask("GET /echo?q=1 HTTP/1.1\r\n" HOST "Origin: http://localhost\r\n\r\n", "\r\n\r\n1"), " 200 ");
    /* one connection: a request after the other, and the second before the first was answered */
    fd = dial();
    for (int i = 0; i < 2; i++) {
        say(fd, "GET /echo?q=one HTTP/1.1\r\n" HOST "\r\n");
        HAS(hear(fd, "one"), "one");
    }
    say(fd, "GET /echo?q=first HTTP/1.1\r\n" HOST "\r\nGET /echo?q=second HTTP/1.1\r\n" HOST "\r\n");
    t = hear(fd, "second");
    HAS(t, "first");
    HAS(t, "second");
    close(fd);
    CHECK(all_gone());
    http_close(rig.h);
}

static void keys(void)
{
    static const char *const key[] = {"k-1", "other"};
    const char *t;

    start((struct http_options){.keys = key, .n_keys = 2, .origin = "http://page.example"});
    t = ask("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", "}}");
    HAS(t, " 401 ");
    HAS(t, "WWW-Authenticate: Bearer");
    HAS(ask("POST /echo HTTP/1.1\r\n" HOST "Authorization: Bearer k-\r\nContent-Length: 0\r\n\r\n", "}}"), " 401 ");
    HAS(ask("POST /echo HTTP/1.1\r\n" HOST "Authorization: Bearer k-1k-1\r\nContent-Length: 0\r\n\r\n", "}}"), " 401 ");
    HAS(ask("POST /echo HTTP/1.1\r\n" HOST "Authorization: Bearer k-1\r\nContent-Length: 2\r\n\r\nhi", "hi"), " 200 ");
    HAS(ask("POST /echo HTTP/1.1\r\n" HOST "X-Api-Key: other\r\nContent-Length: 2\r\n\r\nhi", "hi"), " 200 ");
    HAS(ask("GET /nothing HTTP/1.1\r\n" HOST "\r\n", "}}"), " 401 ");
    HAS(ask("GET /echo?q=open HTTP/1.1\r\n" HOST "\r\n", "open"), " 200 ");
    HAS(ask("GET /echo HTTP/1.1\r\n" HOST "Origin: http://page.example\r\n\r\n", "\r\n\r\n"),
        "Access-Control-Allow-Origin: http://page.example");
    HAS(ask("OPTIONS /echo HTTP/1.1\r\n" HOST "Origin: http://page.example\r\n\r\n", "\r\n\r\n"),
        "Access-Control-Allow-Headers: authorization");
    HAS(ask("OPTIONS /echo HTTP/1.1\r\n" HOST "Origin: http://page.example\r\nAccess-Control-Request-Headers: x-stainless-os, "
            "authorization\r\n\r\n", "\r\n\r\n"),
        "Access-Control-Allow-Headers: x-stainless-os, authorization");
    HAS(ask("OPTIONS /echo HTTP/1.1\r\n" HOST "Origin: http://page.example\r\nAccess-Control-Request-Headers: a:b\r\n\r\n",
            "\r\n\r\n"), "Access-Control-Allow-Headers: authorization");
    CHECK(all_gone());
    http_close(rig.h);
}

static void limits(void)
{
    static char large[3 << 20];
    int fd, many[6];
    struct timespec a, b;
    const char *t;

    start((struct http_options){
        .header_bytes = 1000, .body_bytes = 10000, .arriving_bytes = 25000, .arrive_s = 1, .connections = 4});
    snprintf(large, sizeof large, "GET /echo HTTP/1.1\r\n" HOST "X: %02000d\r\n\r\n", 1);
    t = ask(large, NULL);
    CHECK(!strstr(t, " 200 "), "%.100s", t);
    HAS(ask("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 20000\r\n\r\nabc", NULL), " 413 ");
    HAS(ask("POST /echo HTTP/1.1\r\n" HOST "Content-Length: -5\r\n\r\nabc", NULL), " 400 ");
    snprintf(large, sizeof large,
             "POST /echo HTTP/1.1\r\n" HOST
             "Transfer-Encoding: chunked\r\n\r\n1fff\r\n%08191d\r\n1fff\r\n%08191d\r\n0\r\n\r\n",
             1, 2);
    t = ask(large, NULL);
    CHECK(!strstr(t, " 200 "), "%.100s", t);
    t = ask("POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", NULL);
    CHECK(!strstr(t, " 200 "), "%.100s", t);
    CHECK(all_gone());
    /* half a request does not stay: not when nothing comes, not when it comes slowly */
    clock_gettime(CLOCK_MONOTONIC, &a);
    fd = dial();
    say(fd, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 100\r\n\r\n");
    for (int i = 0; i < 30; i++) {
        if (send(fd, "x", 1, MSG_NOSIGNAL) < 0)
            break;
        usleep(100000);
    }
    CHECK_STR(hear(fd, NULL), "");
    clock_gettime(CLOCK_MONOTONIC, &b);
    CHECK(b.tv_sec - a.tv_sec < 5);
    close(fd);
    CHECK(all_gone());
    /* four connections: the fifth waits until one goes */
    for (int i = 0; i < 5; i++)
        many[i] = dial();
    say(many[4], "GET /echo?q=fifth HTTP/1.1\r\n" HOST "\r\n");
    usleep(100000);
    CHECK_EQ(http_counts(rig.h).connections, 4);
    close(many[0]);
    HAS(hear(many[4], "fifth"), "fifth");
    for (int i = 1; i < 5; i++)
        close(many[i]);
    CHECK(all_gone());
    /* bodies that are together too long */
    for (int i = 0; i < 4; i++) {
        many[i] = dial();
        snprintf(large, sizeof large, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 9500\r\n\r\n%09000d", 1);
        say(many[i], large);
        usleep(20000);
    }
    CHECK(http_counts(rig.h).connections < 4);
    CHECK(http_counts(rig.h).arriving <= 25000);
    for (int i = 0; i < 4; i++)
        close(many[i]);
    CHECK(all_gone());
    http_close(rig.h);
}

static void clients_that_go(void)
{
    int fd;
    const char *t;
    size_t n = 0;
    static char block[1 << 16];

    start((struct http_options){.write_s = 5});
    fd = dial();
    say(fd, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    CHECK(wait_until(&rig.came, 1));
    http_post(rig.h, release, &rig);
    HAS(hear(fd, "late"), "late");
    /* gone while nothing is written */
    say(fd, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    CHECK(wait_until(&rig.came, 2));
    close(fd);
    CHECK(wait_until(&rig.gone, 1));
    /* the same with a second request behind the first, and a half-closed socket */
    fd = dial();
    say(fd, "GET /hold HTTP/1.1\r\n" HOST "\r\nGET /echo HTTP/1.1\r\n");
    CHECK(wait_until(&rig.came, 3));
    shutdown(fd, SHUT_WR);
    CHECK(wait_until(&rig.gone, 2));
    close(fd);
    /* a reset, with something unread before it and without */
    for (int i = 0; i < 2; i++) {
        struct linger now = {1, 0};

        fd = dial();
        say(fd, i ? "GET /hold HTTP/1.1\r\n" HOST "\r\nGET" : "GET /hold HTTP/1.1\r\n" HOST "\r\n");
        CHECK(wait_until(&rig.came, 4 + i));
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close(fd);
        CHECK(wait_until(&rig.gone, 3 + i));
    }
    CHECK(all_gone());
    /* a slow reader: the sender is told to wait, then that it may go on */
    fd = dial();
    say(fd, "GET /flood HTTP/1.1\r\n" HOST "\r\n");
    CHECK(wait_until(&rig.came, 6));
    usleep(50000);
    CHECK_EQ(rig.drained, 0);
    while (n < FLOOD) {
        ssize_t k = read(fd, block, sizeof block);

        if (k <= 0)
            break;
        n += (size_t)k;
    }
    CHECK(wait_until(&rig.drained, 1));
    http_post(rig.h, end_flood, &rig);
    t = hear(fd, "0\r\n\r\n");
    HAS(t, "end\n\r\n0\r\n\r\n");
    close(fd);
    /* a reader who goes in the middle */
    fd = dial();
    say(fd, "GET /flood HTTP/1.1\r\n" HOST "\r\n");
    CHECK(wait_until(&rig.came, 7));
    close(fd);
    CHECK(wait_until(&rig.gone, 5));
    CHECK(all_gone());
    http_close(rig.h);
}

static void draining(void)
{
    int fd, idle;

    start((struct http_options){.write_s = 5});
    fd = dial();
    idle = dial();
    say(fd, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    CHECK(wait_until(&rig.came, 1));
    http_drain(rig.h, 10, drain_done, &rig);
    CHECK_STR(hear(idle, NULL), ""); /* closed */
    CHECK_EQ(rig.over, 0);
    http_post(rig.h, release, &rig);
    HAS(hear(fd, NULL), "Connection: close");
    CHECK(wait_until(&rig.over, 1));
    close(fd);
    close(idle);
    http_close(rig.h);
    /* one that does not end is not waited for, and is told that it is over */
    start((struct http_options){.write_s = 5});
    fd = dial();
    say(fd, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    CHECK(wait_until(&rig.came, 1));
    http_drain(rig.h, 1, drain_done, &rig);
    CHECK(wait_until(&rig.over, 1));
    http_close(rig.h);
    CHECK_EQ(rig.gone, 1);
    close(fd);
}

static void guards(void)
{
    CHECK(guard_host("localhost:80") && guard_host("127.0.0.1") && guard_host("[::1]:8080") &&
          guard_host("LOCALHOST") && guard_host("127.1.2.3:1"));
    CHECK(!guard_host("localhost.evil.example") && !guard_host("127.0.0.1.evil.example") && !guard_host("") &&
          !guard_host("[::2]"));
    CHECK(guard_origin(NULL, NULL, "a") && guard_origin(NULL, "http://a:1", "a:1") &&
          guard_origin("*", "http://b", "a"));
    CHECK(!guard_origin(NULL, "null", "a") && !guard_origin(NULL, "http://a", "a:1") &&
          !guard_origin("http://c", "http://b", "a"));
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    log_set(LOG_WARN);
    guards();
    plain();
    keys();
    limits();
    clients_that_go();
    draining();
    return test_end();
}
