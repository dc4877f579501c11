/* Doubles of rule 23: constants, RoPE tables, log probabilities. IEEE + - * / fma rint alone, so
 * that no C library's version shows in a result. */
#pragma once

double h_ln(double x);                         /* x normal and positive */
double h_exp(double x);                        /* |x| < 700 */
void h_sincos(double x, double *s, double *c); /* 0 <= x < 2^21 */
