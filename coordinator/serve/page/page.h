/* The page that a browser gets, and what it draws: files at / and /page/, and GET /routes, a stream of
 *   shape    once: how many experts each layer has
 *   lit      what was used since the last one: [(layer * most + expert) * 16 + last * 8 + tiers, ...]
 *            (lights.h)
 *   figures  twice a second: counters and gauges
 * While nobody watches nothing is collected, here and in the engine. */
#pragma once
#include "coordinator/lights.h"
#include "coordinator/serve/http/http.h"
#include "coordinator/serve/jobs.h"

struct page;
enum { PAGE_WATCHERS = 32 };
/* Before http_start. l is the engine's (engine_options.lights), borrowed until page_close. Hands over *out. */
int page_open(struct http *h, struct lights *l, struct page **out, struct err *e);
/* From the main thread, when the engine and its jobs are there: /routes is 503 until then. */
void page_ready(struct page *p, struct jobs *j);
/* From any thread: who watches is sent away, nobody new may. A drain waits for them otherwise. */
void page_drain(struct page *p);
/* After http_close. NULL is allowed. */
void page_close(struct page *p);
