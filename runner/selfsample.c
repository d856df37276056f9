/* Calibration windows that the model writes itself: see selfsample.h.
 *
 * The windows of a group are of one length at every moment, so position, slot and page arrays follow from the
 * window's place in the group, and a step is one batch with one token of each. */
#include "runner/selfsample.h"

#include "common/alloc.h"
#include "common/parallel.h"
#include "runner/engine/sampler.h"
#include "runner/model/model.h"

#include <string.h>

enum { PAGE = 32 };
static const uint64_t KV_BYTES = 1ull << 30;

struct self {
    const struct selfsample_options *o;
    struct model                    *model;
    struct kv_store                 *kv;
    struct sampler                 **samplers; /* [threads] */
    struct llmq_rng                 *rng;      /* [group] */
    int32_t                         *out;      /* [windows][seqlen] */
    int                              group, pages, threads; /* windows side by side; pages of one */
    int32_t                         *ids, *pos, *slot, *kv_len, *rows, *start, *page_start, *page_table;
    int                              first; /* window of the group at hand */
};

/* ---- sizes ------------------------------------------------------------------------------------------------ */

static int group_of(const struct llmq_hparams *hp, const struct selfsample_options *o)
{
    uint64_t window = (uint64_t)o->seqlen * hp->n_layers * hp->n_kv_heads * hp->head_dim * 2 * 2; /* K and V, F16 */
    uint64_t fit = KV_BYTES / window;

    return fit < 1 ? 1 : fit < (uint64_t)o->windows ? (int)fit : o->windows;
}

static int check(const struct llmq_hparams *hp, const struct selfsample_options *o, struct llmq_err *err)
{
    if (o->windows < 1)
        return llmq_fail(err, LLMQ_EUSAGE, "%d windows, expected at least 1", o->windows);
    if (o->seqlen < 2 || (uint32_t)o->seqlen > hp->ctx_len)
        return llmq_fail(err, LLMQ_EUSAGE, "windows of %d tokens, expected 2 to the model's context of %u", o->seqlen, hp->ctx_len);
    return 0;
}

static int batch_new(struct self *s, struct llmq_err *err)
{
    int g = s->group;

    if (LLMQ_NEW(&s->ids, g, "a batch", err) || LLMQ_NEW(&s->pos, g, "a batch", err) || LLMQ_NEW(&s->slot, g, "a batch", err) ||
        LLMQ_NEW(&s->kv_len, g, "a batch", err) || LLMQ_NEW(&s->rows, g, "a batch", err) ||
        LLMQ_NEW(&s->start, g + 1, "a batch", err) || LLMQ_NEW(&s->page_start, g + 1, "a batch", err) ||
        LLMQ_NEW(&s->page_table, (size_t)g * (size_t)s->pages, "a page table", err) || LLMQ_NEW(&s->rng, g, "generators", err))
        return err->code;
    for (int w = 0; w <= g; w++) {
        s->start[w] = w;
        s->page_start[w] = w * s->pages;
    }
    for (int w = 0; w < g; w++)
        s->rows[w] = w;
    for (int p = 0; p < g * s->pages; p++)
        s->page_table[p] = p;
    return 0;
}

static int self_open(struct self *s, const struct llmq_file *f, struct llmq_err *err)
{
    const struct llmq_hparams *hp = llmq_file_hparams(f);
    struct model_options       mo = {.device = s->o->device, .isa = s->o->isa, .max_ctx = s->o->seqlen};

    if (check(hp, s->o, err))
        return err->code;
    s->group = mo.max_tokens = mo.max_logits = group_of(hp, s->o);
    s->pages = (s->o->seqlen + PAGE - 1) / PAGE;
    s->threads = llmq_parallel_threads();
    if (model_open(&s->model, f, &mo, err) ||
        kv_store_new(&s->kv, s->model, KV_F16, s->group * s->pages, PAGE, (int)hp->n_layers, err) || batch_new(s, err) ||
        LLMQ_NEW(&s->out, (size_t)s->o->windows * (size_t)s->o->seqlen, "the windows' tokens", err) ||
        llmq_alloc((void **)&s->samplers, (size_t)s->threads, sizeof(struct sampler *), "samplers", err))
        return err->code;
    for (int t = 0; t < s->threads; t++)
        if (sampler_new(&s->samplers[t], (int)hp->n_vocab, err))
            return err->code;
    return 0;
}

