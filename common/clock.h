#ifndef LLMQ_COMMON_CLOCK_H
#define LLMQ_COMMON_CLOCK_H

#include <time.h>

/* Seconds of a clock that never goes back; only differences mean anything. */
static inline double llmq_clock_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* CPU seconds that all threads of this process have used. */
static inline double llmq_clock_cpu_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
