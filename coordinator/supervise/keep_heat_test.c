/* A run's heat on its way to the file and back, without a steward. */
#define _GNU_SOURCE
#include "coordinator/supervise/keep_heat.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/model/gguf.h"
#include "tests/test.h"

static void ring(void *arg)
{
    (void)arg;
}

static struct policy *policy_of(void)
{
    const struct policy_config c = {.kind = POLICY_HEAT, .n_layers = 2, .n_experts = 4, .n_sizes = 1, .places = {3}};
    struct policy *p;

    if (policy_open(&c, &p, NULL))
        abort();
    return p;
}

int main(void)
{
    char dir[] = "/tmp/conclave-heat-XXXXXX", command[80];
    struct gguf *g;
    struct heat_keeper *k;
    struct policy *p = policy_of();
    uint32_t pairs[8];

    if (!mkdtemp(dir) || gguf_open("tests/golden/tiny/olmoe/model.gguf", &g, NULL))
        abort();
    setenv("XDG_CACHE_HOME", dir, 1);

    k = heat_keeper_open(g, 2, 4);
    CHECK(k && !heat_keeper_tell(k, p), "heat of a model that never ran");
    heat_keeper_start(k, ring, NULL);
    CHECK(!heat_keeper_wants(k), "wanted at once");
    heat_keeper_give(k, NULL); /* nothing was used */
    heat_keeper_stop(k);
    heat_keeper_close(k);

    k = heat_keeper_open(g, 2, 4);
    CHECK(k && !heat_keeper_tell(k, p), "a run without a use left heat");
    policy_step(p, 1);
    policy_use(p, 1, 2, 1);
    policy_step(p, 1);
    policy_use(p, 1, 2, 1);
    policy_use(p, 0, 3, 1);
    heat_keeper_start(k, ring, NULL);
    heat_keeper_give(k, p);
    heat_keeper_close(k); /* ends the thread too */
    policy_close(p);

    p = policy_of();
    k = heat_keeper_open(g, 2, 4);
    CHECK(k && heat_keeper_tell(k, p), "no heat after a run");
    CHECK_EQ(policy_hottest(p, pairs), 2);
    CHECK_EQ(pairs[0], 1 * 4 + 2);
    CHECK_EQ(pairs[1], 3);
    heat_keeper_close(k);
    heat_keeper_close(NULL);
    policy_close(p);

    p = policy_of();
    k = heat_keeper_open(g, 1, 4); /* another shape: a line, no heat */
    CHECK(k && !heat_keeper_tell(k, p), "heat of another shape");
    heat_keeper_close(k);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    CHECK(!heat_keeper_open(g, 2, 4), "heat without a place for it");
    policy_close(p);
    gguf_close(g);
    snprintf(command, sizeof command, "rm -r %s", dir);
    CHECK_EQ(system(command), 0);
    return test_end();
}
