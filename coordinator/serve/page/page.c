/* Who watches gets what the engine lights, ten times a second, and figures. Everything here but page_ready and
 * page_drain is the HTTP thread's, which never waits: a client that takes too little misses frames. */
#include "coordinator/serve/page/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/json/json_write.h"
#include "coordinator/serve/page/files.h"
#include "shm/bell.h" /* now_ns */

enum {
    FRAME_MS = 100,
    FRAMES_A_FIGURE = 5,
    FRAME_USES = 20000, /* experts of one frame; more come with the next */
};

struct watcher {
    struct page *p;
    struct exchange *x; /* NULL: free */
};
struct page {
    struct http *http;
    struct lights *lights;
    struct jobs *_Atomic jobs; /* NULL: not ready */
    struct watcher watcher[PAGE_WATCHERS];
    unsigned n_watchers, frames;
    int draining;
    uint64_t tokens; /* told so far */
    struct light *used;
    char *text; /* of a frame */
    size_t text_cap;
};

/* ---- events ---- */

static void send_all(struct page *p, const char *text, size_t n)
{
    for (int i = 0; i < PAGE_WATCHERS; i++)
        if (p->watcher[i].x && !exchange_full(p->watcher[i].x))
            exchange_send(p->watcher[i].x, text, n);
}

/* "event: NAME", "data: ..."; to x, or to all. */
static void send_json(struct page *p, struct exchange *x, const char *name, struct json_out *o)
{
    struct err e = {0};
    const char *json;
    size_t n, len;
    char *text;

    if (!o)
        return;
    if (!json_text(o, &json, &n, &e) && (text = malloc(n + 64))) {
        len = (size_t)sprintf(text, "event: %s\ndata: ", name);
        memcpy(text + len, json, n);
        memcpy(text + len + n, "\n\n", 2);
        if (x)
            exchange_send(x, text, len + n + 2);
        else
            send_all(p, text, len + n + 2);
        free(text);
    }
    json_out_free(o);
}

static void send_shape(struct page *p, struct exchange *x)
{
    struct json_out *o = json_out_new(0);

    if (!o)
        return;
    json_open_object(o);
    json_key(o, "experts");
    json_open_array(o);
    for (uint32_t i = 0; i < p->lights->n_layers; i++)
        json_put_u64(o, p->lights->of_layer[i]);
    json_close_array(o);
    json_close_object(o);
    send_json(p, x, "shape", o);
}

static void send_lit(struct page *p)
{
    uint64_t tokens, steps;
    size_t n = lights_take(p->lights, p->used, FRAME_USES, &tokens, &steps);
    char *t = p->text, *end = p->text + p->text_cap;

    if (!n && tokens == p->tokens)
        return;
    t += snprintf(t, (size_t)(end - t), "event: lit\ndata: {\"tokens\":%llu,\"used\":[", (unsigned long long)(tokens - p->tokens));
    for (size_t i = 0; i < n; i++)
        t += snprintf(t, (size_t)(end - t), "%s%llu", i ? "," : "",
                      ((unsigned long long)p->used[i].layer * p->lights->n_experts + p->used[i].expert) * 16 + p->used[i].last * 8u +
                          p->used[i].tiers);
    t += snprintf(t, (size_t)(end - t), "]}\n\n");
    p->tokens = tokens;
    send_all(p, p->text, (size_t)(t - p->text));
}

/* ---- figures ---- */

static void put(struct json_out *o, const char *key, uint64_t v)
{
    json_key(o, key);
    json_put_u64(o, v);
}

/* Pages in memory that are the process's own, and those it shares with others; bytes. */
static int memory_of(int pid, uint64_t *own, uint64_t *shared)
{
    unsigned long long all, resident, files;
    char path[40];
    FILE *f;
    int n;

    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    f = fopen(path, "re");
    if (!f)
        return 0;
    n = fscanf(f, "%llu %llu %llu", &all, &resident, &files);
    fclose(f);
    if (n != 3 || files > resident)
        return 0;
    *own = (resident - files) * (uint64_t)sysconf(_SC_PAGESIZE);
    *shared = files * (uint64_t)sysconf(_SC_PAGESIZE);
    return 1;
}

static void put_process(struct json_out *o, const char *name, int pid, uint64_t card)
{
    uint64_t own, shared;

    if (!memory_of(pid, &own, &shared)) /* it has just ended */
        return;
    json_open_object(o);
    json_key(o, "name");
    json_put_str(o, name);
    put(o, "pid", (uint64_t)pid);
    put(o, "own", own);
    put(o, "shared", shared);
    put(o, "card", card);
    json_close_object(o);
}

static void put_engine(struct json_out *o, const struct engine_stats *s, uint64_t at_ns)
{
    uint64_t card = 0, ram = 0;

    for (uint32_t i = 0; i < s->n_workers; i++)
        *(s->worker[i].card >= 0 ? &card : &ram) += s->worker[i].weight_bytes;
    json_key(o, "engine");
    json_open_object(o);
    put(o, "ms", at_ns / 1000000);
    put(o, "steps", s->steps);
    put(o, "items", s->items + s->own_items);
    put(o, "card_items", s->card_items + s->own_items);
    put(o, "disk_items", s->disk_items);
    put(o, "card_bytes", card);
    put(o, "ram_bytes", ram);
    put(o, "disk_bytes", s->bytes_read);
    json_close_object(o);
}

