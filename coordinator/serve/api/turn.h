/* One answer as it grows: token ids to text, the text that ends it, thoughts and calls told apart. What a reader
 * has seen is the reader's to remember; everything here only grows. */
#pragma once
#include "coordinator/chat/answer.h"
#include "coordinator/model/tokenizer.h"
#include "coordinator/serve/api/request.h"
#include "coordinator/serve/jobs.h"

struct turn_token { /* kept where probabilities or ids are asked for */
    struct job_token t;
    size_t at; /* where its text begins */
};
struct turn {
    const struct request *r;
    const struct tokenizer *tok;
    struct detok *detok;
    struct answer *answer; /* NULL: raw text */
    char *text;            /* all of it; [0 .. given) is certain */
    size_t n, cap, given;
    size_t n_tokens;       /* that made it, the one too that completed the text that ends it */
    int word;              /* which of r->stops ended it; -1: none did */
    struct turn_token *token;
    size_t n_kept, cap_kept;
    int keep;
};
/* Borrows r and tok. 0, or -ENOMEM. */
int turn_open(struct turn *t, const struct request *r, enum chat_format format, const struct tokenizer *tok,
              uint32_t choice, struct err *e);
void turn_close(struct turn *t);
/* The next token. 1: a text that ends the answer was completed, no more is taken; 0; or an error. */
int turn_push(struct turn *t, const struct job_token *token, struct err *e);
/* The end of generation. stop: the id that ended it, or UINT32_MAX. */
int turn_end(struct turn *t, uint32_t stop, struct err *e);
/* Kept tokens whose text is given out, or all at the end: how many. */
size_t turn_certain(const struct turn *t, int whole);
