/* Reads a line from the terminal (standard input), with editing and earlier lines; the prompt and what is typed
 * are shown on standard error. */
#pragma once
#include "coordinator/cli/line_edit.h"

/* 1: this terminal can do it (both are terminals, and it is not a dumb one). */
int line_can_read(void);
/* The line is in l until the next one, and remembered. prompt: ASCII. The end of input is LINE_LEFT. The
 * terminal has its mode back when this returns, and when the program ends meanwhile (supervise/leave.h). */
enum line_state line_read(struct line_edit *l, const char *prompt);
