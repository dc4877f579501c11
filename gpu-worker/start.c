/* A card's number is told, never guessed from the outbox: a replaced worker has another outbox. */
#include "gpu-worker/start.h"

#include <stdlib.h>
#include <string.h>

#include "shm/layout.h"

static int number(const char **at, unsigned long most, unsigned long *out)
{
    char *end;

    if (**at < '0' || **at > '9')
        return -1;
    *out = strtoul(*at, &end, 10);
    *at = end;
    return *out > most ? -1 : 0;
}
static int word(const char **at, const char *w)
{
    size_t n = strlen(w);

    if (strncmp(*at, w, n))
        return -1;
    *at += n;
    return 0;
}

int card_start_read(const char **text, struct card_start *s, struct err *e)
{
    const char *at = *text;
    unsigned long card, device = 0;
    int emulated;

    if (!word(&at, "card=") && !number(&at, MAX_CARDS - 1, &card) && !word(&at, " device=") &&
        ((emulated = !word(&at, "emu")) || !number(&at, 1023, &device)) && !word(&at, " ")) {
        *s = (struct card_start){(uint32_t)card, emulated ? -1 : (int)device};
        *text = at;
        return 0;
    }
    return err_set(e, -EPROTO, "'%.100s' is no start of a card (wanted: card=C device=emu|N ...)", *text);
}
