/* Step records and answers (shm/model/trunk.pml, rules 21 to 24): the coordinator asks, the trunk's
 * executor answers. One record is open at a time.
 *
 *   coordinator                                   executor
 *   step_put_rows(...), where there are tables
 *   step_publish(...); bell_ring(PROC_TRUNK)      step_take(...) behind `after`; step_take_rows(...)
 *   wait for step_answered(s), or its death       steps its program: calls published, awaited, retired
 *   read the logits; commit state_out             logits; step_answer(s); bell_ring(PROC_MAIN)
 *
 * It died: reap it, look at step_answered once more, calls_bury(), start a successor behind the record,
 * bring its state to where it was, publish the step again as a new record. */
#pragma once
#include "shm/err.h"
#include "shm/layout.h"
#include "shm/words.h"

static inline struct step_token *steps_tokens(struct steps *s)
{
    return (struct step_token *)s->data;
}
static inline uint32_t *steps_out(const struct geometry *g, struct steps *s)
{
    return (uint32_t *)(s->data + (uint64_t)g->step_tokens * sizeof(struct step_token));
}
static inline uint8_t *steps_rows(const struct geometry *g, struct steps *s)
{
    return (uint8_t *)(steps_out(g, s) + g->step_out);
}
static inline float *answer_logits(struct answers *a)
{
    return (float *)a->data;
}

/* Looked-up rows of n tokens, token_bytes each: before step_publish, and after step_take. What they hold is no
 * index. */
void step_put_rows(const struct geometry *g, struct steps *s, const uint8_t *rows, uint32_t n);
void step_take_rows(const struct geometry *g, struct steps *s, uint8_t *rows, uint32_t n);
/* Coordinator: the record before must be answered, or its executor reaped. token: r->n_tokens of them,
 * out: r->n_out. r->seq: one more than the last. */
void step_publish(const struct geometry *g, struct steps *s, const struct step_record *r,
                  const struct step_token *token, const uint32_t *out);
/* Executor: a record numbered beyond `after`? 1: *r, token (step_tokens) and out (step_out) hold it,
 * checked against the geometry; 0: none; -EPROTO: it makes no sense. */
int step_take(const struct geometry *g, struct steps *s, uint64_t after, struct step_record *r,
              struct step_token *token, uint32_t *out, struct err *e);
static inline int step_there(struct steps *s, uint64_t after)
{
    return atomic_load_explicit(&s->word, memory_order_acquire) > after;
}

static inline void step_answer(struct answers *a, uint64_t seq)
{
    atomic_store_explicit(&a->word, seq, memory_order_release);
}
static inline int step_answered(struct answers *a, uint64_t seq)
{
    return atomic_load_explicit(&a->word, memory_order_acquire) == seq;
}
