/* A card as the worker's C code uses it, emulated, and what a build without CUDA says of a real one; bytes from
 * slabs to the pool and back, over the ends of registered chunks. */
#include "gpu-worker/card.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gpu-worker/copies.h"
#include "tests/test.h"

#define CHUNK (64ull << 20) /* slabs.c's */
#define SLAB (CHUNK + (9u << 20))
#define POOL (24u << 20)

static void refused(const char *device, int code, const char *words)
{
    struct card *c = NULL;
    struct err e = {0};

    CHECK_EQ(card_open(device, &c, &e), code);
    CHECK(strstr(e.msg, words), "'%s': %s", device, e.msg);
    CHECK(!c, "'%s': a card", device);
}

static struct card *emulated(void)
{
    struct card *c = NULL;
    struct err e = {0};

    CHECK(!card_open("emu", &c, &e), "%s", e.msg);
    CHECK(!card_real(c) && card_device(c) == -1 && !strcmp(card_name(c), "emulated card"), "%s", card_name(c));
    CHECK(!card_use(c, &e), "%s", e.msg);
    return c;
}

static void memory(void)
{
    struct card *c = emulated();
    void *a = NULL, *host = NULL, *dev = NULL;
    struct err e = {0};
    char text[8] = "";

    CHECK(!card_alloc(c, 4096, "a test", &a, &e), "%s", e.msg);
    CHECK(!card_shared(c, 4096, "a test", &host, &dev, &e) && host == dev, "%s", e.msg);
    CHECK(!((char *)host)[4095], "shared memory is cleared");
    strcpy(host, "seven");
    CHECK(card_marked(c, 0, &e) == 1, "a mark that was never made");
    CHECK(!card_copy_in(c, a, host, 8, &e) && !card_mark(c, 0, &e) && card_marked(c, 0, &e) == 1, "%s", e.msg);
    CHECK(!card_copy_out(c, text, a, 8, &e) && !strcmp(text, "seven"), "'%s'", text);
    CHECK_EQ(card_alloc(c, 1ull << 62, "a test", &a, &e), -ENOMEM);
    CHECK(strstr(e.msg, "a test") && strstr(e.msg, "give less"), "%s", e.msg);
    card_close(c);
    card_close(NULL);
}

static uint8_t *pages(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        abort();
    return p;
}

struct rig {
    struct card *card;
    struct child child;
    struct maps m;
    struct pool pool;
    struct slabs *slabs;
    struct copies *copies;
};
static void begin(struct rig *r)
{
    struct err e = {0};
    void *base;

    r->card = emulated();
    r->child.ctl = -1;
    r->m.g.n_nodes = 2;
    for (int k = 0; k < 2; k++) {
        r->m.slabs[k] = pages(SLAB);
        r->m.slabs_bytes[k] = SLAB;
    }
    r->m.calls = (struct calls *)pages(4096);
    CHECK(!card_alloc(r->card, POOL, "the pool", &base, &e), "%s", e.msg);
    r->pool = (struct pool){base, POOL};
    CHECK(!slabs_open(r->card, &r->child, &r->m, &r->slabs, &e), "%s", e.msg);
    CHECK(!copies_open(r->card, &r->m, &r->pool, r->slabs, &r->copies, &e), "%s", e.msg);
    CHECK(!(copies_link(r->copies) > 0), "an emulated link has no rate");
}
static void end(struct rig *r)
{
    copies_close(r->copies);
    slabs_close(r->slabs);
    card_close(r->card);
    for (int k = 0; k < 2; k++)
        munmap((void *)r->m.slabs[k], SLAB);
    munmap(r->m.calls, 4096);
}

static void runs(void)
{
    struct rig r = {0};
    int straight = 0;

    begin(&r);
    CHECK_EQ(slabs_run(r.slabs, 0, 0, 100, &straight), 100);
    CHECK(straight, "emulated: all of it is reached");
    CHECK_EQ(slabs_run(r.slabs, 1, CHUNK - 3, 100, &straight), 3);
    CHECK_EQ(slabs_run(r.slabs, 1, CHUNK, SLAB - CHUNK, &straight), SLAB - CHUNK);
    end(&r);
}

/* Odd bytes over a chunk's end, larger than a piece; another node's; and back to where others lay. */
static void there_and_back(void)
{
    const uint64_t n = (9u << 20) + 13, off = CHUNK - (5u << 20) - 7, dst = 12345;
    struct rig r = {0};
    struct err e = {0};
    uint8_t *slab, *pool;
    uint64_t bad = 0;

    begin(&r);
    slab = (uint8_t *)r.m.slabs[1];
    pool = r.pool.base;
    for (uint64_t i = 0; i < n; i++)
        slab[off + i] = (uint8_t)(i * 2654435761u >> 13);
    CHECK(!copies_put(r.copies, 1, off, dst, n, &e), "%s", e.msg);
    CHECK(!copies_mark(r.copies, 1, &e) && copies_over(r.copies, 1, &e) == 1, "%s", e.msg);
    CHECK(!memcmp(pool + dst, slab + off, n), "other bytes in the pool");
    CHECK(!pool[dst - 1] && !pool[dst + n], "bytes beside");
    CHECK(!copies_get(r.copies, 0, off + 1, dst, n, &e), "%s", e.msg);
    CHECK(!memcmp(r.m.slabs[0] + off + 1, slab + off, n), "other bytes in the slab");
    bad += r.m.slabs[0][off] != 0;
    bad += r.m.slabs[0][off + 1 + n] != 0;
    CHECK_EQ(bad, 0);
    end(&r);
}

int main(void)
{
    refused("", -EPROTO, "no card");
    refused("-1", -EPROTO, "no card");
    refused("1x", -EPROTO, "no card");
    refused("1024", -EPROTO, "no card");
    refused("3", -ENOTSUP, "card 3: this build has no CUDA");
    memory();
    runs();
    there_and_back();
    return test_end();
}
