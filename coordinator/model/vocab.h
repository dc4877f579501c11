/* The inside of a tokenizer, for the files that make it: vocab.c (loading and look-up),
 * tokenizer.c, bpe.c, spm.c, detok.c. Everyone else uses tokenizer.h. */
#pragma once
#include "coordinator/model/gguf_front.h"
#include "coordinator/model/merge.h"
#include "coordinator/model/special.h"
#include "coordinator/model/split.h"
#include "coordinator/model/tokenizer.h"

enum token_type { /* values of tokenizer.ggml.token_type */
                  TOKEN_UNDEFINED = 0,
                  TOKEN_NORMAL = 1,
                  TOKEN_UNKNOWN = 2,
                  TOKEN_CONTROL = 3,
                  TOKEN_USER = 4,
                  TOKEN_UNUSED = 5,
                  TOKEN_BYTE = 6,
};

struct token {
    const char *text;  /* as the file writes it (in t->arena where the file has an empty one) */
    const char *piece; /* what it stands for: in the file or in t->arena */
    uint32_t text_n, piece_n;
    float score; /* SPM */
    uint8_t type;
    uint8_t eog;
};

struct text_slot { /* hash of texts: open addressing */
    uint32_t tag, id;
};
struct pair_slot { /* hash of merges: (left, right) -> (rank, product); left NO_TOKEN: empty */
    uint32_t left, right, rank, id;
};

struct tokenizer {
    char file[FRONT_SHOWN * 3];    /* its path, for messages */
    const struct split_rule *rule; /* NULL: SPM */
    struct token *tokens;
    uint32_t n_tokens;
    uint32_t longest; /* bytes of the longest text */
    struct text_slot *texts;
    uint32_t text_mask;
    struct pair_slot *pairs; /* BPE */
    unsigned pair_shift;
    char *arena;
    uint32_t byte_ids[256]; /* token of a single byte, NO_TOKEN: none */
    int64_t bos, eos, eot, eom, unk;
    int add_bos, add_eos, add_space_prefix;
    struct special user, all; /* names to look for without and with parse_special */

    /* scratch of tokenize() */
    struct merger merger;
    char *scratch; /* a fragment, rewritten */
    size_t scratch_cap;
};

/* The id that owns a text; NO_TOKEN: none. */
uint32_t vocab_find(const struct tokenizer *t, const char *text, size_t n);
/* Fills the table of texts from tokens[]; of equal texts the later id owns it. */
int vocab_make_texts(struct tokenizer *t, struct err *e);
/* BPE: may (left, right) merge? */
const struct pair_slot *vocab_pair(const struct tokenizer *t, uint32_t left, uint32_t right);
/* An empty table for n merges, and one more in it; the first of two equal pairs stays. */
int vocab_make_pairs(struct tokenizer *t, size_t n, struct err *e);
void vocab_add_pair(struct tokenizer *t, struct pair_slot p);
/* Makes t->scratch hold n bytes. */
int vocab_scratch(struct tokenizer *t, size_t n, struct err *e);

int token_append(struct token_list *out, uint32_t id, struct err *e);
/* Appends the ids of a fragment: text without special tokens, n > 0. */
int bpe_fragment(struct tokenizer *t, const char *text, size_t n, struct token_list *out,
                 struct err *e);
int spm_fragment(struct tokenizer *t, const char *text, size_t n, struct token_list *out,
                 struct err *e);
