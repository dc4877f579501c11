/* What went wrong with a request, as the APIs say it. */
#pragma once
#include <stddef.h>

struct fault {
    int status;        /* 400, 401, 403, 404, 405, 408, 413, 429, 500, 501, 503; 0: nothing is wrong */
    const char *type;  /* static; NULL: what belongs to the status */
    char param[64];    /* the field that is wrong, or "" */
    char message[1024];
};
/* Notes the first fault alone. Returns status. */
int fault_set(struct fault *f, int status, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

enum fault_form { FAULT_OPENAI, FAULT_ANTHROPIC };
enum fault_form fault_style(const char *path); /* NULL is allowed */
enum { FAULT_TEXT = 8192 };
/* The error object, in one line: {"error":{"message","type","param","code"}}, or Anthropic's form with the
 * request's id. Returns its bytes. */
size_t fault_text(const struct fault *f, enum fault_form form, const char *id, char text[FAULT_TEXT]);
