/* The Gram matrix with AVX-512: an 8 x 32 micro-tile of outer products, summed over a chunk's tokens in registers. */
#include "runner/cpu/kernels.h"
#include "runner/cpu/vec_avx512.h"

/* One row of the tile into the double sums: the first `left` of 16 columns. */
VEC_INLINE void add_row(double *g, __m512 acc, long left)
{
    __mmask16 m = left <= 0 ? 0 : v16_mask(left);
    __mmask8  lo = (__mmask8)m, hi = (__mmask8)(m >> 8);

    _mm512_mask_storeu_pd(g, lo, _mm512_add_pd(_mm512_maskz_loadu_pd(lo, g),
                                               _mm512_cvtps_pd(_mm512_castps512_ps256(acc))));
    _mm512_mask_storeu_pd(g + 8, hi, _mm512_add_pd(_mm512_maskz_loadu_pd(hi, g + 8),
                                                   _mm512_cvtps_pd(_mm512_extractf32x8_ps(acc, 1))));
}

static void gram(double *g, size_t ldg, const float *xi, const float *xj, size_t ldx, int tokens, int rows, int cols,
                 int diag)
{
    __m512 acc[CPU_GRAM_I][2];

    for (int r = 0; r < CPU_GRAM_I; r++)
        acc[r][0] = acc[r][1] = _mm512_setzero_ps();
    for (int t = 0; t < tokens; t++, xi += ldx, xj += ldx) {
        __m512 b0 = _mm512_loadu_ps(xj), b1 = _mm512_loadu_ps(xj + 16);

        for (int r = 0; r < CPU_GRAM_I; r++) {
            __m512 a = _mm512_set1_ps(xi[r]);

            acc[r][0] = _mm512_fmadd_ps(a, b0, acc[r][0]);
            acc[r][1] = _mm512_fmadd_ps(a, b1, acc[r][1]);
        }
    }
    for (int r = 0; r < CPU_GRAM_I; r++) {
        long left = cols < diag + r + 1 ? cols : diag + r + 1;

        if (r >= rows)
            return;
        add_row(g + (size_t)r * ldg, acc[r][0], left);
        add_row(g + (size_t)r * ldg + 16, acc[r][1], left - 16);
    }
}

void kernels_gram_avx512(struct cpu_kernels *t) { t->gram = gram; }
