/* Reads CPUID once and keeps the answer: the choice of forms must not change while a program runs
 * (the bits would not, but a measurement would). */
#include "kernels/cpu.h"
#include <cpuid.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xmmintrin.h>

static uint64_t xcr0(void)
{
    uint32_t lo, hi;

    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

enum cpu_level cpu_has(void)
{
    unsigned a, b, c, d;
    const unsigned osxsave = 1u << 27, fma = 1u << 12, f16c = 1u << 29; /* leaf 1, ecx */
    const unsigned avx2 = 1u << 5;                                      /* leaf 7, ebx */
    const unsigned f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31, vnni = 1u << 11;
    const unsigned vbmi = 1u << 1, gfni = 1u << 8; /* leaf 7, ecx */

    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & (osxsave | fma | f16c)) != (osxsave | fma | f16c))
        return CPU_GENERIC;
    if ((xcr0() & 0x06) != 0x06) /* the system saves the ymm registers */
        return CPU_GENERIC;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & avx2))
        return CPU_GENERIC;
    if ((xcr0() & 0xE6) != 0xE6) /* and the zmm and mask registers */
        return CPU_AVX2;
    if ((b & (f | dq | bw | vl)) != (f | dq | bw | vl) || !(c & vnni))
        return CPU_AVX2;
    return (c & (vbmi | gfni)) == (vbmi | gfni) ? CPU_VBMI : CPU_AVX512;
}

const char *cpu_level_name(enum cpu_level level)
{
    static const char *const name[] = {"generic", "avx2", "avx512", "vbmi"};

    return name[level];
}

/* the level that the environment asks for, or -1: none that we know */
static int asked(const char *value)
{
    for (int i = CPU_GENERIC; i <= CPU_VBMI; i++)
        if (!strcmp(value, cpu_level_name((enum cpu_level)i)))
            return i;
    return -1;
}

enum cpu_level cpu_level(void)
{
    static atomic_int kept; /* level + 1; two threads that race store the same number */
    int level = atomic_load_explicit(&kept, memory_order_relaxed);

    if (!level) {
        const char *value = getenv("CONCLAVE_CPU");
        int want = value && *value ? asked(value) : -1;

        level = (int)cpu_has() + 1;
        if (want >= 0 && want + 1 < level)
            level = want + 1;
        atomic_store_explicit(&kept, level, memory_order_relaxed);
    }
    return (enum cpu_level)(level - 1);
}

const char *cpu_override_problem(void)
{
    const char *value = getenv("CONCLAVE_CPU");
    int want = value && *value ? asked(value) : CPU_GENERIC;

    if (want < 0)
        return "CONCLAVE_CPU: unknown level; use generic, avx2, avx512 or vbmi, or unset it";
    if (want > (int)cpu_has())
        return want == CPU_VBMI
                   ? "CONCLAVE_CPU=vbmi: this processor or system lacks AVX-512 VBMI or GFNI; use "
                     "avx512, avx2 or generic, or unset it"
               : want == CPU_AVX512
                   ? "CONCLAVE_CPU=avx512: this processor or system lacks AVX-512 (F, BW, VL, DQ, "
                     "VNNI); use avx2 or generic, or unset it"
                   : "CONCLAVE_CPU=avx2: this processor or system lacks AVX2, FMA or F16C; use "
                     "generic, or unset it";
    return NULL;
}

void cpu_float_state(void)
{
    _mm_setcsr(0x1F80);
}
