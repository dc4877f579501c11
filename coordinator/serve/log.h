/* Log lines of the server, on standard error: "conclave: info: ...". Above LOG_DEBUG no line holds a path, a
 * text of a request or a secret. */
#pragma once

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
/* Before threads. What is above the level is not written. */
void log_set(enum log_level level);
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
