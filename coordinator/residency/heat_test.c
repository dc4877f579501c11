/* Decayed sums against their definition. */
#include "coordinator/residency/heat.h"

#include <math.h>

#include "coordinator/residency/reuse.h"
#include "tests/test.h"

static int near(double a, double b)
{
    return fabs(a - b) <= 1e-3 * (1 + fabs(b));
}

static void test_sums(void)
{
    static const uint64_t at[] = {3, 4, 9, 40, 41, 900, 901, 902, 5000};
    struct heat h = {0};
    double fast = 0, slow = 0, life = 0;

    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        heat_use(&h, at[i], 1, 1);
        fast = slow = life = 0;
        for (size_t k = 0; k <= i; k++) {
            fast += exp2(-(double)(at[i] - at[k]) / HEAT_FAST);
            slow += exp2(-(double)(at[i] - at[k]) / HEAT_SLOW);
            life += exp2(-(double)(at[i] - at[k]) / HEAT_LIFE);
        }
        CHECK(h.at == at[i] && near(h.fast, fast) && near(h.slow, slow) && near(h.life, life));
    }
    CHECK(near(heat_value(&h), fast + 0.5 * slow * heat_full(HEAT_FAST) / heat_full(HEAT_SLOW)));
}

/* A pass of many tokens comes to about what its tokens one by one come to. */
static void test_passes(void)
{
    struct heat one = {0}, many = {0};

    for (uint64_t t = 0; t < 600; t++)
        if (t % 4 == 1)
            heat_use(&one, t, 1, 1);
    heat_use(&many, 0, 150, 600);
    CHECK_EQ(many.at, 599);
    CHECK(fabs(one.fast * heat_decay(HEAT_FAST, 2) / many.fast - 1) < 0.1);
    CHECK(fabs(one.slow / many.slow - 1) < 0.02 && fabs(one.life / many.life - 1) < 0.02);
    /* used by every token for ever: the steady sums */
    for (uint64_t t = 600; t < 40000; t += 100)
        heat_use(&many, t, 100, 100);
    CHECK(near(many.fast, heat_full(HEAT_FAST)) && near(many.slow, heat_full(HEAT_SLOW)));
    CHECK(near(heat_value(&many), 1.5 * heat_full(HEAT_FAST)));
    CHECK_EQ(heat_class(heat_value(&many)), REUSE_CLASSES - 1);
}

static void test_classes(void)
{
    uint32_t before = 0;

    CHECK_EQ(heat_class(0), 0);
    CHECK_EQ(heat_class(-1), 0);
    CHECK_EQ(heat_class(NAN), 0);
    CHECK_EQ(heat_class(1.02f), 0);
    CHECK_EQ(heat_class(2.01f), 3);
    CHECK_EQ(heat_class(1e30f), REUSE_CLASSES - 1);
    CHECK_EQ(heat_class(INFINITY), REUSE_CLASSES - 1);
    for (float v = 1; v < 60; v *= 1.01f) {
        uint32_t c = heat_class(v);
        CHECK(c == before || c == before + 1);
        before = c;
        CHECK(c == REUSE_CLASSES - 1 ||
              fabs(heat_class_rate(c) * 1.5 * heat_full(HEAT_FAST) / v - 1) < 0.15);
    }
}

int main(void)
{
    test_sums();
    test_passes();
    test_classes();
    return test_end();
}
