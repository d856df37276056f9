/* Cholesky factors by panels: a panel's columns are finished, then taken away from all columns to their right. */
#include "quantize/factor.h"

#include "common/alloc.h"
#include "common/parallel.h"
#include "runner/model/model.h"

#include <math.h>
#include <string.h>

enum { PANEL = 128, STRIPE = 256, LANES = 8 };

struct panel {
    float   *a; /* [k][k] */
    uint32_t k, from, to;
    float   *p;      /* [k - to][to - from] the panel's part below its triangle, compact */
    float   *update; /* [STRIPE][k] */
    uint32_t stripe, rows;
};

static float dot(const float *x, const float *y, uint32_t n)
{
    float    sum[LANES] = {0};
    uint32_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (uint32_t l = 0; l < LANES; l++)
            sum[l] += x[i + l] * y[i + l];
    for (; i < n; i++)
        sum[0] += x[i] * y[i];
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

/* L of the panel's own triangle; returns the column that fails, or k. */
static uint32_t triangle(const struct panel *c)
{
    for (uint32_t j = c->from; j < c->to; j++) {
        float *row = c->a + (size_t)j * c->k + c->from;
        float  d = row[j - c->from] - dot(row, row, j - c->from);
        if (!(d > 0 && d - d == 0))
            return j;
        row[j - c->from] = sqrtf(d);
        for (uint32_t i = j + 1; i < c->to; i++) {
            float *x = c->a + (size_t)i * c->k + c->from;
            x[j - c->from] = (x[j - c->from] - dot(x, row, j - c->from)) / row[j - c->from];
        }
    }
    return c->k;
}

/* The rows below the triangle: x = a L^-T. */
static void solve_rows(void *ctx, long begin, long end, int thread)
{
    const struct panel *c = ctx;
    uint32_t            width = c->to - c->from;

    (void)thread;
    for (size_t i = (size_t)begin; i < (size_t)end; i++) {
        float *x = c->a + (c->to + i) * c->k + c->from;
        for (uint32_t j = 0; j < width; j++) {
            const float *row = c->a + (size_t)(c->from + j) * c->k + c->from;
            x[j] = (x[j] - dot(x, row, j)) / row[j];
        }
        memcpy(c->p + i * width, x, width * sizeof *x);
    }
}

static void subtract_rows(void *ctx, long begin, long end, int thread)
{
    const struct panel *c = ctx;
    uint32_t            wide = c->stripe + c->rows;

    (void)thread;
    for (size_t i = (size_t)begin; i < (size_t)end; i++) {
        float       *a = c->a + (c->to + c->stripe + i) * c->k + c->to;
        const float *u = c->update + i * wide;
        for (size_t j = 0; j <= c->stripe + i; j++)
            a[j] -= u[j];
    }
}

/* A22 -= P P^T below the diagonal, a stripe of rows at a time. */
static void take_away(struct model *m, struct panel *c)
{
    uint32_t left = c->k - c->to, width = c->to - c->from;

    for (c->stripe = 0; c->stripe < left; c->stripe += STRIPE) {
        c->rows = left - c->stripe < STRIPE ? left - c->stripe : STRIPE;
        model_matmul(m, c->p + (size_t)c->stripe * width, (int)c->rows, c->p, (int)(c->stripe + c->rows), (int)width, c->update);
        llmq_parallel_for(c->rows, 16, subtract_rows, c);
    }
}

int factor_cholesky(struct model *m, float *a, uint32_t k, struct llmq_arena *work, uint32_t *failed, struct llmq_err *err)
{
    struct panel c = {.a = a, .k = k};

    *failed = k;
    if (LLMQ_ARENA_NEW(work, &c.p, (size_t)k * PANEL, "a panel", err) ||
        LLMQ_ARENA_NEW(work, &c.update, (size_t)STRIPE * k, "a stripe", err))
        return err->code;
    for (; c.from < k && *failed == k; c.from = c.to) {
        c.to = k - c.from < PANEL ? k : c.from + PANEL;
        *failed = triangle(&c);
        if (*failed < k)
            break;
        llmq_parallel_for(k - c.to, 8, solve_rows, &c);
        take_away(m, &c);
    }
    return 0;
}

void factor_unit(float *l, uint32_t k, float *pivots)
{
    for (uint32_t j = 0; j < k; j++)
        pivots[j] = l[(size_t)j * k + j]; /* still L_jj: rows below need it */
    for (uint32_t i = 0; i < k; i++)
        for (uint32_t j = 0; j <= i; j++)
            l[(size_t)i * k + j] /= pivots[j];
    for (uint32_t j = 0; j < k; j++)
        pivots[j] *= pivots[j];
}
