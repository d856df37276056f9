/* The engine: model, pages, tokenizer and one running sequence.
 *
 * A step makes one batch: the next piece of the prompt, or the last token made.  The batch's arrays and the
 * sequence's ids and page table are sized at open, so a step allocates nothing (in debug builds an allocation
 * inside one aborts).  Pages are taken as the sequence grows; those that the next request cannot use go back when it
 * comes. */
#include "common/alloc.h"
#include "common/clock.h"
#include "runner/engine/kvpool.h"
#include "runner/engine/sampler.h"
#include "runner/model/model.h"
#include "runner/runner.h"
#include "runner/text/tokenizer.h"

#include <string.h>

enum { DEFAULT_CTX = 4096, DEFAULT_PAGE = 32, DEFAULT_PIECE = 256 };

struct sequence {
    int32_t *ids, *pages; /* [ctx], [pages in ctx] */
    int      n_ids, n_prompt, n_done, n_pages; /* n_done: ids whose K and V are in pages */
    int      n_cached;                         /* of n_done: from the request before */
    int      max_new, ignore_eos, active, n_stop;
    int32_t  stop_id[LLMQ_MAX_STOP];
    struct llmq_sampling sampling;
    struct llmq_rng      rng;
};

struct llmq_engine {
    struct llmq_file *file;
    struct model     *model;
    struct kv_store  *kv;
    struct kvpool     pool;
    struct tokenizer *tokenizer;
    struct sampler   *sampler;
    struct sequence   seq;
    int               ctx, page_tokens, piece;
    int32_t          *pos, *slot; /* [piece] */
    const char       *kv_name;
    double            load_s, submitted_at, first_at, last_at;
};

static int choose_ctx(const struct llmq_hparams *hp, int wanted, int *ctx, struct llmq_err *err)
{
    int most = (int)llmq_hparams_max_ctx(hp);

    *ctx = wanted ? wanted : hp->ctx_len < DEFAULT_CTX ? (int)hp->ctx_len : DEFAULT_CTX;
    if (*ctx > most)
        return llmq_fail(err, LLMQ_EUSAGE, "a context of %d tokens: the model was made for at most %d", *ctx, most);
    return 0;
}

static int open_parts(struct llmq_engine *e, const char *path, const struct llmq_engine_options *o, struct llmq_err *err)
{
    const struct llmq_hparams *hp;
    struct model_options       mo = {.device = o->device, .isa = o->isa};
    enum kv_dtype              dtype = KV_F16;
    int                        pages;

    if (kv_dtype_from_name(o->kv_dtype, &dtype, err) || llmq_file_open(&e->file, path, err))
        return err->code;
    e->kv_name = kv_dtype_name(dtype);
    hp = llmq_file_hparams(e->file);
    if (choose_ctx(hp, o->ctx, &e->ctx, err))
        return err->code;
    e->page_tokens = o->page_tokens ? o->page_tokens : DEFAULT_PAGE;
    e->piece = o->max_batch_tokens ? o->max_batch_tokens : DEFAULT_PIECE;
    pages = (e->ctx + e->page_tokens - 1) / e->page_tokens;
    mo.max_tokens = e->piece;
    mo.max_ctx = e->ctx;
    mo.max_logits = 1;
    if (model_open(&e->model, e->file, &mo, err) ||
        kv_store_new(&e->kv, e->model, dtype, pages, e->page_tokens, (int)hp->n_layers, err) ||
        kvpool_init(&e->pool, pages, err) || tokenizer_from_file(&e->tokenizer, e->file, err) ||
        sampler_new(&e->sampler, (int)hp->n_vocab, err) || LLMQ_NEW(&e->seq.ids, e->ctx, "token ids", err) ||
        LLMQ_NEW(&e->seq.pages, pages, "a page table", err) || LLMQ_NEW(&e->pos, e->piece, "a batch", err) ||
        LLMQ_NEW(&e->slot, e->piece, "a batch", err))
        return err->code;
    return 0;
}

