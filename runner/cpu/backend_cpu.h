#ifndef LLMQ_RUNNER_CPU_BACKEND_CPU_H
#define LLMQ_RUNNER_CPU_BACKEND_CPU_H

#include "common/parallel.h"
#include "runner/cpu/kernels.h"
#include "runner/model/ops.h"

enum {
    CPU_ACT_TOKENS = 256,   /* tokens whose quantized activations exist at a time */
    CPU_MAX_TURN_HD = 256,  /* largest head for which keys and values are copied for many query rows */
    CPU_SPLIT_PARTS = 16    /* partitions of one sequence in flight when attention is split along it */
};

/* The state of the cpu backend.  All scratch is taken at open, so that ops cannot fail. */
struct backend {
    struct cpu_kernels k;
    enum cpu_isa       isa;
    int                threads;
    uint32_t           max_k, act_tokens;
    int16_t           *act_v;   /* quantized activations: [act_tokens][k_pad] */
    float             *act_xs;  /* [act_tokens][groups] */
    int32_t           *act_sum; /* [act_tokens][groups] */
    float             *split;   /* partial attention results, see attention.c */
    float             *scratch; /* [threads][scratch_floats] */
    size_t             scratch_floats;
};

/* llmq_parallel_for for items that cost about `cost` multiplications each: on one thread when there is
 * less to do than starting others costs. */
void cpu_for(const struct backend *be, long items, double cost, llmq_parallel_fn fn, void *ctx);

static inline float *cpu_scratch(const struct backend *be, int thread)
{
    return be->scratch + (size_t)thread * be->scratch_floats;
}

void cpu_linear(struct backend *be, const struct op_linear *op);
void cpu_attention(struct backend *be, const struct op_attention *op);
void cpu_embed(struct backend *be, const struct op_embed *op);
void cpu_rmsnorm(struct backend *be, const struct op_rmsnorm *op);
void cpu_rope_kv(struct backend *be, const struct op_rope_kv *op);
void cpu_swiglu(struct backend *be, const struct op_swiglu *op);
void cpu_gram(struct backend *be, const struct op_gram *op);
void cpu_logsumexp(struct backend *be, const struct op_logsumexp *op);

#endif
