#ifndef LLMQ_QUANTIZE_FACTOR_H
#define LLMQ_QUANTIZE_FACTOR_H

/* Cholesky factors of statistics, on the backend of a model: A = L L^T, in float, blocked, sums in an order that
 * depends on k alone. */

#include "common/err.h"

#include <stdint.h>

struct llmq_arena;
struct model;

/* a [k][k]: the lower triangle is replaced by L, the rest is left alone.  *failed: the first column without a positive
 * pivot (a is then of no use), or k when there is none.  Errors: LLMQ_ENOMEM. */
int factor_cholesky(struct model *m, float *a, uint32_t k, struct llmq_arena *work, uint32_t *failed, struct llmq_err *err) LLMQ_MUST_CHECK;

/* L -> L diag(L)^-1, unit lower; pivots[j] = L_jj^2, so that A = L D L^T with D = diag(pivots). */
void factor_unit(float *l, uint32_t k, float *pivots);

#endif
