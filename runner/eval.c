/* Perplexity and distance from a baseline: see eval.h.
 *
 * A window is one sequence over paged KV, read in pieces like any prompt, so what is measured is what serves.
 * Both models read a piece, then their logits are made and compared in blocks of a few rows: nothing that
 * grows with the text is kept but one KL value for each token. */
#include "runner/eval.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/fmath.h"
#include "common/parallel.h"
#include "runner/eval_stats.h"
#include "runner/model/model.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 64, PAGE = 32, DEFAULT_PIECE = 256 };

struct side {
    struct llmq_file *file;
    struct model     *model;
    struct kv_store  *kv;
    float             max[BLOCK];
    double            lse[BLOCK];
};

struct eval {
    const struct corpus       *c;
    const struct eval_options *o;
    struct side                side[2]; /* the model, the baseline */
    int                        sides, piece, longest; /* longest: most inputs of a window */
    int32_t                   *place;   /* 0, 1, 2, ..: positions, slots and page ids, which are all the same here */
    struct eval_window        *windows;
    double                    *kl; /* [scored tokens], with a baseline */
    long                       scored, total;
    /* the block at hand */
    const int32_t    *target; /* of its first row */
    int32_t           rows[BLOCK];
    struct eval_token token[BLOCK];
};

static int side_open(struct eval *v, struct side *s, const char *path, struct llmq_err *err)
{
    struct model_options       mo = {.device = v->o->device, .isa = v->o->isa, .max_tokens = v->piece, .max_ctx = v->longest,
                                     .max_logits = BLOCK};
    const struct llmq_hparams *hp;
    enum kv_dtype              dtype = KV_F16;

    if (kv_dtype_from_name(v->o->kv_dtype, &dtype, err) || llmq_file_open(&s->file, path, err))
        return err->code;
    hp = llmq_file_hparams(s->file);
    if ((uint32_t)v->longest > llmq_hparams_max_ctx(hp))
        return llmq_fail(err, LLMQ_EUSAGE, "%s: windows of %d tokens, but the model was made for at most %u", path, v->longest,
                         llmq_hparams_max_ctx(hp));
    if (model_open(&s->model, s->file, &mo, err))
        return err->code;
    return kv_store_new(&s->kv, s->model, dtype, (v->longest + PAGE - 1) / PAGE, PAGE, (int)hp->n_layers, err);
}

static void side_close(struct side *s)
{
    if (s->model)
        kv_store_free(s->kv, s->model);
    model_close(s->model);
    llmq_file_close(s->file);
}

static int check_ids(const struct eval *v, struct llmq_err *err)
{
    int32_t n_vocab = (int32_t)v->side[0].model->hp.n_vocab;

    if (v->sides == 2 && v->side[1].model->hp.n_vocab != (uint32_t)n_vocab)
        return llmq_fail(err, LLMQ_EUSAGE, "the baseline has a vocabulary of %u, the model one of %d: only models with the same tokens can be compared",
                         v->side[1].model->hp.n_vocab, n_vocab);
    for (size_t i = 0; i < v->c->n_ids; i++)
        if (v->c->ids[i] < 0 || v->c->ids[i] >= n_vocab)
            return llmq_fail(err, LLMQ_EFORMAT, "token %zu of the text is %d, but the model's vocabulary ends at %d", i, v->c->ids[i],
                             n_vocab - 1);
    return 0;
}

/* ---- one block of rows ---------------------------------------------------------------------------------- */

static void block_logits(struct side *s, const int32_t *rows, int n)
{
    struct model       *m = s->model;
    struct op_logsumexp op = {.logits = m->logits, .max = s->max, .lse = s->lse, .rows = n, .n = (int)m->hp.n_vocab};

    model_logits(m, m->h, rows, n, m->logits);
    m->ops->logsumexp(m->be, &op);
}

static struct eval_row row_of(const struct side *s, long r)
{
    return (struct eval_row){s->model->logits + (size_t)r * s->model->hp.n_vocab, s->max[r], s->lse[r]};
}

static void score_rows(void *ctx, long begin, long end, int thread)
{
    struct eval *v = ctx;

    (void)thread;
    for (long r = begin; r < end; r++) {
        struct eval_row m = row_of(&v->side[0], r), b = m;

        if (v->sides == 2)
            b = row_of(&v->side[1], r);
        v->token[r] = eval_score(&m, v->sides == 2 ? &b : NULL, (int)v->side[0].model->hp.n_vocab, v->target[r]);
    }
}

static int score_block(struct eval *v, struct eval_window *w, int first_row, int n, const int32_t *target, struct llmq_err *err)
{
    for (int i = 0; i < n; i++)
        v->rows[i] = first_row + i;
    for (int s = 0; s < v->sides; s++) {
        block_logits(&v->side[s], v->rows, n);
        if (v->side[s].model->ops->sync(v->side[s].model->be, err))
            return err->code;
    }
    v->target = target;
    llmq_parallel_for(n, 1, score_rows, v);
    for (int i = 0; i < n; i++) {
        if (v->token[i].nll - v->token[i].nll != 0 || v->token[i].base_nll - v->token[i].base_nll != 0)
            return llmq_fail(err, LLMQ_EFORMAT, "the %s's logits are not finite", v->token[i].nll - v->token[i].nll != 0 ? "model" : "baseline");
        eval_window_add(w, &v->token[i]);
        if (v->kl)
            v->kl[v->scored] = v->token[i].kl;
        v->scored++;
    }
    return 0;
}