int llmq_engine_open(struct llmq_engine **out, const char *path, const struct llmq_engine_options *o, struct llmq_err *err)
{
    double              begin = llmq_clock_s();
    struct llmq_engine *e;

    *out = NULL;
    if (LLMQ_NEW(&e, 1, "an engine", err))
        return err->code;
    if (open_parts(e, path, o, err)) {
        llmq_engine_close(e);
        return err->code;
    }
    e->load_s = llmq_clock_s() - begin;
    *out = e;
    return 0;
}

void llmq_engine_close(struct llmq_engine *e)
{
    if (!e)
        return;
    llmq_free(e->pos);
    llmq_free(e->slot);
    llmq_free(e->seq.ids);
    llmq_free(e->seq.pages);
    sampler_free(e->sampler);
    tokenizer_free(e->tokenizer);
    kvpool_fini(&e->pool);
    kv_store_free(e->kv, e->model);
    model_close(e->model);
    llmq_file_close(e->file);
    llmq_free(e);
}

const struct llmq_file *llmq_engine_file(const struct llmq_engine *e) { return e->file; }
const struct tokenizer *llmq_engine_tokenizer(const struct llmq_engine *e) { return e->tokenizer; }
const char             *llmq_engine_isa(const struct llmq_engine *e) { return e->model->ops->isa(e->model->be); }

void llmq_engine_cancel(struct llmq_engine *e) { e->seq.active = 0; }

static int check_request(const struct llmq_engine *e, const struct llmq_request *r, struct llmq_err *err)
{
    int n_vocab = (int)e->model->hp.n_vocab;

    if (e->seq.active)
        return llmq_fail(err, LLMQ_EUSAGE, "a request is running, expected none");
    if (r->n_ids < 1)
        return llmq_fail(err, LLMQ_EUSAGE, "the prompt has no tokens, expected at least 1");
    if (r->n_ids >= e->ctx)
        return llmq_fail(err, LLMQ_ELIMIT, "the prompt has %d tokens: at most %d fit a context of %d", r->n_ids,
                         e->ctx - 1, e->ctx);
    if (r->n_stop < 0 || r->n_stop > LLMQ_MAX_STOP)
        return llmq_fail(err, LLMQ_EUSAGE, "%d end tokens, expected at most %d", r->n_stop, LLMQ_MAX_STOP);
    for (int i = 0; i < r->n_ids; i++)
        if (r->ids[i] < 0 || r->ids[i] >= n_vocab)
            return llmq_fail(err, LLMQ_EUSAGE, "token %d of the prompt is %d, expected 0 to %d", i, r->ids[i],
                             n_vocab - 1);
    return 0;
}

/* Keeps what the new prompt has in common with the sequence before; its last token is run for its logits. */
static void keep_prefix(struct llmq_engine *e, const struct llmq_request *r)
{
    struct sequence *s = &e->seq;
    int              keep = 0, pages;

    while (keep < s->n_done && keep < r->n_ids - 1 && s->ids[keep] == r->ids[keep])
        keep++;
    pages = (keep + e->page_tokens - 1) / e->page_tokens;
    while (s->n_pages > pages)
        kvpool_release(&e->pool, s->pages[--s->n_pages]);
    s->n_done = s->n_cached = keep;
}

int llmq_engine_submit(struct llmq_engine *e, const struct llmq_request *r, struct llmq_err *err)
{
    struct sequence *s = &e->seq;

    if (check_request(e, r, err))
        return err->code;
    keep_prefix(e, r);
    memcpy(s->ids, r->ids, (size_t)r->n_ids * sizeof *s->ids);
    s->n_ids = s->n_prompt = r->n_ids;
    s->max_new = r->max_new;
    s->ignore_eos = r->ignore_eos;
    memcpy(s->stop_id, r->stop_id, sizeof s->stop_id);
    s->n_stop = r->n_stop;
    s->sampling = r->sampling;
    s->active = 1;
    llmq_rng_seed(&s->rng, r->sampling.seed);
    e->submitted_at = e->first_at = e->last_at = llmq_clock_s();
    return 0;
}

