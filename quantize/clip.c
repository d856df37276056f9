/* The grid of each row and group: min-max, then a smaller range where the output error says so, then the best scale
 * for the codes that this gave.
 *
 * A weight far out is worth cutting off when the finer steps of all others gain more.  The error of a row is
 * e H e^T with e = Q(w) - w over all its groups.  Changing the grid of one group changes e by d there, and the error
 * by 2 d y + d H_gg d^T, where y = (e H)_g is what the row's other groups (and this one so far) have done wrong
 * already.  So groups are taken in turn, each against the present errors of the rest, twice over: coordinate descent
 * on the very loss, never upwards.  (The published clipping looks at d H_gg d^T alone; inputs have means and common
 * directions, so the errors of groups add up, and what is best for each alone is not best for the row.)
 *
 * All rows of a group are tried at once, so that products with H are matrix products on the backend. */
#include "quantize/method.h"

#include "common/parallel.h"

#include <string.h>

enum { SHRINKS = 11, SHRINK_STEPS = 20, REFITS = 1, SWEEPS = 2, BLOCK_WEIGHTS = 4 << 20 };

struct clip {
    struct qmat              *q;
    const struct llmq_scheme *s;
    const struct stats       *st;
    uint32_t                  row, rows;           /* the rows at work */
    uint32_t                  g, first, size;      /* the group, its first input, its inputs */
    float                    *e;                   /* [rows][k] present errors */
    float                    *hgg;                 /* [size][size] */
    float                    *y;                   /* [rows][size] (e H)_g */
    float                    *d, *hd;              /* [rows][size] change of a candidate (or levels), and its product */
    float                    *scale, *best_scale;  /* [rows] candidate and best so far */
    uint8_t                  *zero, *best_zero;
    double                   *gain;                /* [rows] change of the loss by the best so far, at most 0 */
    float                     shrink;
};

static const float *weights_of(const struct clip *c, size_t r) { return c->q->w + (c->row + r) * c->q->k + c->first; }
static float       *error_of(const struct clip *c, size_t r) { return c->e + r * c->q->k + c->first; }
static size_t       grid_at(const struct clip *c, size_t r) { return (c->row + r) * c->q->groups + c->g; }

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

static void times_hgg(struct job *j, struct clip *c)
{
    model_matmul(j->m, c->d, (int)c->rows, c->hgg, (int)c->size, (int)c->size, c->hd);
}

/* ---- candidates -------------------------------------------------------------------------------------- */

static void change_rows(void *ctx, long begin, long end, int thread)
{
    struct clip *c = ctx;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++) {
        const float *e = error_of(c, r);
        float       *d = c->d + r * c->size;

        if (c->shrink > 0)
            grid_fit(c->s, weights_of(c, r), c->size, c->shrink, &c->scale[r], &c->zero[r]);
        grid_residual(c->s, weights_of(c, r), c->size, c->scale[r], c->zero[r], d);
        for (uint32_t i = 0; i < c->size; i++)
            d[i] -= e[i];
    }
}

static void keep_better(void *ctx, long begin, long end, int thread)
{
    struct clip *c = ctx;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++) {
        const float *d = c->d + r * c->size;
        double       gain = 2 * dot(d, c->y + r * c->size, c->size) + dot(d, c->hd + r * c->size, c->size);

        if (!(gain < c->gain[r]))
            continue;
        c->gain[r] = gain;
        c->best_scale[r] = c->scale[r];
        c->best_zero[r] = c->zero[r];
    }
}

/* Tries candidates: by shrink, or as they stand in scale and zero when shrink is 0. */
static void try_grids(struct job *j, struct clip *c, float shrink)
{
    c->shrink = shrink;
    llmq_parallel_for(c->rows, 32, change_rows, c);
    times_hgg(j, c);
    llmq_parallel_for(c->rows, 32, keep_better, c);
}

/* ---- taking the best ------------------------------------------------------------------------------------ */

static void load_best(void *ctx, long begin, long end, int thread)
{
    struct clip *c = ctx;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++) {
        c->q->scales[grid_at(c, r)] = c->scale[r] = c->best_scale[r];
        c->q->zeros[grid_at(c, r)] = c->zero[r] = c->best_zero[r];
        c->gain[r] = 0;
    }
}

static void add_change(void *ctx, long begin, long end, int thread)
{
    struct clip *c = ctx;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++) {
        grid_residual(c->s, weights_of(c, r), c->size, c->scale[r], c->zero[r], error_of(c, r));
        for (uint32_t i = 0; i < c->size; i++)
            c->y[r * c->size + i] += c->hd[r * c->size + i];
    }
}

static void take_best(struct job *j, struct clip *c)
{
    llmq_parallel_for(c->rows, 64, load_best, c);
    c->shrink = 0;
    llmq_parallel_for(c->rows, 32, change_rows, c);
    times_hgg(j, c);
    llmq_parallel_for(c->rows, 32, add_change, c);
}

/* ---- the best scale for fixed levels ----------------------------------------------------------------------- */

static void level_rows(void *ctx, long begin, long end, int thread)
{
    struct clip *c = ctx;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++) {
        size_t at = grid_at(c, r);
        grid_levels(c->s, weights_of(c, r), c->size, c->q->scales[at], c->q->zeros[at], c->d + r * c->size);
    }
}

