/* A card as a worker's C code uses it: a real one (card_cuda.cu), or an emulated one, which is memory of this
 * process and memcpy (card_emu.c). A build without CUDA has the second alone (card_none.c).
 *
 * One a process, and no other process opens it. Errors are lines that name the card, what was wanted and what
 * to do. A real card's error is its end: after -EIO nothing works any more but to say so and end the process.
 * Only the calls under "uploads" may come from another thread than the rest, from one; every thread says
 * card_use first. Nothing here waits for kernels that run. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "shm/err.h"

struct card;

/* device: "emu", or the number of a card as the driver counts them ("0"). */
int card_open(const char *device, struct card **out, struct err *e);
/* Frees everything that was taken through it. NULL is allowed. Not after an error of a real card: the
 * process's end does it. */
void card_close(struct card *c);
int card_real(const struct card *c);
int card_device(const struct card *c); /* the driver's number; -1: emulated */
const char *card_name(const struct card *c); /* "card 0 (NVIDIA H200)", "emulated card" */
/* Binds the calling thread to the card. Every thread, before its first other call. */
int card_use(struct card *c, struct err *e);

/* The card has failed: tells the coordinator why and ends the process at once, for whatever else could be called
 * might wait for it. */
void card_die(int ctl, const struct err *e) __attribute__((noreturn));

/* ---- memory: until card_close ---- */

/* Memory of the card, 256-byte aligned; not cleared. what: for the message ("the pool of experts"). */
int card_alloc(struct card *c, uint64_t bytes, const char *what, void **out, struct err *e);
/* Cleared memory of the process that the card reads and writes: *host here, *dev for its kernels. */
int card_shared(struct card *c, uint64_t bytes, const char *what, void **host, void **dev, struct err *e);
/* Lets the card reach memory that is mapped here already (whole pages; kernels and copies both): *dev for its
 * kernels. writable: how it is mapped here, for a read-only mapping not every card takes. Refused: a negative
 * code and *e says why; nothing is pending, the card is as before. */
int card_map(struct card *c, const void *host, uint64_t bytes, int writable, void **dev, struct err *e);
/* Bytes of the card's memory that are free now; 0: emulated. */
uint64_t card_free_bytes(struct card *c);

/* ---- uploads, and copies down: on a stream of their own, in the order of the calls ---- */

/* Begins a copy. host: mapped (card_map, card_shared), and a copy does not cross the end of one such mapping;
 * it stays as it is until the copy is over. */
int card_copy_in(struct card *c, void *dev, const void *host, uint64_t bytes, struct err *e);
int card_copy_out(struct card *c, void *host, const void *dev, uint64_t bytes, struct err *e);
enum { CARD_MARKS = 18 };
/* Marks this point of the stream of copies. */
int card_mark(struct card *c, unsigned mark, struct err *e);
/* Has everything before the mark been copied? 1, 0: not yet; negative: *e. No mark was ever made: 1. */
int card_marked(struct card *c, unsigned mark, struct err *e);

#ifdef __cplusplus
}
#endif
