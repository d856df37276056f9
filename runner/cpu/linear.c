/* Linear layers: op -> pieces -> threads -> kernel slot.
 *
 * Parts that need the same form of the input (float, or integers of one group width) share one pass, so that
 * the input is quantized once and threads meet once.  Threads split outputs, never k and never an output's
 * sum; the m = 1 and m > 1 slots give the same bits, so neither the split nor the batch shows in a result. */
#include "runner/cpu/backend_cpu.h"

#include <string.h>

struct job {
    struct backend         *be;
    const struct op_linear *op;
    int                     parts, part[3];
    long                    first[4]; /* items of part i: first[i] .. first[i + 1] - 1 */
    int                     gw;       /* activation group width; 0: float input */
    int                     rows;     /* outputs in an item */
    int                     token0, tokens;
};

/* What [begin, end) is of one part: nonzero when there is something. */
static int items_of(const struct job *j, int i, long begin, long end, long *b, long *e)
{
    *b = (begin > j->first[i] ? begin : j->first[i]) - j->first[i];
    *e = (end < j->first[i + 1] ? end : j->first[i + 1]) - j->first[i];
    return *b < *e;
}

static int group_width(const struct weight *w)
{
    if (w->scheme.kind != LLMQ_KIND_INT)
        return 0;
    return w->scheme.group == 0 || w->scheme.group > CPU_ACT_GROUP ? CPU_ACT_GROUP : (int)w->scheme.group;
}

/* ---- float weights ------------------------------------------------------------------------------- */

static void dense_rows(const struct job *j, const struct weight *w, float *y, long row0, long row1, float *scratch)
{
    const struct cpu_kernels *kern = &j->be->k;
    size_t                    k = w->k, bytes = llmq_dtype_bytes(w->scheme.dtype);
    struct cpu_dense          a = {.ldw = k, .ldx = k, .ldy = w->n, .x = j->op->x, .dtype = w->scheme.dtype,
                                   .m = j->op->tokens, .k = (int)k, .add = j->op->add};

    for (long r = row0, r1; r < row1; r = r1) {
        r1 = r + j->rows < row1 ? r + j->rows : row1;
        a.w = (const char *)w->data + (size_t)r * k * bytes;
        a.n = (int)(r1 - r);
        a.y = y + r;
        a.bias = w->bias ? w->bias + r : NULL;
        if (a.m == 1) {
            kern->dense_one(&a);
            continue;
        }
        if (w->scheme.dtype != LLMQ_DTYPE_F32) {
            kern->widen(scratch, a.w, w->scheme.dtype, (size_t)a.n * k);
            a.w = scratch;
        }
        a.dtype = LLMQ_DTYPE_F32;
        kern->dense_many(&a);
        a.dtype = w->scheme.dtype;
    }
}

static void dense_piece(void *ctx, long begin, long end, int thread)
{
    const struct job *j = ctx;
    long              b, e;

    for (int i = 0; i < j->parts; i++) {
        const struct weight *w = j->op->w[j->part[i]];

        if (!items_of(j, i, begin, end, &b, &e))
            continue;
        b *= j->rows;
        e = e * j->rows < (long)w->n ? e * j->rows : (long)w->n;
        dense_rows(j, w, j->op->y[j->part[i]], b, e, cpu_scratch(j->be, thread));
    }
}

/* Rows of an item: as many as fit the scratch once converted, fewer where all threads would not get some. */
static int dense_item(const struct job *j, long n, size_t k)
{
    size_t fit = j->be->scratch_floats / k;
    long   share = n / (4L * j->be->threads);

    if (j->op->tokens == 1)
        return 8;
    if (fit > 64)
        fit = 64;
    if (share > 64)
        share = 64;
    share = share < 16 ? 16 : share & ~3L;
    return (int)(share < (long)fit ? share : (long)fit);
}

