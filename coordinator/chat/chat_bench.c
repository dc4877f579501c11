/* What a conversation costs: rendering it, and an answer's pieces. chat_bench [TEMPLATE ...]; without one, a
 * template of this file. Processor time; the better of three turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "coordinator/chat/answer.h"
#include "coordinator/chat/chat.h"
#include "coordinator/cli/output.h"

enum { MESSAGES = 201, MESSAGE_BYTES = 1000, PIECES = 25000, TURNS = 3 };

static const char own[] =
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content | trim + '<|im_end|>\\n' }}"
    "{%- if m.tool_calls %}<tool_call>{{ m.tool_calls | tojson }}{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}";

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void stop(const struct err *e)
{
    fprintf(stderr, "chat_bench: %s\n", e->msg);
    exit(1);
}

/* Users and assistants in turns. */
static struct json_doc *conversation(void)
{
    char *text = malloc(MESSAGES * (MESSAGE_BYTES + 100) + 10), *p = text;
    struct json_doc *d = NULL;
    struct err e = {0};

    if (!text)
        abort();
    for (int i = 0; i < MESSAGES; i++) {
        p += sprintf(p, "%c{\"role\":\"%s\",\"content\":\"", i ? ',' : '[', i % 2 ? "assistant" : "user");
        for (int k = 0; k < MESSAGE_BYTES; k++)
            *p++ = "words of it "[k % 12];
        p += sprintf(p, "\"}");
    }
    p += sprintf(p, "]");
    if (json_parse("conversation", text, (size_t)(p - text), NULL, &d, &e))
        stop(&e);
    free(text);
    return d;
}

static void rendering(const struct chat_template *t, const struct json *messages)
{
    struct chat_request q = {.messages = messages, .thinking = -1};
    struct tm now = {.tm_mday = 1, .tm_year = 126};
    double best = 1e9;
    size_t n = 0;

    q.now = &now;
    for (int i = 0; i < TURNS; i++) {
        double start = seconds();
        struct chat_prompt p;
        struct err e = {0};

        if (chat_render(t, &q, &p, NULL, &e))
            stop(&e);
        best = seconds() - start < best ? seconds() - start : best;
        n = p.text.n;
        chat_prompt_free(&p);
    }
    printf("  %d messages, %zu bytes: rendered (with and without the generation prompt) in %.2f ms\n", MESSAGES, n, 1e3 * best);
}

/* One call whose argument is long, and plain text. */
static void answering(enum chat_format f)
{
    static const char tools[] = "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"}}}}}]";
    const char *call = f == CHAT_QWEN_XML ? "<tool_call>\n<function=f>\n<parameter=s>\n"
                       : f == CHAT_GLM    ? "<tool_call>f<arg_key>s</arg_key><arg_value>"
                       : f == CHAT_HERMES ? "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \""
                                          : "";
    struct json_doc *d = NULL;
    struct err e = {0};

    if (json_parse("tools", tools, sizeof tools - 1, NULL, &d, &e))
        stop(&e);
    for (int with_call = 0; with_call < 1 + (*call != 0); with_call++) {
        double best = 1e9;

        for (int turn = 0; turn < TURNS; turn++) {
            struct answer_options o = {f, CHAT_AUTO, json_root(d), 1};
            struct answer *a = NULL;
            double start;

            if (answer_new(&o, &a, &e) || (with_call && answer_push(a, call, strlen(call), &e)))
                stop(&e);
            start = seconds();
            for (int i = 0; i < PIECES; i++)
                if (answer_push(a, "a <b", 4, &e))
                    stop(&e);
            best = seconds() - start < best ? seconds() - start : best;
            answer_free(a);
        }
        printf("  %s of %d bytes in pieces of 4: %.2f us a piece\n", with_call ? "a call" : "a text", 4 * PIECES,
               1e6 * best / PIECES);
    }
    json_free(d);
}

static void one(const char *name, const char *source, size_t n)
{
    struct json_doc *d = conversation();
    struct chat_template *t = NULL;
    struct err e = {0};

    if (chat_open(name, source, n, "<s>", "</s>", &t, &e))
        stop(&e);
    printf("%s (calls: %s)\n", name, chat_format_name(chat_format(t)));
    rendering(t, json_root(d));
    answering(chat_format(t));
    chat_close(t);
    json_free(d);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        one("own template", own, sizeof own - 1);
    for (int i = 1; i < argc; i++) {
        struct err e = {0};
        char *source = NULL;
        size_t n;

        if (input_text(argv[i], &source, &n, &e))
            stop(&e);
        one(argv[i], source, n);
        free(source);
    }
    return 0;
}
