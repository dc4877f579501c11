/* Keys and what they make of a line; where a text ends on a screen. */
#include "coordinator/cli/line_edit.h"

#include "tests/test.h"

#define UP "\033[A"
#define DOWN "\033[B"
#define RIGHT "\033[C"
#define LEFT "\033[D"

/* The line with the cursor as '|', and the state after the last key. */
static void typed(struct line_edit *l, const char *keys, enum line_state want, const char *line)
{
    enum line_state s = LINE_MORE;
    char shown[200];

    line_begin(l);
    for (; *keys && s == LINE_MORE; keys++)
        s = line_byte(l, *keys);
    snprintf(shown, sizeof shown, "%.*s|%s", (int)l->at, l->s, l->s + l->at);
    CHECK(s == want && !*keys, "state %d, wanted %d", (int)s, (int)want);
    CHECK_STR(shown, line);
}

static void test_keys(void)
{
    struct line_edit l = {0};

    typed(&l, "", LINE_MORE, "|");
    typed(&l, "abc", LINE_MORE, "abc|");
    typed(&l, "abc\r", LINE_DONE, "abc|");
    typed(&l, "abc\n", LINE_DONE, "abc|");
    typed(&l, "abc" LEFT LEFT "x", LINE_MORE, "ax|bc");
    typed(&l, "abc" LEFT LEFT LEFT LEFT "x", LINE_MORE, "x|abc");
    typed(&l, "abc\001x\005y", LINE_MORE, "xabcy|");
    typed(&l, "abc\033[Hx\033[Fy\033OHz", LINE_MORE, "z|xabcy");
    typed(&l, "abc\177\010", LINE_MORE, "a|");
    typed(&l, "a\xC3\xA9\xE4\xBA\xAC\177" LEFT "x", LINE_MORE, "ax|\xC3\xA9");
    typed(&l, "\xC3\xA9" LEFT RIGHT RIGHT "b", LINE_MORE, "\xC3\xA9""b|");
    typed(&l, "abc\001\004\033[3~", LINE_MORE, "|c");
    typed(&l, "abc" LEFT "\013", LINE_MORE, "ab|");
    typed(&l, "abc" LEFT "\025", LINE_MORE, "|c");
    typed(&l, "one two  \027x", LINE_MORE, "one x|");
    typed(&l, "abc\003", LINE_MORE, "|");
    typed(&l, "\003", LINE_BREAK, "|");
    typed(&l, "\004", LINE_LEFT, "|");
    typed(&l, "\177\010\025\027\013" UP DOWN, LINE_MORE, "|");
    typed(&l, "a\033\rb", LINE_MORE, "a\nb|");
    typed(&l, "a\033xb\033[99;99zc\007", LINE_MORE, "abc|"); /* sequences that are not known go */
    typed(&l, "\033[200~a\r\nb\tc\003\033[201~d\r", LINE_DONE, "a\n\nb\tcd|");
    line_edit_free(&l);
}

static void test_past(void)
{
    struct line_edit l = {0};
    char name[16];

    line_remember(&l, "one");
    line_remember(&l, "two");
    line_remember(&l, "two");
    line_remember(&l, "");
    CHECK_EQ(l.n_past, 2);
    typed(&l, UP, LINE_MORE, "two|");
    typed(&l, UP UP UP "x", LINE_MORE, "onex|");
    typed(&l, "mine" UP UP DOWN, LINE_MORE, "two|");
    typed(&l, "mine" UP UP DOWN DOWN DOWN, LINE_MORE, "mine|");
    typed(&l, "mine\020\020\016\016", LINE_MORE, "mine|");
    for (int i = 0; i < LINES_KEPT + 5; i++) {
        snprintf(name, sizeof name, "%d", i);
        line_remember(&l, name);
    }
    CHECK_EQ(l.n_past, LINES_KEPT);
    CHECK_STR(l.past[0], "5");
    line_edit_free(&l);
}

static void at(const char *text, size_t width, size_t row, size_t column)
{
    struct line_place p = line_place(text, strlen(text), 2, width);

    CHECK(p.row == row && p.column == column, "'%s' ends at %zu, %zu; wanted %zu, %zu", text, p.row, p.column, row, column);
}

static void test_place(void)
{
    at("", 10, 0, 2);
    at("abc", 10, 0, 5);
    at("abcdefgh", 10, 1, 0);
    at("abcdefghi", 10, 1, 1);
    at("a\nbc", 10, 1, 4);
    at("\xE4\xBA\xAC", 10, 0, 4);
    at("abcdefg\xE4\xBA\xAC", 10, 1, 2); /* a wide one does not fit into the last column */
    at("e\xCC\x81", 10, 0, 3);
    at("\xFF", 10, 0, 3);
}

int main(void)
{
    test_keys();
    test_past();
    test_place();
    return test_end();
}
