#ifndef LLMQ_QUANTIZE_GRID_H
#define LLMQ_QUANTIZE_GRID_H

/* The uniform integer grid: w = scale * (code - zero), code in [0, 2^bits), scale an F16 value above zero.
 *
 * Everything that rounds a weight goes through here, so that what a search measures is what the file holds:
 * scales are rounded to F16 first, then codes are chosen with the rounded scale.  Plain C, rows in any order:
 * nothing depends on threads or on the instruction set. */

#include "format/format.h"

#include <stdint.h>

/* Scale and zero point of the smallest grid that covers [lo, hi] and 0.  An empty range (all zero) gets scale 1.
 * A range too wide for F16 gives an infinite scale: see grid_check. */
void grid_cover(const struct llmq_scheme *s, float lo, float hi, float *scale, uint8_t *zero);
/* The same for `count` weights whose range is shrunk by a factor first. */
void grid_fit(const struct llmq_scheme *s, const float *w, uint32_t count, float shrink, float *scale, uint8_t *zero);
/* The nearest F16 that can stand as a scale. */
float grid_scale(float scale);

/* The same under weights p[count] >= 0 (all zero: as if all were one): the range, shrunk or widened a little, and then the
 * refitted scale that make sum p (Q(w) - w)^2 least. */
void grid_fit_weighted(const struct llmq_scheme *s, const float *w, const float *p, uint32_t count, float *scale, uint8_t *zero);

/* One group's grid, ready to round with.  A level is code - zero. */
struct grid_levels {
    float inv, scale, lo, hi;
    int   zero;
};
static inline struct grid_levels grid_levels_of(const struct llmq_scheme *s, float scale, uint8_t zero)
{
    struct grid_levels l = {1.0f / scale, scale, (float)-(int)zero, (float)((1 << s->bits) - 1 - (int)zero), zero};

    return l;
}

/* The nearest level, ties to even: adding and taking away 1.5 * 2^23 rounds exactly what was clamped to the grid, the
 * same on every machine, and without a call. */
static inline float grid_level(const struct grid_levels *l, float w)
{
    float t = w * l->inv;

    t = t > l->lo ? t : l->lo;
    t = t < l->hi ? t : l->hi;
    return (t + 12582912.0f) - 12582912.0f;
}

void grid_encode(const struct llmq_scheme *s, const float *w, uint32_t count, float scale, uint8_t zero, uint8_t *codes);
/* e = Q(w) - w with the nearest codes. */
void grid_residual(const struct llmq_scheme *s, const float *w, uint32_t count, float scale, uint8_t zero, float *e);
/* The same with the codes as they are; returns how many weights lie outside the grid by more than half a step. */
uint32_t grid_stored(const struct llmq_scheme *s, const float *w, const uint8_t *codes, uint32_t count, float scale, uint8_t zero, float *e);
/* c = code - zero, as float. */
void grid_levels(const struct llmq_scheme *s, const float *w, uint32_t count, float scale, uint8_t zero, float *c);

/* Whole matrices, parallel over rows.  scales, zeros: [n][groups]; zeros are filled in for symmetric grids too. */
void grid_fit_rows(const struct llmq_scheme *s, const float *w, uint32_t n, uint32_t k, float *scales, uint8_t *zeros);
void grid_encode_rows(const struct llmq_scheme *s, const float *w, uint32_t n, uint32_t k, const float *scales,
                      const uint8_t *zeros, uint8_t *codes);
/* Of each row, the sums of squares of Q(w) - w and of w: error and norm are [n]. */
void grid_error_rows(const struct llmq_scheme *s, const float *w, uint32_t n, uint32_t k, const float *scales,
                     const uint8_t *zeros, double *error, double *norm);

/* Every scale finite and above zero; the error names `where` and row. */
int grid_check(const float *scales, uint32_t n, uint32_t groups, const char *where, struct llmq_err *err) LLMQ_MUST_CHECK;

/* Inputs of group g in a row of k. */
static inline uint32_t grid_group_size(const struct llmq_scheme *s, uint32_t k, uint32_t g)
{
    uint32_t size = s->group ? s->group : k;

    return (g + 1) * size <= k ? size : k - g * size;
}

#endif
