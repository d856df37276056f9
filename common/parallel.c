/* Data parallelism: see parallel.h.
 *
 * One OpenMP region is open for as long as a command runs (llmq_parallel_run): its first thread runs the command, the
 * others wait here for pieces of loops.  A model's step has some two hundred short loops, and libgomp's own fork and
 * join is wrong for them both ways: its threads spin for milliseconds between loops (measured: 84 % of the
 * quantizer's CPU time on a busy machine), and told not to spin they sleep and wake at each loop.  Ours spin for about
 * 30 microseconds, then sleep on a futex.
 *
 * A loop is handed out through one 64-bit word, the ticket: loop number in the upper half, next piece in the lower.
 * A thread claims a piece by compare-and-swap, so a claim succeeds only for the loop whose description it has read:
 * the first thread closes the ticket before it changes the description.  The first thread takes pieces like any
 * other and waits only for pieces that others have claimed; a thread that wakes late finds nothing and costs nothing. */
#include "common/parallel.h"

#include <linux/futex.h>
#include <omp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPINS = 1500 }; /* of a pause instruction: 20 to 70 microseconds, by CPU */
#define CLOSED 0xffffffffu

static int n_threads;

static struct {
    _Atomic(llmq_parallel_fn) fn;
    _Atomic(void *)           ctx;
    atomic_long               items, size;
    _Atomic uint32_t          pieces;
    _Alignas(64) _Atomic uint64_t ticket;
    _Alignas(64) _Atomic uint32_t done;  /* pieces finished; the first thread sleeps on it */
    _Alignas(64) _Atomic uint32_t loops; /* number of the newest loop; the others sleep on it */
    atomic_int                sleepers, waiting, running;
    _Atomic uint32_t          first; /* newest loop when the region opened */
    void (*main_fn)(void *);         /* what its first thread runs */
    void *main_ctx;
} pool;

static _Thread_local int inside;    /* in a piece */
static _Thread_local int my_number; /* of this thread, while it is in one */

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

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0); }

static inline void relax(void) { __builtin_ia32_pause(); }

static void run_piece(llmq_parallel_fn fn, void *ctx, long begin, long end, int thread)
{
    inside++;
    my_number = thread;
    fn(ctx, begin, end, thread);
    inside--;
}

/* Claims and runs one piece of loop number `loop`; 0 when there is none left. */
static int take_piece(uint32_t loop, int thread)
{
    uint64_t         t = atomic_load(&pool.ticket);
    llmq_parallel_fn fn;
    void            *ctx;
    long             begin, end, items, size;

    do {
        if ((uint32_t)(t >> 32) != loop || (uint32_t)t >= atomic_load(&pool.pieces))
            return 0;
        fn = atomic_load(&pool.fn);
        ctx = atomic_load(&pool.ctx);
        items = atomic_load(&pool.items);
        size = atomic_load(&pool.size);
    } while (!atomic_compare_exchange_weak(&pool.ticket, &t, t + 1));
    begin = (long)(uint32_t)t * size;
    end = begin + size < items ? begin + size : items;
    run_piece(fn, ctx, begin, end, thread);
    atomic_fetch_add(&pool.done, 1);
    if (atomic_load(&pool.waiting))
        futex_wake(&pool.done);
    return 1;
}

static uint32_t wait_for_loop(uint32_t seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&pool.loops) != seen)
            return atomic_load(&pool.loops);
        relax();
    }
    atomic_fetch_add(&pool.sleepers, 1);
    while (atomic_load(&pool.loops) == seen)
        futex_wait(&pool.loops, seen);
    atomic_fetch_sub(&pool.sleepers, 1);
    return atomic_load(&pool.loops);
}

static void serve(int thread, uint32_t seen)
{
    while (atomic_load(&pool.running)) {
        seen = wait_for_loop(seen);
        while (take_piece(seen, thread))
            ;
    }
}

static void announce(void)
{
    atomic_fetch_add(&pool.loops, 1);
    if (atomic_load(&pool.sleepers))
        futex_wake(&pool.loops);
}

static void wait_for_pieces(uint32_t pieces)
{
    uint32_t done;

    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&pool.done) == pieces)
            return;
        relax();
    }
    atomic_store(&pool.waiting, 1);
    while ((done = atomic_load(&pool.done)) != pieces)
        futex_wait(&pool.done, done);
    atomic_store(&pool.waiting, 0);
}

/* The region captures nothing of its caller's stack: libgomp orders the end of a region by means that ThreadSanitizer
 * does not see, and would have it that the others still read there when the caller goes on. */
static void open_region(void)
{
#pragma omp parallel num_threads(n_threads)
    {
        int thread = omp_get_thread_num();

        if (thread) {
            serve(thread, atomic_load(&pool.first));
        } else {
            pool.main_fn(pool.main_ctx);
            atomic_store(&pool.running, 0);
            announce();
        }
    }
}

void llmq_parallel_run(void (*main_fn)(void *ctx), void *ctx)
{
    if (llmq_parallel_threads() == 1 || atomic_load(&pool.running)) {
        main_fn(ctx);
        return;
    }
    atomic_store(&pool.first, atomic_load(&pool.loops));
    pool.main_fn = main_fn;
    pool.main_ctx = ctx;
    atomic_store(&pool.running, 1);
    open_region();
}

static void pool_for(long items, long size, uint32_t pieces, llmq_parallel_fn fn, void *ctx)
{
    uint32_t loop = atomic_load(&pool.loops) + 1;

    atomic_store(&pool.ticket, (uint64_t)(loop - 1) << 32 | CLOSED);
    atomic_store(&pool.fn, fn);
    atomic_store(&pool.ctx, ctx);
    atomic_store(&pool.items, items);
    atomic_store(&pool.size, size);
    atomic_store(&pool.pieces, pieces);
    atomic_store(&pool.done, 0);
    atomic_store(&pool.ticket, (uint64_t)loop << 32);
    announce();
    while (take_piece(loop, 0))
        ;
    wait_for_pieces(pieces);
}

struct loop {
    long             items, grain;
    llmq_parallel_fn fn;
    void            *ctx;
};

static void one_loop(void *ctx)
{
    const struct loop *l = ctx;

    llmq_parallel_for(l->items, l->grain, l->fn, l->ctx);
}

void llmq_parallel_for(long items, long grain, llmq_parallel_fn fn, void *ctx)
{
    int  threads = llmq_parallel_threads();
    long size;

    if (grain < 1)
        grain = 1;
    if (items <= 0)
        return;
    if (threads == 1 || items <= grain || inside) {
        fn(ctx, 0, items, inside ? my_number : 0);
        return;
    }
    if (!atomic_load(&pool.running)) { /* a library's caller, a test: a region for this loop alone */
        struct loop l = {items, grain, fn, ctx};

        llmq_parallel_run(one_loop, &l);
        return;
    }
    /* Four pieces a thread even out what one slow core would hold up. */
    size = (items + 4L * threads - 1) / (4L * threads);
    if (size < grain)
        size = grain;
    pool_for(items, size, (uint32_t)((items + size - 1) / size), fn, ctx);
}
