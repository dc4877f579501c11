/* Case mappings of code points (Unicode 14.0.0, scripts/case-table): ranges, sorted, in which each
 * `stride`-th code point changes by `delta`; and those that become several. */
#pragma once
#include <stdint.h>

struct case_range {
    uint32_t first, last;
    int stride, delta;
};
struct case_long {
    uint32_t from, to[3]; /* 0: no more */
};
extern const struct case_range case_upper[194], case_lower[181];
extern const struct case_range case_title[26]; /* where it is not the upper case */
extern const struct case_long case_upper_long[102], case_lower_long[1], case_title_long[48];
