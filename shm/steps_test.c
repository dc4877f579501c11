/* Records and answers between two threads; what is refused; an executor that dies and its successor,
 * with the ring as each store of the dead one left it. */
#include "shm/steps.h"

#include <pthread.h>
#include <stdlib.h>

#include "shm/calls.h"
#include "tests/test.h"

#define STEPS 20000u
#define VOCAB 64u
#define SAVED 3u

static struct geometry g = {.n_nodes = 1, .n_layers = 1, .n_experts = 4, .top_k = 2, .n_embd = 8, .n_ff = 8,
                            .max_tokens = 4, .max_items = 4, .max_pairs = 8, .amend_slots = 16,
                            .order_slots = 4, .n_slabs = 4, .n_vocab = VOCAB, .n_ctx = 1u << 20, .n_seqs = 2, .n_saved = SAVED,
                            .step_tokens = 5, .step_out = 3, .token_bytes = 8, .acts_half = 128, .inter_half = 256,
                            .rows_half = 256};

struct both {
    struct steps *s;
    struct answers *a;
    uint64_t bad;
};

/* What the answer to a record must be, a function of all its numbers. */
static float answer_of(const struct step_record *r, const struct step_token *t, const uint32_t *rows, uint32_t row,
                       uint32_t i)
{
    uint32_t h = (uint32_t)r->seq * 31 + (uint32_t)r->state_in * 7 + (uint32_t)r->state_out;

    for (uint32_t k = 0; k < r->n_tokens; k++)
        h = h * 33 + t[k].id + 5 * t[k].pos;
    for (uint32_t k = 0; k < r->n_tokens; k++)
        h = h * 31 + rows[2 * k] + 3 * rows[2 * k + 1];
    return (float)((h + row * 1000 + i) & 0xFFFFF);
}

static void *executor(void *arg)
{
    struct both *b = arg;
    struct step_record r;
    struct step_token token[5];
    uint32_t out[3], rows[2 * 5];
    struct err e = {0};

    for (uint64_t after = 0; after < STEPS;) {
        int rc = step_take(&g, b->s, after, &r, token, out, &e);
        if (!rc) {
            sched_yield();
            continue;
        }
        if (rc < 0 || r.seq != after + 1) {
            b->bad++;
            return NULL;
        }
        step_take_rows(&g, b->s, (uint8_t *)rows, r.n_tokens);
        for (uint32_t k = 0; k < r.n_out; k++)
            for (uint32_t i = 0; i < VOCAB; i++)
                answer_logits(b->a)[k * VOCAB + i] = answer_of(&r, token, rows, out[k], i);
        after = r.seq;
        step_answer(b->a, r.seq);
    }
    return NULL;
}

static void records_and_answers(void)
{
    struct both b = {aligned_alloc(64, 4096), aligned_alloc(64, 4096), 0};
    uint64_t wrong = 0;
    pthread_t t;

    memset(b.s, 0, 4096);
    memset(b.a, 0, 4096);
    CHECK(steps_bytes(&g) <= 4096 && answers_bytes(&g) <= 4096);
    pthread_create(&t, NULL, executor, &b);
    for (uint64_t s = 1; s <= STEPS; s++) {
        struct step_record r = {s, s - 1, s, 1 + (uint32_t)(s % 5), 0, 0, 0};
        struct step_token token[5];
        uint32_t out[3], rows[2 * 5];
        for (uint32_t i = 0; i < r.n_tokens; i++) {
            token[i] = (struct step_token){(uint32_t)(s * 7 + i) % VOCAB, (uint32_t)s + i, 0};
            if (r.n_out < 3 && (s >> i & 1))
                out[r.n_out++] = i;
        }
        for (uint32_t i = 0; i < 2 * r.n_tokens; i++)
            rows[i] = (uint32_t)s * 13 + i;
        step_put_rows(&g, b.s, (const uint8_t *)rows, r.n_tokens);
        step_publish(&g, b.s, &r, token, out);
        while (!step_answered(b.a, s) && !__atomic_load_n(&b.bad, __ATOMIC_RELAXED))
            sched_yield();
        for (uint32_t k = 0; k < r.n_out; k++)
            for (uint32_t i = 0; i < VOCAB; i++)
                wrong += answer_logits(b.a)[k * VOCAB + i] != answer_of(&r, token, rows, out[k], i);
    }
    pthread_join(t, NULL);
    CHECK_EQ(wrong, 0);
    CHECK_EQ(b.bad, 0);
    free(b.s);
    free(b.a);
}

static void refuses(const char *what, struct step_record r, struct step_token t, uint32_t row)
{
    struct steps *s = aligned_alloc(64, 4096);
    struct step_token token[5] = {t, {1, 2, 0}, {1, 2, 0}, {1, 2, 0}, {1, 2, 0}}, got[5];
    uint32_t out[3] = {row, 1, 2}, rows[3];
    struct step_record as;
    struct err e = {0};

    memset(s, 0, 4096);
    memcpy(steps_tokens(s), token, sizeof token);
    memcpy(steps_out(&g, s), out, sizeof out);
    s->record = r;
    atomic_store(&s->word, 7);
    CHECK_EQ(step_take(&g, s, 7, &as, got, rows, &e), 0);
    CHECK(step_take(&g, s, 6, &as, got, rows, &e) == -EPROTO, "%s", what);
    CHECK(e.msg[0], "%s: no line", what);
    free(s);
}

