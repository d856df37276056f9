/* checkkern --bench: what the kernels reach, beside the memory bandwidth measured in the same run.
 *
 * Weights that are read once per token (decoding) take a buffer that no cache holds; products that reuse them
 * (prompts, calibration) are stated in operations, 2 for each multiplication and addition. */
#include "tests/kernels/checkkern.h"
#include "tests/kernels/ops.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/parallel.h"

#include <stdio.h>
#include <string.h>

enum { K = 2048, BIG = 1200 << 20 };

static const char *isa_now;
static int         threads_now;

static void line(const char *what, double amount, double seconds, const char *unit, double of)
{
    double rate = amount / seconds * 1e-9;

    printf("%-8s %d thread%s %-34s %8.2f %s", isa_now, threads_now, threads_now > 1 ? "s" : " ", what, rate, unit);
    if (of > 0)
        printf("  %3.0f %% of memory", 100 * rate / of);
    printf("\n");
    fflush(stdout);
}

/* One thread is timed by the processor time it gets, so that other processes disturb less. */
static double now_s(void) { return threads_now == 1 ? llmq_clock_cpu_s() : llmq_clock_s(); }

/* The best of some runs, at least 0.3 s of them. */
static double best_of(void (*fn)(void *), void *ctx)
{
    double best = 1e9, all = 0;

    for (int i = 0; i < 2 || (all < 0.3 && i < 200); i++) {
        double t = now_s();

        fn(ctx);
        t = now_s() - t;
        all += t;
        best = t < best ? t : best;
    }
    return best;
}

/* ---- memory ------------------------------------------------------------------------------------------ */

static const uint64_t *big;
static uint64_t        sums[64];

static void read_piece(void *ctx, long begin, long end, int thread)
{
    uint64_t a = 0, b = 0, c = 0, d = 0;

    (void)ctx;
    for (long i = begin * 4096; i < end * 4096; i += 4) {
        a += big[i];
        b += big[i + 1];
        c += big[i + 2];
        d += big[i + 3];
    }
    sums[thread % 64] += a + b + c + d;
}

static void read_all(void *ctx) { llmq_parallel_for(BIG / 8 / 4096, 1, read_piece, ctx); }

/* ---- ops ------------------------------------------------------------------------------------------------ */

struct linear_run {
    struct backend  *be;
    struct op_linear op;
};

static void run_linear(void *ctx)
{
    struct linear_run *r = ctx;

    llmq_backend_cpu.linear(r->be, &r->op);
}

/* big as a weight of n rows: all of it for decoding, a small part for prompts. */
static struct weight big_weight(int bits, int group, int dtype, int n)
{
    struct weight w = ck_weight(bits, 1, group, dtype, 16, K);

    w.n = w.n_pad = (uint32_t)n;
    w.data = big;
    if (bits)
        w.scales = ck_scales((size_t)n * (size_t)(group ? K / group : 1));
    return w;
}

static void bench_linear(struct backend *be, const char *name, int bits, int group, int dtype, int tokens, double memory)
{
    size_t            row = bits ? (size_t)K * (size_t)bits / 8 : K * llmq_dtype_bytes(dtype);
    int               n = tokens == 1 ? (int)(BIG / row) & ~15 : 1536;
    struct weight     w = big_weight(bits, group, dtype, n);
    struct linear_run r = {be, {.x = ck_floats((size_t)tokens * K), .parts = 1, .tokens = tokens}};
    double            s, bytes = (double)row * n + (bits ? 2.0 * n * (group ? K / group : 1) : 0);
    char              what[64];

    r.op.w[0] = &w;
    r.op.y[0] = ck_new((size_t)n * (size_t)tokens * 4);
    s = best_of(run_linear, &r);
    snprintf(what, sizeof what, "%s, %d token%s", name, tokens, tokens > 1 ? "s" : "");
    if (tokens == 1)
        line(what, bytes, s, "GB/s", memory);
    else
        line(what, 2.0 * n * K * tokens, s, "GOP/s", 0);
    ck_free_all();
}

struct attention_run {
    struct backend *be;
    struct ck_attn  a;
    int             first, count;
    float          *out;
};

static void run_attention(void *ctx)
{
    struct attention_run *r = ctx;

    ck_attend(r->be, &r->a, r->first, r->count, r->out);
}

