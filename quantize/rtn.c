/* Round to nearest: min-max grids, no data.  Also the tables that AWQ leaves to it (output head, embedding).
 *
 * A matrix passes in chunks of rows (multiples of the tile's 16, so that a chunk packs into its own piece of the
 * tensor): memory is the packed tensor and one chunk, whatever the matrix. */
#include "quantize/method.h"

#include "common/clock.h"

#include <math.h>
#include <string.h>

enum { CHUNK_WEIGHTS = 1 << 21 };

struct chunk {
    uint32_t rows; /* most rows at a time */
    float   *w, *scales;
    uint8_t *codes, *zeros;
    double  *error, *norm; /* [rows] */
};

static int chunk_new(struct chunk *c, struct llmq_arena *a, const struct llmq_tensor *t, struct llmq_err *err)
{
    uint32_t groups = llmq_scheme_groups(&t->scheme, t->k);

    c->rows = CHUNK_WEIGHTS / t->k / LLMQ_TILE_N * LLMQ_TILE_N;
    c->rows = c->rows < LLMQ_TILE_N ? LLMQ_TILE_N : c->rows < t->n ? c->rows : t->n;
    if (LLMQ_ARENA_NEW(a, &c->w, (size_t)c->rows * t->k, "weights", err) ||
        LLMQ_ARENA_NEW(a, &c->codes, (size_t)c->rows * t->k, "codes", err) ||
        LLMQ_ARENA_NEW(a, &c->scales, (size_t)c->rows * groups, "scales", err) ||
        LLMQ_ARENA_NEW(a, &c->zeros, (size_t)c->rows * groups, "zero points", err) ||
        LLMQ_ARENA_NEW(a, &c->error, c->rows, "sums", err))
        return err->code;
    return LLMQ_ARENA_NEW(a, &c->norm, c->rows, "sums", err);
}

/* The piece of a packed tensor that holds rows [row, row + rows). */
static int piece_of(const struct llmq_tensor *t, uint32_t row, uint32_t rows, struct llmq_tensor *piece, struct llmq_err *err)
{
    *piece = *t;
    piece->n = rows;
    if (llmq_tensor_sizes(piece, err))
        return err->code;
    piece->data = (const char *)t->data + t->data_bytes / t->n_pad * row;
    piece->scales = (const char *)t->scales + t->scale_bytes / t->n_pad * row;
    piece->zeros = t->zero_bytes ? (const char *)t->zeros + t->zero_bytes / t->n_pad * row : NULL;
    return 0;
}

static int chunk_pack(struct chunk *c, const struct llmq_tensor *t, uint32_t row, uint32_t rows, struct llmq_err *err)
{
    const struct llmq_scheme *s = &t->scheme;
    struct llmq_tensor        piece;

    grid_fit_rows(s, c->w, rows, t->k, c->scales, c->zeros);
    if (grid_check(c->scales, rows, llmq_scheme_groups(s, t->k), t->name, err) || piece_of(t, row, rows, &piece, err))
        return err->code;
    grid_encode_rows(s, c->w, rows, t->k, c->scales, c->zeros, c->codes);
    grid_error_rows(s, c->w, rows, t->k, c->scales, c->zeros, c->error, c->norm);
    llmq_pack(&piece, c->codes, c->scales, s->symmetric ? NULL : c->zeros);
    return 0;
}

int rtn_stream(struct job *j, struct llmq_arena *keep, int index, struct llmq_tensor *out, struct llmq_err *err)
{
    struct quantize_tensor_report *rep = qmat_report(j, index);
    struct llmq_arena              work = {0};
    struct llmq_sha256             sha;
    struct chunk                   c;
    double                         error = 0, norm = 0;

    llmq_sha256_init(&sha);
    if (qmat_packed(j, keep, index, out, err) || chunk_new(&c, &work, out, err))
        goto out;
    for (uint32_t row = 0; row < out->n; row += c.rows) {
        uint32_t rows = out->n - row < c.rows ? out->n - row : c.rows;
        if (job_cancelled(j, err) || qmat_read(j, index, row, rows, c.w, &sha, err) || chunk_pack(&c, out, row, rows, err))
            goto out;
        for (uint32_t r = 0; r < rows; r++) {
            error += c.error[r];
            norm += c.norm[r];
        }
    }
    llmq_sha256_hex(&sha, rep->source_sha256);
    rep->rel_err = rep->rtn_rel_err = norm > 0 ? sqrt(error / norm) : 0;
    rep->clip_rate = 0;
out:
    llmq_arena_free(&work);
    return err->code;
}