static void self_close(struct self *s)
{
    for (int t = 0; s->samplers && t < s->threads; t++)
        sampler_free(s->samplers[t]);
    llmq_free(s->samplers);
    llmq_free(s->ids);
    llmq_free(s->pos);
    llmq_free(s->slot);
    llmq_free(s->kv_len);
    llmq_free(s->rows);
    llmq_free(s->start);
    llmq_free(s->page_start);
    llmq_free(s->page_table);
    llmq_free(s->rng);
    llmq_free(s->out);
    if (s->model)
        kv_store_free(s->kv, s->model);
    model_close(s->model);
}

/* ---- windows ------------------------------------------------------------------------------------------------ */

static int32_t *window(const struct self *s, int w) { return s->out + (size_t)(s->first + w) * (size_t)s->o->seqlen; }

/* Neighbouring windows need unrelated generators, whatever the seed. */
static void begin_window(struct self *s, int w)
{
    const struct llmq_hparams *hp = &s->model->hp;
    uint64_t                   x = s->o->seed ^ (0x5e1f5a3b1e000000ull + (uint64_t)(s->first + w));

    llmq_rng_seed(&s->rng[w], llmq_rng_splitmix(&x));
    window(s, w)[0] = hp->bos_id >= 0 ? hp->bos_id : (int32_t)(llmq_rng_unit(&s->rng[w]) * hp->n_vocab);
}

struct draw {
    struct self *s;
    int          at;
};

static void draw_tokens(void *ctx, long begin, long end, int thread)
{
    static const struct llmq_sampling plain = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    struct draw                      *d = ctx;

    for (long w = begin; w < end; w++)
        window(d->s, (int)w)[d->at] = sampler_pick(d->s->samplers[thread], d->s->model->logits + (size_t)w * d->s->model->hp.n_vocab,
                                                   &plain, NULL, 0, &d->s->rng[w]);
}

/* Feeds token at - 1 of every window and draws token at. */
static int step(struct self *s, int windows, int at, struct llmq_err *err)
{
    struct batch b = {.tokens = windows, .seqs = windows, .ids = s->ids, .pos = s->pos, .q_start = s->start, .kv_len = s->kv_len,
                      .page_start = s->page_start, .page_table = s->page_table, .slot = s->slot, .n_logits = windows, .logit_rows = s->rows};
    struct draw  d = {s, at};

    for (int w = 0; w < windows; w++) {
        s->ids[w] = window(s, w)[at - 1];
        s->pos[w] = at - 1;
        s->slot[w] = w * s->pages * PAGE + at - 1;
        s->kv_len[w] = at;
    }
    if (model_forward(s->model, s->kv, &b, err))
        return err->code;
    llmq_parallel_for(windows, 1, draw_tokens, &d);
    return 0;
}

static int run_group(struct self *s, int windows, struct llmq_err *err)
{
    long total = (long)s->o->windows * s->o->seqlen;

    for (int w = 0; w < windows; w++)
        begin_window(s, w);
    for (int at = 1; at < s->o->seqlen; at++) {
        if (s->o->cancel && *s->o->cancel)
            return llmq_fail(err, LLMQ_EINTR, "interrupted");
        if (step(s, windows, at, err))
            return err->code;
        if (s->o->progress)
            s->o->progress(s->o->progress_ctx, (long)s->first * s->o->seqlen + (long)windows * (at + 1), total);
    }
    return 0;
}

static int run_groups(struct self *s, struct llmq_err *err)
{
    for (s->first = 0; s->first < s->o->windows; s->first += s->group) {
        int left = s->o->windows - s->first;

        if (run_group(s, left < s->group ? left : s->group, err))
            return err->code;
    }
    return 0;
}

int selfsample(struct corpus **out, const struct llmq_file *f, const struct selfsample_options *o, struct llmq_err *err)
{
    struct self s = {.o = o};

    *out = NULL;
    if (!self_open(&s, f, err) && !run_groups(&s, err))
        (void)!corpus_from_windows(out, s.out, o->windows, o->seqlen, s.model->hp.bos_id >= 0 ? "window" : "none", err);
    self_close(&s);
    return err->code;
}
