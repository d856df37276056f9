/* AWQ over the whole model: one walk, four stages per layer, each stage quantized before its products are run, so
 * that every statistic is taken from the stream that the quantized model will see, and nothing is run twice.
 *
 *   x = norm(h)        -> q, k, v   (the norm takes the factors)
 *   a = attention(x)   -> o         (v's rows take them; KV heads are shared, so factors are too)
 *   x = norm(h)        -> gate, up  (the norm)
 *   g = mlp_up(x)      -> down      (up's rows)
 *
 * v and up are packed before o's and down's factors are known; folding changes only their scales, and the
 * activations that they produced are divided where they stand. */
#include "quantize/method.h"

#include "common/clock.h"
#include "runner/text/corpus.h"

#include <stdio.h>

enum { Q, K, V, O, GATE, UP, DOWN, MATS };

static const struct { int role, bias; } places[MATS] = {
    [Q] = {LLMQ_ROLE_ATTN_Q, LLMQ_ROLE_ATTN_Q_BIAS},       [K] = {LLMQ_ROLE_ATTN_K, LLMQ_ROLE_ATTN_K_BIAS},
    [V] = {LLMQ_ROLE_ATTN_V, LLMQ_ROLE_ATTN_V_BIAS},       [O] = {LLMQ_ROLE_ATTN_O, LLMQ_ROLE_ATTN_O_BIAS},
    [GATE] = {LLMQ_ROLE_MLP_GATE, LLMQ_ROLE_MLP_GATE_BIAS}, [UP] = {LLMQ_ROLE_MLP_UP, LLMQ_ROLE_MLP_UP_BIAS},
    [DOWN] = {LLMQ_ROLE_MLP_DOWN, LLMQ_ROLE_MLP_DOWN_BIAS}};

struct layer {
    int                 index;
    struct model_layer *l;
    struct qmat         mat[MATS];
    float              *vec[32];  /* by role: norms and biases, or NULL */
    struct llmq_arena   keep;     /* to the end of the layer */
    struct llmq_arena   work;     /* to the end of a stage */
};

/* ---- vectors ----------------------------------------------------------------------------------------- */

static int bind_vector(struct job *j, struct layer *L, int role, struct llmq_err *err)
{
    struct llmq_tensor t;
    int                at = llmq_source_find(j->src, role, L->index);

    if (at < 0 || !L->vec[role])
        return 0;
    return qmat_vector(&j->src->tensors[at], L->vec[role], &t, err) || model_bind(j->m, &t, err) ? err->code : 0;
}

static int load_vectors(struct job *j, struct layer *L, struct llmq_err *err)
{
    for (int i = 0; i < j->src->n_tensors; i++) {
        const struct llmq_tensor *t = &j->src->tensors[i];
        if (t->layer != L->index || t->k != 1)
            continue;
        if (LLMQ_ARENA_NEW(&L->keep, &L->vec[t->role], t->n, "a vector", err) ||
            llmq_source_rows_f32(j->src, i, 0, t->n, L->vec[t->role], err) || bind_vector(j, L, t->role, err))
            return err->code;
    }
    return 0;
}

/* ---- stages -------------------------------------------------------------------------------------------- */

static int load(struct job *j, struct layer *L, struct stage *st, int mat, struct llmq_err *err)
{
    st->mat[st->n++] = &L->mat[mat];
    return qmat_load(j, &L->work, &L->keep, places[mat].role, L->index, &L->mat[mat], err);
}

static int bind(struct job *j, struct layer *L, int mat, struct llmq_err *err)
{
    return model_bind(j->m, &L->mat[mat].packed, err);
}

static int decide(struct job *j, struct layer *L, struct stage *st, struct llmq_err *err)
{
    double start = llmq_clock_s();

    if (job_cancelled(j, err) || stage_decide(j, st, &L->work, err))
        return err->code;
    for (int i = 0; i < st->n; i++) {
        const struct llmq_tensor *t = &j->src->tensors[st->mat[i]->index];
        st->mat[i]->rep->seconds = (llmq_clock_s() - start) / st->n;
        job_progress(j, L->index, llmq_role_name(t->role), plan_work(j->o, t));
    }
    return 0;
}

/* Factors into a norm: its weight, and the copy that the model reads. */
static int fold_norm(struct job *j, struct layer *L, const struct stage *st, int role, struct llmq_err *err)
{
    if (!st->scaled)
        return 0;
    fold_divide(L->vec[role], 1, j->hp->d_model, st->s);
    return bind_vector(j, L, role, err);
}

