/* Dense linear layers with AVX2: see struct cpu_dense in kernels.h.
 *
 * A vector register is lanes 0..7 or 8..15 of one dot16.  With many tokens a tile of 4 outputs x 3 tokens runs over k
 * twice, once for each half of the lanes: so 12 sums fit the registers.  At an edge a tile computes its last
 * output again instead of having code of its own. */
#include "runner/cpu/kernels.h"
#include "runner/cpu/vec_avx2.h"

enum { OUTPUTS = 4, TOKENS = 3, ROWS = 4, BLOCK = 512 };

/* Up to four sums of one token, from output o on. */
VEC_INLINE void store(const struct cpu_dense *a, int o, int t, __m128 sum)
{
    int    n = a->n - o < 4 ? a->n - o : 4;
    float *y = a->y + (size_t)t * a->ldy + o, s[4];

    _mm_storeu_ps(s, sum);
    for (int i = 0; i < n; i++) {
        float acc = a->bias ? s[i] + a->bias[o + i] : s[i];
        y[i] = a->add ? y[i] + acc : acc;
    }
}

/* One half of the lanes: elements first, first + 16, ... in groups of 8. */
VEC_INLINE void half_tile(__m256 acc[OUTPUTS * TOKENS], const float *const w[OUTPUTS], const float *x, size_t ldx,
                          long k, long first, int tokens)
{
    long i = first;

    for (; i + 8 <= k; i += 16) {
        __m256 v[TOKENS];

        for (int t = 0; t < tokens; t++)
            v[t] = _mm256_loadu_ps(x + (size_t)t * ldx + i);
        for (int c = 0; c < OUTPUTS; c++) {
            __m256 u = _mm256_loadu_ps(w[c] + i);

            for (int t = 0; t < tokens; t++)
                acc[c * TOKENS + t] = _mm256_fmadd_ps(u, v[t], acc[c * TOKENS + t]);
        }
    }
    if (i >= k)
        return;
    for (int t = 0; t < tokens; t++)
        for (int c = 0; c < OUTPUTS; c++) {
            __m256 f = _mm256_fmadd_ps(v8_load_some(w[c] + i, k - i), v8_load_some(x + (size_t)t * ldx + i, k - i),
                                       acc[c * TOKENS + t]);
            acc[c * TOKENS + t] = v8_first(acc[c * TOKENS + t], f, k - i);
        }
}

VEC_INLINE void tile(const struct cpu_dense *a, int o, int t0, int tokens)
{
    const float *w[OUTPUTS], *x = a->x + (size_t)t0 * a->ldx;
    __m256       lo[OUTPUTS * TOKENS], hi[OUTPUTS * TOKENS];

    for (int c = 0; c < OUTPUTS; c++)
        w[c] = (const float *)a->w + (size_t)(o + c < a->n ? o + c : a->n - 1) * a->ldw;
    for (int i = 0; i < OUTPUTS * TOKENS; i++)
        lo[i] = hi[i] = _mm256_setzero_ps();
    for (long i = 0; i < a->k; i += BLOCK) { /* short enough that the second half finds the first one's cache lines */
        long end = a->k - i < BLOCK ? a->k : i + BLOCK;

        half_tile(lo, w, x, a->ldx, end, i, tokens);
        half_tile(hi, w, x, a->ldx, end, i + 8, tokens);
    }
    for (int t = 0; t < tokens; t++)
        store(a, o, t0 + t,
              v8_folds(_mm256_add_ps(lo[t], hi[t]), _mm256_add_ps(lo[TOKENS + t], hi[TOKENS + t]),
                       _mm256_add_ps(lo[2 * TOKENS + t], hi[2 * TOKENS + t]),
                       _mm256_add_ps(lo[3 * TOKENS + t], hi[3 * TOKENS + t])));
}

/* Tokens outside: their inputs stay in the first-level cache while the outputs pass. */
static void dense_many(const struct cpu_dense *a)
{
    int t = 0;

    for (; t + TOKENS <= a->m; t += TOKENS)
        for (int o = 0; o < a->n; o += OUTPUTS)
            tile(a, o, t, TOKENS);
    for (int o = 0; o < a->n && a->m - t == 2; o += OUTPUTS)
        tile(a, o, t, 2);
    for (int o = 0; o < a->n && a->m - t == 1; o += OUTPUTS)
        tile(a, o, t, 1);
}

VEC_INLINE void rows(const struct cpu_dense *a, int o, int dtype)
{
    __m256 lo[ROWS], hi[ROWS];
    size_t at[ROWS];
    long   k = a->k, full = k & ~15L;

    for (int c = 0; c < ROWS; c++) {
        at[c] = (size_t)(o + c < a->n ? o + c : a->n - 1) * a->ldw;
        lo[c] = hi[c] = _mm256_setzero_ps();
    }
    for (long i = 0; i < full; i += 16) {
        __m256 x0 = _mm256_loadu_ps(a->x + i), x1 = _mm256_loadu_ps(a->x + i + 8);

        for (int c = 0; c < ROWS; c++) {
            lo[c] = _mm256_fmadd_ps(v8_load(a->w, at[c] + (size_t)i, dtype), x0, lo[c]);
            hi[c] = _mm256_fmadd_ps(v8_load(a->w, at[c] + (size_t)i + 8, dtype), x1, hi[c]);
        }
    }
    for (int c = 0; c < ROWS && full < k; c++) {
        long   left = k - full, more = left > 8 ? left - 8 : 0;
        __m256 f = _mm256_fmadd_ps(v8_load_part(a->w, at[c] + (size_t)full, dtype, left),
                                   v8_load_some(a->x + full, left), lo[c]);

        lo[c] = v8_first(lo[c], f, left);
        if (!more)
            continue;
        f = _mm256_fmadd_ps(v8_load_part(a->w, at[c] + (size_t)full + 8, dtype, more),
                            v8_load_some(a->x + full + 8, more), hi[c]);
        hi[c] = v8_first(hi[c], f, more);
    }
    store(a, o, 0, v8_folds(_mm256_add_ps(lo[0], hi[0]), _mm256_add_ps(lo[1], hi[1]), _mm256_add_ps(lo[2], hi[2]),
                            _mm256_add_ps(lo[3], hi[3])));
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

void kernels_dense_avx2(struct cpu_kernels *t)
{
    t->dense_one = dense_one;
    t->dense_many = dense_many;
}