/* ---- tensors that stay dense ---------------------------------------------------------------------- */

static int write_vector(struct job *j, int index, struct llmq_err *err)
{
    const struct llmq_tensor *t = &j->src->tensors[index];
    struct llmq_tensor        out;
    float                    *v;

    if (LLMQ_NEW(&v, t->n, "a vector", err))
        return err->code;
    if (!llmq_source_rows_f32(j->src, index, 0, t->n, v, err) && !qmat_vector(t, v, &out, err))
        (void)!llmq_writer_put(j->w, &out, err);
    llmq_free(v);
    return err->code;
}

static int write_matrix(struct job *j, int index, struct llmq_err *err)
{
    struct llmq_tensor             t = j->src->tensors[index];
    struct quantize_tensor_report *rep = qmat_report(j, index);
    struct llmq_sha256             sha;
    size_t                         row_bytes = (size_t)t.k * llmq_dtype_bytes(t.scheme.dtype);
    uint32_t                       step = CHUNK_WEIGHTS / t.k + 1;
    char                          *raw;

    t.layout = LLMQ_LAYOUT_ROWS;
    t.rel_err = 0;
    llmq_sha256_init(&sha);
    if (LLMQ_NEW(&raw, row_bytes * step, "rows", err))
        return err->code;
    if (llmq_writer_tensor(j->w, &t, err))
        goto out;
    for (uint32_t row = 0; row < t.n; row += step) {
        uint32_t rows = t.n - row < step ? t.n - row : step;
        if (job_cancelled(j, err) || j->src->read(j->src, index, row, rows, raw, err) ||
            llmq_writer_bytes(j->w, raw, rows * row_bytes, err))
            goto out;
        llmq_sha256_update(&sha, raw, rows * row_bytes);
    }
    llmq_sha256_hex(&sha, rep->source_sha256);
    memcpy(rep->sha256, rep->source_sha256, sizeof rep->sha256);
    rep->rel_err = rep->rtn_rel_err = 0;
out:
    llmq_free(raw);
    return err->code;
}

int rtn_dense(struct job *j, int index, struct llmq_err *err)
{
    return j->src->tensors[index].k == 1 ? write_vector(j, index, err) : write_matrix(j, index, err);
}

/* ---- the method ------------------------------------------------------------------------------------- */

static int one_tensor(struct job *j, int index, struct llmq_err *err)
{
    const struct llmq_tensor *t = &j->src->tensors[index];
    struct llmq_arena         keep = {0};
    struct llmq_tensor        out;
    struct llmq_scheme        s;
    double                    start = llmq_clock_s();

    plan_scheme(j->o, j->hp, t, &s);
    if (s.kind == LLMQ_KIND_DENSE)
        return rtn_dense(j, index, err);
    if (!rtn_stream(j, &keep, index, &out, err) && !qmat_write(j, &out, qmat_report(j, index), err))
        qmat_report(j, index)->seconds = llmq_clock_s() - start;
    llmq_arena_free(&keep);
    return err->code;
}

int rtn_run(struct job *j, struct llmq_err *err)
{
    for (int i = 0; i < j->src->n_tensors; i++) {
        const struct llmq_tensor *t = &j->src->tensors[i];
        if (one_tensor(j, i, err))
            return err->code;
        job_progress(j, t->layer == LLMQ_NO_LAYER ? -1 : t->layer, llmq_role_name(t->role), plan_work(j->o, t));
    }
    return 0;
}
