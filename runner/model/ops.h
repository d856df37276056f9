#ifndef LLMQ_RUNNER_MODEL_OPS_H
#define LLMQ_RUNNER_MODEL_OPS_H

/* The backend table: what model.c asks of a device.
 *
 * Every pointer in an argument struct is memory of the backend it is passed to.  Ops enqueue and
 * return; sync() waits, and reports the first fault.  Shapes were checked when the model was opened
 * (weights.c) and when the batch was made, so ops have no errors of their own.  Activations are
 * float on the cpu.  Results do not depend on thread count, batch size or instruction set:
 * every sum has an order fixed by its shape (docs/ARCHITECTURE.md, "Numbers"). */

#include "common/err.h"
#include "format/format.h"

#include <stddef.h>
#include <stdint.h>

struct backend; /* the backend's own state */

/* A tensor as the backend reads it. */
struct weight {
    struct llmq_scheme scheme;
    uint16_t           layout;
    uint32_t           n, k, n_pad, k_pad;
    const void        *data, *scales, *zeros;
    const float       *bias; /* [n], or NULL */
};

enum kv_dtype { KV_F32 = 0, KV_F16 = 1 };

/* One layer's pages.  A page holds page_tokens tokens: [n_kv_heads][page_tokens][head_dim]. */
struct kv_view {
    enum kv_dtype dtype;
    int           page_tokens, n_kv_heads, head_dim;
    void         *k, *v; /* [pages][n_kv_heads][page_tokens][head_dim] of dtype */
};

struct op_embed {
    float               *out; /* [tokens, k] */
    const struct weight *table;
    const int32_t       *ids;
    int                  tokens;
};

struct op_rmsnorm {
    float       *out; /* [tokens, d]; may be x */
    const float *x;   /* [tokens, d] */
    const float *w;   /* [d] */
    int          tokens, d;
    float        eps;
};

/* y[p] = x W[p]^T + bias, for up to three weights that share their input (q, k, v; gate, up). */
struct op_linear {
    const float         *x; /* [tokens, k]; row stride k */
    const struct weight *w[3];
    float               *y[3]; /* [tokens, w[p]->n]; row stride w[p]->n */
    int                  parts, tokens;
    int                  add; /* 1: y += (residual); one part only */
};

/* Rotates q and k in place (half-split pairs (i, i + head_dim/2)) and writes k and v into their pages. */
struct op_rope_kv {
    float         *q;      /* [tokens, n_heads, head_dim] */
    float         *k;      /* [tokens, n_kv_heads, head_dim] */
    const float   *v;      /* [tokens, n_kv_heads, head_dim] */
    const float   *cos_sin; /* [positions][head_dim]: head_dim/2 cosines, then head_dim/2 sines */
    const int32_t *pos, *slot;
    struct kv_view kv;
    int            tokens, n_heads;
};

struct op_attention {
    float         *out; /* [tokens, n_heads, head_dim] */
    const float   *q;   /* [tokens, n_heads, head_dim], roped */
    struct kv_view kv;
    const int32_t *page_table, *page_start, *q_start, *kv_len; /* see batch.h */
    int            seqs, tokens, n_heads;
    float          scale;
};

/* out = silu(gate) * up */
struct op_swiglu {
    float       *out; /* may be gate */
    const float *gate, *up;
    size_t       count;
};

/* G += X^T X (float, in chunks of a fixed number of tokens, summed into double). */
struct op_gram {
    double      *g; /* [k, k]: the lower triangle is updated */
    const float *x; /* [tokens, k] */
    int          tokens, k;
};

/* Rows of log-probability statistics, for evaluation: stable log-sum-exp of each row. */
struct op_logsumexp {
    const float *logits; /* [rows, n] */
    float       *max;    /* [rows] */
    double      *lse;    /* [rows]: log(sum(exp(logit))) */
    int          rows, n;
};

struct backend_config {
    const char *isa;       /* cap: "scalar", "avx2", "avx512"; NULL: the best there is */
    uint32_t    max_k;     /* longest input of any linear */
    uint32_t    max_tokens; /* most tokens in a batch */
};

struct backend_ops {
    const char *name;
    int  (*open)(struct backend **out, const struct backend_config *cfg, struct llmq_err *err);
    void (*close)(struct backend *be);
    const char *(*isa)(const struct backend *be); /* the level in use: "avx512" */
    int  (*buf_new)(struct backend *be, size_t bytes, void **out, struct llmq_err *err); /* zeroed */
    void (*buf_free)(struct backend *be, void *buf);
    int  (*weight_bind)(struct backend *be, const struct llmq_tensor *t, struct weight *out, struct llmq_err *err);
    void (*embed)(struct backend *be, const struct op_embed *op);
    void (*rmsnorm)(struct backend *be, const struct op_rmsnorm *op);
    void (*linear)(struct backend *be, const struct op_linear *op);
    void (*rope_kv)(struct backend *be, const struct op_rope_kv *op);
    void (*attention)(struct backend *be, const struct op_attention *op);
    void (*swiglu)(struct backend *be, const struct op_swiglu *op);
    void (*gram)(struct backend *be, const struct op_gram *op);
    void (*logsumexp)(struct backend *be, const struct op_logsumexp *op);
    int  (*act_read)(struct backend *be, const void *act, float *dst, size_t count, struct llmq_err *err);
    int  (*sync)(struct backend *be, struct llmq_err *err);
};

extern const struct backend_ops llmq_backend_cpu;

/* "cpu" or "auto"; NULL when there is none of that name (backend.c). */
const struct backend_ops *backend_find(const char *name);

#endif
