/* Which instruction-set level this machine has.
 *
 * CPUID says what the processor can do, XCR0 what the operating system saves at a context switch;
 * a level counts only with both.  Nobody else looks at CPU features. */
#include "runner/cpu/isa.h"

#include <cpuid.h>
#include <stdint.h>
#include <string.h>

enum { XCR0_YMM = 0x06, XCR0_ZMM = 0xe6 }; /* SSE and AVX state; those and opmask, ZMM */

static uint64_t xcr0(void)
{
    uint32_t lo, hi;

    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

enum cpu_isa cpu_isa_detect(void)
{
    const uint32_t leaf1 = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    const uint32_t leaf7 = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    unsigned       a, b, c, d;
    uint64_t       saved;

    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & leaf1) != leaf1)
        return CPU_SCALAR;
    saved = xcr0();
    if ((saved & XCR0_YMM) != XCR0_YMM || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2))
        return CPU_SCALAR;
    if ((saved & XCR0_ZMM) != XCR0_ZMM || (b & leaf7) != leaf7 || !(c & bit_AVX512VNNI))
        return CPU_AVX2;
    return CPU_AVX512;
}

const char *cpu_isa_name(enum cpu_isa isa)
{
    static const char *const name[CPU_ISA_COUNT] = {"scalar", "avx2", "avx512"};

    return (unsigned)isa < CPU_ISA_COUNT ? name[isa] : "?";
}

int cpu_isa_choose(enum cpu_isa *out, const char *cap, struct llmq_err *err)
{
    enum cpu_isa best = cpu_isa_detect();

    *out = best;
    if (!cap)
        return 0;
    for (int i = 0; i < CPU_ISA_COUNT; i++) {
        if (strcmp(cap, cpu_isa_name((enum cpu_isa)i)) != 0)
            continue;
        *out = (enum cpu_isa)i;
        if (*out <= best)
            return 0;
        return llmq_fail(err, LLMQ_EDEVICE, "instruction set %s: this machine has %s at most", cap,
                         cpu_isa_name(best));
    }
    return llmq_fail(err, LLMQ_EUSAGE, "instruction set \"%s\": expected scalar, avx2 or avx512", cap);
}
