/* What is lit is told once, with where it lay; figures are whole ones while they change. */
#include "coordinator/lights.h"

#include <pthread.h>

#include "tests/test.h"

static void test_lit(void)
{
    const uint32_t of_layer[3] = {4, 0, 6};
    struct lights l;
    struct light out[32];
    struct err e = {0};
    uint64_t tokens, steps;

    lights_init(&l);
    lights_watch(&l, 1);
    CHECK(!lights_on(&l) && !lights_on(NULL), "before there is an engine");
    CHECK_EQ(lights_take(&l, out, 32, &tokens, &steps), 0);
    CHECK(!lights_open(&l, 3, of_layer, &e) && !lights_open(&l, 3, of_layer, &e), "%s", e.msg);
    lights_watch(&l, 1);
    CHECK(lights_on(&l), "watched");
    lights_put(&l, 2, 5, LIGHT_RAM);
    lights_put(&l, 0, 3, LIGHT_DISK);
    lights_put(&l, 2, 5, LIGHT_CARD);
    lights_step(&l, 7);
    CHECK_EQ(lights_take(&l, out, 1, &tokens, &steps), 1);
    CHECK(out[0].layer == 0 && out[0].expert == 3 && out[0].tiers == LIGHT_DISK && tokens == 7 && steps == 1, "the first");
    CHECK_EQ(lights_take(&l, out, 32, &tokens, &steps), 1);
    CHECK(out[0].layer == 2 && out[0].expert == 5 && out[0].tiers == (LIGHT_RAM | LIGHT_CARD) && out[0].last, "the rest");
    lights_put(&l, 0, 1, LIGHT_RAM);
    lights_step(&l, 1);
    lights_put(&l, 0, 2, LIGHT_RAM);
    lights_step(&l, 1);
    CHECK_EQ(lights_take(&l, out, 32, &tokens, &steps), 2);
    CHECK(!out[0].last && out[1].last && tokens == 9 && steps == 3, "of two steps");
    CHECK_EQ(lights_take(&l, out, 32, &tokens, &steps), 0);
    lights_put(&l, 0, 0, LIGHT_RAM);
    lights_watch(&l, 0);
    CHECK(!lights_on(&l), "nobody");
    lights_watch(&l, 1);
    CHECK_EQ(lights_take(&l, out, 32, &tokens, &steps), 0);
    lights_free(&l);
}

static struct lights shared;
static void *writer(void *arg)
{
    struct engine_stats s = {0};

    for (uint64_t i = 1; i <= 50000; i++) {
        s.steps = s.calls = s.bytes_read = s.worker[0].calls = i;
        lights_put_stats(&shared, &s);
    }
    return arg;
}

static void test_stats(void)
{
    struct engine_stats s;
    uint64_t last = 0, whole = 0, at;
    pthread_t t;

    lights_init(&shared);
    CHECK(!lights_stats(&shared, &s, &at) && lights_want_stats(&shared), "none yet");
    pthread_create(&t, NULL, writer, NULL);
    while (last < 50000)
        if (lights_stats(&shared, &s, &at)) {
            whole += s.steps == s.calls && s.calls == s.bytes_read && s.bytes_read == s.worker[0].calls && s.steps >= last;
            CHECK(s.steps == s.calls && s.worker[0].calls == s.steps, "torn: %llu", (unsigned long long)s.steps);
            last = s.steps;
        }
    pthread_join(t, NULL);
    CHECK(whole && !lights_want_stats(&shared), "%llu", (unsigned long long)whole);
    lights_free(&shared);
}

int main(void)
{
    test_lit();
    test_stats();
    return test_end();
}
