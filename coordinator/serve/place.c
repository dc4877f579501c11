#include "coordinator/serve/place.h"

double place_cost(const struct place *p, size_t n, uint32_t n_slots)
{
    return (double)(n - p->front) + (double)p->lost / (2 + 2 * (double)p->age / n_slots);
}
