/* A matrix on its way: read as float, given codes, packed, written. */
#include "quantize/method.h"

#include <string.h>

struct quantize_tensor_report *qmat_report(const struct job *j, int index)
{
    const struct llmq_tensor *t = &j->src->tensors[index];

    for (int i = 0; i < j->rep->n_tensors; i++)
        if (j->rep->tensors[i].role == t->role && j->rep->tensors[i].layer == t->layer)
            return &j->rep->tensors[i];
    return NULL;
}

static int hash_rows(struct job *j, int index, uint32_t row, uint32_t rows, void *raw, struct llmq_sha256 *sha, struct llmq_err *err)
{
    const struct llmq_tensor *t = &j->src->tensors[index];

    if (j->src->read(j->src, index, row, rows, raw, err))
        return err->code;
    llmq_sha256_update(sha, raw, (size_t)rows * t->k * llmq_dtype_bytes(t->scheme.dtype));
    return 0;
}

int qmat_read(struct job *j, int index, uint32_t row, uint32_t rows, float *out, struct llmq_sha256 *sha, struct llmq_err *err)
{
    /* Elements are 4 bytes at most, so that out has room for the raw rows, which are hashed and then read over. */
    if (sha && hash_rows(j, index, row, rows, out, sha, err))
        return err->code;
    return llmq_source_rows_f32(j->src, index, row, rows, out, err);
}

/* Packed form and its room. */
static int packed_new(struct llmq_arena *a, const struct llmq_tensor *src, const struct llmq_scheme *s, struct llmq_tensor *t, struct llmq_err *err)
{
    void *data = NULL, *scales = NULL, *zeros = NULL;

    memset(t, 0, sizeof *t);
    t->role = src->role;
    t->layer = src->layer;
    t->expert = src->expert;
    t->layout = LLMQ_LAYOUT_TILES;
    t->scheme = *s;
    t->n = src->n;
    t->k = src->k;
    t->rel_err = -1;
    t->name = src->name;
    if (llmq_tensor_sizes(t, err) || llmq_arena_alloc(a, &data, t->data_bytes, 1, "codes", err) ||
        llmq_arena_alloc(a, &scales, t->scale_bytes, 1, "scales", err) ||
        (t->zero_bytes && llmq_arena_alloc(a, &zeros, t->zero_bytes, 1, "zero points", err)))
        return err->code;
    t->data = data;
    t->scales = scales;
    t->zeros = zeros;
    return 0;
}

int qmat_packed(struct job *j, struct llmq_arena *a, int index, struct llmq_tensor *t, struct llmq_err *err)
{
    struct llmq_scheme s;

    plan_scheme(j->o, j->hp, &j->src->tensors[index], &s);
    return packed_new(a, &j->src->tensors[index], &s, t, err);
}

int qmat_load(struct job *j, struct llmq_arena *work, struct llmq_arena *keep, int role, int layer, struct qmat *q, struct llmq_err *err)
{
    struct llmq_sha256 sha;

    q->index = llmq_source_find(j->src, role, layer);
    if (q->index < 0)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: layer %d has no %s", j->src->name, layer, llmq_role_name(role));
    if (qmat_packed(j, keep, q->index, &q->packed, err))
        return err->code;
    q->scheme = q->packed.scheme;
    q->n = q->packed.n;
    q->k = q->packed.k;
    q->groups = llmq_scheme_groups(&q->scheme, q->k);
    q->rep = qmat_report(j, q->index);
    if (LLMQ_ARENA_NEW(work, &q->w, (size_t)q->n * q->k, "weights", err) ||
        LLMQ_ARENA_NEW(keep, &q->codes, (size_t)q->n * q->k, "codes", err) ||
        LLMQ_ARENA_NEW(keep, &q->scales, (size_t)q->n * q->groups, "scales", err) ||
        LLMQ_ARENA_NEW(keep, &q->zeros, (size_t)q->n * q->groups, "zero points", err))
        return err->code;
    llmq_sha256_init(&sha);
    if (qmat_read(j, q->index, 0, q->n, q->w, &sha, err))
        return err->code;
    llmq_sha256_hex(&sha, q->rep->source_sha256);
    return 0;
}

int qmat_pack(struct qmat *q, struct llmq_err *err)
{
    if (grid_check(q->scales, q->n, q->groups, q->packed.name, err))
        return err->code;
    llmq_pack(&q->packed, q->codes, q->scales, q->scheme.symmetric ? NULL : q->zeros);
    return 0;
}

int qmat_vector(const struct llmq_tensor *like, const float *v, struct llmq_tensor *out, struct llmq_err *err)
{
    memset(out, 0, sizeof *out);
    out->role = like->role;
    out->layer = like->layer;
    out->expert = like->expert;
    out->layout = LLMQ_LAYOUT_ROWS;
    out->scheme = (struct llmq_scheme){.kind = LLMQ_KIND_DENSE, .dtype = LLMQ_DTYPE_F32};
    out->n = like->n;
    out->k = 1;
    out->rel_err = -1;
    out->name = like->name;
    out->data = v;
    return llmq_tensor_sizes(out, err);
}

int qmat_write(struct job *j, struct llmq_tensor *t, struct quantize_tensor_report *rep, struct llmq_err *err)
{
    struct llmq_sha256 sha;

    if (rep) {
        t->rel_err = (float)rep->rel_err;
        llmq_sha256_init(&sha);
        llmq_sha256_update(&sha, t->data, t->data_bytes);
        llmq_sha256_update(&sha, t->scales, t->scale_bytes);
        if (t->zero_bytes)
            llmq_sha256_update(&sha, t->zeros, t->zero_bytes);
        llmq_sha256_hex(&sha, rep->sha256);
    }
    return llmq_writer_put(j->w, t, err);
}