/* The sequence was checked against ctx, and the pool holds ctx tokens, so a page is always there. */
static void place_tokens(struct llmq_engine *e, int tokens)
{
    struct sequence *s = &e->seq;

    for (int i = 0; i < tokens; i++) {
        int pos = s->n_done + i, page = pos / e->page_tokens;

        if (page == s->n_pages)
            s->pages[s->n_pages++] = kvpool_alloc(&e->pool);
        e->pos[i] = pos;
        e->slot[i] = s->pages[page] * e->page_tokens + pos % e->page_tokens;
    }
}

static int run_batch(struct llmq_engine *e, int tokens, int want_logits, struct llmq_err *err)
{
    struct sequence *s = &e->seq;
    int32_t          q_start[2] = {0, tokens}, kv_len = s->n_done + tokens, page_start[2] = {0, 0}, last = tokens - 1;
    struct batch     b = {.tokens = tokens, .seqs = 1, .ids = s->ids + s->n_done, .pos = e->pos, .q_start = q_start,
                          .kv_len = &kv_len, .page_start = page_start, .page_table = s->pages, .slot = e->slot,
                          .n_logits = want_logits, .logit_rows = &last};

    place_tokens(e, tokens);
    page_start[1] = s->n_pages;
    if (model_forward(e->model, e->kv, &b, err))
        return err->code;
    s->n_done += tokens;
    return 0;
}

static int is_end(const struct llmq_hparams *hp, const struct sequence *s, int32_t id)
{
    for (int i = 0; i < s->n_stop; i++)
        if (s->stop_id[i] == id)
            return 1;
    for (uint32_t i = 0; i < hp->n_eos; i++)
        if (hp->eos_id[i] == id)
            return 1;
    return 0;
}

static void take_token(struct llmq_engine *e, struct llmq_step_out *out)
{
    struct sequence *s = &e->seq;

    out->id = sampler_pick(e->sampler, e->model->logits, &s->sampling, s->ids, s->n_ids, &s->rng);
    s->ids[s->n_ids++] = out->id;
    e->last_at = llmq_clock_s();
    if (s->n_ids == s->n_prompt + 1)
        e->first_at = e->last_at;
    if (!s->ignore_eos && is_end(&e->model->hp, s, out->id))
        out->finish = LLMQ_FINISH_STOP;
    else if (s->n_ids - s->n_prompt >= s->max_new || s->n_ids >= e->ctx)
        out->finish = LLMQ_FINISH_LENGTH;
}

int llmq_engine_step(struct llmq_engine *e, struct llmq_step_out *out, struct llmq_err *err)
{
    struct sequence *s = &e->seq;
    int              left = s->n_ids - s->n_done, tokens = left < e->piece ? left : e->piece, last = tokens == left, rc;

    *out = (struct llmq_step_out){.id = -1};
    if (!s->active)
        return llmq_fail(err, LLMQ_EUSAGE, "no request is running");
    if (s->max_new < 1) {
        out->finish = LLMQ_FINISH_LENGTH;
        s->active = 0;
        return 0;
    }
    llmq_alloc_forbid();
    rc = run_batch(e, tokens, last, err);
    if (!rc && last)
        take_token(e, out);
    llmq_alloc_permit();
    if (rc || out->finish)
        s->active = 0;
    return rc;
}

void llmq_engine_get_stats(const struct llmq_engine *e, struct llmq_engine_stats *st)
{
    *st = (struct llmq_engine_stats){.prompt_tokens = e->seq.n_prompt,
                                     .cached_tokens = e->seq.n_cached,
                                     .completion_tokens = e->seq.n_ids - e->seq.n_prompt,
                                     .load_s = e->load_s,
                                     .ttft_s = e->first_at - e->submitted_at,
                                     .prefill_s = e->first_at - e->submitted_at,
                                     .decode_s = e->last_at - e->first_at,
                                     .kv_dtype = e->kv_name,
                                     .page_tokens = e->page_tokens,
                                     .pages_used = e->seq.n_pages,
                                     .pages_total = e->pool.n_pages,
                                     .ctx = e->ctx};
}
