#include "coordinator/residency/predict.h"

#include <math.h>

#include "tests/test.h"

static int near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * (fabs(a) + fabs(b));
}

static void test_nothing_is_read(void)
{
    double t[5] = {0.002, NAN, NAN, NAN, NAN}; /* not measured where nothing is read */
    struct predict_in in = {1, 0.01, 4, t, 10, 1000, 2000, NULL};
    struct predict_out o = predict(&in);

    CHECK(near(o.seconds, 0.03) && near(o.tokens_per_s, 1 / 0.03) && near(o.best_seconds, 0.03));
    CHECK(near(o.memory_bytes, 1000) && o.disk_bytes == 0);
}

static void test_everything_is_read(void)
{
    double t[5] = {0.002, 0.003, 0.004, 0.005, 0.006};
    struct predict_in in = {0, 0.01, 4, t, 10, 1000, 2000, NULL};
    struct predict_out o = predict(&in);

    CHECK(near(o.seconds, 0.07) && near(o.disk_bytes, 2000) && o.memory_bytes == 0);
}

/* Times that grow evenly: the mean number of absent experts decides. Times that do not: the spread too. */
static void test_half(void)
{
    double even[5] = {0, 1, 2, 3, 4}, flat[5] = {0, 1, 1, 1, 1};
    struct predict_in in = {0.5, 0, 4, even, 1, 0, 0, NULL};

    CHECK(near(predict(&in).seconds, 2));
    in.seconds = flat;
    CHECK(near(predict(&in).seconds, 15.0 / 16));
    in.hit = 0.9;
    CHECK(near(predict(&in).seconds, 1 - pow(0.9, 4)));
}

static void test_hottest(void)
{
    float uses[6] = {1, 5, 0, 2, 0, 2};
    float none[2] = {0, 0};

    CHECK(near(predict_hottest(uses, 6, 1), 0.5) && near(predict_hottest(uses, 6, 3), 0.9));
    CHECK(near(predict_hottest(uses, 6, 100), 1) && predict_hottest(uses, 6, 0) == 0);
    CHECK(predict_hottest(none, 2, 1) == 0);
}

/* Cards compute beside the nodes: as much as makes both end together, or as they can have. */
static void test_cards(void)
{
    double t[5] = {0.004, 0.005, 0.006, 0.007, 0.008};
    struct predict_cards c = {.n = 1, .card = {{3e6, 0, 1}}, .bytes = 4000, .all_in_ram = 1}; /* nodes: 1e6 a second */
    struct predict_in in = {1, 0.01, 4, t, 10, 1000, 2000, &c};
    struct predict_out o = predict(&in);

    CHECK(near(o.part[0], 0.75) && near(o.seconds, 0.02) && near(o.experts_seconds, 0.01), "%g %g", o.part[0], o.seconds);
    CHECK(near(o.card_bytes, 750) && near(o.memory_bytes, 250) && o.disk_bytes == 0);
    c.card[0].most = 0.5; /* half of the uses at most: the nodes end last */
    o = predict(&in);
    CHECK(near(o.part[0], 0.5) && near(o.experts_seconds, 0.02), "%g", o.experts_seconds);
    c.card[0].most = 1; /* all lies there, nothing in memory */
    c.all_in_ram = 0;
    o = predict(&in);
    CHECK(near(o.part[0], 1) && near(o.experts_seconds, 10 * 4000 / 3e6) && o.memory_bytes == 0);
    c.card[0].most = 0.25; /* a quarter on the card, half in memory, a quarter on the disk */
    in.hit = 0.75;
    o = predict(&in);
    CHECK(near(o.part[0], 0.25) && near(o.memory_bytes, 500) && near(o.disk_bytes, 500));
    CHECK(near(o.experts_seconds, 10 * (0.002 + 4 * 0.25 * 0.001)), "%g", o.experts_seconds);
    CHECK(near(o.best_seconds, 0.01 + 10 * 0.002));
    in.hit = 1;
    c = (struct predict_cards){.n = 2, .card = {{2e6, 0, 1}, {1e6, 0, 1}}, .bytes = 4000, .all_in_ram = 1};
    o = predict(&in);
    CHECK(near(o.part[0], 0.5) && near(o.part[1], 0.25) && near(o.experts_seconds, 0.01));
    c.n = 0; /* as without */
    o = predict(&in);
    CHECK(near(o.experts_seconds, 0.04) && o.card_bytes == 0 && near(o.memory_bytes, 1000));
}

int main(void)
{
    test_cards();
    test_nothing_is_read();
    test_everything_is_read();
    test_half();
    test_hottest();
    return test_end();
}
