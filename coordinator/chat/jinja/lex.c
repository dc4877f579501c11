/* Cuts a source into tokens. White space around tags is settled here (trim_blocks and lstrip_blocks
 * on, as chat templates expect it), so that the parser never sees it. */
#include <stdlib.h>
#include <string.h>

#include "coordinator/chat/jinja/tree.h"
#include "coordinator/model/utf8.h"

struct lexer {
    struct core *c;
    const char *s; /* '\n' ends lines; the last one is gone */
    size_t n, at;
    struct token *tokens;
    size_t n_tokens, cap;
    int line_start; /* what was before `at` ended a line */
};

static struct token *add(struct lexer *l, enum token_kind kind, struct str s)
{
    l->tokens = grow(l->c, l->tokens, l->n_tokens, &l->cap, sizeof *l->tokens);
    l->tokens[l->n_tokens] = (struct token){.kind = kind, .line = l->c->line, .s = s};
    return &l->tokens[l->n_tokens++];
}

/* Moves on and counts lines. */
static void move(struct lexer *l, size_t to)
{
    for (; l->at < to; l->at++)
        l->c->line += l->s[l->at] == '\n';
    if (to)
        l->line_start = l->s[to - 1] == '\n';
}

static int at(const struct lexer *l, size_t p, const char *what)
{
    size_t n = strlen(what);

    return p <= l->n && l->n - p >= n && !memcmp(l->s + p, what, n);
}

static size_t skip_space(const struct lexer *l, size_t p)
{
    size_t len;

    while (p < l->n && is_space(point_at(l->s + p, &len)))
        p += len;
    return p;
}

/* The end of s[from..to) without white space behind. */
static size_t trim_right(const struct lexer *l, size_t from, size_t to)
{
    while (to > from) {
        size_t p = to - 1, len;

        while (((unsigned char)l->s[p] & 0xC0) == 0x80)
            p--;
        if (!is_space(point_at(l->s + p, &len)))
            break;
        to = p;
    }
    return to;
}

/* The end of the text s[from..to) in front of a tag: '-' takes all white space away, a tag that is no
 * {{ what stands alone before it on its line, '+' nothing. */
static size_t text_end(const struct lexer *l, size_t from, size_t to, char sign, int is_print)
{
    size_t line = to, bare;

    if (sign == '-')
        return trim_right(l, from, to);
    if (sign == '+' || is_print)
        return to;
    while (line > from && l->s[line - 1] != '\n')
        line--;
    if (line == from && !l->line_start)
        return to;
    bare = trim_right(l, line, to);
    return bare == line ? line : to;
}

/* Behind a closing delimiter at p ("%}", "#}" or "}}", with its sign in front); 0: none is there. */
static size_t closing(const struct lexer *l, size_t p, const char *end)
{
    if (l->s[p] == '-' && at(l, p + 1, end))
        return skip_space(l, p + 3);
    if (end[0] == '}')
        return at(l, p, end) ? p + 2 : 0;
    if (l->s[p] == '+' && at(l, p + 1, end))
        return p + 3;
    if (!at(l, p, end))
        return 0;
    p += 2;
    return p < l->n && l->s[p] == '\n' ? p + 1 : p;
}

static char sign_at(const struct lexer *l, size_t p)
{
    return p < l->n && (l->s[p] == '-' || l->s[p] == '+') ? l->s[p] : 0;
}

static void comment(struct lexer *l)
{
    size_t p = l->at + 2, end = 0;

    for (p += sign_at(l, p) != 0; p < l->n && !(end = closing(l, p, "#}")); p++)
        ;
    if (!end)
        fail(l->c, JINJA_SYNTAX, "a comment {# does not end");
    move(l, end);
}

/* {% raw %} at l->at: its end, or 0. */
static size_t raw_begin(const struct lexer *l)
{
    size_t p = l->at + 2;

    p = skip_space(l, p + (sign_at(l, p) != 0));
    if (!at(l, p, "raw"))
        return 0;
    p = skip_space(l, p + 3);
    if (at(l, p, "-%}"))
        return skip_space(l, p + 3);
    return at(l, p, "%}") ? p + 2 : 0;
}

static void raw(struct lexer *l, size_t begin)
{
    move(l, begin);
    for (size_t p = begin; p < l->n; p++) {
        size_t q, end;
        char sign;

        if (!at(l, p, "{%"))
            continue;
        sign = sign_at(l, p + 2);
        q = skip_space(l, p + 2 + (sign != 0));
        if (!at(l, q, "endraw"))
            continue;
        q = skip_space(l, q + 6);
        if (q < l->n && (end = closing(l, q, "%}"))) {
            size_t to = text_end(l, begin, p, sign, 0);

            if (to > begin)
                add(l, T_TEXT, (struct str){l->s + begin, to - begin, NULL});
            move(l, end);
            return;
        }
    }
    fail(l->c, JINJA_SYNTAX, "{%% raw %%} without {%% endraw %%}");
}

