/* The scale search: factors s per input channel that make the quantized linear closest to the true one.
 *
 * y = W x = (W diag s)(x / s).  A channel with large inputs gets finer steps when its column is scaled up, at the
 * cost of the channels that share its groups (Lin et al., "AWQ", MLSys 2024).  Candidates are
 *
 *   plain: s = m^a               duo: s = m^a / (v^(1-a) + 1e-4)         a = 0, 1/20, .., 1
 *
 * with m the mean |x| of a channel and v the mean of |w| over the largest |w| of its group.  The published search
 * runs the block for each candidate; for one linear the squared error of its output is exactly
 *
 *   sum over rows of dw H dw^T,   dw = Q(w s) / s - w,   H = mean of x x^T
 *
 * so no forward pass is needed, and a sample of rows will do.  The identity is measured first, every candidate
 * starts from the original W, and one that is not strictly better, or not finite, is not taken. */
#include "quantize/method.h"

#include "common/fmath.h"
#include "common/parallel.h"
#include "common/rng.h"

#include <string.h>

enum { STEPS = 20, ROWS_MIN = 64, ROWS_SHARE = 8 };
#define MEAN_MIN 1e-8
#define SCALE_FLOOR 1e-4

struct search {
    struct job             *j;
    const struct stage *st;
    const struct llmq_scheme *scheme;
    uint32_t                rows, k, np; /* sampled rows, inputs, producer channels */
    int                     first[4];    /* rows of matrix i: first[i] .. first[i + 1] - 1 */
    double                  weight[3];   /* rows that a sampled row stands for */
    float                  *w, *e, *he;  /* [rows][k] */
    double                 *loss;        /* [rows] */
    double                 *m, *v;       /* [np] */
    float                  *lo, *hi;     /* [np] limits, or NULL */
    float                  *sp, *s;      /* [np], [k] the candidate */
    uint32_t               *pick, *outside; /* [rows] row of its matrix; weights off the grid */
    double                  norm[3], identity[3]; /* by matrix: w H w^T, and the loss with all factors 1 */
};

/* ---- what the candidates are made of ------------------------------------------------------------- */

static uint32_t sampled_rows(uint32_t n)
{
    uint32_t rows = n / ROWS_SHARE > ROWS_MIN ? n / ROWS_SHARE : ROWS_MIN;

    return rows < n ? rows : n;
}

/* One row out of each of `rows` equal strata, so that no period of the matrix (a head's size) is favoured. */
static void take_rows(struct search *s)
{
    struct llmq_rng rng;

    llmq_rng_seed(&rng, s->j->o->seed);
    for (int i = 0; i < s->st->n; i++) {
        const struct qmat *q = s->st->mat[i];
        uint32_t           rows = (uint32_t)(s->first[i + 1] - s->first[i]);
        for (uint32_t r = 0; r < rows; r++) {
            uint32_t from = (uint32_t)((uint64_t)r * q->n / rows), to = (uint32_t)((uint64_t)(r + 1) * q->n / rows);
            size_t   at = (size_t)s->first[i] + r;
            s->pick[at] = from + (uint32_t)(llmq_rng_unit(&rng) * (to - from));
            memcpy(s->w + at * s->k, q->w + (size_t)s->pick[at] * q->k, s->k * sizeof *s->w);
        }
        s->weight[i] = (double)q->n / rows;
    }
}

struct mean_job {
    const struct qmat *q;
    double            *sum; /* [k] */
};

static void weight_means(void *ctx, long begin, long end, int thread)
{
    const struct mean_job *j = ctx;
    const struct qmat     *q = j->q;
    uint32_t               size = q->scheme.group ? q->scheme.group : q->k;

    (void)thread;
    for (long g = begin; g < end; g++)
        for (uint32_t r = 0; r < q->n; r++) {
            const float *w = q->w + (size_t)r * q->k + (size_t)g * size;
            double      *sum = j->sum + (size_t)g * size;
            uint32_t     count = grid_group_size(&q->scheme, q->k, (uint32_t)g);
            float        most = 0;
            for (uint32_t c = 0; c < count; c++)
                most = fabsf(w[c]) > most ? fabsf(w[c]) : most;
            for (uint32_t c = 0; most > 0 && c < count; c++)
                sum[c] += (double)(fabsf(w[c]) / most);
        }
}

/* Means per producer channel; `sum` is scratch, [k]. */
static void channel_means(struct search *s, double *sum)
{
    uint32_t rows = 0, share = s->k / s->np;

    for (int i = 0; i < s->st->n; i++) {
        struct mean_job j = {s->st->mat[i], sum};
        llmq_parallel_for(s->st->mat[i]->groups, 1, weight_means, &j);
        rows += s->st->mat[i]->n;
    }
    for (uint32_t c = 0; c < s->k; c++) {
        s->m[stage_producer(s->st, c)] += s->st->stats->mean[c] / share;
        s->v[stage_producer(s->st, c)] += sum[c] / ((double)rows * share);
    }
}

