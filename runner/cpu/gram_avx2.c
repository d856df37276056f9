/* The Gram matrix with AVX2: outer products, 4 x 16 of a micro-tile at a time, summed over a chunk's tokens in
 * registers. */
#include "runner/cpu/kernels.h"
#include "runner/cpu/vec_avx2.h"

enum { ROWS = 4, COLS = 16 };

/* One row of sums into the doubles: the first `left` of 16 columns. */
VEC_INLINE void add_row(double *g, __m256 lo, __m256 hi, int left)
{
    float sum[COLS];

    if (left >= COLS) {
        _mm256_storeu_pd(g, _mm256_add_pd(_mm256_loadu_pd(g), _mm256_cvtps_pd(_mm256_castps256_ps128(lo))));
        _mm256_storeu_pd(g + 4, _mm256_add_pd(_mm256_loadu_pd(g + 4), _mm256_cvtps_pd(_mm256_extractf128_ps(lo, 1))));
        _mm256_storeu_pd(g + 8, _mm256_add_pd(_mm256_loadu_pd(g + 8), _mm256_cvtps_pd(_mm256_castps256_ps128(hi))));
        _mm256_storeu_pd(g + 12, _mm256_add_pd(_mm256_loadu_pd(g + 12), _mm256_cvtps_pd(_mm256_extractf128_ps(hi, 1))));
        return;
    }
    _mm256_storeu_ps(sum, lo);
    _mm256_storeu_ps(sum + 8, hi);
    for (int c = 0; c < left; c++)
        g[c] += (double)sum[c];
}

static void part(double *g, size_t ldg, const float *xi, const float *xj, size_t ldx, int tokens, int rows, int cols,
                 int diag)
{
    __m256 acc[ROWS][2];

    for (int r = 0; r < ROWS; r++)
        acc[r][0] = acc[r][1] = _mm256_setzero_ps();
    for (int t = 0; t < tokens; t++, xi += ldx, xj += ldx) {
        __m256 b0 = _mm256_loadu_ps(xj), b1 = _mm256_loadu_ps(xj + 8);

        for (int r = 0; r < ROWS; r++) {
            __m256 a = _mm256_set1_ps(xi[r]);

            acc[r][0] = _mm256_fmadd_ps(a, b0, acc[r][0]);
            acc[r][1] = _mm256_fmadd_ps(a, b1, acc[r][1]);
        }
    }
    for (int r = 0; r < ROWS; r++)
        if (r < rows)
            add_row(g + (size_t)r * ldg, acc[r][0], acc[r][1], cols < diag + r + 1 ? cols : diag + r + 1);
}

static void gram(double *g, size_t ldg, const float *xi, const float *xj, size_t ldx, int tokens, int rows, int cols,
                 int diag)
{
    for (int r = 0; r < rows; r += ROWS)
        for (int c = 0; c < cols; c += COLS)
            part(g + (size_t)r * ldg + c, ldg, xi + r, xj + c, ldx, tokens, rows - r, cols - c, diag + r - c);
}

void kernels_gram_avx2(struct cpu_kernels *t) { t->gram = gram; }
