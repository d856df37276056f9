/* GPTQ: weights are rounded one column after the other, and each rounding error is made good, as far as it can be, by
 * the columns that are still to come (Frantar et al., "GPTQ", ICLR 2023).
 *
 * The published algorithm updates the remaining weights with rows of the Cholesky factor of H^-1.  It is the nearest-
 * plane algorithm of Babai on the lattice with Gram matrix H ("The geometry of LLM quantization", ICLR 2026), and
 * that needs no inverse: with H = L D L^T, L unit lower, the loss of a row with errors e = w - q is
 *
 *     e H e^T = sum over j  D_j (e_j + sum over i > j of e_i L_ij)^2
 *
 * so, going from the last column to the first, q_j is w_j + sum over i > j of e_i L_ij, rounded.  Each term is then at most
 * D_j s_j^2 / 4.  One factorization, half the work of the inverse form, and none of its loss of precision.
 *
 * Columns stand in ascending order of their statistics, so that the most important ones are rounded first, when
 * all others can still make good for them; grids belong to the columns' original groups, so the file knows nothing
 * of the order ("static groups").
 *
 * Damping is relative to each column's own statistics (H + damp diag H: the factor of the correlations plus damp I).
 * The published damping adds one part in a hundred of the mean; where few channels are hundreds of times louder than the
 * rest, that drowns all others and turns them to nearest rounding. */
#include "quantize/method.h"

#include "common/parallel.h"
#include "quantize/factor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 128, LADDER = 7, CHUNK_WEIGHTS = 4 << 20 };
#define DAMP 0.01f

/* ---- the factor ---------------------------------------------------------------------------------------- */

struct rank { float h; uint32_t column; };

static int by_importance(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;

    return x->h != y->h ? (x->h < y->h ? -1 : 1) : (x->column > y->column) - (x->column < y->column);
}

static int rank_columns(const struct stats *st, struct geometry *g, struct llmq_arena *work, struct llmq_err *err)
{
    struct rank *rank;

    if (LLMQ_ARENA_NEW(work, &rank, g->k, "an order of columns", err) ||
        LLMQ_ARENA_NEW(work, &g->order, g->k, "an order of columns", err) || LLMQ_ARENA_NEW(work, &g->pivot, g->k, "pivots", err) ||
        LLMQ_ARENA_NEW(work, &g->weight, g->k, "pivots", err))
        return err->code;
    for (uint32_t c = 0; c < g->k; c++)
        rank[c] = (struct rank){st->h[(size_t)c * g->k + c], c};
    qsort(rank, g->k, sizeof *rank, by_importance);
    for (uint32_t i = 0; i < g->k; i++)
        g->order[i] = rank[i].column;
    return 0;
}

/* Correlations by places, plus damping; a column that never carries anything stands alone. */
static void correlations(void *ctx, long begin, long end, int thread)
{
    const struct geometry *g = ctx;
    size_t                 k = g->k;

    (void)thread;
    for (size_t i = (size_t)begin; i < (size_t)end; i++) {
        const float *row = g->h + g->order[i] * k;
        for (size_t j = 0; j < i; j++) {
            float both = g->pivot[i] * g->pivot[j]; /* square roots of the diagonal for now */
            g->l[i * k + j] = both > 0 ? row[g->order[j]] / both : 0;
        }
        g->l[i * k + i] = 1.0f + g->damp;
    }
}

/* L of the correlations to L of A: A = S C S with S the square roots, so L_ij takes S_i / S_j, the pivot S_j^2. */
static void unscale(struct geometry *g, const float *root)
{
    for (size_t i = 0; i < g->k; i++)
        for (size_t j = 0; j < i; j++)
            g->l[i * g->k + j] *= root[j] > 0 ? root[i] / root[j] : 0;
    for (size_t j = 0; j < g->k; j++) {
        g->pivot[j] *= root[j] * root[j];
        g->weight[g->order[j]] = g->pivot[j];
    }
}

int geometry_new(struct job *j, const struct stats *st, struct geometry *g, struct llmq_arena *work, const char **fault, struct llmq_err *err)
{
    float   *root;
    uint32_t failed = 0;

    *g = (struct geometry){.k = st->k, .h = st->h, .l = st->spare, .damp = DAMP};
    *fault = NULL;
    if (rank_columns(st, g, work, err) || LLMQ_ARENA_NEW(work, &root, g->k, "square roots", err))
        return err->code;
    for (int rung = 0; rung < LADDER; rung++, g->damp *= 2) {
        for (uint32_t i = 0; i < g->k; i++)
            g->pivot[i] = root[i] = sqrtf(st->h[(size_t)g->order[i] * g->k + g->order[i]]);
        llmq_parallel_for(g->k, 16, correlations, g);
        if (factor_cholesky(j->m, g->l, g->k, work, &failed, err))
            return err->code;
        if (failed == g->k)
            break;
    }
    if (failed < g->k) {
        *fault = "its statistics are not positive definite";
        return 0;
    }
    factor_unit(g->l, g->k, g->pivot);
    unscale(g, root);
    return 0;
}

/* ---- grids ------------------------------------------------------------------------------------------------- */

struct grids {
    struct qmat           *q;
    const struct geometry *g;
};

