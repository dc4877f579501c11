/* The files that a pack was made from, as a second source of its bytes. */
#pragma once
#include "coordinator/pack/pack.h"

/* 0: each is where it was, with the size, the time of its last change and the metadata that it had when
 * it was packed. Else negative, and a line says which is not and why: their bytes are not to be used. */
int pack_originals_match(const struct pack *p, struct err *why);