/* ---- one window ------------------------------------------------------------------------------------------ */

static int forward_piece(struct eval *v, const int32_t *ids, int at, int n, struct llmq_err *err)
{
    int32_t      q_start[2] = {0, n}, kv_len = at + n, page_start[2] = {0, (at + n + PAGE - 1) / PAGE};
    struct batch b = {.tokens = n, .seqs = 1, .ids = ids + at, .pos = v->place + at, .q_start = q_start, .kv_len = &kv_len,
                      .page_start = page_start, .page_table = v->place, .slot = v->place + at};

    for (int s = 0; s < v->sides; s++)
        if (model_forward(v->side[s].model, v->side[s].kv, &b, err))
            return err->code;
    return 0;
}

/* The input at position p predicts token p + 1; a window's last token is never an input. */
static int run_window(struct eval *v, const struct corpus_window *cw, struct eval_window *w, struct llmq_err *err)
{
    const int32_t *ids = v->c->ids + cw->start;
    int            inputs = cw->len - 1;

    for (int at = 0; at < inputs; at += v->piece) {
        int n = inputs - at < v->piece ? inputs - at : v->piece, from = cw->score_from - 1 > at ? cw->score_from - 1 - at : 0;

        if (v->o->cancel && *v->o->cancel)
            return llmq_fail(err, LLMQ_EINTR, "interrupted");
        if (forward_piece(v, ids, at, n, err))
            return err->code;
        for (int r = from; r < n; r += BLOCK)
            if (score_block(v, w, r, n - r < BLOCK ? n - r : BLOCK, ids + at + r + 1, err))
                return err->code;
    }
    return 0;
}

static int run_windows(struct eval *v, struct llmq_err *err)
{
    double nll = 0;

    for (int i = 0; i < v->c->n_windows; i++) {
        if (run_window(v, &v->c->windows[i], &v->windows[i], err))
            return err->code;
        nll += v->windows[i].nll;
        if (v->o->progress)
            v->o->progress(v->o->progress_ctx, i + 1, v->c->n_windows, v->scored, llmq_exp(nll / (double)v->scored));
    }
    return 0;
}

/* ---- all of it -------------------------------------------------------------------------------------------- */

static int eval_open(struct eval *v, const char *model_path, const char *baseline_path, struct llmq_err *err)
{
    v->sides = baseline_path ? 2 : 1;
    v->piece = v->o->max_batch_tokens ? v->o->max_batch_tokens : DEFAULT_PIECE;
    for (int i = 0; i < v->c->n_windows; i++) {
        const struct corpus_window *w = &v->c->windows[i];

        v->longest = w->len - 1 > v->longest ? w->len - 1 : v->longest;
        v->total += w->len - w->score_from;
    }
    if (v->total < 1)
        return llmq_fail(err, LLMQ_EUSAGE, "no tokens to score");
    if (LLMQ_NEW(&v->place, v->longest, "positions", err) || LLMQ_NEW(&v->windows, v->c->n_windows, "window sums", err) ||
        (baseline_path && LLMQ_NEW(&v->kl, v->total, "KL values", err)))
        return err->code;
    for (int i = 0; i < v->longest; i++)
        v->place[i] = i;
    if (side_open(v, &v->side[0], model_path, err) || (baseline_path && side_open(v, &v->side[1], baseline_path, err)))
        return err->code;
    return check_ids(v, err);
}

static int eval_finish(struct eval *v, double seconds, struct eval_result *out, struct llmq_err *err)
{
    long read = 0;

    if (LLMQ_NEW(&out->window_nll, v->c->n_windows, "window results", err))
        return err->code;
    for (int i = 0; i < v->c->n_windows; i++) {
        out->window_nll[i] = v->windows[i].nll / (double)v->windows[i].tokens;
        read += v->c->windows[i].len;
    }
    eval_summarise(v->windows, v->c->n_windows, v->kl, v->scored, v->c->words, out);
    out->seconds = seconds;
    out->tokens_per_s = seconds > 0 ? (double)read / seconds : 0;
    snprintf(out->isa, sizeof out->isa, "%s", v->side[0].model->ops->isa(v->side[0].model->be));
    return 0;
}

int llmq_eval(const char *model_path, const char *baseline_path, const struct corpus *c, const struct eval_options *o,
              struct eval_result *out, struct llmq_err *err)
{
    struct eval *v;
    double       begin;
    int          rc;

    memset(out, 0, sizeof *out);
    if (LLMQ_NEW(&v, 1, "an evaluation", err))
        return err->code;
    v->c = c;
    v->o = o;
    rc = eval_open(v, model_path, baseline_path, err);
    begin = llmq_clock_s();
    if (!rc)
        rc = run_windows(v, err);
    if (!rc)
        rc = eval_finish(v, llmq_clock_s() - begin, out, err);
    side_close(&v->side[0]);
    side_close(&v->side[1]);
    llmq_free(v->place);
    llmq_free(v->windows);
    llmq_free(v->kl);
    llmq_free(v);
    return rc;
}

void llmq_eval_free(struct eval_result *r)
{
    llmq_free(r->window_nll);
    r->window_nll = NULL;
}
