/* Deaths on demand. The armed point is this program's only state outside of its context: the places at which it is
 * looked at have none of their own to keep it in. */
#include "shm/fault.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const name[N_FAULT_POINTS] = {
    "",       "ready", "step", "publish", "head", "sum",    "retire",   "logits",
    "answer", "stage", "rows", "item",    "ring", "upload", "down",   "uploaded", "fault"};

enum fault_point fault_armed;
static unsigned long fatal_passage;
static _Atomic unsigned long passages;
static _Atomic int held;

const char *fault_arm(uint32_t card, uint32_t life)
{
    const char *text = getenv("CONCLAVE_DIE");
    unsigned for_card, lives = 1;
    char point[16];
    int n;

    if (!text)
        return NULL;
    n = sscanf(text, "%15[a-z]:%lu:%u:%u", point, &fatal_passage, &for_card, &lives);
    if (n < 3 || !fatal_passage)
        return "CONCLAVE_DIE: wanted POINT:K:CARD or POINT:K:CARD:LIVES";
    if (for_card != card || life >= lives)
        return NULL;
    for (enum fault_point p = 1; p < N_FAULT_POINTS; p++)
        if (!strcmp(point, name[p])) {
            if (p != FAULT_READY || life)
                fault_armed = p;
            return NULL;
        }
    return "CONCLAVE_DIE: no such point";
}

int fault_passed(void)
{
    return atomic_fetch_add(&passages, 1) + 1 == fatal_passage;
}

void fault_die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

void fault_hold(void)
{
    atomic_store(&held, 1);
    nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
    fault_die();
}

void fault_held(void)
{
    if (atomic_load(&held))
        fault_die();
}
