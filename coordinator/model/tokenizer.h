/* Text to token ids and back, from the metadata of a GGUF file alone: byte-level BPE
 * (tokenizer.ggml.model "gpt2") and SentencePiece-style merging ("llama").
 *
 * Text is bytes and a length everywhere; NUL is an ordinary byte. Input that is not UTF-8 is no
 * error: BPE reads each bad byte as U+FFFD, SPM keeps the bytes as byte tokens.
 *
 * A tokenizer is used by one thread at a time: tokenize() works in its scratch space. Everything
 * that takes it as const may run in any number of threads beside each other, and beside it. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "coordinator/model/gguf.h"
#include "coordinator/model/text_span.h"
#include "shm/err.h"

enum {
    TOKEN_TEXT_MAX = 4096,       /* bytes of a token's text; the longest seen in a model is 1,024 */
    TOKENIZE_TEXT_MAX = 1 << 30, /* bytes of one call's text */
};

struct tokenizer;

/* pre: the split rule in place of tokenizer.ggml.pre, or NULL. Borrows g until tokenizer_close.
 * Refuses a vocabulary that contradicts itself; the message names the file, the key and the entry.
 */
int tokenizer_open(const struct gguf *g, const char *pre, struct tokenizer **out, struct err *e);
/* NULL is allowed. */
void tokenizer_close(struct tokenizer *t);

uint32_t tokenizer_n_vocab(const struct tokenizer *t);
int64_t tokenizer_bos(const struct tokenizer *t); /* -1: none */
int64_t tokenizer_eos(const struct tokenizer *t);
/* What add_special does: the file's word, or the default of its kind. Never 1 without the id. */
int tokenizer_add_bos(const struct tokenizer *t);
int tokenizer_add_eos(const struct tokenizer *t);
/* The id that owns exactly this text as the file writes it (special tokens: as it is; words of a
 * BPE vocabulary: in its byte alphabet). -1: none. */
int64_t tokenizer_find(const struct tokenizer *t, const char *text, size_t n);

/* Zero it, then use it again and again; free(ids) at the end. */
struct token_list {
    uint32_t *ids;
    size_t n, cap;
};

/* Appends the ids of text. add_special: BOS in front and EOS behind, where the vocabulary says so.
 * parse_special: the names of control tokens in the text are those tokens; user-defined tokens
 * are recognised in any case. After an error *out holds what was appended before it. */
int tokenize(struct tokenizer *t, const char *text, size_t n, int add_special, int parse_special,
             struct token_list *out, struct err *e);

/* A text of which the n_user spans are a user's: as with parse_special, but a name of a control token that
 * touches one of those bytes stays text. The text is split into words as a whole: marks alone change
 * nothing. */
int tokenize_marked(struct tokenizer *t, const char *text, size_t n, const struct text_span *user, size_t n_user,
                    int add_special, struct token_list *out, struct err *e);

/* The bytes that a token stands for, borrowed from t; at most TOKEN_TEXT_MAX. Control and unknown
 * tokens are empty unless control_text; an id outside the vocabulary is empty. A piece may hold
 * part of a character. */
void token_piece(const struct tokenizer *t, uint32_t id, int control_text, const char **bytes,
                 size_t *n);
/* 1: the answer ends here. The model's eos, eot, eom, and control tokens known by their text. */
int token_is_eog(const struct tokenizer *t, uint32_t id);

/* Streaming: gives out text as soon as it is certain, never half of a UTF-8 character. */
struct detok {
    const struct tokenizer *t;
    int replace_invalid; /* each maximal ill-formed part becomes one U+FFFD: what JSON needs */
    int control_text;    /* 0 after detok_init; set it to see control tokens */
    int drop_space;      /* SPM from the start: the first visible token loses one leading space */
    size_t n_held;
    unsigned char held[4];                       /* the beginning of a character */
    unsigned char buf[3 * (TOKEN_TEXT_MAX + 4)]; /* what was given out last */
};
/* from_start: the tokens are a whole sequence (echo of a prompt), not the continuation of one. */
void detok_init(struct detok *d, const struct tokenizer *t, int replace_invalid, int from_start);
/* Appends a token. *out, *n: the bytes that may be given out now (possibly none), in d until the
 * next call. */
void detok_push(struct detok *d, uint32_t id, const char **out, size_t *n);
/* The end: gives out what was held back (one U+FFFD with replace_invalid). d may go on. */
void detok_flush(struct detok *d, const char **out, size_t *n);
