/* A card's number is told, never guessed from the outbox: a replaced worker has another outbox. */
#include "gpu-worker/start.h"

#include <stdlib.h>
#include <string.h>

#include "shm/layout.h"

static int number(const char **at, unsigned long long most, unsigned long long *out)
{
    char *end;

    if (**at < '0' || **at > '9')
        return -1;
    *out = strtoull(*at, &end, 10);
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

static int read_card(const char **at, struct card_start *s)
{
    unsigned long long card, device = 0;
    int emulated;

    if (word(at, "card=") || number(at, MAX_CARDS - 1, &card) || word(at, " device=") ||
        (!(emulated = !word(at, "emu")) && number(at, 1023, &device)) || word(at, " "))
        return -1;
    s->card = (uint32_t)card;
    s->device = emulated ? -1 : (int)device;
    return 0;
}

static int read_trunk(const char **at, struct card_start *s)
{
    unsigned long long record, team, cpu;

    if (word(at, "trunk="))
        return 0;
    if (number(at, UINT64_MAX, &record) || word(at, " team=") || number(at, CARD_TEAM_MOST, &team) || !team)
        return -1;
    for (uint32_t i = 0; i < team; i++) {
        if (word(at, i ? "," : ":") || number(at, 1 << 20, &cpu))
            return -1;
        s->cpu[i] = (int)cpu;
    }
    s->trunk = 1;
    s->record = record;
    s->team = (uint32_t)team;
    return word(at, " ");
}

int card_start_read(const char **text, struct card_start *s, struct err *e)
{
    const char *at = *text;

    memset(s, 0, sizeof *s);
    if (!read_card(&at, s) && !read_trunk(&at, s)) {
        *text = at;
        return 0;
    }
    return err_set(e, -EPROTO, "'%.100s' is no start of a card (wanted: card=C device=emu|N [trunk=RECORD team=T:a,b] "
                               "...)", *text);
}