/* Adding t times the levels l to e changes the loss by 2 t l y + t^2 l H l: least at t = -(l y) / (l H l). */
static void refit_rows(void *ctx, long begin, long end, int thread)
{
    struct clip *c = ctx;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++) {
        const float *l = c->d + r * c->size;
        double       num = dot(l, c->y + r * c->size, c->size), den = dot(l, c->hd + r * c->size, c->size);
        float        old = c->q->scales[grid_at(c, r)];
        double       scale = den > 0 ? old - num / den : old;

        c->scale[r] = scale > 0.5 * old && scale < 2.0 * old ? grid_scale((float)scale) : old;
        c->zero[r] = c->q->zeros[grid_at(c, r)];
    }
}

static void refit(struct job *j, struct clip *c)
{
    llmq_parallel_for(c->rows, 32, level_rows, c);
    times_hgg(j, c);
    llmq_parallel_for(c->rows, 32, refit_rows, c);
    try_grids(j, c, 0);
    take_best(j, c);
}

/* ---- groups, sweeps, blocks of rows -------------------------------------------------------------------------- */

static void begin_group(struct job *j, struct clip *c, uint32_t g)
{
    const float *h;

    c->g = g;
    c->first = g * (c->s->group ? c->s->group : c->q->k);
    c->size = grid_group_size(c->s, c->q->k, g);
    h = c->st->h + (size_t)c->first * c->q->k;
    for (size_t i = 0; i < c->size; i++)
        memcpy(c->hgg + i * c->size, h + i * c->q->k + c->first, c->size * sizeof(float));
    model_matmul(j->m, c->e, (int)c->rows, h, (int)c->size, (int)c->q->k, c->y);
    for (uint32_t r = 0; r < c->rows; r++) {
        c->gain[r] = 0;
        c->best_scale[r] = c->q->scales[grid_at(c, r)];
        c->best_zero[r] = c->q->zeros[grid_at(c, r)];
    }
}

static void one_group(struct job *j, struct clip *c, uint32_t g)
{
    begin_group(j, c, g);
    for (int i = 0; i < SHRINKS; i++)
        try_grids(j, c, 1.0f - (float)i / SHRINK_STEPS);
    take_best(j, c);
    for (int i = 0; i < REFITS; i++)
        refit(j, c);
}

static void start_rows(void *ctx, long begin, long end, int thread)
{
    struct clip *c = ctx;
    uint32_t     size = c->s->group ? c->s->group : c->q->k;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++)
        for (uint32_t g = 0; g < c->q->groups; g++) {
            size_t at = (c->row + r) * c->q->groups + g;
            grid_residual(c->s, c->q->w + (c->row + r) * c->q->k + (size_t)g * size, grid_group_size(c->s, c->q->k, g),
                                c->q->scales[at], c->q->zeros[at], c->e + r * c->q->k + (size_t)g * size);
        }
}

static int clip_new(struct clip *c, struct qmat *q, const struct stats *st, struct llmq_arena *a, struct llmq_err *err)
{
    size_t size = q->scheme.group && q->scheme.group < q->k ? q->scheme.group : q->k, rows = BLOCK_WEIGHTS / q->k + 1;

    memset(c, 0, sizeof *c);
    c->q = q;
    c->s = &q->scheme;
    c->st = st;
    c->rows = (uint32_t)(rows < q->n ? rows : q->n);
    rows = c->rows;
    if (LLMQ_ARENA_NEW(a, &c->e, rows * q->k, "residuals", err) || LLMQ_ARENA_NEW(a, &c->hgg, size * size, "a block of statistics", err) ||
        LLMQ_ARENA_NEW(a, &c->y, rows * size, "residuals", err) || LLMQ_ARENA_NEW(a, &c->d, rows * size, "residuals", err) ||
        LLMQ_ARENA_NEW(a, &c->hd, rows * size, "residuals", err) || LLMQ_ARENA_NEW(a, &c->scale, rows, "scales", err) ||
        LLMQ_ARENA_NEW(a, &c->best_scale, rows, "scales", err) || LLMQ_ARENA_NEW(a, &c->zero, rows, "zero points", err) ||
        LLMQ_ARENA_NEW(a, &c->best_zero, rows, "zero points", err))
        return err->code;
    return LLMQ_ARENA_NEW(a, &c->gain, rows, "losses", err);
}

int clip_matrix(struct job *j, struct qmat *q, const struct stats *st, struct llmq_err *err)
{
    struct llmq_arena work = {0};
    struct clip       c;
    uint32_t          step;

    grid_fit_rows(&q->scheme, q->w, q->n, q->k, q->scales, q->zeros);
    if (clip_new(&c, q, st, &work, err))
        goto out;
    step = c.rows;
    for (c.row = 0; c.row < q->n; c.row += step) {
        c.rows = q->n - c.row < step ? q->n - c.row : step;
        llmq_parallel_for(c.rows, 16, start_rows, &c);
        for (int sweep = 0; sweep < SWEEPS; sweep++)
            for (uint32_t g = 0; g < q->groups; g++)
                one_group(j, &c, g);
    }
out:
    llmq_arena_free(&work);
    return err->code;
}
