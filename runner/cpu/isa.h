#ifndef LLMQ_RUNNER_CPU_ISA_H
#define LLMQ_RUNNER_CPU_ISA_H

#include "common/err.h"

/* Instruction-set levels, each containing the ones before it. */
enum cpu_isa { CPU_SCALAR, CPU_AVX2, CPU_AVX512, CPU_ISA_COUNT };

/* The highest level that this machine and its operating system have. */
enum cpu_isa cpu_isa_detect(void);
const char  *cpu_isa_name(enum cpu_isa isa);

/* The level to use: the best there is, or `cap` if that is not NULL.  A name that does not exist is
 * LLMQ_EUSAGE; one that this machine does not have is LLMQ_EDEVICE. */
int cpu_isa_choose(enum cpu_isa *out, const char *cap, struct llmq_err *err) LLMQ_MUST_CHECK;

#endif
