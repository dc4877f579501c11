/* The choice of forms: what the environment may lower, what it is refused for, the float state. */
#include "kernels/cpu.h"
#include "tests/test.h"
#include <stdlib.h>
#include <xmmintrin.h>

int main(void)
{
    const char *problem;

    setenv("CONCLAVE_CPU", "sse9", 1);
    problem = cpu_override_problem();
    CHECK(problem && strstr(problem, "unknown level"), "an unknown level has a problem");
    for (int i = CPU_GENERIC; i <= CPU_VBMI; i++) {
        setenv("CONCLAVE_CPU", cpu_level_name((enum cpu_level)i), 1);
        problem = cpu_override_problem();
        CHECK(!problem == (i <= (int)cpu_has()), "%s", cpu_level_name((enum cpu_level)i));
    }
    unsetenv("CONCLAVE_CPU");
    CHECK(!cpu_override_problem(), "no wish, no problem");
    setenv("CONCLAVE_CPU", "generic", 1);
    CHECK_EQ(cpu_level(), CPU_GENERIC);
    setenv("CONCLAVE_CPU", "avx2", 1);
    CHECK_EQ(cpu_level(), CPU_GENERIC); /* decided once */
    _mm_setcsr(0x9FC0); /* flush to zero, denormals are zero: as a library may leave it */
    cpu_float_state();
    CHECK_EQ(_mm_getcsr() & ~0x3Fu, 0x1F80); /* but for the flags of what has happened */
    return test_end();
}
