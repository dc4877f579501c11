/* What a card's worker has besides a node's: its pool, and uploads into it. */
#include "gpu-worker/experts.h"

#include "cpu-worker/process.h"
#include "gpu-worker/pool.h"
#include "gpu-worker/start.h"
#include "gpu-worker/upload.h"

struct card {
    struct card_start start;
    struct pool pool;
    struct uploader *uploader;
};

static int start(void *arg, const char **text, struct err *e)
{
    struct card *card = arg;

    return card_start_read(text, &card->start, e);
}
static int begin(void *arg, const struct child *c, struct maps *m, struct err *e)
{
    struct card *card = arg;
    int rc = pool_take(&card->pool, m, card->start.card, e);

    return rc ? rc : uploader_start(c, m, &card->pool, &card->uploader, e);
}
static void end(void *arg)
{
    struct card *card = arg;

    uploader_stop(card->uploader);
    pool_drop(&card->pool);
}

int experts_run(const struct child *c, struct err *e)
{
    struct card card = {0};
    struct process_more more = {&card, start, begin, end};

    return process_run(c, &more, e);
}
