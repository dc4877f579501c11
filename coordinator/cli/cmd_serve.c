/* conclave serve: HTTP in one thread, reading of requests in another, this one computes. Listens before the
 * model is loaded (503 until then), ends its answers before it leaves. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "coordinator/chat/chat.h"
#include "coordinator/cli/answer_flags.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/common.h"
#include "coordinator/cli/keys.h"
#include "coordinator/cli/output.h"
#include "coordinator/cli/sample_flags.h"
#include "coordinator/cli/settings.h"
#include "coordinator/cli/stop.h"
#include "coordinator/cli/version.h"
#include "coordinator/model/tokenizer.h"
#include "coordinator/sample/grammar.h"
#include "coordinator/serve/api/api.h"
#include "coordinator/serve/http/http.h"
#include "coordinator/serve/jobs.h"
#include "coordinator/serve/log.h"
#include "coordinator/serve/page/page.h"
#include "shm/seg.h"

struct serve_flags {
    const char *host, *alias, *keys, *key_file, *tls_cert, *tls_key, *origin, *config;
    uint32_t port, parallel, queue, timeout, arrive, connections, drain, ping, seconds;
    uint64_t body, arriving;
    int no_metrics, no_slots, no_props, log;
};

enum { AFTER_DRAIN = 10 };

#define AT(x) offsetof(struct serve_flags, x)
static const struct flag serve_table[] = {
    {.name = "host",
     .arg = "ADDRESS",
     .group = "server",
     .kind = FLAG_STRING,
     .at = AT(host),
     .help = "address to listen on; 0.0.0.0 or ::: all of this machine's, then give it --api-key, too"},
    {.name = "port",
     .arg = "N",
     .kind = FLAG_U32,
     .at = AT(port),
     .max = 65535,
     .help = "port to listen on; 0: any free one, which is said"},
    {.name = "parallel|n-parallel",
     .arg = "N",
     .kind = FLAG_U32,
     .at = AT(parallel),
     .min = 1,
     .max = JOBS_SLOTS_MOST,
     .help = "answers that are made beside each other, each with a context of its own; the text of none depends on the "
             "others"},
    {.name = "queue",
     .arg = "N",
     .kind = FLAG_U32,
     .at = AT(queue),
     .min = 1,
     .max = 100000,
     .help = "answers that may wait for a place, first come, first served; more are refused (429)"},
    {.name = "alias",
     .arg = "NAME",
     .kind = FLAG_STRING,
     .at = AT(alias),
     .shown = "the file's name",
     .help = "the model's name, as clients see it"},
    {.name = "config",
     .arg = "FILE",
     .kind = FLAG_STRING,
     .at = AT(config),
     .help = "read flags from FILE: lines name = value (INI or TOML) under [serve]; the command line wins"},
    {.name = "api-key",
     .arg = "KEYS",
     .group = "who may ask",
     .kind = FLAG_STRING,
     .at = AT(keys),
     .shown = "everybody may",
     .help =
         "keys that clients must show one of, with commas between. Others on this machine can see the command line: "
         "CONCLAVE_ARG_API_KEY or --api-key-file hide it"},
    {.name = "api-key-file",
     .arg = "FILE",
     .kind = FLAG_STRING,
     .at = AT(key_file),
     .help = "the same from a file, one a line"},
    {.name = "tls-cert",
     .arg = "FILE",
     .kind = FLAG_STRING,
     .at = AT(tls_cert),
     .help = "serve HTTPS with this certificate and its chain (PEM)"},
    {.name = "tls-key",
     .arg = "FILE",
     .kind = FLAG_STRING,
     .at = AT(tls_key),
     .help = "the certificate's key (PEM, no passphrase)"},
    {.name = "allow-origin",
     .arg = "ORIGIN",
     .kind = FLAG_STRING,
     .at = AT(origin),
     .shown = "none but its own",
     .help = "let pages of this other origin ask, as in https://chat.example; *: of all"},
    {.name = "timeout",
     .arg = "SECONDS",
     .group = "limits",
     .kind = FLAG_U32,
     .at = AT(timeout),
     .min = 1,
     .max = 86400,
     .help = "a client that takes nothing of its answer for so long is gone"},
    {.name = "request-timeout",
     .arg = "SECONDS",
     .kind = FLAG_U32,
     .at = AT(arrive),
     .min = 1,
     .max = 86400,
     .help = "a request must arrive as a whole within this time; a connection without one is closed after it"},
    {.name = "answer-timeout",
     .arg = "SECONDS",
     .kind = FLAG_U32,
     .at = AT(seconds),
     .max = 1 << 30,
     .shown = "0: none",
     .help = "an answer that takes longer, waiting included, ends as if cut by its length"},
    {.name = "max-body",
     .arg = "BYTES",
     .kind = FLAG_SIZE,
     .at = AT(body),
     .min = 1024,
     .help = "longest body of a request"},
    {.name = "max-arriving",
     .arg = "BYTES",
     .kind = FLAG_SIZE,
     .at = AT(arriving),
     .min = 4096,
     .help = "bytes of all requests together that are not answered yet; who goes beyond it is cut off"},
    {.name = "max-connections",
     .arg = "N",
     .kind = FLAG_U32,
     .at = AT(connections),
     .min = 1,
     .max = 100000,
     .help = "clients connected at a time; more wait"},
    {.name = "drain",
     .arg = "SECONDS",
     .kind = FLAG_U32,
     .at = AT(drain),
     .max = 86400,
     .help = "after SIGTERM or Ctrl-C answers in work have so long to end; a second signal leaves at once"},
    {.name = "sse-ping-interval",
     .arg = "SECONDS",
     .group = "more",
     .kind = FLAG_U32,
     .at = AT(ping),
     .max = 86400,
     .help = "a comment in streams that are silent for so long, so that proxies keep them; 0: none"},
    {.name = "no-metrics", .kind = FLAG_ON, .at = AT(no_metrics), .help = "no /metrics"},
    {.name = "no-slots", .kind = FLAG_ON, .at = AT(no_slots), .help = "no /slots"},
    {.name = "no-props", .kind = FLAG_ON, .at = AT(no_props), .help = "no /props"},
    {.name = "log-level",
     .arg = "LEVEL",
     .kind = FLAG_CHOICE,
     .at = AT(log),
     .choices = "error|warning|info|debug",
     .help = "what is written to standard error; above debug no line holds a path or a text of a request"},
    {.kind = 0},
};
static const char notes[] =
    "Every flag can stand in --config's file or in the environment (CONCLAVE_ARG_ and its name in capitals, dashes as "
    "underscores). Sampling flags hold where a request says nothing; -n is also the most that a request gets.\n";

struct serve {
    struct engine_flags engine;
    struct serve_flags flags;
    struct template_flags how;
    struct answer_flags answers;
    struct sample_flags sampling;
    struct settings words;
    struct keys keys;
    struct model *m;
    struct tokenizer *tok;
    struct chat_template *template;
    char *template_source; /* a text */
    struct json_doc *kwargs;
    struct grammar_vocab *vocab;
    struct grammar_keep *grammars;
    struct served served;
    struct http *http;
    struct api *api;
    struct jobs *jobs;
    struct page *page;
    struct lights lights;
    char name[256];
    int stop_fd, drained_fd;
};

