/* Writes a dense source as a .llmq (convert_write).
 *
 * Tensors are taken in destination order and pass through in windows of rows: read, check for NaN and infinity,
 * change the element type where one is asked for, append.  The source's files are hashed at the same time on
 * another core: they are in another order than the destination, so the hash needs a second reading, which comes
 * from the page cache and costs no time of its own.  One fork for the whole job, not one for each window: on a
 * busy machine a join waits for a core, and 500 of them made a job of 6 CPU-seconds take 24. */
#include "convert/convert.h"

#include "common/alloc.h"
#include "common/fp.h"
#include "common/json.h"
#include "common/parallel.h"
#include "common/str.h"
#include "convert/hfsource.h"

#include <stdio.h>
#include <string.h>

enum { WINDOW = 4 << 20, BLOCK = 1024, MAX_PROVENANCE = 16 << 20 };

struct job {
    struct llmq_source           *src;
    const struct convert_options *o;
    struct llmq_writer           *w;
    char                         *in, *out; /* window_bytes each */
    size_t                        window_bytes;
    uint64_t                      done, total;

    int             index; /* the window that is being copied */
    uint32_t        row, rows;
    int             hashed, alone; /* alone: one thread does both in turn */
    int             stop;          /* atomic: one side failed, the other need not go on */
    int             failed[2];
    struct llmq_err err[2]; /* of the copying side and the hashing side, which run at once */
};

/* ---- elements ---------------------------------------------------------------------------------- */

/* Where the exponent stands: adding `carry` to the masked element sets the sign bit iff all its bits are set. */
static const struct {
    uint64_t mask, carry, sign;
} exponent[LLMQ_DTYPE_COUNT] = {
    [LLMQ_DTYPE_F32] = {0x7f8000007f800000u, 0x0080000000800000u, 0x8000000080000000u},
    [LLMQ_DTYPE_F16] = {0x7c007c007c007c00u, 0x0400040004000400u, 0x8000800080008000u},
    [LLMQ_DTYPE_BF16] = {0x7f807f807f807f80u, 0x0080008000800080u, 0x8000800080008000u},
};

/* Is any of these elements NaN or infinite?  Eight bytes at a time. */
static int any_nonfinite(const char *p, size_t bytes, int dtype)
{
    uint64_t mask = exponent[dtype].mask, carry = exponent[dtype].carry, seen = 0, v;
    size_t   i = 0;

    for (; i + 8 <= bytes; i += 8) {
        memcpy(&v, p + i, 8);
        seen |= (v & mask) + carry;
    }
    v = 0;
    memcpy(&v, p + i, bytes - i);
    seen |= (v & mask) + carry;
    return (seen & exponent[dtype].sign) != 0;
}

static void widen(const char *src, int dtype, float *dst, size_t n)
{
    const uint16_t *half = (const uint16_t *)(const void *)src;

    if (dtype == LLMQ_DTYPE_F32)
        memcpy(dst, src, n * sizeof *dst);
    for (size_t i = 0; dtype == LLMQ_DTYPE_F16 && i < n; i++)
        dst[i] = llmq_f16_to_f32(half[i]);
    for (size_t i = 0; dtype == LLMQ_DTYPE_BF16 && i < n; i++)
        dst[i] = llmq_bf16_to_f32(half[i]);
}

static void narrow(const float *src, int dtype, char *dst, size_t n)
{
    uint16_t *half = (uint16_t *)(void *)dst;

    if (dtype == LLMQ_DTYPE_F32)
        memcpy(dst, src, n * sizeof *src);
    for (size_t i = 0; dtype == LLMQ_DTYPE_F16 && i < n; i++)
        half[i] = llmq_f32_to_f16(src[i]);
    for (size_t i = 0; dtype == LLMQ_DTYPE_BF16 && i < n; i++)
        half[i] = llmq_f32_to_bf16(src[i]);
}

static void cast(const char *src, int from, char *dst, int to, size_t n)
{
    float  block[BLOCK];
    size_t a = llmq_dtype_bytes(from), b = llmq_dtype_bytes(to);

    for (size_t i = 0; i < n; i += BLOCK) {
        size_t m = n - i < BLOCK ? n - i : BLOCK;

        widen(src + i * a, from, block, m);
        narrow(block, to, dst + i * b, m);
    }
}

