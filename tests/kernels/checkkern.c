/* Every kernel slot, for every instruction set of this machine, against the scalar one, bit for bit, in the
 * awkward shapes; the scalar ones against double precision; whole ops against themselves, in other pieces and with
 * other numbers of threads.  `checkkern --bench` times the kernels. */
#include "tests/kernels/checkkern.h"

#include "common/fp.h"
#include "common/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- data ------------------------------------------------------------------------------------------ */

static void           *blocks[4096];
static int             n_blocks;
static struct llmq_rng rng;

void *ck_new(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);

    if (!p || n_blocks == (int)(sizeof blocks / sizeof blocks[0])) {
        fprintf(stderr, "checkkern: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    memset(p, 0x5a, bytes);
    return blocks[n_blocks++] = p;
}

void ck_free_all(void)
{
    while (n_blocks)
        free(blocks[--n_blocks]);
}

uint64_t ck_random(void) { return llmq_rng_next(&rng); }

float ck_uniform(void) { return (float)((int32_t)(ck_random() >> 39) - (1 << 24)) * 0x1p-24f; }

float *ck_floats(size_t n)
{
    float *x = ck_new(n * sizeof *x);

    for (size_t i = 0; i < n; i++) {
        uint64_t kind = ck_random() % 64;
        x[i] = ck_uniform() * (kind == 1 ? 100.0f : kind == 2 ? 1e-20f : kind == 3 ? 0.0f : 1.0f);
    }
    return x;
}

void *ck_elements(size_t n, int dtype)
{
    float    *x = ck_floats(n);
    uint16_t *h;

    if (dtype == LLMQ_DTYPE_F32)
        return x;
    h = ck_new(n * sizeof *h);
    for (size_t i = 0; i < n; i++)
        h[i] = dtype == LLMQ_DTYPE_F16 ? llmq_f32_to_f16(x[i]) : llmq_f32_to_bf16(x[i]);
    return h;
}

uint8_t *ck_bytes(size_t n)
{
    uint8_t *b = ck_new(n);

    for (size_t i = 0; i < n; i++)
        b[i] = (uint8_t)ck_random();
    return b;
}

uint16_t *ck_scales(size_t n)
{
    uint16_t *s = ck_new(n * sizeof *s);

    for (size_t i = 0; i < n; i++)
        s[i] = llmq_f32_to_f16(0.001f + 0.1f * fabsf(ck_uniform()));
    return s;
}

double ck_tolerance(int k, double mag) { return (k + 8) * 0x1p-24 * mag; }

/* ---- report ------------------------------------------------------------------------------------------- */

static int passed, failed, skipped;

static void report(const char *isa, const char *name, int bad)
{
    if (bad < 0)
        skipped++;
    else if (bad)
        failed++;
    else
        passed++;
    if (bad > 0)
        printf("%-8s %-24s FAILED (%d)\n", isa, name, bad);
    else
        printf("%-8s %-24s %s\n", isa, name, bad < 0 ? "skipped" : "ok");
}

/* A slot that a level leaves to the level below it is counted there. */
static int inherits(const struct cpu_kernels *a, const struct cpu_kernels *b, size_t offset)
{
    return memcmp((const char *)a + offset, (const char *)b + offset, sizeof(void (*)(void))) == 0;
}

static void run_slots(enum cpu_isa isa, enum cpu_isa top)
{
    struct cpu_kernels ref, below, got;

    kernels_fill(&ref, CPU_SCALAR);
    kernels_fill(&below, isa - 1);
    kernels_fill(&got, isa);
    for (int i = 0; i < ck_n_slots; i++) {
        if (isa <= top && inherits(&below, &got, ck_slots[i].offset))
            continue;
        llmq_rng_seed(&rng, 1);
        report(cpu_isa_name(isa), ck_slots[i].name, isa > top ? -1 : ck_slots[i].check(&ref, &got));
        ck_free_all();
    }
}

static void run_tests(const struct ck_test *t, int n, const char *isa)
{
    for (int i = 0; i < n; i++) {
        llmq_rng_seed(&rng, 2);
        report(isa, t[i].name, t[i].run(isa));
        ck_free_all();
    }
}

int main(int argc, char **argv)
{
    enum cpu_isa top = cpu_isa_detect();

    if (argc > 1 && !strcmp(argv[1], "--bench")) {
        llmq_rng_seed(&rng, 3);
        ck_bench(top);
        return 0;
    }
    run_tests(ck_references, ck_n_references, "scalar");
    for (enum cpu_isa isa = CPU_AVX2; isa < CPU_ISA_COUNT; isa++)
        run_slots(isa, top);
    for (enum cpu_isa isa = CPU_SCALAR; isa <= top; isa++)
        run_tests(ck_invariances, ck_n_invariances, cpu_isa_name(isa));
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed != 0;
}
