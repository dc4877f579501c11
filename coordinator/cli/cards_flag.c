/* Words only; whether such cards are there is asked when the run begins. */
#include "coordinator/cli/cards_flag.h"

#include <stdio.h>
#include <string.h>

#include "coordinator/cli/value.h"
#include "coordinator/supervise/cards_choose.h"

/* Digits up to `end` or the text's end; at most two, none in front that means nothing. NULL: no number. */
static const char *small_number(const char *at, uint32_t *out)
{
    size_t n = strspn(at, "0123456789");

    if (!n || n > 3 || (n > 1 && *at == '0'))
        return NULL;
    *out = 0;
    for (size_t i = 0; i < n; i++)
        *out = *out * 10 + (uint32_t)(at[i] - '0');
    return at + n;
}

/* ":BYTES" of a card in a list, or ",BYTES". NULL: no size. */
static const char *pool_size(const char *at, uint64_t *bytes)
{
    char text[32];
    size_t n = strcspn(++at, ",");

    if (n >= sizeof text)
        return NULL;
    memcpy(text, at, n);
    text[n] = 0;
    return value_size(text, bytes) || !*bytes ? NULL : at + n;
}

/* Behind the number a size for each card, or one for all. */
static int emulated(const char *at, struct cards_wanted *c)
{
    uint32_t sizes = 0;

    at = small_number(at, &c->n);
    c->kind = CARDS_EMULATED;
    if (!at || !c->n || c->n > MAX_CARDS)
        return -1;
    if (!*at)
        return 0;
    for (char before = ':'; *at; before = ',')
        if (*at != before || sizes == c->n || !(at = pool_size(at, &c->most[sizes++])))
            return -1;
    for (uint32_t k = 1; sizes == 1 && k < c->n; k++)
        c->most[k] = c->most[0];
    return sizes == 1 || sizes == c->n ? 0 : -1;
}

static int listed(const char *at, struct cards_wanted *c)
{
    c->kind = CARDS_LISTED;
    for (;; at++) {
        uint32_t i = c->n++;
        if (i == MAX_CARDS || !(at = small_number(at, &c->card[i])) || (*at == ':' && !(at = pool_size(at, &c->most[i]))))
            return -1;
        if (!*at)
            return 0;
        if (*at != ',')
            return -1;
    }
}

int take_cards(const char *value, void *to, char *wanted, size_t room)
{
    struct cards_wanted *old = to, c = {.trunk = old->trunk};
    int bad = 0;

    snprintf(wanted, room, "none, all, numbers of cards as in 0,1 or 0:BYTES,1:BYTES, emu:N or emu:N:BYTES with N from 1 to %u, or emu:N:BYTES,BYTES with a size for each", MAX_CARDS);
    if (!strcmp(value, "none"))
        c.kind = CARDS_NONE;
    else if (!strncmp(value, "emu:", 4))
        bad = emulated(value + 4, &c);
    else if (strcmp(value, "all"))
        bad = listed(value, &c);
    if (!bad)
        *old = c;
    return bad;
}

int take_trunk(const char *value, void *to, char *wanted, size_t room)
{
    uint32_t n;
    const char *end;

    snprintf(wanted, room, "auto, cpu, or a place in the list of cards, 0 to %u", MAX_CARDS - 1);
    if (!strcmp(value, "auto")) {
        *(int *)to = TRUNK_AUTO;
    } else if (!strcmp(value, "cpu")) {
        *(int *)to = TRUNK_CPU;
    } else {
        end = small_number(value, &n);
        if (!end || *end || n >= MAX_CARDS)
            return -1;
        *(int *)to = (int)n;
    }
    return 0;
}