/* Names the first element of the window that is not finite: in the source, or only once it was cast. */
static int refuse_nonfinite(const struct job *j, const char *elements, int dtype, int cast_to, struct llmq_err *err)
{
    const struct llmq_tensor *t = &j->src->tensors[j->index];
    size_t                    size = llmq_dtype_bytes(dtype), n = (size_t)j->rows * t->k, i = 0;
    int                       from = t->scheme.dtype;
    float                     x;

    while (i + 1 < n && !any_nonfinite(elements + i * size, size, dtype))
        i++;
    widen(j->in + i * llmq_dtype_bytes(from), from, &x, 1);
    if (cast_to)
        return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %s, row %zu, column %zu: %g does not fit %s; use --dtype %s",
                         j->src->name, t->name, j->row + i / t->k, i % t->k, (double)x, llmq_dtype_name(cast_to),
                         cast_to == LLMQ_DTYPE_F16 ? "bf16" : "fp32");
    return llmq_fail(err, LLMQ_EFORMAT, "%s: tensor %s, row %zu, column %zu is %s, expected a finite number",
                     j->src->name, t->name, j->row + i / t->k, i % t->k, x != x ? "NaN" : "infinite");
}

/* ---- windows ------------------------------------------------------------------------------------- */

static int out_dtype(const struct job *j, int index)
{
    return j->o->dtype == LLMQ_DTYPE_NONE ? j->src->tensors[index].scheme.dtype : j->o->dtype;
}

static int copy_window(struct job *j, struct llmq_err *err)
{
    const struct llmq_tensor *t = &j->src->tensors[j->index];
    int                       from = t->scheme.dtype, to = out_dtype(j, j->index);
    size_t                    n = (size_t)j->rows * t->k, bytes = n * llmq_dtype_bytes(from);

    if (j->src->read(j->src, j->index, j->row, j->rows, j->in, err))
        return err->code;
    if (any_nonfinite(j->in, bytes, from))
        return refuse_nonfinite(j, j->in, from, 0, err);
    if (from == to)
        return llmq_writer_bytes(j->w, j->in, bytes, err);
    cast(j->in, from, j->out, to, n);
    bytes = n * llmq_dtype_bytes(to);
    if (any_nonfinite(j->out, bytes, to))
        return refuse_nonfinite(j, j->out, to, to, err);
    return llmq_writer_bytes(j->w, j->out, bytes, err);
}

static int stopped(struct job *j, struct llmq_err *err)
{
    if (j->o->cancel && __atomic_load_n(j->o->cancel, __ATOMIC_RELAXED))
        return llmq_fail(err, LLMQ_EINTR, "interrupted; nothing was written");
    return __atomic_load_n(&j->stop, __ATOMIC_RELAXED) ? llmq_fail(err, LLMQ_EINTR, "stopped") : 0;
}

static int window_done(struct job *j, struct llmq_err *err)
{
    j->done += (uint64_t)j->rows * j->src->tensors[j->index].k * llmq_dtype_bytes(out_dtype(j, j->index));
    if (j->o->progress)
        j->o->progress(j->o->progress_ctx, j->done, j->total);
    if (j->alone && !j->hashed && hfsource_hash_some(j->src, WINDOW, &j->hashed, err))
        return err->code;
    return stopped(j, err);
}

static size_t widest_row(const struct job *j, int index)
{
    size_t a = llmq_dtype_bytes(j->src->tensors[index].scheme.dtype), b = llmq_dtype_bytes(out_dtype(j, index));

    return (size_t)j->src->tensors[index].k * (a > b ? a : b);
}

static int copy_tensor(struct job *j, int index, struct llmq_err *err)
{
    struct llmq_tensor t = j->src->tensors[index];
    uint32_t           window = (uint32_t)(j->window_bytes / widest_row(j, index));

    t.scheme.dtype = (uint8_t)out_dtype(j, index);
    t.data = NULL;
    if (llmq_writer_tensor(j->w, &t, err))
        return err->code;
    j->index = index;
    for (j->row = 0; j->row < t.n; j->row += j->rows) {
        j->rows = t.n - j->row < window ? t.n - j->row : window;
        if (copy_window(j, err) || window_done(j, err))
            return err->code;
    }
    return 0;
}

static int copy_all(struct job *j, struct llmq_err *err)
{
    for (int i = 0; i < j->src->n_tensors; i++)
        if (copy_tensor(j, i, err))
            return err->code;
    return 0;
}

