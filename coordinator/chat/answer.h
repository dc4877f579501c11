/* A model's output to an answer: reasoning split off, calls of tools in the family's own form made into
 * names and JSON arguments. Fed in pieces of any size, and the result is the same whatever the pieces are:
 * what is given out only grows.
 *
 * A call is given out when it is complete and its arguments parse: a broken or unfinished one becomes text
 * of the content, which could not be if its beginning were out already. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "coordinator/chat/chat.h"
#include "coordinator/json/json.h"
#include "shm/err.h"

struct answer;
struct answer_options {
    enum chat_format format;
    enum chat_start start;
    const struct json *tools; /* of the request, borrowed; NULL or empty: calls are not looked for, and text
                                 is left as it is. With tools newlines at its front go */
    uint64_t seed;            /* for ids, where the model gives none */
};
/* Hands over *out. */
int answer_new(const struct answer_options *o, struct answer **out, struct err *e);
void answer_free(struct answer *a); /* NULL is allowed */

/* The model's text with control tokens shown, without the token that ended it (except gpt-oss's
 * <|call|>). After an error the answer stays as it was. */
int answer_push(struct answer *a, const char *text, size_t n, struct err *e);
/* The end of generation; once. */
int answer_end(struct answer *a, struct err *e);

/* So far; borrowed until the next push. Empty means null to the API. */
const char *answer_reasoning(const struct answer *a, size_t *n);
const char *answer_content(const struct answer *a, size_t *n);
struct answer_call { /* strings end with a NUL and are UTF-8 */
    char *id, *name;
    char *arguments; /* the text of a JSON object */
};
size_t answer_n_calls(const struct answer *a);
const struct answer_call *answer_call(const struct answer *a, size_t i); /* i < answer_n_calls; stays */
