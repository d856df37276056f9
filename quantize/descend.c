/* Coordinate descent on what a matrix stores: every code, scale and zero point in turn takes the value that is best given
 * all the others.
 *
 * With e = Q - W the errors of a row, A the damped statistics and y = e A, a change d of e changes the row's loss
 * e A e^T by 2 d y + d A d^T.  So
 *
 *   a code     moves e_j by a multiple of the scale: best where e_j becomes e_j - y_j / A_jj
 *   a scale    moves e by ds times the levels l of its group: best at ds = -(l y) / (l A l), then rounded to F16
 *   a zero     moves the whole group by one step
 *
 * and a move is made only if it lowers the loss as stored.  (Behdin et al., "QuantEase", 2023, for the codes; refits of
 * the scales between passes as in Kim et al., "GuidedQuant", ICML 2025.)  It starts from the codes of GPTQ, which it can
 * only improve: GPTQ never comes back to a column. */
#include "quantize/method.h"

#include "common/parallel.h"

#include <string.h>

enum { CHUNK_WEIGHTS = 4 << 20, SWEEPS = 4, PASSES = 2, WIDTH = 256 };

struct descent {
    struct qmat           *q;
    const struct geometry *g;
    uint32_t               row, rows;       /* the rows at work */
    uint32_t               group, first, size; /* of columns */
    uint32_t               at, width;       /* the piece of the group whose codes are at work, from the group's first column */
    float                 *e;               /* [rows][k] */
    float                 *a;               /* [size][size] A of the group, packed; its column sums in ones */
    float                 *ones;            /* [size] */
    double                 all;             /* sum of a */
    float                 *y, *l, *al;      /* [rows][size] e A, levels, levels times A */
};

static size_t grid_at(const struct descent *c, size_t r) { return (c->row + r) * c->q->groups + c->group; }

static double dot(const float *x, const float *y, size_t n)
{
    double sum[4] = {0, 0, 0, 0};
    size_t i = 0;

    for (; i + 4 <= n; i += 4)
        for (size_t l = 0; l < 4; l++)
            sum[l] += (double)x[i + l] * y[i + l];
    for (; i < n; i++)
        sum[0] += (double)x[i] * y[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* ---- the group's part of A, and y ------------------------------------------------------------------------- */

static void begin_group(struct descent *c, uint32_t group)
{
    uint32_t k = c->q->k;

    c->group = group;
    c->first = group * (c->q->scheme.group ? c->q->scheme.group : k);
    c->size = grid_group_size(&c->q->scheme, k, group);
    c->all = 0;
    for (size_t i = 0; i < c->size; i++) {
        float *row = c->a + i * c->size;
        memcpy(row, c->g->h + (c->first + i) * k + c->first, c->size * sizeof *row);
        row[i] += c->g->damp * row[i];
        if (!(row[i] > 0))
            row[i] = 0;
        c->ones[i] = 0;
        for (size_t j = 0; j < c->size; j++)
            c->ones[i] += row[j];
        c->all += c->ones[i];
    }
}

/* What damping adds to y, and levels from codes. */
static void begin_rows(void *ctx, long begin, long end, int thread)
{
    struct descent *c = ctx;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++) {
        const float   *e = c->e + r * c->q->k + c->first;
        const uint8_t *codes = c->q->codes + (c->row + r) * c->q->k + c->first;
        float         *y = c->y + r * c->size, *l = c->l + r * c->size;
        int            zero = c->q->zeros[grid_at(c, r)];

        for (uint32_t i = 0; i < c->size; i++) {
            y[i] += c->g->damp * c->g->h[(size_t)(c->first + i) * (c->q->k + 1)] * e[i];
            l[i] = (float)((int)codes[i] - zero);
        }
    }
}

/* ---- scales and zero points ---------------------------------------------------------------------------------- */

static void move_scale(struct descent *c, size_t r)
{
    float *scale = &c->q->scales[grid_at(c, r)], *e = c->e + r * c->q->k + c->first, *y = c->y + r * c->size, change;
    const float *l = c->l + r * c->size, *al = c->al + r * c->size;
    double num = dot(l, y, c->size), den = dot(l, al, c->size), wanted = *scale - num / den;

    if (!(den > 0 && wanted > 0.5 * *scale && wanted < 2.0 * *scale))
        return;
    change = grid_scale((float)wanted) - *scale;
    if (!(2 * change * num + (double)change * change * den < 0))
        return;
    *scale += change;
    for (uint32_t i = 0; i < c->size; i++) {
        e[i] += change * l[i];
        y[i] += change * al[i];
    }
}

/* A zero point up or down by one: all levels go the other way. */
static void move_zero(struct descent *c, size_t r)
{
    uint8_t *zero = &c->q->zeros[grid_at(c, r)];
    float   *e = c->e + r * c->q->k + c->first, *y = c->y + r * c->size, *l = c->l + r * c->size, change;
    double   scale = c->q->scales[grid_at(c, r)], sum = 0;
    int      by;

    for (uint32_t i = 0; i < c->size; i++)
        sum += y[i];
    by = sum > 0 ? 1 : -1;
    if (!(scale * scale * c->all - 2 * scale * (sum * by) < 0) || *zero + by < 0 || *zero + by > (1 << c->q->scheme.bits) - 1)
        return;
    *zero = (uint8_t)(*zero + by);
    change = (float)(-by * scale);
    for (uint32_t i = 0; i < c->size; i++) {
        e[i] += change;
        y[i] += change * c->ones[i];
        l[i] -= (float)by;
    }
}

static void move_grids(void *ctx, long begin, long end, int thread)
{
    struct descent *c = ctx;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++) {
        move_scale(c, r);
        if (!c->q->scheme.symmetric)
            move_zero(c, r);
    }
}

