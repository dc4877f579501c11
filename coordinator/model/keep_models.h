/* A slip of the keyboard must not cost a model: no result is written over one. */
#pragma once
#include "shm/err.h"

/* 0, or -EEXIST and a line if path is a GGUF file or a pack's experts file, unfinished ones too. Anything
 * else, and what is not there, can be written. Opens regular files only: looking would disturb a pipe. */
int keep_models(const char *path, struct err *e);
