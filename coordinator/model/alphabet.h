/* The byte alphabet of BPE vocabularies: one printable character for each of the 256 bytes. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Writes the byte's character: 1 or 2 bytes of UTF-8. */
size_t alphabet_of_byte(unsigned char byte, char out[2]);
/* A token's text to the bytes it stands for (at most n), returns how many. A character outside the
 * alphabet stands for its own UTF-8 bytes. */
uint32_t alphabet_to_bytes(const char *text, uint32_t n, char *out);
