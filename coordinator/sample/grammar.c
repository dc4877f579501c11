/* An answer's place in a grammar. The automaton and its sets (grammar/) are shared by clones, behind a lock: one
 * thread reads requests, another takes tokens. */
#include "coordinator/sample/grammar.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/sample/grammar/front.h"
#include "coordinator/sample/grammar/rules.h"
#include "coordinator/sample/grammar/sets.h"

enum { SPACE_AFTER_THOUGHT = 16 };

struct shared {
    pthread_mutex_t lock;
    struct sets sets;
    struct grammar *first; /* all places, for when sets get new numbers */
    size_t n;
};
struct grammar {
    struct shared *s;
    struct grammar *next, *prev;
    uint32_t at;    /* set */
    uint64_t *bits; /* what grammar_allowed gave out; NULL: nothing yet */
};

/* A thought, and then `root`. */
static uint32_t with_thought(struct rules *r, const struct grammar_source *src, uint32_t root)
{
    uint32_t space = CLASS(r, {' ', ' '}, {'\t', '\t'}, {'\r', '\r'}, {'\n', '\n'}), thought, all;

    space = rules_repeat(r, space, 0, SPACE_AFTER_THOUGHT);
    thought = rules_until(r, src->think_end, strlen(src->think_end));
    thought = SEQ(r, thought, space);
    if (src->think_begin)
        thought = OPTION(r, SEQ(r, space, rules_text(r, src->think_begin, strlen(src->think_begin)), thought));
    all = rules_rule_new(r, "a thought and its answer");
    rules_define(r, all, SEQ(r, thought, rules_ref(r, root)));
    return all;
}

static int compile(const struct grammar_source *src, struct net *net, struct err *e)
{
    struct rules *r;
    uint32_t root;
    int rc = rules_new(src->gbnf ? "grammar" : "schema", &r, e);

    if (rc)
        return rc;
    root = src->gbnf ? gbnf_read(r, src->gbnf, src->n) : schema_read(r, src->any_object ? NULL : src->schema);
    if (src->think_end && *src->think_end)
        root = with_thought(r, src, root);
    rc = rules_compile(r, root, net, e);
    rules_free(r);
    return rc;
}

static struct grammar *place_new(struct shared *s, struct err *e)
{
    struct grammar *g = calloc(1, sizeof *g);

    if (!g) {
        err_set(e, -ENOMEM, "no memory for a grammar");
        return NULL;
    }
    g->s = s;
    g->next = s->first;
    if (g->next)
        g->next->prev = g;
    s->first = g;
    s->n++;
    return g;
}

static void shared_free(struct shared *s)
{
    sets_free(&s->sets);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

int grammar_open(const struct grammar_vocab *v, const struct grammar_source *src, struct grammar **out, struct err *e)
{
    struct shared *s;
    struct net net;
    struct grammar *g = NULL;
    int rc = compile(src, &net, e);

    if (rc)
        return rc;
    s = calloc(1, sizeof *s);
    if (!s) {
        net_free(&net);
        return err_set(e, -ENOMEM, "no memory for a grammar");
    }
    pthread_mutex_init(&s->lock, NULL);
    rc = sets_init(&s->sets, &net, v, e);
    if (!rc && !(g = place_new(s, e)))
        rc = -ENOMEM;
    if (rc) {
        shared_free(s);
        return rc;
    }
    g->at = s->sets.start;
    *out = g;
    return 0;
}

int grammar_clone(const struct grammar *g, struct grammar **out, struct err *e)
{
    struct grammar *c;

    pthread_mutex_lock(&g->s->lock);
    c = place_new(g->s, e);
    if (c)
        c->at = g->at;
    pthread_mutex_unlock(&g->s->lock);
    *out = c;
    return c ? 0 : -ENOMEM;
}

void grammar_close(struct grammar *g)
{
    size_t left;

    if (!g)
        return;
    pthread_mutex_lock(&g->s->lock);
    *(g->prev ? &g->prev->next : &g->s->first) = g->next;
    if (g->next)
        g->next->prev = g->prev;
    left = --g->s->n;
    pthread_mutex_unlock(&g->s->lock);
    if (!left)
        shared_free(g->s);
    free(g->bits);
    free(g);
}

/* Forgets what no place needs, if there is too much. With the lock. */
static int tidy(struct shared *s, struct err *e)
{
    uint32_t **keep;
    size_t n = 0;
    int rc;

    if (!sets_full(&s->sets))
        return 0;
    keep = malloc(s->n * sizeof *keep);
    if (!keep)
        return err_set(e, -ENOMEM, "no memory for a grammar");
    for (struct grammar *g = s->first; g; g = g->next)
        keep[n++] = &g->at;
    rc = sets_trim(&s->sets, keep, n, e);
    free(keep);
    return rc;
}

const uint64_t *grammar_allowed(struct grammar *g, struct err *e)
{
    size_t n = g->s->sets.v->n_words;
    const uint64_t *bits;
    int rc;

    if (!g->bits && !(g->bits = malloc((n + 1) * sizeof *g->bits))) {
        err_set(e, -ENOMEM, "no memory for a grammar");
        return NULL;
    }
    pthread_mutex_lock(&g->s->lock);
    rc = tidy(g->s, e);
    if (!rc && !(rc = sets_allowed(&g->s->sets, g->at, &bits, e)))
        memcpy(g->bits, bits, n * sizeof *bits);
    pthread_mutex_unlock(&g->s->lock);
    return rc ? NULL : g->bits;
}

int grammar_accept_text(struct grammar *g, const char *text, size_t n, struct err *e)
{
    uint32_t to = SET_DEAD;
    int rc;

    pthread_mutex_lock(&g->s->lock);
    rc = tidy(g->s, e);
    if (!rc)
        rc = sets_walk(&g->s->sets, g->at, text, n, &to, e);
    if (!rc && to != SET_DEAD)
        g->at = to;
    pthread_mutex_unlock(&g->s->lock);
    return rc ? rc : to == SET_DEAD ? err_set(e, -EINVAL, "the grammar does not go on with this text") : 0;
}

int grammar_accept(struct grammar *g, uint32_t id, struct err *e)
{
    const struct grammar_vocab *v = g->s->sets.v;
    int rc;

    if (id < v->n_vocab && v->ends[id / 64] >> id % 64 & 1)
        rc = grammar_may_end(g) ? 0 : -EINVAL;
    else if (id >= v->n_vocab || v->piece[id] == v->piece[id + 1])
        rc = -EINVAL;
    else
        return grammar_accept_text(g, v->bytes + v->piece[id], v->piece[id + 1] - v->piece[id], e);
    return rc ? err_set(e, rc, "the grammar does not allow token %u here", id) : 0;
}

int grammar_may_end(const struct grammar *g)
{
    int may;

    pthread_mutex_lock(&g->s->lock);
    may = g->s->sets.set[g->at].may_end;
    pthread_mutex_unlock(&g->s->lock);
    return may;
}

int grammar_ended(const struct grammar *g)
{
    const struct set *q;
    int ended;

    pthread_mutex_lock(&g->s->lock);
    q = &g->s->sets.set[g->at];
    ended = q->may_end && q->n == 1; /* the empty stack alone */
    pthread_mutex_unlock(&g->s->lock);
    return ended;
}

void grammar_set(struct grammar *to, const struct grammar *from)
{
    pthread_mutex_lock(&to->s->lock);
    to->at = from->at;
    pthread_mutex_unlock(&to->s->lock);
}