/* ---- what is served ---- */

/* The file's own name, without where it lies. */
static void name_model(struct serve *s)
{
    const char *path = s->engine.model, *base;
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    base = memrchr(path, '/', n);
    base = base ? base + 1 : path;
    n -= (size_t)(base - path);
    if (n > 5 && !memcmp(base + n - 5, ".gguf", 5))
        n -= 5;
    snprintf(s->name, sizeof s->name, "%.*s", (int)(n < sizeof s->name ? n : sizeof s->name - 1), base);
    for (char *c = s->name; *c; c++)
        if ((unsigned char)*c < 32 || (unsigned char)*c > 126)
            *c = '?';
}

static int open_template(struct serve *s, struct err *e)
{
    struct gguf_str own = {0};
    struct err why = {0};
    char *given = NULL;
    size_t n = 0;
    int rc;

    if (s->how.template && (rc = input_text(s->how.template, &given, &n, e)))
        return rc;
    /* clients see that name in errors: no path */
    rc = chat_open_model(s->m->g, s->tok, s->how.template ? "the chat template" : s->name, given, n, &s->template, &why);
    if (rc == -ENOENT) {
        log_line(LOG_WARN, "the model has no chat template: messages are refused; --chat-template FILE gives it one");
        return 0;
    }
    if (rc)
        err_set(e, rc, "%s%s%s", given ? s->how.template : "", given ? ": " : "", why.msg);
    else if (!given && gguf_string(s->m->g, "tokenizer.chat_template", &own))
        rc = err_set(e, -EINVAL, "%s: the chat template is no text", s->name);
    else if (!(s->template_source = given ? strndup(given, n) : strndup(own.s, own.n)))
        rc = err_set(e, -ENOMEM, "no memory for the chat template");
    free(given);
    return rc;
}

