/* The split rules are regular expressions in the models' own files; here they are written out as
 * scanners, so that no regex engine is needed and no input can make one backtrack for minutes.
 * Every scanner reproduces the leftmost alternative that the expression would take. */
#include "coordinator/model/split.h"

#include <string.h>

#include "coordinator/model/unicode_table.h"

/* what a code point is: bits 0..8 are 1 << enum unicode_class */
enum {
    UPPER = 1 << UNICODE_UPPER,
    LOWER = 1 << UNICODE_LOWER,
    OTHER = 1 << UNICODE_OTHER_LETTER,
    L = UPPER | LOWER | OTHER,
    M = 1 << UNICODE_MARK,
    N = 1 << UNICODE_NUMBER,
    P = 1 << UNICODE_PUNCT,
    S = 1 << UNICODE_SYMBOL,
    W = 1 << 9,     /* \s: white space, a set of its own */
    CRLF = 1 << 10, /* also in W */
    END = 1 << 11,  /* not a code point: the end of the text */
};

struct ch {
    uint32_t c;
    uint32_t is;
    size_t n; /* bytes */
};

static int white_space(uint32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= 9 && c <= 13);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* The code point at p; past the end it belongs to no class. */
static struct ch at(const char *s, size_t p, size_t e)
{
    const unsigned char *b = (const unsigned char *)s + p;
    struct ch r = {.is = END};

    if (p >= e)
        return r;
    if (b[0] < 0x80) {
        r.c = b[0];
        r.n = 1;
    } else if (b[0] < 0xE0 && e - p >= 2) {
        r.c = (b[0] & 31u) << 6 | (b[1] & 63u);
        r.n = 2;
    } else if (b[0] < 0xF0 && e - p >= 3) {
        r.c = (b[0] & 15u) << 12 | (b[1] & 63u) << 6 | (b[2] & 63u);
        r.n = 3;
    } else if (e - p >= 4) {
        r.c = (b[0] & 7u) << 18 | (b[1] & 63u) << 12 | (b[2] & 63u) << 6 | (b[3] & 63u);
        r.n = 4;
    }
    if (!r.n || r.c > 0x10FFFF) { /* ill-formed, against the contract: one byte without a class */
        r = (struct ch){.c = 0xFFFD, .is = 1 << UNICODE_NONE, .n = 1};
        return r;
    }
    r.is = 1u << unicode_class(r.c);
    if (white_space(r.c))
        r.is |= W;
    if (r.c == '\r' || r.c == '\n')
        r.is |= CRLF;
    return r;
}

/* End of the run of code points that are any of `is`. */
static size_t run(const char *s, size_t p, size_t e, uint32_t is)
{
    struct ch c;

    while ((c = at(s, p, e)).is & is)
        p += c.n;
    return p;
}

/* End of the run of code points that are none of `is`. */
static size_t run_not(const char *s, size_t p, size_t e, uint32_t is)
{
    struct ch c;

    while (!((c = at(s, p, e)).is & (is | END)))
        p += c.n;
    return p;
}

static size_t run_max(const char *s, size_t p, size_t e, uint32_t is, int most)
{
    struct ch c;

    for (; most > 0 && (c = at(s, p, e)).is & is; most--)
        p += c.n;
    return p;
}

/* the long s folds to s; no other code point folds to one of these letters */
static uint32_t fold(uint32_t c)
{
    if (c >= 'A' && c <= 'Z')
        return c + 32;
    return c == 0x17F ? 's' : c;
}

/* End of 's 't 'm 'd 're 've 'll at p, else p. */
static size_t contraction(const char *s, size_t p, size_t e, int any_case)
{
    struct ch c = at(s, p, e);
    uint32_t x, y;
    size_t q = p + c.n;

    if (c.c != '\'')
        return p;
    c = at(s, q, e);
    x = any_case ? fold(c.c) : c.c;
    q += c.n;
    if (x == 's' || x == 't' || x == 'm' || x == 'd')
        return q;
    c = at(s, q, e);
    y = any_case ? fold(c.c) : c.c;
    if ((x == 'r' && y == 'e') || (x == 'v' && y == 'e') || (x == 'l' && y == 'l'))
        return q + c.n;
    return p;
}

/* \s*[\r\n]+ | \s+(?!\S) | \s+, the first only with `newline`. Returns p if there is none. */
static size_t spaces(const char *s, size_t p, size_t e, int newline)
{
    size_t q = p, last = p, after_newline = 0;
    struct ch c;

    while ((c = at(s, q, e)).is & W) {
        last = q;
        q += c.n;
        if (c.is & CRLF)
            after_newline = q;
    }
    if (newline && after_newline)
        return after_newline;
    if (q == e || last == p)
        return q;
    return last; /* the last one goes with what follows */
}

