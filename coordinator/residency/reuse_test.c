/* Values learned from waits whose law is known. */
#include "coordinator/residency/reuse.h"

#include <math.h>
#include <stdlib.h>

#include "tests/test.h"

static struct reuse r;

static void test_buckets(void)
{
    uint32_t wrong = 0;

    for (uint64_t age = 0; age < 20000; age++) {
        uint32_t b = reuse_bucket(age);
        wrong += reuse_bucket_start(b) > age;
        wrong += b + 1 < REUSE_AGES && reuse_bucket_start(b + 1) <= age;
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(reuse_bucket(UINT64_MAX), REUSE_AGES - 1);
    CHECK_EQ(reuse_bucket_start(REUSE_AGES - 1), 7168);
}

/* Nothing learned: hotter is worth more, older is worth less, all within [0, 1]. */
static void test_ignorant(void)
{
    reuse_init(&r);
    for (uint32_t c = 0; c < REUSE_CLASSES; c++)
        for (uint64_t age = 0; age < 9000; age = age * 5 / 4 + 1) {
            float v = reuse_value(&r, c, age);
            CHECK(v >= 0 && v <= 1);
            CHECK(!c || v >= reuse_value(&r, c - 1, age));
            CHECK(!age || v <= reuse_value(&r, c, age - 1));
        }
}

/* A use at every turn with chance p, whatever the age: the value is g p / (1 - g (1 - p)). */
static void test_memoryless(double p)
{
    double g = exp2(-1 / 8.0), want = g * p / (1 - g * (1 - p));

    reuse_init(&r);
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 3000; i++) {
            uint64_t age = 0;
            while (rand() >= p * RAND_MAX)
                age++;
            reuse_used(&r, 5, age);
        }
        reuse_learn(&r, 32);
    }
    for (uint64_t age = 0; age < 2 / p; age++)
        CHECK(fabs(reuse_value(&r, 5, age) - want) < 0.05, "p %.2f age %d: %.3f, wanted %.3f", p,
              (int)age, (double)reuse_value(&r, 5, age), want);
}

/* Used every 20th turn exactly: the longer ago, the sooner. */
static void test_periodic(void)
{
    reuse_init(&r);
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 1000; i++)
            reuse_used(&r, 7, 19);
        reuse_learn(&r, 32);
    }
    for (uint64_t age = 1; age < 20; age++)
        CHECK(reuse_value(&r, 7, age) >= reuse_value(&r, 7, age - 1) - 1e-6);
    CHECK(reuse_value(&r, 7, 0) < 0.3f && reuse_value(&r, 7, 16) > 0.6f, "%f %f",
          (double)reuse_value(&r, 7, 0), (double)reuse_value(&r, 7, 16));
}

/* Waits that go on count: of experts that mostly never come back little is to be hoped. */
static void test_census(void)
{
    float known, hopeful;

    for (int census = 0; census < 2; census++) {
        reuse_init(&r);
        for (int i = 0; i < 100; i++)
            reuse_used(&r, 3, 1);
        for (int i = 0; census && i < 10000; i++)
            reuse_waits(&r, 3, 500);
        reuse_learn(&r, 32);
        *(census ? &known : &hopeful) = reuse_value(&r, 3, 0);
    }
    CHECK(known < 0.1f && hopeful > 0.4f, "%f %f", (double)known, (double)hopeful);
    for (int i = 0; i < 200; i++) /* what was learned fades: back to the guess */
        reuse_learn(&r, 1000);
    known = reuse_value(&r, 3, 0);
    reuse_init(&r);
    CHECK(fabsf(known - reuse_value(&r, 3, 0)) < 1e-3f);
}

int main(void)
{
    srand(1);
    test_buckets();
    test_ignorant();
    test_memoryless(0.5);
    test_memoryless(0.1);
    test_memoryless(0.02);
    test_periodic();
    test_census();
    return test_end();
}
