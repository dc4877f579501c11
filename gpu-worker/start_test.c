/* CTL_START of a card: what is taken, what is left, what is refused. */
#include "gpu-worker/start.h"

#include <string.h>

#include "tests/test.h"

int main(void)
{
    static const char *const bad[] = {"", "card=", "card=16 device=emu x", "card=1 device=", "card=1 device=emu",
                                      "card=-1 device=emu x", "card=1 device=4096 x", "threads=1 cpus=- shared=1",
                                      "card=1 device=emux x"};
    struct card_start s = {0};
    struct err e = {0};
    const char *text = "card=15 device=emu threads=2 cpus=- shared=1";

    CHECK(!card_start_read(&text, &s, &e), "%s", e.msg);
    CHECK_EQ(s.card, 15);
    CHECK_EQ(s.device, -1);
    CHECK(!strcmp(text, "threads=2 cpus=- shared=1"), "left: '%s'", text);
    text = "card=0 device=3 x";
    CHECK(!card_start_read(&text, &s, &e), "%s", e.msg);
    CHECK(!s.card && s.device == 3 && !strcmp(text, "x"), "card %u, device %d, '%s'", s.card, s.device, text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        text = bad[i];
        CHECK(card_start_read(&text, &s, &e) == -EPROTO && text == bad[i], "'%s' was taken", bad[i]);
    }
    return test_end();
}
