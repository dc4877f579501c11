/* Command lines: one table of flags a command, one parser, help made from the table.
 *
 *   static const struct flag flags[] = {
 *       {"model", 'm', "FILE", "GGUF file", .kind = FLAG_STRING, .at = offsetof(struct options,
 * model), .required = 1}, {0},
 *   };
 *
 * Accepted: --name value, --name=value, -n value, -n=value, -n5, -n-5 (digits only), -vv; an
 * underscore in a long name counts as a dash. A value is the next word whatever it looks like. A
 * flag given again: the last one wins. "--" ends the flags. --help, -h and --version are in every
 * command. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum flag_kind {
    FLAG_ON = 1, /* int: 1; takes no value */
    FLAG_COUNT,  /* int: one more each time; takes no value */
    FLAG_STRING, /* const char *, borrowed from argv */
    FLAG_U32,    /* uint32_t, min <= value <= max */
    FLAG_I64,    /* int64_t, min <= value <= max */
    FLAG_BITS64, /* uint64_t, negative numbers modulo 2^64 */
    FLAG_F64,    /* double, low <= value <= high */
    FLAG_SIZE,   /* uint64_t bytes with suffixes, min <= value */
    FLAG_CHOICE, /* int: which of choices */
    FLAG_TAKE,   /* whatever .take makes of it */
};

struct flag {
    const char *name; /* long name without dashes, then spellings of the same: "predict|n-predict".
                         NULL with kind set: not a flag but the command's operand */
    char letter;      /* 0: none */
    const char *arg;  /* what the value is called in help, or NULL */
    const char *help;
    const char *group; /* heading in help; NULL: that of the flag above */
    enum flag_kind kind;
    size_t at; /* offset of the value in the part's struct */
    int required;
    int64_t min, max;
    double low, high;
    const char *range;   /* for messages, where min and max would read badly */
    const char *choices; /* "f32|f16" */
    /* FLAG_TAKE: 0, or -1 and what is wanted in `wanted` */
    int (*take)(const char *value, void *to, char *wanted, size_t room);
    const char *shown; /* the default in help, where the value itself would read badly; "": none */
};

/* Flags that several commands share are a part of their own, with a struct of their own. */
struct args_part {
    const struct flag *flags; /* ends with kind 0 */
    void *into;               /* holds the defaults when args_parse is called */
};
enum { ARGS_PARTS = 8 };

struct args {
    const char *verb;
    const char *about;                 /* one line */
    const char *usage;                 /* what follows "conclave VERB" */
    const char *notes;                 /* paragraphs under the flags, or NULL */
    int foreign;                       /* 1: llama.cpp's spellings too (cli/foreign.h); 2: its server's first */
    struct args_part part[ARGS_PARTS]; /* unused ones: flags NULL */
};

/* argv[0] is the verb. 0: go on. 1: it is over, *status is the exit status (help or version was
 * printed: 0, or 1 if that could not be written; a usage error: 2, its line is on stderr). */
int args_parse(const struct args *a, int argc, char **argv, int *status);

/* A usage error that the table cannot know: writes the line, returns 2. */
int args_usage(const char *verb, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What --version prints: release, build id, compiler. 0, or 1: it could not be written. */
int args_version(void);

/* --- for args.c and args_help.c ----------------------------------------------------------------
 */
void args_help(const struct args *a);
int args_flush_stdout(void); /* 0, or 1 with a line on stderr */