static void run_dense(struct job *j)
{
    const struct op_linear *op = j->op;
    size_t                  k = op->w[j->part[0]]->k;
    long                    n = 0;

    for (int i = 0; i < j->parts; i++)
        n += op->w[j->part[i]]->n;
    j->rows = dense_item(j, n, k);
    for (int i = 0; i < j->parts; i++)
        j->first[i + 1] = j->first[i] + ((long)op->w[j->part[i]]->n + j->rows - 1) / j->rows;
    cpu_for(j->be, j->first[j->parts], (double)j->rows * (double)k * op->tokens, dense_piece, j);
}

/* ---- integer weights ------------------------------------------------------------------------------- */

static void quant_piece(void *ctx, long begin, long end, int thread)
{
    const struct job    *j = ctx;
    const struct weight *w = j->op->w[j->part[0]];
    size_t               k = w->k, k_pad = w->k_pad, ng = (k + (size_t)j->gw - 1) / (size_t)j->gw;

    (void)thread;
    for (size_t t = (size_t)begin; t < (size_t)end; t++)
        j->be->k.act_quant(j->be->act_v + t * k_pad, j->be->act_xs + t * ng, j->be->act_sum + t * ng,
                           j->op->x + ((size_t)j->token0 + t) * k, (int)k, (int)k_pad, j->gw);
}

static void tiles_piece(void *ctx, long begin, long end, int thread)
{
    const struct job *j = ctx;
    long              b, e;

    (void)thread;
    for (int i = 0; i < j->parts; i++) {
        const struct weight *w = j->op->w[j->part[i]];
        int                  group = (int)w->scheme.group, ng = ((int)w->k + j->gw - 1) / j->gw;
        struct cpu_tiles     a = {.w = w->data, .scales = w->scales, .zeros = w->zeros, .v = j->be->act_v,
                                  .xs = j->be->act_xs, .sum = j->be->act_sum, .bias = w->bias, .ldy = w->n,
                                  .zero = 1 << (w->scheme.bits - 1), .n = (int)w->n, .m = j->tokens,
                                  .k_pad = (int)w->k_pad, .gw = j->gw, .ng = ng, .add = j->op->add};

        if (!items_of(j, i, begin, end, &b, &e))
            continue;
        a.per_scale = group ? group / j->gw : ng;
        a.groups = (int)llmq_scheme_groups(&w->scheme, w->k);
        a.y = j->op->y[j->part[i]] + (size_t)j->token0 * w->n;
        if (w->scheme.bits == 4)
            (a.m == 1 ? j->be->k.q4_one : j->be->k.q4_many)(&a, (int)b, (int)e);
        else
            (a.m == 1 ? j->be->k.q8_one : j->be->k.q8_many)(&a, (int)b, (int)e);
    }
}

static void run_tiles(struct job *j)
{
    size_t k = j->op->w[j->part[0]]->k;

    for (int i = 0; i < j->parts; i++)
        j->first[i + 1] = j->first[i] + (long)j->op->w[j->part[i]]->n_pad / LLMQ_TILE_N;
    for (j->token0 = 0; j->token0 < j->op->tokens; j->token0 += j->tokens) {
        j->tokens = j->op->tokens - j->token0;
        if (j->tokens > (int)j->be->act_tokens)
            j->tokens = (int)j->be->act_tokens;
        cpu_for(j->be, j->tokens, (double)k, quant_piece, j);
        cpu_for(j->be, j->first[j->parts], (double)LLMQ_TILE_N * (double)k * j->tokens, tiles_piece, j);
    }
}

void cpu_linear(struct backend *be, const struct op_linear *op)
{
    int done = 0;

    for (int p = 0; p < op->parts; p++) {
        struct job j = {.be = be, .op = op, .gw = group_width(op->w[p])};

        if (done >> p & 1)
            continue;
        for (int i = p; i < op->parts; i++)
            if (!(done >> i & 1) && group_width(op->w[i]) == j.gw) {
                j.part[j.parts++] = i;
                done |= 1 << i;
            }
        if (j.gw)
            run_tiles(&j);
        else
            run_dense(&j);
    }
}
