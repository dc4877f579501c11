/* Loads a vocabulary and checks it, so that nothing later has to doubt it: every id in range, every
 * merge a pair of tokens whose product is a token, every text of a bounded length. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/model/alphabet.h"
#include "coordinator/model/gguf_front.h"
#include "coordinator/model/vocab.h"

#define KEY(name) "tokenizer.ggml." name
#define SHOW(s, n) front_show((char[FRONT_SHOWN]){0}, s, n)

enum {
    ENTRIES_MAX = 1 << 28, /* tokens, merges: more than that is no vocabulary */
    STAND_IN_BYTES = 24,   /* "[EMPTY_4294967295]" */
};

/* SPM: U+2581 stands for a space. */
static uint32_t spaces_back(const char *text, uint32_t n, char *out)
{
    uint32_t k = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (n - i >= 3 && !memcmp(text + i, "\xE2\x96\x81", 3)) {
            out[k++] = ' ';
            i += 2;
        } else {
            out[k++] = text[i];
        }
    }
    return k;
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* "<0x0A>"; -1: something else */
static int byte_of_name(const char *s, size_t n)
{
    if (n != 6 || memcmp(s, "<0x", 3) || hex(s[3]) < 0 || hex(s[4]) < 0 || s[5] != '>')
        return -1;
    return hex(s[3]) << 4 | hex(s[4]);
}

/* 0: found; 1: absent, not needed. */
static int get_array(const struct gguf *g, const char *key, int strings, int needed,
                     struct gguf_array *a, struct err *e)
{
    int rc = gguf_array(g, key, a);

    if (rc == 1 && !needed)
        return 1;
    if (!rc && (a->kind == GGUF_STRING) != strings)
        rc = -EINVAL;
    return rc ? gguf_why(g, key, strings ? "an array of strings" : "an array of numbers", e) : 0;
}

static int same_length(const struct tokenizer *t, const char *key, size_t n, struct err *e)
{
    if (n == t->n_tokens)
        return 0;
    return err_set(e, -EINVAL, "%s: %s has %zu entries, " KEY("tokens") " has %u", t->file, key, n,
                   t->n_tokens);
}

/* Texts as they are in the file; types and scores. */
static int load_tokens(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    struct gguf_array texts, types, scores;
    int has_types, has_scores;

    if (get_array(g, KEY("tokens"), 1, 1, &texts, e))
        return -EINVAL;
    if (texts.n == 0 || texts.n > ENTRIES_MAX)
        return err_set(e, -EINVAL, "%s: " KEY("tokens") " has %zu entries, wanted 1 to %u", t->file,
                       texts.n, ENTRIES_MAX);
    t->n_tokens = (uint32_t)texts.n;
    if ((has_types = get_array(g, KEY("token_type"), 0, 0, &types, e)) < 0 ||
        (!has_types && same_length(t, KEY("token_type"), types.n, e) < 0) ||
        (has_scores = get_array(g, KEY("scores"), 0, !t->rule, &scores, e)) < 0 ||
        (!has_scores && same_length(t, KEY("scores"), scores.n, e) < 0))
        return -EINVAL;
    t->tokens = calloc(t->n_tokens, sizeof *t->tokens);
    if (!t->tokens)
        return err_set(e, -ENOMEM, "%s: no memory for %u tokens", t->file, t->n_tokens);
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        struct token *k = &t->tokens[id];
        struct gguf_str s = gguf_array_str(&texts, id);
        int64_t type = TOKEN_NORMAL;

        if (s.n > TOKEN_TEXT_MAX)
            return err_set(e, -EINVAL,
                           "%s: " KEY("tokens") ": entry %u has %zu bytes, at most %d work",
                           t->file, id, s.n, TOKEN_TEXT_MAX);
        k->text = s.s;
        k->text_n = (uint32_t)s.n;
        if (!has_types && (gguf_array_i64(&types, id, &type) || type < 0 || type > TOKEN_BYTE))
            return err_set(e, -EINVAL,
                           "%s: " KEY("token_type") ": entry %u is %lld, known are 0 to 6", t->file,
                           id, (long long)type);
        k->type = (uint8_t)type;
        if (t->rule)
            continue; /* BPE has ranks instead of scores */
        if (gguf_array_f32(&scores, id, &k->score) || isnan(k->score))
            return err_set(e, -EINVAL, "%s: " KEY("scores") ": entry %u is not a number", t->file,
                           id);
    }
    return 0;
}

