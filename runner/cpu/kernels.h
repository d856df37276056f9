#ifndef LLMQ_RUNNER_CPU_KERNELS_H
#define LLMQ_RUNNER_CPU_KERNELS_H

/* The CPU micro-kernels, one slot each.
 *
 * kernels_fill starts from the scalar set, which is complete and is the definition of each slot, then
 * lets each instruction set up to `isa` replace the slots that it does better.  All versions of a slot
 * give the same bits: every sum has an order fixed by its shape, and where that order says fma, scalar
 * and vector code say fma.
 *
 * dot16, the order of every float dot product over k: lane l sums k = l, l+16, l+32, ... ascending, one
 * fma each, from +0 (a partial last chunk leaves the other lanes as they are); then the tree
 * s[i] = a[i] + a[i+8] for i < 8, then + 4, + 2, + 1. */

#include "format/format.h"
#include "runner/cpu/isa.h"

#include <stddef.h>
#include <stdint.h>

enum {
    CPU_LANES = 16,
    CPU_PART = 256,        /* keys in an attention partition */
    CPU_ROWS = 4,          /* most query rows in one call of scores_many and values */
    CPU_ACT_MAX = 32512,   /* 127 * 256: largest activation code */
    CPU_ACT_GROUP = 256,   /* widest activation group: its products still fit 32 bits */
    CPU_GRAM_TOKENS = 64,  /* tokens summed in float before they join the double sums */
    CPU_GRAM_I = 8,        /* micro-tile of the Gram matrix */
    CPU_GRAM_J = 32,
    CPU_LSE_BLOCK = 4096   /* elements of a row that are summed in float */
};

/* y[t][o] = dot16(w[o], x[t]), + bias[o], and with add: y[t][o] + that. */
struct cpu_dense {
    const void  *w; /* [n] rows, ldw elements apart; elements are converted exactly */
    size_t       ldw, ldx, ldy;
    const float *x; /* [m] rows */
    float       *y;
    const float *bias; /* [n], or NULL */
    int          dtype, n, m, k, add;
};

/* The same for integer weights (layout TILES) and integer activations (act_quant).  Per output and token:
 *   acc = 0; for each activation group g, ascending: acc = acc + (scale * xs[g]) * (float)S,
 *   S = sum of code * v over the group - zero * sum[g], exact in 32 bits. */
struct cpu_tiles {
    const uint8_t  *w;      /* tile (0, 0) of the tensor */
    const uint16_t *scales; /* F16, [n_pad / 16][groups][16] */
    const uint8_t  *zeros;  /* the same shape, or NULL: `zero` for all */
    const int16_t  *v;      /* [m][k_pad] activation codes, see cpu_act_index */
    const float    *xs;     /* [m][ng] activation scales */
    const int32_t  *sum;    /* [m][ng] sums of a group's codes */
    float          *y;      /* [m] rows of n outputs, ldy apart */
    const float    *bias;   /* [n], or NULL */
    size_t          ldy;
    int             zero, n, m, k_pad;
    int             gw, ng;    /* activation groups: width (32, 64, 128, 256) and number */
    int             groups;    /* scales of a row */
    int             per_scale; /* activation groups that share a scale */
    int             add;
};

/* Activation codes stand in fours as inputs 0, 2, 1, 3: then a 16-bit lane with a mask or a shift of the
 * tile's bytes meets its partner (bytes 0 and 2 are the low bytes of two lanes, 1 and 3 the high ones). */
static inline int cpu_act_index(int k) { return (k & ~3) | ((k & 1) << 1) | ((k >> 1) & 1); }

typedef void (*cpu_tiles_fn)(const struct cpu_tiles *a, int block0, int block1); /* blocks of 16 outputs */

struct cpu_kernels {
    /* Elements of F32, F16 or BF16 as float, exactly; and float as F16, to nearest, ties to even. */
    void (*widen)(float *dst, const void *src, int dtype, size_t count);
    void (*narrow_f16)(uint16_t *dst, const float *src, size_t count);

    void (*dense_one)(const struct cpu_dense *a);  /* m == 1, any dtype */
    void (*dense_many)(const struct cpu_dense *a); /* F32 weights */

