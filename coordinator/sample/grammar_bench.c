/* What a grammar costs a token: the set of those that may come, at the first answer (sets are made) and at later ones
 * of the same grammar (they are known), and taking the chosen one. grammar_bench [FILE.gguf ...]: vocabularies;
 * without one, the demo model's. Processor time of one thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "coordinator/model/gguf.h"
#include "coordinator/sample/grammar.h"

static const char prose[] = "It was a bright day, and the little fox (who had never seen the sea) asked: what is behind the hill? "
                            "Nobody knew; 13 of the older animals said that 名前 and Größe do not matter there. So off he went.";
static const char person[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\",\"minimum\":0,"
    "\"maximum\":150},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"red\",\"green\",\"blue\"]}},\"story\":{\"type\":"
    "\"string\",\"maxLength\":1000}},\"required\":[\"name\",\"age\",\"tags\",\"story\"],\"additionalProperties\":false}";

static const char lines[] = "root ::= ([a-zA-Z,.:;?()0-9 é-名ß]+ \"\\n\"?)+", counted[] = "root ::= [^\\n]{1,500}";

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void stop(const struct err *e)
{
    fprintf(stderr, "grammar_bench: %s\n", e->msg);
    exit(1);
}

/* Some vocabularies put a blank before a text, which is none of the text's. */
static int first(struct grammar *g, const struct tokenizer *t, uint32_t id, const char *text, struct err *e)
{
    const char *b;
    size_t n;

    token_piece(t, id, 0, &b, &n);
    return n && *b == ' ' && *text != ' ' ? grammar_accept_text(g, b + 1, n - 1, e) : grammar_accept(g, id, e);
}

static void answers(const struct grammar_vocab *v, struct tokenizer *t, const char *what, const struct grammar_source *src,
                    const char *text)
{
    struct grammar *fresh, *g;
    struct token_list ids = {0};
    struct err e = {0};
    double start = now(), opened;

    if (grammar_open(v, src, &fresh, &e) || tokenize(t, text, strlen(text), 0, 0, &ids, &e))
        stop(&e);
    opened = now() - start;
    printf("  %-34s opened in %6.0f us; %3zu tokens;", what, opened, ids.n);
    for (int turn = 0; turn < 3; turn++) {
        double allowed = 0, most = 0, taken = 0;

        if (grammar_clone(fresh, &g, &e))
            stop(&e);
        for (size_t i = 0; i < ids.n; i++) {
            double a = now(), b, c;

            if (!grammar_allowed(g, &e))
                stop(&e);
            b = now();
            if (i ? grammar_accept(g, ids.ids[i], &e) : first(g, t, ids.ids[i], text, &e))
                stop(&e);
            c = now();
            allowed += b - a;
            most = b - a > most ? b - a : most;
            taken += c - b;
        }
        if (!grammar_may_end(g)) {
            fprintf(stderr, "grammar_bench: %s: the text is not one of the grammar\n", what);
            exit(1);
        }
        if (turn != 1) /* the one in between warms what the last one reads */
            printf(" %s %.1f us a token (most %.0f), taking %.2f;", turn ? "later" : "first", allowed / (double)ids.n, most,
                   taken / (double)ids.n);
        grammar_close(g);
    }
    printf("\n");
    free(ids.ids);
    grammar_close(fresh);
}

static void vocabulary(const char *path)
{
    struct json_doc *d = NULL;
    struct tokenizer *t = NULL;
    struct grammar_vocab *v;
    struct gguf *g = NULL;
    struct err e = {0};
    char text[2000];
    double start;

    if (gguf_open(path, &g, &e) || tokenizer_open(g, NULL, &t, &e) || json_parse("person", person, strlen(person), NULL, &d, &e))
        stop(&e);
    start = now();
    if (grammar_vocab_new(t, tokenizer_n_vocab(t), &v, &e))
        stop(&e);
    printf("%s: %u tokens, trie in %.0f ms\n", path, tokenizer_n_vocab(t), 1e-3 * (now() - start));
    snprintf(text, sizeof text, "{\"a\": [1, -2.5, {\"b\": \"%s\"}], \"c\": {\"d\": [[[\"x\", null, true]]]}}", prose);
    answers(v, t, "any JSON object", &(struct grammar_source){.any_object = 1}, text);
    snprintf(text, sizeof text, "{\"name\": \"Fox\", \"age\": 3, \"tags\": [\"red\", \"blue\"], \"story\": \"%s %s\"}", prose, prose);
    answers(v, t, "a schema, with maxLength 1000", &(struct grammar_source){.schema = json_root(d)}, text);
    answers(v, t, "GBNF: lines of letters and blanks",
            &(struct grammar_source){.gbnf = lines, .n = sizeof lines - 1}, prose);
    answers(v, t, "GBNF: [^\\n]{1,500}", &(struct grammar_source){.gbnf = counted, .n = sizeof counted - 1}, prose);
    grammar_vocab_free(v);
    tokenizer_close(t);
    gguf_close(g);
    json_free(d);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        vocabulary(argv[i]);
    if (argc == 1)
        vocabulary("tests/demo/story-moe-q4_k_m.gguf");
    return 0;
}
