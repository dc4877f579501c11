/* The program `conclave`: picks the command, prepares signals and standard streams, no more. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/cli/args.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/nearest.h"
#include "coordinator/cli/stop.h"
#include "kernels/cpu.h"

static const struct verb {
    const char *name, *about;
    int (*run)(int argc, char **argv);
    int hidden; /* 1: for developers, not in the overview */
} verbs[] = {
    {"run", "go on from a text", cmd_run, 0},
    {"chat", "a conversation in the terminal", cmd_chat, 0},
    {"serve", "an HTTP server: OpenAI's and Anthropic's APIs, several clients at a time", cmd_serve, 0},
    {"eval", "the logits of given tokens", cmd_eval, 0},
    {"perplexity", "how surprised the model is by a text", cmd_perplexity, 0},
    {"tokenize", "the token ids of a text", cmd_tokenize, 0},
    {"inspect", "what a model file holds", cmd_inspect, 0},
    {"pack", "write a model as a folder whose experts are one read each", cmd_pack, 0},
    {"plan", "what a run would put where, and how fast it would be", cmd_plan, 0},
    {"doctor", "does a run work here, and what would make it faster", cmd_doctor, 0},
    {"simulate", "what a cache of experts would have hit on a recorded trace", cmd_simulate, 0},
    {"bench", "how fast this machine multiplies each weight type", cmd_bench, 0},
    {"synth", "a model file of true shapes with random weights", cmd_synth, 1},
};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

static void overview(FILE *to)
{
    fprintf(
        to,
        "conclave: Mixture-of-Experts models, their experts computed in processes of their own\n\n"
        "usage: conclave COMMAND [flags]\n\n");
    for (size_t i = 0; i < N_VERBS; i++)
        if (!verbs[i].hidden)
            fprintf(to, "  %-12s %s\n", verbs[i].name, verbs[i].about);
    fprintf(
        to,
        "\nconclave COMMAND --help says more. conclave --version: release, build and compiler.\n"
        "The text goes to standard output, everything else to standard error. Exit status: 0; 1 "
        "after\n"
        "an error, told in one line; 2 for a wrong command line; 130 after Ctrl-C.\n"
        "\n"
        "  conclave run -m model.gguf -p \"Once upon a time\"\n");
}

static const struct verb *find(const char *name)
{
    for (size_t i = 0; i < N_VERBS; i++)
        if (!strcmp(verbs[i].name, name))
            return &verbs[i];
    return NULL;
}

static int unknown(const char *name)
{
    struct nearest s;

    nearest_begin(&s, name, strlen(name));
    for (size_t i = 0; i < N_VERBS; i++)
        if (!verbs[i].hidden)
            nearest_try(&s, verbs[i].name);
    if (*name == '-')
        fprintf(stderr,
                "conclave: the command comes first: conclave run %s ...; see conclave --help\n",
                name);
    else if (s.near)
        fprintf(stderr, "conclave: no command %s; do you mean %s?\n", name, s.near);
    else
        fprintf(stderr, "conclave: no command %s; see conclave --help\n", name);
    return 2;
}

static int help(int argc, char **argv)
{
    char *words[2] = {argc > 2 ? argv[2] : NULL, "--help"};
    const struct verb *v = argc > 2 ? find(argv[2]) : NULL;

    if (v)
        return v->run(2, words);
    if (argc > 2)
        return unknown(argv[2]);
    overview(stdout);
    return args_flush_stdout();
}

/* A stream that was closed by who started us must not become a file's or a segment's descriptor: an
 * answer would be written into it. Writing to standard output then fails, as it should. */
static void hold_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY) != fd)
            return; /* no /dev/null, no hope */
}

int main(int argc, char **argv)
{
    const struct verb *v;
    const char *problem;

    hold_streams();
    stop_install();
    if (argc < 2) {
        overview(stderr);
        return 2;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
        return help(argc, argv);
    if (!strcmp(argv[1], "--version"))
        return args_version();
    v = find(argv[1]);
    if (!v)
        return unknown(argv[1]);
    problem = cpu_override_problem();
    if (problem) {
        fprintf(stderr, "conclave: %s\n", problem);
        return 2;
    }
    return v->run(argc - 1, argv + 1);
}