/* Factors into a producer's rows, and into the activations that it made already. */
static int fold_producer(struct job *j, struct layer *L, const struct stage *st, int mat, struct llmq_err *err)
{
    struct qmat *p = &L->mat[mat];
    float       *s;

    if (!st->scaled)
        return 0;
    if (LLMQ_ARENA_NEW(&L->work, &s, p->n, "factors", err))
        return err->code;
    for (uint32_t c = 0; c < st->mat[0]->k; c++)
        s[stage_producer(st, c)] = st->s[c];
    fold_rows(p, L->vec[places[mat].bias], s);
    fold_divide(j->act, j->tokens, st->mat[0]->k, st->s);
    return qmat_pack(p, err);
}

typedef void (*norm_fn)(struct model *m, const struct model_layer *l, const float *h, int tokens, float *x);

static void observe_norm(struct job *j, struct layer *L, norm_fn norm, struct stats *st)
{
    const struct corpus *c = j->o->calib;
    const float         *h = j->h;

    for (int i = 0; i < c->n_windows; h += (size_t)c->windows[i].len * j->hp->d_model, i++) {
        norm(j->m, L->l, h, c->windows[i].len, j->m->x);
        stats_add(st, j->m, j->m->x, c->windows[i].len);
    }
    stats_finish(st);
}

static int stage_qkv(struct job *j, struct layer *L, struct llmq_err *err)
{
    struct stats     stats;
    struct stage st = {.stats = &stats};

    if (stats_init(&stats, &L->work, j->hp->d_model, err))
        return err->code;
    observe_norm(j, L, model_attn_norm, &stats);
    if (load(j, L, &st, Q, err) || load(j, L, &st, K, err) || load(j, L, &st, V, err) || decide(j, L, &st, err) ||
        fold_norm(j, L, &st, LLMQ_ROLE_ATTN_NORM, err))
        return err->code;
    return bind(j, L, Q, err) || bind(j, L, K, err) || bind(j, L, V, err) ? err->code : 0;
}

static int run_attention(struct job *j, struct layer *L, struct stats *stats, struct llmq_err *err)
{
    const struct corpus *c = j->o->calib;
    const float         *h = j->h;
    float               *a = j->act;

    for (int i = 0; i < c->n_windows; i++) {
        int tokens = c->windows[i].len;
        if (job_cancelled(j, err))
            return err->code;
        model_attn_norm(j->m, L->l, h, tokens, j->m->x);
        model_attention(j->m, L->l, &j->kv->layer[0], calib_batch(j, tokens), j->m->x, a);
        stats_add(stats, j->m, a, tokens);
        h += (size_t)tokens * j->hp->d_model;
        a += (size_t)tokens * stats->k;
    }
    stats_finish(stats);
    return 0;
}

/* h += linear(act), window by window. */
typedef void (*out_fn)(struct model *m, const struct model_layer *l, const float *x, int tokens, float *h);

static int run_out(struct job *j, struct layer *L, out_fn out, size_t width, struct llmq_err *err)
{
    const struct corpus *c = j->o->calib;
    const float         *x = j->act;
    float               *h = j->h;

    for (int i = 0; i < c->n_windows; i++) {
        int tokens = c->windows[i].len;
        if (job_cancelled(j, err))
            return err->code;
        out(j->m, L->l, x, tokens, h);
        x += (size_t)tokens * width;
        h += (size_t)tokens * j->hp->d_model;
    }
    return 0;
}

static int stage_o(struct job *j, struct layer *L, struct llmq_err *err)
{
    uint32_t         width = j->hp->n_heads * j->hp->head_dim;
    struct stats     stats;
    struct stage st = {.stats = &stats, .rows = &L->mat[V], .head_dim = j->hp->head_dim,
                           .share = j->hp->n_heads / j->hp->n_kv_heads};

    if (stats_init(&stats, &L->work, width, err) || run_attention(j, L, &stats, err) || load(j, L, &st, O, err) ||
        decide(j, L, &st, err) || fold_producer(j, L, &st, V, err) || bind(j, L, O, err))
        return err->code;
    return run_out(j, L, model_attn_out, width, err);
}

static int stage_up(struct job *j, struct layer *L, struct llmq_err *err)
{
    struct stats     stats;
    struct stage st = {.stats = &stats};

    if (stats_init(&stats, &L->work, j->hp->d_model, err))
        return err->code;
    observe_norm(j, L, model_mlp_norm, &stats);
    if (load(j, L, &st, GATE, err) || load(j, L, &st, UP, err) || decide(j, L, &st, err) ||
        fold_norm(j, L, &st, LLMQ_ROLE_MLP_NORM, err))
        return err->code;
    return bind(j, L, GATE, err) || bind(j, L, UP, err) ? err->code : 0;
}

static int run_up(struct job *j, struct layer *L, struct stats *stats, struct llmq_err *err)
{
    const struct corpus *c = j->o->calib;
    const float         *h = j->h;
    float               *g = j->act;

    for (int i = 0; i < c->n_windows; i++) {
        int tokens = c->windows[i].len;
        if (job_cancelled(j, err))
            return err->code;
        model_mlp_norm(j->m, L->l, h, tokens, j->m->x);
        model_mlp_up(j->m, L->l, j->m->x, tokens, g);
        stats_add(stats, j->m, g, tokens);
        h += (size_t)tokens * j->hp->d_model;
        g += (size_t)tokens * stats->k;
    }
    stats_finish(stats);
    return 0;
}