static int prepare(struct serve *s, struct err *e)
{
    int rc;

    if (s->flags.alias)
        snprintf(s->name, sizeof s->name, "%s", s->flags.alias);
    else
        name_model(s);
    if ((rc = model_open(s->engine.model, 0, &s->m, e)) || (rc = tokenizer_open(s->m->g, NULL, &s->tok, e)) ||
        (rc = open_template(s, e)))
        return rc;
    if (s->how.kwargs &&
        (rc = json_parse("--chat-template-kwargs", s->how.kwargs, strlen(s->how.kwargs), NULL, &s->kwargs, e)))
        return rc;
    s->served = (struct served){
        .name = s->name,
        .tok = s->tok,
        .template = s->template,
        .thinks = s->template_source && strstr(s->template_source, "<think>"),
        .n_vocab = s->m->n_vocab,
        .n_predict = s->answers.n_predict,
        .fixed_seed = s->sampling.seed != UINT64_MAX,
        .thinking = template_flags_thinking(&s->how),
        .reasoning_effort = s->how.effort,
        .keep_reasoning = s->how.keep_reasoning,
        .allow_control = s->how.allow_control,
        .kwargs = s->kwargs ? json_root(s->kwargs) : NULL,
    };
    if ((rc = sample_flags_settings(&s->sampling, &s->served.settings, e)) ||
        (rc = grammar_vocab_new(s->tok, s->m->n_vocab, &s->vocab, e)) ||
        (rc = grammar_keep_new(s->vocab, &s->grammars, e)))
        return rc;
    s->served.grammars = s->grammars;
    return 0;
}

/* ---- the end ---- */

static void ring(int fd)
{
    (void)!write(fd, &(uint64_t){1}, sizeof(uint64_t));
}

static void on_drained(void *arg)
{
    struct serve *s = arg;

    jobs_drain(s->jobs, 1);
    ring(s->drained_fd);
}

/* For systemd (Type=notify): one datagram; without it nothing. */
static void notify(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd;

    if (!path || (*path != '/' && *path != '@') || strlen(path) >= sizeof a.sun_path)
        return;
    strcpy(a.sun_path, path);
    if (*path == '@')
        a.sun_path[0] = 0;
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    (void)!sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&a,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
    close(fd);
}

/* In the HTTP thread: a signal came. */
static void on_stop(void *arg)
{
    struct serve *s = arg;

    log_line(LOG_INFO, "going down: answers in work have %u s to end", s->flags.drain);
    notify("STOPPING=1");
    jobs_drain(s->jobs, 0);
    page_drain(s->page);
    if (http_drain(s->http, s->flags.drain, on_drained, s))
        on_drained(s);
}

/* ---- inside the engine ---- */

