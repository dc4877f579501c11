/* The values of --cards and --trunk. */
#pragma once
#include <stddef.h>

/* Into a struct cards_wanted (coordinator/supervise/cards_choose.h): none, all, 0,1,0, 0:BYTES,1, emu:N, emu:N:BYTES,
 * emu:2:BYTES,BYTES.
 * trunk stays as it is. 0, or -1 and what is wanted in `wanted`. */
int take_cards(const char *value, void *to, char *wanted, size_t room);
/* auto, cpu, or the index of a card in the list: into an int, as cards_wanted.trunk. */
int take_trunk(const char *value, void *to, char *wanted, size_t room);
