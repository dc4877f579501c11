/* Errors are small and must be written when there is no memory, too: no tree, no allocation. */
#include "coordinator/serve/fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/model/utf8.h"

int fault_set(struct fault *f, int status, const char *param, const char *fmt, ...)
{
    va_list ap;

    if (f->status)
        return f->status;
    f->status = status;
    snprintf(f->param, sizeof f->param, "%s", param ? param : "");
    va_start(ap, fmt);
    vsnprintf(f->message, sizeof f->message, fmt, ap);
    va_end(ap);
    return status;
}

enum fault_form fault_style(const char *path)
{
    static const char messages[] = "/v1/messages";

    return path && !strncmp(path, messages, sizeof messages - 1) ? FAULT_ANTHROPIC : FAULT_OPENAI;
}

static const char *type_of(const struct fault *f, enum fault_form form)
{
    if (f->type)
        return f->type;
    switch (f->status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return form == FAULT_ANTHROPIC ? "request_too_large" : "invalid_request_error";
    case 429:
        return "rate_limit_error";
    case 500:
        return form == FAULT_ANTHROPIC ? "api_error" : "server_error";
    case 501:
        return "not_supported_error";
    case 503:
        return form == FAULT_ANTHROPIC ? "overloaded_error" : "unavailable_error";
    default:
        return "invalid_request_error";
    }
}

/* A JSON string of at most room - 1 bytes, whatever s holds. */
static size_t quote(char *to, size_t room, const char *s)
{
    size_t n = strlen(s), at = 0, len;

    to[at++] = '"';
    for (size_t i = 0; i < n && at + 8 < room; i += len) {
        unsigned char c = (unsigned char)s[i];

        if (utf8_next(s + i, n - i, &len) != UTF8_OK)
            at += (size_t)sprintf(to + at, "\\ufffd");
        else if (c < 32 || c == '"' || c == '\\' || c == 127)
            at += (size_t)sprintf(to + at, "\\u%04x", c);
        else
            for (size_t k = 0; k < len; k++)
                to[at++] = s[i + k];
    }
    to[at++] = '"';
    to[at] = 0;
    return at;
}

size_t fault_text(const struct fault *f, enum fault_form form, const char *id, char text[FAULT_TEXT])
{
    char message[6200], param[400];

    quote(message, sizeof message, f->message);
    if (*f->param)
        quote(param, sizeof param, f->param);
    else
        strcpy(param, "null");
    if (form == FAULT_ANTHROPIC)
        return (size_t)snprintf(text, FAULT_TEXT,
                                "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":%s},\"request_id\":\"%s\"}",
                                type_of(f, form), message, id);
    return (size_t)snprintf(text, FAULT_TEXT, "{\"error\":{\"code\":%d,\"message\":%s,\"type\":\"%s\",\"param\":%s}}",
                            f->status, message, type_of(f, form), param);
}