/* ---- inside tags ---- */

static int hex_digits(struct lexer *l, size_t *p, size_t n)
{
    int v = 0;

    for (size_t i = 0; i < n; i++, ++*p) {
        char x = *p < l->n ? l->s[*p] : 0;
        int d = x >= '0' && x <= '9'   ? x - '0'
                : x >= 'a' && x <= 'f' ? x - 'a' + 10
                : x >= 'A' && x <= 'F' ? x - 'A' + 10
                                       : -1;
        if (d < 0)
            fail(l->c, JINJA_SYNTAX, "an escape with fewer than %zu hexadecimal digits", n);
        v = v << 4 | d;
    }
    return v;
}

/* An escape at s[p], which is the character behind the backslash; returns what is behind it. */
static size_t escape(struct lexer *l, size_t p, struct buf *b)
{
    static const char letters[] = "\\'\"nrtabfv", mean[] = "\\'\"\n\r\t\a\b\f\v";
    const char *k = l->s[p] ? strchr(letters, l->s[p]) : NULL;
    char x = l->s[p];
    uint32_t v;

    if (k) {
        buf_char(l->c, b, mean[k - letters], 0);
        return p + 1;
    }
    if (x == '\n')
        return p + 1;
    if (x >= '0' && x <= '7') {
        v = 0;
        for (int i = 0; i < 3 && p < l->n && l->s[p] >= '0' && l->s[p] <= '7'; i++, p++)
            v = v << 3 | (uint32_t)(l->s[p] - '0');
        buf_point(l->c, b, v, 0);
        return p;
    }
    if (x == 'N')
        fail(l->c, JINJA_SYNTAX, "escapes by name (\\N) are not supported");
    if (x != 'x' && x != 'u' && x != 'U') { /* no escape: both characters stay */
        buf_char(l->c, b, '\\', 0);
        return p;
    }
    p++;
    if (x == 'U' && p < l->n && l->s[p] >= '8')
        fail(l->c, JINJA_SYNTAX, "an escape beyond U+10FFFF");
    v = (uint32_t)hex_digits(l, &p, x == 'x' ? 2 : x == 'u' ? 4 : 8);
    if (v > 0x10FFFF || (v >= 0xD800 && v < 0xE000))
        fail(l->c, JINJA_SYNTAX, "U+%04X in a string is no character", v);
    buf_point(l->c, b, v, 0);
    return p;
}

static void string(struct lexer *l)
{
    char quote = l->s[l->at];
    struct buf b = {0};
    size_t p = l->at + 1, run = p;

    while (p < l->n && l->s[p] != quote) {
        if (l->s[p] != '\\') {
            p++;
            continue;
        }
        buf_bytes(l->c, &b, l->s + run, p - run, 0);
        if (p + 1 >= l->n)
            break;
        run = p = escape(l, p + 1, &b);
    }
    if (p >= l->n)
        fail(l->c, JINJA_SYNTAX, "a string does not end");
    buf_bytes(l->c, &b, l->s + run, p - run, 0);
    add(l, T_STRING, buf_str(&b));
    move(l, p + 1);
}

static int is_digit(char x)
{
    return x >= '0' && x <= '9';
}
static int is_word(char x)
{
    return is_digit(x) || (x >= 'a' && x <= 'z') || (x >= 'A' && x <= 'Z') || x == '_';
}

static size_t digits(const struct lexer *l, size_t p)
{
    while (p < l->n && (is_digit(l->s[p]) || (l->s[p] == '_' && p + 1 < l->n && is_digit(l->s[p + 1]))))
        p++;
    return p;
}

static void number(struct lexer *l)
{
    size_t p = l->at, q;
    int is_float = 0;
    char second = p + 1 < l->n ? l->s[p + 1] | 0x20 : 0;

    if (l->s[p] == '0' && (second == 'x' || second == 'o' || second == 'b')) {
        for (p += 2; p < l->n && is_word(l->s[p]); p++)
            ;
    } else {
        int after_dot = l->at && l->s[l->at - 1] == '.'; /* a.0.1: indices, no fraction */

        if (l->s[p] == '0' && is_digit(second))
            fail(l->c, JINJA_SYNTAX, "a number with a 0 in front");
        p = digits(l, p);
        if (!after_dot && p + 1 < l->n && l->s[p] == '.' && is_digit(l->s[p + 1])) {
            is_float = 1;
            p = digits(l, p + 1);
        }
        q = p + 1;
        if (!after_dot && p < l->n && (l->s[p] | 0x20) == 'e') {
            q += q < l->n && (l->s[q] == '+' || l->s[q] == '-');
            if (q < l->n && is_digit(l->s[q])) {
                is_float = 1;
                p = digits(l, q);
            }
        }
    }
    if (p < l->n && is_word(l->s[p]))
        fail(l->c, JINJA_SYNTAX, "a number with letters behind it");
    add(l, is_float ? T_FLOAT : T_INT, (struct str){l->s + l->at, p - l->at, NULL});
    move(l, p);
}

