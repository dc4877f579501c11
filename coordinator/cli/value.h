/* Numbers as people type them. Each takes the whole text or nothing: 0, or -1 and *out is as it
 * was. White space, hexadecimal, "nan" and "inf" are no numbers here. */
#pragma once
#include <stdint.h>

/* A decimal whole number with an optional sign, -2^63 to 2^63 - 1. */
int value_i64(const char *text, int64_t *out);
/* 64 bits: 0 to 2^64 - 1, negative numbers modulo 2^64. */
int value_bits64(const char *text, uint64_t *out);
/* Finite: "0.8", "-1", ".5", "1e-3". */
int value_f64(const char *text, double *out);
/* Bytes: "1000", "4K", "1.5G", "2T" (powers of 1024; KB and KiB are K), rounded down. Below 2^64.
 */
int value_size(const char *text, uint64_t *out);

/* The other way: "1.5 GiB", "512 B". Returns text. */
char *value_show_size(uint64_t bytes, char text[32]);
