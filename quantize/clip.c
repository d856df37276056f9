/* The grid of each row and group: min-max, then a smaller range where the output error says so, then the best scale
 * for the codes that this gave.
 *
 * The error of a group is (dw)^T H_gg (dw) with the group's diagonal block of H, which sees that neighbouring inputs
 * go together; a weight far out is worth cutting off when the finer steps of all others gain more.  All rows of a
 * group are tried at once, so that the products with H_gg are matrix products on the backend. */
#include "quantize/method.h"

#include "common/parallel.h"

#include <math.h>
#include <string.h>

enum { SHRINKS = 11, SHRINK_STEPS = 20, REFITS = 2, BLOCK_WEIGHTS = 1 << 20 };

struct clip {
    struct qmat             *q;
    const struct llmq_scheme *s;
    uint32_t                 g, size, row, rows; /* the group, its inputs, the rows at work */
    float                   *hgg;                /* [size][size] */
    float                   *e, *he, *c, *hc;    /* [rows][size] residuals and levels, and their products with H_gg */
    float                   *scale;              /* [rows] candidate */
    uint8_t                 *zero;
    double                  *loss;               /* [rows] of what stands in q */
    float                    shrink;
};

static const float *weights_of(const struct clip *c, size_t r)
{
    uint32_t group = c->s->group ? c->s->group : c->q->k;

    return c->q->w + (c->row + r) * c->q->k + (size_t)c->g * group;
}

static size_t grid_at(const struct clip *c, size_t r) { return (c->row + r) * c->q->groups + c->g; }

static double dot(const float *a, const float *b, size_t n)
{
    double sum[4] = {0, 0, 0, 0};
    size_t i = 0;

    for (; i + 4 <= n; i += 4)
        for (size_t l = 0; l < 4; l++)
            sum[l] += (double)a[i + l] * b[i + l];
    for (; i < n; i++)
        sum[0] += (double)a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static void residual_rows(void *ctx, long begin, long end, int thread)
{
    struct clip *c = ctx;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++) {
        if (c->shrink > 0)
            grid_fit(c->s, weights_of(c, r), c->size, c->shrink, &c->scale[r], &c->zero[r]);
        (void)grid_residual(c->s, weights_of(c, r), c->size, c->scale[r], c->zero[r], c->e + r * c->size);
    }
}

static void keep_better(void *ctx, long begin, long end, int thread)
{
    struct clip *c = ctx;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++) {
        double loss = dot(c->e + r * c->size, c->he + r * c->size, c->size);
        if (!(loss < c->loss[r]))
            continue;
        c->loss[r] = loss;
        c->q->scales[grid_at(c, r)] = c->scale[r];
        c->q->zeros[grid_at(c, r)] = c->zero[r];
    }
}

/* Tries the candidate grids (by shrink, or as they stand in scale and zero when shrink is 0). */
static void try_grids(struct job *j, struct clip *c, float shrink)
{
    c->shrink = shrink;
    llmq_parallel_for(c->rows, 32, residual_rows, c);
    model_matmul(j->m, c->e, (int)c->rows, c->hgg, (int)c->size, (int)c->size, c->he);
    llmq_parallel_for(c->rows, 32, keep_better, c);
}

static void level_rows(void *ctx, long begin, long end, int thread)
{
    struct clip *c = ctx;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++) {
        size_t at = grid_at(c, r);
        grid_levels(c->s, weights_of(c, r), c->size, c->q->scales[at], c->q->zeros[at], c->c + r * c->size);
    }
}

/* For fixed levels c the best scale is (c^T H w) / (c^T H c). */
static void refit_rows(void *ctx, long begin, long end, int thread)
{
    struct clip *c = ctx;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++) {
        const float *hc = c->hc + r * c->size;
        double       num = dot(hc, weights_of(c, r), c->size), den = dot(hc, c->c + r * c->size, c->size);
        float        old = c->q->scales[grid_at(c, r)];

        c->scale[r] = den > 0 && num > 0 ? grid_scale((float)(num / den)) : old;
        c->zero[r] = c->q->zeros[grid_at(c, r)];
    }
}

static void refit(struct job *j, struct clip *c)
{
    llmq_parallel_for(c->rows, 32, level_rows, c);
    model_matmul(j->m, c->c, (int)c->rows, c->hgg, (int)c->size, (int)c->size, c->hc);
    llmq_parallel_for(c->rows, 32, refit_rows, c);
    try_grids(j, c, 0);
}

static void one_group(struct job *j, struct clip *c, const struct stats *st)
{
    uint32_t first = c->g * (c->s->group ? c->s->group : c->q->k);

    c->size = grid_group_size(c->s, c->q->k, c->g);
    for (size_t i = 0; i < c->size; i++)
        memcpy(c->hgg + i * c->size, st->h + (first + i) * st->k + first, c->size * sizeof(float));
    for (uint32_t r = 0; r < c->rows; r++)
        c->loss[r] = (double)INFINITY;
    for (int i = 0; i < SHRINKS; i++)
        try_grids(j, c, 1.0f - (float)i / SHRINK_STEPS);
    for (int i = 0; i < REFITS; i++)
        refit(j, c);
}

static int clip_new(struct clip *c, struct qmat *q, struct llmq_arena *a, struct llmq_err *err)
{
    size_t size = q->scheme.group && q->scheme.group < q->k ? q->scheme.group : q->k, rows = BLOCK_WEIGHTS / size + 1;

    memset(c, 0, sizeof *c);
    c->q = q;
    c->s = &q->scheme;
    c->rows = (uint32_t)(rows < q->n ? rows : q->n);
    if (LLMQ_ARENA_NEW(a, &c->hgg, size * size, "a block of statistics", err) ||
        LLMQ_ARENA_NEW(a, &c->e, c->rows * size, "residuals", err) || LLMQ_ARENA_NEW(a, &c->he, c->rows * size, "residuals", err) ||
        LLMQ_ARENA_NEW(a, &c->c, c->rows * size, "levels", err) || LLMQ_ARENA_NEW(a, &c->hc, c->rows * size, "levels", err) ||
        LLMQ_ARENA_NEW(a, &c->scale, c->rows, "scales", err) || LLMQ_ARENA_NEW(a, &c->zero, c->rows, "zero points", err))
        return err->code;
    return LLMQ_ARENA_NEW(a, &c->loss, c->rows, "losses", err);
}

int clip_matrix(struct job *j, struct qmat *q, const struct stats *st, struct llmq_err *err)
{
    struct llmq_arena work = {0};
    struct clip       c;
    uint32_t          step;

    if (clip_new(&c, q, &work, err))
        goto out;
    step = c.rows;
    grid_fit_rows(&q->scheme, q->w, q->n, q->k, q->scales, q->zeros); /* stands where no candidate has a finite loss */
    for (c.row = 0; c.row < q->n; c.row += step) {
        c.rows = q->n - c.row < step ? q->n - c.row : step;
        for (c.g = 0; c.g < q->groups; c.g++)
            one_group(j, &c, st);
    }
out:
    llmq_arena_free(&work);
    return err->code;
}