static void operator(struct lexer *l)
{
    static const char two[][3] = {"**", "//", "==", "!=", ">=", "<="}, one[] = "+-*/%~[](){}><=.:|,";
    const char *p = l->s + l->at;

    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (at(l, l->at, two[i])) {
            add(l, T_OP, (struct str){p, 2, NULL})->op = OP2(p[0], p[1]);
            move(l, l->at + 2);
            return;
        }
    if (!*p || !strchr(one, *p)) {
        size_t len;
        uint32_t u = point_at(p, &len);

        if (u > 0x20 && u < 0x7F)
            fail(l->c, JINJA_SYNTAX, "'%c' in a tag is not known", *p);
        fail(l->c, JINJA_SYNTAX, "U+%04X in a tag is not known", u);
    }
    add(l, T_OP, (struct str){p, 1, NULL})->op = *p;
    move(l, l->at + 1);
}

/* The inside of a tag up to its end, which counts only outside brackets. */
static void inside(struct lexer *l, const char *end, enum token_kind end_kind)
{
    char open[JINJA_NESTING_MAX];
    size_t depth = 0;
    unsigned begun = l->c->line;

    while (l->at < l->n) {
        size_t p = depth ? 0 : closing(l, l->at, end);
        char x = l->s[l->at];
        struct token *k;
        size_t len;

        if (p) {
            add(l, end_kind, STR(""));
            move(l, p);
            return;
        }
        if (is_space(point_at(l->s + l->at, &len))) {
            move(l, l->at + len);
        } else if (is_digit(x)) {
            number(l);
        } else if (is_word(x)) {
            for (p = l->at; p < l->n && is_word(l->s[p]); p++)
                ;
            add(l, T_NAME, (struct str){l->s + l->at, p - l->at, NULL});
            move(l, p);
        } else if (x == '\'' || x == '"') {
            string(l);
        } else {
            operator(l);
            k = &l->tokens[l->n_tokens - 1];
            if (strchr("([{", k->op & 0xFF) && k->op < 256) {
                if (depth == JINJA_NESTING_MAX)
                    fail(l->c, JINJA_LIMIT, "brackets nest more than %d deep", JINJA_NESTING_MAX);
                open[depth++] = k->op == '(' ? ')' : k->op == '[' ? ']' : '}';
            } else if (k->op == ')' || k->op == ']' || k->op == '}') {
                if (!depth || open[--depth] != k->op)
                    fail(l->c, JINJA_SYNTAX, "'%c' closes nothing", k->op);
            }
        }
    }
    l->c->line = begun;
    fail(l->c, JINJA_SYNTAX, "a tag does not end (%s is missing)", end);
}

static void lex_all(struct lexer *l)
{
    while (l->at < l->n) {
        size_t p = l->at, from = l->at, to, q;
        char sign;

        while (p < l->n && !at(l, p, "{{") && !at(l, p, "{%") && !at(l, p, "{#"))
            p++;
        if (p >= l->n) {
            add(l, T_TEXT, (struct str){l->s + from, l->n - from, NULL});
            break;
        }
        sign = sign_at(l, p + 2);
        to = text_end(l, from, p, sign, l->s[p + 1] == '{');
        if (to > from)
            add(l, T_TEXT, (struct str){l->s + from, to - from, NULL});
        move(l, p);
        if (l->s[p + 1] == '#') {
            comment(l);
        } else if (l->s[p + 1] == '%' && (q = raw_begin(l))) {
            raw(l, q);
        } else {
            int is_print = l->s[p + 1] == '{';

            add(l, is_print ? T_PRINT_BEGIN : T_BLOCK_BEGIN, STR(""));
            move(l, p + 2 + (sign != 0));
            inside(l, is_print ? "}}" : "%}", is_print ? T_PRINT_END : T_BLOCK_END);
        }
    }
    add(l, T_END, STR(""));
}

struct token *lex(struct core *c, const char *source, size_t n, size_t *n_tokens)
{
    struct lexer l = {.c = c, .line_start = 1};
    char *s;
    size_t len;

    c->line = 1;
    for (size_t p = 0; p < n; p += len)
        if (utf8_next(source + p, n - p, &len) != UTF8_OK) {
            c->line = 0;
            fail(c, JINJA_SYNTAX, "byte %zu is not UTF-8", p);
        }
    s = take(c, n + 4); /* NULs behind, so that looking one ahead is safe */
    for (size_t p = 0; p < n; p++) {
        if (source[p] == '\r') {
            s[l.n++] = '\n';
            p += p + 1 < n && source[p + 1] == '\n';
        } else {
            s[l.n++] = source[p];
        }
    }
    if (l.n && s[l.n - 1] == '\n')
        s[--l.n] = 0;
    l.s = s;
    lex_all(&l);
    *n_tokens = l.n_tokens;
    return l.tokens;
}
