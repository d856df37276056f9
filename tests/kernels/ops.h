#ifndef LLMQ_TESTS_KERNELS_OPS_H
#define LLMQ_TESTS_KERNELS_OPS_H

#include "runner/model/ops.h"

/* Helpers for tests of whole ops. */

/* A backend with this many threads and this cap; the process ends if there is none. */
struct backend *ck_backend(const char *isa, int threads, int max_k, int max_tokens);

/* A weight of random codes or elements; group as in struct llmq_scheme, bits 0 for a dense one of dtype. */
struct weight ck_weight(int bits, int sym, int group, int dtype, int n, int k);

/* An attention problem: one sequence of `len` tokens in shuffled pages. */
struct ck_attn {
    struct kv_view kv;
    int            n_heads, len;
    float         *q;          /* [len][n_heads][head_dim] */
    float         *k, *v;      /* what the pages hold, [len][n_kv_heads][head_dim] */
    int32_t       *page_table; /* of the sequence */
};
struct ck_attn ck_attention(int n_heads, int n_kv_heads, int hd, int len, int page_tokens, enum kv_dtype dtype);
/* Queries [first, first + count) into out + first rows. */
void ck_attend(struct backend *be, const struct ck_attn *a, int first, int count, float *out);

#endif