/* " ?" and then a run of what is none of `not`, then the trailing set. Returns p if there is none.
 */
static size_t punctuation(const char *s, size_t p, size_t e, uint32_t not, int slash)
{
    size_t q = p, end;
    struct ch c;

    if (at(s, p, e).c == ' ' && p + 1 < e)
        q = p + 1;
    end = run_not(s, q, e, not );
    if (end == q)
        return p;
    while ((c = at(s, end, e)).is & CRLF || (slash && c.c == '/'))
        end += c.n;
    return end;
}

static size_t match_gpt2(const char *s, size_t p, size_t e, size_t *next)
{
    size_t q = contraction(s, p, e, 0);
    struct ch c;

    (void)next; /* something always matches */
    if (q > p)
        return q;
    q = at(s, p, e).c == ' ' && p + 1 < e ? p + 1 : p;
    c = at(s, q, e);
    if (c.is & L)
        return run(s, q, e, L);
    if (c.is & N)
        return run(s, q, e, N);
    if (!(c.is & W))
        return run_not(s, q, e, W | L | N);
    return spaces(s, p, e, 0);
}

/* qwen2 and its relatives: what counts as a letter, and how many digits stay together */
static size_t match_words(const char *s, size_t p, size_t e, uint32_t letters, int digits)
{
    struct ch c = at(s, p, e);
    size_t q = contraction(s, p, e, 1);

    if (q > p)
        return q;
    if (!(c.is & (CRLF | L | N)) && (at(s, p + c.n, e).is & letters))
        return run(s, p + c.n, e, letters);
    if (c.is & letters)
        return run(s, p, e, letters);
    if (c.is & N)
        return run_max(s, p, e, N, digits);
    q = punctuation(s, p, e, W | letters | N, 0);
    return q > p ? q : spaces(s, p, e, 1);
}

static size_t match_qwen2(const char *s, size_t p, size_t e, size_t *next)
{
    (void)next;
    return match_words(s, p, e, L, 1);
}

static size_t match_qwen35(const char *s, size_t p, size_t e, size_t *next)
{
    (void)next;
    return match_words(s, p, e, L | M, 1);
}

static size_t match_llama3(const char *s, size_t p, size_t e, size_t *next)
{
    (void)next;
    return match_words(s, p, e, L, 3);
}

enum { HEAD = UPPER | OTHER | M, TAIL = LOWER | OTHER | M }; /* they overlap in Lm, Lo and M */

/* [head]*[tail]+ from p: greedy, giving back from the head what the tail needs. 0: no match. */
static size_t head_and_tail(const char *s, size_t p, size_t e)
{
    size_t after_tail = 0; /* end of the last code point of the head's run that may be a tail */
    struct ch c;

    while ((c = at(s, p, e)).is & HEAD) {
        p += c.n;
        if (c.is & TAIL)
            after_tail = p;
    }
    return c.is & TAIL ? run(s, p, e, TAIL) : after_tail;
}

static size_t match_gpt4o(const char *s, size_t p, size_t e, size_t *next)
{
    struct ch c = at(s, p, e);
    int front = !(c.is & (CRLF | L | N)); /* may stick to the front of a word */
    size_t q = 0;

    (void)next;
    if (front)
        q = head_and_tail(s, p + c.n, e);
    if (!q)
        q = head_and_tail(s, p, e);
    if (!q && front && (q = run(s, p + c.n, e, HEAD)) == p + c.n)
        q = 0;
    if (!q && (q = run(s, p, e, HEAD)) == p)
        q = 0;
    if (q)
        return contraction(s, q, e, 1);
    if (c.is & N)
        return run_max(s, p, e, N, 3);
    q = punctuation(s, p, e, W | L | N, 1);
    return q > p ? q : spaces(s, p, e, 1);
}

/* --- deepseek-v3 ---------------------------------------------------------------- */

static size_t match_3_numbers(const char *s, size_t p, size_t e, size_t *next)
{
    struct ch c = at(s, p, e);

    *next = p + c.n;
    return run_max(s, p, e, N, 3);
}

static int cjk_v3(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
}

/* End of the run of code points for which in() holds. */
static size_t run_in(const char *s, size_t p, size_t e, int (*in)(uint32_t))
{
    struct ch c;

    while (c = at(s, p, e), !(c.is & END) && in(c.c))
        p += c.n;
    return p;
}

static size_t match_cjk_v3(const char *s, size_t p, size_t e, size_t *next)
{
    *next = p + at(s, p, e).n;
    return run_in(s, p, e, cjk_v3);
}

static int ascii_letter(uint32_t c)
{
    return (c | 32) >= 'a' && (c | 32) <= 'z' && c < 128;
}