static void bench_attention(struct backend *be, const char *isa, double memory)
{
    enum { LEN = 2048, HEADS = 9, HD = 64 };
    struct attention_run r = {be, ck_attention(HEADS, 3, HD, LEN, 32, KV_F16), 0, LEN, ck_new(LEN * HEADS * HD * 4)};
    int                  threads = threads_now;

    (void)isa;
    llmq_parallel_set_threads(threads);
    line("attention, prompt of 2048", 4.0 * HEADS * HD * LEN * (LEN + 1) / 2, best_of(run_attention, &r), "GOP/s", 0);
    r.first = LEN - 1;
    r.count = 1;
    line("attention, 1 token after 2047", 2.0 * 2 * 3 * HD * LEN, best_of(run_attention, &r), "GB/s", memory);
    ck_free_all();
}

struct other_run {
    struct backend *be;
    void           *op;
};

static void run_gram(void *ctx) { llmq_backend_cpu.gram(((struct other_run *)ctx)->be, ((struct other_run *)ctx)->op); }
static void run_lse(void *ctx) { llmq_backend_cpu.logsumexp(((struct other_run *)ctx)->be, ((struct other_run *)ctx)->op); }
static void run_swiglu(void *ctx) { llmq_backend_cpu.swiglu(((struct other_run *)ctx)->be, ((struct other_run *)ctx)->op); }

static void bench_others(struct backend *be)
{
    enum { GK = 1536, TOKENS = 1024, VOCAB = 49152, ROWS = 32 };
    float              *x = ck_floats((size_t)GK * TOKENS), max[ROWS];
    double              lse[ROWS];
    struct op_gram      gram = {.g = ck_new((size_t)GK * GK * 8), .x = x, .tokens = TOKENS, .k = GK};
    struct op_logsumexp rows = {.logits = x, .max = max, .lse = lse, .rows = ROWS, .n = VOCAB};
    struct op_swiglu    glu = {.out = ck_new((size_t)GK * TOKENS * 4), .gate = x, .up = x, .count = (size_t)GK * TOKENS};
    struct other_run    r = {be, &gram};

    memset(gram.g, 0, (size_t)GK * GK * 8);
    line("gram, k 1536", 1.0 * GK * (GK + 1) * TOKENS, best_of(run_gram, &r), "GOP/s", 0);
    r.op = &rows;
    line("logsumexp, n 49152", (double)ROWS * VOCAB, best_of(run_lse, &r), "G elements/s", 0);
    r.op = &glu;
    line("swiglu", (double)GK * TOKENS, best_of(run_swiglu, &r), "G elements/s", 0);
    ck_free_all();
}

static double memory_speed(void)
{
    double s = best_of(read_all, NULL);

    isa_now = "";
    line("memory, read", BIG, s, "GB/s", 0);
    return BIG / s * 1e-9;
}

static void bench_level(const char *isa, int threads, double memory)
{
    struct backend *be = ck_backend(isa, threads, K, 256);

    isa_now = isa;
    bench_linear(be, "int4 g64", 4, 64, 0, 1, memory);
    bench_linear(be, "int4 g128", 4, 128, 0, 1, memory);
    bench_linear(be, "int8 g64", 8, 64, 0, 1, memory);
    bench_linear(be, "bf16", 0, 0, LLMQ_DTYPE_BF16, 1, memory);
    bench_linear(be, "f16", 0, 0, LLMQ_DTYPE_F16, 1, memory);
    for (int tokens = 4; tokens <= 256; tokens *= 8) {
        bench_linear(be, "int4 g32", 4, 32, 0, tokens, memory);
        bench_linear(be, "int4 g64", 4, 64, 0, tokens, memory);
        bench_linear(be, "int4 g128", 4, 128, 0, tokens, memory);
        bench_linear(be, "int8 g64", 8, 64, 0, tokens, memory);
        bench_linear(be, "bf16", 0, 0, LLMQ_DTYPE_BF16, tokens, memory);
    }
    bench_attention(be, isa, memory);
    bench_others(be);
    llmq_backend_cpu.close(be);
}

void ck_bench(enum cpu_isa top)
{
    int             cores = llmq_parallel_cores();
    uint64_t       *words;
    struct llmq_err err = {0};

    if (LLMQ_NEW(&words, BIG / 8, "benchmark weights", &err))
        return;
    for (size_t i = 0; i < BIG / 8; i++) /* as floats of any type: finite */
        words[i] = (i * 0x9e3779b97f4a7c15ull) & 0x3f7f3f7f3f7f3f7full;
    big = words;
    for (threads_now = 1; threads_now <= cores; threads_now = threads_now == 1 && cores > 1 ? cores : cores + 1) {
        double memory;

        llmq_parallel_set_threads(threads_now);
        memory = memory_speed();
        for (int isa = (int)top; isa >= CPU_AVX2; isa--)
            bench_level(cpu_isa_name((enum cpu_isa)isa), threads_now, memory);
    }
    llmq_free(words);
}
