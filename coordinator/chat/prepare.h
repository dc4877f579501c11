/* Messages of a request as templates expect them: what chat.c does before it renders. */
#pragma once
#include <stddef.h>

#include "coordinator/json/json.h"
#include "shm/err.h"

struct prepare_rules {
    int join_parts;    /* texts of a content's parts are joined; else only those of tools' results */
    int nine_ids;      /* ids of calls have nine letters and digits: others are replaced, alike in calls
                          and results */
    int order_results; /* results of tools that follow each other stand in the order of their calls */
    int one_thought;   /* beside calls, content goes where there is reasoning (gpt-oss) */
};
struct prepared {
    struct json messages; /* borrows from the request's tree and from here */
    struct prepared_block {
        struct prepared_block *next;
        _Alignas(16) char data[];
    } *blocks;
    struct prepared_doc {
        struct json_doc *doc;
        struct prepared_doc *next;
    } *docs;
};
/* A refusal is -EINVAL and names the message ("messages[2].content: ..."). Hands over *out, for
 * prepared_free; borrows messages until then. */
int prepare_messages(const struct json *messages, const struct prepare_rules *rules, struct prepared *out,
                     struct err *e);
void prepared_free(struct prepared *p);
