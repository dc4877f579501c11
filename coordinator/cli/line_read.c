/* The terminal's side of a line that is typed: its mode, and drawing the line anew after each key. */
#include "coordinator/cli/line_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "coordinator/supervise/leave.h"

enum { WIDTH = 80 }; /* where the terminal does not say */

int line_can_read(void)
{
    const char *term = getenv("TERM");

    return isatty(0) && isatty(2) && term && strcmp(term, "dumb");
}

static size_t width(void)
{
    struct winsize w;

    return !ioctl(2, TIOCGWINSZ, &w) && w.ws_col > 8 ? w.ws_col : WIDTH;
}

/* Controls that came by pasting are shown as '?'. */
static void put_text(const struct line_edit *l, const char *prompt)
{
    fputs(prompt, stderr);
    for (size_t i = 0; i < l->n; i++) {
        if (l->s[i] == '\n')
            fprintf(stderr, "\r\n%*s", (int)strlen(prompt), "");
        else
            putc((unsigned char)l->s[i] < 0x20 || l->s[i] == 0x7F ? ' ' : l->s[i], stderr);
    }
}

/* From *row on, where the cursor was left. */
static void draw(const struct line_edit *l, const char *prompt, size_t *row)
{
    size_t w = width(), n_prompt = strlen(prompt);
    struct line_place end = line_place(l->s, l->n, n_prompt, w), here = line_place(l->s, l->at, n_prompt, w);

    if (*row)
        fprintf(stderr, "\033[%zuA", *row);
    fputs("\r\033[J", stderr);
    put_text(l, prompt);
    if (end.row && !end.column) /* a full row: the terminal would wait with the next one */
        fputs("\r\n", stderr);
    if (end.row > here.row)
        fprintf(stderr, "\033[%zuA", end.row - here.row);
    fputc('\r', stderr);
    if (here.column)
        fprintf(stderr, "\033[%zuC", here.column);
    fflush(stderr);
    *row = here.row;
}

static enum line_state type(struct line_edit *l, const char *prompt)
{
    enum line_state s = LINE_MORE;
    size_t row = 0;
    char bytes[256];

    draw(l, prompt, &row);
    while (s == LINE_MORE) {
        ssize_t n = read(0, bytes, 1); /* a line's end leaves what is behind it for the next one */

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return l->n ? LINE_DONE : LINE_LEFT;
        s = line_byte(l, bytes[0]);
        if (s == LINE_MORE && !l->pasting && !l->n_key)
            draw(l, prompt, &row);
    }
    l->at = l->n;
    draw(l, prompt, &row);
    fputs("\r\n", stderr);
    return s;
}

enum line_state line_read(struct line_edit *l, const char *prompt)
{
    struct termios before, raw;
    enum line_state s;

    line_begin(l);
    if (tcgetattr(0, &before))
        return LINE_LEFT;
    raw = before;
    raw.c_iflag &= ~(tcflag_t)(ICRNL | IXON);
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    leave_terminal(&before);
    tcsetattr(0, TCSADRAIN, &raw);
    fputs("\033[?2004h", stderr); /* pasted text comes between marks */
    s = type(l, prompt);
    fputs("\033[?2004l", stderr);
    fflush(stderr);
    tcsetattr(0, TCSADRAIN, &before);
    leave_terminal(NULL);
    if (s == LINE_DONE)
        line_remember(l, l->s);
    return s;
}
