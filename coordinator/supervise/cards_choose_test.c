/* Every way in which cards that were asked for are not there, and what an automatic choice leaves out. */
#include "coordinator/supervise/cards_choose.h"

#include <string.h>

#include "tests/test.h"

#define GIB (1ull << 30)

static struct cards_found two(void)
{
    struct cards_found f = {.archs = "75 80 90 90+ptx", .driver = 13000, .runtime = 13000, .n = 2};

    for (uint32_t i = 0; i < 2; i++)
        f.card[i] = (struct card_found){.number = i, .name = "H200", .compute = 90, .runs = 1, .total = 140 * GIB,
                                        .free = (100 + 20 * i) * GIB};
    return f;
}

/* an error that names all words, in one line */
static void refused(const struct cards_wanted *w, const struct cards_found *f, const char *a, const char *b, const char *c)
{
    struct cards_chosen out;
    struct err e = {0};

    CHECK(cards_choose(w, f, GIB, &out, &e) < 0, "accepted (%s)", a);
    CHECK(strstr(e.msg, "--cards") && strstr(e.msg, a) && strstr(e.msg, b) && strstr(e.msg, c) && !strchr(e.msg, '\n'),
          "'%s', wanted '%s', '%s', '%s'", e.msg, a, b, c);
}

static void listed(void)
{
    struct cards_wanted w = {.kind = CARDS_LISTED, .n = 3, .card = {1, 0, 1}, .most = {0, GIB, 0}};
    struct cards_found f = two();
    struct cards_chosen out;
    struct err e = {0};

    CHECK(!cards_choose(&w, &f, GIB, &out, &e) && out.n == 3, "%s", e.msg);
    CHECK(out.card[0].device == 1 && out.card[0].sharers == 2 && out.card[0].free == 60 * GIB);
    CHECK(out.card[1].device == 0 && out.card[1].sharers == 1 && out.card[1].free == 100 * GIB);
    CHECK(out.card[1].most == GIB && !out.card[0].most && !out.card[2].most);
    CHECK(out.card[2].device == 1 && out.card[2].free == 60 * GIB);
    w = (struct cards_wanted){.kind = CARDS_LISTED, .n = 1, .card = {2}};
    refused(&w, &f, "no card 2", "0 to 1", "");
    f.n = 1;
    refused(&w, &f, "no card 2", "only card 0", "H200");
    w.card[0] = 0;
    f.card[0].free = GIB / 2;
    refused(&w, &f, "full", "0.50 GiB", "1.00 GiB are wanted");
    f.card[0].free = 3 * GIB / 2;
    w = (struct cards_wanted){.kind = CARDS_LISTED, .n = 2};
    refused(&w, &f, "full", "1.50 GiB", "2.00 GiB are wanted for all its workers");
    f.card[0].runs = 0;
    f.card[0].compute = 61;
    refused(&w, &f, "capability 6.1", "7.5, 8.0, 9.0 and later", "CUDA_ARCH=61");
    f = two();
    snprintf(f.card[0].problem, sizeof f.card[0].problem, "cannot be opened: busy");
    refused(&w, &f, "card 0 (H200)", "cannot be opened: busy", "");
    snprintf(f.problem, sizeof f.problem, "no NVIDIA driver is installed");
    f.n = 0;
    refused(&w, &f, "no NVIDIA driver", "--cards none", "");
}

static void automatic(void)
{
    struct cards_wanted w = {.kind = CARDS_AUTO};
    struct cards_found f = two();
    struct cards_chosen out;
    struct err e = {0};

    CHECK(!cards_choose(&w, &f, GIB, &out, &e) && out.n == 2 && !*out.why && !out.notable);
    f.card[0].runs = 0;
    f.card[1].free = GIB - 1;
    CHECK(!cards_choose(&w, &f, GIB, &out, &e) && !out.n && out.notable);
    CHECK(strstr(out.why, "capability") && strstr(out.why, "card 1 (H200) is full"), "%s", out.why);
    f.card[0].runs = 1;
    CHECK(!cards_choose(&w, &f, GIB, &out, &e) && out.n == 1 && out.card[0].device == 0 && out.notable);
    f = two();
    f.n = 0;
    snprintf(f.problem, sizeof f.problem, "the driver is too old");
    CHECK(!cards_choose(&w, &f, GIB, &out, &e) && !out.n && out.notable);
    CHECK_STR(out.why, "no cards: the driver is too old");
    f.driver = 0;
    CHECK(!cards_choose(&w, &f, GIB, &out, &e) && !out.notable);
    w.kind = CARDS_NONE;
    f = two();
    CHECK(!cards_choose(&w, &f, GIB, &out, &e) && !out.n && !*out.why);
    w = (struct cards_wanted){.kind = CARDS_EMULATED, .n = 2};
    CHECK(!cards_choose(&w, &f, GIB, &out, &e) && !out.n && !*out.why);
}

/* The demo model was slower on a card with 16 threads beside it, and faster than with two. */
static void pay(void)
{
    char why[200];

    CHECK(!cards_pay(70, 2400000, 16, why, sizeof why));
    CHECK(strstr(why, "2.4 MB") && strstr(why, "16 threads") && strstr(why, "70 operations") && strstr(why, "--cards 0"),
          "%s", why);
    CHECK(cards_pay(70, 2400000, 2, why, sizeof why));
    CHECK(cards_pay(800, 2000000000, 128, why, sizeof why));
    CHECK(!cards_pay(70, 1, 1, why, sizeof why) && strstr(why, " 1 thread "), "%s", why);
}

static void archs(void)
{
    char text[64];

    cards_archs_text("75", text, sizeof text);
    CHECK_STR(text, "7.5");
    cards_archs_text("75 120 120+ptx", text, sizeof text);
    CHECK_STR(text, "7.5, 12.0 and later");
    cards_archs_text("nonsense", text, sizeof text);
    CHECK_STR(text, "");
    cards_archs_text("75 80 86 89 90 100 120 120+ptx", text, 8); /* cut, not written past */
    CHECK_STR(text, "7.5, 8.");
}

int main(void)
{
    listed();
    automatic();
    pay();
    archs();
    return test_end();
}