/* Text and piece of one token; writes what the file does not hold to *at and moves it on. */
static int make_piece(const struct tokenizer *t, uint32_t id, char **at, struct err *e)
{
    struct token *k = &t->tokens[id];
    int byte;

    if (!k->text_n) { /* a stand-in, so that every token has a text */
        k->text = k->piece = *at;
        k->text_n = k->piece_n = (uint32_t)snprintf(*at, STAND_IN_BYTES, "[EMPTY_%u]", id);
        *at += k->text_n;
        return 0;
    }
    k->piece = *at;
    if (k->type == TOKEN_BYTE && !t->rule) {
        if ((byte = byte_of_name(k->text, k->text_n)) < 0)
            return err_set(
                e, -EINVAL,
                "%s: " KEY("tokens") ": entry %u is a byte token, but its text is '%s' (<0xHH>)",
                t->file, id, SHOW(k->text, k->text_n));
        **at = (char)byte;
        k->piece_n = 1;
    } else if (k->type == TOKEN_NORMAL || k->type == TOKEN_BYTE) {
        k->piece_n = t->rule ? alphabet_to_bytes(k->text, k->text_n, *at)
                             : spaces_back(k->text, k->text_n, *at);
    } else { /* unknown, control, user-defined: the text is the bytes. Unused: never asked for */
        k->piece = k->text;
        k->piece_n = k->text_n;
        return 0;
    }
    *at += k->piece_n;
    return 0;
}

static int make_pieces(struct tokenizer *t, struct err *e)
{
    size_t need = 1;
    char *at;

    for (uint32_t id = 0; id < t->n_tokens; id++)
        need += t->tokens[id].text_n ? t->tokens[id].text_n : STAND_IN_BYTES;
    at = t->arena = malloc(need);
    if (!at)
        return err_set(e, -ENOMEM, "%s: no memory for %zu bytes of tokens", t->file, need);
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        if (make_piece(t, id, &at, e) < 0)
            return -EINVAL;
        if (t->tokens[id].text_n > t->longest)
            t->longest = t->tokens[id].text_n;
    }
    return 0;
}

static int add_merge(struct tokenizer *t, uint32_t rank, struct gguf_str m, struct err *e)
{
    size_t left_n, right_n;
    char product[2 * TOKEN_TEXT_MAX];
    const char *space = m.n > 1 ? memchr(m.s + 1, ' ', m.n - 1) : NULL;
    uint32_t left, right, id;

    if (!space || space + 1 == m.s + m.n)
        return err_set(e, -EINVAL,
                       "%s: " KEY("merges") ": entry %u is '%s', wanted two parts and a space",
                       t->file, rank, SHOW(m.s, m.n));
    left_n = (size_t)(space - m.s);
    right_n = m.n - left_n - 1;
    left = vocab_find(t, m.s, left_n);
    right = vocab_find(t, space + 1, right_n);
    if (left == NO_TOKEN || right == NO_TOKEN)
        return err_set(e, -EINVAL,
                       "%s: " KEY("merges") ": entry %u, '%s': its %s part is not a token", t->file,
                       rank, SHOW(m.s, m.n), left == NO_TOKEN ? "left" : "right");
    memcpy(product, m.s, left_n); /* both are texts of tokens, so they fit */
    memcpy(product + left_n, space + 1, right_n);
    id = vocab_find(t, product, left_n + right_n);
    if (id == NO_TOKEN)
        return err_set(e, -EINVAL,
                       "%s: " KEY("merges") ": entry %u, '%s': what it makes is not a token",
                       t->file, rank, SHOW(m.s, m.n));
    vocab_add_pair(t, (struct pair_slot){left, right, rank, id});
    return 0;
}

static int load_merges(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    struct gguf_array merges;

    if (get_array(g, KEY("merges"), 1, 1, &merges, e))
        return -EINVAL;
    if (merges.n > ENTRIES_MAX)
        return err_set(e, -EINVAL, "%s: " KEY("merges") " has %zu entries, at most %u work",
                       t->file, merges.n, ENTRIES_MAX);
    if (vocab_make_pairs(t, merges.n, e) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < merges.n; i++)
        if (add_merge(t, i, gguf_array_str(&merges, i), e) < 0)
            return -EINVAL;
    return 0;
}

/* The token of each single byte: how a word begins (BPE), and what is left when nothing else
 * fits (SPM). */
