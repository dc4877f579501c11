/* Which free slot takes a job. Numbers in, a number out.
 *
 * A job computes its prompt but for the front that the slot has; what the slot had behind that is lost, and may be
 * wanted again: half as likely as not, less so the more jobs have begun since. The slot with the smallest sum of
 * tokens that are computed and tokens that will be. So a conversation comes back to its slot, and a stranger with the
 * same first words does not drive it out while another slot is emptier or older. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct place {
    size_t front; /* tokens of the prompt that need not be computed there */
    size_t lost;  /* tokens that the slot would no longer have */
    uint64_t age; /* jobs that began since one did there */
};
/* Tokens, of a prompt of n, with n_slots in all. */
double place_cost(const struct place *p, size_t n, uint32_t n_slots);