static int hash_all(struct job *j, struct llmq_err *err)
{
    while (!j->hashed)
        if (hfsource_hash_some(j->src, WINDOW, &j->hashed, err) || stopped(j, err))
            return err->code;
    return 0;
}

static void side(void *ctx, long begin, long end, int thread)
{
    struct job *j = ctx;

    (void)thread;
    for (long i = begin; i < end; i++) {
        j->failed[i] = i == 0 ? copy_all(j, &j->err[0]) : hash_all(j, &j->err[1]);
        if (j->failed[i])
            __atomic_store_n(&j->stop, 1, __ATOMIC_RELAXED);
    }
}

/* The side that failed by itself has the message; the other one may have stopped because of it. */
static int copy_and_hash(struct job *j, struct llmq_err *err)
{
    j->alone = llmq_parallel_threads() == 1;
    llmq_parallel_for(2, 1, side, j);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < 2; i++)
            if (j->failed[i] && (pass || j->failed[i] != LLMQ_EINTR)) {
                *err = j->err[i];
                return err->code;
            }
    return 0;
}

/* Windows hold a whole row, however long. */
static int plan(struct job *j, struct llmq_err *err)
{
    j->window_bytes = WINDOW;
    for (int i = 0; i < j->src->n_tensors; i++) {
        const struct llmq_tensor *t = &j->src->tensors[i];
        size_t                    row = widest_row(j, i);

        if (row > j->window_bytes)
            j->window_bytes = row;
        j->total += (uint64_t)t->n * t->k * llmq_dtype_bytes(out_dtype(j, i));
    }
    return LLMQ_NEW(&j->in, j->window_bytes, "a window", err) || LLMQ_NEW(&j->out, j->window_bytes, "a window", err)
               ? err->code
               : 0;
}

/* ---- sections -------------------------------------------------------------------------------------- */

static int copy_sections(struct job *j, struct llmq_err *err)
{
    static const int ids[] = {LLMQ_SECTION_TOKENIZER, LLMQ_SECTION_VOCAB, LLMQ_SECTION_MERGES,
                              LLMQ_SECTION_CHAT_TEMPLATE, LLMQ_SECTION_GENERATION};

    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        size_t      len;
        const char *text = j->src->section(j->src, ids[i], &len);

        if (len && llmq_writer_section(j->w, ids[i], text, len, err))
            return err->code;
    }
    return 0;
}

static const char *dtype_option(int dtype)
{
    return dtype == LLMQ_DTYPE_F32 ? "fp32" : dtype == LLMQ_DTYPE_F16 ? "fp16" : dtype == LLMQ_DTYPE_BF16 ? "bf16" : "auto";
}

static int write_provenance(struct job *j, struct llmq_err *err)
{
    const char     *files = j->src->files_json ? j->src->files_json(j->src, err) : "[]";
    json_t         *source = NULL, *doc;
    struct llmq_str text;
    int             rc;

    if (!files)
        return err->code;
    rc = llmq_json_parse(&source, files, strlen(files), MAX_PROVENANCE, "the list of source files", err);
    if (rc)
        return rc;
    llmq_str_init(&text, MAX_PROVENANCE);
    doc = json_pack("{s:s, s:s, s:s, s:{s:s}, s:o}", "tool", "llmq", "version", j->o->version ? j->o->version : "unknown",
                    "method", "convert", "options", "dtype", dtype_option(j->o->dtype), "source", source);
    rc = doc ? llmq_json_text(doc, &text, err) : llmq_fail(err, LLMQ_ENOMEM, "provenance: no memory");
    if (!rc)
        rc = llmq_writer_section(j->w, LLMQ_SECTION_PROVENANCE, text.data, text.len, err);
    json_decref(doc);
    llmq_str_fini(&text);
    return rc;
}

static int write_all(struct job *j, const char *path, struct llmq_err *err)
{
    if (plan(j, err) || llmq_writer_open(&j->w, path, j->src->hparams, err))
        return err->code;
    return copy_and_hash(j, err) || copy_sections(j, err) || write_provenance(j, err) ? err->code : 0;
}

int convert_write(struct llmq_source *src, const char *path, const struct convert_options *o, struct llmq_err *err)
{
    struct job j = {.src = src, .o = o};
    int        rc = write_all(&j, path, err);

    if (rc)
        llmq_writer_abort(j.w);
    else
        rc = llmq_writer_finish(j.w, NULL, err);
    llmq_free(j.in);
    llmq_free(j.out);
    return rc;
}