static int ascii_punct(uint32_t c)
{
    return c > 32 && c < 127 && !ascii_letter(c) && !(c >= '0' && c <= '9');
}

static size_t match_v3(const char *s, size_t p, size_t e, size_t *next)
{
    struct ch c = at(s, p, e);
    size_t q;

    *next = p + c.n;
    if (ascii_punct(c.c) && (q = run_in(s, p + 1, e, ascii_letter)) > p + 1)
        return q;
    if (!(c.is & (CRLF | L | P | S)) && (at(s, p + c.n, e).is & (L | M)))
        return run(s, p + c.n, e, L | M);
    if (c.is & (L | M))
        return run(s, p, e, L | M);
    q = c.c == ' ' ? p + 1 : p;
    if (at(s, q, e).is & (P | S))
        return run(s, run(s, q, e, P | S), e, CRLF);
    return spaces(s, p, e, 1);
}

/* --- deepseek-llm --------------------------------------------------------------- */

static size_t match_newline(const char *s, size_t p, size_t e, size_t *next)
{
    struct ch c = at(s, p, e);

    *next = p + c.n;
    return c.is & CRLF ? p + c.n : p;
}

struct range {
    uint32_t lo, hi;
};

static int in_ranges(const struct range *r, size_t n, uint32_t c)
{
    size_t lo = 0, hi = n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (c > r[mid].hi)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && c >= r[lo].lo;
}

/* A list fixed by that model's expression, not a Unicode property. */
static int cased(uint32_t c)
{
    static const struct range r[] = {
        /* clang-format off */
        {0x41, 0x5A}, {0x61, 0x7A}, {0xB5, 0xB5}, {0xC0, 0xD6}, {0xD8, 0xF6}, {0xF8, 0x1BA},
        {0x1BC, 0x1BF}, {0x1C4, 0x293}, {0x295, 0x2AF}, {0x370, 0x373}, {0x376, 0x376},
        {0x377, 0x377}, {0x37B, 0x37D}, {0x37F, 0x37F}, {0x386, 0x386}, {0x388, 0x38A},
        {0x38C, 0x38C}, {0x38E, 0x3A1}, {0x3A3, 0x3F5}, {0x3F7, 0x481}, {0x48A, 0x52F},
        {0x531, 0x556}, {0x10A0, 0x10C5}, {0x13A0, 0x13F5}, {0x13F8, 0x13FD}, {0x1C90, 0x1CBA},
        {0x1CBD, 0x1CBF}, {0x1D00, 0x1D2B}, {0x1D6B, 0x1D77}, {0x1D79, 0x1D9A}, {0x1E00, 0x1F15},
        {0x1F18, 0x1F1D}, {0x1F20, 0x1F45}, {0x1F48, 0x1F4D}, {0x1F50, 0x1F57}, {0x1F59, 0x1F59},
        {0x1F5B, 0x1F5B}, {0x1F5D, 0x1F5D}, {0x1F5F, 0x1F7D}, {0x1F80, 0x1FB4}, {0x1FB6, 0x1FBC},
        {0x1FBE, 0x1FBE}, {0x1FC2, 0x1FC4}, {0x1FC6, 0x1FCC}, {0x1FD0, 0x1FD3}, {0x1FD6, 0x1FDB},
        {0x1FE0, 0x1FEC}, {0x1FF2, 0x1FF4}, {0x1FF6, 0x1FFC}, {0x2102, 0x2102}, {0x2107, 0x2107},
        {0x210A, 0x2113}, {0x2115, 0x2115}, {0x2119, 0x211D}, {0x2124, 0x2124}, {0x2126, 0x2126},
        {0x2128, 0x2128}, {0x212A, 0x212D}, {0x212F, 0x2134}, {0x2139, 0x2139}, {0x213C, 0x213F},
        {0x2145, 0x2149}, {0x214E, 0x214E}, {0x2183, 0x2183}, {0x2184, 0x2184}, {0x2C00, 0x2C7B},
        {0x2C7E, 0x2CE4}, {0x2CEB, 0x2CEE}, {0x2CF2, 0x2CF2}, {0x2CF3, 0x2CF3}, {0xA640, 0xA66D},
        {0xA680, 0xA69B}, {0xA722, 0xA76F}, {0xA771, 0xA787}, {0xA78B, 0xA78E}, {0xAB70, 0xABBF},
        {0xFB00, 0xFB06}, {0xFB13, 0xFB17}, {0xFF21, 0xFF3A}, {0xFF41, 0xFF5A}, {0x10400, 0x1044F},
        {0x104B0, 0x104D3}, {0x104D8, 0x104FB}, {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2},
        {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
        /* clang-format on */
    };

    return in_ranges(r, sizeof r / sizeof *r, c);
}

static int pun(uint32_t c)
{
    static const struct range r[] = {
        {0x21, 0x2F},     {0x3A, 0x7E},     {0x2018, 0x201F},
        {0x3000, 0x3002}, {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E},
    };

    return in_ranges(r, sizeof r / sizeof *r, c);
}

/* \s?[set]+ */
static size_t space_and_run(const char *s, size_t p, size_t e, int (*in)(uint32_t), size_t *next)
{
    struct ch c = at(s, p, e);
    size_t q;

    *next = p + c.n;
    if (c.is & W && (q = run_in(s, p + c.n, e, in)) > p + c.n)
        return q;
    return run_in(s, p, e, in);
}

static size_t match_cased(const char *s, size_t p, size_t e, size_t *next)
{
    return space_and_run(s, p, e, cased, next);
}

static size_t match_pun(const char *s, size_t p, size_t e, size_t *next)
{
    return space_and_run(s, p, e, pun, next);
}

static size_t match_last_spaces(const char *s, size_t p, size_t e, size_t *next)
{
    size_t q = run(s, p, e, W);

    *next = q > p ? q : p + at(s, p, e).n; /* past the run: a look from inside it fails too */
    return q == e ? q : p;
}

static int cjk_llm(uint32_t c)
{
    return (c >= 0x800 && c <= 0x9FA5) || (c >= 0xAC00 && c <= 0xD7FF);
}

static size_t match_cjk_llm(const char *s, size_t p, size_t e, size_t *next)
{
    *next = p + at(s, p, e).n;
    return run_in(s, p, e, cjk_llm);
}

static size_t match_number(const char *s, size_t p, size_t e, size_t *next)
{
    *next = p + at(s, p, e).n;
    return run_max(s, p, e, N, 1);
}

/* -------------------------------------------------------------------------------- */

static const struct split_rule rules[] = {
    {"gpt-2", 0, 0, 1, {match_gpt2}},
    {"olmo", 0, 0, 1, {match_gpt2}},
    {"qwen2", 0, 0, 1, {match_qwen2}},
    {"qwen35", 0, 0, 1, {match_qwen35}},
    {"llama-bpe", 1, 1, 1, {match_llama3}},
    {"glm4", 1, 0, 1, {match_llama3}},
    {"glm5", 1, 0, 1, {match_llama3}},
    {"chatglm-bpe", 0, 0, 1, {match_llama3}},
    {"gpt-4o", 0, 0, 1, {match_gpt4o}},
    {"deepseek-v3", 0, 0, 3, {match_3_numbers, match_cjk_v3, match_v3}},
    {"deepseek-llm",
     0,
     0,
     6,
     {match_newline, match_cased, match_pun, match_last_spaces, match_cjk_llm, match_number}},
};

const char split_names[] = "gpt-2, olmo, qwen2, qwen35, llama-bpe, glm4, glm5, chatglm-bpe, "
                           "gpt-4o, deepseek-v3, deepseek-llm";

const struct split_rule *split_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strlen(rules[i].name) == n && !memcmp(rules[i].name, name, n))
            return &rules[i];
    return NULL;
}