static void fit_rows(void *ctx, long begin, long end, int thread)
{
    const struct grids *c = ctx;
    struct qmat        *q = c->q;
    uint32_t            size = q->scheme.group ? q->scheme.group : q->k;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++)
        for (uint32_t g = 0; g < q->groups; g++)
            grid_fit_weighted(&q->scheme, q->w + r * q->k + (size_t)g * size, c->g->weight + (size_t)g * size,
                              grid_group_size(&q->scheme, q->k, g), &q->scales[r * q->groups + g], &q->zeros[r * q->groups + g]);
}

void gptq_grids(struct qmat *q, const struct geometry *g)
{
    struct grids c = {q, g};

    llmq_parallel_for(q->n, 4, fit_rows, &c);
}

/* ---- codes ------------------------------------------------------------------------------------------------------ */

struct pass {
    struct qmat           *q;
    const struct geometry *g;
    uint32_t               row, rows, from, to; /* rows at work; places [from, to) */
    float                 *t;      /* [rows][k] by places: w and what the columns done so far add to it */
    float                 *e;      /* [rows][to - from] errors of the block */
    float                 *lt;     /* [from][to - from] L of the block, transposed */
    float                 *update; /* [rows][from] */
};

static void load_rows(void *ctx, long begin, long end, int thread)
{
    const struct pass *p = ctx;
    uint32_t           k = p->q->k;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++)
        for (uint32_t i = 0; i < k; i++)
            p->t[r * k + i] = p->q->w[(p->row + r) * k + p->g->order[i]];
}

/* One row through the block, from the last place to the first. */
static void round_row(const struct pass *p, size_t r)
{
    struct qmat *q = p->q;
    size_t       k = q->k, row = p->row + r, width = p->to - p->from;
    uint32_t     size = q->scheme.group ? q->scheme.group : q->k;
    float       *t = p->t + r * k + p->from, *errors = p->e + r * width;

    for (size_t i = width; i-- > 0;) {
        uint32_t           column = p->g->order[p->from + i];
        size_t             at = row * q->groups + column / size;
        const float       *l = p->g->l + (p->from + i) * k + p->from;
        struct grid_levels grid = grid_levels_of(&q->scheme, q->scales[at], q->zeros[at]);
        float              level = grid_level(&grid, t[i]), e = q->w[row * k + column] - level * grid.scale;

        q->codes[row * k + column] = (uint8_t)((int)level + grid.zero);
        errors[i] = e;
        for (size_t c = 0; c < i; c++)
            t[c] += e * l[c];
    }
}

static void round_rows(void *ctx, long begin, long end, int thread)
{
    (void)thread;
    for (long r = begin; r < end; r++)
        round_row(ctx, (size_t)r);
}

static void transpose_rows(void *ctx, long begin, long end, int thread)
{
    const struct pass *p = ctx;
    size_t             width = p->to - p->from;

    (void)thread;
    for (size_t c = (size_t)begin; c < (size_t)end; c++)
        for (size_t i = 0; i < width; i++)
            p->lt[c * width + i] = p->g->l[(p->from + i) * p->g->k + c];
}

static void add_rows(void *ctx, long begin, long end, int thread)
{
    const struct pass *p = ctx;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++)
        for (size_t c = 0; c < p->from; c++)
            p->t[r * p->q->k + c] += p->update[r * p->from + c];
}

static void pass_on(struct job *j, struct pass *p)
{
    if (!p->from)
        return;
    llmq_parallel_for(p->from, 16, transpose_rows, p);
    model_matmul(j->m, p->e, (int)p->rows, p->lt, (int)p->from, (int)(p->to - p->from), p->update);
    llmq_parallel_for(p->rows, 16, add_rows, p);
}

static int pass_new(struct pass *p, struct qmat *q, const struct geometry *g, struct llmq_arena *a, struct llmq_err *err)
{
    size_t rows = CHUNK_WEIGHTS / q->k + 1;

    *p = (struct pass){.q = q, .g = g, .rows = (uint32_t)(rows < q->n ? rows : q->n)};
    if (LLMQ_ARENA_NEW(a, &p->t, (size_t)p->rows * q->k, "weights by importance", err) ||
        LLMQ_ARENA_NEW(a, &p->update, (size_t)p->rows * q->k, "corrections", err) ||
        LLMQ_ARENA_NEW(a, &p->e, (size_t)p->rows * BLOCK, "rounding errors", err))
        return err->code;
    return LLMQ_ARENA_NEW(a, &p->lt, (size_t)q->k * BLOCK, "a block of the factor", err);
}

int gptq_codes(struct job *j, struct qmat *q, const struct geometry *g, struct llmq_err *err)
{
    struct llmq_arena work = {0};
    struct pass       p;
    uint32_t          step;

    if (pass_new(&p, q, g, &work, err))
        goto out;
    step = p.rows;
    for (p.row = 0; p.row < q->n; p.row += step) {
        p.rows = q->n - p.row < step ? q->n - p.row : step;
        llmq_parallel_for(p.rows, 16, load_rows, &p);
        for (p.to = q->k; p.to; p.to = p.from) {
            p.from = p.to > BLOCK ? p.to - BLOCK : 0;
            llmq_parallel_for(p.rows, 4, round_rows, &p);
            pass_on(j, &p);
        }
    }
out:
    llmq_arena_free(&work);
    return err->code;
}
