/* One table, so that a flag means the same in every command. */
#include "coordinator/cli/sample_flags.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/random.h>

#include "coordinator/cli/common.h"

#define AT(x) offsetof(struct sample_flags, x)
#define TINY 1e-9 /* a repeat penalty must be above 0 */
const struct flag sample_flag_table[] = {
    {.name = "temp|temperature",
     .arg = "T",
     .group = "sampling",
     .kind = FLAG_F64,
     .at = AT(temp),
     .low = -1e6,
     .high = 1e6,
     .help = "temperature; 0 and less: always the most likely token"},
    {.name = "top-k",
     .arg = "N",
     .kind = FLAG_I64,
     .at = AT(top_k),
     .min = INT32_MIN,
     .max = INT32_MAX,
     .help = "choose among the N most likely; 0: off"},
    {.name = "top-p",
     .arg = "P",
     .kind = FLAG_F64,
     .at = AT(top_p),
     .low = 0,
     .high = 1e6,
     .help = "choose among the most likely that make up P; 1: off"},
    {.name = "min-p",
     .arg = "P",
     .kind = FLAG_F64,
     .at = AT(min_p),
     .low = 0,
     .high = 1,
     .help = "leave out what is less than P times as likely as the first; 0: off"},
    {.name = "repeat-penalty",
     .arg = "R",
     .kind = FLAG_F64,
     .at = AT(repeat),
     .low = TINY,
     .high = 1e6,
     .range = "above 0",
     .help = "make tokens that were there less likely; 1: off"},
    {.name = "repeat-last-n",
     .arg = "N",
     .kind = FLAG_I64,
     .at = AT(last_n),
     .min = -1,
     .max = INT32_MAX,
     .help = "tokens that penalties look back on; 0: off, -1: all"},
    {.name = "frequency-penalty",
     .arg = "F",
     .kind = FLAG_F64,
     .at = AT(frequency),
     .low = -1e6,
     .high = 1e6,
     .help = "the more often, the less likely; 0: off"},
    {.name = "presence-penalty",
     .arg = "F",
     .kind = FLAG_F64,
     .at = AT(presence),
     .low = -1e6,
     .high = 1e6,
     .help = "less likely if it was there at all; 0: off"},
    {.name = "seed",
     .letter = 's',
     .arg = "N",
     .kind = FLAG_BITS64,
     .at = AT(seed),
     .shown = "-1: one is chosen, and printed",
     .help = "the same seed, settings, model and text give the same answer on every machine"},
    {.kind = 0},
};

void sample_flags_init(struct sample_flags *f)
{
    struct sample_settings s;

    sample_defaults(&s);
    *f = (struct sample_flags){
        .temp = s.temp,
        .top_k = s.top_k,
        .top_p = s.top_p,
        .min_p = s.min_p,
        .repeat = s.repeat,
        .last_n = s.last_n,
        .frequency = s.frequency,
        .presence = s.presence,
        .seed = UINT64_MAX,
    };
}

int sample_flags_settings(const struct sample_flags *f, struct sample_settings *s, struct err *e)
{
    uint32_t chosen;

    sample_defaults(s);
    s->temp = f->temp;
    s->top_k = (int)f->top_k;
    s->top_p = f->top_p;
    s->min_p = f->min_p;
    s->repeat = f->repeat;
    s->last_n = (int)f->last_n;
    s->frequency = f->frequency;
    s->presence = f->presence;
    s->seed = f->seed;
    if (s->seed == UINT64_MAX) {
        if (getrandom(&chosen, sizeof chosen, 0) != sizeof chosen)
            return err_set(e, -EIO, "no random number for a seed; give one with --seed N");
        s->seed = chosen;
    }
    return sample_check(s, e);
}

void sample_flags_print(int kv, const struct sample_settings *s)
{
    fprintf(stderr, "conclave: kv %s, ", kv_name(kv));
    if (s->temp <= 0)
        fprintf(stderr, "temp %g: the most likely token", s->temp);
    else
        fprintf(stderr, "temp %g, top-k %d, top-p %g, min-p %g, seed %llu", s->temp, s->top_k,
                s->top_p, s->min_p, (unsigned long long)s->seed);
    if (s->repeat != 1 || s->frequency != 0 || s->presence != 0)
        fprintf(stderr,
                ", repeat-penalty %g, frequency-penalty %g, presence-penalty %g over %d tokens",
                s->repeat, s->frequency, s->presence, s->last_n);
    fputc('\n', stderr);
}
