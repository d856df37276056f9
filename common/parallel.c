/* Data parallelism: see parallel.h. */
#include "common/parallel.h"

#include <omp.h>
#include <sched.h>
#include <stdio.h>

static int n_threads;

/* cgroup v2 quota in whole cores (rounded up), or 0 where there is none. */
static int cgroup_cores(void)
{
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    long  quota = 0, period = 0;
    int   got;

    if (!f)
        return 0;
    got = fscanf(f, "%ld %ld", &quota, &period);
    fclose(f);
    if (got != 2 || quota <= 0 || period <= 0)
        return 0;
    return (int)((quota + period - 1) / period);
}

int llmq_parallel_cores(void)
{
    cpu_set_t set;
    int       n = 1, quota = cgroup_cores();

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n = CPU_COUNT(&set);
    if (quota && quota < n)
        n = quota;
    return n < 1 ? 1 : n;
}

void llmq_parallel_set_threads(int threads)
{
    n_threads = threads > 0 ? threads : llmq_parallel_cores();
    omp_set_dynamic(0);
    omp_set_num_threads(n_threads);
}

int llmq_parallel_threads(void)
{
    if (!n_threads)
        llmq_parallel_set_threads(0);
    return n_threads;
}

void llmq_parallel_for(long items, long grain, llmq_parallel_fn fn, void *ctx)
{
    int  threads = llmq_parallel_threads();
    long pieces, size;

    if (grain < 1)
        grain = 1;
    if (items <= 0)
        return;
    if (threads == 1 || items <= grain) {
        fn(ctx, 0, items, 0);
        return;
    }
    /* Four pieces a thread even out what one slow core would hold up. */
    size = (items + 4L * threads - 1) / (4L * threads);
    if (size < grain)
        size = grain;
    pieces = (items + size - 1) / size;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (long p = 0; p < pieces; p++) {
        long begin = p * size, end = begin + size < items ? begin + size : items;
        fn(ctx, begin, end, omp_get_thread_num());
    }
}
