/* common/parallel.c: every item once, whatever the sizes and the number of threads. */
#include "common/parallel.h"

#include "tests/unit/unit.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { MOST = 3000 };
static atomic_int hits[MOST];
static atomic_int wrong; /* asserting each item would take minutes */

static void count(void *ctx, long begin, long end, int thread)
{
    (void)ctx;
    if (thread < 0 || thread >= llmq_parallel_threads())
        atomic_fetch_add(&wrong, 1);
    for (long i = begin; i < end; i++)
        atomic_fetch_add(&hits[i], 1);
}

static void nested(void *ctx, long begin, long end, int thread)
{
    (void)thread;
    for (long i = begin; i < end; i++)
        llmq_parallel_for(10, 1, count, ctx);
}

static void many_loops(void *ctx)
{
    for (int round = 0; round < 1000; round++) {
        long n = 1 + round % MOST;

        memset(hits, 0, sizeof hits);
        llmq_parallel_for(n, 1 + round % 7, count, ctx);
        for (long i = 0; i < MOST; i++)
            wrong += atomic_load(&hits[i]) != (i < n);
        if (round % 500 == 0) /* long enough for the other threads to go to sleep */
            nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    memset(hits, 0, sizeof hits);
    llmq_parallel_for(50, 1, nested, ctx);
    for (long i = 0; i < 10; i++)
        ck_assert_int_eq(atomic_load(&hits[i]), 50);
}

START_TEST(every_item_once)
{
    static const int threads[] = {1, 2, 3, 8};

    for (int i = 0; i < 4; i++) {
        llmq_parallel_set_threads(threads[i]);
        llmq_parallel_run(many_loops, NULL);
        llmq_parallel_run(many_loops, NULL); /* the pool can be opened again */
    }
    many_loops(NULL); /* and loops work outside it */
    llmq_parallel_set_threads(0);
    ck_assert_int_eq(wrong, 0);
}
END_TEST

UNIT_CASE(parallel, every_item_once)