    /* A16: one token's x[k] as v[k_pad], zero behind k; per group of gw inputs
     *   amax = max |x|; xs = amax / 32512; v = rint(x * (32512 / amax)), clamped; sum = sum of v.
     * amax below 2^-100 counts as 0 (xs = 0, v = 0); one that is not finite gives xs = amax, v = 0. */
    void (*act_quant)(int16_t *v, float *xs, int32_t *sum, const float *x, int k, int k_pad, int gw);
    cpu_tiles_fn q4_one, q8_one;   /* m == 1 */
    cpu_tiles_fn q4_many, q8_many; /* any m */

    /* r = 1 / sqrt(dot16(x, x) / d + eps); out = (x * r) * w */
    void (*rmsnorm)(float *out, const float *x, const float *w, int d, float eps);
    /* x[i], x[i + half] = x[i] * c - x[i + half] * s, x[i + half] * c + x[i] * s; cs: cosines, then sines */
    void (*rope)(float *x, const float *cs, int half);
    /* out = (g / (1 + llmq_expf(-g))) * up */
    void (*swiglu)(float *out, const float *gate, const float *up, size_t count);

    /* Attention.  Keys and values are rows of hd elements (F32 or F16), given by pointer; scores of one
     * query row are CPU_PART floats.
     * s[r][j] = dot16(q[r], k[j]) * scale, from the rows themselves (few), or from blocks of 16 keys turned
     * so that a vector holds one input of 16 keys (many, at most CPU_ROWS rows): kt is [blocks][hd][16]. */
    void (*scores_few)(float *s, const float *const *q, int rows, const void *const *k, int dtype, int n, int hd,
                       float scale);
    void (*keys_turn)(float *kt, const void *const *k, int dtype, int n, int hd); /* n <= 16, others zero */
    void (*scores_many)(float *s, const float *const *q, int rows, const float *kt, int n, int hd, float scale);
    /* m = max s[j]; s[j] = llmq_expf(s[j] - m); l = sum of them: lane j mod 16 ascending, then dot16's tree */
    void (*softmax)(float *s, int n, float *m, float *l);
    /* o[r][d] = fma chain over j < n[r], ascending, of s[r][j] * v[j][d]; n ascends; o is [rows][hd] */
    void (*values)(float *o, const float *s, int rows, const int *n, const void *const *v, int dtype, int hd);
    void (*merge)(float *o, const float *p, float a, float b, int hd); /* o = o * a + p * b */
    void (*divide)(float *o, float l, int hd);                         /* o = o / l */

    /* g[r][c] += sum over tokens of xi[t][r] * xj[t][c] for r < rows, c < min(cols, diag + r + 1): an fma chain
     * over at most CPU_GRAM_TOKENS tokens, then one double addition.  xi, xj: rows ldx apart, in which
     * CPU_GRAM_I and CPU_GRAM_J floats may be read. */
    void (*gram)(double *g, size_t ldg, const float *xi, const float *xj, size_t ldx, int tokens, int rows, int cols,
                 int diag);
    /* max; sum of llmq_expf(x - max): blocks of CPU_LSE_BLOCK as in softmax, the blocks in double */
    void (*logsumexp)(const float *x, int n, float *max, double *sum);
};

void kernels_fill(struct cpu_kernels *t, enum cpu_isa isa);

/* What each file has to give; called by kernels_fill only. */
void kernels_scalar(struct cpu_kernels *t);
void kernels_dense_avx2(struct cpu_kernels *t);
void kernels_dense_avx512(struct cpu_kernels *t);
void kernels_tiles_avx2(struct cpu_kernels *t);
void kernels_tiles_avx512(struct cpu_kernels *t);
void kernels_attention_avx2(struct cpu_kernels *t);
void kernels_attention_avx512(struct cpu_kernels *t);
void kernels_elementwise_avx2(struct cpu_kernels *t);
void kernels_elementwise_avx512(struct cpu_kernels *t);
void kernels_gram_avx2(struct cpu_kernels *t);
void kernels_gram_avx512(struct cpu_kernels *t);

#endif
