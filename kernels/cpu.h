/* What this processor can run, and which form of every kernel is used. */
#pragma once

enum cpu_level {
    CPU_GENERIC, /* plain C, the definition */
    CPU_AVX2,    /* avx2, fma, f16c */
    CPU_AVX512,  /* avx512 f, bw, vl, dq, vnni */
    CPU_VBMI     /* and avx512 vbmi, gfni */
};

/* The level in use: what the processor and the system have, lowered by the environment's
 * CONCLAVE_CPU=generic|avx2|avx512|vbmi. Decided at the first call; thread-safe. */
enum cpu_level cpu_level(void);
/* The same without the environment. */
enum cpu_level cpu_has(void);
/* NULL, or one line for the user: CONCLAVE_CPU is not a level, or one that this processor lacks
 * (cpu_level() then is what the processor has). A program prints it and ends. */
const char *cpu_override_problem(void);
const char *cpu_level_name(enum cpu_level level);
/* Rule 2: round to nearest, no flush to zero, for the calling thread. Every thread, at its start.
 */
void cpu_float_state(void);
