/* The keys that people's fingers know: arrows, Home, End, Del, and Ctrl with A B D E F H K N P U W. */
#include "coordinator/cli/line_edit.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/model/unicode_table.h"
#include "coordinator/model/utf8.h"

#define CTRL(x) ((x) & 31)
enum { ESC = 27, DEL = 127 };

static int is_rest(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

static size_t before(const struct line_edit *l, size_t p)
{
    while (p && is_rest(l->s[--p]))
        ;
    return p;
}

static size_t behind(const struct line_edit *l, size_t p)
{
    if (p < l->n)
        p++;
    while (p < l->n && is_rest(l->s[p]))
        p++;
    return p;
}

static int room(struct line_edit *l, size_t n)
{
    char *more;

    if (l->cap > n)
        return 1;
    more = realloc(l->s, 2 * n + 64);
    if (!more) {
        l->failed = 1;
        return 0;
    }
    l->s = more;
    l->cap = 2 * n + 64;
    return 1;
}

static void insert(struct line_edit *l, char c)
{
    if (!room(l, l->n + 1))
        return;
    memmove(l->s + l->at + 1, l->s + l->at, l->n - l->at);
    l->s[l->at++] = c;
    l->s[++l->n] = 0;
}

static void cut(struct line_edit *l, size_t from, size_t to)
{
    memmove(l->s + from, l->s + to, l->n - to + 1);
    l->n -= to - from;
    l->at = from;
}

static size_t word_start(const struct line_edit *l)
{
    size_t p = l->at;

    while (p && l->s[p - 1] == ' ')
        p--;
    while (p && l->s[p - 1] != ' ')
        p--;
    return p;
}

static void replace(struct line_edit *l, const char *s)
{
    size_t n = strlen(s);

    if (!room(l, n))
        return;
    memcpy(l->s, s, n + 1);
    l->n = l->at = n;
}

static void look_at(struct line_edit *l, size_t which)
{
    if (which > l->n_past || which == l->shown)
        return;
    if (l->shown == l->n_past) {
        free(l->own);
        l->own = strdup(l->s);
    }
    l->shown = which;
    replace(l, which < l->n_past ? l->past[which] : l->own ? l->own : "");
}

static void key(struct line_edit *l, char k)
{
    switch (k) {
    case 'A':
        look_at(l, l->shown ? l->shown - 1 : 0);
        break;
    case 'B':
        look_at(l, l->shown + 1);
        break;
    case 'C':
        l->at = behind(l, l->at);
        break;
    case 'D':
        l->at = before(l, l->at);
        break;
    case 'H':
        l->at = 0;
        break;
    case 'F':
        l->at = l->n;
        break;
    }
}

/* The sequence in key[]: ESC [ A, ESC O A, ESC [ 3 ~, ESC [ 200 ~ ... */
static void sequence(struct line_edit *l, char last)
{
    int number = l->n_key > 2 ? atoi(l->key + 2) : 0;

    if (last != '~')
        key(l, last);
    else if (number == 3)
        cut(l, l->at, behind(l, l->at));
    else if (number == 1 || number == 7)
        key(l, 'H');
    else if (number == 4 || number == 8)
        key(l, 'F');
    else if (number == 200 || number == 201)
        l->pasting = number == 200;
}

/* 1: the byte belongs to a sequence. */
static int in_sequence(struct line_edit *l, char c)
{
    if (!l->n_key && c != ESC)
        return 0;
    if (l->n_key == 1 && c == '\r') { /* Alt-Enter */
        l->n_key = 0;
        insert(l, '\n');
        return 1;
    }
    if (l->n_key + 1 < sizeof l->key)
        l->key[l->n_key++] = c;
    l->key[l->n_key] = 0;
    if (l->n_key == 1 || (l->n_key == 2 && (c == '[' || c == 'O')))
        return 1;
    if (l->n_key == 2 || (c >= '@' && c <= '~')) {
        if (l->n_key > 2)
            sequence(l, c);
        l->n_key = 0;
    }
    return 1;
}

static enum line_state control(struct line_edit *l, char c)
{
    switch (c) {
    case CTRL('A'):
        key(l, 'H');
        break;
    case CTRL('B'):
        key(l, 'D');
        break;
    case CTRL('C'):
        if (!l->n)
            return LINE_BREAK;
        cut(l, 0, l->n);
        break;
    case CTRL('D'):
        if (!l->n)
            return LINE_LEFT;
        cut(l, l->at, behind(l, l->at));
        break;
    case CTRL('E'):
        key(l, 'F');
        break;
    case CTRL('F'):
        key(l, 'C');
        break;
    case CTRL('H'):
    case DEL:
        cut(l, before(l, l->at), l->at);
        break;
    case CTRL('K'):
        cut(l, l->at, l->n);
        break;
    case CTRL('N'):
        key(l, 'B');
        break;
    case CTRL('P'):
        key(l, 'A');
        break;
    case CTRL('U'):
        cut(l, 0, l->at);
        break;
    case CTRL('W'):
        cut(l, word_start(l), l->at);
        break;
    case '\t':
        insert(l, c);
        break;
    }
    return LINE_MORE;
}

void line_begin(struct line_edit *l)
{
    l->n = l->at = l->n_key = 0;
    l->pasting = 0;
    l->shown = l->n_past;
    if (room(l, 0))
        l->s[0] = 0;
}

enum line_state line_byte(struct line_edit *l, char c)
{
    if (!l->s || in_sequence(l, c))
        return LINE_MORE;
    if (l->pasting) { /* everything is text */
        if (c == '\r')
            c = '\n';
        if ((unsigned char)c >= 0x20 || c == '\n' || c == '\t')
            insert(l, c);
        return LINE_MORE;
    }
    if (c == '\r' || c == '\n')
        return LINE_DONE;
    if ((unsigned char)c < 0x20 || c == DEL)
        return control(l, c);
    insert(l, c);
    return LINE_MORE;
}

void line_remember(struct line_edit *l, const char *s)
{
    char **more, *copy;

    if (!*s || (l->n_past && !strcmp(l->past[l->n_past - 1], s)))
        return;
    if (l->n_past == LINES_KEPT) {
        free(l->past[0]);
        memmove(l->past, l->past + 1, --l->n_past * sizeof *l->past);
    }
    more = realloc(l->past, (l->n_past + 1) * sizeof *more);
    if (more)
        l->past = more;
    copy = more ? strdup(s) : NULL;
    if (copy)
        l->past[l->n_past++] = copy;
}

void line_edit_free(struct line_edit *l)
{
    for (size_t i = 0; i < l->n_past; i++)
        free(l->past[i]);
    free(l->past);
    free(l->own);
    free(l->s);
    *l = (struct line_edit){0};
}

/* Columns of a character: none for marks, two for what East Asia writes and for most emoji. */
static size_t columns(uint32_t u)
{
    static const uint32_t wide[][2] = {{0x1100, 0x115F}, {0x2E80, 0xA4CF}, {0xAC00, 0xD7A3}, {0xF900, 0xFAFF}, {0xFE30, 0xFE6F},
                                       {0xFF00, 0xFF60}, {0xFFE0, 0xFFE6}, {0x1F300, 0x1F64F}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};

    if (u >= 0x300 && unicode_class(u) == UNICODE_MARK)
        return 0;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (u >= wide[i][0] && u <= wide[i][1])
            return 2;
    return 1;
}

static uint32_t point(const char *s, size_t len)
{
    uint32_t u = (unsigned char)*s;

    if (len > 1)
        u &= 0x7Fu >> len;
    for (size_t i = 1; i < len; i++)
        u = u << 6 | ((unsigned char)s[i] & 0x3F);
    return u;
}

struct line_place line_place(const char *text, size_t n, size_t n_prompt, size_t width)
{
    struct line_place p = {0, n_prompt};
    size_t len;

    for (size_t i = 0; i < n; i += len) {
        size_t w;

        if (text[i] == '\n') {
            p.row++;
            p.column = n_prompt;
            len = 1;
            continue;
        }
        w = utf8_next(text + i, n - i, &len) == UTF8_OK ? columns(point(text + i, len)) : 1;
        if (p.column + w > width) {
            p.row++;
            p.column = 0;
        }
        p.column += w;
    }
    if (p.column >= width) {
        p.row++;
        p.column = 0;
    }
    return p;
}
