/* CTL_START of a card: what is taken, what is left, what is refused. */
#include "gpu-worker/start.h"

#include <string.h>

#include "tests/test.h"

int main(void)
{
    static const char *const bad[] = {"", "card=", "card=16 device=emu x", "card=1 device=", "card=1 device=emu",
                                      "card=-1 device=emu x", "card=1 device=4096 x", "threads=1 cpus=- shared=1",
                                      "card=1 device=emux x", "card=1 device=emu trunk=", "card=1 device=emu trunk=5 x",
                                      "card=1 device=emu trunk=5 team=0: x", "card=1 device=emu trunk=5 team=2:1 x",
                                      "card=1 device=emu trunk=5 team=257:1 x", "card=1 device=emu trunk=5 team=2:1,2x"};
    struct card_start s = {0};
    struct err e = {0};
    const char *text = "card=15 device=emu threads=2 cpus=- shared=1";

    CHECK(!card_start_read(&text, &s, &e), "%s", e.msg);
    CHECK_EQ(s.card, 15);
    CHECK_EQ(s.device, -1);
    CHECK_EQ(s.trunk, 0);
    CHECK(!strcmp(text, "threads=2 cpus=- shared=1"), "left: '%s'", text);
    text = "card=0 device=3 x";
    CHECK(!card_start_read(&text, &s, &e), "%s", e.msg);
    CHECK(!s.card && s.device == 3 && !strcmp(text, "x"), "card %u, device %d, '%s'", s.card, s.device, text);
    text = "card=2 device=emu trunk=77 team=3:4,0,9 threads=1 cpus=- shared=1";
    CHECK(!card_start_read(&text, &s, &e), "%s", e.msg);
    CHECK(s.trunk && s.record == 77 && s.team == 3 && s.cpu[0] == 4 && s.cpu[1] == 0 && s.cpu[2] == 9, "the trunk's part");
    CHECK(!strcmp(text, "threads=1 cpus=- shared=1"), "left: '%s'", text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        text = bad[i];
        CHECK(card_start_read(&text, &s, &e) == -EPROTO && text == bad[i], "'%s' was taken", bad[i]);
    }
    return test_end();
}