static int stage_down(struct job *j, struct layer *L, struct llmq_err *err)
{
    struct stats     stats;
    struct stage st = {.stats = &stats, .rows = &L->mat[UP]};

    if (stats_init(&stats, &L->work, j->hp->d_ff, err) || run_up(j, L, &stats, err) || load(j, L, &st, DOWN, err) ||
        decide(j, L, &st, err) || fold_producer(j, L, &st, UP, err) || bind(j, L, DOWN, err))
        return err->code;
    return run_out(j, L, model_mlp_down, j->hp->d_ff, err);
}

/* ---- layers ------------------------------------------------------------------------------------------------ */

static int write_role(struct job *j, struct layer *L, int role, struct llmq_err *err)
{
    int                at = llmq_source_find(j->src, role, L->index);
    struct llmq_tensor t;

    for (int i = 0; i < MATS; i++)
        if (places[i].role == role)
            return qmat_write(j, &L->mat[i].packed, L->mat[i].rep, err);
    if (qmat_vector(&j->src->tensors[at], L->vec[role], &t, err))
        return err->code;
    return qmat_write(j, &t, NULL, err);
}

static int write_layer(struct job *j, struct layer *L, struct llmq_err *err)
{
    int roles[24], n = llmq_role_list(j->hp, 1, roles);

    for (int i = 0; i < n; i++)
        if (write_role(j, L, roles[i], err))
            return err->code;
    return 0;
}

static int one_layer(struct job *j, int index, struct llmq_err *err)
{
    static int (*const stages[])(struct job *, struct layer *, struct llmq_err *) = {stage_qkv, stage_o, stage_up, stage_down};
    struct layer L = {.index = index, .l = &j->m->layers[index]};
    double       start = llmq_clock_s();

    if (load_vectors(j, &L, err))
        goto out;
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
        if (stages[i](j, &L, err))
            goto out;
        llmq_arena_free(&L.work);
    }
    if (write_layer(j, &L, err))
        goto out;
    j->rep->layers[index].seconds = llmq_clock_s() - start;
out:
    llmq_arena_free(&L.work);
    llmq_arena_free(&L.keep);
    return err->code ? llmq_fail_within(err, "layer %d", index) : 0;
}

/* ---- before and after the layers ---------------------------------------------------------------------------- */

/* Tables go to nearest rounding or stay as they are; the stream starts from what is stored. */
static int table(struct job *j, int role, int embed, struct llmq_err *err)
{
    int                index = llmq_source_find(j->src, role, LLMQ_NO_LAYER);
    struct llmq_arena  keep = {0};
    struct llmq_tensor t;
    struct llmq_scheme s;

    if (index < 0)
        return llmq_fail(err, LLMQ_EFORMAT, "%s has no %s", j->src->name, llmq_role_name(role));
    plan_scheme(j->o, j->hp, &j->src->tensors[index], &s);
    if (s.kind == LLMQ_KIND_DENSE) {
        if (!rtn_dense(j, index, err) && embed)
            (void)!calib_embed(j, NULL, index, err);
    } else if (!rtn_stream(j, &keep, index, &t, err) && !qmat_write(j, &t, qmat_report(j, index), err) && embed)
        (void)!calib_embed(j, &t, index, err);
    llmq_arena_free(&keep);
    if (!err->code)
        job_progress(j, -1, llmq_role_name(role), plan_work(j->o, &j->src->tensors[index]));
    return err->code;
}

static int tables(struct job *j, struct llmq_err *err)
{
    int roles[24], n = llmq_role_list(j->hp, 0, roles);

    for (int i = 0; i < n; i++)
        if (roles[i] != LLMQ_ROLE_EMBED && table(j, roles[i], 0, err))
            return err->code;
    return 0;
}

int layers_run(struct job *j, struct llmq_err *err)
{
    struct llmq_arena    arena = {0};
    int                  longest = calib_longest(j->o->calib);
    struct model_options mo = {.isa = j->o->isa, .max_tokens = longest, .max_ctx = longest};

    if (model_open_empty(&j->m, j->hp, &mo, err))
        return err->code;
    snprintf(j->rep->isa, sizeof j->rep->isa, "%s", j->m->ops->isa(j->m->be));
    if (calib_open(j, &arena, err) || table(j, LLMQ_ROLE_EMBED, 1, err))
        goto out;
    for (int i = 0; i < (int)j->hp->n_layers; i++)
        if (one_layer(j, i, err))
            goto out;
    (void)!tables(j, err);
out:
    kv_store_free(j->kv, j->m);
    model_close(j->m);
    llmq_arena_free(&arena);
    return err->code;
}