static uint64_t parameters(const struct model *m)
{
    uint64_t n = 0;

    for (size_t i = 0; i < gguf_n_tensors(m->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->g, i);

        n += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
    }
    return n;
}

static int body(struct engine *en, void *arg, struct err *e)
{
    struct serve *s = arg;
    struct api_facts facts = {
        .m = s->m,
        .template_source = s->template_source,
        .build = build_id(),
        .version = CONCLAVE_VERSION,
        .n_ctx_train = s->m->n_ctx_train,
        .n_params = parameters(s->m),
    };
    struct pollfd over = {.fd = s->drained_fd, .events = POLLIN};
    int rc;

    for (int k = 0; k < MODEL_KINDS; k++)
        facts.bytes += s->m->kind_bytes[k];
    s->served.n_ctx = engine_n_ctx(en);
    sample_flags_print(s->engine.kv, &s->served.settings);
    if ((rc = api_ready(s->api, &s->served, s->jobs, &facts, e)))
        return 1;
    page_ready(s->page, s->jobs);
    stop_tell(s->stop_fd, s->flags.drain + AFTER_DRAIN);
    log_line(LOG_INFO, "ready: %u answers beside each other, %u tokens each", engine_n_seqs(en), engine_n_ctx(en));
    notify("READY=1");
    rc = jobs_run(s->jobs, en, e);
    if (rc) { /* the engine cannot go on: clients are told, and that is the end */
        log_line(LOG_ERROR, "%s", e->msg);
        if (!stop_asked())
            http_drain(s->http, 1, on_drained, s);
    }
    while (poll(&over, 1, -1) < 0)
        ;
    engine_flags_processes(&s->engine, en);
    return rc ? 1 : 0;
}

/* ---- opening ---- */

static int open_server(struct serve *s, struct err *e)
{
    const struct serve_flags *f = &s->flags;
    struct http_options h = {
        .host = f->host,
        .port = (uint16_t)f->port,
        .keys = s->keys.key,
        .n_keys = s->keys.n,
        .tls_cert = f->tls_cert,
        .tls_key = f->tls_key,
        .origin = f->origin,
        .body_bytes = f->body,
        .arriving_bytes = f->arriving,
        .connections = f->connections,
        .arrive_s = f->arrive,
        .write_s = f->timeout,
    };
    struct api_options a = {.ping_s = f->ping,
                            .name = s->name,
                            .metrics = !f->no_metrics,
                            .slots = !f->no_slots,
                            .props = !f->no_props,
                            .answer_s = f->seconds,
                            .lights = &s->lights};
    struct jobs_options j = {.n_slots = f->parallel, .queue_most = f->queue, .drafts = answer_flags_drafts(&s->answers),
                             .drafts_fixed = s->answers.draft >= 0, .news = api_news};
    int rc;

    s->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->drained_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->stop_fd < 0 || s->drained_fd < 0)
        return err_set(e, -EMFILE, "too many open files");
    if ((rc = http_open(&h, &s->http, e)) || (rc = api_open(&a, s->http, &s->api, e)))
        return rc;
    j.arg = s->api;
    atomic_store_explicit(&s->lights.figures, !f->no_metrics, memory_order_relaxed);
    if ((rc = jobs_open(&j, &s->jobs, e)) || (rc = page_open(s->http, &s->lights, &s->page, e)) ||
        (rc = http_watch(s->http, s->stop_fd, on_stop, s, e)) || (rc = http_start(s->http, e)))
        return rc;
    log_line(LOG_INFO, "listening on %s://%s%s%s:%u", f->tls_cert ? "https" : "http", strchr(f->host, ':') ? "[" : "",
             f->host, strchr(f->host, ':') ? "]" : "", http_port(s->http));
    if (!s->keys.n && !http_is_local(s->http))
        log_line(LOG_WARN, "other machines can ask this server, and no key is wanted (--api-key)");
    if (s->keys.n && !f->tls_cert && !http_is_local(s->http))
        log_line(LOG_WARN, "keys and texts travel without encryption (--tls-cert, or a proxy that has one)");
    return 0;
}

