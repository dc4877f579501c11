/* --cards and --trunk: what is taken, as what, and what is refused and changes nothing. */
#include "coordinator/cli/cards_flag.h"

#include <stdint.h>

#include "coordinator/supervise/cards_choose.h"
#include "tests/test.h"

static char wanted[200];

static struct cards_wanted taken(const char *value)
{
    struct cards_wanted c = {.kind = CARDS_LISTED, .n = 9, .trunk = 5};

    *wanted = 0;
    CHECK(!take_cards(value, &c, wanted, sizeof wanted), "--cards %s is refused", value);
    CHECK_EQ(c.trunk, 5);
    return c;
}

static void refused(const char *value)
{
    struct cards_wanted c = {.kind = CARDS_LISTED, .n = 1, .card = {3}, .trunk = 5};

    CHECK(take_cards(value, &c, wanted, sizeof wanted) == -1, "--cards %s is taken", value);
    CHECK(c.kind == CARDS_LISTED && c.n == 1 && c.card[0] == 3 && !c.most[0] && !c.most[1], "--cards %s has changed something", value);
    CHECK(strstr(wanted, "emu:N:BYTES") && strstr(wanted, "none"), "%s", wanted);
}

static void cards(void)
{
    static const char *const bad[] = {
        "",       " ",      "None",     "0,",      ",0",      "0,,1",        "0 1",    "0, 1",   "-1",    "+1",
        "01",     "1000",   "a",        "0x1",     "emu",     "emu:",        "emu:0",  "emu:17", "emu:-1",
        "emu:01", "emu:1:", "emu:1:0",  "emu:1:x", "emu:1:-1", "emu:1:1M:2", "emu:1,2", "emu:2:1M,", "emu:2:,1M", "emu:2:1M,0", "emu:2:1M,1M,1M", "emu:3:1M,1M", "emu:1:1M,1M", "alle", "0:", "0:,1", "0:0", "0:x", "0:1G:2", "1G", "0:1G,", "0:12345678901234567890123456789012345",  "gpu",   "auto",
        "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"};
    struct cards_wanted c;

    CHECK_EQ(taken("none").kind, CARDS_NONE);
    c = taken("all");
    CHECK(c.kind == CARDS_AUTO && !c.n);
    c = taken("7");
    CHECK(c.kind == CARDS_LISTED && c.n == 1 && c.card[0] == 7);
    c = taken("0,0");
    CHECK(c.kind == CARDS_LISTED && c.n == 2 && !c.card[0] && !c.card[1]);
    c = taken("2,0,11");
    CHECK(c.n == 3 && c.card[0] == 2 && !c.card[1] && c.card[2] == 11);
    c = taken("0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15");
    CHECK(c.n == 16 && c.card[15] == 15);
    CHECK(!c.most[0] && !c.most[15]);
    c = taken("1:2G,0,1:512");
    CHECK(c.n == 3 && c.card[0] == 1 && c.most[0] == 2ull << 30 && !c.card[1] && !c.most[1] && c.most[2] == 512);
    c = taken("emu:3");
    CHECK(c.kind == CARDS_EMULATED && c.n == 3 && !c.most[0] && !c.most[2]);
    c = taken("emu:16:1.5M");
    CHECK(c.kind == CARDS_EMULATED && c.n == 16 && c.most[0] == 3u << 19 && c.most[15] == 3u << 19);
    c = taken("emu:3:1M,512,2M");
    CHECK(c.kind == CARDS_EMULATED && c.n == 3 && c.most[0] == 1u << 20 && c.most[1] == 512 && c.most[2] == 2u << 20);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i]);
}

static void trunk(void)
{
    static const char *const bad[] = {"", "card", "16", "-1", "00", "0,1", "CPU", "0 "};
    int to = 99;

    CHECK(!take_trunk("auto", &to, wanted, sizeof wanted) && to == TRUNK_AUTO);
    CHECK(!take_trunk("cpu", &to, wanted, sizeof wanted) && to == TRUNK_CPU);
    CHECK(!take_trunk("0", &to, wanted, sizeof wanted) && to == 0);
    CHECK(!take_trunk("15", &to, wanted, sizeof wanted) && to == 15);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(take_trunk(bad[i], &to, wanted, sizeof wanted) == -1, "--trunk %s is taken", bad[i]);
        CHECK_EQ(to, 15);
        CHECK(strstr(wanted, "cpu"), "%s", wanted);
    }
}

int main(void)
{
    cards();
    trunk();
    return test_end();
}
