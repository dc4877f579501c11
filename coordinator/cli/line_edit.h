/* A line that is typed: keys change it, earlier lines come back. Knows bytes and places on a screen, no
 * terminal (line_read.c does that). */
#pragma once
#include <stddef.h>

enum line_state {
    LINE_MORE,  /* go on typing */
    LINE_DONE,  /* the line is in s[0..n) */
    LINE_LEFT,  /* Ctrl-D on an empty line */
    LINE_BREAK, /* Ctrl-C on an empty line; on another it empties it */
};

enum { LINES_KEPT = 1000 };

/* Zero it. */
struct line_edit {
    char *s; /* UTF-8 as typed; '\n' where a pasted text, or Alt-Enter, has one; a NUL follows */
    size_t n, at, cap;
    char **past; /* lines before, the newest last */
    size_t n_past, shown; /* shown < n_past: the one that is looked at */
    char *own;            /* what was typed before looking at them */
    char key[8];          /* a sequence that has begun */
    size_t n_key;
    int pasting;
    int failed; /* no memory: a key was lost */
};
void line_begin(struct line_edit *l);
enum line_state line_byte(struct line_edit *l, char byte);
/* Remembers a line, unless it is empty or the same as the one before. */
void line_remember(struct line_edit *l, const char *s);
void line_edit_free(struct line_edit *l);

/* Where the cursor is on a screen of `width` columns after text[0..n) behind a prompt of n_prompt columns; a new
 * line begins with n_prompt columns, too. */
struct line_place {
    size_t row, column;
};
struct line_place line_place(const char *text, size_t n, size_t n_prompt, size_t width);