void split_init(struct split *s, const struct split_rule *rule, const char *text, size_t n)
{
    memset(s, 0, sizeof *s);
    s->rule = rule;
    s->text = text;
    s->pass[0].end = n;
}

/* End of pass k's next piece, which begins at pass[k].at: a match, or the gap before one. */
static size_t cut(struct split *s, int k)
{
    size_t p = s->pass[k].at, e = s->pass[k].end, next = e, m;

    if (s->pass[k].match_end && s->pass[k].match_at == p)
        return s->pass[k].match_end;
    while (p < e) {
        m = s->rule->match[k](s->text, p, e, &next);
        if (m > p) {
            if (p == s->pass[k].at)
                return m;
            s->pass[k].match_at = p;
            s->pass[k].match_end = m;
            return p;
        }
        p = next;
    }
    return e;
}

int split_next(struct split *s, size_t *word_at, size_t *n)
{
    int k =
        s->rule->n_passes - 1; /* the last pass gives the words; an empty one asks the one before */

    for (;;) {
        size_t a = s->pass[k].at, b;

        if (a == s->pass[k].end) {
            if (k-- == 0)
                return 0;
            continue;
        }
        b = cut(s, k);
        s->pass[k].at = b;
        if (k == s->rule->n_passes - 1) {
            *word_at = a;
            *n = b - a;
            return 1;
        }
        k++;
        s->pass[k].at = a;
        s->pass[k].end = b;
        s->pass[k].match_end = 0;
    }
}