static void find_bytes(struct tokenizer *t)
{
    for (unsigned b = 0; b < 256; b++) {
        char name[8];
        size_t n;

        if (t->rule) {
            n = alphabet_of_byte((unsigned char)b, name);
            t->byte_ids[b] = vocab_find(t, name, n);
            continue;
        }
        n = (size_t)snprintf(name, sizeof name, "<0x%02X>", b);
        t->byte_ids[b] = vocab_find(t, name, n);
        name[0] = (char)b;
        if (t->byte_ids[b] == NO_TOKEN)
            t->byte_ids[b] = vocab_find(t, name, 1);
        if (t->byte_ids[b] == NO_TOKEN && t->unk >= 0)
            t->byte_ids[b] = (uint32_t)t->unk;
    }
}

/* A special id: the file's, else fallback (-1: none). */
static int load_id(const struct tokenizer *t, const struct gguf *g, const char *key, int fallback,
                   int64_t *out, struct err *e)
{
    char wanted[64];
    uint64_t id;
    int rc = gguf_u64(g, key, &id);

    if (rc == 1) {
        *out = fallback < (int64_t)t->n_tokens ? fallback : -1;
        return 0;
    }
    if (rc || id >= t->n_tokens) {
        snprintf(wanted, sizeof wanted, "a token id from 0 to %u", t->n_tokens - 1);
        return gguf_why(g, key, wanted, e);
    }
    *out = (int64_t)id;
    return 0;
}

static int load_flag(const struct gguf *g, const char *key, int fallback, int *out, struct err *e)
{
    int rc = gguf_bool(g, key, out);

    if (rc == 1)
        *out = fallback;
    return rc < 0 ? gguf_why(g, key, "true or false", e) : 0;
}

static int load_settings(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    int spm = !t->rule;
    int64_t pad;

    if (load_id(t, g, KEY("bos_token_id"), spm ? 1 : -1, &t->bos, e) < 0 ||
        load_id(t, g, KEY("eos_token_id"), spm ? 2 : -1, &t->eos, e) < 0 ||
        load_id(t, g, KEY("unknown_token_id"), spm ? 0 : -1, &t->unk, e) < 0 ||
        load_id(t, g, KEY("eot_token_id"), -1, &t->eot, e) < 0 ||
        load_id(t, g, KEY("eom_token_id"), -1, &t->eom, e) < 0 ||
        load_id(t, g, KEY("padding_token_id"), -1, &pad, e) < 0 || /* checked, not needed */
        load_flag(g, KEY("add_bos_token"), spm || t->rule->add_bos, &t->add_bos, e) < 0 ||
        load_flag(g, KEY("add_eos_token"), 0, &t->add_eos, e) < 0 ||
        load_flag(g, KEY("add_space_prefix"), spm, &t->add_space_prefix, e) < 0)
        return -EINVAL;
    t->add_bos = t->add_bos && t->bos >= 0;
    t->add_eos = t->add_eos && t->eos >= 0;
    return 0;
}

/* Tokens that end an answer, beside those that the file names. */
static void mark_eog(struct tokenizer *t)
{
    static const struct {
        const char *text;
        int user_too; /* fill-in-the-middle marks end an answer as user-defined tokens as well */
    } known[] = {
        {"<|eot_id|>", 0},
        {"<|im_end|>", 0},
        {"<|end|>", 0},
        {"<|return|>", 0},
        {"<|call|>", 0},
        {"<|endoftext|>", 0},
        {"<|eom_id|>", 0},
        {"<|end_of_text|>", 0},
        {"<end_of_turn>", 0},
        {"</s>", 0},
        {"[EOS]", 0},
        {"[EOT]", 0},
        {"<|fim_pad|>", 1},
        {"<|repo_name|>", 1},
        {"<|file_sep|>", 1},
        {"<\xEF\xBD\x9C"
         "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
         0},
    };
    /* GLM's answers end where another speaker begins; elsewhere these names may be text of the answer's */
    static const char *const speakers[] = {"<|user|>", "<|observation|>"};
    const int64_t named[] = {t->eos, t->eot, t->eom};
    int glm = t->rule && (!strcmp(t->rule->name, "glm4") || !strcmp(t->rule->name, "glm5"));
    uint32_t end;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t id = vocab_find(t, known[i].text, strlen(known[i].text));

        if (id != NO_TOKEN && (t->tokens[id].type == TOKEN_CONTROL ||
                               (known[i].user_too && t->tokens[id].type == TOKEN_USER)))
            t->tokens[id].eog = 1;
    }
    for (size_t i = 0; glm && i < sizeof speakers / sizeof *speakers; i++) {
        uint32_t id = vocab_find(t, speakers[i], strlen(speakers[i]));

        if (id != NO_TOKEN && t->tokens[id].type == TOKEN_CONTROL)
            t->tokens[id].eog = 1;
    }
    /* gpt-oss: <|end|> only ends a message, the answer goes on */
    end = vocab_find(t, "<|end|>", 7);
    if (end != NO_TOKEN && vocab_find(t, "<|return|>", 10) != NO_TOKEN &&
        vocab_find(t, "<|call|>", 8) != NO_TOKEN)
        t->tokens[end].eog = 0;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (named[i] >= 0)
            t->tokens[named[i]].eog = 1;
}

