/* The two languages in which a grammar comes. Each defines rules and gives the one that a text begins with; errors
 * lie in r (rules.h). */
#pragma once
#include "coordinator/json/json.h"
#include "coordinator/sample/grammar/rules.h"

uint32_t gbnf_read(struct rules *r, const char *text, size_t n);
/* schema NULL: any object. */
uint32_t schema_read(struct rules *r, const struct json *schema);
/* A regular expression of a schema as the inside of a JSON string: what a string may be, with the escapes that JSON
 * needs. Found anywhere in the string unless it has ^ and $. where: for messages. */
uint32_t pattern_read(struct rules *r, const char *text, size_t n, const char *where);

enum { NUMBER_DIGITS = 18 }; /* most digits before the point, and behind it */
/* Numbers from lo to hi, both decimal texts ("-12.5"; no exponent) or NULL: no bound; open: the bound itself is
 * not in. whole: without a point. Refused: bounds with more digits than NUMBER_DIGITS. */
struct number_bounds {
    const char *lo, *hi;
    int lo_open, hi_open, whole;
};
uint32_t number_read(struct rules *r, const struct number_bounds *b, const char *where);

/* Short forms for what is written by hand. */
#define SEQ(r, ...) rules_seq(r, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4)
#define ALT(r, ...) rules_alt(r, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4)
#define TEXT(r, s) rules_text(r, s, sizeof(s) - 1)
#define OPTION(r, x) rules_repeat(r, x, 0, 1)
#define CLASS(r, ...) \
    rules_class(r, (const struct code_range[]){__VA_ARGS__}, sizeof((const struct code_range[]){__VA_ARGS__}) / sizeof(struct code_range), 0)