/* ---- codes -------------------------------------------------------------------------------------------------------- */

static void move_codes(const struct descent *c, size_t r, struct grid_levels grid)
{
    float   *e = c->e + r * c->q->k + c->first + c->at, *y = c->y + r * c->size + c->at, *l = c->l + r * c->size + c->at;
    uint8_t *codes = c->q->codes + (c->row + r) * c->q->k + c->first + c->at;

    for (uint32_t i = 0; i < c->width; i++) {
        const float *a = c->a + (size_t)(c->at + i) * c->size + c->at;
        float        level, change;

        if (!(a[i] > 0))
            continue;
        level = grid_level(&grid, l[i] * grid.scale - y[i] / a[i]);
        if (level == l[i])
            continue;
        change = (level - l[i]) * grid.scale;
        l[i] = level;
        codes[i] = (uint8_t)((int)level + grid.zero);
        e[i] += change;
        for (uint32_t o = 0; o < c->width; o++)
            y[o] += change * a[o];
    }
}

static void move_rows(void *ctx, long begin, long end, int thread)
{
    struct descent *c = ctx;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++) {
        size_t             at = grid_at(c, r);
        struct grid_levels grid = grid_levels_of(&c->q->scheme, c->q->scales[at], c->q->zeros[at]);
        for (int pass = 0; pass < PASSES; pass++)
            move_codes(c, r, grid);
    }
}

/* ---- groups, sweeps, rows -------------------------------------------------------------------------------------------- */

static void multiply(struct job *j, struct descent *c)
{
    model_matmul(j->m, c->e, (int)c->rows, c->g->h + (size_t)c->first * c->q->k, (int)c->size, (int)c->q->k, c->y);
    llmq_parallel_for(c->rows, 16, begin_rows, c);
}

static void one_group(struct job *j, struct descent *c, uint32_t group)
{
    begin_group(c, group);
    multiply(j, c);
    model_matmul(j->m, c->l, (int)c->rows, c->a, (int)c->size, (int)c->size, c->al);
    llmq_parallel_for(c->rows, 16, move_grids, c);
    for (c->at = 0; c->at < c->size; c->at += WIDTH) {
        c->width = c->size - c->at < WIDTH ? c->size - c->at : WIDTH;
        if (c->at) /* a wide group: y of this piece knows nothing of the moves before it */
            multiply(j, c);
        llmq_parallel_for(c->rows, 8, move_rows, c);
    }
}

static void start_rows(void *ctx, long begin, long end, int thread)
{
    struct descent *c = ctx;
    const struct qmat *q = c->q;
    uint32_t        size = q->scheme.group ? q->scheme.group : q->k;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++)
        for (uint32_t i = 0; i < q->k; i++) {
            size_t at = (c->row + r) * q->k + i, grid = (c->row + r) * q->groups + i / size;
            c->e[r * q->k + i] = q->scales[grid] * (float)((int)q->codes[at] - q->zeros[grid]) - q->w[at];
        }
}

static int descent_new(struct descent *c, struct qmat *q, const struct geometry *g, struct llmq_arena *a, struct llmq_err *err)
{
    size_t size = q->scheme.group && q->scheme.group < q->k ? q->scheme.group : q->k, rows = CHUNK_WEIGHTS / q->k + 1;

    memset(c, 0, sizeof *c);
    c->q = q;
    c->g = g;
    c->rows = (uint32_t)(rows < q->n ? rows : q->n);
    rows = c->rows;
    if (LLMQ_ARENA_NEW(a, &c->e, rows * q->k, "residuals", err) || LLMQ_ARENA_NEW(a, &c->a, size * size, "a block of statistics", err) ||
        LLMQ_ARENA_NEW(a, &c->ones, size, "a block of statistics", err) || LLMQ_ARENA_NEW(a, &c->y, rows * size, "residuals", err) ||
        LLMQ_ARENA_NEW(a, &c->l, rows * size, "levels", err))
        return err->code;
    return LLMQ_ARENA_NEW(a, &c->al, rows * size, "levels", err);
}

int descend_matrix(struct job *j, struct qmat *q, const struct geometry *g, struct llmq_err *err)
{
    struct llmq_arena work = {0};
    struct descent    c;
    uint32_t          step;

    if (descent_new(&c, q, g, &work, err))
        goto out;
    step = c.rows;
    for (c.row = 0; c.row < q->n; c.row += step) {
        c.rows = q->n - c.row < step ? q->n - c.row : step;
        llmq_parallel_for(c.rows, 16, start_rows, &c);
        for (int sweep = 0; sweep < SWEEPS; sweep++)
            for (uint32_t group = 0; group < q->groups; group++)
                one_group(j, &c, group);
    }
out:
    llmq_arena_free(&work);
    return err->code;
}