static int collect_names(struct tokenizer *t, int with_control, struct special *s, struct err *e)
{
    struct special_name *names;
    size_t n = 0;

    for (uint32_t id = 0; id < t->n_tokens; id++)
        n += t->tokens[id].type >= TOKEN_UNKNOWN && t->tokens[id].type <= TOKEN_USER;
    names = malloc((n + 1) * sizeof *names);
    if (!names)
        return err_set(e, -ENOMEM, "%s: no memory for %zu special tokens", t->file, n);
    n = 0;
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        const struct token *k = &t->tokens[id];

        if (k->type == TOKEN_USER ||
            (with_control && (k->type == TOKEN_CONTROL || k->type == TOKEN_UNKNOWN)))
            names[n++] = (struct special_name){k->text, k->text_n, id};
    }
    special_init(s, names, n);
    return 0;
}

/* Which kind, and which split rule. */
static int load_kind(struct tokenizer *t, const struct gguf *g, const char *pre, struct err *e)
{
    struct gguf_str model, name;
    int rc;

    if (gguf_string(g, KEY("model"), &model))
        return gguf_why(g, KEY("model"), "the vocabulary's kind, gpt2 or llama", e);
    if (model.n == 5 && !memcmp(model.s, "llama", 5)) {
        if (pre && strcmp(pre, "default"))
            return err_set(e, -EINVAL,
                           "%s: a vocabulary of kind llama is not split into words: no rule '%s'",
                           t->file, SHOW(pre, strlen(pre)));
        return 0;
    }
    if (model.n != 4 || memcmp(model.s, "gpt2", 4))
        return err_set(
            e, -EINVAL,
            "%s: " KEY("model") " is '%s': only gpt2 (byte-level BPE) and llama (SPM) are known",
            t->file, SHOW(model.s, model.n));
    if (pre) {
        name = (struct gguf_str){pre, strlen(pre)};
    } else if ((rc = gguf_string(g, KEY("pre"), &name)) < 0) {
        return gguf_why(g, KEY("pre"), "the name of a split rule", e);
    } else if (rc) {
        return err_set(
            e, -EINVAL,
            "%s: " KEY("pre") " is missing; name the split rule yourself (--pre NAME), one of: %s",
            t->file, split_names);
    }
    t->rule = split_find(name.s, name.n);
    if (!t->rule)
        return err_set(e, -EINVAL,
                       "%s: split rule (" KEY("pre") ") '%s' is not known; known are: %s", t->file,
                       SHOW(name.s, name.n), split_names);
    return 0;
}

int tokenizer_open(const struct gguf *g, const char *pre, struct tokenizer **out, struct err *e)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    int rc;

    if (!t)
        return err_set(e, -ENOMEM, "no memory for a tokenizer");
    front_show_path(t->file, gguf_shard_path(g, 0));
    if ((rc = load_kind(t, g, pre, e)) < 0 || (rc = load_tokens(t, g, e)) < 0 ||
        (rc = make_pieces(t, e)) < 0 || (rc = vocab_make_texts(t, e)) < 0 ||
        (t->rule && (rc = load_merges(t, g, e)) < 0) || (rc = load_settings(t, g, e)) < 0 ||
        (rc = collect_names(t, 0, &t->user, e)) < 0 || (rc = collect_names(t, 1, &t->all, e)) < 0)
        goto fail;
    find_bytes(t);
    mark_eog(t);
    *out = t;
    return 0;
fail:
    tokenizer_close(t);
    return rc;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    free(t->tokens);
    free(t->texts);
    free(t->pairs);
    free(t->arena);
    free(t->scratch);
    special_free(&t->user);
    special_free(&t->all);
    merge_free(&t->merger);
    free(t);
}
