/* Parts add up, devices that are not full end together, nobody is better off otherwise: compared with a search
 * over a grid of parts. */
#include "coordinator/residency/balance.h"

#include <math.h>

#include "tests/test.h"

#define BYTES 200e6

static double best_of_grid(const struct balance_device *d, int steps)
{
    double best = INFINITY;

    for (int a = 0; a <= steps; a++)
        for (int b = 0; a + b <= steps; b++) {
            double p[3] = {(double)a / steps, (double)b / steps, (double)(steps - a - b) / steps}, t = 0;
            for (int i = 0; i < 3; i++)
                t = fmax(t, p[i] > d[i].most + 1e-9 || (p[i] > 0 && !(d[i].rate > 0))
                                ? INFINITY
                                : balance_seconds(&d[i], p[i], BYTES));
            best = fmin(best, t);
        }
    return best;
}

static void check(const struct balance_device *d, const char *what)
{
    double part[3], sum = 0, t = balance(d, 3, BYTES, part), grid = best_of_grid(d, 400);

    for (int i = 0; i < 3; i++) {
        double s = balance_seconds(&d[i], part[i], BYTES);
        sum += part[i];
        CHECK(part[i] >= 0 && part[i] <= d[i].most + 1e-9, "%s: part %d is %g", what, i, part[i]);
        CHECK(part[i] <= 0 || part[i] >= d[i].most - 1e-9 || fabs(s - t) < 1e-6 * t, "%s: %d ends after %g of %g", what,
              i, s, t);
        CHECK(part[i] > 0 || d[i].fixed >= t || !(d[i].rate > 0) || !(d[i].most > 0), "%s: %d has nothing", what, i);
    }
    CHECK(fabs(sum - 1) < 1e-9, "%s: the parts add up to %.12g", what, sum);
    CHECK(t <= grid * (1 + 1e-9), "%s: %g s, but %g are possible", what, t, grid);
    CHECK(t > 0.9 * grid || isinf(grid), "%s: %g s, and the search found %g", what, t, grid);
}

int main(void)
{
    const struct balance_device cpu = {50e9, 0, 1};
    struct balance_device d[3];
    double part[3], t;

    /* a fast card that holds all: the nodes get what is worth their hand-off, and that is nothing here */
    d[0] = cpu, d[0].fixed = 60e-6;
    d[1] = (struct balance_device){4e12, 0, 1};
    d[2] = (struct balance_device){0, 0, 1};
    t = balance(d, 3, BYTES, part);
    CHECK(part[0] == 0 && part[1] == 1 && fabs(t - 50e-6) < 1e-9, "%g, %g in %g s", part[0], part[1], t);
    check(d, "a fast card");
    /* half of it fits: the rest is the nodes', who take much longer, and the card cannot help */
    d[1].most = 0.5;
    t = balance(d, 3, BYTES, part);
    CHECK(part[1] == 0.5 && fabs(t - (60e-6 + 100e6 / 50e9)) < 1e-9, "%g in %g s", part[1], t);
    check(d, "half of it");
    /* a card that is slower than the nodes has its share and no more, though more would fit */
    d[0].fixed = 0;
    d[1] = (struct balance_device){25e9, 0, 1};
    t = balance(d, 3, BYTES, part);
    CHECK(fabs(part[0] - 2. / 3) < 1e-9 && fabs(part[1] - 1. / 3) < 1e-9 && fabs(t - BYTES / 75e9) < 1e-9,
          "%g and %g in %g s", part[0], part[1], t);
    check(d, "a slow card");
    /* uneven cards, a small one among them, and hand-offs */
    for (int k = 0; k < 300; k++)
        for (int i = 0; i < 3; i++) {
            d[i] = (struct balance_device){(1 + (k * 7 + i * 13) % 29) * 1e9, (k * 5 + i * 11) % 17 * 1e-4,
                                           i ? 0.05 * ((k * 3 + i * 5) % 21) : 1};
            if (i == 2)
                check(d, "three devices");
        }
    /* not all fits anywhere: the rest is read from the disk by somebody, and is not our matter */
    d[0].most = d[1].most = d[2].most = 0.2;
    balance(d, 3, BYTES, part);
    CHECK(fabs(part[0] + part[1] + part[2] - 0.6) < 1e-9, "all that fits");
    return test_end();
}
