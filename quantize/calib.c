/* Calibration windows as batches: each window is a sequence of its own that begins at position 0, and the same
 * pages serve one window after the other. */
#include "quantize/method.h"

#include "runner/text/corpus.h"

int calib_longest(const struct corpus *c)
{
    int longest = 0;

    for (int i = 0; i < c->n_windows; i++)
        longest = c->windows[i].len > longest ? c->windows[i].len : longest;
    return longest;
}

static int check_ids(const struct job *j, struct llmq_err *err)
{
    const struct corpus *c = j->o->calib;

    for (int i = 0; i < c->n_windows; i++)
        for (int t = 0; t < c->windows[i].len; t++) {
            int32_t id = c->ids[c->windows[i].start + (size_t)t];
            if (id < 0 || (uint32_t)id >= j->hp->n_vocab)
                return llmq_fail(err, LLMQ_EFORMAT, "calibration window %d, token %d: id %d, expected one below %u", i, t,
                                 (int)id, j->hp->n_vocab);
        }
    return 0;
}

static int batch_new(struct job *j, struct llmq_arena *a, int longest, struct llmq_err *err)
{
    int pages = (longest + CALIB_PAGE - 1) / CALIB_PAGE;

    if (LLMQ_ARENA_NEW(a, &j->wb, 1, "a batch", err) || LLMQ_ARENA_NEW(a, &j->wb->pos, longest, "positions", err) ||
        LLMQ_ARENA_NEW(a, &j->wb->slot, longest, "slots", err) || LLMQ_ARENA_NEW(a, &j->wb->pages, pages, "a page table", err))
        return err->code;
    for (int p = 0; p < pages; p++)
        j->wb->pages[p] = p;
    for (int t = 0; t < longest; t++)
        j->wb->pos[t] = j->wb->slot[t] = t; /* pages in order: the slot of position t is t */
    return kv_store_new(&j->kv, j->m, KV_F32, pages, CALIB_PAGE, 1, err);
}

int calib_open(struct job *j, struct llmq_arena *arena, struct llmq_err *err)
{
    const struct corpus *c = j->o->calib;
    size_t               q = (size_t)j->hp->n_heads * j->hp->head_dim, wide = q > j->hp->d_ff ? q : j->hp->d_ff;

    j->tokens = 0;
    for (int i = 0; i < c->n_windows; i++)
        j->tokens += (size_t)c->windows[i].len;
    if (check_ids(j, err) || batch_new(j, arena, calib_longest(c), err) ||
        LLMQ_ARENA_NEW(arena, &j->h, j->tokens * j->hp->d_model, "hidden states of the calibration tokens", err))
        return err->code;
    return LLMQ_ARENA_NEW(arena, &j->act, j->tokens * wide, "activations of the calibration tokens", err);
}

const struct batch *calib_batch(struct job *j, int tokens)
{
    struct window_batch *wb = j->wb;

    wb->start[1] = wb->kv_len[0] = tokens;
    wb->page_start[1] = (tokens + CALIB_PAGE - 1) / CALIB_PAGE;
    wb->b = (struct batch){.tokens = tokens, .seqs = 1, .pos = wb->pos, .q_start = wb->start, .kv_len = wb->kv_len,
                           .page_start = wb->page_start, .page_table = wb->pages, .slot = wb->slot};
    return &wb->b;
}

/* Rows of the table, one token at a time: a dense table is never held as a whole. */
int calib_embed(struct job *j, const struct llmq_tensor *packed, int index, struct llmq_err *err)
{
    const struct corpus *c = j->o->calib;
    size_t               d = j->hp->d_model;
    float               *h = j->h;

    for (int i = 0; i < c->n_windows; i++)
        for (int t = 0; t < c->windows[i].len; t++, h += d) {
            uint32_t id = (uint32_t)c->ids[c->windows[i].start + (size_t)t];
            if (packed)
                llmq_dequant_rows(packed, id, 1, h);
            else if (llmq_source_rows_f32(j->src, index, id, 1, h, err))
                return err->code;
        }
    return 0;
}