int search_new(struct search **out, struct job *j, const struct stage *st, struct llmq_arena *a, struct llmq_err *err)
{
    struct search *s;
    double        *sum;

    if (LLMQ_ARENA_NEW(a, out, 1, "a search", err))
        return err->code;
    s = *out;
    *s = (struct search){.j = j, .st = st, .scheme = &st->mat[0]->scheme, .k = st->mat[0]->k, .np = stage_producers(st)};
    for (int i = 0; i < st->n; i++) {
        s->first[i] = (int)s->rows;
        s->rows += sampled_rows(st->mat[i]->n);
        s->first[i + 1] = (int)s->rows;
    }
    if (LLMQ_ARENA_NEW(a, &s->w, (size_t)s->rows * s->k, "sampled rows", err) ||
        LLMQ_ARENA_NEW(a, &s->e, (size_t)s->rows * s->k, "residuals", err) ||
        LLMQ_ARENA_NEW(a, &s->he, (size_t)s->rows * s->k, "residuals", err) || LLMQ_ARENA_NEW(a, &s->loss, s->rows, "losses", err) ||
        LLMQ_ARENA_NEW(a, &s->m, s->np, "channel means", err) || LLMQ_ARENA_NEW(a, &s->v, s->np, "channel means", err) ||
        LLMQ_ARENA_NEW(a, &s->sp, s->np, "factors", err) || LLMQ_ARENA_NEW(a, &s->s, s->k, "factors", err) ||
        LLMQ_ARENA_NEW(a, &sum, s->k, "channel means", err) || LLMQ_ARENA_NEW(a, &s->pick, s->rows, "sampled rows", err) ||
        LLMQ_ARENA_NEW(a, &s->outside, s->rows, "counts", err))
        return err->code;
    if (st->rows && (LLMQ_ARENA_NEW(a, &s->lo, s->np, "limits", err) || LLMQ_ARENA_NEW(a, &s->hi, s->np, "limits", err)))
        return err->code;
    if (st->rows)
        fold_limits(st->rows, s->lo, s->hi);
    take_rows(s);
    channel_means(s, sum);
    return 0;
}

/* ---- candidates -------------------------------------------------------------------------------------- */

/* Channels that never carry anything keep factor 1 and do not take part in the normalisation. */
static void normalise(struct search *s)
{
    double least = INFINITY, most = 0, mid;

    for (uint32_t p = 0; p < s->np; p++)
        if (s->m[p] > 0) {
            least = s->sp[p] < least ? (double)s->sp[p] : least;
            most = s->sp[p] > most ? (double)s->sp[p] : most;
        }
    mid = sqrt(least * most);
    for (uint32_t p = 0; p < s->np; p++) {
        s->sp[p] = s->m[p] > 0 ? (float)(s->sp[p] / mid) : 1.0f;
        if (s->lo) {
            s->sp[p] = s->sp[p] > s->lo[p] ? s->sp[p] : s->lo[p];
            s->sp[p] = s->sp[p] < s->hi[p] ? s->sp[p] : s->hi[p];
        }
    }
}

/* The factors of candidate (duo, step); 0 when they are not all finite and above zero. */
static int candidate(struct search *s, int duo, int step)
{
    double alpha = (double)step / STEPS;

    for (uint32_t p = 0; p < s->np; p++) {
        double f = llmq_pow(s->m[p] > MEAN_MIN ? s->m[p] : MEAN_MIN, alpha);
        if (duo)
            f /= llmq_pow(s->v[p] > MEAN_MIN ? s->v[p] : MEAN_MIN, 1 - alpha) + SCALE_FLOOR;
        s->sp[p] = (float)(f > SCALE_FLOOR ? f : SCALE_FLOOR);
    }
    normalise(s);
    for (uint32_t c = 0; c < s->k; c++) {
        s->s[c] = s->sp[stage_producer(s->st, c)];
        if (!(s->s[c] > 0 && s->s[c] - s->s[c] == 0))
            return 0;
    }
    return 1;
}

/* ---- the loss ------------------------------------------------------------------------------------------ */

/* e = Q(w s) / s - w of one row; e holds w s in between. */
static void residual_row(const struct search *s, size_t r)
{
    const float *w = s->w + r * s->k;
    float       *e = s->e + r * s->k;
    uint32_t     size = s->scheme->group ? s->scheme->group : s->k;

    for (uint32_t c = 0; c < s->k; c++)
        e[c] = w[c] * s->s[c];
    for (uint32_t at = 0, g = 0; at < s->k; at += size, g++) {
        uint32_t count = grid_group_size(s->scheme, s->k, g);
        float    scale;
        uint8_t  zero;
        grid_fit(s->scheme, e + at, count, 1.0f, &scale, &zero);
        grid_residual(s->scheme, e + at, count, scale, zero, e + at);
    }
    for (uint32_t c = 0; c < s->k; c++)
        e[c] /= s->s[c];
}

