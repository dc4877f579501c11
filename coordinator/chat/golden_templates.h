/* Test help: the families of golden/chat. Header only; for *_test.c. */
#pragma once
#include "coordinator/model/golden_vectors.h"

#include "coordinator/chat/chat.h"

struct family {
    const char *file;
    enum chat_format format;
    int takes_parts;
    enum chat_start by_default, on, off; /* after a user's message, by the switch of thinking */
};
static const struct family families[] = {
    {"deepseek-v3.1.json", CHAT_DEEPSEEK, 0, CHAT_CONTENT, CHAT_REASONING, CHAT_CONTENT},
    {"deepseek-v4-flash.json", CHAT_DSML, 0, CHAT_CONTENT, CHAT_REASONING, CHAT_CONTENT},
    {"glm-4.6.json", CHAT_GLM, 1, CHAT_AUTO, CHAT_AUTO, CHAT_CONTENT},
    {"glm-4.7-flash.json", CHAT_GLM, 1, CHAT_REASONING, CHAT_REASONING, CHAT_CONTENT},
    {"gpt-oss.json", CHAT_GPT_OSS, 0, CHAT_AUTO, CHAT_AUTO, CHAT_AUTO},
    {"kimi-k2.json", CHAT_KIMI, 1, CHAT_AUTO, CHAT_AUTO, CHAT_AUTO},
    {"kimi-k2-thinking.json", CHAT_KIMI, 1, CHAT_AUTO, CHAT_AUTO, CHAT_AUTO},
    {"llama-3.1.json", CHAT_LLAMA, 0, CHAT_AUTO, CHAT_AUTO, CHAT_AUTO},
    {"mimo-vl.json", CHAT_HERMES, 0, CHAT_AUTO, CHAT_AUTO, CHAT_AUTO},
    {"mistral-small-3.2.json", CHAT_MISTRAL, 1, CHAT_AUTO, CHAT_AUTO, CHAT_AUTO},
    {"qwen3-coder.json", CHAT_QWEN_XML, 0, CHAT_AUTO, CHAT_AUTO, CHAT_AUTO},
    {"qwen3.5.json", CHAT_QWEN_XML, 1, CHAT_REASONING, CHAT_REASONING, CHAT_CONTENT},
    {"qwen3.json", CHAT_HERMES, 0, CHAT_AUTO, CHAT_AUTO, CHAT_CONTENT},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

/* The family's template and cases; NULL: not here. */
static inline struct chat_template *open_family(const struct family *f, struct json_doc **cases)
{
    struct json_doc *d = golden_json("chat", f->file);
    const struct json *special = d ? json_get(json_root(d), "special_tokens") : NULL;
    const struct json *bos = json_get(special, "bos_token"), *eos = json_get(special, "eos_token");
    struct chat_template *t = NULL;
    struct bytes source;
    struct err e = {0};

    if (!d)
        return NULL;
    source = golden_file("chat", json_get(json_root(d), "template")->text);
    CHECK(chat_open(f->file, source.s, source.n, bos ? bos->text : "", eos ? eos->text : "", &t, &e) == 0, "%s", e.msg);
    free(source.s);
    *cases = d;
    return t;
}

static inline struct tm golden_clock(void)
{
    /* 2026-11-29 12:34:56, a Sunday */
    return (struct tm){.tm_year = 126, .tm_mon = 10, .tm_mday = 29, .tm_hour = 12, .tm_min = 34, .tm_sec = 56,
                       .tm_wday = 0, .tm_yday = 332};
}