static void send_figures(struct page *p)
{
    struct jobs *j = atomic_load_explicit(&p->jobs, memory_order_acquire);
    struct json_out *o = json_out_new(0);
    struct engine_stats s;
    struct jobs_stats q;
    uint64_t at_ns;

    if (!o || !lights_stats(p->lights, &s, &at_ns)) {
        json_out_free(o);
        return;
    }
    jobs_stats(j, &q, NULL, 0);
    json_open_object(o);
    put(o, "ms", now_ns() / 1000000);
    put(o, "predicted", q.predicted_tokens);
    put(o, "prompt", q.prompt_tokens);
    put(o, "busy", q.busy);
    put(o, "slots", q.n_slots);
    put(o, "waiting", q.waiting);
    put_engine(o, &s, at_ns);
    json_key(o, "processes");
    json_open_array(o);
    put_process(o, "coordinator", (int)getpid(), 0);
    for (uint32_t i = 0; i < s.n_workers; i++)
        put_process(o, s.worker[i].name, s.worker[i].pid, s.worker[i].card >= 0 ? s.card_bytes : 0);
    json_close_array(o);
    json_close_object(o);
    send_json(p, NULL, "figures", o);
}

static void frame(void *arg)
{
    struct page *p = arg;

    if (!p->n_watchers)
        return;
    send_lit(p);
    if (p->frames++ % FRAMES_A_FIGURE == 0)
        send_figures(p);
}

/* ---- who watches ---- */

static void watcher_gone(void *arg)
{
    struct watcher *w = arg;

    w->x = NULL;
    if (!--w->p->n_watchers)
        lights_watch(w->p->lights, 0);
}

static void on_routes(struct exchange *x, void *arg)
{
    static const char busy[] = "{\"error\":{\"message\":\"Loading model\",\"type\":\"unavailable_error\",\"param\":null,\"code\":503}}",
                      many[] = "{\"error\":{\"message\":\"Too many pages watch already\",\"type\":\"unavailable_error\",\"param\":null,\"code\":503}}";
    struct page *p = arg;
    struct watcher *w = p->watcher;

    while (w < p->watcher + PAGE_WATCHERS && w->x)
        w++;
    if (!atomic_load_explicit(&p->jobs, memory_order_acquire) || p->draining) {
        exchange_reply(x, 503, "application/json", busy, sizeof busy - 1);
        return;
    }
    if (w == p->watcher + PAGE_WATCHERS) {
        exchange_reply(x, 503, "application/json", many, sizeof many - 1);
        return;
    }
    w->x = x;
    if (!p->n_watchers++) {
        uint64_t steps;
        lights_watch(p->lights, 1);
        lights_take(p->lights, p->used, 0, &p->tokens, &steps);
    }
    p->frames = 0; /* figures with the next frame */
    exchange_on_gone(x, watcher_gone, w);
    exchange_header_out(x, "Cache-Control", "no-store");
    exchange_stream(x, "text/event-stream");
    send_shape(p, x);
}

static void send_away(void *arg)
{
    struct page *p = arg;

    p->draining = 1;
    for (int i = 0; i < PAGE_WATCHERS; i++) {
        struct exchange *x = p->watcher[i].x;
        if (!x)
            continue;
        watcher_gone(&p->watcher[i]);
        exchange_end(x);
    }
}

/* ---- beginning and end ---- */

int page_open(struct http *h, struct lights *l, struct page **out, struct err *e)
{
    struct page *p = calloc(1, sizeof *p);
    int rc = 0;

    if (!p)
        return err_set(e, -ENOMEM, "no memory for the page");
    p->http = h;
    p->lights = l;
    p->text_cap = FRAME_USES * 12 + 200;
    p->used = malloc(FRAME_USES * sizeof *p->used);
    p->text = malloc(p->text_cap);
    for (int i = 0; i < PAGE_WATCHERS; i++)
        p->watcher[i].p = p;
    if (!p->used || !p->text)
        rc = err_set(e, -ENOMEM, "no memory for the page");
    for (size_t i = 0; i < page_n_files && !rc; i++)
        rc = http_file(h, page_files[i].path, page_files[i].type, page_files[i].bytes,
                       (size_t)(page_files[i].end - page_files[i].bytes), e);
    if (!rc && !(rc = http_route(h, HTTP_GET, "/routes", 0, on_routes, p, e)))
        rc = http_every(h, FRAME_MS, frame, p, e);
    if (rc) {
        page_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

void page_ready(struct page *p, struct jobs *j)
{
    atomic_store_explicit(&p->jobs, j, memory_order_release);
}

void page_drain(struct page *p)
{
    http_post(p->http, send_away, p);
}

void page_close(struct page *p)
{
    if (!p)
        return;
    free(p->used);
    free(p->text);
    free(p);
}
