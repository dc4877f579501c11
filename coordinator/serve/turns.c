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

static void forget(double *mean, double now)
{
    *mean += *mean > 0 ? FORGET * (now - *mean) : now;
}

/* A pass of prompts alone. */
static void note_alone(struct turns *t, uint32_t tokens, double seconds)
{
    double *now = &t->token_s[t->halved];

    if (tokens != t->most >> t->halved)
        return;
    forget(now, seconds / tokens);
    if (t->halved && *now > TURNS_MORE * now[-1]) /* too small */
        t->halved--;
    else if (seconds > TURNS_ALONE_S && t->halved < TURNS_HALVINGS && tokens / 2 >= TURNS_ALONE_LEAST &&
             now[1] <= TURNS_MORE * *now) /* 0: not tried */
        t->halved++;
}

void turns_note(struct turns *t, uint32_t answering, uint32_t prompt_tokens, double seconds)
{
    double limit = limit_s(t);

    if (!answering) {
        note_alone(t, prompt_tokens, seconds);
        return;
    }
    if (!prompt_tokens) {
        forget(&t->without_s, seconds);
        return;
    }
    if (seconds > limit) {
        double ratio = limit / seconds;
        t->piece = within(t, t->piece * (ratio > 0.5 ? ratio : 0.5));
    } else if (seconds < 0.75 * limit && prompt_tokens >= t->piece) {
        t->piece = within(t, t->piece + t->piece / (seconds < limit / 2 ? 4 : 8) + 1);
    }
}

uint32_t turns_piece(const struct turns *t, uint32_t answering)
{
    uint32_t room = t->most > answering ? t->most - answering : 0;

    if (!answering)
        return t->most >> t->halved;
    return t->piece > room ? room : t->piece;
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