static void what_makes_no_sense(void)
{
    struct step_record r = {7, 0, 1, 2, 1, 0, 0}, x;
    struct step_token t = {3, 4, 0};

    x = r, x.seq = 8, refuses("another number", x, t, 0);
    x = r, x.n_tokens = 0, refuses("no tokens", x, t, 0);
    x = r, x.n_tokens = 6, refuses("too many tokens", x, t, 0);
    x = r, x.n_out = 4, refuses("too many rows", x, t, 0);
    refuses("a row of no token", r, t, 2);
    x = r, x.n_out = 2, refuses("rows that do not ascend", x, t, 1);
    x = r, x.pass = STEP_PASSES, refuses("a pass", x, t, 0);
    x = r, x.pass = STEP_SAVE, refuses("a slot", x, (struct step_token){SAVED, 0, 0}, 0);
    x = r, x.pass = STEP_SAVE, x.n_out = 1, refuses("rows of a saved state", x, (struct step_token){0, 0, 0}, 0);
    refuses("an id", r, (struct step_token){VOCAB, 0, 0}, 0);
    refuses("a position", r, (struct step_token){1, 1u << 20, 0}, 0);
    refuses("a sequence", r, (struct step_token){1, 1, 2}, 0);
}

/* A successor begins behind the record that it finds. */
static void a_successor_s_first_record(void)
{
    struct steps *s = aligned_alloc(64, 4096);
    struct step_record r = {41, 3, 4, 1, 0, 0, 0}, got;
    struct step_token t = {1, 9, 0}, token[5];
    uint32_t out[3] = {0};
    struct err e = {0};

    memset(s, 0, 4096);
    step_publish(&g, s, &r, &t, out);
    CHECK(!step_there(s, 41));
    CHECK_EQ(step_take(&g, s, 41, &got, token, out, &e), 0);
    r.seq = 42;
    step_publish(&g, s, &r, &t, out);
    CHECK(step_there(s, 41));
    CHECK_EQ(step_take(&g, s, 41, &got, token, out, &e), 1);
    CHECK_EQ(got.state_in, 3);
    free(s);
}

/* The ring as an executor leaves it that dies after its k-th store: two calls of three stores each (the
 * fields, the word, head), the second begun before the first is complete, then the first's retiring. */
static void dies_after(uint64_t first, int k)
{
    struct call_item item = {.owner = {2}};
    struct call_pair pair = {0};
    struct call c = {.head = {.layer = 0, .n_tokens = 1, .n_items = 1, .n_pairs = 1, .top_k = 1},
                     .items = &item, .pairs = &pair};
    struct calls *calls = aligned_alloc(64, (calls_bytes(&g) + 63) & ~63ul);
    uint64_t words = 0, next;
    uint32_t open, wanted = 0;

    memset(calls, 0, calls_bytes(&g));
    for (uint64_t n = 1; n < first; n++) {
        c.head.seq = n;
        call_publish(&g, calls, &c);
        call_retire(&g, calls, n);
    }
    for (uint64_t n = first; n < first + 2; n++) {
        if (k-- > 0) /* fields alone: as if the copy had been cut */
            memset(call_slot(&g, calls, n) + 64, (int)n, sizeof c.head + sizeof item);
        if (k-- > 0) {
            atomic_store(call_word(&g, calls, n), PUBLISHED(n));
            words++;
            wanted++;
        }
        if (k-- > 0)
            atomic_store(&calls->head, n);
    }
    if (k-- > 0) {
        call_retire(&g, calls, first);
        wanted--;
    }
    next = calls_bury(&g, calls, &open);
    CHECK_EQ(next, first + words);
    CHECK_EQ(open, wanted);
    CHECK_EQ(atomic_load(&calls->head), next - 1);
    for (uint64_t i = 0; i < CALL_SLOTS; i++) {
        uint64_t w = atomic_load(call_word(&g, calls, i));
        CHECK(!w || w == RETIRED(w / 2), "slot %llu says %llu", (unsigned long long)i, (unsigned long long)w);
    }
    c.head.seq = next; /* the successor's: a consumer that followed all the time finds no gap */
    call_publish(&g, calls, &c);
    for (uint64_t n = first; n <= next; n++) {
        int ours = 0;
        CHECK_EQ(call_peek(&g, calls, n, 2, &ours), n < next ? RING_GONE : RING_TAKEN);
        CHECK_EQ(ours, n == next);
    }
    free(calls);
}

int main(void)
{
    records_and_answers();
    what_makes_no_sense();
    a_successor_s_first_record();
    for (uint64_t first = 1; first < 2 * CALL_SLOTS + 2; first += 3)
        for (int k = 0; k <= 7; k++)
            dies_after(first, k);
    return test_end();
}
