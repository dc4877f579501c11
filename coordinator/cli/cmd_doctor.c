/* conclave doctor: does a run work on this machine, and what would make it faster? Looks, measures the cards
 * for a moment, changes nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "coordinator/cli/args.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/common.h"
#include "coordinator/cli/doctor.h"

struct options {
    const char *model;
};

static const struct flag table[] = {
    {.name = "model",
     .letter = 'm',
     .arg = "FILE",
     .group = "what",
     .kind = FLAG_STRING,
     .at = offsetof(struct options, model),
     .help = "a model that is to be run here: whether it fits, and how its files can be read"},
    {.kind = 0},
};

void doctor_say(struct doctor *d, enum finding how, const char *about, const char *fmt, ...)
{
    static const char *const word[] = {"ok", "note", "BAD"};
    char text[1200];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *c = text; *c; c++) /* names of cards and files may hold anything; the line stays one */
        if ((unsigned char)*c < 32 || *c == 127)
            *c = '?';
    printf("%-5s %-11s %s\n", word[how], about, text);
    d->bad += how == FOUND_BAD;
    d->notes += how == FOUND_NOTE;
}

int cmd_doctor(int argc, char **argv)
{
    struct options o = {0};
    struct args a = {
        .verb = "doctor",
        .about = "does a run work here, and what would make it faster",
        .usage = "[-m MODEL]",
        .notes = "A line for each thing that was looked at. ok: as it should be. note: a run works, but slower than it "
                 "could, and what to do. BAD: a run would fail, and what to do. Status 0 if nothing is BAD.\n"
                 "Cards are measured for a moment; conclave plan -m MODEL measures processors and disk with a model's "
                 "own shapes.",
        .part = {{table, &o}},
    };
    struct doctor d = {0};
    int status;

    if (args_parse(&a, argc, argv, &status))
        return status;
    doctor_machine(&d);
    doctor_cards(&d);
    if (o.model)
        doctor_model(&d, o.model);
    printf("%s", d.bad ? "\nruns would fail here: see the lines that begin with BAD\n" : "\nruns work here");
    if (!d.bad)
        printf(d.notes ? "; %u note%s\n" : "\n", d.notes, d.notes == 1 ? "" : "s");
    status = args_flush_stdout();
    return status ? status : d.bad != 0;
}
