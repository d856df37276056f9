/* Moving a factor per channel from a linear into what feeds it: y = W x = (W diag s) (x / s).
 *
 * Where x comes from a norm, the norm's weight takes 1 / s.  Where it comes from another linear's rows (v for o, up
 * for down), those rows take it.  They are quantized already, and a row's codes stand for any multiple of it, so
 * only its scales change: nothing is rounded twice but the F16 scale. */
#include "quantize/method.h"

void fold_columns(float *w, uint32_t n, uint32_t k, const float *s)
{
    for (size_t r = 0; r < n; r++)
        for (size_t j = 0; j < k; j++)
            w[r * k + j] *= s[j];
}

void fold_divide(float *x, size_t rows, uint32_t k, const float *s)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < k; j++)
            x[r * k + j] /= s[j];
}

void fold_limits(const struct qmat *producer, float *lo, float *hi)
{
    for (uint32_t r = 0; r < producer->n; r++) {
        float least = 65504.0f, most = 0x1p-14f;
        for (uint32_t g = 0; g < producer->groups; g++) {
            float scale = producer->scales[(size_t)r * producer->groups + g];
            least = scale < least ? scale : least;
            most = scale > most ? scale : most;
        }
        hi[r] = least / 0x1p-14f > 1 ? least / 0x1p-14f : 1;
        lo[r] = most / 65504.0f;
    }
}

void fold_rows(struct qmat *producer, float *bias, const float *s)
{
    for (uint32_t r = 0; r < producer->n; r++) {
        for (uint32_t g = 0; g < producer->groups; g++) {
            size_t at = (size_t)r * producer->groups + g;
            producer->scales[at] = grid_scale(producer->scales[at] / s[r]);
        }
        if (bias)
            bias[r] /= s[r];
    }
}
