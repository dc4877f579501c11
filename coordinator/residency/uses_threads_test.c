/* The ring of uses: in order, far behind, and with both threads at full speed. The policy that it
 * tells is one of the test's own, so that every word can be looked at. */
#include "coordinator/residency/uses.h"

#include <pthread.h>
#include <stdlib.h>

#include "tests/test.h"

/* In place of policy.c: records what it is told. */
static struct told {
    uint64_t tokens, pass, uses, wrong, first, last;
} told;

void policy_step(struct policy *p, uint32_t n_tokens)
{
    (void)p;
    told.tokens += n_tokens;
    told.pass = n_tokens;
}

/* The writer below uses (layer, expert) = the low bits of a number that grows, n = the pass's
 * tokens. */
void policy_use(struct policy *p, uint32_t layer, uint32_t expert, uint32_t n)
{
    uint64_t number = (uint64_t)layer << 16 | expert;

    (void)p;
    if (!told.uses)
        told.first = number;
    told.wrong += n != told.pass || (told.uses && number <= told.last);
    told.last = number;
    told.uses++;
}

static struct uses ring;
static uint64_t number, sent_tokens;

static void send(uint32_t n_tokens, int n_uses)
{
    uses_step(&ring, n_tokens);
    sent_tokens += n_tokens;
    for (int i = 0; i < n_uses; i++, number++)
        uses_note(&ring, (uint32_t)(number >> 16) & 0x7fff, number & 0xffff, n_tokens);
}

static void reset(void)
{
    memset(&ring, 0, sizeof ring);
    told = (struct told){0};
    number = sent_tokens = 0;
}

static void test_in_order(void)
{
    reset();
    CHECK_EQ(uses_drain(&ring, (struct policy *)&told), 0);
    send(512, 1000);
    send(1, 8);
    CHECK_EQ(uses_drain(&ring, (struct policy *)&told), 0);
    send(7, 700);
    CHECK_EQ(uses_drain(&ring, (struct policy *)&told), 0);
    CHECK(told.tokens == 520 && told.uses == 1708 && told.last == 1707 && told.pass == 7 &&
          !told.wrong);
}

static void test_far_behind(void)
{
    uint64_t lost;

    reset();
    send(3, 30);
    CHECK_EQ(uses_drain(&ring, (struct policy *)&told), 0);
    for (int i = 0; i < 10000; i++)
        send(1 + i % 3, 31);
    lost = uses_drain(&ring, (struct policy *)&told);
    /* half a ring is told, one word of 32 is a pass, and a pass that lost its beginning is left out
     */
    CHECK(lost == 310000 + 10000 - USES_RING / 2, "%lu lost", (unsigned long)lost);
    CHECK(told.uses >= 30 + USES_RING / 2 / 32 * 31 - 31 &&
              told.uses <= 30 + USES_RING / 2 / 32 * 31,
          "%lu told", (unsigned long)told.uses);
    CHECK(told.last == number - 1 && told.tokens == sent_tokens && !told.wrong, "%lu wrong",
          (unsigned long)told.wrong);
}

/* What the writer overwrites while the reader copies is found out, to the word. */
static void test_overtaken(void)
{
    uint64_t copy[10];

    reset();
    for (uint32_t i = 0; i < USES_RING - 1; i++)
        uses_note(&ring, 0, 1, i);
    CHECK_EQ(uses_copy(&ring, 0, 10, copy), 0);
    CHECK_EQ((uint32_t)copy[9], 9);
    uses_note(&ring, 0, 1, 0); /* the next one, perhaps begun, is word 0's successor */
    CHECK_EQ(uses_copy(&ring, 0, 10, copy), 1);
    for (uint32_t i = 0; i < 5; i++)
        uses_note(&ring, 0, 2, 0);
    CHECK_EQ(uses_copy(&ring, 0, 10, copy), 6);
    CHECK_EQ((uint32_t)copy[6], 6);
    CHECK_EQ(uses_copy(&ring, 6, 10, copy), 0);
    for (uint32_t i = 0; i < 50; i++)
        uses_note(&ring, 0, 2, 0);
    CHECK_EQ(uses_copy(&ring, 0, 10, copy), 10);
}

static _Atomic int over;

static void *write_fast(void *arg)
{
    (void)arg;
    for (int i = 0; i < 150000; i++)
        send(1 + (uint32_t)i % 5, 20);
    atomic_store(&over, 1);
    return NULL;
}

static void test_together(void)
{
    pthread_t writer;
    uint64_t lost = 0;
    int last = 0;

    reset();
    CHECK(!pthread_create(&writer, NULL, write_fast, NULL));
    while (!last) {
        last = atomic_load(&over);
        for (volatile int i = rand() % 1000000; i > 0; i--) /* now and then far behind */
            ;
        lost += uses_drain(&ring, (struct policy *)&told);
    }
    pthread_join(writer, NULL);
    CHECK(!told.wrong && told.last == number - 1 && told.tokens == sent_tokens, "%lu wrong",
          (unsigned long)told.wrong);
    CHECK(told.uses + lost <= 150000 * 21 && told.uses > USES_RING / 4, "%lu uses, %lu lost",
          (unsigned long)told.uses, (unsigned long)lost);
}

int main(void)
{
    test_in_order();
    test_far_behind();
    test_overtaken();
    test_together();
    return test_end();
}