/* --config, from the command line or the environment. */
static const char *config_path(int argc, char **argv)
{
    const char *path = getenv("CONCLAVE_ARG_CONFIG");

    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], "--config=", 9))
            path = argv[i] + 9;
        else if (!strcmp(argv[i], "--config") && i + 1 < argc)
            path = argv[i + 1];
        else if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h") || !strcmp(argv[i], "--version"))
            return NULL;
    return path;
}

static int usage(const struct serve *s)
{
    const struct serve_flags *f = &s->flags;

    if (!f->tls_cert != !f->tls_key)
        return args_usage("serve", "--tls-cert and --tls-key go together; one of them is missing");
    if (s->engine.stats)
        return args_usage("serve", "--stats is for one answer: conclave run has it; /metrics has a server's");
    if (s->how.template && !strcmp(s->how.template, "-"))
        return args_usage("serve", "--chat-template -: name a file");
    return 0;
}

static void serve_free(struct serve *s)
{
    api_stop(s->api);
    http_close(s->http);
    api_close(s->api);
    page_close(s->page);
    lights_free(&s->lights);
    jobs_close(s->jobs);
    grammar_keep_free(s->grammars);
    grammar_vocab_free(s->vocab);
    json_free(s->kwargs);
    chat_close(s->template);
    free(s->template_source);
    tokenizer_close(s->tok);
    model_close(s->m);
    keys_free(&s->keys);
    if (s->stop_fd >= 0)
        close(s->stop_fd);
    if (s->drained_fd >= 0)
        close(s->drained_fd);
    settings_free(&s->words);
}

int cmd_serve(int argc, char **argv)
{
    struct serve s = {.stop_fd = -1,
                      .drained_fd = -1,
                      .flags = {.host = "127.0.0.1",
                                .port = 8080,
                                .parallel = 4,
                                .queue = 1024,
                                .timeout = 60,
                                .arrive = 60,
                                .connections = HTTP_CONNECTIONS_MAX,
                                .drain = 30,
                                .ping = 30,
                                .body = HTTP_BODY_MAX,
                                .arriving = HTTP_ARRIVING_MAX,
                                .log = LOG_INFO}};
    struct args a = {
        .verb = "serve",
        .about = "an HTTP server: OpenAI's and Anthropic's APIs, several clients at a time",
        .usage = "-m MODEL [flags]",
        .notes = notes,
        .foreign = 2,
        .part = {{serve_table, &s.flags},
                 {template_flag_table, &s.how},
                 {answer_flag_table, &s.answers},
                 {sample_flag_table, &s.sampling},
                 {engine_flag_table, &s.engine},
                 {engine_run_table, &s.engine}},
    };
    struct engine_options o = {0};
    struct err e = {0};
    int status;

    answer_flags_init(&s.answers);
    sample_flags_init(&s.sampling);
    engine_flags_init(&s.engine);
    if (settings_read(&a, config_path(argc, argv), argc, argv, &s.words, &e))
        return args_usage("serve", "%s", e.msg);
    if (args_parse(&a, s.words.argc, s.words.argv, &status) || (status = usage(&s))) {
        settings_free(&s.words);
        return status;
    }
    log_set((enum log_level)s.flags.log);
    status = 1;
    if (keys_read(s.flags.keys, s.flags.key_file, &s.keys, &e) || engine_flags_open(&s.engine, NULL, &e) ||
        open_server(&s, &e) || prepare(&s, &e))
        goto done;
    engine_flags_options(&s.engine, &o);
    answer_flags_options(&s.answers, &o);
    o.n_seqs = s.flags.parallel;
    o.lights = &s.lights;
    o.n_saved = JOBS_SAVED * s.flags.parallel;
    status = engine_run(&o, body, &s, &e);
done:
    if (engine_flags_close(&s.engine, &e) && !status)
        status = 1;
    if (status == 1)
        report_error(&e);
    serve_free(&s);
    return status;
}
