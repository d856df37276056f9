/* One stage: the linears that share an input.
 *
 *   AWQ    statistics -> factors (search.c) -> folded into columns and statistics (fold.c) -> grids (clip.c) -> nearest codes
 *   GPTQ   statistics -> their factor -> grids -> codes (gptq.c) -> all improved together (descend.c)
 *   both   AWQ's factors, then GPTQ on what they leave
 *
 * What feeds the linears is changed by the caller, who knows where it comes from.  A stage whose statistics cannot
 * guide anything is rounded to nearest, and the report says why. */
#include "quantize/method.h"

uint32_t stage_producers(const struct stage *st) { return st->share ? st->mat[0]->k / st->share : st->mat[0]->k; }

uint32_t stage_producer(const struct stage *st, uint32_t input)
{
    return st->share ? input / st->head_dim / st->share * st->head_dim + input % st->head_dim : input;
}

/* Grids without a search, for --no-clip and for stages without statistics. */
static void nearest(struct qmat *q) { grid_fit_rows(&q->scheme, q->w, q->n, q->k, q->scales, q->zeros); }

static int awq_matrix(struct job *j, const struct stage *st, struct qmat *q, struct llmq_err *err)
{
    if (st->fault || j->o->no_clip)
        nearest(q);
    else if (clip_matrix(j, q, st->stats, err))
        return err->code;
    grid_encode_rows(&q->scheme, q->w, q->n, q->k, q->scales, q->zeros, q->codes);
    return 0;
}

static int gptq_matrix(struct job *j, struct qmat *q, const struct geometry *g, struct llmq_err *err)
{
    gptq_grids(q, g);
    return gptq_codes(j, q, g, err) || descend_matrix(j, q, g, err) ? err->code : 0;
}

static int matrices(struct job *j, struct stage *st, struct llmq_arena *work, struct llmq_err *err)
{
    struct geometry g;
    int             solve = (j->o->method & QUANTIZE_GPTQ) && !st->fault;

    if (solve && geometry_new(j, st->stats, &g, work, &st->fault, err))
        return err->code;
    for (int i = 0; i < st->n; i++) {
        struct qmat *q = st->mat[i];
        if ((solve && !st->fault ? gptq_matrix(j, q, &g, err) : awq_matrix(j, st, q, err)) || qmat_pack(q, err))
            return err->code;
    }
    return 0;
}

static void scale_inputs(struct stage *st)
{
    for (int i = 0; i < st->n; i++)
        fold_columns(st->mat[i]->w, st->mat[i]->n, st->mat[i]->k, st->s);
    stats_scale(st->stats, st->s);
}

static int fall_back(struct job *j, struct stage *st, struct llmq_err *err)
{
    for (int i = 0; i < st->n; i++) {
        st->mat[i]->rep->fallback = st->fault;
        if (job_warn(j, err, "%s: rounded to nearest: %s", st->mat[i]->rep->name, st->fault))
            return err->code;
    }
    return 0;
}

int stage_decide(struct job *j, struct stage *st, struct llmq_arena *work, struct llmq_err *err)
{
    struct search *s = NULL;

    if (LLMQ_ARENA_NEW(work, &st->s, st->mat[0]->k, "factors", err))
        return err->code;
    for (uint32_t c = 0; c < st->mat[0]->k; c++)
        st->s[c] = 1.0f;
    st->fault = stats_fault(st->stats);
    if (!st->fault) {
        if (search_new(&s, j, st, work, err))
            return err->code;
        search_run(s, st);
    }
    if (st->scaled)
        scale_inputs(st);
    if (matrices(j, st, work, err))
        return err->code;
    if (s)
        search_measure(s);
    return st->fault ? fall_back(j, st, err) : 0;
}
