#ifndef LLMQ_RUNNER_MODEL_MODEL_H
#define LLMQ_RUNNER_MODEL_MODEL_H

/* PUBLIC.  The mathematics of a decoder: one forward pass for serving, evaluation and calibration.
 *
 * A struct model is a set of bound weights, a backend and scratch for max_tokens tokens.  model_forward
 * runs a batch through all of it.  It is written as a sequence of stages, and the stages are public,
 * because a quantizer must stand between them: it reads what goes into a linear, decides that linear's
 * weights, and then runs the stage with them (so each layer is run once, not twice).
 *
 *   h = embed(ids)
 *   for each layer:
 *     x = model_attn_norm(h)                      x: input of q, k, v
 *     a = model_attention(x)                      a: input of o
 *     h = model_attn_out(h, a)                    h + o(a)
 *     x = model_mlp_norm(h)                       x: input of gate, up
 *     g = model_mlp_up(x)                         silu(gate(x)) * up(x): input of down
 *     h = model_mlp_down(h, g)                    h + down(g)
 *   logits = model_logits(h)
 *
 * Buffers are [tokens, width] floats, rows back to back, in the backend's memory (on the cpu: any
 * memory).  A model is used by one thread at a time; the backend is parallel inside. */

#include "runner/model/batch.h"
#include "runner/model/ops.h"

struct model_layer {
    struct weight attn_norm, q, k, v, o, mlp_norm, gate, up, down; /* norms: F32 vectors in .data */
};

struct model {
    const struct backend_ops *ops;
    struct backend           *be;
    struct llmq_hparams       hp;
    struct weight             embed, final_norm, lm_head; /* lm_head may be the embedding table */
    struct model_layer       *layers;                     /* [hp.n_layers] */
    struct llmq_arena         *arena;
    float                    *cos_sin; /* [max_ctx][head_dim] */
    int                       max_tokens, max_ctx, max_logits;
    /* scratch, [max_tokens, width] */
    float *h, *x, *q, *k, *v, *a, *g, *u, *logits_x, *logits;
};

struct model_options {
    const char *device;    /* "cpu", "auto" or NULL */
    const char *isa;       /* cap, or NULL */
    int         max_tokens; /* most tokens in a batch */
    int         max_ctx;    /* longest sequence */
    int         max_logits; /* most rows of logits in a batch */
};

/* Binds every tensor of a file; f must outlive the model.  Shapes are checked here and only here. */
int  model_open(struct model **out, const struct llmq_file *f, const struct model_options *o, struct llmq_err *err) LLMQ_MUST_CHECK;
/* A model with hyperparameters, backend, RoPE table and scratch but no weights: the quantizer binds layers
 * as it goes, through model_bind_layer. */
int  model_open_empty(struct model **out, const struct llmq_hparams *hp, const struct model_options *o, struct llmq_err *err) LLMQ_MUST_CHECK;
void model_close(struct model *m);

/* Binds one tensor (of any role) into its place; what t points at must outlive its use. */
int model_bind(struct model *m, const struct llmq_tensor *t, struct llmq_err *err) LLMQ_MUST_CHECK;
/* Places vectors (norms, biases) are read as float; model_bind keeps a converted copy in the arena. */

/* "f32", "f16"; NULL is f16.  LLMQ_EUSAGE names what is not known. */
int         kv_dtype_from_name(const char *name, enum kv_dtype *out, struct llmq_err *err) LLMQ_MUST_CHECK;
const char *kv_dtype_name(enum kv_dtype dtype);

/* Storage for keys and values of n_layers layers.  Page ids are given out elsewhere (kvpool.h). */
struct kv_store {
    enum kv_dtype  dtype;
    int            n_pages, page_tokens, n_layers;
    struct kv_view *layer; /* [n_layers] */
};
int  kv_store_new(struct kv_store **out, struct model *m, enum kv_dtype dtype, int n_pages, int page_tokens, int n_layers, struct llmq_err *err) LLMQ_MUST_CHECK;
void kv_store_free(struct kv_store *kv, struct model *m);

/* Runs the batch; logits are [b->n_logits, n_vocab] in m->logits until the next call. */
int model_forward(struct model *m, struct kv_store *kv, const struct batch *b, struct llmq_err *err) LLMQ_MUST_CHECK;

/* The stages.  tokens rows; kv is the layer's view. */
void model_embed(struct model *m, const int32_t *ids, int tokens, float *h);
void model_attn_norm(struct model *m, const struct model_layer *l, const float *h, int tokens, float *x);
void model_attention(struct model *m, const struct model_layer *l, const struct kv_view *kv, const struct batch *b, const float *x, float *a);
void model_attn_out(struct model *m, const struct model_layer *l, const float *a, int tokens, float *h);
void model_mlp_norm(struct model *m, const struct model_layer *l, const float *h, int tokens, float *x);
void model_mlp_up(struct model *m, const struct model_layer *l, const float *x, int tokens, float *g);
void model_mlp_down(struct model *m, const struct model_layer *l, const float *g, int tokens, float *h);
void model_logits(struct model *m, const float *h, const int32_t *rows, int n_rows, float *logits);

/* Dense helpers on the same backend, for a quantizer: y = x w^T with float w [n, k] row-major, any sizes
 * (max_k of the backend permitting); g (lower triangle, double) += x^T x. */
void model_matmul(struct model *m, const float *x, int tokens, const float *w, int n, int k, float *y);
void model_gram(struct model *m, const float *x, int tokens, int k, double *g);

/* Cosines and sines for every position below max_ctx: [max_ctx][head_dim] (rope.c). */
void model_rope_table(const struct llmq_hparams *hp, int max_ctx, float *cos_sin);

#endif
