/* Turns by replay: machines of given speeds, prompts of given lengths. */
#include "coordinator/serve/turns.h"

#include "tests/test.h"

static void shares(void)
{
    uint32_t s[3];

    turns_share(30, (size_t[]){100, 100, 100}, 3, s);
    CHECK(s[0] == 10 && s[1] == 10 && s[2] == 10);
    turns_share(32, (size_t[]){100, 2, 100}, 3, s);
    CHECK(s[0] == 20 && s[1] == 2 && s[2] == 10, "%u %u %u", s[0], s[1], s[2]);
    turns_share(2, (size_t[]){5, 5, 5}, 3, s); /* fewer than one each: the oldest goes first */
    CHECK(s[0] == 2 && s[1] == 0 && s[2] == 0);
    turns_share(512, (size_t[]){5, 7}, 2, s);
    CHECK(s[0] == 5 && s[1] == 7);
    turns_share(9, NULL, 0, s);
}

/* Steps of a machine that takes so long for each pass, and for each token of a prompt. Returns the longest of the
 * later steps. */
static double replay(struct turns *t, double pass_s, double token_s, int steps)
{
    double longest = 0;

    for (int i = 0; i < steps; i++) {
        uint32_t prompt = i % 5 ? turns_piece(t, 3) : 0;
        double s = pass_s + token_s * prompt;
        CHECK(prompt <= t->most - 3);
        turns_note(t, 3, prompt, s);
        if (i > steps / 2 && s > longest)
            longest = s;
    }
    return longest;
}

static void pieces(void)
{
    struct turns t;
    double s;

    turns_init(&t, 512);
    CHECK(turns_piece(&t, 0) == 512); /* nobody waits: whole passes */
    CHECK(turns_piece(&t, 4) == TURNS_PIECE_FIRST);
    s = replay(&t, 0.005, 0.001, 200); /* 100 ms are allowed */
    CHECK(s < 0.13 && t.piece > 40 && t.piece < 130, "%g %u", s, t.piece);
    turns_init(&t, 512);
    s = replay(&t, 0.2, 0.01, 200); /* four times 200 ms */
    CHECK(s < 1.0 && t.piece > 25 && t.piece < 80, "%g %u", s, t.piece);
    turns_init(&t, 512);
    replay(&t, 0.001, 1e-6, 200); /* a fast one: what is left of the pass */
    CHECK(turns_piece(&t, 3) == 509, "%u", t.piece);
    turns_init(&t, 512);
    replay(&t, 0.01, 1.0, 200); /* never nothing */
    CHECK(t.piece == TURNS_PIECE_LEAST, "%u", t.piece);
    turns_init(&t, 4);
    CHECK(turns_piece(&t, 4) == 0 && turns_piece(&t, 1) == 3 && turns_piece(&t, 9) == 0);
}

/* Passes of prompts alone, of a machine where one takes so long and so much more a token. */
static uint32_t alone(double pass_s, double token_s)
{
    struct turns t;

    turns_init(&t, 512);
    for (int i = 0; i < 50; i++) {
        uint32_t n = turns_piece(&t, 0);
        turns_note(&t, 0, n, pass_s + token_s * n);
        turns_note(&t, 0, 3, 100); /* a prompt's rest says nothing */
    }
    return turns_piece(&t, 0);
}

static void passes_alone(void)
{
    CHECK_EQ(alone(0.01, 0.001), 512);  /* within a second */
    CHECK_EQ(alone(0.01, 0.004), 128);  /* two seconds, and halves as good */
    CHECK_EQ(alone(0.01, 0.1), 32);
    CHECK_EQ(alone(20, 0.004), 512);    /* experts from the disk: all of them for every pass */
    CHECK_EQ(alone(0.2, 0.01), 128);    /* a little of that */
}

int main(void)
{
    shares();
    pieces();
    passes_alone();
    return test_end();
}
