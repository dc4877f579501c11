#include "coordinator/serve/turns.h"

#define FORGET 0.125

void turns_init(struct turns *t, uint32_t most)
{
    *t = (struct turns){.most = most, .piece = most < TURNS_PIECE_FIRST ? most : TURNS_PIECE_FIRST};
}

static double limit_s(const struct turns *t)
{
    double s = TURNS_TIMES * t->without_s;

    return s > TURNS_LEAST_S ? s : TURNS_LEAST_S;
}

static uint32_t within(const struct turns *t, double piece)
{
    uint32_t least = t->most < TURNS_PIECE_LEAST ? t->most : TURNS_PIECE_LEAST;

    return piece < least ? least : piece > t->most ? t->most : (uint32_t)piece;
}

void turns_note(struct turns *t, uint32_t answering, uint32_t prompt_tokens, double seconds)
{
    double limit = limit_s(t);

    if (!answering)
        return;
    if (!prompt_tokens) {
        t->without_s += t->without_s > 0 ? FORGET * (seconds - t->without_s) : seconds;
        return;
    }
    if (seconds > limit) {
        double ratio = limit / seconds;
        t->piece = within(t, t->piece * (ratio > 0.5 ? ratio : 0.5));
    } else if (seconds < limit / 2 && prompt_tokens >= t->piece) {
        t->piece = within(t, t->piece + t->piece / 4 + 1);
    }
}

uint32_t turns_piece(const struct turns *t, uint32_t answering)
{
    uint32_t room = t->most > answering ? t->most - answering : 0;

    return !answering || t->piece > room ? room : t->piece;
}

void turns_share(uint32_t room, const size_t *left, uint32_t n, uint32_t *share)
{
    uint32_t each = n ? room / n : 0;

    for (uint32_t i = 0; i < n; i++) {
        share[i] = left[i] < each ? (uint32_t)left[i] : each;
        room -= share[i];
    }
    for (uint32_t i = 0; i < n && room; i++) {
        size_t more = left[i] - share[i];
        if (more > room)
            more = room;
        share[i] += (uint32_t)more;
        room -= (uint32_t)more;
    }
}
