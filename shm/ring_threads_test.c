/* The rings' roles as threads over one mapping: what the thread sanitizer can see (it sees nothing
 * between processes). The same code as stress_test.c, fewer calls; no OpenMP. */
#include <pthread.h>

#include "shm/ring_rig.h"
#include "tests/test.h"

#define CALLS 20000
#define DEADLINE_NS 20000000u /* the sanitizer makes everything some ten times slower */

struct part {
    struct rig *r;
    uint32_t me;
};

static void *producer_thread(void *arg)
{
    producer_role(arg);
    return NULL;
}
static void *steward_thread(void *arg)
{
    steward_role(arg);
    return NULL;
}
static void *consumer_thread(void *arg)
{
    struct part *p = arg;

    consumer_role(p->r, p->me, 0, 0);
    return NULL;
}

int main(void)
{
    pthread_t producer, steward, consumer[CONSUMERS];
    struct part part[CONSUMERS];
    uint64_t finds, declined = 0, sleeps = 0;
    struct rig r;

    rig_open(&r, CALLS, DEADLINE_NS);
    for (uint32_t i = 0; i < CONSUMERS; i++) {
        part[i] = (struct part){&r, PROC_FIRST_WORKER + i};
        pthread_create(&consumer[i], NULL, consumer_thread, &part[i]);
    }
    pthread_create(&steward, NULL, steward_thread, &r);
    pthread_create(&producer, NULL, producer_thread, &r);
    pthread_join(producer, NULL);
    pthread_join(steward, NULL);
    for (uint32_t i = 0; i < CONSUMERS; i++)
        pthread_join(consumer[i], NULL);

    finds = r.world->producer.net_finds + r.world->steward_net_finds;
    for (uint32_t i = 0; i < CONSUMERS; i++) {
        declined += r.box[part[i].me]->count.declined;
        sleeps += r.box[part[i].me]->count.sleeps;
        finds += r.box[part[i].me]->count.net_finds;
    }
    printf("%llu calls, %llu rows, %llu amendments, %llu declined, %llu sleeps, %.1f s\n",
           (unsigned long long)r.world->producer.calls, (unsigned long long)r.world->producer.rows,
           (unsigned long long)r.world->steward.amendments, (unsigned long long)declined,
           (unsigned long long)sleeps, (double)r.world->producer.ns / 1e9);
    CHECK_EQ(r.world->producer.calls, CALLS);
    CHECK_EQ(r.world->producer.wrong, 0);
    CHECK_EQ(finds, 0);
    CHECK(r.world->steward.amendments > 0, "none");
    CHECK(declined > 0, "none");
    return test_end();
}
