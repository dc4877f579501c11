/* Plain reading, for measuring: what a machine's memory gives when nothing is computed. The answer is
 * the exclusive or of all 8-byte words, so that no form may leave a byte out. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* n: a multiple of 256 */
uint64_t read_words(const void *p, size_t n);
uint64_t read_words_ref(const void *p, size_t n);
uint64_t read_words_avx2(const void *p, size_t n);
