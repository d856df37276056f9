/* Dense linear layers with AVX-512: see struct cpu_dense in kernels.h.
 *
 * A vector register is the 16 lanes of one dot16.  Sixteen of them (4 outputs x 4 tokens, or 8 outputs of one token)
 * run at once to hide the latency of fma, and are folded together.  At an edge a tile computes its last output again
 * instead of having code of its own. */
#include "runner/cpu/kernels.h"
#include "runner/cpu/vec_avx512.h"

enum { OUTPUTS = 4, TOKENS = 4, ROWS = 8 };

/* Up to four sums of one token, from output o on. */
VEC_INLINE void store(const struct cpu_dense *a, int o, int t, __m128 sum)
{
    int      left = a->n - o;
    __mmask8 m = (__mmask8)(left >= 4 ? 15 : (1 << left) - 1);
    float   *y = a->y + (size_t)t * a->ldy + o;

    if (a->bias)
        sum = _mm_add_ps(sum, _mm_maskz_loadu_ps(m, a->bias + o));
    if (a->add)
        sum = _mm_add_ps(_mm_maskz_loadu_ps(m, y), sum);
    _mm_mask_storeu_ps(y, m, sum);
}

/* acc[4 * c + r] += the chunk of output c and token r; only the lanes of m. */
VEC_INLINE void chunk(__m512 acc[16], const float *const w[OUTPUTS], const float *x, size_t ldx, long i, __mmask16 m,
                      int tokens)
{
    for (int r = 0; r < tokens; r++) {
        __m512 v = _mm512_maskz_loadu_ps(m, x + (size_t)r * ldx + i);

        for (int c = 0; c < OUTPUTS; c++)
            acc[4 * c + r] = _mm512_mask3_fmadd_ps(_mm512_maskz_loadu_ps(m, w[c] + i), v, acc[4 * c + r], m);
    }
}

VEC_INLINE void tile(const struct cpu_dense *a, int o, int t, int tokens)
{
    const float *w[OUTPUTS], *x = a->x + (size_t)t * a->ldx;
    __m512       acc[16], sum;
    long         k = a->k, full = k & ~15L;

    for (int c = 0; c < OUTPUTS; c++)
        w[c] = (const float *)a->w + (size_t)(o + c < a->n ? o + c : a->n - 1) * a->ldw;
    for (int i = 0; i < 16; i++)
        acc[i] = _mm512_setzero_ps();
    for (long i = 0; i < full; i += 16)
        chunk(acc, w, x, a->ldx, i, 0xffff, tokens);
    if (full < k)
        chunk(acc, w, x, a->ldx, full, v16_mask(k - full), tokens);
    sum = v16_fold_16(acc);
    store(a, o, t, _mm512_castps512_ps128(sum));
    if (tokens > 1)
        store(a, o, t + 1, _mm512_extractf32x4_ps(sum, 1));
    if (tokens > 2)
        store(a, o, t + 2, _mm512_extractf32x4_ps(sum, 2));
    if (tokens > 3)
        store(a, o, t + 3, _mm512_extractf32x4_ps(sum, 3));
}

/* Tokens outside: their inputs stay in the first-level cache while the outputs pass. */
static void dense_many(const struct cpu_dense *a)
{
    int t = 0;

    for (; t + TOKENS <= a->m; t += TOKENS)
        for (int o = 0; o < a->n; o += OUTPUTS)
            tile(a, o, t, TOKENS);
    for (int o = 0; o < a->n; o += OUTPUTS)
        switch (a->m - t) {
        case 3: tile(a, o, t, 3); break;
        case 2: tile(a, o, t, 2); break;
        case 1: tile(a, o, t, 1); break;
        default: return;
        }
}

VEC_INLINE void rows(const struct cpu_dense *a, int o, int dtype)
{
    __m512 acc[16], sum;
    size_t at[ROWS];
    long   k = a->k, full = k & ~15L;

    for (int c = 0; c < ROWS; c++)
        at[c] = (size_t)(o + c < a->n ? o + c : a->n - 1) * a->ldw;
    for (int i = 0; i < 16; i++)
        acc[i] = _mm512_setzero_ps();
    for (long i = 0; i < full; i += 16) {
        __m512 v = _mm512_loadu_ps(a->x + i);

        for (int c = 0; c < ROWS; c++) /* outputs 0..3 in 128-bit lane 0 of the fold, 4..7 in lane 1 */
            acc[c % 4 * 4 + c / 4] = _mm512_fmadd_ps(v16_load(a->w, at[c] + (size_t)i, dtype, 0xffff), v,
                                                     acc[c % 4 * 4 + c / 4]);
    }
    if (full < k) {
        __mmask16 m = v16_mask(k - full);
        __m512    v = _mm512_maskz_loadu_ps(m, a->x + full);

        for (int c = 0; c < ROWS; c++)
            acc[c % 4 * 4 + c / 4] = _mm512_mask3_fmadd_ps(v16_load(a->w, at[c] + (size_t)full, dtype, m), v,
                                                           acc[c % 4 * 4 + c / 4], m);
    }
    sum = v16_fold_16(acc);
    store(a, o, 0, _mm512_castps512_ps128(sum));
    if (o + 4 < a->n)
        store(a, o + 4, 0, _mm512_extractf32x4_ps(sum, 1));
}

static void dense_one(const struct cpu_dense *a)
{
    for (int o = 0; o < a->n; o += ROWS)
        switch (a->dtype) {
        case LLMQ_DTYPE_F32: rows(a, o, LLMQ_DTYPE_F32); break;
        case LLMQ_DTYPE_F16: rows(a, o, LLMQ_DTYPE_F16); break;
        default: rows(a, o, LLMQ_DTYPE_BF16); break;
        }
}

void kernels_dense_avx512(struct cpu_kernels *t)
{
    t->dense_one = dense_one;
    t->dense_many = dense_many;
}
