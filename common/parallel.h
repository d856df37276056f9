#ifndef LLMQ_COMMON_PARALLEL_H
#define LLMQ_COMMON_PARALLEL_H

/* Data parallelism; the only OpenMP pragmas are in parallel.c.  Threads share out whole items, never the inside
 * of one, so no result depends on how many there are. */

/* The cores this process may use: affinity and cgroup quota counted. */
int llmq_parallel_cores(void);

/* How many threads parallel calls use from now on (0: llmq_parallel_cores()); set once, at start-up. */
void llmq_parallel_set_threads(int threads);
int  llmq_parallel_threads(void);

/* Calls main_fn(ctx) on this thread and keeps the other threads at hand until it returns.  Inside, llmq_parallel_for
 * costs about a microsecond and idle threads sleep; outside it works too, at the price of a fork and a join. */
void llmq_parallel_run(void (*main_fn)(void *ctx), void *ctx);

/* Calls fn(ctx, begin, end, thread) on disjoint ranges that cover [0, items), in pieces of at least `grain` items;
 * returns when all are done.  thread is in [0, llmq_parallel_threads()): an index for per-thread scratch.  Ranges are
 * handed out as threads become free.  Inside a piece a further call runs on its own thread alone. */
typedef void (*llmq_parallel_fn)(void *ctx, long begin, long end, int thread);
void llmq_parallel_for(long items, long grain, llmq_parallel_fn fn, void *ctx);

#endif
