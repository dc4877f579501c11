/* Water into vessels: at time t a device has computed (t - fixed) * rate bytes, at most its most. The level at
 * which all is computed is found by halving. */
#include "coordinator/residency/balance.h"

#include <math.h>

#define HALVINGS 200 /* a double has no more than some 60 in it; more where the level is near 0 */

static double part_at(const struct balance_device *d, double t, double bytes)
{
    double p;

    if (!(d->rate > 0) || t <= d->fixed || !(d->most > 0))
        return 0;
    p = (t - d->fixed) * d->rate / bytes;
    return p < d->most ? p : d->most;
}

static double all_at(const struct balance_device *d, uint32_t n, double t, double bytes)
{
    double all = 0;

    for (uint32_t i = 0; i < n; i++)
        all += part_at(&d[i], t, bytes);
    return all;
}

/* The time at which every device has its most. */
static double longest(const struct balance_device *d, uint32_t n, double bytes)
{
    double t = 0;

    for (uint32_t i = 0; i < n; i++)
        if (d[i].rate > 0 && d[i].most > 0)
            t = fmax(t, d[i].fixed + d[i].most * bytes / d[i].rate);
    return t;
}

double balance(const struct balance_device *d, uint32_t n, double bytes, double *part)
{
    double low = 0, high = longest(d, n, bytes), end = 0, sum = 0;

    for (int i = 0; i < HALVINGS && all_at(d, n, high, bytes) > 1; i++) {
        double t = low + (high - low) / 2;
        if (t <= low || t >= high)
            break;
        if (all_at(d, n, t, bytes) >= 1)
            high = t;
        else
            low = t;
    }
    for (uint32_t i = 0; i < n; i++)
        sum += part[i] = part_at(&d[i], high, bytes);
    for (uint32_t i = 0; i < n; i++) {
        if (sum > 1)
            part[i] /= sum; /* the last bit */
        end = fmax(end, balance_seconds(&d[i], part[i], bytes));
    }
    return end;
}
