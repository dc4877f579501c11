/* A grammar or schema and a text, parted by a NUL byte; the first byte chooses the language. Refused with one line; or
 * walked by the text's bytes: where a byte may be taken, the set of tokens says so too, cut in any way. */

/* FUZZ: coordinator/sample/grammar.c coordinator/sample/grammar/rules.c coordinator/sample/grammar/net.c
 * FUZZ: coordinator/sample/grammar/gbnf.c coordinator/sample/grammar/schema.c coordinator/sample/grammar/schema_merge.c
 * FUZZ: coordinator/sample/grammar/pattern.c coordinator/sample/grammar/number.c coordinator/sample/grammar/sets.c
 * FUZZ: coordinator/model/utf8.c coordinator/json/json.c shm/err.c -lyajl
 */
#include "coordinator/sample/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/sample/grammar/trie.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond))                                                                               \
            abort();                                                                               \
    } while (0)

enum { N_VOCAB = 257, END = 256, STEPS_MAX = 200 };

/* Tokens: the bytes, and an end. */
static struct grammar_vocab *bytes(void)
{
    static struct grammar_vocab v;
    static struct trie_node node[256];
    static uint32_t token[256], piece[N_VOCAB + 1];
    static char text[256];
    static uint64_t plain[(N_VOCAB + 63) / 64], ends[(N_VOCAB + 63) / 64];

    if (v.n_vocab)
        return &v;
    for (unsigned i = 0; i < 256; i++) {
        token[i] = piece[i] = i;
        text[i] = (char)i;
        node[i] = (struct trie_node){.after = i + 1, .token = i, .n_tokens = 1, .byte = (uint8_t)i};
    }
    piece[END] = piece[END + 1] = END;
    ends[END / 64] = 1ull << END % 64;
    v = (struct grammar_vocab){.n_vocab = N_VOCAB, .n_words = (N_VOCAB + 63) / 64, .longest = 1, .plain = plain, .ends = ends,
                               .bytes = text, .piece = piece, .all = {node, token, 256, 256}, .rest = {node, token, 256, 256}};
    return &v;
}

static int bit(const uint64_t *bits, unsigned t)
{
    return bits[t / 64] >> t % 64 & 1;
}

static void walk(struct grammar *g, const char *text, size_t n)
{
    struct grammar *whole = NULL;
    struct err e = {0};
    int rc = 0;
    size_t p = 0;

    MUST(!grammar_clone(g, &whole, &e));
    for (; p < n && p < STEPS_MAX && !rc; p++) {
        const uint64_t *bits = grammar_allowed(g, &e);
        unsigned c = (unsigned char)text[p];

        if (!bits) {
            MUST(e.code == -E2BIG);
            break;
        }
        MUST(bit(bits, END) == grammar_may_end(g));
        rc = grammar_accept(g, c, &e);
        MUST(rc == -E2BIG || (rc == 0) == bit(bits, c));
    }
    if (!rc && !e.code) {
        MUST(!grammar_accept_text(whole, text, p, &e));
        MUST(grammar_may_end(whole) == grammar_may_end(g));
    }
    grammar_close(whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *text = (const char *)data + 1, *end;
    struct grammar_source s = {0};
    struct json_doc *d = NULL;
    struct grammar *g = NULL;
    struct err e = {0};

    if (n < 2)
        return 0;
    end = memchr(text, 0, n - 1);
    s.n = end ? (size_t)(end - text) : n - 1;
    if (data[0] & 2)
        s.think_end = "</t>";
    if (data[0] & 4)
        s.think_begin = "<t>";
    if (data[0] & 1) {
        if (json_parse("schema", text, s.n, NULL, &d, &e))
            return 0;
        s.schema = json_root(d);
    } else {
        s.gbnf = text;
    }
    if (grammar_open(bytes(), &s, &g, &e)) {
        MUST(e.code < 0 && e.msg[0] && !strchr(e.msg, '\n') && !g);
    } else {
        walk(g, text + s.n + 1, end ? n - 2 - s.n : 0);
        grammar_close(g);
    }
    json_free(d);
    return 0;
}
