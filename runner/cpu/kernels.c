/* The table of kernels for an instruction-set level: see kernels.h. */
#include "runner/cpu/kernels.h"

#include <string.h>

static void fill_avx2(struct cpu_kernels *t)
{
    kernels_dense_avx2(t);
    kernels_tiles_avx2(t);
    kernels_attention_avx2(t);
    kernels_elementwise_avx2(t);
    kernels_gram_avx2(t);
}

static void fill_avx512(struct cpu_kernels *t)
{
    kernels_dense_avx512(t);
    kernels_tiles_avx512(t);
    kernels_attention_avx512(t);
    kernels_elementwise_avx512(t);
    kernels_gram_avx512(t);
}

void kernels_fill(struct cpu_kernels *t, enum cpu_isa isa)
{
    memset(t, 0, sizeof *t);
    kernels_scalar(t);
    if (isa >= CPU_AVX2)
        fill_avx2(t);
    if (isa >= CPU_AVX512)
        fill_avx512(t);
}
