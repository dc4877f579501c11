/* Who computes how much of a layer of experts: cards and CPU nodes work at the same time, and the layer ends
 * with the slowest of them. So each gets the part with which all end together, as far as what lies there (or
 * fits there) allows. Pure arithmetic over measured rates. */
#pragma once
#include <stdint.h>

struct balance_device {
    double rate;  /* bytes of weights a second that it computes for one token; 0: nothing */
    double fixed; /* seconds that a layer costs there as soon as it has one item: the hand-off */
    double most;  /* of all uses it can have this part: how often what fits there is used; in [0, 1] */
};
/* part[i] of the uses of a layer of `bytes` (weights of one token) go to device i; they add up to 1, or to less
 * if no device takes the rest (every most reached). A device that would only begin when the others have ended
 * gets nothing; of those that get something and have not their most, all end at the same moment. Returns it:
 * the seconds of the layer, the longest of all. */
double balance(const struct balance_device *d, uint32_t n, double bytes, double *part);

/* What one part of the uses costs on a device: 0 for none. */
static inline double balance_seconds(const struct balance_device *d, double part, double bytes)
{
    return part > 0 ? d->fixed + part * bytes / d->rate : 0;
}