static void residual_rows(void *ctx, long begin, long end, int thread)
{
    (void)thread;
    for (long r = begin; r < end; r++)
        residual_row(ctx, (size_t)r);
}

static void loss_rows(void *ctx, long begin, long end, int thread)
{
    struct search *s = ctx;

    (void)thread;
    for (size_t r = (size_t)begin; r < (size_t)end; r++) {
        double sum = 0;
        for (uint32_t c = 0; c < s->k; c++)
            sum += (double)s->e[r * s->k + c] * s->he[r * s->k + c];
        s->loss[r] = sum;
    }
}

/* sum over a matrix' sampled rows of e H e^T, for what stands in e. */
static double loss_of_e(struct search *s, double by_matrix[3])
{
    double total = 0;

    model_matmul(s->j->m, s->e, (int)s->rows, s->st->stats->h, (int)s->k, (int)s->k, s->he);
    llmq_parallel_for(s->rows, 16, loss_rows, s);
    for (int i = 0; i < s->st->n; i++) {
        by_matrix[i] = 0;
        for (int r = s->first[i]; r < s->first[i + 1]; r++)
            by_matrix[i] += s->loss[r];
        by_matrix[i] *= s->weight[i];
        total += by_matrix[i];
    }
    return total;
}

static double loss_of_candidate(struct search *s, double by_matrix[3])
{
    llmq_parallel_for(s->rows, 8, residual_rows, s);
    return loss_of_e(s, by_matrix);
}

/* ---- the search ------------------------------------------------------------------------------------------ */

static void take_if_better(struct search *s, struct stage *st, int duo, int step, double *best)
{
    double loss, by_matrix[3];

    if (!candidate(s, duo, step))
        return;
    loss = loss_of_candidate(s, by_matrix);
    if (!(loss < *best))
        return;
    *best = loss;
    st->scaled = 1;
    memcpy(st->s, s->s, s->k * sizeof *st->s);
}

void search_run(struct search *s, struct stage *st)
{
    double best;

    for (uint32_t c = 0; c < s->k; c++)
        st->s[c] = s->s[c] = 1.0f;
    st->scaled = 0;
    memcpy(s->e, s->w, (size_t)s->rows * s->k * sizeof *s->e);
    (void)loss_of_e(s, s->norm);
    best = loss_of_candidate(s, s->identity);
    if (!(best - best == 0)) {
        st->fault = "its error is not finite";
        return;
    }
    for (int i = 0; i < 2 * (STEPS + 1) && (s->j->o->method & QUANTIZE_AWQ) && !s->j->o->no_scale; i++)
        take_if_better(s, st, i > STEPS, i % (STEPS + 1), &best);
}

/* ---- the error of the result --------------------------------------------------------------------------- */

static void final_row(const struct search *s, const struct qmat *q, size_t r)
{
    size_t   row = s->pick[r];
    uint32_t size = q->scheme.group ? q->scheme.group : q->k;

    s->outside[r] = 0;
    for (uint32_t g = 0; g < q->groups; g++)
        s->outside[r] += grid_stored(&q->scheme, q->w + row * q->k + (size_t)g * size, q->codes + row * q->k + (size_t)g * size,
                                     grid_group_size(&q->scheme, q->k, g), q->scales[row * q->groups + g],
                                     q->zeros[row * q->groups + g], s->e + r * q->k + (size_t)g * size);
}

static void final_rows(void *ctx, long begin, long end, int thread)
{
    const struct search *s = ctx;

    (void)thread;
    for (long r = begin; r < end; r++)
        for (int i = 0; i < s->st->n; i++)
            if (r >= s->first[i] && r < s->first[i + 1])
                final_row(s, s->st->mat[i], (size_t)r);
}

/* H is rounded to float, so e H e^T may come out below 0 where it is 0; -1 (not measured) where it is not finite. */
static double relative(double loss, double norm)
{
    double r = loss > 0 && norm > 0 ? sqrt(loss / norm) : 0;

    return loss - loss == 0 && norm - norm == 0 && r < 1e30 ? r : -1;
}

/* Matrices and statistics are scaled by now, which leaves both norms as they were. */
void search_measure(struct search *s)
{
    double loss[3];

    llmq_parallel_for(s->rows, 8, final_rows, s);
    (void)loss_of_e(s, loss);
    for (int i = 0; i < s->st->n; i++) {
        struct quantize_tensor_report *rep = s->st->mat[i]->rep;
        double                         outside = 0;
        for (int r = s->first[i]; r < s->first[i + 1]; r++)
            outside += s->outside[r];
        rep->clip_rate = outside / ((double)(s->first[i + 1] - s->first[i]) * s->k);
        rep->rel_err = relative(loss[i], s->norm[i]);
        rep->rtn_rel_err = relative(s->identity[i], s->norm[i]);
    }
}
