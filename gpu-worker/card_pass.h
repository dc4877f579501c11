/* A worker's passes on a real card (cpu-worker/worker.h, struct passer). */
#pragma once
#include "cpu-worker/share.h"
#include "gpu-worker/card.h"

struct card_pass;
/* Maps activations and the own outbox for the card, makes everything ready. Borrows all of it until
 * card_pass_close; m->pool is the card's. */
int card_pass_open(struct card *card, const struct child *c, const struct maps *m, struct card_pass **out,
                   struct err *e);
void card_pass_close(struct card_pass *x); /* NULL is allowed; not after an error of the card */
/* arg: the card_pass. All shares of the pass are in the outbox on return, and of their intermediates what is
 * theirs. A card's error ends the process with a line that names card, call and layer; negative: *e. */
int card_pass_run(void *arg, const struct pass *p, struct err *e);
