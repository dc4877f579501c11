/* ln, exp, sin, cos in doubles by rule 23, written as the rule reads. */
#include "kernels/func/hostmath.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

double h_ln(double x)
{
    uint64_t bits;
    double m, s, z, p = 0.0;
    int e;

    memcpy(&bits, &x, sizeof bits);
    e = (int)(bits >> 52) - 1023; /* positive: no sign bit */
    bits = (bits & 0xFFFFFFFFFFFFF) | (uint64_t)1023 << 52;
    memcpy(&m, &bits, sizeof m); /* x = m * 2^e, m in [1, 2) */
    if (m >= 0x1.6a09e667f3bcdp+0) {
        m *= 0.5;
        e++;
    }
    s = (m - 1.0) / (m + 1.0);
    z = s * s;
    for (int k = 20; k >= 0; k--)
        p = fma(p, z, 1.0 / (2 * k + 1));
    return fma(e, 0x1.62e42fefa39efp-1, (s + s) * p);
}

double h_exp(double x)
{
    double n = rint(x * 0x1.71547652b82fep+0), r, p = 1.0, scale;
    uint64_t bits = (uint64_t)((int64_t)n + 1023) << 52; /* 2^n is normal: |x| < 700 */

    r = fma(n, -0x1.62e42fefa39efp-1, x);
    r = fma(n, -0x1.abc9e3b39803fp-56, r);
    for (int k = 18; k >= 1; k--)
        p = fma(r / k, p, 1.0);
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

void h_sincos(double x, double *s, double *c)
{
    double n = rint(x * 0x1.45f306dc9c883p-1), r, z, S = 1.0, C = 1.0;

    r = fma(n, -0x1.921fb54442d18p+0, x);
    r = fma(n, -0x1.1a62633145c07p-54, r);
    z = r * r;
    for (int k = 8; k >= 1; k--)
        S = fma(-(z / (2 * k * (2 * k + 1))), S, 1.0);
    S = r * S;
    for (int k = 9; k >= 1; k--)
        C = fma(-(z / ((2 * k - 1) * 2 * k)), C, 1.0);
    switch ((int64_t)n & 3) {
    case 0:
        *s = S, *c = C;
        break;
    case 1:
        *s = C, *c = -S;
        break;
    case 2:
        *s = -S, *c = -C;
        break;
    default:
        *s = -C, *c = S;
    }
}
