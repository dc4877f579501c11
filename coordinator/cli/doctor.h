/* The parts of `conclave doctor`. Each thing that was looked at is one line: what was found and, where
 * something is missing, what to do. */
#pragma once

struct doctor {
    unsigned bad, notes; /* lines so far: a run would fail; a run works, but slower than it could */
};
enum finding { FOUND_OK, FOUND_NOTE, FOUND_BAD };

void doctor_say(struct doctor *d, enum finding how, const char *about, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Programs, processor, memory and its limits, ways of reading, huge pages, nodes. */
void doctor_machine(struct doctor *d);
/* Cards, driver, links: a second or two where there are cards. */
void doctor_cards(struct doctor *d);
/* What a run of this model would need, and how its files can be read. */
void doctor_model(struct doctor *d, const char *path);
